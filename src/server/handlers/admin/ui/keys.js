// Keys: one listener for the page, to which views add theirs; and the dialog that lists them.

import { html, useEffect, useRef } from './vendor/htm-preact.js'

/** Sets of keys, the innermost view last. */
const layers = []
/** Time in which the second key of two must follow, in milliseconds. */
const PAUSE = 1_500
let prefix = null

function isTyping(element) {
  return element?.closest?.('input:not([type=checkbox], [type=range]), textarea, select') != null
}

/** Buttons, links and the like have these keys for themselves. */
function isOwn(key, element) {
  return (key === ' ' || key === 'Enter') && element?.closest?.('button, a, summary, input, select, [role=tab]') != null
}

function actionOf(name) {
  for (let at = layers.length - 1; at >= 0; at -= 1) {
    const action = layers[at].current[name]
    if (action) return action
  }
  return null
}

document.addEventListener('keydown', event => {
  const { key, target } = event
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return
  if (isTyping(target) && key !== 'Escape') return
  if (isOwn(key, target)) return
  const name = prefix && Date.now() - prefix.at < PAUSE ? `${prefix.key} ${key}` : key
  prefix = null
  const action = actionOf(name)
  if (action) {
    event.preventDefault()
    action(event)
  } else if (layers.some(layer => Object.keys(layer.current).some(other => other.startsWith(`${name} `)))) {
    prefix = { key: name, at: Date.now() }
  }
})

/** Adds keys while a view is shown; each name has a function. Two keys in a row are written with a space. */
export function useKeys(keys) {
  const layer = useRef(keys)
  layer.current = keys
  useEffect(() => {
    layers.push(layer)
    return () => layers.splice(layers.indexOf(layer), 1)
  }, [])
}

const KEYS = [
  ['Everywhere', [
    ['?', 'this list'],
    ['/', 'filter or search'],
    ['j k', 'next and previous row'],
    ['Enter', 'open the row'],
    ['Esc', 'leave the field, then go back'],
    ['t', 'light, dark or the system’s theme'],
  ]],
  ['Overview', [
    ['g r', 'requests'],
    ['g e', 'engines'],
    ['g p', 'plots'],
    ['g d', 'drift'],
    ['g c', 'captures'],
  ]],
  ['Exchange', [
    ['n N', 'next and previous hit of the search'],
    ['c C', 'next and previous row with a change'],
    ['e', 'explain the changes of the row'],
    ['E', 'explain all changes'],
    ['v', 'short, raw or indented frames'],
    ['g g', 'first frame'],
    ['G', 'last frame'],
    ['Space', 'play the frames, or pause'],
    ['1 2 3 4', 'frames, rules, requests, replay'],
    ['d', 'download the exchange'],
  ]],
]

/** A modal dialog that opens when it is rendered. */
export function Dialog({ label, onClose, children }) {
  const dialog = useRef(null)
  useEffect(() => {
    const before = document.activeElement
    dialog.current.showModal()
    return () => before?.focus?.()
  }, [])
  return html`<dialog ref=${dialog} aria-label=${label} onClose=${onClose}
    onClick=${event => event.target === dialog.current && dialog.current.close()}>
    <div class="dialog">${children}</div></dialog>`
}

export function KeysDialog({ onClose }) {
  return html`<${Dialog} label="Keys" onClose=${onClose}>
    <h2>Keys</h2>
    <div class="keys">${KEYS.map(([title, keys]) => html`<section><h3>${title}</h3><dl>
      ${keys.map(([key, what]) => html`<div><dt>${key.split(' ').map(one => html`<kbd>${one}</kbd>${' '}`)}</dt><dd>${what}</dd></div>`)}
    </dl></section>`)}</div>
    <form method="dialog" onSubmit=${event => { event.preventDefault(); event.target.closest('dialog').close() }}>
      <button autofocus>Close</button></form>
  <//>`
}
