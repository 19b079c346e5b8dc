// The worked examples of Messages (fixtures/vectors/msg-*), each read by the accumulator of @anthropic-ai/sdk.
// A server gives the bytes of the example unchanged. What the message must hold is told by the example's own
// deltas, added up here.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { FIXTURES } from './ground.mjs';
import { Anthropic, client, failure, request } from './messages-ground.mjs';

const folder = join(FIXTURES, 'vectors');
const vectors = readdirSync(folder)
  .filter((name) => name.startsWith('msg-'))
  .sort()
  .map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')));
const eventsOf = ({ expected }) => expected.filter((line) => line.startsWith('data: ')).map((line) => JSON.parse(line.slice(6)));
const lastOf = (vector) => (vector.expected ? eventsOf(vector).at(-1) : vector.expected_body);

// The message that the deltas of a stream add up to.
function folded(vector) {
  const blocks = [];
  const pieces = [];
  let end;
  for (const event of eventsOf(vector)) {
    if (event.type === 'content_block_start') {
      blocks[event.index] = { ...event.content_block };
      pieces[event.index] = '';
    } else if (event.type === 'content_block_delta') {
      const { type, ...delta } = event.delta;
      if (type === 'input_json_delta') pieces[event.index] += delta.partial_json;
      else for (const [key, value] of Object.entries(delta)) blocks[event.index][key] += value;
    } else if (event.type === 'content_block_stop') {
      if (pieces[event.index]) blocks[event.index].input = JSON.parse(pieces[event.index]);
    } else if (event.type === 'message_delta') {
      end = event;
    }
  }
  return { content: blocks, stop_reason: end.delta.stop_reason, stop_sequence: end.delta.stop_sequence, usage: end.usage };
}

describe('worked examples', () => {
  const byName = new Map(vectors.map((vector) => [vector.name, vector]));
  const server = createServer((incoming, answer) => {
    const vector = byName.get(incoming.url.split('/')[1]);
    incoming.resume();
    answer.writeHead(vector.expected_status, { 'content-type': vector.expected ? 'text/event-stream' : 'application/json' });
    answer.end(vector.expected ? `${vector.expected.join('\n')}\n` : JSON.stringify(vector.expected_body));
  });
  before(() => new Promise((done) => server.listen(0, '127.0.0.1', done)));
  after(() => server.close());

  const read = (vector) => {
    const { messages } = client(`http://127.0.0.1:${server.address().port}/${vector.name}`);
    return vector.expected ? messages.stream(request('m')).finalMessage() : messages.create(request('m'));
  };

  test('enough of both kinds', () => {
    const failing = vectors.filter((vector) => lastOf(vector).type === 'error');
    assert.ok(failing.length >= 5 && vectors.length - failing.length >= 24);
  });

  for (const vector of vectors) {
    const last = lastOf(vector);
    test(vector.name, async () => {
      if (last.type === 'error') {
        const error = await failure(read(vector));
        assert.ok(error instanceof Anthropic.APIError, String(error));
        assert.equal(error.error.error.type, last.error.type);
        return;
      }
      const message = await read(vector);
      const want = vector.expected ? folded(vector) : vector.expected_body;
      const plain = JSON.parse(JSON.stringify(message));
      assert.deepEqual(plain.content, want.content);
      assert.deepEqual([plain.stop_reason, plain.stop_sequence], [want.stop_reason, want.stop_sequence]);
      for (const [key, value] of Object.entries(want.usage)) assert.deepEqual(plain.usage[key], value, key);
    });
  }
});
