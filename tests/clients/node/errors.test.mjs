// Failures through openai for Node: the right error, with what a caller needs in it, at the right time.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { OpenAI, client, messages, read } from './ground.mjs';

const openai = client();
const create = (model, more = {}) => openai.chat.completions.create({ model, messages, ...more });

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail('nothing was thrown');
}

// engine status -> class, HTTP status, type, code, param, a piece of the message
const BEFORE = {
  400: ['BadRequestError', 400, 'invalid_request_error', null, 'temperature', 'temperature must be non-negative'],
  401: ['AuthenticationError', 401, 'invalid_request_error', 'invalid_api_key', null, 'Invalid credentials'],
  403: ['PermissionDeniedError', 403, 'permission_error', null, null, 'Not for you'],
  404: ['NotFoundError', 404, 'invalid_request_error', 'model_not_found', 'model', 'The model `nope` does not exist.'],
  422: ['BadRequestError', 400, 'invalid_request_error', null, 'messages', 'messages is too short'],
  429: ['RateLimitError', 429, 'rate_limit_error', 'rate_limit_exceeded', null, 'The request queue is full.'],
  500: ['InternalServerError', 500, 'server_error', 'internal_error', null, 'EngineCore encountered an issue.'],
  503: ['InternalServerError', 503, 'server_error', 'server_is_overloaded', null, 'Service is shutting down.'],
};

describe('before the stream', () => {
  const check = (error, [name, status, type, code, param, message]) => {
    assert.equal(error.constructor, OpenAI[name]);
    assert.deepEqual([error.status, error.type, error.code, error.param], [status, type, code, param]);
    assert.ok(error.message.includes(message), error.message);
    assert.ok(error.requestID);
    assert.deepEqual(Object.keys(error.error), ['message', 'type', 'param', 'code']);
  };
  for (const [status, expected] of Object.entries(BEFORE)) {
    for (const stream of [false, true]) {
      test(`status ${status}, stream ${stream}`, async () => check(await failure(create(`status-${status}`, { stream })), expected));
    }
    test(`${status} as the first event of a 200`, async () => check(await failure(create(`event-${status}`, { stream: true })), expected));
  }

  for (const model of ['status-429', 'status-503']) {
    test(`retry-after survives: ${model}`, async () => {
      assert.equal((await failure(create(model, { stream: true }))).headers.get('retry-after'), '7');
    });
  }

  test('the library tries again by itself', async () => {
    const patient = client(undefined, { maxRetries: 3 });
    const request = { model: 'busy-once', messages, stream: true, user: 'node' };
    assert.deepEqual((await read(patient.chat.completions.create(request))).finishes(), ['stop']);
  });

  test('the stream helper rejects with the typed error', async () => {
    const error = await failure(openai.chat.completions.stream({ model: 'status-404', messages }).finalChatCompletion());
    assert.equal(error.constructor, OpenAI.NotFoundError);
  });

  test('the context length has its code', async () => {
    const error = await failure(create('context-length', { stream: true }));
    assert.deepEqual([error.constructor, error.code], [OpenAI.BadRequestError, 'context_length_exceeded']);
  });

  test('HTML never reaches the caller', async () => {
    const error = await failure(create('html'));
    assert.deepEqual([error.status, error.code], [502, 'upstream_invalid_response']);
    assert.ok(!error.message.includes('<'));
  });

  test('an abort in a whole answer', async () => {
    const error = await failure(create('aborted'));
    assert.deepEqual([error.status, error.code], [502, 'upstream_aborted']);
  });
});

const INCOMPLETE = 'Upstream connection closed before the answer was complete (stream ended without finish_reason).';
const MIDDLE = {
  'error-mid-stream': ['internal_error', 'CUDA out of memory'],
  'error-flat': ['server_is_overloaded', 'engine overloaded'],
  cut: ['upstream_incomplete', INCOMPLETE],
  reset: ['upstream_incomplete', INCOMPLETE],
  'no-finish': ['upstream_incomplete', INCOMPLETE],
  'no-finish-done': ['upstream_incomplete', INCOMPLETE],
  garbage: ['upstream_invalid_event', 'Server error: the upstream engine sent an event that cannot be read.'],
};

describe('in the stream', () => {
  const check = (error, code, message) => {
    assert.ok(error, 'the stream ended as if it were complete');
    assert.equal(error.constructor, OpenAI.APIError);
    assert.deepEqual([error.type, error.code, error.param, error.message], ['server_error', code, null, message]);
  };
  for (const [model, [code, message]] of Object.entries(MIDDLE)) {
    test(`text first, then the error: ${model}`, async () => {
      const answer = await read(create(model, { stream: true }));
      assert.equal(answer.text(), 'Half an answer');
      assert.deepEqual(answer.finishes(), []);
      check(answer.error, code, message);
    });

    test(`the stream helper rejects: ${model}`, async () => {
      let text = '';
      const runner = openai.chat.completions.stream({ model, messages });
      runner.on('content', (delta) => (text += delta));
      const error = await failure(runner.finalChatCompletion());
      assert.equal(text, 'Half an answer');
      assert.equal(error.code, code);
    });

    test(`legacy completions: ${model}`, async () => {
      const answer = await read(openai.completions.create({ model, prompt: 'Once', stream: true }));
      assert.equal(answer.legacy(), 'Half an answer');
      check(answer.error, code, message);
    });
  }

  test('engine abort', async () => {
    const answer = await read(create('aborted', { stream: true }));
    assert.equal(answer.text(), 'Half ');
    check(answer.error, 'upstream_aborted', 'Server error: the upstream engine aborted the request before it was complete.');
  });

  test('a call without a name', async () => {
    const answer = await read(create('tool-no-name', { stream: true }));
    assert.deepEqual([answer.text(), answer.calls(), answer.finishes()], ['So be it.', [], []]);
    check(answer.error, 'upstream_invalid_tool_call', 'Server error: the upstream engine sent a tool call without a function name.');
  });

  test('the connection is good for the next request', async () => {
    assert.ok((await read(create('error-mid-stream', { stream: true }))).error);
    assert.deepEqual((await read(create('text', { stream: true }))).finishes(), ['stop']);
  });
});
