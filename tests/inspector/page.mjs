// Checks of the page against the mock.
import * as files from './files.mjs'
import { startMock } from './mock.mjs'
import * as exchange from './exchange.mjs'
import * as large from './large.mjs'
import * as looks from './looks.mjs'
import * as overview from './overview.mjs'
import * as pure from './pure.mjs'

/** Hands a new mock to a function. */
async function fresh(use) {
  const mock = await startMock()
  try {
    await use(mock)
  } finally {
    mock.stop()
  }
}

/** Adds the checks, what takes longest first. */
export async function checks(stage, places) {
  for (const part of [large, overview, exchange, looks]) part.checks(stage, fresh, places)
  pure.checks(stage)
  await files.checks(stage, places)
}
