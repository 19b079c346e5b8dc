// The theme: the system's, light or dark. The choice is kept in the browser.

import { html, useState } from './vendor/htm-preact.js'

const NAME = 'samewire-theme'
const THEMES = ['system', 'light', 'dark']
const SIGNS = { system: '◐', light: '☀', dark: '☾' }

/** A browser may forbid storage. */
function kept() {
  try {
    return THEMES.find(theme => theme === localStorage.getItem(NAME)) ?? 'system'
  } catch {
    return 'system'
  }
}

function keep(theme) {
  try {
    localStorage.setItem(NAME, theme)
  } catch {
    // The choice then lasts as long as the page.
  }
}

function apply(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = theme
}

apply(kept())

export function useTheme() {
  const [theme, setTheme] = useState(kept)
  const turn = () => {
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]
    keep(next)
    apply(next)
    setTheme(next)
  }
  return [theme, turn]
}

export function ThemeButton({ theme, onTurn }) {
  return html`<button type="button" class="quiet" onClick=${onTurn} title="Theme: ${theme} (t)" aria-label="Theme: ${theme}. Change it."><span aria-hidden="true">${SIGNS[theme]}</span></button>`
}
