// Text of engines and users, with every character visible and none that reorders its surroundings.

import { html } from './vendor/htm-preact.js'

// What `is_hidden` in src/visible.rs has: controls, marks of direction, and characters that show nothing. What joins or
// styles an emoji, or a key such as 1️⃣, belongs to it; anywhere else, these marks hide text.
const HIDDEN =
  /(?![\u200d\ufe0e\ufe0f])\p{Default_Ignorable_Code_Point}|[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2800\ufff9-\ufffb\ud800-\udfff]|(?<![\p{Extended_Pictographic}\p{Emoji_Modifier}]\ufe0f?)\u200d|\u200d(?!\p{Extended_Pictographic})|(?<!\p{Extended_Pictographic}|[\d#*](?=\ufe0f\u20e3))[\ufe0e\ufe0f]/gu

const NAMES = {
  0x200b: 'zero width space',
  0x200e: 'left-to-right mark',
  0x200f: 'right-to-left mark',
  0x202a: 'left-to-right embedding',
  0x202b: 'right-to-left embedding',
  0x202c: 'pop directional formatting',
  0x202d: 'left-to-right override',
  0x202e: 'right-to-left override',
  0x2066: 'left-to-right isolate',
  0x2067: 'right-to-left isolate',
  0x2068: 'first strong isolate',
  0x2069: 'pop directional isolate',
  0xfeff: 'byte order mark',
}

const label = code => `U+${code.toString(16).toUpperCase().padStart(4, '0')}`

/** The text, with a label in place of each character that is not visible. Gives text, or a list of it and of elements. */
export function visible(text) {
  if (text.search(HIDDEN) < 0) return text
  const parts = []
  let from = 0
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) parts.push(text.slice(from, found.index))
    const code = found[0].codePointAt(0)
    parts.push(html`<span class="code-point" title=${NAMES[code] ?? 'a character that is not visible'}>${label(code)}</span>`)
    from = found.index + found[0].length
  }
  if (from < text.length) parts.push(text.slice(from))
  return parts
}

/** A name given by others, isolated from the text around it. */
export const name = text => (text == null || text === '' ? '–' : html`<bdi>${visible(String(text))}</bdi>`)

/** A sentence of samewire, in which names stand between backticks. */
export const words = text => String(text).split('`').map((part, at) => (at % 2 ? html`<code>${visible(part)}</code>` : visible(part)))

/** Text for attributes, which cannot have elements. */
export const plain = text => String(text ?? '').replace(HIDDEN, found => `[${label(found.codePointAt(0))}]`)
