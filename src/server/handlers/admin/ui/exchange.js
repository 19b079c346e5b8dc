// One exchange: the engine's frames, the client's frames, and the changes between them.

import { html, useCallback, useEffect, useMemo, useRef, useState } from './vendor/htm-preact.js'
import { capturePath, captureUrl, read } from './api.js'
import { Commands, Requests, Rules } from './bodies.js'
import { bytes, clock, count, date, duration, place, plural } from './format.js'
import { cells, estimated, FORMS, Prepared, shownIn } from './frame-row.js'
import { useKeys } from './keys.js'
import { List } from './list.js'
import { Player, usePlayer } from './player.js'
import { End } from './requests.js'
import { nextHit, useSearch } from './search.js'
import { pausesOf, rowAt, Timeline, timesOf } from './timeline.js'
import { name } from './visible.js'

const TABS = [['frames', 'Frames'], ['rules', 'Rules'], ['requests', 'Requests'], ['replay', 'Replay']]

function useExchange(id, number) {
  const [state, setState] = useState({ exchange: null, failure: null })
  const [tries, setTries] = useState(0)
  useEffect(() => {
    const controller = new AbortController()
    setState({ exchange: null, failure: null })
    read(capturePath(id, number, '/frames'), controller.signal)
      .then(exchange => controller.signal.aborted || setState({ exchange, failure: null }))
      .catch(failure => controller.signal.aborted || setState({ exchange: null, failure }))
    return () => controller.abort('left')
  }, [id, number, tries])
  return { ...state, again: () => setTries(tries + 1) }
}

function Missing({ id, failure, again }) {
  return html`<main class="exchange"><p><a href="#/">← Overview</a></p><h1 class="hidden">Exchange</h1>
    <div class="notice bad" role="alert"><p><strong>The exchange ${name(id)} cannot be shown.</strong> <span class="said">${name(failure.message)}</span></p>
    ${failure.status === 404 && html`<p>A request that still runs has no exchange yet, and the oldest exchanges are forgotten when the memory for them is full.</p>`}
    <button type="button" onClick=${again}>Try again</button></div></main>`
}

function Head({ exchange }) {
  const { id, summary } = exchange
  const facts = [
    ['model', name(summary.model)],
    ['key', name(summary.key)],
    ['upstream', name(place(summary))],
    ['began', html`<span title=${date(summary.began)}>${clock(summary.began)}</span>`],
    ['took', duration(summary.total_ms)],
    ['attempts', count(summary.attempts)],
    ['from the engine', bytes(summary.engine_bytes)],
    ['to the client', bytes(summary.client_bytes)],
  ]
  return html`<header class="exchange-head"><div class="title"><a href="#/" title="Esc">← Overview</a>
      <h1><code>${name(summary.method)} ${name(summary.path)}</code></h1><span class="end-words"><${End} row=${summary}/></span>
      <a class="button" href=${captureUrl(summary)} download title="d">Download tar</a></div>
    <dl class="facts"><div><dt>id</dt><dd><code>${name(id)}</code></dd></div>${facts.map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    ${summary.is_cut || exchange.is_cut ? html`<p class="notice warn">The exchange was too long for <code>exchange_bytes</code> in <code>[capture]</code>, or for this page. The rest is missing.</p>` : null}
    ${!exchange.is_explained && html`<p class="notice">The changes are not explained: ${name(exchange.why_not)}</p>`}</header>`
}

function Tabs({ tab, onTab }) {
  const pressed = event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (!step) return
    event.preventDefault()
    const at = (TABS.findIndex(([id]) => id === tab) + step + TABS.length) % TABS.length
    onTab(TABS[at][0])
    event.currentTarget.children[at].focus()
  }
  return html`<div class="tabs" role="tablist" aria-label="Parts of the exchange" onKeyDown=${pressed}>${TABS.map(([id, label], at) => html`<button type="button" role="tab" id="tab-${id}"
    aria-selected=${tab === id ? 'true' : 'false'} aria-controls="tabpanel" tabindex=${tab === id ? 0 : -1} title=${at + 1} onClick=${() => onTab(id)}>${label}</button>`)}</div>`
}

function SearchField({ field, query, search, at, onQuery, onStep, onLeave }) {
  const pressed = event => {
    if (event.key === 'Enter') onStep(event.shiftKey ? -1 : 1)
    else if (event.key === 'Escape') query ? onQuery('') : onLeave()
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const told = !query ? '' : search.total === 0 ? (search.isOver ? 'no hits' : 'searching …')
    : `${at >= 0 ? `${count(at + 1)} of ` : ''}${count(search.total)}${search.isOver ? '' : ' …'}`
  return html`<span class="search"><label><span class="hidden">Search both sides</span><input type="search" ref=${field} value=${query} placeholder="Search both sides" spellcheck="false"
      autocomplete="off" onInput=${event => onQuery(event.target.value)} onKeyDown=${pressed}/></label>
    <button type="button" disabled=${search.hits.length === 0} onClick=${() => onStep(-1)} aria-label="Previous hit" title="N">↑</button>
    <button type="button" disabled=${search.hits.length === 0} onClick=${() => onStep(1)} aria-label="Next hit" title="n">↓</button>
    <span class="dim hits" role="status">${told}</span></span>`
}

/** Rows that are shown: all, or those with a change, of these the ones that the player has come to. */
function useOrder(rows, times, onlyChanged, position) {
  const order = useMemo(() => (onlyChanged ? rows.flatMap((row, at) => (row.changes.length ? [at] : [])) : null), [rows, onlyChanged])
  const reached = position === null ? rows.length : times.length && times[0] > position ? 0 : rowAt(times, position) + 1
  const reachedOf = order === null ? reached : lower(order, reached)
  return {
    count: reachedOf,
    capacity: order === null ? rows.length : order.length,
    rowOf: at => (order === null ? at : order[at]),
    placeOf: row => (order === null ? row : order[lower(order, row)] === row ? lower(order, row) : -1),
    version: onlyChanged,
  }
}

/** The first place whose value is at least so large. */
function lower(sorted, value) {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (sorted[middle] < value) low = middle + 1
    else high = middle
  }
  return low
}

function withToggled(set, value) {
  const next = new Set(set)
  if (!next.delete(value)) next.add(value)
  return next
}

function Frames({ exchange, jump, isShown }) {
  const { rows, rules } = exchange
  const [form, setForm] = useState(rows.length === 1 ? 'indented' : 'short')
  const [query, setQuery] = useState('')
  const [hitAt, setHitAt] = useState(-1)
  const [selected, setSelected] = useState(-1)
  const [onlyChanged, setOnlyChanged] = useState(false)
  const [explained, setExplained] = useState(new Set())
  const [areExplained, setAllExplained] = useState(false)
  const [limits, setLimits] = useState(new Map())
  const list = useRef(null)
  const field = useRef(null)
  const shownRange = useRef([0, -1])
  const seen = useRef(null)
  const wanted = useRef(null)
  const pending = useRef(0)
  const moments = useMemo(() => timesOf(rows), [rows])
  const pauses = useMemo(() => pausesOf(moments.times), [moments])
  const changed = useMemo(() => rows.flatMap((row, at) => (row.changes.length ? [at] : [])), [rows])
  const prepared = useMemo(() => new Prepared(rows, form), [rows, form])
  const player = usePlayer(moments.end)
  const shown = useCallback(frame => shownIn(form, frame), [form])
  const search = useSearch(rows, shown, query)
  const order = useOrder(rows, moments.times, onlyChanged, player.position)
  const hit = search.hits[hitAt] ?? null
  const look = text => {
    setQuery(text)
    setHitAt(-1)
    pending.current = 0
  }

  const goTo = (row, part = null) => {
    player.stop()
    setSelected(row)
    if (onlyChanged && !rows[row].changes.length) setOnlyChanged(false)
    wanted.current = [row, 'center', part]
  }
  useEffect(() => {
    if (!wanted.current) return
    const [row, how, part] = wanted.current
    wanted.current = null
    if (order.placeOf(row) >= 0) list.current.scrollTo(order.placeOf(row), how, part)
  })
  useEffect(() => jump !== null && goTo(jump.row), [jump])
  const change = next => {
    // The row that one looks at stays where it is seen, though all heights change.
    const [first, last] = shownRange.current
    const at = selected < 0 ? -1 : order.placeOf(selected)
    wanted.current = [at >= first && at <= last ? selected : order.rowOf(first) ?? 0, 'start']
    setForm(next)
    // The indented text has other hits.
    setHitAt(-1)
  }
  const stepHit = step => {
    // Enter may come before the first hit is found.
    pending.current = search.hits.length ? 0 : step
    const next = nextHit(search.hits, hitAt, Math.max(0, selected), step)
    setHitAt(next)
    if (next >= 0) goTo(search.hits[next][0], 'mark.current')
  }
  useEffect(() => {
    if (pending.current && search.hits.length) stepHit(pending.current)
  }, [search.hits, search.total])
  const stepChange = step => {
    const from = selected < 0 ? order.rowOf(shownRange.current[0]) - step : selected
    const at = lower(changed, from)
    const next = step < 0 ? at - 1 : changed[at] === from ? at + 1 : at
    if (changed[next] !== undefined) goTo(changed[next])
  }
  const seek = at => {
    if (player.position !== null) player.setPosition(at)
    const row = rowAt(moments.times, at)
    setSelected(row)
    if (player.position === null) list.current.scrollTo(order.placeOf(row) >= 0 ? order.placeOf(row) : 0, 'start')
  }
  const select = at => setSelected(order.rowOf(at))
  const move = step => { list.current.focus(); list.current.move(step) }
  const focusList = () => list.current.focus()
  useKeys(isShown ? {
    '/': () => { field.current.focus(); field.current.select() },
    j: () => move(1), k: () => move(-1),
    n: () => stepHit(1), N: () => stepHit(-1),
    c: () => stepChange(1), C: () => stepChange(-1),
    e: () => selected >= 0 && setExplained(withToggled(explained, selected)),
    E: () => setAllExplained(!areExplained),
    v: () => change(FORMS[(FORMS.indexOf(form) + 1) % FORMS.length]),
    'g g': () => { focusList(); list.current.select(0) },
    G: () => { focusList(); list.current.select(order.count - 1) },
    ' ': player.toggle,
  } : {})
  const noteRange = (first, last) => {
    const [from, to] = shownRange.current
    if (from === first && to === last) return
    shownRange.current = [first, last]
    requestAnimationFrame(() => seen.current?.([order.rowOf(shownRange.current[0]) ?? 0, order.rowOf(shownRange.current[1]) ?? -1]))
  }
  const view = { rows, prepared, moments, pauses, search, hit, explained, areExplained, rules, limits, onMore: (row, limit) => setLimits(new Map(limits).set(row, limit)) }
  const head = html`<div role="columnheader" class="when">Row, time</div><div role="columnheader" class="side">Engine sent</div><div role="columnheader" class="side">Client got</div>`
  return html`<div class="frames">
    <div class="toolbar"><${SearchField} field=${field} query=${query} search=${search} at=${hitAt} onQuery=${look} onStep=${stepHit} onLeave=${focusList}/>
      <label>Frames <select value=${form} title="v" onChange=${event => change(event.target.value)}>${FORMS.map(one => html`<option value=${one} selected=${one === form}>${one}</option>`)}</select></label>
      <label><input type="checkbox" checked=${onlyChanged} onChange=${event => setOnlyChanged(event.target.checked)}/> Only changed</label>
      <label title="E"><input type="checkbox" checked=${areExplained} onChange=${event => setAllExplained(event.target.checked)}/> Explain</label>
      <${Player} player=${player} end=${moments.end}/>
      <span class="dim total">${plural(rows.length, 'row')}, ${count(changed.length)} changed${pauses.size ? `, ${plural(pauses.size, 'pause')}` : ''}</span></div>
    <${Timeline} moments=${moments} pauses=${pauses} seen=${seen} position=${player.position} onSeek=${seek}/>
    <${List} ref=${list} id="frame" class="frame-list" label="Frames" count=${order.count} capacity=${order.capacity} version="${form} ${order.version} ${areExplained}" estimate=${at => estimated(rows[order.rowOf(at)], form, innerWidth)}
      head=${head} row=${at => cells(view, order.rowOf(at))} rowClass=${at => (rows[order.rowOf(at)].changes.length ? 'changed' : '')} follows=${player.isPlaying}
      selected=${selected < 0 ? -1 : order.placeOf(selected)} onSelect=${select} onOpen=${at => setExplained(withToggled(explained, order.rowOf(at)))} onRange=${noteRange}
      empty=${rows.length === 0 ? 'Neither side sent anything.' : player.position !== null ? 'Nothing was sent yet.' : 'No row was changed.'}/></div>`
}

export function Exchange({ id, number }) {
  const { exchange, failure, again } = useExchange(id, number)
  const [tab, setTab] = useState('frames')
  const [jump, setJump] = useState(null)
  const leave = () => { location.hash = '#/' }
  // A download that fails, since the exchange was forgotten, does not leave the page.
  const keys = { Escape: leave, d: () => document.querySelector('.exchange-head a[download]')?.click() }
  TABS.forEach(([name], at) => { keys[at + 1] = () => setTab(name) })
  useKeys(keys)
  useEffect(() => { document.title = `${id} · samewire inspector` }, [id])
  if (failure) return html`<${Missing} id=${id} failure=${failure} again=${again}/>`
  if (!exchange) return html`<main class="exchange"><p><a href="#/">← Overview</a></p><h1 class="hidden">Exchange</h1><p class="empty" role="status">Reading the exchange …</p></main>`
  const jumpTo = row => {
    setTab('frames')
    setJump({ row })
  }
  return html`<main class="exchange"><${Head} exchange=${exchange}/><${Tabs} tab=${tab} onTab=${setTab}/>
    <div id="tabpanel" role="tabpanel" aria-labelledby="tab-${tab}" class="tabpanel">
      <div class="tab" hidden=${tab !== 'frames'}><${Frames} exchange=${exchange} jump=${jump} isShown=${tab === 'frames'}/></div>
      ${tab === 'rules' && html`<${Rules} exchange=${exchange} onJump=${jumpTo}/>`}
      ${tab === 'requests' && html`<${Requests} exchange=${exchange}/>`}
      ${tab === 'replay' && html`<${Commands} exchange=${exchange}/>`}</div></main>`
}
