// The JavaScript of the documents is run unchanged, except for the address.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';

import { FIXTURES, RECORDED } from './ground.mjs';

const ROOT = join(FIXTURES, '..');
const run = promisify(execFile);

function* blocks() {
  const documents = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
  for (const name of ['README.md', ...documents.sort().map((name) => join('docs', name))]) {
    const text = readFileSync(join(ROOT, name), 'utf8');
    for (const found of text.matchAll(/^```js\n(.*?)^```$/gms)) {
      yield { name: `${name}:${text.slice(0, found.index).split('\n').length}`, block: found[1] };
    }
  }
}

describe('blocks of the documents', () => {
  let count = 0;
  for (const { name, block } of blocks()) {
    count += 1;
    test(name, async () => {
      assert.ok(block.includes('http://127.0.0.1:8080/v1'));
      // A module finds the library in the folders above its own, which is made where clients.sh has installed it.
      const folder = mkdtempSync(join(process.cwd(), 'block-'));
      try {
        const file = join(folder, 'block.mjs');
        writeFileSync(file, block.replace('http://127.0.0.1:8080/v1', RECORDED));
        const { stdout } = await run(process.execPath, [file], { timeout: 60_000 });
        assert.ok(stdout.trim());
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  }
  test('are there', () => assert.ok(count > 0));
});
