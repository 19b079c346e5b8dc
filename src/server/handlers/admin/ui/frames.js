// Frames as text: where their JSON stands, which parts of it differ between the two sides, and how it is indented.
// Numbers and strings are shown as they came, so the text is scanned and never parsed and written again.

/** Nesting beyond which JSON is shown without marks. */
const DEEPEST = 200
/** Length of text beyond which its parts are not compared. */
const LONGEST = 400_000
/** Characters of all paths and values of a text, beyond which its parts are not compared: each value repeats the keys around it. */
const PATHS = 4_000_000
/** Blanks beyond which the rest of a text is not indented: each line repeats those of its depth. */
const BLANKS = 4_000_000

/** Paths of content, which is never left out of a short frame. */
const CONTENT = /delta|message|content|text|arguments|item|usage|error|sequence|input|output/

/** Where the JSON of a frame or body begins; -1 if there is none. */
export function jsonStart(text) {
  const found = /(?:^|\n)data: ?(?=[{[])/.exec(text)
  if (found) return found.index + found[0].length
  return /^\s*[{[]/.test(text) ? text.search(/[{[]/) : -1
}

/** The end of the string that begins at a quote; -1 if it does not end. */
function stringEnd(text, start) {
  let at = start + 1
  for (;;) {
    at = text.indexOf('"', at)
    if (at < 0) return -1
    let slashes = 0
    while (text[at - 1 - slashes] === '\\') slashes += 1
    if (slashes % 2 === 0) return at + 1
    at += 1
  }
}

class Malformed extends Error {}

/** Finds the scalars of one JSON value, with their paths and places. */
class Scanner {
  constructor(text, at) {
    this.text = text
    this.at = at
    this.found = []
    this.room = PATHS
  }

  space() {
    while (this.at < this.text.length && ' \n\r\t'.includes(this.text[this.at])) this.at += 1
  }

  takes(character) {
    this.space()
    if (this.text[this.at] !== character) return false
    this.at += 1
    return true
  }

  string() {
    const start = this.at
    const end = this.text[start] === '"' ? stringEnd(this.text, start) : -1
    if (end < 0) throw new Malformed()
    this.at = end
    return this.text.slice(start + 1, end - 1)
  }

  leaf(path, from, start) {
    this.room -= path.length + this.at - start
    if (this.room < 0) throw new Malformed()
    this.found.push({ path, from, start, end: this.at, raw: this.text.slice(start, this.at) })
  }

  value(path, from, depth) {
    this.space()
    const start = this.at
    const first = this.text[start]
    if (depth > DEEPEST) throw new Malformed()
    if (first === '{') return this.members(path, from, start, depth, '}', () => {
      this.space()
      const key = this.string()
      if (!this.takes(':')) throw new Malformed()
      return path ? `${path}.${key}` : key
    })
    if (first === '[') {
      let index = -1
      return this.members(path, from, start, depth, ']', () => `${path}[${(index += 1)}]`)
    }
    if (first === '"') this.string()
    else {
      while (this.at < this.text.length && !',]} \n\r\t'.includes(this.text[this.at])) this.at += 1
      if (this.at === start) throw new Malformed()
    }
    this.leaf(path, from, start)
  }

  members(path, from, start, depth, close, next) {
    this.at += 1
    if (this.takes(close)) return this.leaf(path, from, start)
    do {
      this.space()
      const member = this.at
      this.value(next(), member, depth + 1)
    } while (this.takes(','))
    if (!this.takes(close)) throw new Malformed()
  }
}

/** The scalars of the JSON in a text: path, place and raw text. Null where there is no JSON, or none that is well-formed. */
export function scalars(text) {
  const start = text.length > LONGEST ? -1 : jsonStart(text)
  if (start < 0) return null
  const scanner = new Scanner(text, start)
  try {
    scanner.value('', start, 0)
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
  return scanner.found
}

const sameKey = ({ path, raw }) => `${path}=${raw}`

/** Marks for the scalars that the other side has not: `gone` from the engine's text, `new` in the client's. */
export function differences(engine, clients) {
  const none = { engine: [], clients: clients.map(() => []) }
  const left = engine === null ? null : scalars(engine)
  const right = clients.map(scalars)
  if (!left || right.every(one => !one)) return none
  const before = new Set(left.map(sameKey))
  const after = new Set(right.flatMap(one => one?.map(sameKey) ?? []))
  // Two APIs have next to nothing in common, and marks everywhere would say nothing.
  const isOtherApi = !left.some(one => after.has(sameKey(one)))
  if (isOtherApi) return none
  const marked = (found, others, kind) => found?.filter(one => !others.has(sameKey(one))).map(({ from, end }) => ({ start: from, end, kind })) ?? []
  return { engine: marked(left, after, 'gone'), clients: right.map(one => marked(one, before, 'new')) }
}

/** Marks for what a frame repeats of the one before it, apart from content and from what is marked already. */
export function repeated(text, previous, marks) {
  const before = previous === null ? null : scalars(previous)
  const now = before && scalars(text)
  if (!now) return []
  const known = new Set(before.map(sameKey))
  const isMarked = ({ from, end }) => marks.some(mark => mark.start < end && from < mark.end)
  const parts = []
  for (const one of now) {
    if (CONTENT.test(one.path) || !known.has(sameKey(one)) || isMarked(one)) continue
    const last = parts.at(-1)
    if (last && /^[,\s]*$/.test(text.slice(last.end, one.from))) last.end = one.end
    else parts.push({ start: one.from, end: one.end, kind: 'left-out' })
  }
  return parts.filter(({ start, end }) => end - start > 3)
}

/** The text with its JSON indented, one member on each line; the rest of it as it is where it is nested too deep for that. */
export function indented(text) {
  const start = jsonStart(text)
  if (start < 0) return text
  let out = text.slice(0, start)
  let depth = 0
  let room = BLANKS
  const line = () => {
    room -= 2 * depth
    return room < 0 ? '' : `\n${'  '.repeat(depth)}`
  }
  let at = start
  while (at < text.length && room >= 0) {
    const character = text[at]
    if (character === '"') {
      const end = stringEnd(text, at)
      if (end < 0) break
      out += text.slice(at, end)
      at = end
      continue
    }
    if (character === '{' || character === '[') {
      const close = /^[{[]\s*[}\]]/.exec(text.slice(at, at + 64))
      if (close) {
        out += character + (character === '{' ? '}' : ']')
        at += close[0].length
        continue
      }
      depth += 1
      out += character + line()
    } else if (character === '}' || character === ']') {
      depth = Math.max(0, depth - 1)
      out += line() + character
      if (depth === 0) return out + text.slice(at + 1)
    } else if (character === ',') out += character + line()
    else if (character === ':') out += ': '
    else if (!' \n\r\t'.includes(character)) out += character
    at += 1
  }
  return out + text.slice(at)
}

/** A frame without the blank line that ends it. */
export const trimmed = text => text.replace(/[\r\n]+$/, '')
