// Each recorded answer of a real engine, through samewire, read by openai for Node.
// What an answer should be is told by the golden file beside it.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { FIXTURES, OpenAI, RECORDED, client, messages, read } from './ground.mjs';

const openai = client(RECORDED);
const ROUTES = { '/v1/chat/completions': 'chat', '/v1/completions': 'completions' };

function* scenarios() {
  for (const engine of ['vllm', 'sglang']) {
    for (const name of readdirSync(join(FIXTURES, engine)).sort()) {
      const folder = join(FIXTURES, engine, name);
      if (!existsSync(join(folder, 'request.json'))) continue;
      const { method, path, body } = JSON.parse(readFileSync(join(folder, 'request.json'), 'utf8'));
      // Requests that no client library can send belong to other tests.
      if (method !== 'POST' || !ROUTES[path] || typeof body !== 'object' || body === null || Array.isArray(body)) continue;
      const api = ROUTES[path];
      yield { name: `${engine}/${name}`, folder, api, body: sendable({ ...body, model: `${engine}/${name}` }) };
    }
  }
}

// The recorded request without what the engine took and the proxy refuses on its own account.
function sendable({ rid, ...body }) {
  if (body.n === 0) delete body.n;
  return 'prompt' in body ? body : { messages, ...body };
}

const send = ({ api, body }) => (api === 'chat' ? openai.chat.completions : openai.completions).create(body);

async function checkRefused(scenario) {
  // The golden HTTP error: a line with the status, then the body.
  const [head, golden] = readFileSync(join(scenario.folder, 'error.json'), 'utf8').split('\n');
  await assert.rejects(send(scenario), (error) => {
    assert.ok(error instanceof OpenAI.APIError, String(error));
    assert.deepEqual([`HTTP ${error.status}`, error.type], [head, JSON.parse(golden).error.type]);
    assert.ok(error.code === null || typeof error.code === 'string');
    return true;
  });
}

async function checkStream(scenario) {
  const golden = readFileSync(join(scenario.folder, `${scenario.api}.sse`), 'utf8');
  const fails = golden.trimEnd().split('\n\n').at(-1).startsWith('event: error');
  const answer = await read(send(scenario));
  if (fails) {
    assert.ok(answer.error, 'a broken answer has to throw');
    assert.equal(answer.error.constructor, OpenAI.APIError);
    assert.ok(answer.error.message && answer.error.code);
  } else {
    assert.equal(answer.error, null);
    const indices = new Set(answer.chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.index)));
    for (const index of indices) assert.equal(answer.finishes(index).length, 1);
  }
  if (scenario.api === 'chat') await checkHelper(scenario, answer, fails);
}

// The helper is stricter than the raw chunks: it refuses calls that change their name, and holes.
async function checkHelper({ body }, answer, fails) {
  const { stream, response_format, ...request } = body;
  const runner = openai.chat.completions.stream(request);
  if (fails) {
    await assert.rejects(runner.finalChatCompletion(), OpenAI.APIError);
    return;
  }
  for (const { index, message } of (await runner.finalChatCompletion()).choices) {
    assert.equal(message.content ?? '', answer.text(index));
    assert.deepEqual(
      (message.tool_calls ?? []).map((call) => [call.id, call.function.name, call.function.arguments]),
      answer.calls(index).map((call) => [call.id, call.name, call.arguments]),
    );
  }
}

describe('recorded answers', () => {
  let found = 0;
  for (const scenario of scenarios()) {
    found += 1;
    test(scenario.name, async () => {
      if (existsSync(join(scenario.folder, 'error.json'))) await checkRefused(scenario);
      else if (scenario.body.stream) await checkStream(scenario);
      else assert.ok((await send(scenario)).choices.every((choice) => typeof choice.finish_reason === 'string'));
    });
  }
  test('are there', () => assert.ok(found > 100, `only ${found} scenarios`));
});
