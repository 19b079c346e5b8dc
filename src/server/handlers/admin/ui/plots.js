// Plots over time, drawn as SVG: axes, gaps where there is no data, a read-out, and a table with the same figures.

import { html, useEffect, useMemo, useRef, useState } from './vendor/htm-preact.js'
import { clock, count, duration, figure, NONE } from './format.js'

const HEIGHT = 150
const LEFT = 52
const RIGHT = 10
const TOP = 8
const BOTTOM = 20

/** Time that the axis covers, in seconds. */
const SPAN = 1_800

const PLOTS = [
  {
    title: 'Time to first token',
    unit: duration,
    series: [
      { label: 'p95', kind: 'second', of: point => point.first_token.p95_ms },
      { label: 'p50', kind: 'first', of: point => point.first_token.p50_ms },
    ],
  },
  {
    title: 'Time between tokens',
    unit: duration,
    series: [
      { label: 'p95', kind: 'second', of: point => point.inter_token.p95_ms },
      { label: 'p50', kind: 'first', of: point => point.inter_token.p50_ms },
    ],
  },
  {
    title: 'Requests and errors',
    unit: value => (value == null ? NONE : `${figure(value)}/s`),
    series: [
      { label: 'requests', kind: 'first', of: (point, step) => point.requests / step },
      { label: 'errors', kind: 'wrong', of: (point, step) => point.errors / step },
    ],
  },
]

/** A round number that is at least as large, and how many steps lead to it. */
export function scale(most) {
  if (!(most > 0)) return { top: 1, steps: 2 }
  const power = 10 ** Math.floor(Math.log10(most))
  const [round, steps] = [[1, 2], [2, 2], [3, 3], [4, 4], [5, 5], [6, 3], [8, 4], [10, 2]].find(([round]) => round * power >= most * 0.999)
  return { top: round * power, steps }
}

/** Lines of a series, broken where a point has no value or is missing. */
export function pieces(points, step, of) {
  const found = []
  let last = null
  for (const point of points) {
    const value = of(point, step)
    if (value == null) {
      last = null
    } else {
      if (last === null || point.at - last.at > step * 1.6) found.push([])
      found.at(-1).push([point.at, value])
      last = point
    }
  }
  return found
}

function useWidth() {
  const [width, setWidth] = useState(400)
  const element = useRef(null)
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(200, Math.floor(entry.contentRect.width))))
    observer.observe(element.current)
    return () => observer.disconnect()
  }, [])
  return [element, width]
}

function Axes({ x, y, top, steps, unit, end, width }) {
  const heights = Array.from({ length: steps + 1 }, (_, at) => (top * at) / steps)
  const minutes = width < 320 ? 600 : 300
  const times = []
  for (let at = Math.ceil((end - SPAN) / minutes) * minutes; at <= end; at += minutes) times.push(at)
  return html`<g class="axes">
    ${heights.map(value => html`<line x1=${LEFT} x2=${width - RIGHT} y1=${y(value)} y2=${y(value)}/>
      <text x=${LEFT - 6} y=${y(value) + 4} text-anchor="end">${value === 0 ? '0' : unit(value)}</text>`)}
    ${times.map(at => html`<line class="tick" x1=${x(at)} x2=${x(at)} y1=${HEIGHT - BOTTOM} y2=${HEIGHT - BOTTOM + 4}/>
      <text x=${Math.max(LEFT, Math.min(width - RIGHT - 14, x(at)))} y=${HEIGHT - 4} text-anchor="middle">${clock(at, false)}</text>`)}
  </g>`
}

function Line({ found, x, y, kind }) {
  const path = found.filter(piece => piece.length > 1)
    .map(piece => piece.map(([at, value], index) => `${index ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('')).join('')
  const lone = found.filter(piece => piece.length === 1).map(([point]) => point)
  return html`<g class="series ${kind}"><path d=${path}/>
    ${lone.map(([at, value]) => html`<circle cx=${x(at)} cy=${y(value)} r="1.6"/>`)}</g>`
}

function Plot({ plot, points, step, end, cursor, onCursor }) {
  const [element, width] = useWidth()
  const { title, unit, series } = plot
  const lines = useMemo(() => series.map(one => ({ ...one, found: pieces(points, step, one.of) })), [points])
  const { top, steps } = scale(Math.max(0, ...lines.flatMap(line => line.found.flat().map(([, value]) => value))))
  const x = at => LEFT + ((at - (end - SPAN)) / SPAN) * (width - LEFT - RIGHT)
  const y = value => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP)
  const last = points.length - 1
  const chosen = cursor === null ? null : points[Math.min(cursor, last)]
  const shown = chosen ?? points.findLast(point => series.some(one => one.of(point, step) != null))
  const values = series.map(one => `${one.label} ${shown ? unit(one.of(shown, step)) : NONE}`)
  const nearest = event => {
    const at = end - SPAN + ((event.clientX - element.current.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT)) * SPAN
    let best = 0
    points.forEach((point, index) => { if (Math.abs(point.at - at) < Math.abs(points[best].at - at)) best = index })
    return best
  }
  const pressed = event => {
    const from = cursor ?? last
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, PageUp: from - 12, PageDown: from + 12, Home: 0, End: last }[event.key]
    if (event.key === 'Escape' && cursor !== null) onCursor(null)
    else if (to === undefined || last < 0) return
    else onCursor(Math.max(0, Math.min(last, to)))
    event.preventDefault()
    event.stopPropagation()
  }
  return html`<figure class="plot">
    <figcaption><h3>${title}</h3><span class="legend">${series.map((one, index) => html`<span class=${one.kind}><i aria-hidden="true"></i>${values[index]}</span>`)}
      <span class="dim at">${shown ? clock(shown.at) : ''}</span></span></figcaption>
    <div ref=${element} class="canvas" tabindex="0" role="slider" aria-label="${title}, by time" aria-valuemin="0" aria-valuemax=${Math.max(0, last)}
      aria-valuenow=${Math.max(0, Math.min(cursor ?? last, last))} aria-valuetext=${shown ? `${clock(shown.at)}: ${values.join(', ')}` : 'no data'}
      onPointerMove=${event => points.length && onCursor(nearest(event))} onPointerLeave=${() => onCursor(null)} onKeyDown=${pressed} onBlur=${() => onCursor(null)}>
      <svg width=${width} height=${HEIGHT} aria-hidden="true">
        <${Axes} x=${x} y=${y} top=${top} steps=${steps} unit=${unit} end=${end} width=${width}/>
        ${chosen && html`<line class="cursor" x1=${x(chosen.at)} x2=${x(chosen.at)} y1=${TOP} y2=${HEIGHT - BOTTOM}/>`}
        ${lines.map(line => html`<${Line} found=${line.found} x=${x} y=${y} kind=${line.kind}/>`)}
        ${chosen && series.map(one => one.of(chosen, step) != null && html`<circle class="dot ${one.kind}" cx=${x(chosen.at)} cy=${y(one.of(chosen, step))} r="3"/>`)}
        ${points.length === 0 && html`<text class="none" x=${(LEFT + width) / 2} y=${HEIGHT / 2} text-anchor="middle">no data yet</text>`}
      </svg></div>
  </figure>`
}

/** The points of each minute in one row: sums of counts, and the worst of the quantiles. */
export function minutesOf(points) {
  const rows = new Map()
  for (const point of points) {
    const minute = Math.floor(point.at / 60) * 60
    if (!rows.has(minute)) rows.set(minute, { minute, requests: 0, errors: 0, tokens: 0, values: [null, null, null, null] })
    const row = rows.get(minute)
    row.requests += point.requests
    row.errors += point.errors
    row.tokens += point.tokens
    const values = [point.first_token.p50_ms, point.first_token.p95_ms, point.inter_token.p50_ms, point.inter_token.p95_ms]
    row.values = row.values.map((old, at) => (values[at] == null ? old : Math.max(old ?? 0, values[at])))
  }
  return [...rows.values()].reverse()
}

function Table({ points }) {
  const [isOpen, setOpen] = useState(false)
  const heads = ['Minute', 'Requests', 'Errors', 'Tokens', 'First token p50', 'First token p95', 'Between tokens p50', 'Between tokens p95']
  return html`<details class="more" onToggle=${event => setOpen(event.target.open)}><summary>The plots as a table</summary>
    ${isOpen && html`<div class="scroll tall" tabindex="0" role="region" aria-label="Table of the plots"><table>
      <thead><tr>${heads.map((head, at) => html`<th scope="col" class=${at ? 'number' : ''}>${head}</th>`)}</tr></thead>
      <tbody>${minutesOf(points).map(row => html`<tr key=${row.minute}><th scope="row">${clock(row.minute, false)}</th>
        ${[row.requests, row.errors, row.tokens].map(value => html`<td class="number">${count(value)}</td>`)}
        ${row.values.map(value => html`<td class="number">${duration(value)}</td>`)}</tr>`)}</tbody></table>
      <p class="dim">Quantiles are the highest of each minute’s.</p></div>`}
  </details>`
}

export function Plots({ history }) {
  const [cursor, setCursor] = useState(null)
  const points = history?.points ?? []
  const step = history?.step_seconds ?? 5
  const end = points.at(-1)?.at ?? Math.floor(Date.now() / 1e3)
  return html`<section id="plots" class="panel" aria-labelledby="plots-title" tabindex="-1">
    <header><h2 id="plots-title">Plots</h2><span class="dim">the last 30 minutes, all engines together</span></header>
    <div class="plots">${PLOTS.map(plot => html`<${Plot} key=${plot.title} plot=${plot} points=${points} step=${step} end=${end} cursor=${cursor} onCursor=${setCursor}/>`)}</div>
    <${Table} points=${points}/>
  </section>`
}
