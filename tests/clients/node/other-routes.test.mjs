// Legacy completions, models and embeddings through openai for Node.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { OpenAI, client, include_usage, read } from './ground.mjs';

const openai = client();

test('completion streamed', async () => {
  const request = { model: 'legacy', prompt: 'Once upon', stream: true, logprobs: 1, ...include_usage };
  const { chunks } = await read(openai.completions.create(request));
  const usage = chunks.pop();
  assert.deepEqual(chunks.map((chunk) => chunk.choices[0].text), [' a', ' time', '']);
  assert.deepEqual(chunks.map((chunk) => chunk.choices[0].finish_reason), [null, null, 'length']);
  assert.deepEqual(chunks.flatMap((chunk) => chunk.choices[0].logprobs?.tokens ?? []), [' a', ' time']);
  assert.deepEqual([usage.choices, usage.usage.total_tokens], [[], 18]);
});

test('completion whole', async () => {
  const whole = await openai.completions.create({ model: 'legacy', prompt: 'Once upon', logprobs: 1 });
  assert.deepEqual([whole.id, whole.object, whole.usage.total_tokens], ['cmpl-legacy', 'text_completion', 18]);
  const { text, finish_reason, logprobs } = whole.choices[0];
  assert.deepEqual([text, finish_reason, logprobs.tokens], [' a time', 'length', [' a', ' time']]);
});

test('models listed and retrieved', async () => {
  const ids = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  assert.ok(ids.includes('text'));
  const one = await openai.models.retrieve('text');
  assert.deepEqual([one.id, one.object], ['text', 'model']);
});

test('unknown model', async () => {
  await assert.rejects(openai.models.retrieve('nowhere'), (error) => {
    assert.equal(error.constructor, OpenAI.NotFoundError);
    assert.deepEqual([error.type, error.code], ['invalid_request_error', 'model_not_found']);
    return true;
  });
});

for (const encoding of [{}, { encoding_format: 'float' }]) {
  test(`embeddings ${JSON.stringify(encoding)}`, async () => {
    const answer = await openai.embeddings.create({ model: 'embed', input: ['one', 'two'], ...encoding });
    assert.deepEqual(answer.data.map((row) => Array.from(row.embedding)), [[0.25, -0.5, 1], [0.125, 2, -4]]);
    assert.deepEqual([answer.object, answer.model, answer.usage.total_tokens], ['list', 'embed', 5]);
  });
}

test('embeddings as base64', async () => {
  const answer = await openai.embeddings.create({ model: 'embed', input: ['one', 'two'], encoding_format: 'base64' });
  assert.equal(answer.data[0].embedding, 'AACAPgAAAL8AAIA/');
});
