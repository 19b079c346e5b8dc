// Captures: the switch, and the list of captured exchanges.

import { html, useMemo, useRef, useState } from './vendor/htm-preact.js'
import { captureUrl, curlOf, exchangeHash, quoted, send } from './api.js'
import { bytes, clock, count, duration, longer, place, plural } from './format.js'
import { Dialog } from './keys.js'
import { List } from './list.js'
import { End, isFailure, matcher } from './requests.js'
import { name, plain } from './visible.js'

const CONFIG = '[capture]\nenabled = true'

/** Text to copy, with a button for it. */
export function Copy({ label, text }) {
  const [told, setTold] = useState('')
  const source = useRef(null)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      setTold('Copied')
    } catch {
      getSelection().selectAllChildren(source.current)
      setTold(document.execCommand?.('copy') ? 'Copied' : 'Selected')
    }
    setTimeout(() => setTold(''), 2_000)
  }
  return html`<div class="copy"><pre ref=${source} tabindex="0" role="region" aria-label=${label}>${plain(text)}</pre>
    <button type="button" onClick=${copy} aria-label="Copy: ${label}">Copy</button><span class="told" role="status">${told}</span></div>`
}

/** A command that samewire did not take from this page, and how to give it in a terminal. */
function Refused({ refused, onClose }) {
  if (!refused) return null
  const { failure, method, path, body } = refused
  return html`<div class="notice bad" role="alert">
    <p><strong>${failure.status === 403 ? 'samewire takes no commands from this page.' : 'That did not work.'}</strong> <span class="said">${name(failure.message)}</span></p>
    <p>In a terminal:</p><${Copy} label="the command for a terminal" text=${curlOf(method, path, body)}/>
    <button type="button" onClick=${onClose}>Dismiss</button></div>`
}

function criteriaText({ key, model, only_failures: onlyFailures }) {
  const words = [onlyFailures ? 'requests that fail' : 'all requests']
  if (key) words.push(html` with the key ${name(key)}`)
  if (model) words.push(html` for the model ${name(model)}`)
  return words
}

function State({ capturing, status, used }) {
  const limits = status?.capture
  const room = html`<span class="dim">${limits ? `${count(limits.held)} of ${plural(limits.max_exchanges, 'exchange')}, ` : ''}${bytes(used)}${limits ? ` of ${bytes(limits.max_bytes)}` : ''} in memory</span>`
  if (!capturing) return html`<span class="switch off"><i aria-hidden="true"></i><strong>Off</strong></span> ${room}`
  const left = capturing.seconds_left
  return html`<span class="switch on"><i aria-hidden="true"></i><strong>On</strong>: ${criteriaText(capturing)}, ${left == null ? 'until it is stopped' : `for ${longer(left)} more`}</span> ${room}`
}

function StartForm({ onStart, onClose }) {
  const [time, setTime] = useState('10m')
  const [key, setKey] = useState('')
  const [model, setModel] = useState('')
  const [onlyFailures, setOnlyFailures] = useState(false)
  const submit = event => {
    event.preventDefault()
    const body = { only_failures: onlyFailures }
    if (time) body.time = time
    if (key.trim()) body.key = key.trim()
    if (model.trim()) body.model = model.trim()
    onStart(body)
  }
  return html`<form class="start" onSubmit=${submit} onKeyDown=${event => event.key === 'Escape' && (event.stopPropagation(), onClose())}>
    <label>For <select value=${time} onChange=${event => setTime(event.target.value)}>
      ${[['1m', '1 minute'], ['10m', '10 minutes'], ['1h', '1 hour'], ['', 'ever, until it is stopped']].map(([value, text]) => html`<option value=${value} selected=${value === time}>${text}</option>`)}</select></label>
    <label>Key <input value=${key} placeholder="every key" autocomplete="off" spellcheck="false" onInput=${event => setKey(event.target.value)}/></label>
    <label>Model <input value=${model} placeholder="every model" autocomplete="off" spellcheck="false" onInput=${event => setModel(event.target.value)}/></label>
    <label><input type="checkbox" checked=${onlyFailures} onChange=${event => setOnlyFailures(event.target.checked)}/> Only failures</label>
    <button class="primary">Start</button><button type="button" onClick=${onClose}>Cancel</button>
    <p class="notice warn">Captured exchanges have the content of prompts and answers. They stay in samewire’s memory, and this page shows them.</p>
  </form>`
}

function ForgetDialog({ held, onForget, onClose }) {
  return html`<${Dialog} label="Forget captured exchanges" onClose=${onClose}>
    <h2>Forget ${plural(held, 'captured exchange')}?</h2><p>They are removed from samewire’s memory. This cannot be undone.</p>
    <p class="buttons"><button type="button" class="danger" onClick=${event => { onForget(); event.target.closest('dialog').close() }}>Forget all</button>
      <button type="button" autofocus onClick=${event => event.target.closest('dialog').close()}>Keep them</button></p>
  <//>`
}

const COLUMNS = [
  ['began', 'Began', row => clock(row.began)],
  ['model', 'Model', row => name(row.model)],
  ['key', 'Key', row => name(row.key)],
  ['upstream', 'Upstream', row => name(place(row))],
  ['end', 'End', row => html`<${End} row=${row}/>`],
  ['time', 'Time', row => duration(row.total_ms)],
  ['size', 'Answer', row => bytes(row.client_bytes)],
  ['rules', 'Rules', row => html`<span title=${Object.keys(row.rules).join(', ')}>${count(Object.keys(row.rules).length)}</span>`],
  ['link', 'Exchange', row => html`<a href=${exchangeHash(row)} tabindex="-1" aria-label="open the exchange ${plain(row.id)}">open</a>${' '}
    <a href=${captureUrl(row)} download tabindex="-1" aria-label="tar of the exchange ${plain(row.id)}">tar</a>`],
]
const HEAD = COLUMNS.map(([kind, label]) => html`<div role="columnheader" class="cell ${kind}">${label}</div>`)
const cells = row => COLUMNS.map(([kind, , cell]) => html`<div role="gridcell" class="cell ${kind}">${cell(row)}</div>`)

function HowTo({ failure }) {
  const address = location.host
  return html`<div class="howto">
    ${failure?.status === 404 ? html`<p>This samewire does not capture exchanges.</p>` : html`<p>Nothing was captured. An exchange is kept only where somebody asked for it:</p>`}
    <p>from now on, by the button above, or</p><${Copy} label="the command that starts capturing" text=${`curl -X POST ${quoted(`${address}/captures/start`)} -d '{"time": "10m"}'`}/>
    <p>from the start of the process, in the configuration:</p><${Copy} label="the configuration" text=${CONFIG}/>
    <p>a single request, by the header <code>x-samewire-capture: 1</code>, with a key that has <code>capture = true</code>.</p></div>`
}

/** The last filter, which stays when an exchange was opened in between. */
const kept = { filter: '', onlyFailures: false }

function Exchanges({ rows: all }) {
  const [filter, setFilter] = useState(kept.filter)
  const [onlyFailures, setOnlyFailures] = useState(kept.onlyFailures)
  const [selected, setSelected] = useState(null)
  Object.assign(kept, { filter, onlyFailures })
  const rows = useMemo(() => all.filter(matcher(filter)).filter(row => !onlyFailures || isFailure(row)), [all, filter, onlyFailures])
  const at = rows.findIndex(row => row.number === selected)
  return html`<div class="filters"><label class="search"><span class="hidden">Filter captured exchanges</span>
      <input type="search" value=${filter} placeholder="Filter: model:llama status:503" spellcheck="false" autocomplete="off" onInput=${event => setFilter(event.target.value)}/></label>
      <label><input type="checkbox" checked=${onlyFailures} onChange=${event => setOnlyFailures(event.target.checked)}/> Only failures</label>
      <span class="dim" role="status">${plural(rows.length, 'exchange')}</span></div>
    <${List} id="capture" class="captures" label="Captured exchanges" isUniform count=${rows.length} estimate=${() => 26} head=${HEAD} row=${row => cells(rows[row])}
      rowKey=${row => rows[row].number} selected=${at} onSelect=${row => setSelected(rows[row].number)}
      onOpen=${row => { location.hash = exchangeHash(rows[row]) }} empty="No captured exchange matches the filter."/>`
}

export function Captures({ captures, failure, status, refresh }) {
  const [isStarting, setStarting] = useState(false)
  const [isForgetting, setForgetting] = useState(false)
  const [refused, setRefused] = useState(null)
  const command = async (method, path, body) => {
    setRefused(null)
    try {
      await send(method, path, body)
      setStarting(false)
    } catch (failure) {
      setRefused({ failure, method, path, body })
    }
    refresh()
  }
  const rows = captures?.exchanges ?? []
  const capturing = captures?.capturing
  return html`<section id="captures" class="panel" aria-labelledby="captures-title" tabindex="-1">
    <header><h2 id="captures-title">Captures</h2>
      ${captures && html`<span class="capture-state"><${State} capturing=${capturing} status=${status} used=${captures.used_bytes}/></span>
      <span class="buttons"><button type="button" aria-expanded=${isStarting ? 'true' : 'false'} onClick=${() => setStarting(!isStarting)}>${capturing ? 'Change …' : 'Start …'}</button>
        <button type="button" disabled=${!capturing} onClick=${() => command('POST', '/captures/stop')}>Stop</button>
        <button type="button" disabled=${rows.length === 0} onClick=${() => setForgetting(true)}>Forget all …</button></span>`}</header>
    ${isStarting && html`<${StartForm} onStart=${body => command('POST', '/captures/start', body)} onClose=${() => setStarting(false)}/>`}
    <${Refused} refused=${refused} onClose=${() => setRefused(null)}/>
    ${(capturing || rows.length > 0) && html`<p class="notice warn"><strong>Captured exchanges have the content of prompts and answers.</strong> Treat this page and each download as confidential.</p>`}
    ${rows.length > 0 ? html`<${Exchanges} rows=${rows}/>`
      : captures && capturing ? html`<p class="empty">Waiting for the first exchange that matches.</p>`
      : captures || failure?.status === 404 ? html`<${HowTo} failure=${failure}/>`
      : html`<p class="empty">Waiting for samewire …</p>`}
    ${isForgetting && html`<${ForgetDialog} held=${rows.length} onForget=${() => command('DELETE', '/captures')} onClose=${() => setForgetting(false)}/>`}
  </section>`
}
