// The other parts of an exchange: rules that acted, request bodies, attempts, and commands that replay it.

import { html, useMemo, useState } from './vendor/htm-preact.js'
import { captureUrl, quoted, urlOf } from './api.js'
import { Copy } from './captures.js'
import { count, plural, sizeOf } from './format.js'
import { differences, indented } from './frames.js'
import { LongText, SHOWN } from './frame-row.js'
import { name, words } from './visible.js'

function Body({ title, text, marks, note }) {
  const [limit, setLimit] = useState(SHOWN)
  return html`<section class="body"><h3>${title} <span class="dim">${text === null ? '' : note}</span></h3>
    ${text === null
      ? html`<p class="empty">There is none.</p>`
      : html`<pre tabindex="0" role="region" aria-label=${title}><${LongText} text=${text} marks=${marks} limit=${limit} onMore=${setLimit}/></pre>`}
  </section>`
}

function Attempts({ attempts }) {
  if (attempts.length === 0) return html`<p class="empty">samewire answered by itself. No engine was asked.</p>`
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Table of attempts"><table><thead><tr><th scope="col">Attempt</th><th scope="col">Upstream</th><th scope="col">Engine</th><th scope="col">Status</th><th scope="col">Answer</th></tr></thead>
    <tbody>${attempts.map((one, at) => html`<tr><th scope="row">${at + 1}</th><td>${name(one.upstream)}</td><td>${name(one.engine)}</td>
      <td class=${one.status >= 400 || one.status == null ? 'bad' : 'good'}>${one.status ?? 'no answer'}</td><td>${one.is_complete ? 'complete' : 'broke off'}</td></tr>`)}</tbody></table></div>`
}

export function Requests({ exchange }) {
  const { client, engine } = exchange.request
  const texts = useMemo(() => ({ client: client === null ? null : indented(client), engine: engine === null ? null : indented(engine) }), [exchange])
  const marks = useMemo(() => {
    // Here the client's body is the original, and the engine's is the changed one.
    const { engine: gone, clients: [added] } = texts.client === null || texts.engine === null
      ? { engine: [], clients: [[]] } : differences(texts.client, [texts.engine])
    return { client: gone, engine: added }
  }, [texts])
  return html`<div class="part"><h2>Attempts</h2><${Attempts} attempts=${exchange.attempts}/>
    <h2>Request bodies</h2><div class="bodies">
      <${Body} title="From the client" text=${texts.client} marks=${marks.client} note=${client === null ? '' : sizeOf(client)}/>
      <${Body} title="To the engine" text=${texts.engine} marks=${marks.engine} note=${engine === null ? '' : `${sizeOf(engine)}, last attempt`}/></div></div>`
}

/** Rows and times of each rule, with the first row. What a rule has counted once, such as another id, may show in many rows. */
export function rulesOf(rows) {
  const rules = new Map()
  rows.forEach((row, at) => {
    for (const { rule, times } of row.changes) {
      const key = rule ?? ''
      const known = rules.get(key)
      if (known) {
        known.rows += 1
        known.times += times
      } else rules.set(key, { rule, rows: 1, times, first: at })
    }
  })
  return [...rules.values()].sort((a, b) => b.times - a.times)
}

export function Rules({ exchange, onJump }) {
  const counted = exchange.summary.rules
  const rules = useMemo(() => rulesOf(exchange.rows), [exchange])
  const shown = new Set(rules.map(row => row.rule))
  const others = Object.entries(counted).filter(([rule]) => !shown.has(rule))
  if (rules.length === 0 && others.length === 0) return html`<div class="part"><p class="empty">${exchange.is_explained ? 'No rule acted: the client got what the engine sent.' : 'The changes of this exchange are not explained.'}</p></div>`
  return html`<div class="part"><div class="scroll" tabindex="0" role="region" aria-label="Table of rules"><table><thead><tr><th scope="col">Rule</th><th scope="col" class="number">Times</th><th scope="col" class="number">Rows</th><th scope="col">First</th><th scope="col">Description</th></tr></thead>
    <tbody>${rules.map(({ rule, rows, times, first }) => html`<tr><th scope="row">${rule ? html`<code>${name(rule)}</code>` : 'no counted rule'}</th><td class="number">${count(counted[rule] ?? times)}</td><td class="number">${count(rows)}</td>
      <td><button type="button" class="link" onClick=${() => onJump(first)}>row ${count(first + 1)}</button></td><td class="words">${words(exchange.rules[rule] ?? (rule ? '' : 'A difference that no counter shows.'))}</td></tr>`)}
    ${others.map(([rule, times]) => html`<tr><th scope="row"><code>${name(rule)}</code></th><td class="number">${count(times)}</td><td class="number">–</td><td>–</td><td class="words">${words(exchange.rules[rule] ?? '')}</td></tr>`)}</tbody></table></div></div>`
}

/** Name of the folder in the archive of an exchange, as samewire makes it. */
export function folderOf({ engine, id }) {
  return `${engine ?? 'none'}-${Array.from(id, one => (/[A-Za-z0-9-]/.test(one) ? one : '_')).join('')}`
}

/** Routes whose answers `samewire rewrite` reads. */
const REWRITTEN = /\/(completions|responses|messages)(\?|$)/

/** The commands that work with the exchange in a terminal: each has its purpose. */
export function commandsOf({ id, summary, attempts }) {
  const folder = quoted(folderOf({ ...summary, id }))
  const commands = [['Fetch the exchange as a folder', `curl -sS ${quoted(urlOf(captureUrl(summary)))} | tar x`]]
  const at = attempts.findLastIndex(one => one.status !== null)
  if (at < 0) return commands
  // The last attempt may have no answer. Those before it have folders of their own.
  const last = attempts[at]
  const answered = at === attempts.length - 1 ? folder : `${folder}/attempt-${at + 1}`
  commands.push(
    ['Serve it as an engine, one event each 30 ms', `samewire replay ${answered} --listen 127.0.0.1:8000 --pace 30`],
    ['Put samewire in front of that engine', 'samewire serve --upstream http://127.0.0.1:8000'],
  )
  if (REWRITTEN.test(summary.path)) {
    const status = last.status >= 400 ? ` --status ${last.status}` : ''
    const eof = last.is_complete ? '' : ' --eof reset'
    const engine = last.engine ? ` --engine ${quoted(last.engine)}` : ''
    commands.push(['Rewrite the engine’s answer again, and list the changes', `samewire rewrite --explain${engine}${status}${eof} --request ${folder}/client/request.json < ${answered}/${last.file}`])
  }
  return commands
}

export function Commands({ exchange }) {
  return html`<div class="part"><p class="notice warn">The folder has the prompt and the answer. Look through it before you send it to anybody.</p>
    ${commandsOf(exchange).map(([what, command]) => html`<h2>${what}</h2><${Copy} label=${what} text=${command}/>`)}
    <p class="dim">${plural(exchange.attempts.length, 'attempt')}. The folder has the last one; the ones before it are in <code>attempt-1/</code> and so on, the client’s side in <code>client/</code>.</p></div>`
}
