// The routes under /openai/ through the client for Azure of openai for Node.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

import { OpenAI, SCRIPTED, messages } from './ground.mjs';

const { AzureOpenAI } = createRequire(join(process.cwd(), 'package.json'))('openai');

const endpoint = SCRIPTED.replace(/\/v1$/, '');
const azure = (more = {}) =>
  new AzureOpenAI({ endpoint, apiKey: 'sk-test', apiVersion: '2024-10-21', maxRetries: 0, timeout: 30_000, ...more });

test('deployment streamed', async () => {
  let text = '';
  const stream = await azure().chat.completions.create({ model: 'text', messages, stream: true });
  for await (const chunk of stream) text += chunk.choices[0].delta.content ?? '';
  assert.ok(text.length > 0);
});

test('deployment whole', async () => {
  const { data, response } = await azure().chat.completions.create({ model: 'text', messages }).withResponse();
  assert.ok(data.choices[0].message.content.length > 0);
  assert.equal(response.headers.get('apim-request-id'), response.headers.get('x-request-id'));
});

test('a version that is none', async () => {
  await assert.rejects(azure({ apiVersion: 'latest' }).chat.completions.create({ model: 'text', messages }), (error) => {
    assert.equal(error.constructor, OpenAI.BadRequestError);
    assert.deepEqual([error.code, error.param], ['unsupported_api_version', 'api-version']);
    return true;
  });
});
