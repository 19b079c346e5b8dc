// The Responses API through openai for Node: whole, in events, by its helper, stored, continued, in conversations.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, test } from 'node:test';

import { OpenAI, SCRIPTED, TIME, WEATHER, client } from './ground.mjs';

const { AzureOpenAI } = createRequire(join(process.cwd(), 'package.json'))('openai');

const openai = client();
const input = 'Hello';
const GREETING = 'Grüße, wörld \u{1f30d}\u2028.';
const tools = [
  ['get_weather', 'city'],
  ['get_time', 'zone'],
].map(([name, key]) => ({
  type: 'function',
  name,
  strict: false,
  parameters: { type: 'object', properties: { [key]: { type: 'string' } } },
}));
const create = (model, more = {}) => openai.responses.create({ model, input, ...more });

async function collect(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail('nothing was thrown');
}

test('whole', async () => {
  const response = await create('stored-text', { metadata: { a: 'b' } });
  assert.equal(response.output_text, GREETING);
  assert.deepEqual([response.status, response.metadata, response.store], ['completed', { a: 'b' }, true]);
  assert.deepEqual([response.usage.input_tokens, response.usage.output_tokens], [11, 7]);
});

test('streamed', async () => {
  const events = await collect(create('stored-reasoning', { stream: true }));
  assert.deepEqual(
    events.map((event) => event.sequence_number),
    [...events.keys()],
  );
  const said = (type) => events.filter((event) => event.type === type).map((event) => event.delta);
  assert.equal(said('response.output_text.delta').join(''), 'Four.');
  assert.equal(said('response.reasoning_text.delta').join(''), 'Let me think.');
  assert.equal(events.at(-1).type, 'response.completed');
  assert.equal(events.at(-1).response.usage.output_tokens_details.reasoning_tokens, 4);
});

for (const model of ['stored-text', 'stored-reasoning', 'stored-tool-parallel', 'stored-refusal']) {
  test(`the stream helper: ${model}`, async () => {
    const final = await openai.responses.stream({ model, input, tools }).finalResponse();
    const stored = await openai.responses.retrieve(final.id);
    assert.equal(final.output_text ?? '', stored.output_text);
    assert.deepEqual(
      final.output.map((item) => [item.id, item.type, item.status]),
      stored.output.map((item) => [item.id, item.type, item.status]),
    );
    assert.deepEqual(final.usage, stored.usage);
  });
}

test('parsed', async () => {
  const schema = { type: 'object', properties: { name: { type: 'string' }, born: { type: 'integer' } } };
  const text = { format: { type: 'json_schema', name: 'person', schema } };
  const parsed = await openai.responses.parse({ model: 'stored-schema', input, text });
  assert.deepEqual(JSON.parse(parsed.output_text), { name: 'Ada', born: 1815 });
  assert.equal(parsed.text.format.name, 'person');
});

for (const stream of [false, true]) {
  test(`tools over turns, stream ${stream}`, async () => {
    const made = create('agent', { tools, stream });
    const first = stream ? (await collect(made)).at(-1).response : await made;
    const calls = first.output.filter((item) => item.type === 'function_call');
    assert.deepEqual(
      calls.map((call) => [call.name, JSON.parse(call.arguments)]),
      [
        ['get_weather', WEATHER],
        ['get_time', TIME],
      ],
    );
    const outputs = calls.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: call.name }));
    const second = await create('agent', { tools, previous_response_id: first.id, input: outputs });
    assert.equal(second.output_text, 'get_weather and get_time');
    const third = await create('echo', { previous_response_id: second.id, input: 'And?' });
    assert.deepEqual(
      JSON.parse(third.output_text).map((message) => message.role),
      ['user', 'assistant', 'tool', 'tool', 'assistant', 'user'],
    );
  });
}

test('stored', async () => {
  const made = await create('stored-text', { input: Array.from({ length: 25 }, (_, n) => ({ role: 'user', content: `n${n}` })) });
  assert.equal((await openai.responses.retrieve(made.id)).output_text, GREETING);
  const listed = [];
  for await (const item of openai.responses.inputItems.list(made.id, { order: 'asc', limit: 10 })) listed.push(item.content[0].text);
  assert.deepEqual(
    listed,
    Array.from({ length: 25 }, (_, n) => `n${n}`),
  );
  assert.ok((await failure(openai.responses.cancel(made.id))) instanceof OpenAI.BadRequestError);
  await openai.responses.delete(made.id);
  assert.ok((await failure(openai.responses.retrieve(made.id))) instanceof OpenAI.NotFoundError);
  const refused = await failure(create('stored-text', { previous_response_id: made.id }));
  assert.deepEqual([refused.status, refused.code, refused.param], [400, 'previous_response_not_found', 'previous_response_id']);
});

test('in the background', async () => {
  let made = await create('stored-text', { background: true });
  assert.deepEqual([made.status, made.background], ['queued', true]);
  while (['queued', 'in_progress'].includes(made.status)) made = await openai.responses.retrieve(made.id);
  assert.deepEqual([made.status, made.output_text], ['completed', GREETING]);
  const events = await collect(openai.responses.retrieve(made.id, { stream: true }));
  assert.equal(events.at(-1).response.output[0].content[0].text, GREETING);
  const rest = await collect(openai.responses.retrieve(made.id, { stream: true, starting_after: 4 }));
  assert.deepEqual(rest, events.slice(5));
  assert.equal((await openai.responses.cancel(made.id)).status, 'completed');
});

test('in the background, resumed and cancelled', async () => {
  const seen = [];
  const read = async (stream, count) => {
    for await (const event of await stream) {
      if (seen.length) assert.equal(event.sequence_number, seen.at(-1).sequence_number + 1);
      seen.push(event);
      if (seen.length >= count) break;
    }
  };
  await read(create('slow', { background: true, stream: true }), 7);
  const { id } = seen[0].response;
  await read(openai.responses.retrieve(id, { stream: true, starting_after: seen.at(-1).sequence_number }), 12);
  const ended = await openai.responses.cancel(id);
  assert.equal(ended.status, 'cancelled');
  assert.deepEqual(await openai.responses.cancel(id), ended);
  assert.equal((await openai.responses.retrieve(id)).status, 'cancelled');
});

test('a conversation and its items', async () => {
  const { conversations } = openai;
  const made = await conversations.create({ metadata: { a: 'b' }, items: [{ role: 'user', content: 'n0' }] });
  assert.deepEqual([made.object, made.metadata], ['conversation', { a: 'b' }]);
  assert.deepEqual(await conversations.retrieve(made.id), made);
  assert.deepEqual(await conversations.update(made.id, { metadata: { c: 'd' } }), { ...made, metadata: { c: 'd' } });
  const items = Array.from({ length: 19 }, (_, n) => ({ role: 'user', content: `n${n + 1}` }));
  const added = await conversations.items.create(made.id, { items });
  assert.deepEqual([added.data.length, added.has_more, added.first_id], [19, false, added.data[0].id]);
  const listed = [];
  for await (const item of conversations.items.list(made.id, { order: 'asc', limit: 6 })) listed.push(item);
  assert.deepEqual(
    listed.map((item) => item.content[0].text),
    Array.from({ length: 20 }, (_, n) => `n${n}`),
  );
  const at = { conversation_id: made.id };
  assert.deepEqual(await conversations.items.retrieve(listed[2].id, at), listed[2]);
  assert.equal((await conversations.items.delete(listed[2].id, at)).id, made.id);
  assert.ok((await failure(conversations.items.retrieve(listed[2].id, at))) instanceof OpenAI.NotFoundError);
  assert.deepEqual(await conversations.delete(made.id), { id: made.id, object: 'conversation.deleted', deleted: true });
  assert.ok((await failure(conversations.retrieve(made.id))) instanceof OpenAI.NotFoundError);
  const refused = await failure(create('stored-text', { conversation: made.id }));
  assert.deepEqual([refused.status, refused.code, refused.param], [404, null, 'conversation']);
});

test('responses in a conversation', async () => {
  const { id } = await openai.conversations.create({ items: [{ role: 'system', content: 'Be brief.' }] });
  const first = await create('stored-tool-parallel', { conversation: id, tools });
  const calls = first.output.filter((item) => item.type === 'function_call');
  const outputs = calls.map((call) => ({ type: 'function_call_output', call_id: call.call_id, output: call.name }));
  const stream = openai.responses.stream({ model: 'agent', input: outputs, conversation: { id }, tools });
  const second = await stream.finalResponse();
  assert.deepEqual([first.conversation, second.conversation], [{ id }, { id }]);
  const echoed = await create('echo', { conversation: id, store: false });
  assert.deepEqual(
    JSON.parse(echoed.output_text).map((message) => message.role),
    ['system', 'user', 'assistant', 'tool', 'tool', 'assistant', 'user'],
  );
  const kept = (await openai.conversations.items.list(id, { limit: 1 })).data;
  assert.deepEqual([kept[0].id, kept[0].content[0].text], [echoed.output[0].id, echoed.output_text]);
});

describe('errors', () => {
  for (const [model, stream, name, code] of [
    ['status-404', false, 'NotFoundError', 'model_not_found'],
    ['status-404', true, 'NotFoundError', 'model_not_found'],
    ['event-429', true, 'RateLimitError', 'rate_limit_exceeded'],
    ['status-500', true, 'InternalServerError', 'internal_error'],
  ]) {
    test(`before the stream: ${model}, stream ${stream}`, async () => {
      const error = await failure(create(model, { stream }));
      assert.equal(error.constructor, OpenAI[name]);
      assert.equal(error.code, code);
    });
  }

  for (const model of ['error-mid-stream', 'error-flat', 'cut', 'reset', 'no-finish', 'garbage']) {
    test(`inside the stream: ${model}`, async () => {
      const deltas = [];
      const error = await failure(
        (async () => {
          for await (const event of await create(model, { stream: true, store: false })) {
            if (event.type === 'response.output_text.delta') deltas.push(event.delta);
          }
        })(),
      );
      assert.ok(error instanceof OpenAI.APIError, String(error));
      assert.equal(deltas.join(''), 'Half an answer');
      const helper = await failure(openai.responses.stream({ model, input, store: false }).finalResponse());
      assert.ok(helper instanceof OpenAI.OpenAIError, String(helper));
    });
  }
});

test('azure', async () => {
  const endpoint = SCRIPTED.replace(/\/v1$/, '');
  const azure = new AzureOpenAI({ endpoint, apiKey: 'sk-test', apiVersion: '2025-04-01-preview', maxRetries: 0, timeout: 30_000 });
  const made = await azure.responses.create({ model: 'stored-text', input });
  assert.equal(made.output_text, GREETING);
  assert.equal((await azure.responses.retrieve(made.id)).output_text, GREETING);
  const events = await collect(azure.responses.create({ model: 'stored-text', input, previous_response_id: made.id, stream: true }));
  assert.equal(events.at(-1).response.output[0].content[0].text, GREETING);
  await azure.responses.delete(made.id);
});
