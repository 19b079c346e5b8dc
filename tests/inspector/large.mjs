// Much at once: 1,000 streams, and an exchange of 100,000 frames. The bounds are generous; the measured times are printed.
import assert from 'node:assert/strict'
import * as data from './data.mjs'
import { until } from './stage.mjs'

const STREAMS = 1_000
const FRAMES = 100_000
/** Bound for the time between two frames of the screen, in milliseconds; a list that renders all rows takes many times as long. */
const SLOWEST = 1_000

/** Scrolls a list for a number of frames of the screen, and gives the times between them in milliseconds. */
const scrolled = (page, selector, step, number) => page.evaluate(([selector, step, number]) => new Promise(resolve => {
  const list = document.querySelector(selector)
  const times = []
  let last = performance.now()
  const next = now => {
    times.push(now - last)
    last = now
    if (times.length > number) return resolve(times.slice(1).sort((a, b) => a - b))
    list.scrollTop += step
    requestAnimationFrame(next)
  }
  requestAnimationFrame(next)
}), [selector, step, number])

const told = times => `median ${times[times.length >> 1].toFixed(1)} ms, 95 % ${times[Math.floor(times.length * 0.95)].toFixed(1)} ms`

const rendered = (page, list) => page.locator(`${list} .list-row`).count()

export function checks(stage, fresh) {
  stage.check('1,000 streams stay usable', tell => fresh(async ({ url, state }) => {
    state.requests = () => ({ running: data.running(STREAMS), ended: data.ended(200) })
    await stage.with(`${url}/ui/`, {}, async page => {
      await until(page, () => document.querySelector('.requests').getAttribute('aria-rowcount') === '1201')
      assert.ok((await rendered(page, '.requests')) < 120, 'only the rows in view are rendered')
      const times = await scrolled(page, '.requests', 60, 120)
      tell(`scrolling 1,200 rows: ${told(times)}`)
      assert.ok(times[times.length >> 1] < SLOWEST)
      const started = performance.now()
      await page.fill('#requests input[type=search]', 'state:streaming qwen')
      await until(page, () => / of 1,200$/.test(document.querySelector('#requests .total').textContent))
      tell(`filtering: ${Math.round(performance.now() - started)} ms`)
      assert.ok(performance.now() - started < 5_000)
      await page.fill('#requests input[type=search]', '')
      await page.locator('.requests').focus()
      await page.keyboard.press('End')
      await until(page, () => document.querySelector('.requests [aria-selected=true]')?.dataset.row === '1199')
    })
  }))

  stage.check('100,000 frames stay usable', tell => fresh(async ({ url, state }) => {
    const rows = data.rows(FRAMES - 1)
    assert.equal(rows.length, FRAMES)
    state.exchanges.set('req_large', data.exchange('req_large', rows))
    await stage.with(`${url}/ui/`, {}, async page => {
      await page.waitForSelector('.captures .list-row')
      const timed = async (what, limit, work) => {
        const started = performance.now()
        await work()
        const took = performance.now() - started
        tell(`${what}: ${Math.round(took)} ms`)
        assert.ok(took < limit, `${what} took ${took} ms`)
      }
      await timed('opening', 30_000, async () => {
        await page.evaluate(() => { location.hash = '#/exchange/req_large' })
        await page.waitForSelector('.frame-list .list-row', { timeout: 30_000 })
      })
      assert.equal(await page.getAttribute('.frame-list', 'aria-rowcount'), String(FRAMES + 1))
      assert.ok((await rendered(page, '.frame-list')) < 200, 'only the rows in view are rendered')
      const times = await scrolled(page, '.frame-list', 90, 120)
      tell(`scrolling: ${told(times)}`)
      assert.ok(times[times.length >> 1] < SLOWEST)
      await timed('to the end', 5_000, async () => {
        await page.keyboard.press('G')
        await until(page, last => {
          const row = document.querySelector(`.frame-list [data-row="${last}"]`)?.getBoundingClientRect()
          return row && row.bottom <= document.querySelector('.frame-list').getBoundingClientRect().bottom + 2
        }, FRAMES - 1)
      })
      const upwards = await scrolled(page, '.frame-list', -90, 60)
      tell(`scrolling upwards: ${told(upwards)}`)
      assert.ok(upwards[upwards.length >> 1] < SLOWEST)
      await timed('to the start', 5_000, async () => {
        await page.keyboard.press('g')
        await page.keyboard.press('g')
        await until(page, () => document.querySelector('.frame-list [data-row="0"]')?.getBoundingClientRect().top >= document.querySelector('.frame-list').getBoundingClientRect().top)
      })
      await timed('searching', 60_000, async () => {
        await page.fill('.toolbar input[type=search]', 'jacket')
        await until(page, () => /^[\d,]+$/.test(document.querySelector('.hits').textContent))
      })
      await timed('to a hit', 5_000, async () => {
        await page.keyboard.press('Shift+Enter')
        await page.waitForSelector('mark.current')
      })
      await page.selectOption('.player select', '100')
      await page.click('.player button')
      await until(page, () => Number(document.querySelector('.frame-list').getAttribute('aria-rowcount')) < 90_000)
      const played = await scrolled(page, '.timeline', 0, 60)
      tell(`playing: ${told(played)}`)
      assert.ok(played[played.length >> 1] < SLOWEST)
      await page.click('text=Show all')
      await timed('a jump on the time axis', 5_000, async () => {
        const bar = await page.locator('.timeline').boundingBox()
        await page.mouse.click(bar.x + bar.width / 2, bar.y + 15)
        await until(page, () => {
          const row = Number(document.querySelector('.frame-list [aria-selected=true]')?.dataset.row)
          return row > 1_000 && row < 99_000
        })
      })
    })
  }))
}
