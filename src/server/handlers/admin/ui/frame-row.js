// One row of an exchange: the engine's frame, the client's frames, and the changes between them.

import { html } from './vendor/htm-preact.js'
import { count, duration } from './format.js'
import { differences, indented, repeated, trimmed } from './frames.js'
import { hitsIn, Marked, placeOf } from './marked.js'
import { name, plain, words } from './visible.js'

/** Characters of a text that are shown before somebody asks for more, and how many times as many are then shown. */
export const SHOWN = 12_000
const MORE = 16
/** Characters before a hit in a text of which only a part is shown. */
const BEFORE = 400

export const FORMS = ['short', 'raw', 'indented']

/** The nearest frames of the rows before this one, which short frames are compared with. */
function previous(rows, at) {
  let engine = null
  let client = null
  for (let row = at - 1; row >= 0 && row >= at - 4 && (engine === null || client === null); row -= 1) {
    engine ??= rows[row].engine?.text ?? null
    client ??= rows[row].client.at(-1)?.text ?? null
  }
  return { engine, client }
}

/** The text of a frame as a form shows it. */
export const shownIn = (form, frame) => (form === 'indented' ? indented(trimmed(frame.text)) : trimmed(frame.text))

/** Texts of a row as they are shown in a form, with their marks. */
function prepared(rows, at, form) {
  const row = rows[at]
  const textOf = frame => shownIn(form, frame)
  const engine = row.engine ? textOf(row.engine) : null
  const clients = row.client.map(textOf)
  const marks = differences(engine, clients)
  if (form !== 'short') return { engine, clients, marks }
  const before = previous(rows, at)
  const withRepeats = (text, last, own) => (text === null ? [] : [...own, ...repeated(text, last, own)].sort((a, b) => a.start - b.start))
  return {
    engine,
    clients,
    marks: {
      engine: withRepeats(engine, before.engine, marks.engine),
      clients: clients.map((text, index) => withRepeats(text, clients[index - 1] ?? before.client, marks.clients[index])),
    },
  }
}

/** Prepared rows, of which those in view are asked for again and again. */
export class Prepared {
  constructor(rows, form) {
    this.rows = rows
    this.form = form
    this.kept = new Map()
  }

  of(at) {
    let found = this.kept.get(at)
    if (!found) {
      if (this.kept.size > 500) this.kept.clear()
      found = prepared(this.rows, at, this.form)
      this.kept.set(at, found)
    }
    return found
  }
}

/** The part of a long text that is shown: its beginning, or where the current hit is; with marks and hit at their new places. */
export function partOf(text, marks, expression, current, limit) {
  if (text.length <= limit) return { from: 0, shown: text, marks, current }
  const hit = current >= 0 ? placeOf(text, expression, current) : 0
  const from = hit > limit - BEFORE ? hit - BEFORE : 0
  const shown = text.slice(from, from + limit)
  const seen = marks.filter(({ start, end }) => end > from && start < from + limit)
  return {
    from,
    shown,
    marks: seen.map(mark => ({ ...mark, start: Math.max(0, mark.start - from), end: mark.end - from })),
    current: from ? hitsIn(shown, expression).findIndex(({ start }) => start >= BEFORE) : current,
  }
}

/** Text of any length, of which more is shown on demand: laying out megabytes takes a browser many seconds. */
export function LongText({ text, marks, expression = null, current = -1, limit = SHOWN, onMore }) {
  const part = partOf(text, marks, expression, current, limit)
  const left = text.length - part.shown.length
  return html`<bdi dir="ltr" class="frame">${part.from > 0 && html`<span class="left-out">… </span>`}<${Marked} text=${part.shown} marks=${part.marks} expression=${expression} current=${part.current}/></bdi>
    ${left > 0 && html`<button type="button" class="more-text" onClick=${() => onMore(limit * MORE)}>Show more: ${count(left)} characters are not shown</button>`}`
}

/** Distance of the client's frame from the engine's, or its own time where the engine has none. */
function Sent({ frame, engine }) {
  const text = engine ? `+${duration(Math.max(0, frame.at_ms - engine.at_ms))}` : duration(frame.at_ms)
  return html`<span class="sent dim" title="sent to the client ${engine ? 'after the engine’s frame' : 'since the request arrived'}">${text}</span>`
}

function Changes({ changes, rules, isExplained }) {
  if (changes.length === 0) return null
  return html`<ul class="changes">${changes.map(({ rule, text, times }) => html`<li>
    ${rule ? html`<code class="rule" title=${plain(rules[rule])}>${name(rule)}</code>` : html`<span class="rule none" title="no counted rule">–</span>`}${' '}
    <span class="what">${name(text)}</span>${times > 1 && html` <span class="dim">${times} times</span>`}
    ${isExplained && rule && html`<span class="words">${rules[rule] ? words(rules[rule]) : 'samewire has no words for this rule.'}</span>`}</li>`)}</ul>`
}

/** Returns the cells of a row, for the list. `view` has the state that all rows share. */
export function cells(view, at) {
  const { rows, prepared, moments, pauses, search, hit, explained, areExplained, rules, limits, onMore } = view
  const row = rows[at]
  const { engine, clients, marks } = prepared.of(at)
  const time = moments.times[at]
  const step = at ? time - moments.times[at - 1] : null
  const pause = pauses.get(at)
  const currentOf = part => (hit && hit[0] === at && hit[1] === part ? hit[2] : -1)
  const shared = { expression: search.expression, limit: limits.get(at) ?? SHOWN, onMore: limit => onMore(at, limit) }
  return html`${pause !== undefined && html`<div class="gap" role="gridcell">${at ? `pause of ${duration(pause)}` : `the first frame came after ${duration(pause)}`}</div>`}
    <div role="rowheader" class="when"><span><span class="dim">${at + 1}</span> <span title="since the request arrived">${duration(time)}</span></span>
      ${step !== null && html`<span class="dim" title="since the row before">+${duration(step)}</span>`}</div>
    <div role="gridcell" class="side engine" data-side="engine">${engine === null
      ? html`<span class="nothing">no frame of the engine</span>`
      : html`<${LongText} text=${engine} marks=${marks.engine} current=${currentOf(0)} ...${shared}/>`}</div>
    <div role="gridcell" class="side client" data-side="client">${clients.length === 0
      ? html`<span class="nothing">nothing was sent</span>`
      : clients.map((text, index) => html`<div class="one"><${Sent} frame=${row.client[index]} engine=${row.engine}/><${LongText} text=${text} marks=${marks.clients[index]} current=${currentOf(index + 1)} ...${shared}/></div>`)}</div>
    ${row.changes.length > 0 && html`<div role="gridcell" class="between"><${Changes} changes=${row.changes} rules=${rules} isExplained=${areExplained || explained.has(at)}/></div>`}`
}

/** A guess of a row's height in pixels, before it is rendered. */
export function estimated(row, form, width) {
  const isNarrow = width < 720
  const columns = Math.max(20, Math.floor((isNarrow ? width - 40 : (width - 150) / 2) / 7.3))
  const linesOf = text => (form === 'short' ? Math.min(3, Math.ceil(text.length / columns)) : Math.ceil(Math.min(text.length, SHOWN) / (form === 'indented' ? 15 : columns)))
  const engine = row.engine ? linesOf(row.engine.text) : 1
  const client = row.client.reduce((sum, frame) => sum + linesOf(frame.text), 0) || 1
  const lines = isNarrow ? engine + client + 3 : Math.max(2, engine, client)
  return lines * 17 + 9 + (row.changes.length ? 22 : 0)
}
