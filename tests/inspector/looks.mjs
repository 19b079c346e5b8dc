// Looks: both themes, narrow windows, and the findings of axe in each view. Pictures go to the folder for work, two of them to docs/figures.
import assert from 'node:assert/strict'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import * as data from './data.mjs'
import { fits, until } from './stage.mjs'

const figures = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../docs/figures')

const frames = async page => { await page.waitForSelector('.frame-list .list-row') }
const tab = key => async page => {
  await frames(page)
  await page.keyboard.press(key)
  await page.waitForSelector('.part')
}

/**
 * Views: the address, the steps on the page, and a change of the mock's state before. axe looks at all of them in both themes, and at
 * those whose rows change their form in a narrow window there too. `part` is the part that is new to axe.
 */
const VIEWS = [
  { name: 'requests', hash: '#/', isNarrowToo: true, ready: page => page.waitForSelector('.captures .list-row') },
  { name: 'empty', hash: '#/', state: data.empty, ready: page => page.waitForSelector('#captures .howto') },
  { name: 'gone', hash: '#/', part: '#requests', ready: async (page, state) => { await page.waitForSelector('.list-row'); state.isGone = true; await page.waitForSelector('.gone') } },
  { name: 'starting', hash: '#/', part: '#captures', ready: async (page, state) => {
    await page.waitForSelector('.list-row')
    state.refusal = 'not from here'
    await page.click('text=Change …')
    await page.click('.start .primary')
    await page.waitForSelector('[role=alert]')
  } },
  { name: 'table', hash: '#/', part: '#plots', ready: async page => { await page.waitForSelector('.list-row'); await page.click('#plots summary'); await page.waitForSelector('#plots tbody') } },
  { name: 'keys', hash: '#/', ready: async page => { await page.waitForSelector('.list-row'); await page.keyboard.press('?'); await page.waitForSelector('dialog') } },
  { name: 'exchange', hash: '#/exchange/req_stream', isNarrowToo: true, ready: frames },
  { name: 'search', hash: '#/exchange/req_evil', ready: async page => {
    await frames(page)
    await page.fill('.toolbar input[type=search]', 'script')
    await page.keyboard.press('Enter')
    await page.waitForSelector('mark')
    await page.keyboard.press('Enter')
    await page.waitForSelector('mark.current')
    await page.check('text=Explain')
  } },
  { name: 'rules', hash: '#/exchange/req_stream', ready: tab('2') },
  { name: 'bodies', hash: '#/exchange/req_stream', ready: tab('3') },
  { name: 'replay', hash: '#/exchange/req_evil', ready: tab('4') },
  { name: 'missing', hash: '#/exchange/req_missing', ready: page => page.waitForSelector('[role=alert]') },
]

// Each window is opened in one theme and then turns to the other, so that both themes are seen at the start of a page, too.
const WINDOWS = [
  { window: 'wide', size: { width: 1280, height: 800 }, themes: ['light', 'dark'] },
  { window: 'narrow', size: { width: 320, height: 640 }, themes: ['dark', 'light'] },
]

const isLight = page => page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).map(Number).reduce((sum, part) => sum + part) > 382)

export function checks(stage, fresh, { work }) {
  for (const { name, hash, ready, state: change, part, isNarrowToo } of VIEWS)
    for (const { window, size, themes } of WINDOWS)
      stage.check(`${name}: both themes, ${window}, without findings of axe`, () => fresh(async ({ url, state }) => {
        // Enough to see each kind of row; axe takes long for many.
        state.requests = () => ({ running: data.running(6), ended: data.ended(9) })
        change?.(state)
        // Without motion, so that a picture does not catch a color between two.
        await stage.with(`${url}/ui/${hash}`, { ...size, colorScheme: themes[0], reducedMotion: 'reduce' }, async page => {
          await ready(page, state)
          for (const colorScheme of themes) {
            await page.emulateMedia({ colorScheme })
            assert.equal(await isLight(page), colorScheme === 'light')
            assert.ok(await fits(page), `${colorScheme}: nothing is wider than the window`)
            const found = window === 'wide' || (isNarrowToo && colorScheme === 'light') ? await stage.findings(page, part) : []
            await page.screenshot({ path: path.join(work, `${name}-${window}-${colorScheme}.png`) })
            assert.deepEqual(found, [], colorScheme)
          }
        })
      }))

  stage.check('the theme is the system’s until one is chosen', () => fresh(async ({ url }) => {
    await stage.with(`${url}/ui/`, { colorScheme: 'dark' }, async page => {
      await page.waitForSelector('.list-row')
      const seen = [await isLight(page)]
      for (let turn = 0; turn < 3; turn += 1) {
        await page.click('button[aria-label^=Theme]')
        seen.push(await isLight(page))
      }
      assert.deepEqual(seen, [false, true, false, false], 'system, light, dark, system')
    })
  }))

  stage.check('nothing moves by itself where motion is not wanted', () => fresh(async ({ url }) => {
    const moving = page => page.evaluate(() => document.getAnimations().length)
    await stage.with(`${url}/ui/`, { reducedMotion: 'reduce' }, async page => {
      await page.waitForSelector('.state.streaming')
      assert.equal(await moving(page), 0)
    })
  }))

  if (process.env.SAMEWIRE_SCREENSHOTS === '1')
    stage.check('the pictures of the documents', () => fresh(async ({ url, state }) => {
      state.requests = () => ({ running: data.running(6, 3), ended: data.ended(20) })
      for (const [name, hash, selector] of [['requests', '#/', '.captures .list-row'], ['exchange', '#/exchange/req_stream', '.frame-list .list-row']])
        await stage.with(`${url}/ui/${hash}`, { height: name === 'requests' ? 860 : 700, reducedMotion: 'reduce' }, async page => {
          await page.waitForSelector(selector)
          await until(page, () => document.fonts.status === 'loaded')
          await page.screenshot({ path: path.join(figures, `inspector-${name}.png`) })
        })
    }))
}
