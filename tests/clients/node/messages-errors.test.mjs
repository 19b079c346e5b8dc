// Failures of Anthropic's Messages through its library for Node: the right error, at the right time.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { Anthropic, BASES, KEYED, TEXT, client, failure, request, textOf } from './messages-ground.mjs';

// status of the engine -> class, status, type, code, a piece of the message
const BEFORE = {
  400: ['BadRequestError', 400, 'invalid_request_error', null, 'temperature must be non-negative'],
  401: ['AuthenticationError', 401, 'authentication_error', 'invalid_api_key', 'Invalid credentials'],
  403: ['PermissionDeniedError', 403, 'permission_error', null, 'Not for you'],
  404: ['NotFoundError', 404, 'not_found_error', 'model_not_found', 'The model `nope` does not exist.'],
  422: ['BadRequestError', 400, 'invalid_request_error', null, 'messages is too short'],
  429: ['RateLimitError', 429, 'rate_limit_error', 'rate_limit_exceeded', 'The request queue is full.'],
  500: ['InternalServerError', 500, 'api_error', 'internal_error', 'EngineCore encountered an issue.'],
  503: ['OverloadedError', 529, 'overloaded_error', 'server_is_overloaded', 'Service is shutting down.'],
};
const INCOMPLETE = 'Upstream connection closed before the answer was complete (stream ended without finish_reason).';
const MIDDLE = {
  'error-mid-stream': ['api_error', 'internal_error', 'CUDA out of memory'],
  'error-flat': ['overloaded_error', 'server_is_overloaded', 'engine overloaded'],
  cut: ['api_error', 'upstream_incomplete', INCOMPLETE],
  reset: ['api_error', 'upstream_incomplete', INCOMPLETE],
  'no-finish': ['api_error', 'upstream_incomplete', INCOMPLETE],
  'no-finish-done': ['api_error', 'upstream_incomplete', INCOMPLETE],
  garbage: ['api_error', 'upstream_invalid_event', 'Server error: the upstream engine sent an event that cannot be read.'],
};

for (const [shape, base] of Object.entries(BASES)) {
  const anthropic = client(base);

  describe(`before the stream, ${shape}`, () => {
    for (const [status, [name, seen, type, code, message]] of Object.entries(BEFORE)) {
      for (const [model, stream] of [[`status-${status}`, false], [`status-${status}`, true], [`event-${status}`, true]]) {
        test(`${model}, stream ${stream}`, async () => {
          const error = await failure(anthropic.messages.create(request(model, { stream })));
          assert.equal(error.constructor, Anthropic[name]);
          assert.deepEqual([error.status, error.type, error.errorCode], [seen, type, code]);
          assert.ok(error.apiMessage.includes(message), error.apiMessage);
          assert.deepEqual(Object.keys(error.error).sort(), ['error', 'request_id', 'type']);
          assert.ok(error.requestID);
          assert.equal(error.error.request_id, error.requestID);
        });
      }
    }

    test('retry-after', async () => {
      for (const model of ['status-429', 'status-503']) {
        assert.equal((await failure(anthropic.messages.create(request(model)))).headers.get('retry-after'), '7');
      }
    });

    test('the library tries again by itself', async () => {
      const asked = request('busy-once', { metadata: { user_id: `anthropic-node-${shape}` } });
      assert.equal(textOf(await client(base, { maxRetries: 3 }).messages.create(asked)), TEXT);
    });

    test('a field that is wrong', async () => {
      const error = await failure(anthropic.messages.create(request('text', { temperature: 'warm' })));
      assert.equal(error.constructor, Anthropic.BadRequestError);
      assert.match(error.apiMessage, /^temperature: /);
    });
  });

  describe(`in the stream, ${shape}`, () => {
    const check = (error, expected) => {
      assert.equal(error.constructor, Anthropic.APIError);
      assert.deepEqual([error.type, error.errorCode, error.apiMessage], expected);
      assert.ok(error.requestID);
    };

    for (const [model, expected] of Object.entries(MIDDLE)) {
      test(`text first, then the error: ${model}`, async () => {
        const seen = [];
        const read = async () => {
          for await (const event of await anthropic.messages.create(request(model, { stream: true }))) seen.push(event);
        };
        check(await failure(read()), expected);
        assert.equal(seen.filter(({ type }) => type === 'content_block_delta').map(({ delta }) => delta.text).join(''), 'Half an answer');
        assert.ok(!seen.some(({ type }) => ['message_stop', 'message_delta', 'content_block_stop'].includes(type)));
        check(await failure(anthropic.messages.stream(request(model)).finalMessage()), expected);
      });
    }

    test('wherever it breaks', async () => {
      for (const part of ['thinking', 'text', 'call']) {
        for (const ending of ['cut', 'reset', 'clean']) {
          const error = await failure(anthropic.messages.stream(request(`breaks-in-${part}-${ending}`)).finalMessage());
          check(error, ['api_error', 'upstream_incomplete', INCOMPLETE]);
        }
      }
    });
  });
}

describe('keys', () => {
  const ask = (settings, model = 'text') => client(KEYED, settings).messages.create(request(model));

  test('both places of a key', async () => {
    assert.equal(textOf(await ask({ apiKey: 'sk-any' })), TEXT);
    assert.equal(textOf(await ask({ apiKey: null, authToken: 'sk-any' })), TEXT);
  });

  test('wrong ones', async () => {
    for (const settings of [{ apiKey: 'sk-wrong' }, { apiKey: null, authToken: 'sk-wrong' }]) {
      assert.equal((await failure(ask({ ...settings, maxRetries: 2 }))).constructor, Anthropic.AuthenticationError);
    }
  });

  test('a model that is not included', async () => {
    const error = await failure(ask({ apiKey: 'sk-one-model' }, 'heard'));
    assert.deepEqual([error.constructor, error.type], [Anthropic.PermissionDeniedError, 'permission_error']);
  });

  test('a limit', async () => {
    assert.equal(textOf(await ask({ apiKey: 'sk-few-node' })), TEXT);
    const error = await failure(ask({ apiKey: 'sk-few-node' }));
    assert.deepEqual([error.constructor, error.type], [Anthropic.RateLimitError, 'rate_limit_error']);
    assert.ok(Number(error.headers.get('retry-after')) > 0);
    assert.equal(error.headers.get('anthropic-ratelimit-requests-limit'), '1');
  });
});
