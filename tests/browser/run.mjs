// Pages in a real Chromium call samewire: those that [cors] lists, those that it does not, and those that attack the admin
// listener. And the pages that samewire itself has: that of the demo, and the start page of the admin listener.
//
//   node run.mjs BINARY CHROMIUM ENGINE MODULES WORK
//
// ENGINE is the scripted engine of tests/clients, MODULES a node_modules, WORK a folder for the configuration and the logs.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const [binary, executablePath, engine, modules, work] = process.argv.slice(2)
const here = path.dirname(fileURLToPath(import.meta.url))
const { chromium } = createRequire(path.join(modules, 'node_modules', 'x.js'))('playwright-core')

const KEY = 'sk-page-right'
const TEXT = 'Grüße, wörld \u{1f30d}\u2028.'
const START = 20_000
const PATIENCE = 90_000

const running = []

/** Starts a process that says on stderr, in JSON lines, where it listens; gives the addresses of its listeners. */
async function start(name, listeners, command, ...args) {
  const log = createWriteStream(path.join(work, `${name}.log`))
  const env = { PATH: process.env.PATH, PYTHONDONTWRITEBYTECODE: '1' }
  const child = spawn(command, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  running.push(child)
  const addresses = {}
  await new Promise((resolve, reject) => {
    const failed = why => reject(new Error(`${name} ${why}; see ${path.join(work, `${name}.log`)}`))
    const timer = setTimeout(() => failed(`does not listen after ${START} ms`), START)
    child.on('error', error => failed(error.message))
    child.on('exit', code => failed(`ended with ${code} while starting`))
    createInterface({ input: child.stderr }).on('line', line => {
      log.write(`${line}\n`)
      if (!line.includes('"listening"')) return
      const entry = JSON.parse(line)
      addresses[entry.listener ?? entry.fields?.listener] = entry.address ?? entry.fields?.address
      if (!listeners.every(listener => addresses[listener])) return
      clearTimeout(timer)
      resolve()
    })
  })
  child.removeAllListeners('exit')
  return addresses
}

/** Serves the page and the client library, under any name that the browser is told to look up here. */
async function servePages() {
  const root = path.join(modules, 'node_modules', 'openai')
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://page')
    const file = pathname.startsWith('/openai/') ? path.join(root, path.normalize(pathname.slice('/openai'.length))) : null
    try {
      const content = await readFile(file ?? path.join(here, 'page.html'))
      response.setHeader('content-type', file ? 'text/javascript; charset=utf-8' : 'text/html; charset=utf-8')
      response.end(content)
    } catch {
      response.writeHead(404).end()
    }
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  return server
}

async function proxy(name, upstream, lines) {
  const file = path.join(work, `${name}.toml`)
  await writeFile(file, lines, { mode: 0o600 })
  const listen = ['--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0']
  const upstreams = ['--upstream', `http://${upstream}`, '--engine', 'vllm']
  return start(name, ['proxy', 'admin'], binary, 'serve', '--config', file, ...upstreams, ...listen)
}

async function get(url) {
  const answer = await fetch(url)
  return [answer.status, await answer.text()]
}

/** How many requests have gone to the engine. */
async function attempts(admin) {
  const [, metrics] = await get(`http://${admin}/metrics`)
  const lines = metrics.split('\n').filter(line => line.startsWith('samewire_upstream_attempts_total{'))
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
}

let passed = 0
async function check(name, test) {
  const started = performance.now()
  try {
    await test()
  } catch (error) {
    error.message = `${name}: ${error.message}`
    throw error
  }
  passed += 1
  console.log(`ok  ${name} (${Math.round(performance.now() - started)} ms)`)
}

async function checks(browser, pages, open, keyed) {
  const context = await browser.newContext()
  // The client library is hundreds of files, which a busy machine takes its time for.
  context.setDefaultTimeout(PATIENCE)
  const at = async origin => {
    const page = await context.newPage()
    await page.goto(`${origin}/`)
    await page.waitForFunction(() => window.OpenAI)
    return page
  }
  const port = pages.address().port
  const listed = await at(`http://app.example:${port}`)
  const foreign = await at(`http://foreign.example:${port}`)

  await check('the official library streams in a listed page', async () => {
    const text = await listed.evaluate(async base => {
      const client = new OpenAI({ baseURL: base, apiKey: 'any', dangerouslyAllowBrowser: true, maxRetries: 0 })
      const stream = await client.chat.completions.create({
        model: 'text',
        stream: true,
        messages: [{ role: 'user', content: 'x' }],
      })
      let text = ''
      for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? ''
      return text
    }, `http://${open.proxy}/v1`)
    assert.equal(text, TEXT)
  })

  await check('an error and its headers can be read', async () => {
    const error = await listed.evaluate(async base => {
      const client = new OpenAI({ baseURL: base, apiKey: 'any', dangerouslyAllowBrowser: true, maxRetries: 0 })
      try {
        await client.chat.completions.create({ model: 'status-429', messages: [{ role: 'user', content: 'x' }] })
      } catch (error) {
        const { name, status, code, requestID, headers } = error
        const told = ['retry-after', 'x-samewire-attempts', 'openai-processing-ms'].map(name => headers?.get(name))
        return { name: error.constructor.name, kind: name, status, code, requestID, told }
      }
    }, `http://${open.proxy}/v1`)
    assert.deepEqual([error.status, error.code], [429, 'rate_limit_exceeded'])
    assert.match(error.requestID, /^req_[0-9a-f]{32}$/)
    assert.equal(error.told[0], '7')
    assert.ok(Number(error.told[1]) >= 1 && error.told[2] !== null, JSON.stringify(error.told))
  })

  await check('an error within a stream and an unknown path can be read', async () => {
    const [event, unknown] = await listed.evaluate(async base => {
      const client = new OpenAI({ baseURL: base, apiKey: 'any', dangerouslyAllowBrowser: true, maxRetries: 0 })
      let event = null
      try {
        const messages = [{ role: 'user', content: 'x' }]
        const stream = await client.chat.completions.create({ model: 'event-500', stream: true, messages })
        for await (const _ of stream);
      } catch (error) {
        event = error.message
      }
      const answer = await fetch(`${base}/v1/models`)
      return [event, [answer.status, (await answer.json()).error.message]]
    }, `http://${open.proxy}/v1`)
    assert.ok(event, 'the stream ends with an error')
    assert.deepEqual(unknown.slice(0, 1), [404])
    assert.match(unknown[1], /Did you mean \/v1\/models\?/)
  })

  await check('a preflight needs no key, a request does, and is told so', async () => {
    const told = await listed.evaluate(
      async ([base, right]) => {
        const ask = async apiKey => {
          const client = new OpenAI({ baseURL: base, apiKey, dangerouslyAllowBrowser: true, maxRetries: 0 })
          const body = { model: 'text', messages: [{ role: 'user', content: 'x' }] }
          try {
            return (await client.chat.completions.create(body)).choices[0].message.content
          } catch (error) {
            return [error.status, error.code]
          }
        }
        return [await ask('sk-page-wrong'), await ask(right)]
      },
      [`http://${keyed.proxy}/v1`, KEY],
    )
    assert.deepEqual(told, [[401, 'invalid_api_key'], TEXT])
  })

  const socket = (page, address) =>
    page.evaluate(
      url =>
        new Promise(resolve => {
          const socket = new WebSocket(url)
          const said = []
          socket.onopen = () => socket.send(JSON.stringify({ type: 'response.create', model: 'text', input: 'x' }))
          socket.onmessage = ({ data }) => {
            said.push(JSON.parse(data).type)
            if (said.at(-1) === 'response.completed') socket.close()
          }
          socket.onclose = () => resolve(said)
        }),
      `ws://${address}/v1/responses`,
    )
  await check('a WebSocket opens for a listed page alone', async () => {
    const said = await socket(listed, open.proxy)
    assert.deepEqual([said[0], said.at(-1)], ['response.created', 'response.completed'])
    assert.deepEqual(await socket(foreign, open.proxy), [])
  })

  await check('a page that is not listed reads nothing and makes no engine work', async () => {
    const before = await attempts(open.admin)
    const told = await foreign.evaluate(async base => {
      const body = JSON.stringify({ model: 'text', messages: [{ role: 'user', content: 'x' }] })
      const url = `${base}/chat/completions`
      const ask = async options => {
        try {
          return (await fetch(url, { method: 'POST', body, ...options })).type
        } catch (error) {
          return error.constructor.name
        }
      }
      const told = [await ask({ headers: { 'content-type': 'application/json' } })]
      for (const type of ['text/plain', 'application/x-www-form-urlencoded'])
        told.push(await ask({ mode: 'no-cors', headers: { 'content-type': type } }))
      // Without a type.
      told.push(await ask({ mode: 'no-cors', body: new Blob([body]) }))
      return told
    }, `http://${open.proxy}/v1`)
    assert.deepEqual(told, ['TypeError', 'opaque', 'opaque', 'opaque'])
    assert.equal(await attempts(open.admin), before)
    const models = await foreign.evaluate(
      base => fetch(`${base}/models`).then(answer => answer.status, error => error.constructor.name),
      `http://${open.proxy}/v1`,
    )
    assert.equal(models, 'TypeError')
  })

  for (const [name, page] of [['listed', listed], ['foreign', foreign]])
    await check(`a ${name} page can neither drain nor read the admin listener`, async () => {
      const told = await page.evaluate(async admin => {
        const image = await new Promise(resolve => {
          const image = new Image()
          image.onload = () => resolve('load')
          image.onerror = () => resolve('error')
          image.src = `${admin}/drain/wait`
        })
        const frame = document.createElement('iframe')
        frame.name = 'frame'
        document.body.append(frame)
        const form = document.createElement('form')
        Object.assign(form, { method: 'post', action: `${admin}/drain`, target: 'frame' })
        document.body.append(form)
        await new Promise(resolve => {
          frame.onload = resolve
          form.submit()
        })
        await fetch(`${admin}/drain`, { method: 'POST', mode: 'no-cors' })
        navigator.sendBeacon(`${admin}/drain`, 'x')
        await fetch(`${admin}/drain/wait`, { mode: 'no-cors' })
        try {
          await fetch(`${admin}/metrics`)
          return [image, 'read']
        } catch (error) {
          return [image, error.constructor.name]
        }
      }, `http://${open.admin}`)
      assert.deepEqual(told, ['error', 'TypeError'])
      assert.deepEqual(await get(`http://${open.admin}/readyz`), [200, 'ok\n'])
    })

  await check('a name that was pointed at the admin listener gets nothing', async () => {
    const page = await context.newPage()
    const answer = await page.goto(`http://foreign.example:${new URL(`http://${open.admin}`).port}/metrics`)
    assert.equal(answer.status(), 403)
    assert.match(await answer.text(), /foreign\.example:\d+.*admin\.hosts/)
    await page.close()
  })

  await check('the admin listener answers its own pages', async () => {
    const page = await context.newPage()
    const answer = await page.goto(`http://${open.admin}/livez`)
    assert.equal(answer.status(), 200)
    const told = await page.evaluate(async () => {
      const post = async path => (await fetch(path, { method: 'POST' })).text()
      const text = [await post('/drain/undo'), await post('/drain')]
      text.push(String((await fetch('/readyz')).status), await post('/drain/undo'))
      return [...text, String((await fetch('/readyz')).status), String((await fetch('/metrics')).status)]
    })
    const expected = ['not draining\n', 'draining\n', '503', 'the drain was taken back\n', '200', '200']
    assert.deepEqual(told, expected)
    await page.close()
  })
}

/** Starts the demo; gives its page's address. */
async function startDemo() {
  const args = ['demo', '--listen', '127.0.0.1:0']
  const child = spawn(binary, args, { env: {}, stdio: ['ignore', 'pipe', 'ignore'] })
  running.push(child)
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the demo does not serve after ${START} ms`)), START)
    createInterface({ input: child.stdout }).on('line', line => {
      const found = /^(http:\/\/127\.0\.0\.1:\d+\/)v1 serves/.exec(line)
      if (!found) return
      clearTimeout(timer)
      resolve(found[1])
    })
  })
}

/** The pages of samewire itself, narrow and wide, light and dark; each has a picture in WORK. */
async function ownPages(browser, admin) {
  const views = [
    { name: 'narrow', width: 400, colorScheme: 'light' },
    { name: 'wide', width: 1200, colorScheme: 'light' },
    { name: 'dark', width: 1200, colorScheme: 'dark' },
  ]
  const demo = await startDemo()
  // One window for all views: to open one takes longer than to look at it.
  const page = await (await browser.newContext()).newPage()
  page.setDefaultTimeout(PATIENCE)
  const wrong = []
  let origin
  page.on('console', message => ['error', 'warning'].includes(message.type()) && wrong.push(message.text()))
  page.on('pageerror', error => wrong.push(error.message))
  page.on('request', request => new URL(request.url()).origin === origin || request.url().startsWith('data:') || wrong.push(request.url()))
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)
  const open = async (url, { width, colorScheme }) => {
    // The page before was one without an icon, which the browser requests and complains about.
    await page.goto('about:blank')
    wrong.length = 0
    origin = new URL(url).origin
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    await page.goto(url)
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
    const light = ground.match(/\d+/g).map(Number).reduce((sum, part) => sum + part) > 382
    assert.equal(light, colorScheme === 'light', ground)
  }
  for (const view of views) {
    await check(`the demo's page streams both answers, ${view.name}`, async () => {
      await open(demo, view)
      assert.ok(await fits(), 'nothing is wider than the window')
      await page.click('#run')
      await page.waitForFunction(() => /of them the same/.test(document.getElementById('told').textContent))
      const told = await page.textContent('#told')
      assert.match(told, /^(\d+) and \1 frames, \1 of them the same/)
      const frames = await page.$$eval('#live li', items => items.map(item => [item.className, item.textContent]))
      assert.ok(frames.length > 20 && frames.every(([mark]) => mark === 'same'), told)
      assert.ok(frames.some(([, text]) => text.includes('"reasoning_content":')) && frames.at(-1)[1] === '[DONE]')
      assert.ok(await fits(), 'nor is anything that came')
      await page.screenshot({ path: path.join(work, `demo-${view.name}.png`), fullPage: true })
      assert.deepEqual(wrong, [])
    })

    await check(`the start page of the admin listener, ${view.name}`, async () => {
      await open(`http://${admin}/`, view)
      assert.match(await page.textContent('body'), /version \d+\.\d+\.\d+.*ready.*Base URL: http:.*\/v1/s)
      assert.ok(await fits())
      await page.screenshot({ path: path.join(work, `admin-${view.name}.png`), fullPage: true })
      assert.deepEqual(wrong, [])
      await page.click('a[href="/livez"]')
      assert.equal(await page.textContent('body'), 'ok\n')
    })
  }
}

async function main() {
  await mkdir(work, { recursive: true })
  const pages = await servePages()
  let browser
  try {
    const { engine: upstream } = await start('engine', ['engine'], 'python3', engine)
    const cors = `[cors]\norigins = ["http://app.example:${pages.address().port}"]\n`
    const hash = createHash('sha256').update(KEY).digest('hex')
    const open = await proxy('open', upstream, cors)
    const keyed = await proxy('keyed', upstream, `${cors}[[auth.key]]\nhash = "${hash}"\n`)
    while ((await get(`http://${open.admin}/readyz`))[0] !== 200) await new Promise(resolve => setTimeout(resolve, 50))
    const args = ['--host-resolver-rules=MAP *.example 127.0.0.1', '--disable-dev-shm-usage', '--no-proxy-server']
    browser = await chromium.launch({ executablePath, args })
    console.log(`Chromium ${browser.version()}`)
    await checks(browser, pages, open, keyed)
    await ownPages(browser, open.admin)
    console.log(`${passed} checks passed`)
  } finally {
    await browser?.close()
    running.forEach(child => child.kill('SIGKILL'))
    pages.closeAllConnections()
    pages.close()
  }
}

await main()
