// Chat Completions through openai for Node: raw chunks, the `stream` helper, whole answers.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { OpenAI, TIME, WEATHER, client, essence, include_usage, messages, read, tools } from './ground.mjs';

const openai = client();
const create = (model, more = {}) => openai.chat.completions.create({ model, messages, ...more });
const streamed = (model, more = {}) => read(create(model, { stream: true, ...more }));

const COUNTED = {
  prompt_tokens: 11,
  completion_tokens: 7,
  total_tokens: 18,
  prompt_tokens_details: { cached_tokens: 0, audio_tokens: 0 },
  completion_tokens_details: {
    reasoning_tokens: 0,
    audio_tokens: 0,
    accepted_prediction_tokens: 0,
    rejected_prediction_tokens: 0,
  },
};

describe('raw chunks', () => {
  test('text arrives once and ends', async () => {
    const answer = await streamed('text');
    assert.equal(answer.text(), 'Grüße, wörld \u{1f30d}\u2028.');
    assert.deepEqual(answer.finishes(), ['stop']);
    assert.deepEqual(answer.chunks[0].choices[0].delta, { role: 'assistant' });
    assert.deepEqual(answer.chunks.at(-1).choices[0].delta, {});
    const envelopes = new Set(answer.chunks.map((chunk) => [chunk.id, chunk.object, chunk.created, chunk.model].join(' ')));
    assert.deepEqual([...envelopes], ['chatcmpl-text chat.completion.chunk 1700000000 text']);
  });

  test('reasoning, then text', async () => {
    const answer = await streamed('reasoning');
    assert.equal(answer.reasoning(), 'Let me think.');
    assert.equal(answer.text(), 'Four.');
    const kinds = answer.choices().flatMap((choice) => Object.keys(choice.delta));
    const thought = ['reasoning_content', 'reasoning'];
    assert.deepEqual(kinds, ['role', ...thought, ...thought, 'content', 'content']);
  });

  test('one tool call', async () => {
    const answer = await streamed('tool', { tools });
    const [call, ...rest] = answer.calls();
    assert.deepEqual(rest, []);
    assert.deepEqual([call.id, call.type, call.name], ['call_aa11', 'function', 'get_weather']);
    assert.deepEqual(JSON.parse(call.arguments), WEATHER);
    assert.deepEqual(answer.finishes(), ['tool_calls']);
  });

  for (const model of ['tool-parallel', 'tool-gaps']) {
    test(`two tool calls: ${model}`, async () => {
      const answer = await streamed(model, { tools });
      assert.deepEqual(
        answer.calls().map((call) => [call.id, call.type, call.name, JSON.parse(call.arguments)]),
        [
          ['call_first', 'function', 'get_weather', WEATHER],
          ['call_second', 'function', 'get_time', TIME],
        ],
      );
      assert.ok(answer.choices().every((choice) => (choice.delta.tool_calls ?? []).length <= 1));
      assert.deepEqual(answer.finishes(), ['tool_calls']);
    });
  }

  for (const [model, id] of [['tool-object-arguments', 'call_object'], ['tool-late-name', 'call_late']]) {
    test(`one call in an odd form: ${model}`, async () => {
      const [call] = (await streamed(model, { tools })).calls();
      assert.deepEqual([call.id, call.name, JSON.parse(call.arguments)], [id, 'get_weather', WEATHER]);
    });
  }

  test('two choices that start with the second', async () => {
    const answer = await streamed('n2', { n: 2 });
    assert.deepEqual([answer.text(0), answer.text(1)], ['first answer', 'second answer']);
    assert.deepEqual([answer.finishes(0), answer.finishes(1)], [['stop'], ['stop']]);
    const roles = answer.chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.delta.role);
    assert.deepEqual(roles.map((choice) => choice.index), [0, 1]);
  });

  test('refusal', async () => {
    const answer = await streamed('refusal');
    assert.deepEqual([answer.refusal(), answer.text()], ['I cannot help with that.', '']);
  });

  test('logprobs keep tokens without text, for who asked', async () => {
    const asked = await streamed('logprobs', { logprobs: true, top_logprobs: 1 });
    assert.deepEqual(asked.tokens(), ['Yes', '\ufffd', '!']);
    assert.deepEqual((await streamed('logprobs')).tokens(), []);
  });
});

describe('usage', () => {
  for (const model of ['text', 'usage-on-finish']) {
    test(`is on the last chunk when asked for: ${model}`, async () => {
      const { chunks } = await streamed(model, include_usage);
      assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
      assert.deepEqual(chunks.at(-1).choices, []);
      assert.deepEqual(chunks.at(-1).usage, COUNTED);
    });

    test(`is nowhere when not asked for: ${model}`, async () => {
      const { chunks } = await streamed(model);
      assert.ok(chunks.every((chunk) => !('usage' in chunk) && chunk.choices.length === 1));
    });
  }
});

describe('the stream helper', () => {
  const requests = {
    text: {},
    reasoning: {},
    tool: { tools },
    'tool-parallel': { tools },
    'tool-gaps': { tools },
    'tool-object-arguments': { tools },
    'tool-late-name': { tools },
    n2: { n: 2 },
    refusal: {},
    logprobs: { logprobs: true, top_logprobs: 1 },
    schema: {},
    'usage-on-finish': {},
  };
  for (const [model, request] of Object.entries(requests)) {
    test(`put together equals the whole answer: ${model}`, async () => {
      const runner = openai.chat.completions.stream({ model, messages, ...include_usage, ...request });
      const reasoning = [];
      runner.on('chunk', ({ choices }) => choices.forEach(({ delta }) => reasoning.push(delta.reasoning_content ?? '')));
      const final = essence(await runner.finalChatCompletion());
      // Of a field it does not know the helper keeps the last piece; all of them are in its chunks.
      if (final.choices[0].reasoning_content) final.choices[0].reasoning_content = reasoning.join('');
      assert.deepEqual(final, essence(await create(model, request)));
    });
  }

  test('events of text', async () => {
    const pieces = [];
    const runner = openai.chat.completions.stream({ model: 'text', messages });
    runner.on('content', (delta) => pieces.push(delta));
    assert.equal(await runner.finalContent(), 'Grüße, wörld \u{1f30d}\u2028.');
    assert.deepEqual(pieces, ['Grüße', ', ', 'wörld \u{1f30d}\u2028', '.']);
  });

  test('events of tool calls', async () => {
    const done = [];
    const runner = openai.chat.completions.stream({ model: 'tool-parallel', messages, tools });
    runner.on('tool_calls.function.arguments.done', (event) => done.push([event.index, event.name, JSON.parse(event.arguments)]));
    await runner.done();
    assert.deepEqual(done, [
      [0, 'get_weather', WEATHER],
      [1, 'get_time', TIME],
    ]);
  });

  test('an answer in a schema', async () => {
    const schema = { type: 'object', properties: { name: { type: 'string' }, born: { type: 'integer' } } };
    const response_format = { type: 'json_schema', json_schema: { name: 'person', schema } };
    const runner = openai.chat.completions.stream({ model: 'schema', messages, response_format });
    assert.deepEqual(JSON.parse(await runner.finalContent()), { name: 'Ada', born: 1815 });
  });

  test('a tool is run with the arguments of the stream', async () => {
    // The scripted engine calls again and again; one round shows what the function is given.
    const given = [];
    const runner = openai.chat.completions.runTools(
      {
        model: 'tool',
        messages,
        stream: true,
        tool_choice: { type: 'function', function: { name: 'get_weather' } },
        tools: [
          {
            type: 'function',
            function: {
              name: 'get_weather',
              parse: JSON.parse,
              function: (input) => (given.push(input), 'sunny'),
              parameters: tools[0].function.parameters,
            },
          },
        ],
      },
      { maxChatCompletions: 1 },
    );
    await runner.done();
    assert.deepEqual(given, [WEATHER]);
  });
});

describe('whole answers', () => {
  test('engine fields are gone', async () => {
    const { choices, ...envelope } = await create('reasoning');
    assert.deepEqual(Object.keys(envelope).sort(), ['created', 'id', 'model', 'object', 'usage']);
    assert.deepEqual(Object.keys(choices[0]).sort(), ['finish_reason', 'index', 'logprobs', 'message']);
    const { role, content, reasoning_content, refusal, annotations, ...rest } = choices[0].message;
    assert.deepEqual([role, content, reasoning_content, refusal, annotations], ['assistant', 'Four.', 'Let me think.', null, []]);
    assert.deepEqual(rest, { reasoning: reasoning_content });
  });

  test('the request id is on the answer', async () => {
    assert.match((await create('text'))._request_id, /^req_[0-9a-f]{32}$/);
  });

  test('the key reaches an engine that wants one', async () => {
    const right = client(undefined, { apiKey: 'sk-right' });
    const answer = await right.chat.completions.create({ model: 'locked', messages });
    assert.equal(answer.choices[0].message.content, 'Come in.');
    await assert.rejects(create('locked'), (error) => error instanceof OpenAI.AuthenticationError && error.code === 'invalid_api_key');
  });
});
