// One row of an exchange: the engine's frame, the client's frames, and the changes between them.

import { html } from './vendor/htm-preact.js'
import { bytes, duration } from './format.js'
import { differences, indented, repeated, trimmed } from './frames.js'
import { Marked } from './marked.js'
import { name } from './visible.js'

/** Characters of a frame that are shown before somebody asks for all of them. */
export const SHOWN = 12_000

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

/** Texts of a row as they are shown in a form, with their marks. */
function prepared(rows, at, form) {
  const row = rows[at]
  const textOf = frame => (form === 'indented' ? indented(trimmed(frame.text)) : trimmed(frame.text))
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

function Frame({ text, marks, expression, current, isWhole, onWhole }) {
  const isLong = text.length > SHOWN && !isWhole
  const shown = isLong ? text.slice(0, SHOWN) : text
  return html`<bdi dir="ltr" class="frame"><${Marked} text=${shown} marks=${isLong ? marks.filter(mark => mark.start < SHOWN) : marks} expression=${expression} current=${current}/></bdi>
    ${isLong && html`<button type="button" class="whole" onClick=${onWhole}>Show all ${bytes(text.length)}</button>`}`
}

/** Distance of the client's frame from the engine's, or its own time where the engine has none. */
function Sent({ frame, engine }) {
  const text = engine ? `+${duration(Math.max(0, frame.at_ms - engine.at_ms))}` : duration(frame.at_ms)
  return html`<span class="sent dim" title="sent to the client ${engine ? 'after the engine’s frame' : 'since the request arrived'}">${text}</span>`
}

function Changes({ changes, rules, isExplained }) {
  if (changes.length === 0) return null
  return html`<ul class="changes">${changes.map(({ rule, text, times }) => html`<li>
    ${rule ? html`<code class="rule" title=${rules[rule] ?? ''}>${name(rule)}</code>` : html`<span class="rule none" title="no counted rule">–</span>`}${' '}
    <span class="what">${name(text)}</span>${times > 1 && html` <span class="dim">${times} times</span>`}
    ${isExplained && rule && html`<span class="words">${rules[rule] ? name(rules[rule]) : 'samewire has no words for this rule.'}</span>`}</li>`)}</ul>`
}

/** The cells of a row, for the list. `view` has what all rows share. */
export function cells(view, at) {
  const { rows, prepared, moments, pauses, search, hit, explained, areExplained, rules, whole, onWhole } = view
  const row = rows[at]
  const { engine, clients, marks } = prepared.of(at)
  const time = moments.times[at]
  const step = at ? time - moments.times[at - 1] : null
  const pause = pauses.get(at)
  const currentOf = part => (hit && hit[0] === at && hit[1] === part ? hit[2] : -1)
  const shared = { expression: search.expression, isWhole: whole.has(at), onWhole: () => onWhole(at) }
  return html`${pause !== undefined && html`<div class="gap" role="gridcell">${at ? `pause of ${duration(pause)}` : `the first frame came after ${duration(pause)}`}</div>`}
    <div role="rowheader" class="when"><span><span class="dim">${at + 1}</span> <span title="since the request arrived">${duration(time)}</span></span>
      ${step !== null && html`<span class="dim" title="since the row before">+${duration(step)}</span>`}</div>
    <div role="gridcell" class="side engine" data-side="engine">${engine === null
      ? html`<span class="nothing">no frame of the engine</span>`
      : html`<${Frame} text=${engine} marks=${marks.engine} current=${currentOf(0)} ...${shared}/>`}</div>
    <div role="gridcell" class="side client" data-side="client">${clients.length === 0
      ? html`<span class="nothing">nothing was sent</span>`
      : clients.map((text, index) => html`<div class="one"><${Sent} frame=${row.client[index]} engine=${row.engine}/><${Frame} text=${text} marks=${marks.clients[index]} current=${currentOf(index + 1)} ...${shared}/></div>`)}</div>
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
