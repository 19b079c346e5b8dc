// The page's files: their size, and the copied library.
import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../src/server/handlers/admin/ui')

export async function checks(stage, { modules }) {
  const names = (await readdir(root, { recursive: true, withFileTypes: true })).filter(one => one.isFile())
  const contents = new Map(await Promise.all(names.map(async one => {
    const file = path.join(one.parentPath, one.name)
    return [path.relative(root, file), await readFile(file)]
  })))

  stage.check('the copied library is that of the package', async () => {
    const original = path.join(modules, 'node_modules', 'htm', 'preact', 'standalone.module.js')
    assert.ok(contents.get('vendor/htm-preact.js').equals(await readFile(original)))
    const { version } = JSON.parse(await readFile(path.join(modules, 'node_modules', 'htm', 'package.json'), 'utf8'))
    const licences = contents.get('vendor/LICENSES').toString()
    assert.match(licences, new RegExp(`htm ${version} `))
    assert.match(licences, /Apache License[^]*Version 2\.0[^]*MIT License/)
  })

  stage.check('the files are small, short, and load nothing from elsewhere', () => {
    const size = [...contents.values()].reduce((sum, content) => sum + content.length, 0)
    assert.ok(size <= 160 * 1024, `${size} bytes`)
    for (const [name, content] of contents) {
      const text = content.toString()
      if (name.startsWith('vendor/')) continue
      assert.ok(text.split('\n').length <= 600, `${name} has more than 600 lines`)
      assert.doesNotMatch(text, /innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/, name)
      assert.doesNotMatch(text.replace(/http:\/\/(www\.w3\.org|127\.0\.0\.1)/g, ''), /https?:\/\//, name)
      // Control characters would hide code from a reader.
      assert.doesNotMatch(text, /[\0-\x08\x0b-\x1f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/, name)
    }
    const index = contents.get('index.html').toString()
    assert.doesNotMatch(index, /<style|<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=/i)
  })
}
