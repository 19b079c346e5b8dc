// Basis of the tests of this folder: the engines and their requests, and a loop of tools.

import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

// The libraries lie where clients.sh has installed them, which is the working directory.
const load = (name) => import(createRequire(join(process.cwd(), 'package.json')).resolve(name));
const { generateText, isStepCount, streamText, tool } = await load('ai');
const { createAnthropic } = await load('@ai-sdk/anthropic');
const { createOpenAI } = await load('@ai-sdk/openai');
const { z } = await load('zod');
export { createAnthropic, createOpenAI, generateText };

// What the model thinks before its first call, and what it says when it has seen the tools' outputs (model.py).
export const THOUGHT = 'First I look – at “everything”.\nThen\u2028I act.';
const ANSWER = 'Outputs: Zürich: sunny; 12:00 in Europe/Zurich; Oslo: sunny.';

export const engine = (shape) => {
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

// What a loop has whatever API it goes over. A signal is for one loop.
export const loop = {
  prompt: 'How is it there?',
  tools: {
    get_weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `${city}: sunny` }),
    get_time: tool({ inputSchema: z.object({ zone: z.string() }), execute: async ({ zone }) => `12:00 in ${zone}` }),
  },
  maxRetries: 0,
  stopWhen: isStepCount(5),
  get abortSignal() {
    return AbortSignal.timeout(30_000);
  },
};

export const check = (steps, usage) => {
  assert.deepEqual(steps.map(({ text }) => text), ['', 'And Oslo? ', ANSWER]);
  assert.deepEqual(steps.flatMap(({ toolCalls }) => toolCalls.map(({ toolName, input }) => [toolName, input])), [
    ['get_weather', { city: 'Zürich' }],
    ['get_time', { zone: 'Europe/Zurich' }],
    ['get_weather', { city: 'Oslo' }],
  ]);
  assert.deepEqual(steps.map(({ finishReason }) => finishReason), ['tool-calls', 'tool-calls', 'stop']);
  assert.deepEqual([usage.inputTokens, usage.outputTokens], [123, 57]);
};

export async function streamed(options) {
  const errors = [];
  const result = streamText({ ...options, onError: ({ error }) => errors.push(error) });
  await result.consumeStream({ onError: (error) => errors.push(error) });
  assert.deepEqual(errors, []);
  const steps = await result.steps;
  check(steps, await (result.totalUsage ?? result.usage));
  return steps;
}
