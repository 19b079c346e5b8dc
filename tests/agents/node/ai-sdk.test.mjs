// The AI SDK runs its loop of tools over Responses.

import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

// The libraries lie where clients.sh has installed them, which is the working directory.
const load = (name) => import(createRequire(join(process.cwd(), 'package.json')).resolve(name));
const { generateText, isStepCount, streamText, tool } = await load('ai');
const { createOpenAI } = await load('@ai-sdk/openai');
const { z } = await load('zod');

const THOUGHT = 'First I look – at “everything”.\nThen\u2028I act.';
const ANSWER = 'Outputs: Zürich: sunny; 12:00 in Europe/Zurich; Oslo: sunny.';
const tools = {
  get_weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `${city}: sunny` }),
  get_time: tool({ inputSchema: z.object({ zone: z.string() }), execute: async ({ zone }) => `12:00 in ${zone}` }),
};

const engine = (shape) => {
  const name = `SAMEWIRE_${shape.toUpperCase()}`;
  const log = process.env[`${name}_REQUESTS`];
  const start = statSync(log).size;
  const key = { vllm: 'reasoning', sglang: 'reasoning_content' }[shape];
  return {
    base: process.env[name],
    summary: process.env[`${name}_SUMMARY`],
    asked: () => readFileSync(log).subarray(start).toString().trim().split('\n').map((line) => JSON.parse(line).body),
    reasoning: (body) => body.messages.filter(({ role }) => role === 'assistant').map((message) => message[key]),
  };
};

const settings = (baseURL, openai = {}) => ({
  model: createOpenAI({ baseURL, apiKey: 'sk-test' }).responses('traveller'),
  prompt: 'How is it there?',
  tools,
  maxRetries: 0,
  stopWhen: isStepCount(5),
  abortSignal: AbortSignal.timeout(30_000),
  providerOptions: { openai: { forceReasoning: true, reasoningEffort: 'low', reasoningSummary: 'auto', ...openai } },
});

const check = (steps, usage) => {
  assert.deepEqual(steps.map(({ text }) => text), ['', 'And Oslo? ', ANSWER]);
  assert.deepEqual(steps.flatMap(({ toolCalls }) => toolCalls.map(({ toolName, input }) => [toolName, input])), [
    ['get_weather', { city: 'Zürich' }],
    ['get_time', { zone: 'Europe/Zurich' }],
    ['get_weather', { city: 'Oslo' }],
  ]);
  assert.deepEqual(steps.map(({ finishReason }) => finishReason), ['tool-calls', 'tool-calls', 'stop']);
  assert.deepEqual([usage.inputTokens, usage.outputTokens], [123, 57]);
};

async function streamed(options) {
  const errors = [];
  const result = streamText({ ...options, onError: ({ error }) => errors.push(error) });
  await result.consumeStream({ onError: (error) => errors.push(error) });
  assert.deepEqual(errors, []);
  const steps = await result.steps;
  check(steps, await (result.totalUsage ?? result.usage));
  return steps;
}

for (const shape of ['vllm', 'sglang']) {
  test(`${shape}: in one piece`, async () => {
    const at = engine(shape);
    const result = await generateText(settings(at.base));
    check(result.steps, result.totalUsage ?? result.usage);
    assert.equal(at.asked().length, 3);
  });

  test(`${shape}: streamed, responses stored`, async () => {
    const at = engine(shape);
    await streamed(settings(at.base));
    assert.deepEqual(at.reasoning(at.asked()[2]), [THOUGHT, 'Once more.']);
  });

  test(`${shape}: streamed, reasoning as a summary and sealed`, async () => {
    const at = engine(shape);
    const steps = await streamed(settings(at.summary, { store: false, include: ['reasoning.encrypted_content'] }));
    assert.deepEqual(steps.map(({ reasoningText }) => reasoningText), [THOUGHT, 'Once more.', 'Enough.']);
    assert.deepEqual(at.reasoning(at.asked()[2]), [THOUGHT, 'Once more.']);
  });
}
