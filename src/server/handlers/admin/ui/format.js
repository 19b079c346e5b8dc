// Numbers, times and sizes as text for people. Null and undefined become a dash.

export const NONE = '–'

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })
const tenth = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 })

export const count = value => (value == null ? NONE : whole.format(value))

/** A number with a decimal only where it is small. */
export const figure = value => (value == null ? NONE : (Math.abs(value) < 100 ? tenth : whole).format(value))

/** Milliseconds with a unit and three significant digits. */
export function duration(ms) {
  if (ms == null) return NONE
  if (ms < 0) return `−${duration(-ms)}`
  if (ms < 0.005) return '0 ms'
  if (ms < 10) return `${ms.toFixed(2)} ms`
  if (ms < 100) return `${ms.toFixed(1)} ms`
  if (ms < 999.5) return `${Math.round(ms)} ms`
  if (ms < 9_995) return `${(ms / 1e3).toFixed(2)} s`
  if (ms < 59_950) return `${(ms / 1e3).toFixed(1)} s`
  return longer(ms / 1e3)
}

/** Seconds in the two largest units. */
export function longer(seconds) {
  if (seconds == null) return NONE
  const rounded = Math.round(seconds)
  const units = [['d', 86_400], ['h', 3_600], ['min', 60], ['s', 1]]
  const first = Math.max(0, units.findIndex(([, size]) => rounded >= size))
  if (rounded < 1) return '0 s'
  const [[unit, size], next] = [units[first], units[first + 1]]
  const rest = next ? Math.floor((rounded % size) / next[1]) : 0
  return `${Math.floor(rounded / size)} ${unit}${rest ? ` ${rest} ${next[0]}` : ''}`
}

export function bytes(value) {
  if (value == null) return NONE
  if (value < 1024) return `${whole.format(value)} B`
  if (value < 1024 ** 2) return `${figure(value / 1024)} KiB`
  return `${figure(value / 1024 ** 2)} MiB`
}

/** Bytes of a text as UTF-8, as it went over the wire. */
export const sizeOf = text => bytes(new Blob([text]).size)

const two = value => String(value).padStart(2, '0')

/** Unix seconds as the time of day in the zone of the browser. */
export function clock(seconds, hasSeconds = true) {
  if (seconds == null) return NONE
  const date = new Date(seconds * 1e3)
  return `${two(date.getHours())}:${two(date.getMinutes())}${hasSeconds ? `:${two(date.getSeconds())}` : ''}`
}

/** Unix seconds as a full date, for tooltips. */
export const date = seconds => (seconds == null ? NONE : new Date(seconds * 1e3).toISOString())

export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`

/** Upstream and engine in one name: both only where they differ. */
export function place({ upstream, engine }) {
  if (!upstream) return engine ?? NONE
  return engine && engine !== upstream ? `${upstream} (${engine})` : upstream
}
