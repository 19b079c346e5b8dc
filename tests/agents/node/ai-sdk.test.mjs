// The AI SDK runs its loop of tools over Responses.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { THOUGHT, check, createOpenAI, engine, generateText, loop, streamed } from './ground.mjs';

const settings = (baseURL, openai = {}) => ({
  ...loop,
  model: createOpenAI({ baseURL, apiKey: 'sk-test' }).responses('traveller'),
  providerOptions: { openai: { forceReasoning: true, reasoningEffort: 'low', reasoningSummary: 'auto', ...openai } },
});

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
