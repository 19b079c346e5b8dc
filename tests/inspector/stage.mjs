// Base of the checks: the queue of them, and pages that are watched for errors.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'

/** Checks that run at once: they wait often, so that two processors have room for one more. */
const LANES = 3
/** Limit for a condition, in milliseconds: generous, because a busy machine is no fault of the page. */
const LIMIT = 30_000

/** Messages of the browser about answers that a check requested. */
const EXPECTED = /Failed to load resource/

/** Violations of the policy are collected in the page, before any of its scripts run. */
function watchPolicy() {
  window.violations = []
  document.addEventListener('securitypolicyviolation', event => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`))
}

/**
 * Chromium with the checks' packages; `modules` is the folder of node_modules.
 *
 * Checks are added, and then run several at once. Each has its own server, and so its own origin.
 */
export class Stage {
  constructor(browser, modules) {
    this.browser = browser
    this.axe = createRequire(path.join(modules, 'node_modules', 'x.js'))('axe-core').source
    this.queue = []
    // Opening a window takes longer than most checks, so the next check takes over what the one before has left.
    this.idle = []
    this.passed = 0
    this.failed = 0
    this.only = process.env.SAMEWIRE_CHECK
  }

  /** Adds a check. It gets a function for its report, which appears below its name. */
  check(name, test) {
    if (!this.only || name.includes(this.only)) this.queue.push({ name, test })
  }

  /** Runs all checks that were added. */
  async run() {
    const lane = async () => {
      for (let next = this.queue.shift(); next; next = this.queue.shift()) await this.#run(next)
    }
    await Promise.all(Array.from({ length: LANES }, lane))
  }

  /** Runs a check; a failure is told, and the others run all the same. */
  async #run({ name, test }) {
    const started = performance.now()
    const told = []
    try {
      await test(line => told.push(`\n    ${line}`))
    } catch (error) {
      this.failed += 1
      console.log(`FAILED  ${name}${told.join('')}\n${error.stack}`)
      return
    }
    this.passed += 1
    console.log(`ok  ${name} (${Math.round(performance.now() - started)} ms)${told.join('')}`)
  }

  /**
   * Opens an address, and hands the page to a function; then nothing may have gone wrong in it, apart from messages of the browser
   * that are expected.
   */
  async with(url, options, use) {
    const { width = 1280, height = 900, colorScheme = 'light', reducedMotion = 'no-preference', expected = EXPECTED } = options
    const lane = this.idle.pop() ?? (await this.#open())
    const { page } = lane
    lane.watch = { wrong: [], expected, origin: new URL(url).origin }
    try {
      await page.setViewportSize({ width, height })
      await page.emulateMedia({ colorScheme, reducedMotion })
      await page.goto(url)
      await use(page)
      const violations = await page.evaluate(() => {
        localStorage.clear()
        return window.violations
      })
      assert.deepEqual(violations, [], 'the policy is kept')
      assert.deepEqual(lane.watch.wrong, [])
      lane.watch = null
      await page.goto('about:blank')
    } catch (error) {
      await page.context().close()
      throw error
    }
    this.idle.push(lane)
  }

  /** A page in its own window and context, with its watched values. */
  async #open() {
    const context = await this.browser.newContext({ acceptDownloads: true })
    context.setDefaultTimeout(LIMIT)
    const page = await context.newPage()
    const lane = { page, watch: null }
    const note = (text, isExpected = () => false) => lane.watch && !isExpected(lane.watch) && lane.watch.wrong.push(text)
    page.on('console', message => ['error', 'warning'].includes(message.type()) && note(message.text(), ({ expected }) => expected.test(message.text())))
    page.on('pageerror', error => note(error.stack))
    page.on('dialog', dialog => { note(`dialog: ${dialog.message()}`); dialog.dismiss() })
    page.on('request', request => note(request.url(), ({ origin }) => new URL(request.url()).origin === origin || request.url().startsWith('data:')))
    await page.addInitScript(watchPolicy)
    return lane
  }

  /** Findings of axe in a part of the page, each with the first element. There are no frames within the page, so axe runs in it alone. */
  async findings(page, part = 'html') {
    assert.equal(page.frames().length, 1)
    if (!(await page.evaluate(() => window.axe !== undefined))) await page.evaluate(this.axe)
    const violations = await page.evaluate(async part => {
      const { violations } = await window.axe.run(part, { resultTypes: ['violations'] })
      return violations.map(({ id, nodes }) => ({ id, html: nodes[0].html, summary: nodes[0].failureSummary }))
    }, part)
    return violations.map(({ id, html, summary }) => `${id}: ${html.slice(0, 200)} ${summary}`)
  }
}

/** Waits in the page until a function gives something true. */
export const until = (page, test, argument) => page.waitForFunction(test, argument, { timeout: LIMIT, polling: 50 })

/** Waits until what was done on the page is drawn, and the effects of that have run. */
export const drawn = page => page.evaluate(() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve)))))

export const textOf = (page, selector) => page.locator(selector).first().innerText()

/** True if nothing is wider than the window. */
export const fits = page => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)
