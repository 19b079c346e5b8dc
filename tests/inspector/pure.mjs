// The page's functions that need no browser, on made-up input of all kinds.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { numbers } from './data.mjs'

const ui = '../../src/server/handlers/admin/ui'
const { differences, indented, jsonStart, repeated, scalars } = await import(`${ui}/frames.js`)
const { Heights } = await import(`${ui}/list.js`)
const { hitsIn } = await import(`${ui}/marked.js`)
const { expressionOf, nextHit } = await import(`${ui}/search.js`)
const { pieces, scale } = await import(`${ui}/plots.js`)
const { pausesOf, rowAt } = await import(`${ui}/timeline.js`)
const { bytes, duration, longer, sizeOf } = await import(`${ui}/format.js`)
const { plain } = await import(`${ui}/visible.js`)

const TEXTS = ['', 'a', '"', '\\', '\\"', '{', '}', '[,]', ': ', 'ü', '\u2028', '\u{1f30d}', '\n']

/** A value as JSON may have it, with texts that look like JSON. */
function value(random, depth) {
  const kind = Math.floor(random() * (depth > 4 ? 4 : 6))
  const text = () => Array.from({ length: Math.floor(random() * 4) }, () => TEXTS[Math.floor(random() * TEXTS.length)]).join('')
  const list = make => Array.from({ length: Math.floor(random() * 4) }, make)
  if (kind === 0) return text()
  if (kind === 1) return Math.round(random() * 1e6) / 100
  if (kind === 2) return null
  if (kind === 3) return random() > 0.5
  if (kind === 4) return list(() => value(random, depth + 1))
  return Object.fromEntries(list(() => [text(), value(random, depth + 1)]))
}

/** The scalars of a value, as many as `scalars` finds. */
function countOf(found) {
  const parts = found !== null && typeof found === 'object' ? Object.values(found) : []
  return parts.length ? parts.reduce((sum, part) => sum + countOf(part), 0) : 1
}

function frames(stage) {
  stage.check('frames keep their meaning when they are scanned and indented', () => {
    const random = numbers(23)
    for (let round = 0; round < 3_000; round += 1) {
      const object = { x: value(random, 0) }
      const text = `event: a\ndata: ${JSON.stringify(object)}\n\n`
      const found = scalars(text)
      assert.equal(found.length, countOf(object), text)
      for (const { start, end, raw } of found) {
        assert.equal(text.slice(start, end), raw)
        JSON.parse(raw)
      }
      const shown = indented(text)
      assert.deepEqual(JSON.parse(shown.slice(jsonStart(shown))), object)
      assert.deepEqual(differences(text, [text]), { engine: [], clients: [[]] }, 'a text does not differ from itself')
      assert.ok(repeated(text, text, []).every(({ start, end }) => start < end && end <= text.length))
    }
  })

  stage.check('text that is not JSON is left unchanged', () => {
    for (const text of ['', 'data: [DONE]', ': ping', 'data: {', 'data: {"a":', 'data: {"a":"b', '{"a" 1}', '{"a":1,}', '[1 2]', 'data: {"a":"\\', '<html>', `${'['.repeat(5_000)}`]) {
      const found = scalars(text)
      assert.ok(found === null || found.length > 0, text)
      assert.equal(indented(text).replace(/\s/g, ''), text.replace(/\s/g, ''), text)
      assert.deepEqual(differences(text, [text]).engine, [])
    }
    const exact = '{"big":12345678901234567890123,"small":1.0e-2,"same":1,"same":2}'
    assert.equal(indented(exact).replace(/\s/g, ''), exact, 'numbers and repeated keys stay')
    const deep = `{"a":${'['.repeat(40_000)}"b c"${']'.repeat(40_000)}}`
    const shown = indented(deep)
    assert.ok(shown.length < 5_000_000 && shown.replace(/\s/g, '') === deep.replace(' ', ''), 'what is nested too deep is not indented')
    assert.equal(scalars(`{"${'k'.repeat(150_000)}":[${Array(1_000).fill(1).join()}]}`), null, 'paths are bounded')
  })

  stage.check('differences are the members that one side alone has', () => {
    const of = (text, marks) => marks.map(({ start, end }) => text.slice(start, end))
    const engine = 'data: {"id":"1","delta":{"reasoning":"a"},"x":null}'
    const clients = ['data: {"id":"1","delta":{"role":"assistant"}}', 'data: {"id":"1","delta":{"reasoning_content":"a","reasoning":"a"}}']
    const marks = differences(engine, clients)
    assert.deepEqual(of(engine, marks.engine), ['"x":null'])
    assert.deepEqual(clients.map((text, at) => of(text, marks.clients[at])), [['"role":"assistant"'], ['"reasoning_content":"a"']])
    assert.deepEqual(differences(engine, ['data: {"type":"response.created"}']), { engine: [], clients: [[]] }, 'another API is not marked all over')
  })
}

function sums(stage) {
  stage.check('heights sum up as a plain sum does', () => {
    const random = numbers(5)
    for (const capacity of [0, 1, 2, 3, 7, 64, 65, 1_000]) {
      const sizes = Array.from({ length: capacity }, () => 1 + Math.floor(random() * 90))
      const heights = new Heights(capacity, row => sizes[row])
      for (let round = 0; round < 200; round += 1) {
        if (capacity) {
          const row = Math.floor(random() * capacity)
          sizes[row] = 1 + Math.floor(random() * 200)
          heights.set(row, sizes[row])
        }
        heights.count = Math.floor(random() * (capacity + 1))
        const tops = sizes.slice(0, heights.count).reduce((all, size) => [...all, all.at(-1) + size], [0])
        assert.equal(heights.total, tops.at(-1))
        const distance = random() * heights.total
        const expected = Math.max(0, Math.min(tops.findLastIndex(top => top <= distance), heights.count - 1))
        assert.equal(heights.at(distance), expected)
        assert.equal(heights.top(expected), tops[expected])
      }
    }
  })

  stage.check('hits, pauses, gaps, scales and units', () => {
    assert.equal(hitsIn('a.b A.B axb', expressionOf('a.b')).length, 2, 'no character of a query is an operator')
    for (const character of '\\^$.*+?()[]{}|/-') assert.equal(hitsIn(`x${character}y`, expressionOf(`x${character}Y`)).length, 1, character)
    for (const query of ['"a":[{"b":1', '"a": [ {"b": 1', '"a":[{', '{"a":']) {
      for (const text of ['{"a":[{"b":1}]}', indented('{"a":[{"b":1}]}')]) assert.equal(hitsIn(text, expressionOf(query)).length, 1, `${query} in ${text}`)
    }
    assert.equal(hitsIn('a: b', expressionOf('a:b')).length, 0)
    const hits = [[3, 0, 0], [5, 1, 0], [9, 0, 0]]
    assert.deepEqual([nextHit(hits, -1, 4, 1), nextHit(hits, -1, 4, -1), nextHit(hits, 2, 0, 1), nextHit(hits, 0, 0, -1), nextHit([], -1, 0, 1)], [1, 0, 0, 2, -1])
    assert.deepEqual([...pausesOf(Float64Array.from([10, 20, 30, 40, 900, 910]))], [[4, 860]])
    const times = Float64Array.from([5, 5, 8])
    assert.deepEqual([0, 5, 6, 8, 99].map(at => rowAt(times, at)), [0, 1, 1, 2, 2])
    const points = [[0, 1], [5, 2], [10, null], [15, 3], [40, 4]].map(([at, value]) => ({ at, value }))
    assert.deepEqual(pieces(points, 5, point => point.value), [[[0, 1], [5, 2]], [[15, 3]], [[40, 4]]])
    for (const most of [0, 0.003, 1, 1.01, 7, 99, 100, 101, 6_543]) assert.ok(scale(most).top >= most * 0.999 && scale(most).top <= Math.max(1, most * 2.1), `${most}`)
    assert.deepEqual([null, 0, 0.5, 12.34, 999.7, 61_000].map(duration), ['–', '0 ms', '0.50 ms', '12.3 ms', '1.00 s', '1 min 1 s'])
    assert.deepEqual([0, 59, 60, 3_661, 90_000].map(longer), ['0 s', '59 s', '1 min', '1 h 1 min', '1 d 1 h'])
    assert.deepEqual([null, 0, 1_023, 1_024, 67_108_864].map(bytes), ['–', '0 B', '1,023 B', '1 KiB', '64 MiB'])
    assert.equal(sizeOf('"你好"'), '8 B')
  })
}

function characters(stage) {
  stage.check('the characters that have a label are those that samewire escapes', async () => {
    const source = await readFile(new URL('../../src/visible.rs', import.meta.url), 'utf8')
    const list = /let is_mark = matches!\(([^)]*)\)/.exec(source)[1]
    const ranges = Array.from(list.matchAll(/'\\u\{(\w+)\}'(?:\.\.='\\u\{(\w+)\}')?/g), ([, from, to = from]) => [from, to].map(code => Number.parseInt(code, 16)))
    assert.ok(ranges.length > 15)
    // Rust has no halves of pairs, and the page shows tabs and line breaks as such.
    const controls = [[0, 8], [0xb, 0x1f], [0x7f, 0x9f], [0xd800, 0xdfff]]
    const isHidden = code => [...ranges, ...controls].some(([from, to]) => from <= code && code <= to)
    for (let code = 0; code <= 0x10ffff; code += 1) {
      const character = String.fromCodePoint(code)
      assert.equal(plain(character) !== character, isHidden(code), code.toString(16))
    }
  })

  stage.check('marks within an emoji belong to it, and have a label elsewhere', () => {
    for (const emoji of ['👨\u200d👩\u200d👧', '❤\ufe0f\u200d🔥', '👋🏽', '1\ufe0f\u20e3', '☎\ufe0e']) assert.equal(plain(`a ${emoji} b`), `a ${emoji} b`)
    for (const [text, expected] of [
      ['a\ufe0f', 'a[U+FE0F]'], ['1\ufe0f2', '1[U+FE0F]2'], ['👧\u200d', '👧[U+200D]'], ['x\u200dy', 'x[U+200D]y'], ['👧\ufe0f\ufe0f', '👧\ufe0f[U+FE0F]'], ['\u{e0100}\u3164', '[U+E0100][U+3164]'],
    ]) assert.equal(plain(text), expected)
  })
}

export function checks(stage) {
  characters(stage)
  frames(stage)
  sums(stage)
}
