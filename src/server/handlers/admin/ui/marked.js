// Text with marks: differences, parts left out, and hits of the search.

import { html } from './vendor/htm-preact.js'
import { plain, visible } from './visible.js'

/** All places where an expression occurs. */
export function hitsIn(text, expression) {
  if (!expression) return []
  return Array.from(text.matchAll(expression), found => ({ start: found.index, end: found.index + found[0].length }))
}

/** The place of a hit by its number; 0 if there are fewer. */
export function placeOf(text, expression, number) {
  let left = number
  for (const found of text.matchAll(expression)) if ((left -= 1) < 0) return found.index
  return 0
}

const isOver = (a, b) => a.start < b.end && b.start < a.end

/** Cuts the text at each mark's and hit's edges. */
function pieces(text, marks, hits) {
  const edges = new Set([0, text.length])
  for (const { start, end } of [...marks, ...hits]) {
    edges.add(Math.min(start, text.length))
    edges.add(Math.min(end, text.length))
  }
  const sorted = [...edges].sort((a, b) => a - b)
  let mark = 0
  let hit = 0
  return sorted.slice(0, -1).map((start, at) => {
    while (mark < marks.length && marks[mark].end <= start) mark += 1
    while (hit < hits.length && hits[hit].end <= start) hit += 1
    const within = (list, index) => (list[index]?.start <= start ? list[index] : null)
    const found = within(hits, hit)
    return { start, end: sorted[at + 1], kind: within(marks, mark)?.kind, hit: found ? hit : -1 }
  })
}

function element(text, { start, end, kind, hit }, current) {
  const part = text.slice(start, end)
  if (kind === 'left-out') return html`<span class="left-out" title=${plain(part.slice(0, 400))}>…</span>`
  const shown = hit < 0 ? visible(part) : html`<mark class=${hit === current ? 'current' : ''}>${visible(part)}</mark>`
  if (kind === 'gone') return html`<del>${shown}</del>`
  if (kind === 'new') return html`<ins>${shown}</ins>`
  return shown
}

/** `marks` are in order and apart. `current` is the number of the hit that was jumped to. */
export function Marked({ text, marks = [], expression = null, current = -1 }) {
  const hits = hitsIn(text, expression)
  if (marks.length === 0 && hits.length === 0) return visible(text)
  const kept = marks.filter(mark => mark.kind !== 'left-out' || !hits.some(hit => isOver(mark, hit)))
  return pieces(text, kept, hits).map(piece => element(text, piece, current))
}
