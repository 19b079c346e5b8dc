// The inspector: the bar, the routes and the overview.

import { html, render, useEffect, useRef, useState } from './vendor/htm-preact.js'
import { useFeed } from './api.js'
import { Captures } from './captures.js'
import { Drift, noteDrift } from './drift.js'
import { Engines } from './engines.js'
import { Exchange } from './exchange.js'
import { clock, longer } from './format.js'
import { KeysDialog, useKeys } from './keys.js'
import { Plots } from './plots.js'
import { Requests } from './requests.js'
import { ThemeButton, useTheme } from './theme.js'
import { name } from './visible.js'

const SECTIONS = [['requests', 'Requests', 'r'], ['engines', 'Engines', 'e'], ['plots', 'Plots', 'p'], ['drift', 'Drift', 'd'], ['captures', 'Captures', 'c']]

/** Route of an address: one exchange, by its id and perhaps its number, a section of the overview, or the overview. */
export function routeOf(hash) {
  const [, id, number = null] = /^#\/exchange\/(.+?)(?:\/(\d+))?$/.exec(hash) ?? []
  if (id) {
    try {
      return { exchange: decodeURIComponent(id), number }
    } catch {
      return { exchange: id, number }
    }
  }
  const section = SECTIONS.map(([id]) => id).find(id => hash === `#/${id}`)
  return { section: section ?? null }
}

function useRoute() {
  const [route, setRoute] = useState(() => routeOf(location.hash))
  useEffect(() => {
    const changed = () => setRoute(routeOf(location.hash))
    addEventListener('hashchange', changed)
    return () => removeEventListener('hashchange', changed)
  }, [])
  return route
}

/** Banner while samewire does not answer, with the time of the data on the page. */
function Gone({ feed }) {
  if (!feed.failure) return null
  const what = feed.failure.status === 0 ? 'samewire does not answer' : feed.failure.message
  return html`<div class="gone" role="alert"><strong>${name(what)}</strong>${feed.at ? html` The data below is from ${clock(feed.at / 1e3)}.` : ''} This page keeps trying.</div>`
}

function Ready({ status, failure }) {
  if (failure) return html`<span class="pill bad">no answer</span>`
  if (!status) return html`<span class="pill">…</span>`
  return status.ready ? html`<span class="pill good">ready</span>` : html`<span class="pill bad">not ready</span>`
}

function Bar({ feed, isOverview, theme, onTheme, onKeys }) {
  const status = feed.data
  return html`<header class="bar"><a class="brand" href="#/">samewire</a><${Ready} status=${status} failure=${feed.failure}/>
    ${status?.capture.is_on && html`<a class="pill warn" href="#/captures" title="Requests are captured, with their content">capturing</a>`}
    <nav aria-label="Sections">${SECTIONS.map(([id, label, key]) => html`<a href="#/${id}" title="g ${key}" aria-current=${isOverview === id ? 'true' : null}>${label}</a>`)}</nav>
    <span class="spring"></span>
    ${status && html`<span class="facts dim"><code title="base URL for clients">${name(status.base_url)}</code><span title="commit ${status.commit}">${name(status.version)}</span><span title="since its start">up ${longer(status.uptime_seconds)}</span></span>`}
    <button type="button" class="quiet" onClick=${onKeys} title="Keys (?)" aria-label="Keys">?</button><${ThemeButton} theme=${theme} onTurn=${onTheme}/></header>`
}

function Overview({ section, status, statusFeed }) {
  const requests = useFeed('/requests', 1)
  const history = useFeed('/history', 5)
  const captures = useFeed('/captures', 3)
  useEffect(() => {
    const element = section && document.getElementById(section)
    if (!element) return
    element.scrollIntoView({ block: 'start' })
    element.focus({ preventScroll: true })
  }, [section])
  const refresh = () => {
    captures.refresh()
    statusFeed.refresh()
  }
  const isStale = statusFeed.failure !== null || requests.failure?.status === 0
  return html`<main class="overview ${isStale ? 'stale' : ''}"><h1 class="hidden">samewire inspector</h1>
    ${status && !status.ready && html`<div class="notice bad wide" role="status"><strong>Not ready.</strong> <span class="said">${name(status.why)}</span></div>`}
    <${Requests} requests=${requests.data} failure=${requests.failure} history=${history.data} status=${status}/>
    <${Engines} status=${status}/><${Plots} history=${history.data}/><${Drift} status=${status}/>
    <${Captures} captures=${captures.data} failure=${captures.failure} status=${status} refresh=${refresh}/></main>`
}

function App() {
  const route = useRoute()
  const feed = useFeed('/status', 2)
  const [theme, turnTheme] = useTheme()
  const [hasKeys, setKeys] = useState(false)
  const first = useRef(null)
  const status = feed.data
  if (status) noteDrift(status)
  first.current ??= status?.commit ?? null
  const isReplaced = first.current !== null && status && status.commit !== first.current
  const keys = { '?': () => setKeys(true), t: turnTheme, Escape: () => document.activeElement?.blur?.() }
  for (const [id, , key] of SECTIONS)
    keys[`g ${key}`] = () => {
      // The same address again would not scroll there.
      if (location.hash === `#/${id}`) document.getElementById(id)?.scrollIntoView({ block: 'start' })
      location.hash = `#/${id}`
    }
  useKeys(keys)
  useEffect(() => {
    if (!route.exchange) document.title = `${status ? `${status.requests_running} running · ` : ''}samewire inspector`
  }, [status, route])
  return html`<${Bar} feed=${feed} isOverview=${route.exchange ? null : route.section ?? 'requests'} theme=${theme} onTheme=${turnTheme} onKeys=${() => setKeys(true)}/>
    <${Gone} feed=${feed}/>
    ${isReplaced && html`<div class="gone" role="status">Another build of samewire answers now. <button type="button" onClick=${() => location.reload()}>Reload this page</button></div>`}
    ${route.exchange ? html`<${Exchange} key=${`${route.exchange} ${route.number}`} id=${route.exchange} number=${route.number}/>` : html`<${Overview} section=${route.section} status=${status} statusFeed=${feed}/>`}
    ${hasKeys && html`<${KeysDialog} onClose=${() => setKeys(false)}/>`}`
}

render(html`<${App}/>`, document.getElementById('app'))
