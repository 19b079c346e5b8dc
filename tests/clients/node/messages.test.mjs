// Anthropic's Messages through its library for Node: whole messages, raw events, the `stream` helper, thinking, tools.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import {
  BASES, CALLS, PATIENT, REASONING_KEY, TEXT, THOUGHT, betaZodTool, blocksOf, client, essence, heard, messages,
  request, run, textOf, thinking, tools, turns, z, zodOutputFormat,
} from './messages-ground.mjs';

const COUNTED = { input_tokens: 33, cache_creation_input_tokens: 0, cache_read_input_tokens: 8, output_tokens: 19, output_tokens_details: { thinking_tokens: 5 } };
const OUTPUTS = ['Zürich: sunny', '12:00 in Europe/Zurich', 'Oslo: sunny'];
const Person = z.object({ name: z.string(), born: z.number() });

// Checks the order of the events; gives the kinds of the blocks.
async function grammar(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  assert.deepEqual([events[0].type, ...events.slice(-2).map(({ type }) => type)], ['message_start', 'message_delta', 'message_stop']);
  const kinds = [];
  let open = false;
  for (const event of events.slice(1, -2)) {
    if (event.type === 'content_block_start') {
      assert.deepEqual([open, event.index], [false, kinds.length]);
      kinds.push(event.content_block.type);
      open = true;
    } else {
      assert.ok(['content_block_delta', 'content_block_stop'].includes(event.type), event.type);
      assert.deepEqual([open, event.index], [true, kinds.length - 1]);
      open = event.type === 'content_block_delta';
    }
  }
  assert.ok(!open, 'a block has no end');
  return { events, kinds };
}

for (const [shape, base] of Object.entries(BASES)) {
  const anthropic = client(base);

  describe(`messages of ${shape}`, () => {
    test('each member', async () => {
      const message = await anthropic.messages.create(request('thinks'));
      assert.match(message.id, /^msg_/);
      assert.deepEqual([message.type, message.role, message.model], ['message', 'assistant', 'thinks']);
      assert.deepEqual([message.stop_reason, message.stop_sequence], ['end_turn', null]);
      assert.deepEqual(message.content.map(({ type }) => type), ['thinking', 'text']);
      assert.deepEqual([message.content[0].thinking, message.content[1].text], [THOUGHT, TEXT]);
      assert.partialDeepStrictEqual(message.usage, COUNTED);
      assert.ok(message._request_id);
    });

    test('raw events', async () => {
      const { events, kinds } = await grammar(anthropic.messages.create(request('thinks-and-calls', { tools, stream: true })));
      assert.deepEqual(kinds, ['thinking', 'text', 'tool_use', 'tool_use']);
      assert.equal(events[0].message.usage.output_tokens, 0);
      assert.equal(events.at(-2).delta.stop_reason, 'tool_use');
      assert.partialDeepStrictEqual(events.at(-2).usage, COUNTED);
    });

    test('the stream helper', async () => {
      const seen = { text: '', thinking: '', json: '', signatures: 0, blocks: [] };
      const stream = anthropic.messages
        .stream(request('thinks-and-calls', { tools }))
        .on('text', (delta) => (seen.text += delta))
        .on('thinking', (delta) => (seen.thinking += delta))
        .on('inputJson', (delta) => (seen.json += delta))
        .on('signature', () => (seen.signatures += 1))
        .on('contentBlock', ({ type }) => seen.blocks.push(type));
      const message = await stream.finalMessage();
      assert.deepEqual([seen.text, seen.thinking, seen.signatures], ['I ask.', THOUGHT, 1]);
      assert.equal(seen.json, '{"city": "Zürich"}{"zone": "Europe/Zurich"}');
      assert.deepEqual(seen.blocks, ['thinking', 'text', 'tool_use', 'tool_use']);
      assert.deepEqual(blocksOf(message, 'tool_use').map(({ name, input }) => [name, input]), CALLS.slice(0, 2));
      assert.equal(await anthropic.messages.stream(request('thinks')).finalText(), TEXT);
    });

    test('stop reasons', async () => {
      const expected = {
        'at-limit': ['max_tokens', null],
        'at-stop': ['stop_sequence', 'END'],
        'at-own-stop': ['end_turn', null],
        filtered: ['refusal', null],
      };
      for (const [model, told] of Object.entries(expected)) {
        const asked = request(model, { max_tokens: 19, stop_sequences: ['END'] });
        for (const message of [await anthropic.messages.create(asked), await anthropic.messages.stream(asked).finalMessage()]) {
          assert.deepEqual([message.stop_reason, message.stop_sequence, textOf(message)], [...told, TEXT]);
        }
      }
    });

    test('structured output', async () => {
      const asked = request('person', { output_config: { format: zodOutputFormat(Person) } });
      assert.deepEqual((await anthropic.messages.parse(asked)).parsed_output, { name: 'Ada', born: 1815 });
      assert.deepEqual((await anthropic.messages.stream(asked).finalMessage()).parsed_output, { name: 'Ada', born: 1815 });
      const body = heard(await anthropic.messages.create({ ...asked, model: 'heard' }));
      assert.deepEqual(body.response_format.json_schema.schema.required, ['name', 'born']);
    });

    test('images', async () => {
      const content = [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } }];
      const body = heard(await anthropic.messages.create(request('heard', { messages: [{ role: 'user', content }] })));
      assert.equal(body.messages[0].content[0].image_url.url, 'data:image/png;base64,iVBORw0KGgo=');
    });

    test('counts of tokens, models', async () => {
      const { input_tokens } = await anthropic.messages.countTokens({ model: 'thinks', messages });
      assert.equal(input_tokens, { vllm: 5, sglang: 41 }[shape]);
      const all = [];
      for await (const { id } of anthropic.models.list({ limit: 7 })) all.push(id);
      assert.equal(new Set(all).size, all.length);
      assert.ok(all.length > 20 && all.includes('thinks'));
      const model = await anthropic.models.retrieve('thinks');
      assert.deepEqual([model.id, model.type, model.lifecycle], ['thinks', 'model', 'active']);
    });
  });

  describe(`thinking of ${shape}`, () => {
    const again = async (content) => {
      const body = heard(await anthropic.messages.create(request('heard', { messages: turns(content), thinking, max_tokens: 4000 })));
      return body.messages[1][REASONING_KEY[shape]];
    };

    test('it is given back', async () => {
      for (const display of ['summarized', 'omitted']) {
        const asked = request('thinks', { thinking: { ...thinking, display } });
        for (const message of [await anthropic.messages.create(asked), await anthropic.messages.stream(asked).finalMessage()]) {
          assert.equal(message.content[0].thinking, display === 'omitted' ? '' : THOUGHT);
          assert.equal(await again(message.content), THOUGHT);
        }
      }
    });

    test('what nobody signed is left out', async () => {
      const [thought, text] = (await anthropic.messages.stream(request('thinks', { thinking })).finalMessage()).content;
      assert.equal(await again([{ ...thought, thinking: 'Something else.' }, text]), undefined);
      assert.equal(await again([{ ...thought, signature: `${thought.signature.slice(0, -4)}AAAA` }, text]), undefined);
      assert.equal(await again([{ type: 'redacted_thinking', data: 'EmwKAhgB' }, text]), undefined);
    });

    test('disabled', async () => {
      const asked = request('thinks', { thinking: { type: 'disabled' } });
      for (const message of [await anthropic.messages.create(asked), await anthropic.messages.stream(asked).finalMessage()]) {
        assert.deepEqual(message.content.map(({ type }) => type), ['text']);
      }
    });
  });

  describe(`loops of tools with ${shape}`, () => {
    const check = (final) => {
      const said = heard(final);
      assert.deepEqual(said.filter(({ role }) => role === 'tool').map(({ content }) => content), OUTPUTS);
      const assistants = said.filter(({ role }) => role === 'assistant');
      assert.deepEqual(assistants.map((message) => message[REASONING_KEY[shape]]), [THOUGHT, 'Once more.']);
      const calls = assistants.flatMap(({ tool_calls }) => tool_calls.map(({ function: { name, arguments: text } }) => [name, JSON.parse(text)]));
      assert.deepEqual(calls, CALLS);
      assert.deepEqual([final.stop_reason, final.content[0].thinking], ['end_turn', 'Enough.']);
    };
    const runnable = [
      betaZodTool({ name: 'get_weather', description: 'Tells the weather.', inputSchema: z.object({ city: z.string() }), run: run.get_weather }),
      betaZodTool({ name: 'get_time', description: 'Tells the time.', inputSchema: z.object({ zone: z.string() }), run: run.get_time }),
    ];
    const asked = (more) => request('loop', { max_tokens: 3000, thinking, ...more });

    test('by hand', async () => {
      const history = [...messages];
      let message;
      for (let step = 0; step === 0 || message.stop_reason === 'tool_use'; step += 1) {
        assert.ok(step < 5, 'the loop has no end');
        message = await anthropic.messages.stream(asked({ messages: history, tools })).finalMessage();
        const content = blocksOf(message, 'tool_use').map(({ id, name, input }) => ({ type: 'tool_result', tool_use_id: id, content: run[name](input) }));
        history.push({ role: 'assistant', content: message.content }, { role: 'user', content });
      }
      check(message);
    });

    test('by the runner', async () => {
      check(await anthropic.beta.messages.toolRunner(asked({ tools: runnable })).runUntilDone());
    });

    test('by the runner, streamed', async () => {
      let last;
      for await (const stream of anthropic.beta.messages.toolRunner(asked({ tools: runnable, stream: true }))) last = await stream.finalMessage();
      check(last);
    });
  });
}

test('all ways and both engines give one message', async () => {
  for (const model of ['thinks', 'thinks-and-calls', 'at-limit', 'without-input']) {
    const found = [];
    for (const base of Object.values(BASES)) {
      const anthropic = client(base);
      found.push(essence(await anthropic.messages.create(request(model, { tools }))));
      found.push(essence(await anthropic.messages.stream(request(model, { tools })).finalMessage()));
    }
    for (const other of found.slice(1)) assert.deepEqual(other, found[0]);
  }
});

test('pings while the engine is silent', async () => {
  const anthropic = client(PATIENT);
  const asked = request('slow-to-speak');
  const raw = async () => (await anthropic.messages.create({ ...asked, stream: true }).asResponse()).text();
  const [sent, said] = await Promise.all([raw(), anthropic.messages.stream(asked).finalText()]);
  assert.equal(said, 'Slow, but sure.');
  const [before, after] = [sent.indexOf('event: content_block_delta'), sent.indexOf('event: message_stop')];
  const pings = [...sent.matchAll(/^event: ping$/gm)].map(({ index }) => index);
  assert.ok(pings.some((at) => at < before) && pings.some((at) => at > before && at < after), sent);
});
