// Time axis of an exchange: a bar with all frames of both sides, on which pauses show.

import { html, useEffect, useMemo, useRef, useState } from './vendor/htm-preact.js'
import { duration } from './format.js'

const HEIGHT = 54
const LANE = 16
const TOP = 2
const EDGE = 8
/** A pause is at least so long, in milliseconds, and so many times the usual distance of frames. */
const LEAST = 150
const TIMES = 8
/** Pauses that are drawn; the longest ones. */
const MOST = 40

/** Times of all rows, never falling, and of all frames of either side. */
export function timesOf(rows) {
  const times = new Float64Array(rows.length)
  const engine = []
  const client = []
  let last = 0
  rows.forEach((row, at) => {
    if (row.engine) engine.push(row.engine.at_ms)
    for (const frame of row.client) client.push(frame.at_ms)
    last = Math.max(last, row.engine?.at_ms ?? row.client[0]?.at_ms ?? last)
    times[at] = last
  })
  const end = client.reduce((most, at) => Math.max(most, at), last)
  return { times, engine, client, end }
}

/** Rows before which nothing came for long, with the length of the pause. */
export function pausesOf(times) {
  const steps = Array.from(times, (at, row) => at - (row ? times[row - 1] : 0))
  const sorted = Float64Array.from(steps.slice(1)).sort()
  const usual = sorted[sorted.length >> 1] ?? 0
  const least = Math.max(LEAST, usual * TIMES)
  const pauses = new Map()
  steps.forEach((length, row) => length >= least && pauses.set(row, length))
  return pauses
}

/** The last row at a time or before it. */
export function rowAt(times, at) {
  let low = 0
  let high = times.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (times[middle] <= at) low = middle + 1
    else high = middle
  }
  return Math.max(0, low - 1)
}

/** A path with one stroke for each pixel that has frames, higher where there are more. */
function strokes(moments, x, width, base, up) {
  const bins = new Map()
  let most = 1
  for (const at of moments) {
    const bin = Math.min(width, Math.round(x(at)))
    const number = (bins.get(bin) ?? 0) + 1
    bins.set(bin, number)
    most = Math.max(most, number)
  }
  const height = number => (most === 1 ? LANE * 0.75 : LANE * (0.35 + (0.65 * Math.log(number + 1)) / Math.log(most + 1)))
  return Array.from(bins, ([bin, number]) => `M${bin + 0.5} ${base}v${(up ? -height(number) : height(number)).toFixed(1)}`).join('')
}

function Marks({ end, x, width }) {
  const power = 10 ** Math.floor(Math.log10(end / Math.max(1, width / 90)))
  const step = [1, 2, 5, 10].map(one => one * power).find(one => (width * one) / end >= 70) ?? end
  const marks = []
  for (let at = 0; at <= end && marks.length < 40; at += step) marks.push(at)
  return html`<g class="axes">${marks.map(at => html`<line class="tick" x1=${x(at)} x2=${x(at)} y1=${HEIGHT - 18} y2=${HEIGHT - 14}/>
    <text x=${x(at)} y=${HEIGHT - 4} text-anchor=${at === 0 ? 'start' : x(at) > width - 30 ? 'end' : 'middle'}>${at === 0 ? '0' : duration(at)}</text>`)}</g>`
}

/** `seen` becomes a function that takes the first and last row in view, so that scrolling renders this bar alone. */
export function Timeline({ moments, pauses, seen, position, onSeek }) {
  const { times, engine, client, end } = moments
  const [width, setWidth] = useState(600)
  const [range, setRange] = useState([0, -1])
  const bar = useRef(null)
  seen.current = setRange
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(120, Math.floor(entry.contentRect.width))))
    observer.observe(bar.current)
    return () => observer.disconnect()
  }, [])
  const span = Math.max(end, 0.001)
  const x = at => EDGE + (at / span) * (width - 2 * EDGE)
  const middle = TOP + LANE + 1
  const drawn = useMemo(() => ({
    engine: strokes(engine, x, width, middle - 1, true),
    client: strokes(client, x, width, middle + 1, false),
    pauses: [...pauses].sort((a, b) => b[1] - a[1]).slice(0, MOST),
  }), [moments, pauses, width])
  const at = position ?? times[Math.max(0, range[0])] ?? 0
  const seek = event => {
    const from = bar.current.getBoundingClientRect().left
    onSeek(Math.max(0, Math.min(span, ((event.clientX - from - EDGE) / (width - 2 * EDGE)) * span)))
  }
  const pressed = event => {
    const step = span / 100
    const to = { ArrowLeft: at - step, ArrowDown: at - step, ArrowRight: at + step, ArrowUp: at + step, PageDown: at - 10 * step, PageUp: at + 10 * step, Home: 0, End: span }[event.key]
    if (to === undefined) return
    event.preventDefault()
    event.stopPropagation()
    onSeek(Math.max(0, Math.min(span, to)))
  }
  const [first, last] = range
  const from = x(times[Math.max(0, first)] ?? 0)
  const wide = Math.max(2, x(times[Math.max(0, last)] ?? 0) - from)
  return html`<div ref=${bar} class="timeline" tabindex="0" role="slider" aria-label="time within the exchange" aria-valuemin="0" aria-valuemax=${Math.round(span)}
      aria-valuenow=${Math.round(Math.min(span, at))} aria-valuetext="${duration(at)} of ${duration(span)}" onPointerDown=${event => event.button === 0 && seek(event)}
      onPointerMove=${event => event.buttons === 1 && seek(event)} onKeyDown=${pressed}>
    <svg width=${width} height=${HEIGHT} aria-hidden="true">
      ${drawn.pauses.map(([row, length]) => {
        const start = x(times[row] - length)
        const wide = x(times[row]) - start
        return html`<g class="pause"><rect x=${start} width=${wide} y=${TOP} height=${LANE * 2 + 2}/>
          ${wide > 52 && html`<text x=${start + wide / 2} y=${middle + 4} text-anchor="middle">${duration(length)}</text>`}</g>`
      })}
      <path class="engine" d=${drawn.engine}/><path class="client" d=${drawn.client}/>
      <${Marks} end=${span} x=${x} width=${width - 2 * EDGE}/>
      ${first <= last && html`<rect class="seen" x=${from - 1} width=${wide + 2} y=${TOP - 1} height=${LANE * 2 + 4}/>`}
      ${position !== null && html`<line class="cursor" x1=${x(position)} x2=${x(position)} y1="0" y2=${HEIGHT - 14}/>`}
    </svg></div>`
}
