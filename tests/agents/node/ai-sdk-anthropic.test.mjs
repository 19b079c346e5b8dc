// The AI SDK runs its loop of tools over Anthropic's Messages, with thinking.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { THOUGHT, check, createAnthropic, engine, generateText, loop, streamed } from './ground.mjs';

const settings = (base) => ({
  ...loop,
  model: createAnthropic({ baseURL: base, apiKey: 'sk-test' })('traveller'),
  maxOutputTokens: 3000,
  providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 2048 } } },
});

const checkThoughts = (steps, at) => {
  assert.deepEqual(steps.map(({ reasoningText }) => reasoningText), [THOUGHT, 'Once more.', 'Enough.']);
  assert.equal(at.asked().length, 3);
  assert.deepEqual(at.reasoning(at.asked()[2]), [THOUGHT, 'Once more.']);
  assert.deepEqual(at.asked().map(({ reasoning_effort }) => reasoning_effort), ['low', 'low', 'low']);
};

for (const shape of ['vllm', 'sglang']) {
  test(`${shape}: in one piece`, async () => {
    const at = engine(shape);
    const result = await generateText(settings(at.base));
    check(result.steps, result.totalUsage ?? result.usage);
    checkThoughts(result.steps, at);
  });

  test(`${shape}: streamed`, async () => {
    const at = engine(shape);
    checkThoughts(await streamed(settings(at.base)), at);
  });
}
