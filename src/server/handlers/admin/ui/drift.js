// Drift meter: the number of times that each rule changed an answer, by engine.

import { html, useRef } from './vendor/htm-preact.js'
import { clock, count, figure, NONE } from './format.js'
import { name, words } from './visible.js'

const idOf = ({ engine, rule }) => `${engine} ${rule}`

/** Counts at the time the page was opened; begun anew when a counter falls, because then samewire was restarted. */
class Baseline {
  constructor() {
    this.begin(null)
  }

  begin(status) {
    this.since = status?.now ?? null
    this.counts = new Map(status?.drift.map(row => [idOf(row), row.count]) ?? [])
  }

  /** Returns the rows with the count since the page was opened, and a rate for each minute. */
  added(status) {
    const isRestarted = status.drift.some(row => row.count < (this.counts.get(idOf(row)) ?? 0))
    if (this.since === null || isRestarted || status.now < this.since) this.begin(status)
    const minutes = (status.now - this.since) / 60
    return status.drift.map(row => {
      const more = row.count - (this.counts.get(idOf(row)) ?? 0)
      return { ...row, more, rate: minutes > 0 ? more / minutes : null }
    })
  }
}

/** Shared by all views, so that leaving the overview does not begin it anew. */
const baseline = new Baseline()

export const noteDrift = status => baseline.added(status)

export function Drift({ status }) {
  const last = useRef([])
  if (status) last.current = baseline.added(status).sort((a, b) => b.count - a.count || idOf(a).localeCompare(idOf(b)))
  const rows = last.current
  const most = Math.max(1, ...rows.map(row => row.count))
  return html`<section id="drift" class="panel" aria-labelledby="drift-title" tabindex="-1">
    <header><h2 id="drift-title">Drift</h2><span class="dim">changes to the engines’ answers, by rule${baseline.since ? `; added since ${clock(baseline.since)}` : ''}</span></header>
    ${rows.length === 0
      ? html`<p class="empty">${status ? 'No answer was changed yet.' : 'Waiting for samewire …'}</p>`
      : html`<div class="scroll tall" tabindex="0" role="region" aria-label="Table of drift"><table>
        <thead><tr><th scope="col">Engine</th><th scope="col">Rule</th><th scope="col" class="number">Count</th><th scope="col" class="number">Added</th>
          <th scope="col" class="number">A minute</th><th scope="col">Description</th></tr></thead>
        <tbody>${rows.map(row => html`<tr key=${idOf(row)}>
          <td>${name(row.engine)}</td><th scope="row"><code>${name(row.rule)}</code></th>
          <td class="number">${count(row.count)}<meter min="0" max=${most} value=${row.count} aria-hidden="true"></meter></td>
          <td class="number">${row.more > 0 ? `+${count(row.more)}` : NONE}</td><td class="number">${row.more > 0 ? figure(row.rate) : NONE}</td>
          <td class="words">${words(row.what)}</td></tr>`)}</tbody></table></div>`}
  </section>`
}
