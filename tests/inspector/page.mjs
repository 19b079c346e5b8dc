// Checks of the page against the mock.
import * as files from './files.mjs'
import { startMock } from './mock.mjs'
import * as exchange from './exchange.mjs'
import * as large from './large.mjs'
import * as looks from './looks.mjs'
import * as overview from './overview.mjs'
import * as pure from './pure.mjs'

export async function checks(stage, places) {
  await files.checks(stage, places)
  await pure.checks(stage)
  for (const part of [overview, exchange, looks, large]) {
    const fresh = async use => {
      const mock = await startMock()
      try {
        await use(mock)
      } finally {
        mock.stop()
      }
    }
    await part.checks(stage, fresh, places)
  }
}
