// Files and batches by the library's own methods.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { client as connected, OpenAI } from './ground.mjs';

const client = connected(process.env.SAMEWIRE_BATCHES);

test('a batch from its file to its results', async () => {
  const body = { model: 'text', messages: [{ role: 'user', content: 'Hello' }] };
  const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body });
  const file = await client.files.create({ file: await OpenAI.toFile(Buffer.from(`${line}\n`), 'in.jsonl'), purpose: 'batch' });
  let batch = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  for (let looks = 0; batch.status !== 'completed'; looks += 1) {
    assert.ok(looks < 600 && ['validating', 'in_progress', 'finalizing'].includes(batch.status), JSON.stringify(batch));
    await pause(50);
    batch = await client.batches.retrieve(batch.id);
  }
  const output = await (await client.files.content(batch.output_file_id)).text();
  assert.equal(JSON.parse(output).response.body.object, 'chat.completion');
});
