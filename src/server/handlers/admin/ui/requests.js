// Live requests: those that run first, then those that have ended.

import { html, useMemo, useRef, useState } from './vendor/htm-preact.js'
import { exchangeHash } from './api.js'
import { bytes, clock, count, date, duration, figure, NONE, place, plural } from './format.js'
import { useKeys } from './keys.js'
import { List } from './list.js'
import { name, plain } from './visible.js'

const SIDES = { client: 'by the client', upstream: 'by the engine', proxy: 'by samewire' }
const ENDS = { complete: 'complete', error: 'error', client_closed: 'client left', draining: 'cut off by the shutdown' }

/** Fields that a filter may name, such as `model:llama`. */
const FIELDS = {
  model: row => row.model,
  key: row => row.key,
  engine: row => `${row.engine ?? ''} ${row.upstream ?? ''}`,
  upstream: row => row.upstream,
  state: row => row.state,
  end: row => row.end,
  side: row => row.side,
  status: row => row.status,
  code: row => row.code,
  path: row => row.path,
  id: row => row.id,
}

/** A test for rows: every word must occur in some field, or in the one that it names. */
export function matcher(filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean).map(word => {
    const at = word.indexOf(':')
    const field = at > 0 ? FIELDS[word.slice(0, at)] : undefined
    return field ? { fields: [field], text: word.slice(at + 1) } : { fields: Object.values(FIELDS), text: word }
  })
  return row => words.every(({ fields, text }) => fields.some(field => String(field(row) ?? '').toLowerCase().includes(text)))
}

export const isFailure = row => row.end != null && row.end !== 'complete'

/** How a request ended, in words: its end, who ended it, the status and the code. */
export function End({ row }) {
  if (row.end == null) return html`<span class="dim">${NONE}</span>`
  const words = [row.end !== 'client_closed' && SIDES[row.side], row.status, row.code && name(row.code)].filter(Boolean)
  return html`<span class=${isFailure(row) ? 'bad' : 'good'}>${ENDS[row.end] ?? name(row.end)}</span>
    ${isFailure(row) ? words.map(word => html`<span class="dim"> · </span>${word}`) : row.status && html`<span class="dim"> · ${row.status}</span>`}`
}

const STATES = { waiting: 'waiting', streaming: 'streaming', ended: 'ended' }

function State({ row }) {
  const kind = row.state === 'ended' ? (isFailure(row) ? 'failed' : 'done') : row.state
  return html`<span class="state ${kind}"><i aria-hidden="true"></i>${STATES[row.state] ?? name(row.state)}</span>`
}

function Captured({ row }) {
  if (!row.is_captured) return html`<span class="dim">${NONE}</span>`
  if (row.state !== 'ended') return html`<span class="dim">recording</span>`
  return html`<a href=${exchangeHash(row)} tabindex="-1" aria-label="open the exchange ${plain(row.id)}">open</a>`
}

const COLUMNS = [
  ['state', 'State', row => html`<${State} row=${row}/>`],
  ['model', 'Model', row => name(row.model)],
  ['key', 'Key', row => name(row.key)],
  ['upstream', 'Upstream', row => name(place(row))],
  ['first', 'First token', row => duration(row.first_token_ms)],
  ['tokens', 'Tokens', row => count(row.tokens)],
  ['rate', 'Tokens/s', row => figure(row.tokens_per_second)],
  ['time', 'Time', (row, now) => duration(row.total_ms ?? Math.max(0, (now - row.began) * 1e3))],
  ['end', 'End', row => html`<${End} row=${row}/>`],
  ['link', 'Exchange', row => html`<${Captured} row=${row}/>`],
]

/** Cells whose text may be cut off. */
const TITLED = { model: true, key: true, upstream: true }
const cells = (row, now) => COLUMNS.map(([kind, , cell]) => html`<div role="gridcell" class="cell ${kind}" title=${TITLED[kind] ? plain(row[kind]) : null}>${cell(row, now)}</div>`)
const HEAD = COLUMNS.map(([kind, label]) => html`<div role="columnheader" class="cell ${kind}">${label}</div>`)

/** Details of the selected row, for which the table has no room. */
function Details({ row }) {
  if (!row) return html`<p class="details dim">Select a row with <kbd>j</kbd> and <kbd>k</kbd>, or by a click, to see the rest of it.</p>`
  return html`<p class="details">
    <code>${name(row.id)}</code> <span title=${date(row.began)}>${clock(row.began)}</span> ${' '}
    <code>${name(row.method)} ${name(row.path)}</code>
    <span class="dim"> · ${plural(row.attempts, 'attempt')} · ${bytes(row.bytes)} to the client${row.is_captured ? '' : ' · not captured'}</span>
    ${isFailure(row) && html` <${End} row=${row}/>`}</p>`
}

/** A figure of the strip above the table. */
const Figure = ({ label, value, kind = '' }) => html`<div class="figure ${kind}"><dt>${label}</dt><dd>${value}</dd></div>`

/** Rates of the last minute, and the newest time to first token. */
function recent(history) {
  const points = history?.points?.slice(-12) ?? []
  const sum = field => points.reduce((all, point) => all + point[field], 0)
  const seconds = points.length * (history?.step_seconds ?? 5)
  const last = points.findLast(point => point.first_token.p95_ms != null)
  if (seconds === 0) return {}
  return { requests: (sum('requests') / seconds) * 60, errors: (sum('errors') / seconds) * 60, tokens: sum('tokens') / seconds, p95: last?.first_token.p95_ms }
}

function Figures({ requests, history }) {
  const running = requests?.running ?? []
  const waiting = running.filter(row => row.state === 'waiting').length
  const { requests: each, errors, tokens, p95 } = useMemo(() => recent(history), [history])
  return html`<dl class="figures">
    <${Figure} label="running" value=${requests ? count(running.length) : NONE}/>
    <${Figure} label="waiting" value=${requests ? count(waiting) : NONE}/>
    <${Figure} label="requests/min" value=${figure(each)}/>
    <${Figure} label="errors/min" value=${figure(errors)} kind=${errors > 0 ? 'bad' : ''}/>
    <${Figure} label="tokens/s" value=${figure(tokens)}/>
    <${Figure} label="first token p95" value=${duration(p95)}/>
  </dl>`
}

export function Requests({ requests, failure, history, status }) {
  const [filter, setFilter] = useState('')
  const [selected, setSelected] = useState(null)
  const list = useRef(null)
  const field = useRef(null)
  const all = useMemo(() => (requests ? [...requests.running, ...requests.ended] : []), [requests])
  const rows = useMemo(() => (filter.trim() ? all.filter(matcher(filter)) : all), [all, filter])
  const at = selected === null ? -1 : rows.findIndex(row => row.number === selected)
  const now = status?.now ?? Date.now() / 1e3
  const open = row => {
    const { is_captured: isCaptured, state } = rows[row]
    if (isCaptured && state === 'ended') location.hash = exchangeHash(rows[row])
  }
  useKeys({
    '/': () => field.current.focus(),
    j: () => { list.current.focus(); list.current.move(1) },
    k: () => { list.current.focus(); list.current.move(-1) },
  })
  const left = event => {
    if (event.key !== 'Escape' && event.key !== 'Enter') return
    event.preventDefault()
    event.stopPropagation()
    if (event.key === 'Escape' && filter) setFilter('')
    else list.current.focus()
  }
  const empty = !requests ? (failure?.status ? name(failure.message) : 'Waiting for samewire …') : filter ? 'No request matches the filter.' : 'No requests yet. They show up here as they come.'
  return html`<section id="requests" class="panel" aria-labelledby="requests-title" tabindex="-1">
    <header><h2 id="requests-title">Requests</h2>
      <${Figures} requests=${requests} history=${history}/>
      <label class="search"><span class="hidden">Filter requests by model, key, engine or state</span>
        <input type="search" ref=${field} value=${filter} placeholder="Filter: llama state:streaming" spellcheck="false" autocomplete="off"
          onInput=${event => setFilter(event.target.value)} onKeyDown=${left}/></label>
      <span class="dim total" role="status">${filter ? `${count(rows.length)} of ${count(all.length)}` : ''}</span></header>
    <${List} ref=${list} id="request" class="requests" label="Requests" isUniform count=${rows.length} estimate=${() => 26}
      head=${HEAD} row=${row => cells(rows[row], now)} rowKey=${row => rows[row].number} rowClass=${row => (rows[row].state === 'ended' ? 'ended' : '')}
      selected=${at} onSelect=${row => setSelected(rows[row].number)} onOpen=${open} empty=${empty}/>
    <${Details} row=${rows[at]}/>
  </section>`
}
