// Mock of the admin listener: the page's files with the listener's headers, and the inspector's API with made-up data.
//
// `state` decides the answers; tests change it while the page is open. Each answer is computed when it is requested.
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import * as data from './data.mjs'

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../src/server/handlers/admin/ui')

/** The same policy as samewire's. */
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const TYPES = { '.html': 'text/html; charset=utf-8', '.css': 'text/css; charset=utf-8', '.js': 'text/javascript; charset=utf-8' }

/** Files of the page may be requested by these names alone. */
async function file(name, response) {
  const relative = path.normalize(name || 'index.html')
  if (relative.startsWith('..')) return response.writeHead(404).end()
  try {
    const content = await readFile(path.join(root, relative))
    response.setHeader('content-type', TYPES[path.extname(relative)] ?? 'text/plain; charset=utf-8')
    response.setHeader('content-security-policy', POLICY)
    response.setHeader('x-content-type-options', 'nosniff')
    response.setHeader('referrer-policy', 'no-referrer')
    response.setHeader('cache-control', 'no-cache')
    response.end(content)
  } catch {
    response.writeHead(404).end('not found\n')
  }
}

function json(response, value) {
  response.setHeader('content-type', 'application/json')
  response.setHeader('cache-control', 'no-store')
  response.end(typeof value === 'string' ? value : JSON.stringify(value))
}

async function bodyOf(request) {
  let text = ''
  for await (const part of request) text += part
  return text
}

/** Commands change the state as samewire does. */
async function command(state, request, pathname, response) {
  const body = await bodyOf(request)
  state.commands.push([request.method, pathname, body && JSON.parse(body)])
  if (state.refusal) return response.writeHead(403, { 'content-type': 'text/plain; charset=utf-8' }).end(state.refusal)
  if (pathname === '/captures/start') {
    const { key = null, model = null, only_failures = false, time } = JSON.parse(body || '{}')
    state.capturing = { key, model, only_failures, seconds_left: time ? 600 : null }
    return json(response, { capturing: state.capturing })
  }
  if (pathname === '/captures/stop') {
    state.capturing = null
    return json(response, { capturing: null })
  }
  const forgotten = state.exchanges.size
  state.exchanges.clear()
  return json(response, { forgotten })
}

function route(state, pathname, number, response) {
  if (pathname === '/status') return json(response, data.status(state))
  if (pathname === '/requests') return json(response, state.requests())
  if (pathname === '/history') return json(response, state.history())
  if (pathname === '/captures') {
    if (state.isWithoutCaptures) return response.writeHead(404).end('not found\n')
    return json(response, data.captures(state))
  }
  const [, id, rest] = /^\/captures\/([^/]+?)(?:\.tar)?(\/frames)?$/.exec(pathname) ?? []
  const name = id && decodeURIComponent(id)
  const exchange = name && (state.exchanges.get(`${name} ${number}`) ?? state.exchanges.get(name))
  if (!exchange) return response.writeHead(404).end(id ? 'there is no captured exchange of this id\n' : 'not found\n')
  if (rest) return json(response, exchange.text ??= JSON.stringify(exchange.frames()))
  response.writeHead(200, { 'content-type': 'application/x-tar', 'content-disposition': 'attachment; filename="exchange.tar"' }).end('tar')
}

/** Starts the mock; returns its address, its state, and a function that stops it. */
export async function startMock() {
  const state = data.usual()
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://mock')
    if (state.isGone) return request.socket.destroy()
    if (pathname === '/ui') return response.writeHead(308, { location: '/ui/' }).end()
    if (pathname.startsWith('/ui/')) return file(pathname.slice('/ui/'.length), response)
    state.asked.push(pathname)
    if (request.method !== 'GET') return command(state, request, pathname, response)
    return route(state, pathname, searchParams.get('number'), response)
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  const stop = () => {
    server.closeAllConnections()
    server.close()
  }
  return { url: `http://127.0.0.1:${server.address().port}`, state, stop }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await startMock()
  console.log(`${url}/ui/`)
}
