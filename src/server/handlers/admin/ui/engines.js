// Engines: the table of upstreams.

import { html } from './vendor/htm-preact.js'
import { count, NONE } from './format.js'
import { name } from './visible.js'

const percent = part => (part == null ? NONE : `${(part * 100).toFixed(part < 0.1 ? 1 : 0)} %`)

function Cache({ part }) {
  if (part == null) return html`<span class="dim">${NONE}</span>`
  return html`<meter min="0" max="1" high="0.9" value=${part} aria-label="use of the cache"></meter> ${percent(part)}`
}

function Engine({ upstream }) {
  const { name: title, engine, version, front_end: frontEnd, ready, why, circuit, in_flight: inFlight } = upstream
  return html`<tr>
    <th scope="row">${name(title)}</th>
    <td>${name(engine)} <span class="dim">${version ? name(version) : 'version unknown'}</span>${frontEnd && html`<span class="dim"> behind ${name(frontEnd)}</span>`}</td>
    <td class="state-of ${ready ? 'good' : 'bad'}">${ready ? 'ready' : 'not ready'}</td>
    <td class=${circuit === 'open' ? 'bad' : ''} title=${circuit === 'open' ? 'gets no requests for now' : 'gets requests'}>${name(circuit)}</td>
    <td class="number">${count(inFlight)}</td>
    <td class="number">${count(upstream.engine_running)}</td>
    <td class="number">${count(upstream.engine_waiting)}</td>
    <td class="number"><${Cache} part=${upstream.cache_usage}/></td>
  </tr>${why && html`<tr class="why"><td colspan="8" class="bad">${name(why)}</td></tr>`}${(upstream.templates ?? []).map(({ model, says, from }) => html`<tr class="template" key=${model}>
    <td colspan="8" class="dim">The chat template of ${name(model)} ${name(says)} (${name(from)}).</td></tr>`)}`
}

export function Engines({ status }) {
  const upstreams = status?.upstreams ?? []
  return html`<section id="engines" class="panel" aria-labelledby="engines-title" tabindex="-1">
    <header><h2 id="engines-title">Engines</h2></header>
    ${upstreams.length === 0
      ? html`<p class="empty">${status ? 'No upstreams are configured.' : 'Waiting for samewire …'}</p>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Table of engines"><table>
        <thead><tr><th scope="col">Upstream</th><th scope="col">Engine</th><th scope="col">State</th><th scope="col">Circuit</th>
          <th scope="col" class="number" title="requests that samewire has sent there and that run">In flight</th>
          <th scope="col" class="number" title="as the engine says">Running</th><th scope="col" class="number" title="as the engine says">Waiting</th>
          <th scope="col" class="number" title="as the engine says">Cache</th></tr></thead>
        <tbody>${upstreams.map(upstream => html`<${Engine} key=${upstream.name} upstream=${upstream}/>`)}</tbody></table></div>`}
  </section>`
}
