// Checks of the page against samewire itself: recorded engines behind it, real clients in front of it.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { POLICY } from './mock.mjs'
import { textOf, until } from './stage.mjs'

const fixtures = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../fixtures')
const run = promisify(execFile)
const START = 30_000

/** Waits until a question is answered with yes. */
async function eventually(what, isSo) {
  const deadline = Date.now() + START
  while (!(await isSo())) {
    assert.ok(Date.now() < deadline, `waited in vain: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

/** Processes that were started, and the folder for their logs. */
class Processes {
  constructor(binary, work) {
    this.binary = binary
    this.work = work
    this.all = []
  }

  start(name, args, stream, read) {
    const child = spawn(this.binary, args, { env: { PATH: process.env.PATH }, stdio: ['ignore', 'pipe', 'pipe'] })
    this.all.push(child)
    const log = createWriteStream(path.join(this.work, `${name}.log`))
    child.stdout.on('data', part => log.write(part))
    child.stderr.on('data', part => log.write(part))
    return new Promise((resolve, reject) => {
      const failed = why => reject(new Error(`${name} ${why}; see ${path.join(this.work, `${name}.log`)}`))
      const timer = setTimeout(() => failed(`does not serve after ${START} ms`), START)
      child.on('exit', code => failed(`ended with ${code}`))
      child.on('error', error => failed(error.message))
      createInterface({ input: child[stream] }).on('line', line => {
        const found = read(line)
        if (!found) return
        clearTimeout(timer)
        resolve({ child, ...found })
      })
    })
  }

  /** Starts a samewire before recorded engines, and hands its addresses and its process to a function. */
  async fresh(name, use) {
    const fixture = engine => path.join(fixtures, engine)
    this.recorded ??= this.listening('recorded', ['replay'], 'replay', fixture('vllm'), fixture('sglang'), '--listen', '127.0.0.1:0', '--pace', '60')
    const { replay } = await this.recorded
    const config = path.join(this.work, `${name}.toml`)
    await writeFile(config, '', { mode: 0o600 })
    const place = await this.listening(name, ['proxy', 'admin'], 'serve', '--config', config, '--upstream', `http://${replay}`, '--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0')
    try {
      await eventually('samewire is ready', async () => (await fetch(`http://${place.admin}/readyz`)).ok)
      await use(place)
    } finally {
      place.child.kill('SIGKILL')
    }
  }

  /** Starts a process that logs where it listens; gives the addresses of its listeners. */
  listening(name, listeners, ...args) {
    const addresses = {}
    return this.start(name, args, 'stderr', line => {
      if (!line.includes('"listening"')) return null
      const { listener, address } = JSON.parse(line)
      addresses[listener] = address
      return listeners.every(one => addresses[one]) ? addresses : null
    })
  }

  stop() {
    for (const child of this.all) child.kill('SIGKILL')
  }
}

async function ask(proxy, route, body) {
  const answer = await fetch(`http://${proxy}/v1/${route}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
  return { status: answer.status, text: await answer.text(), id: answer.headers.get('x-request-id') }
}

const chat = (model, more = {}) => ({ model, stream: true, messages: [{ role: 'user', content: 'A <script>question</script>?' }], ...more })

async function json(address, route) {
  return (await fetch(`http://${address}${route}`)).json()
}

/** Sends a request that is captured; gives its id once its exchange is listed. */
async function captured({ proxy, admin }, route, body) {
  await fetch(`http://${admin}/captures/start`, { method: 'POST' })
  const { id } = await ask(proxy, route, body)
  await eventually(`${id} is captured`, async () => (await json(admin, '/captures')).exchanges.some(one => one.id === id))
  return id
}

/** Sends a request, and leaves when the answer has begun. */
async function leave({ proxy }) {
  const controller = new AbortController()
  const answer = await fetch(`http://${proxy}/v1/chat/completions`, { method: 'POST', signal: controller.signal, headers: { 'content-type': 'application/json' }, body: JSON.stringify(chat('vllm/reasoning')) })
  await answer.body.getReader().read()
  controller.abort()
}

function served(stage, fresh) {
  stage.check('the page and its files have their headers', () => fresh('served', async ({ admin }) => {
    const moved = await fetch(`http://${admin}/ui`, { redirect: 'manual' })
    assert.deepEqual([moved.status, moved.headers.get('location')], [308, '/ui/'])
    const page = await fetch(`http://${admin}/ui/`)
    assert.equal(page.headers.get('content-security-policy'), POLICY)
    assert.deepEqual(['x-content-type-options', 'referrer-policy', 'cache-control'].map(name => page.headers.get(name)), ['nosniff', 'no-referrer', 'no-cache'])
    const same = await fetch(`http://${admin}/ui/`, { headers: { 'if-none-match': page.headers.get('etag') } })
    assert.equal(same.status, 304)
    for (const route of ['/status', '/requests', '/history', '/captures']) {
      const answer = await fetch(`http://${admin}${route}`)
      assert.deepEqual([answer.status, answer.headers.get('content-type'), answer.headers.get('cache-control')], [200, 'application/json', 'no-store'], route)
    }
  }))
}

function live(stage, fresh) {
  stage.check('history and drift fill up', () => fresh('history', async place => {
    await stage.with(`http://${place.admin}/ui/`, {}, async page => {
      await ask(place.proxy, 'chat/completions', chat('vllm/reasoning'))
      await until(page, () => document.querySelectorAll('.plot .series.first path[d^=M], .plot .series.first circle').length >= 3)
      await until(page, () => /reasoning_name/.test(document.querySelector('#drift').innerText))
      assert.match(await textOf(page, '#engines tbody'), /ready/)
    })
  }))

  stage.check('capturing starts from the page, and a stream is seen while it runs and when it has ended', () => fresh('live', ({ admin, proxy }) =>
    stage.with(`http://${admin}/ui/`, {}, async page => {
      await until(page, () => document.querySelector('.bar .pill.good')?.textContent === 'ready')
      await page.waitForSelector('#captures .howto')
      await page.click('text=Start …')
      await page.click('.start .primary')
      await page.waitForSelector('.switch.on')
      const stream = ask(proxy, 'chat/completions', chat('vllm/reasoning'))
      await until(page, () => /streaming vllm\/reasoning/.test(document.querySelector('.requests .list-row')?.innerText.replace(/\s+/g, ' ')))
      const { status, text: body } = await stream
      assert.deepEqual([status, body.endsWith('data: [DONE]\n\n')], [200, true])
      await until(page, () => /ended vllm\/reasoning .*complete/.test(document.querySelector('.requests .list-row')?.innerText.replace(/\s+/g, ' ')))
      await page.click('.requests .list-row a')
      await page.waitForSelector('.frame-list .list-row')
      await page.setViewportSize({ width: 1600, height: 6_000 })
      await page.selectOption('.toolbar select', 'raw')
      await until(page, () => document.querySelectorAll('.frame-list .list-row').length === Number(document.querySelector('.frame-list').getAttribute('aria-rowcount')) - 1)
      const shown = await page.$$eval('.frame-list .list-row', rows => rows.sort((a, b) => a.dataset.row - b.dataset.row).flatMap(row => Array.from(row.querySelectorAll('[data-side=client] .frame'), frame => frame.textContent)))
      assert.deepEqual(shown, body.split('\n\n').filter(Boolean), 'the frames are those that the client got')
      assert.match(await page.$eval('.frame-list', list => list.textContent), /reasoning_name/)
      await page.check('text=Explain')
      assert.match(await page.$eval('.frame-list', list => list.textContent), /Reasoning came under another name/)
    })))

  stage.check('a client that leaves is told of', () => fresh('leaves', place => stage.with(`http://${place.admin}/ui/`, {}, async page => {
    await leave(place)
    await until(page, () => /ended vllm\/reasoning .*client left · 200/.test(document.querySelector('.requests .list-row')?.innerText.replace(/\s+/g, ' ')))
  })))
}

/** Requests of each kind: route, body, and words that the view of the exchange must have. */
const KINDS = [
  ['a tool call', 'chat/completions', chat('vllm/tool'), /tool_id|tool_calls/],
  ['a Responses stream', 'responses', { model: 'sglang/gptoss-reasoning', input: 'A question?', stream: true }, /response\.completed/],
  ['a Messages stream', 'messages', { model: 'vllm/reasoning', max_tokens: 100, messages: [{ role: 'user', content: 'A question?' }], stream: true }, /message_stop/],
  ['a whole answer', 'chat/completions', chat('vllm/cached-tokens-whole', { stream: false }), /chat\.completion/],
  ['an error', 'chat/completions', chat('sglang/error-max-tokens'), /error/],
]

function kinds(stage, fresh, binary, work) {
  for (const [at, [name, route, body, words]] of KINDS.entries())
    stage.check(`${name} is shown, and its commands work`, () => fresh(`kind-${at}`, async place => {
      const id = await captured(place, route, body)
      await stage.with(`http://${place.admin}/ui/#/exchange/${id}`, { height: 1_600 }, async page => {
        await page.waitForSelector('.frame-list .list-row')
        await page.keyboard.press('G')
        await until(page, source => new RegExp(source).test(document.querySelector('.frame-list').textContent), words.source)
        await page.keyboard.press('3')
        await page.waitForSelector('.body pre')
        assert.match(await textOf(page, '.part table'), /complete/)
        await page.keyboard.press('4')
        await page.waitForSelector('.copy pre')
        const commands = await page.$$eval('.copy pre', all => all.map(one => one.textContent))
        const folder = path.join(work, `exchange-${at}`)
        await rm(folder, { recursive: true, force: true })
        await mkdir(folder)
        const env = { PATH: `${path.dirname(binary)}:${process.env.PATH}` }
        await run('bash', ['-c', commands[0]], { cwd: folder, env })
        // The same, but for a port that may be taken.
        const [, replay] = commands[1].match(/^samewire replay (\S+) /)
        const processes = new Processes(binary, work)
        try {
          assert.ok((await processes.listening(`replay-${at}`, ['replay'], 'replay', path.join(folder, replay))).replay)
        } finally {
          processes.stop()
        }
        const rewrite = commands.at(-1)
        assert.match(rewrite, /^samewire rewrite --explain /)
        const isError = /--status/.test(rewrite)
        const ended = await run('bash', ['-c', rewrite], { cwd: folder, env }).then(told => ({ code: 0, ...told }), error => error)
        assert.equal(ended.code, isError ? 1 : 0, ended.stderr)
        assert.match(ended.stderr, /summary/)
      })
    }))
}

function looks(stage, fresh) {
  for (const [view, selector] of [['overview', '.captures .list-row'], ['exchange', '.frame-list .list-row']])
    stage.check(`axe finds nothing with real data: ${view}`, () => fresh(`looks-${view}`, async place => {
      const [id] = await Promise.all([...KINDS.map(([, route, body]) => captured(place, route, body)), leave(place)])
      const hash = view === 'exchange' ? `#/exchange/${id}` : '#/'
      await stage.with(`http://${place.admin}/ui/${hash}`, { reducedMotion: 'reduce' }, async page => {
        await page.waitForSelector(selector)
        for (const colorScheme of ['light', 'dark']) {
          await page.emulateMedia({ colorScheme })
          assert.deepEqual(await stage.findings(page), [], colorScheme)
        }
      })
    }))
}

function ends(stage, fresh) {
  stage.check('capturing stops and is forgotten from the page, and the page tells when samewire is gone', () => fresh('ends', async place => {
    await captured(place, 'chat/completions', chat('vllm/tool'))
    await stage.with(`http://${place.admin}/ui/`, {}, async page => {
      await page.waitForSelector('.captures .list-row')
      const [download] = await Promise.all([page.waitForEvent('download'), page.click('.captures .list-row a[download]')])
      assert.match(download.suggestedFilename(), /^\w+-req_[0-9a-f]+\.tar$/)
      await page.click('#captures button:text-is("Stop")')
      await page.waitForSelector('.switch.off')
      await page.click('text=Forget all …')
      await page.click('dialog button.danger')
      await page.waitForSelector('#captures .howto')
      place.child.kill('SIGKILL')
      await page.waitForSelector('.gone')
    })
  }))
}

/** Adds the checks, and gives a function that ends what they have started. */
export function checks(stage, { work, binary }) {
  const processes = new Processes(binary, work)
  const fresh = processes.fresh.bind(processes)
  live(stage, fresh)
  served(stage, fresh)
  kinds(stage, fresh, binary, work)
  looks(stage, fresh)
  ends(stage, fresh)
  stage.check('the demo prints the address of its page, which has its requests', async () => {
    const { url } = await processes.start('demo', ['demo', '--listen', '127.0.0.1:0', '--admin-listen', '127.0.0.1:0'], 'stdout', line => {
      const found = /http:\/\/127\.0\.0\.1:\d+\/ui\//.exec(line)
      return found && { url: found[0] }
    })
    await stage.with(url, {}, page => until(page, () => document.querySelector('.bar .pill.good')?.textContent === 'ready'))
  })
  return () => processes.stop()
}
