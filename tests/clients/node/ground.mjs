// Basis of the tests of this folder: clients, and an answer in a form that can be compared.

import { createRequire } from 'node:module';
import { join } from 'node:path';

// The library lies where clients.sh has installed it, which is the working directory.
const require = createRequire(join(process.cwd(), 'package.json'));
export const OpenAI = require('openai');

export const SCRIPTED = process.env.SAMEWIRE_SCRIPTED;
export const RECORDED = process.env.SAMEWIRE_RECORDED;
export const FIXTURES = process.env.SAMEWIRE_FIXTURES;

// Without its own retries the library shows each answer as it came.
export const client = (baseURL = SCRIPTED, more = {}) =>
  new OpenAI({ baseURL, apiKey: 'sk-test', maxRetries: 0, timeout: 30_000, ...more });

export const messages = [{ role: 'user', content: 'Hello' }];
export const include_usage = { stream_options: { include_usage: true } };
export const tools = [
  ['get_weather', 'city'],
  ['get_time', 'zone'],
].map(([name, key]) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { [key]: { type: 'string' } }, required: [key] } },
}));
export const WEATHER = { city: 'Zürich', days: 3 };
export const TIME = { zone: 'Europe/Zurich' };

// All that a caller reads from an answer, whole or put together from a stream.
export const essence = (completion) => ({
  id: completion.id,
  object: completion.object,
  created: completion.created,
  model: completion.model,
  choices: completion.choices.map((choice) => ({
    index: choice.index,
    finish_reason: choice.finish_reason,
    logprobs: choice.logprobs ?? null,
    role: choice.message.role,
    content: choice.message.content ?? null,
    reasoning_content: choice.message.reasoning_content ?? null,
    refusal: choice.message.refusal ?? null,
    tool_calls: (choice.message.tool_calls ?? []).map((call) => ({
      id: call.id,
      type: call.type,
      name: call.function.name,
      arguments: call.function.arguments,
    })),
  })),
  usage: completion.usage ?? null,
});

// Reads a stream as the simplest of programs does. `error` is what it was thrown, if anything.
export async function read(stream) {
  const chunks = [];
  let error = null;
  try {
    for await (const chunk of await stream) chunks.push(chunk);
  } catch (thrown) {
    if (!(thrown instanceof OpenAI.APIError)) throw thrown;
    error = thrown;
  }
  const choices = (index = 0) => chunks.flatMap((chunk) => chunk.choices.filter((choice) => choice.index === index));
  const joined = (key) => (index) => choices(index).map((choice) => choice.delta?.[key] ?? '').join('');
  return {
    chunks,
    error,
    choices,
    text: joined('content'),
    reasoning: joined('reasoning_content'),
    refusal: joined('refusal'),
    legacy: (index) => choices(index).map((choice) => choice.text ?? '').join(''),
    finishes: (index) => choices(index).map((choice) => choice.finish_reason).filter(Boolean),
    calls: (index) => calls(choices(index)),
    tokens: (index) => choices(index).flatMap((choice) => (choice.logprobs?.content ?? []).map((entry) => entry.token)),
  };
}

// Tool calls by adding strings up, which shows a repeated id or name as a doubled one.
function calls(choices) {
  const found = [];
  for (const part of choices.flatMap((choice) => choice.delta?.tool_calls ?? [])) {
    const call = (found[part.index] ??= { id: '', type: '', name: '', arguments: '' });
    call.id += part.id ?? '';
    call.type += part.type ?? '';
    call.name += part.function.name ?? '';
    call.arguments += part.function.arguments ?? '';
  }
  return found;
}
