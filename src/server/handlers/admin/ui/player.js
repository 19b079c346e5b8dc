// Plays the frames of an exchange back at their recorded pace.

import { html, useEffect, useRef, useState } from './vendor/htm-preact.js'
import { duration } from './format.js'

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10, 100]

/** The position is a time within the exchange in milliseconds, or null while all frames are shown. */
export function usePlayer(end) {
  const [position, setPosition] = useState(null)
  const [isPlaying, setPlaying] = useState(false)
  const [speed, setSpeed] = useState(1)
  const current = useRef(null)
  const runs = useRef(false)
  current.current = position
  const run = isOn => {
    runs.current = isOn
    setPlaying(isOn)
  }
  useEffect(() => {
    if (!isPlaying) return
    let last = performance.now()
    let frame
    const step = now => {
      // The effect ends after the next frame of the screen, and nothing may move until then.
      if (!runs.current) return
      const next = (current.current ?? 0) + (now - last) * speed
      last = now
      current.current = Math.min(end, next)
      setPosition(current.current)
      if (next >= end) run(false)
      else frame = requestAnimationFrame(step)
    }
    frame = requestAnimationFrame(step)
    return () => cancelAnimationFrame(frame)
  }, [isPlaying, speed, end])
  const toggle = () => {
    if (!isPlaying && (position === null || position >= end)) setPosition(0)
    run(!isPlaying)
  }
  const stop = () => {
    run(false)
    setPosition(null)
  }
  return { position, isPlaying, speed, setSpeed, setPosition, toggle, stop }
}

export function Player({ player, end }) {
  const { position, isPlaying, speed, setSpeed, toggle, stop } = player
  return html`<div class="player" role="group" aria-label="Playback">
    <button type="button" onClick=${toggle} aria-label=${isPlaying ? 'Pause' : 'Play at the recorded pace'} title="Space">${isPlaying ? '❚❚ Pause' : '▶ Play'}</button>
    <label><span class="hidden">Speed</span><select value=${speed} onChange=${event => setSpeed(Number(event.target.value))}>
      ${SPEEDS.map(one => html`<option value=${one} selected=${one === speed}>${one}×</option>`)}</select></label>
    ${position !== null && html`<button type="button" onClick=${stop}>Show all</button><span class="dim" aria-live="off">${duration(position)} of ${duration(end)}</span>`}
  </div>`
}
