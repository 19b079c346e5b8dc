// The overview: live requests, engines, plots, drift, captures, and the keys.
import assert from 'node:assert/strict'
import * as data from './data.mjs'
import { drawn, textOf, until } from './stage.mjs'

const rowsOf = (page, list = '.requests') => page.$$eval(`${list} .list-row`, rows => rows.map(row => row.innerText.replace(/\s+/g, ' ')))

function requests(stage, fresh) {
  stage.check('running requests come first, and one that ends shows how', () => fresh(async ({ url, state }) => {
    const running = { ...data.running(1)[0], id: 'req_live', model: 'live-model', key: 'live-key', state: 'waiting', first_token_ms: null, tokens: 0, tokens_per_second: null, is_captured: true }
    let all = { running: [running], ended: [] }
    state.requests = () => all
    await stage.with(`${url}/ui/`, {}, async page => {
      await until(page, () => /waiting live-model live-key/.test(document.querySelector('.requests .list-row')?.innerText.replace(/\s+/g, ' ')))
      all = { running: [{ ...running, state: 'streaming', first_token_ms: 123.4, tokens: 77, tokens_per_second: 33.3 }], ended: [] }
      await until(page, () => /streaming live-model live-key .* 123 ms 77 33.3 .*recording/.test(document.querySelector('.requests .list-row').innerText.replace(/\s+/g, ' ')))
      const end = { ...running, state: 'ended', end: 'error', side: 'upstream', status: 503, code: 'engine_overloaded', total_ms: 4_321 }
      all = { running: [{ ...running, id: 'req_next', number: 1, model: 'next-model' }], ended: [end] }
      await until(page, () => document.querySelectorAll('.requests .list-row').length === 2)
      const [first, second] = await rowsOf(page)
      assert.match(first, /waiting next-model/)
      assert.match(second, /ended live-model .* 4\.32 s error · by the engine · 503 · engine_overloaded open/)
      assert.equal(await page.getAttribute('.requests .list-row:nth-child(2) a', 'href'), '#/exchange/req_live/0')
    })
  }))

  stage.check('a hidden page requests nothing, and continues when it is visible again', () => fresh(async ({ url, state }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.requests .list-row')
      const set = isHidden => page.evaluate(isHidden => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => isHidden })
        document.dispatchEvent(new Event('visibilitychange'))
      }, isHidden)
      await set(true)
      // One that is on its way may still arrive.
      await page.waitForTimeout(300)
      state.asked.length = 0
      await page.waitForTimeout(2_500)
      assert.deepEqual(state.asked, [])
      await set(false)
      const deadline = Date.now() + 5_000
      while (!state.asked.includes('/requests') && Date.now() < deadline) await page.waitForTimeout(50)
      assert.ok(state.asked.includes('/requests'))
    })
  }))

  stage.check('a server that is gone is told of, and its return too', () => fresh(async ({ url, state }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.requests .list-row')
      state.isGone = true
      await page.waitForSelector('.gone')
      assert.match(await textOf(page, '.gone'), /samewire does not answer.*The data below is from \d\d:\d\d:\d\d/s)
      assert.equal(await textOf(page, '.bar .pill'), 'no answer')
      assert.ok((await rowsOf(page)).length > 5, 'the last data stay')
      state.isGone = false
      await page.waitForSelector('.gone', { state: 'detached' })
      assert.equal(await textOf(page, '.bar .pill'), 'ready')
      state.commit = 'fffffff'
      await page.waitForSelector('.gone')
      assert.match(await textOf(page, '.gone'), /Another build of samewire/)
    })
  }))

  stage.check('the filter takes words and fields', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.requests .list-row')
      const filter = async text => {
        await page.fill('#requests input[type=search]', text)
        await drawn(page)
        return rowsOf(page)
      }
      const waiting = await filter('state:waiting')
      assert.ok(waiting.length > 0 && waiting.every(row => row.startsWith('waiting')), waiting.join('\n'))
      const both = await filter('QWEN ended')
      assert.ok(both.length > 0 && both.every(row => row.includes('qwen3-32b') && row.startsWith('ended')))
      assert.match(await textOf(page, '#requests .total'), /^\d+ of \d+$/)
      const codes = await filter('status:503')
      assert.ok(codes.length > 0 && codes.every(row => row.includes('engine_overloaded')))
      assert.equal((await filter('no such model')).length, 0)
      assert.match(await textOf(page, '.requests .empty'), /No request matches/)
    })
  }))
}

function panels(stage, fresh) {
  stage.check('engines and drift have their figures', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('#engines tbody tr')
      const engines = await page.$$eval('#engines tbody tr', rows => rows.map(row => row.innerText.replace(/\s+/g, ' ').trim()))
      assert.equal(engines[0], 'vllm-1 vllm 0.23.0 ready closed 7 6 1 42 %')
      assert.match(engines[1], /sglang 0\.5\.12 behind sgl-router ready/)
      assert.match(engines[2], /version unknown not ready open 0 – – –/)
      assert.match(engines[3], /^cannot connect to 10\.0\.0\.7:8000/)
      const first = await textOf(page, '#drift tbody tr')
      assert.match(first.replace(/\s+/g, ' '), /^vllm reasoning_name 48,\d\d\d .*Reasoning came under another name/)
      await until(page, () => /\+\d+\s+\d+/.test(document.querySelector('#drift tbody tr').innerText))
    })
  }))

  stage.check('plots have gaps, a read-out by pointer and by keys, and a table', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.plot .series path[d^=M]')
      const pieces = await page.$$eval('.plot:first-child .series.first', ([series]) => [series.querySelector('path').getAttribute('d').split('M').length - 1, series.querySelectorAll('circle').length])
      assert.equal(pieces[0], 2, 'two lines with a gap between them')
      assert.equal(pieces[1], 1, 'and a lone point in the gap')
      const plot = page.locator('.plot .canvas').first()
      const said = () => plot.getAttribute('aria-valuetext')
      const before = await said()
      await plot.hover({ position: { x: 120, y: 60 } })
      const hovered = await said()
      assert.match(hovered, /^\d\d:\d\d:\d\d: p95 \d[\d.]* m?s, p50 \d[\d.]* m?s$/)
      assert.notEqual(hovered, before)
      assert.equal(await page.locator('.plot line.cursor').count(), 3, 'all plots show the same time')
      await page.mouse.move(5, 5)
      await plot.focus()
      await page.keyboard.press('Home')
      const oldest = await said()
      await page.keyboard.press('ArrowRight')
      assert.notEqual(await said(), oldest)
      const units = await page.$$eval('.plot:first-child .axes text', all => all.map(one => one.textContent))
      assert.ok(units.some(text => / m?s$/.test(text)) && units.some(text => /^\d\d:\d\d$/.test(text)), units.join())
      await page.click('#plots summary')
      await page.waitForSelector('#plots tbody tr')
      assert.ok((await page.locator('#plots tbody tr').count()) >= 30)
    })
  }))

  stage.check('a samewire without traffic says so everywhere', () => fresh(async ({ url, state }) => {
    data.empty(state)
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('#captures .howto')
      assert.match(await textOf(page, '.requests .empty'), /No requests yet/)
      assert.match(await textOf(page, '#engines .empty'), /No upstreams/)
      assert.match(await textOf(page, '#drift .empty'), /No answer was changed yet/)
      assert.equal(await page.locator('.plot .none').count(), 3)
      assert.match(await textOf(page, '#captures .howto'), /\[capture\]\nenabled = true[^]*x-samewire-capture: 1/)
      state.why = 'no upstream is ready:\nvllm: refused'
      await page.waitForSelector('.notice.bad.wide')
      assert.match(await textOf(page, '.notice.bad.wide'), /Not ready\. no upstream is ready:\nvllm: refused/)
    })
  }))
}

function captures(stage, fresh) {
  stage.check('capturing starts, stops and forgets, and asks before', () => fresh(async ({ url, state }) => {
    state.capturing = null
    await stage.with(`${url}/ui/#/captures`, {}, async page => {
      await page.waitForSelector('.captures .list-row')
      assert.match(await textOf(page, '.capture-state'), /^Off/)
      assert.match(await textOf(page, '#captures .notice'), /content of prompts and answers/)
      await page.click('text=Start …')
      await page.selectOption('.start select', '1h')
      await page.fill('.start input[placeholder="every key"]', 'web')
      await page.check('.start input[type=checkbox]')
      assert.match(await textOf(page, '.start .notice'), /content of prompts and answers/)
      await page.click('.start button.primary')
      await page.waitForSelector('.switch.on')
      assert.match(await textOf(page, '.capture-state'), /^On: requests that fail with the key web, for 10 min more/)
      await page.click('#captures button:text-is("Stop")')
      await page.waitForSelector('.switch.off')
      await page.click('text=Forget all …')
      await page.click('dialog >> text=Keep them')
      await page.waitForSelector('dialog', { state: 'detached' })
      assert.equal(state.exchanges.size, 5)
      await page.click('text=Forget all …')
      await page.click('dialog button.danger')
      await page.waitForSelector('#captures .howto')
      assert.deepEqual(state.commands, [
        ['POST', '/captures/start', { only_failures: true, time: '1h', key: 'web' }], ['POST', '/captures/stop', ''], ['DELETE', '/captures', ''],
      ])
    })
  }))

  stage.check('a command that is refused shows why, and the command for a terminal', () => fresh(async ({ url, state }) => {
    state.capturing = null
    state.refusal = 'pages may not POST here: admin.hosts\u202e <b>x</b>\n'
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.click('text=Start …')
      await page.fill('.start input[placeholder="every model"]', "it's")
      await page.click('.start button.primary')
      await page.waitForSelector('[role=alert]')
      const told = await textOf(page, '[role=alert]')
      assert.match(told, /takes no commands from this page.*admin\.hosts.*<b>x<\/b>/s)
      assert.ok(told.includes(String.raw`curl -X POST ${url}/captures/start -d '{"only_failures":false,"time":"10m","model":"it'\''s"}'`), told)
      await page.click('text=Dismiss')
      assert.equal(await page.locator('[role=alert]').count(), 0)
    })
  }))

  stage.check('a samewire without captures shows how to switch them on', () => fresh(async ({ url, state }) => {
    state.isWithoutCaptures = true
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('#captures .howto')
      assert.match(await textOf(page, '#captures .howto'), /does not capture exchanges[^]*enabled = true/)
    })
  }))

  stage.check('captured exchanges are filtered, opened and downloaded', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.captures .list-row')
      await page.check('.filters input[type=checkbox]')
      await until(page, () => document.querySelectorAll('.captures .list-row').length === 1)
      assert.match((await rowsOf(page, '.captures'))[0], /error · 503 · engine_overloaded/)
      const [download] = await Promise.all([page.waitForEvent('download'), page.click('.captures .list-row a[download]')])
      assert.equal(new URL(download.url()).pathname, '/captures/req_failed.tar')
      await page.click('.captures .list-row a:not([download])')
      await page.waitForSelector('.exchange-head')
      await page.keyboard.press('Escape')
      await until(page, () => document.querySelectorAll('.captures .list-row').length === 1)
    })
  }))
}

function keys(stage, fresh) {
  stage.check('the overview works by keys alone', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.requests .list-row')
      const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key) }
      await press('?')
      await page.waitForSelector('dialog[open]')
      assert.match(await textOf(page, 'dialog'), /previous row/)
      await press('Escape')
      await page.waitForSelector('dialog', { state: 'detached' })
      for (const [key, id] of [['e', 'engines'], ['p', 'plots'], ['d', 'drift'], ['c', 'captures'], ['r', 'requests']]) {
        await press('g', key)
        await until(page, id => document.activeElement.id === id && document.activeElement.getBoundingClientRect().top < innerHeight, id)
      }
      await press('/')
      await page.keyboard.type('state:ended')
      assert.equal(await page.inputValue('#requests input[type=search]'), 'state:ended')
      await press('Enter', 'j')
      await until(page, () => document.querySelector('.requests [aria-selected=true]')?.dataset.row === '0')
      await press('j', 'j', 'k')
      await until(page, () => document.querySelector('.requests [aria-selected=true]')?.dataset.row === '1')
      const active = await page.getAttribute('.requests', 'aria-activedescendant')
      assert.equal(await page.getAttribute(`#${active}`, 'aria-selected'), 'true')
      assert.match(await textOf(page, '.details'), /req_[^ ]+ .*POST \/v1\/.*to the client/)
      await press('k', 'Enter')
      await page.waitForSelector('.exchange-head')
      await press('Escape')
      await page.waitForSelector('.requests .list-row')
      for (const theme of ['light', 'dark']) {
        await press('t')
        await until(page, theme => document.documentElement.dataset.theme === theme, theme)
      }
      await page.reload()
      await page.waitForSelector('.requests .list-row')
      assert.equal(await page.getAttribute('html', 'data-theme'), 'dark', 'the choice is kept')
    })
  }))

  stage.check('the focus is always visible', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.requests .list-row')
      const seen = new Set()
      for (let step = 0; step < 40; step += 1) {
        await page.keyboard.press('Tab')
        const [outline, what] = await page.evaluate(() => {
          const element = document.activeElement
          return [element === document.body ? 'none' : getComputedStyle(element).outlineStyle, `${element.tagName}.${element.className} ${element.innerText?.slice(0, 20)}`]
        })
        if (what.startsWith('BODY')) break
        assert.notEqual(outline, 'none', what)
        seen.add(what)
      }
      assert.ok(seen.size > 15, [...seen].join('\n'))
    })
  }))
}

export function checks(stage, fresh) {
  requests(stage, fresh)
  panels(stage, fresh)
  captures(stage, fresh)
  keys(stage, fresh)
}
