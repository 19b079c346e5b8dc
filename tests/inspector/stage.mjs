// Base of the checks: pages that are watched for errors, and the count of checks.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'

/** Messages of the browser about answers that a check asked for. */
const EXPECTED = /Failed to load resource/

/** Violations of the policy are collected in the page, before any of its scripts run. */
function watchPolicy() {
  window.violations = []
  document.addEventListener('securitypolicyviolation', event => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`))
}

/** Chromium with the checks' packages; `modules` is the folder of node_modules. */
export class Stage {
  constructor(browser, modules) {
    this.browser = browser
    this.axe = createRequire(path.join(modules, 'node_modules', 'x.js'))('@axe-core/playwright').AxeBuilder
    this.passed = 0
    this.failed = 0
    this.only = process.env.SAMEWIRE_CHECK
  }

  /** Runs a check; a failure is told, and the next check runs all the same. */
  async check(name, test) {
    if (this.only && !name.includes(this.only)) return
    const started = performance.now()
    try {
      await test()
    } catch (error) {
      this.failed += 1
      console.log(`FAILED  ${name}\n${error.stack}`)
      return
    }
    this.passed += 1
    console.log(`ok  ${name} (${Math.round(performance.now() - started)} ms)`)
  }

  /**
   * Opens an address in a context of its own, and hands the page to a function; then nothing may have gone wrong in it, apart from
   * messages of the browser that are expected.
   */
  async with(url, options, use) {
    const { width = 1280, height = 900, colorScheme = 'light', expected = EXPECTED, ...more } = options
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme, acceptDownloads: true, ...more })
    const page = await context.newPage()
    const wrong = []
    page.on('console', message => ['error', 'warning'].includes(message.type()) && !expected.test(message.text()) && wrong.push(message.text()))
    page.on('pageerror', error => wrong.push(error.stack))
    page.on('dialog', dialog => { wrong.push(`dialog: ${dialog.message()}`); dialog.dismiss() })
    page.on('request', request => new URL(request.url()).origin === new URL(url).origin || request.url().startsWith('data:') || wrong.push(request.url()))
    await page.addInitScript(watchPolicy)
    try {
      await page.goto(url)
      await use(page)
      assert.deepEqual(await page.evaluate(() => window.violations), [], 'the policy is kept')
      assert.deepEqual(wrong, [])
    } finally {
      await context.close()
    }
  }

  /** Findings of axe in a part of the page, each with the first element. */
  async findings(page, part = 'html') {
    const { violations } = await new this.axe({ page }).include(part).analyze()
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`)
  }
}

/** Waits in the page until a function gives something true. */
export const until = (page, test, argument) => page.waitForFunction(test, argument, { timeout: 15_000, polling: 50 })

export const textOf = (page, selector) => page.locator(selector).first().innerText()

/** True if nothing is wider than the window. */
export const fits = page => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)
