// Search through both sides of an exchange, in slices, so that the page stays responsive.

import { useEffect, useMemo, useState } from './vendor/htm-preact.js'

/** Time of a slice, in milliseconds. */
const SLICE = 12
/** Hits that are remembered; more are only counted. */
const KEPT = 200_000

/** The expression for a text that is searched for, apart from upper and lower case; in JSON also apart from the blanks between its parts. */
export function expressionOf(query) {
  if (!query) return null
  const escaped = query.replace(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`)
  // One run of blanks at most, and none at the ends: two in a row would take time by the square of the blanks.
  const spaced = escaped.replace(/\s*(\\[{}[\]]|[,:])\s*/g, String.raw`\s*$1\s*`).replace(/(\\s\*)+/g, String.raw`\s*`).replace(/^\\s\*|\\s\*$/g, '')
  return new RegExp(query.includes('"') ? spaced : escaped, 'gi')
}

/** Calls `found(part, hits)` for each text with hits; part 0 is the engine's frame, the client's are counted from 1. */
function searchRow(row, shown, expression, found) {
  const look = (frame, part) => {
    const hits = frame ? shown(frame).match(expression)?.length ?? 0 : 0
    if (hits) found(part, hits)
  }
  look(row.engine, 0)
  row.client.forEach((frame, at) => look(frame, at + 1))
}

/**
 * Hits of a query in the texts of frames as they are shown: `hits` as [row, part, number within the part], their total, and `isOver`
 * once all rows were searched. `shown` gives the text of a frame.
 */
export function useSearch(rows, shown, query) {
  const expression = useMemo(() => expressionOf(query), [query])
  const [state, setState] = useState({ expression: null, shown: null, hits: [], total: 0, isOver: true })
  useEffect(() => {
    if (!expression) return
    const hits = []
    let total = 0
    let at = 0
    let timer
    const slice = () => {
      const until = performance.now() + SLICE
      while (at < rows.length && performance.now() < until) {
        const row = at
        searchRow(rows[row], shown, expression, (part, more) => {
          total += more
          for (let number = 0; number < more && hits.length < KEPT; number += 1) hits.push([row, part, number])
        })
        at += 1
      }
      const isOver = at >= rows.length
      setState({ expression, shown, hits, total, isOver })
      if (!isOver) timer = setTimeout(slice, 4)
    }
    timer = setTimeout(slice, 120)
    return () => clearTimeout(timer)
  }, [rows, shown, expression])
  // Until the first slice is done, the state is that of the query, or the form, before.
  return state.expression === expression && state.shown === shown ? state : { expression, hits: [], total: 0, isOver: expression === null }
}

/** The first hit at or after a row, or before it; the numbers wrap around. */
export function nextHit(hits, current, row, step) {
  if (hits.length === 0) return -1
  if (current >= 0) return (current + step + hits.length) % hits.length
  const after = hits.findIndex(([at]) => at >= row)
  if (step > 0) return Math.max(0, after)
  return (after <= 0 ? hits.length : after) - 1
}
