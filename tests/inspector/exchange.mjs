// The view of one exchange: both sides, changes, search, time, playback, and the commands.
import assert from 'node:assert/strict'
import * as data from './data.mjs'
import { textOf, until } from './stage.mjs'

const open = async (page, selector = '.frame-list .list-row') => page.waitForSelector(selector)
const text = (page, selector) => page.$eval(selector, element => element.textContent)
// The list draws a row that it goes to in the next frame.
const selected = async page => (await page.waitForSelector('.frame-list [aria-selected=true]')).evaluate(row => Number(row.dataset.row))
const selects = (page, row) => until(page, row => document.querySelector('.frame-list [aria-selected=true]')?.dataset.row === String(row), row)

function frames(stage, fresh) {
  stage.check('both sides are in their rows, byte for byte', () => fresh(async ({ url, state }) => {
    const rows = data.rows(30)
    state.exchanges.set('req_bytes', data.exchange('req_bytes', rows))
    await stage.with(`${url}/ui/#/exchange/req_bytes`, { height: 4_000 }, async page => {
      await open(page)
      await page.selectOption('.toolbar select', 'raw')
      await until(page, count => document.querySelectorAll('.frame-list .list-row').length === count, rows.length)
      const shown = await page.$$eval('.frame-list .list-row', all => all
        .sort((a, b) => a.dataset.row - b.dataset.row)
        .map(row => ['engine', 'client'].map(side => Array.from(row.querySelectorAll(`[data-side=${side}] .frame`), frame => frame.textContent))))
      const whole = (texts, side) => texts.map(one => one.replace(/\n+$/, '')).join('\n') || side
      rows.forEach((row, at) => {
        assert.equal(whole(shown[at][0], ''), whole(row.engine ? [row.engine.text] : [], ''), `row ${at}, engine`)
        assert.equal(whole(shown[at][1], ''), whole(row.client.map(frame => frame.text), ''), `row ${at}, client`)
      })
      assert.match(await textOf(page, '[data-row="0"] [data-side=client]'), /nothing was sent/)
      assert.match(await textOf(page, `[data-row="${rows.length - 2}"] [data-side=engine]`), /no frame of the engine/)
    })
  }))

  stage.check('changes are beside their rules, are explained on demand, and are marked in the text', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_stream`, {}, async page => {
      await open(page)
      const row = '[data-row="2"]'
      assert.match(await textOf(page, `${row} .changes`), /reasoning_name\s+delta\.reasoning → delta\.reasoning_content/)
      assert.deepEqual(await page.$$eval(`${row} del`, all => all.map(one => one.textContent)), ['"token_ids":null'])
      assert.match(await text(page, `${row} ins`), /^"reasoning_content":" \w+"$/)
      assert.equal(await page.locator(`${row} .words`).count(), 0)
      await page.keyboard.press('j')
      await page.keyboard.press('j')
      await page.keyboard.press('j')
      await page.keyboard.press('e')
      assert.match(await textOf(page, `${row} .words`), /Reasoning came under another name/)
      await page.keyboard.press('E')
      assert.match(await textOf(page, '[data-row="1"] .words'), /Reasoning came under another name/)
      await page.keyboard.press('v')
      await page.keyboard.press('v')
      await until(page, () => document.querySelector('[data-row="2"] .frame')?.textContent.includes('\n  "choices": [\n    {\n'))
      await page.check('text=Only changed')
      await until(page, () => Array.from(document.querySelectorAll('.frame-list .list-row')).every(row => row.classList.contains('changed')))
    })
  }))

  stage.check('a short frame leaves out repeated members, but no content', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_stream`, {}, async page => {
      await open(page)
      const shown = await textOf(page, '[data-row="3"] [data-side=engine] .frame')
      assert.match(shown, /^data: \{…,"choices":\[\{….*"delta":\{"reasoning":" \w+"\}/)
      assert.ok(!shown.includes('chatcmpl-'))
      assert.match(await page.getAttribute('[data-row="3"] .left-out', 'title'), /^"id":"chatcmpl-/)
    })
  }))

  stage.check('the search counts the hits of both sides and goes through them', () => fresh(async ({ url, state }) => {
    const rows = data.rows(120)
    state.exchanges.set('req_search', data.exchange('req_search', rows))
    const total = rows.flatMap(row => [row.engine, ...row.client]).reduce((sum, frame) => sum + (frame?.text.match(/jacket/gi)?.length ?? 0), 0)
    await stage.with(`${url}/ui/#/exchange/req_search`, {}, async page => {
      await open(page)
      await page.keyboard.press('/')
      await page.keyboard.type('JACKET')
      await until(page, total => document.querySelector('.hits').textContent === String(total), total)
      await page.keyboard.press('Enter')
      await until(page, total => document.querySelector('.hits').textContent === `1 of ${total}`, total)
      const first = await selected(page)
      assert.equal(await text(page, 'mark.current'), 'jacket')
      await page.locator('.frame-list').focus()
      const visited = [first]
      for (let step = 1; step < total; step += 1) {
        await page.keyboard.press('n')
        await until(page, told => document.querySelector('.hits').textContent === told && document.querySelector('mark.current'), `${step + 1} of ${total}`)
        visited.push(await selected(page))
      }
      assert.deepEqual(visited, [...visited].sort((a, b) => a - b))
      await page.keyboard.press('n')
      await until(page, total => document.querySelector('.hits').textContent === `1 of ${total}`, total)
      // After the last hit comes the first.
      await selects(page, first)
      await page.keyboard.press('N')
      await until(page, total => document.querySelector('.hits').textContent === `${total} of ${total}`, total)
      await page.fill('.toolbar input[type=search]', 'no such text')
      await until(page, () => document.querySelector('.hits').textContent === 'no hits')
    })
  }))

  stage.check('of a long answer a part is shown, and the hit that one looks for', () => fresh(async ({ url, state }) => {
    const long = JSON.stringify({ data: 'x'.repeat(2_000_000), needle: 'needle', rest: 'y'.repeat(50_000) })
    state.exchanges.set('req_long', data.exchange('req_long', [{ engine: { at_ms: 1, text: long }, client: [{ at_ms: 2, text: long }], changes: [] }]))
    await stage.with(`${url}/ui/#/exchange/req_long`, {}, async page => {
      await open(page)
      const length = () => page.$eval('[data-side=engine] .frame', frame => frame.textContent.length)
      assert.ok((await length()) < 20_000)
      await page.click('[data-side=engine] .more-text')
      await until(page, () => document.querySelector('[data-side=engine] .frame').textContent.length > 100_000)
      await page.fill('.toolbar input[type=search]', 'NEEDLE"')
      await page.keyboard.press('Enter')
      await until(page, () => document.querySelector('mark.current')?.textContent === 'needle"')
      assert.equal(await text(page, '.hits'), '1 of 4')
    })
  }))

  stage.check('keys go from change to change, and to both ends', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_stream`, {}, async page => {
      await open(page)
      for (const [keys, row] of [['G', 120], ['C', 118], ['C', 80], ['c', 118], ['gg', 0]]) {
        for (const key of keys) await page.keyboard.press(key)
        await selects(page, row)
      }
    })
  }))
}

/** True if the current hit is seen in the list. */
const isSeen = page => until(page, () => {
  const [hit, list] = ['mark.current', '.frame-list'].map(selector => document.querySelector(selector)?.getBoundingClientRect())
  return hit && hit.top >= list.top && hit.bottom <= list.bottom
})

function hostile(stage, fresh) {
  stage.check('a hit in a row that is higher than the view is brought into view, in the text as it is shown', () => fresh(async ({ url, state }) => {
    const calls = Array.from({ length: 60 }, (_, at) => ({ id: `call_${String(at).padStart(24, '0')}`, type: 'function', function: { name: 'f', arguments: `{"i":${at}}` } }))
    const whole = JSON.stringify({ choices: [{ index: 0, message: { content: null, tool_calls: calls }, finish_reason: 'tool_calls' }] })
    state.exchanges.set('req_calls', data.exchange('req_calls', [{ engine: { at_ms: 1, text: whole }, client: [{ at_ms: 2, text: whole }], changes: [] }]))
    await stage.with(`${url}/ui/#/exchange/req_calls`, { height: 700 }, async page => {
      await open(page)
      for (const [query, shown] of [['000003'], ['000040'], ['000059'], ['"finish_reason": "tool_calls"'], ['"finish_reason":"tool_calls"', '"finish_reason": "tool_calls"']]) {
        await page.fill('.toolbar input[type=search]', query)
        await page.keyboard.press('Enter')
        await until(page, shown => document.querySelector('mark.current')?.textContent === shown, shown ?? query)
        await isSeen(page)
      }
    })
  }))

  stage.check('a body that is nested deep, or has keys that are long, is shown in time', () => fresh(async ({ url, state }) => {
    const long = `{"${'k'.repeat(150_000)}":[${Array(100_000).fill(1).join()}]}`
    const bodies = [`${'['.repeat(40_000)}1${']'.repeat(40_000)}`, long, `{"a":${'['.repeat(120)}${Array(500_000).fill(1).join()}${']'.repeat(120)}}`]
    bodies.forEach((text, at) => state.exchanges.set(`req_${at}`, data.exchange(`req_${at}`, [{ engine: { at_ms: 1, text }, client: [{ at_ms: 2, text }], changes: [] }], { frames: { request: { client: text, engine: text } } })))
    for (const at of bodies.keys()) {
      await stage.with(`${url}/ui/#/exchange/req_${at}`, {}, async page => {
        await open(page)
        await page.selectOption('.toolbar select', 'raw')
        assert.equal(await page.$eval('[data-side=engine] .frame', frame => frame.textContent.slice(0, 5_000)), bodies[at].slice(0, 5_000))
        await page.keyboard.press('3')
        await page.waitForSelector('.body pre')
        assert.ok((await page.evaluate(() => performance.memory.usedJSHeapSize)) < 400e6)
      })
    }
  }))

  stage.check('sizes of bodies are those on the wire', () => fresh(async ({ url, state }) => {
    state.exchanges.set('req_wide', data.exchange('req_wide', data.rows(5), { frames: { request: { client: '"你好"', engine: null } } }))
    await stage.with(`${url}/ui/#/exchange/req_wide`, {}, async page => {
      await open(page)
      await page.keyboard.press('3')
      assert.match(await textOf(page, '.body h3'), /From the client 8 B/)
    })
  }))

  stage.check('exchanges with one id are told apart, and a download that fails does not leave the page', () => fresh(async ({ url, state }) => {
    const numbers = [3, 2, 1]
    for (const number of numbers) state.exchanges.set(`req_same ${number}`, data.exchange('req_same', data.rows(4, [`answer-${number}`]), { number }))
    const [one] = data.ended(1)
    state.requests = () => ({ running: [], ended: numbers.map(number => ({ ...one, id: 'req_same', number, is_captured: true })) })
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.requests .list-row')
      for (const at of numbers.keys()) {
        await page.keyboard.press('j')
        await until(page, at => document.querySelector('.requests [aria-selected=true]')?.dataset.row === String(at), at)
      }
      await page.keyboard.press('Enter')
      await until(page, () => /answer-1/.test(document.querySelector('.frame-list')?.textContent))
      await page.goto(`${url}/ui/#/exchange/req_same/2`)
      await until(page, () => /answer-2/.test(document.querySelector('.frame-list')?.textContent))
      state.exchanges.clear()
      const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('d')])
      assert.match(download.url(), /\/captures\/req_same\.tar\?number=2$/)
      assert.ok(await download.failure())
      assert.match(await textOf(page, '.frame-list'), /answer-2/)
    })
  }))
}

function time(stage, fresh) {
  stage.check('the time axis shows pauses and jumps', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_stream`, {}, async page => {
      await open(page)
      assert.match(await page.$eval('.timeline', bar => bar.textContent), /2\.6\d s/)
      assert.ok((await page.locator('.timeline .pause').count()) >= 2)
      const bar = await page.locator('.timeline').boundingBox()
      await page.mouse.click(bar.x + bar.width * 0.95, bar.y + 15)
      await until(page, () => Number(document.querySelector('.frame-list [aria-selected=true]')?.dataset.row) > 80)
      await page.locator('.timeline').focus()
      await page.keyboard.press('Home')
      await until(page, () => document.querySelector('.frame-list [aria-selected=true]')?.dataset.row === '0')
      await page.keyboard.press('End')
      await until(page, () => document.querySelector('.frame-list [aria-selected=true]')?.dataset.row === '120')
      assert.match(await page.$eval('.frame-list', list => list.textContent), /\+\d+\.\d ms/)
      await page.keyboard.press('Home')
      await page.fill('.toolbar input[type=search]', '')
      await page.locator('.frame-list').focus()
      for (let row = 0; row < 70; row += 1) await page.keyboard.press('ArrowDown')
      await until(page, () => /pause of 2\.6\d s/.test(document.querySelector('.frame-list').textContent))
    })
  }))

  stage.check('the player shows the frames at their pace, and pauses', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_stream`, {}, async page => {
      await open(page)
      await page.selectOption('.player select', '0.5')
      await page.keyboard.press(' ')
      await until(page, () => Number(document.querySelector('.frame-list').getAttribute('aria-rowcount')) >= 4)
      await page.keyboard.press(' ')
      const count = () => page.getAttribute('.frame-list', 'aria-rowcount').then(Number)
      const held = await count()
      await page.waitForTimeout(400)
      assert.equal(await count(), held, 'nothing comes during a pause')
      assert.ok(held < 122, `${held} rows`)
      await page.selectOption('.player select', '10')
      await page.click('.player button')
      await until(page, () => document.querySelector('.frame-list').getAttribute('aria-rowcount') === '122')
      await page.click('text=Show all')
      assert.equal(await page.locator('.player >> text=Show all').count(), 0)
    })
  }))
}

function parts(stage, fresh) {
  stage.check('rules, requests, attempts and commands have their tabs', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_stream`, {}, async page => {
      await open(page)
      await page.keyboard.press('2')
      assert.match((await textOf(page, '.part tbody tr')).replace(/\s+/g, ' '), /reasoning_name 30 40 row 2 Reasoning came under another name/)
      await page.click('.part tbody tr >> text=row 2')
      await until(page, () => document.querySelector('.frame-list [aria-selected=true]')?.dataset.row === '1')
      await page.keyboard.press('3')
      const [client, engine] = await page.$$eval('.body pre', all => all.map(one => one.textContent))
      assert.match(client, /^\{\n {2}"model": "gpt-oss-120b",\n/)
      assert.match(engine, /"max_tokens": 512/)
      assert.match(await text(page, '.body del'), /"max_completion_tokens": 512/)
      await page.keyboard.press('4')
      const commands = await page.$$eval('.copy pre', all => all.map(one => one.textContent))
      assert.deepEqual(commands, [
        `curl -sS '${url}/captures/req_stream.tar?number=7' | tar x`,
        'samewire replay vllm-req_stream --listen 127.0.0.1:8000 --pace 30',
        'samewire serve --upstream http://127.0.0.1:8000',
        'samewire rewrite --explain --engine vllm --request vllm-req_stream/client/request.json < vllm-req_stream/upstream.sse',
      ])
      const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('d')])
      assert.equal(new URL(download.url()).pathname, '/captures/req_stream.tar')
    })
  }))

  stage.check('whole, failed, relayed and missing exchanges are told apart', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/#/exchange/req_whole`, {}, async page => {
      await open(page)
      assert.match(await text(page, '[data-side=client] ins'), /^"reasoning_content": "Look\."$/)
      await page.goto(`${url}/ui/#/exchange/req_failed`)
      await until(page, () => /503 · engine_overloaded/.test(document.querySelector('.exchange-head')?.innerText))
      await page.keyboard.press('3')
      assert.match((await textOf(page, '.part table')).replace(/\s+/g, ' '), /1 vllm-1 vllm no answer broke off 2 sglang-1 sglang 503 complete/)
      await page.keyboard.press('4')
      assert.match(await page.$$eval('.copy pre', all => all.at(-1).textContent), /--status 503 --request vllm-req_failed\/client\/request\.json < vllm-req_failed\/upstream\.json$/)
      await page.goto(`${url}/ui/#/exchange/req_relayed`)
      await until(page, () => /not explained: the route is relayed/.test(document.querySelector('.exchange-head')?.innerText))
      await page.goto(`${url}/ui/#/exchange/req_missing`)
      await page.waitForSelector('.exchange [role=alert]')
      assert.match(await textOf(page, '.exchange'), /req_missing cannot be shown.*there is no captured exchange of this id.*Try again/s)
    })
  }))

  stage.check('text of others is shown, does not run, and does not reorder the page', () => fresh(async ({ url, state }) => {
    state.requests = () => ({ running: [], ended: [{ ...data.ended(1)[0], model: data.EVIL, key: data.EVIL, code: data.EVIL, end: 'error' }] })
    state.upstreams = [{ ...state.upstreams[2], why: data.EVIL }]
    const hidden = page => page.evaluate(() => {
      const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT)
      const found = []
      const isHidden = text => /[\u202a-\u202e\u2066-\u2069\u200b\u0007]/.test(text)
      while (walker.nextNode()) {
        const node = walker.currentNode
        const texts = node.nodeType === 3 ? [node.data] : Array.from(node.attributes, attribute => attribute.value)
        found.push(...texts.filter(isHidden))
      }
      return found
    })
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('#engines tbody tr')
      await page.waitForSelector('.requests .code-point')
      assert.match(await textOf(page, '#engines tbody'), /<script>document\.title="run"<\/script><img src=x/)
      assert.deepEqual(await hidden(page), [])
      await page.goto(`${url}/ui/#/exchange/req_evil`)
      await open(page)
      for (const tab of ['1', '2', '3', '4']) {
        await page.keyboard.press(tab)
        assert.deepEqual(await hidden(page), [])
      }
      await page.keyboard.press('1')
      await page.keyboard.press('/')
      await page.keyboard.type('script')
      await page.keyboard.press('Enter')
      await page.waitForSelector('mark.current')
      assert.match(await page.$eval('.frame-list', list => list.textContent), /<script>document\.title=/)
      assert.ok((await page.locator('.frame-list .code-point:text-is("U+202E")').count()) > 0)
      assert.equal(await page.locator('.exchange script, .exchange img').count(), 0)
      assert.notEqual(await page.title(), 'run')
    })
  }))

  stage.check('the policy is in force', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, { expected: /inline script violates/ }, async page => {
      const ran = await page.evaluate(() => {
        const script = document.createElement('script')
        script.textContent = 'window.ran = true'
        document.body.append(script)
        return window.ran
      })
      assert.equal(ran, undefined)
      await until(page, () => window.violations.splice(0).some(one => one.startsWith('script-src')))
    })
  }))
}

export function checks(stage, fresh) {
  frames(stage, fresh)
  hostile(stage, fresh)
  time(stage, fresh)
  parts(stage, fresh)
}
