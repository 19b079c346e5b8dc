// The admin listener's HTTP API: reads, polls and commands.

import { useCallback, useEffect, useRef, useState } from './vendor/htm-preact.js'

/** Time limit for an answer that is polled, in milliseconds. */
const LIMIT = 8_000

/** Failure of a request. `status` is 0 where no answer came. */
export class Failure extends Error {
  constructor(status, text) {
    super(text)
    this.status = status
  }
}

async function ask(path, options) {
  let answer
  try {
    answer = await fetch(path, { cache: 'no-store', ...options })
  } catch (error) {
    if (options?.signal?.aborted && options.signal.reason === 'left') throw error
    throw new Failure(0, 'samewire does not answer')
  }
  if (!answer.ok) throw new Failure(answer.status, (await answer.text()).trim() || `status ${answer.status}`)
  return answer
}

export async function read(path, signal) {
  const answer = await ask(path, { signal })
  try {
    return await answer.json()
  } catch {
    throw new Failure(signal?.aborted ? 0 : answer.status, `the answer of ${path} is not JSON`)
  }
}

export async function send(method, path, body) {
  const options = { method }
  if (body !== undefined) {
    options.body = JSON.stringify(body)
    options.headers = { 'content-type': 'application/json' }
  }
  return (await ask(path, options)).text()
}

/** Text as one word for a POSIX shell. */
export function quoted(text) {
  return /^[\w./:@=+,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}

export const urlOf = path => `${location.origin}${path}`

/** Path of an exchange. A client may send one id with several requests, which the number tells apart; without it the newest is meant. */
export const capturePath = (id, number, end) => `/captures/${encodeURIComponent(id)}${end}${number == null ? '' : `?number=${number}`}`

export const captureUrl = ({ id, number }) => capturePath(id, number, '.tar')

/** Address of the view of an exchange. */
export const exchangeHash = ({ id, number }) => `#/exchange/${encodeURIComponent(id)}/${number}`

/** The same request for a terminal. */
export function curlOf(method, path, body) {
  const data = body === undefined ? '' : ` -d ${quoted(JSON.stringify(body))}`
  return `curl -X ${method} ${quoted(urlOf(path))}${data}`
}

/**
 * Reads a path again and again while the page is visible, one request at a time.
 *
 * Returns the newest data, the failure since then, the time of the data, and a function that reads at once.
 */
export function useFeed(path, seconds) {
  const [state, setState] = useState({ data: null, failure: null, at: 0 })
  const again = useRef(() => {})
  useEffect(() => {
    let timer, controller
    let isBusy = false
    let isOver = false
    const tick = async () => {
      clearTimeout(timer)
      if (isBusy || isOver || document.hidden) return
      isBusy = true
      controller = new AbortController()
      const limit = setTimeout(() => controller.abort('late'), LIMIT)
      try {
        const data = await read(path, controller.signal)
        if (!isOver) setState({ data, failure: null, at: Date.now() })
      } catch (failure) {
        if (!isOver) setState(old => ({ ...old, failure }))
      }
      clearTimeout(limit)
      isBusy = false
      if (!isOver) timer = setTimeout(tick, seconds * 1e3)
    }
    again.current = tick
    document.addEventListener('visibilitychange', tick)
    tick()
    return () => {
      isOver = true
      clearTimeout(timer)
      controller?.abort('left')
      document.removeEventListener('visibilitychange', tick)
    }
  }, [path, seconds])
  return { ...state, refresh: useCallback(() => again.current(), []) }
}
