// The inspector's page in a real Chromium.
//
//   node run.mjs page CHROMIUM MODULES WORK                 against a mock of the admin listener
//   node run.mjs real CHROMIUM MODULES WORK BINARY          against samewire itself
//   node run.mjs page,real CHROMIUM MODULES WORK BINARY     both
//
// With SAMEWIRE_CHECK=words only the checks run whose name has these words. MODULES is a folder with node_modules, WORK one for pictures and logs. With SAMEWIRE_SCREENSHOTS=1 the page's check also
// draws the pictures of docs/figures.
import { mkdir } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Stage } from './stage.mjs'

const [modes, executablePath, modules, work, binary] = process.argv.slice(2)
const { chromium } = createRequire(path.join(modules, 'node_modules', 'x.js'))('playwright-core')

await mkdir(work, { recursive: true })
const browser = await chromium.launch({ executablePath, args: ['--disable-dev-shm-usage', '--no-proxy-server'] })
const ends = []
try {
  console.log(`Chromium ${browser.version()}`)
  const stage = new Stage(browser, modules)
  for (const mode of modes.split(',')) {
    const { checks } = await import(`./${mode}.mjs`)
    ends.push(await checks(stage, { modules, work, binary }))
  }
  await stage.run()
  console.log(`${stage.passed} checks passed${stage.failed ? `, ${stage.failed} failed` : ''}`)
  process.exitCode = stage.failed ? 1 : 0
} finally {
  for (const end of ends) end?.()
  await browser.close()
}
process.exit()
