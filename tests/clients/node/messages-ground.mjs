// Basis of the tests of Anthropic's Messages: clients, and messages in a form that can be compared.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';

// The library lies where clients.sh has installed it, which is the working directory.
const require = createRequire(join(process.cwd(), 'package.json'));
export const Anthropic = require('@anthropic-ai/sdk').default;
export const { zodOutputFormat } = require('@anthropic-ai/sdk/helpers/zod');
export const { betaZodTool } = require('@anthropic-ai/sdk/helpers/beta/zod');
export const { z } = require('zod');

export const BASES = { vllm: process.env.SAMEWIRE_MESSAGES_VLLM, sglang: process.env.SAMEWIRE_MESSAGES_SGLANG };
export const KEYED = process.env.SAMEWIRE_MESSAGES_KEYED;
export const PATIENT = process.env.SAMEWIRE_MESSAGES_PATIENT;
// The member of a chat message in which each engine reads reasoning.
export const REASONING_KEY = { vllm: 'reasoning', sglang: 'reasoning_content' };

// Without retries of its own the library shows each answer as it came.
export const client = (baseURL, more = {}) =>
  new Anthropic({ baseURL, apiKey: 'sk-test', maxRetries: 0, timeout: 30_000, ...more });

export const messages = [{ role: 'user', content: 'Hello' }];
export const request = (model, more = {}) => ({ model, max_tokens: 1024, messages, ...more });
export const thinking = { type: 'enabled', budget_tokens: 2048 };

// What the scripted engine says (messages.py).
export const THOUGHT = 'First I look – at “everything”.\nThen\u2028I act.';
export const TEXT = 'Grüße, wörld 🌍\u2028.';
export const CALLS = [
  ['get_weather', { city: 'Zürich' }],
  ['get_time', { zone: 'Europe/Zurich' }],
  ['get_weather', { city: 'Oslo' }],
];
export const run = { get_weather: ({ city }) => `${city}: sunny`, get_time: ({ zone }) => `12:00 in ${zone}` };
export const tools = [
  ['get_weather', 'city'],
  ['get_time', 'zone'],
].map(([name, key]) => ({
  name,
  input_schema: { type: 'object', properties: { [key]: { type: 'string' } }, required: [key] },
}));

export const blocksOf = (message, type) => message.content.filter((block) => block.type === type);
export const textOf = (message) => blocksOf(message, 'text').map(({ text }) => text).join('');
// The engine's request, which the script `heard` returns (`loop`: the messages alone).
export const heard = (message) => JSON.parse(textOf(message));

// A conversation that begins with the usual question and goes on after this message.
export const turns = (content) => [...messages, { role: 'assistant', content }, { role: 'user', content: 'And now?' }];

// All that a caller reads from a message, without ids and signatures, which differ each time.
export const essence = ({ id, parsed_output, ...message }) => {
  const content = message.content.map(({ signature, parsed, ...block }) => (block.type === 'tool_use' ? { ...block, id: '' } : block));
  return JSON.parse(JSON.stringify({ ...message, content }));
};

export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail('nothing was thrown');
}
