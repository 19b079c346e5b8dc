// A list that renders only the rows in view. Rows may have any height, and there may be any number of them.

import { Component, html } from './vendor/htm-preact.js'

/** Browsers limit the height of an element. Longer lists scroll by a factor. */
const TALLEST = 8_000_000
/** Pixels beyond the view that are rendered too. */
const MARGIN = 300
/** Renderings after which heights that keep changing are left alone. */
const ROUNDS = 8

/** Heights of all rows and their sums, as a Fenwick tree. The first `count` rows are shown. */
export class Heights {
  constructor(capacity, estimate) {
    this.capacity = capacity
    this.count = capacity
    this.sizes = new Float64Array(capacity)
    this.sums = new Float64Array(capacity + 1)
    for (let row = 0; row < capacity; row += 1) this.sizes[row] = estimate(row)
    for (let node = 1; node <= capacity; node += 1) {
      this.sums[node] += this.sizes[node - 1]
      const parent = node + (node & -node)
      if (parent <= capacity) this.sums[parent] += this.sums[node]
    }
  }

  set(row, height) {
    const change = height - this.sizes[row]
    this.sizes[row] = height
    for (let node = row + 1; node <= this.capacity; node += node & -node) this.sums[node] += change
  }

  /** The distance from the first row to the top of this one. */
  top(row) {
    let sum = 0
    for (let node = Math.min(row, this.capacity); node > 0; node -= node & -node) sum += this.sums[node]
    return sum
  }

  get total() {
    return this.top(this.count)
  }

  /** The row at a distance from the top. */
  at(distance) {
    let node = 0
    let rest = distance
    for (let step = 2 ** Math.floor(Math.log2(Math.max(1, this.capacity))); step > 0; step >>= 1) {
      const next = node + step
      if (next <= this.capacity && this.sums[next] <= rest) {
        node = next
        rest -= this.sums[next]
      }
    }
    return Math.max(0, Math.min(node, this.count - 1))
  }
}

/**
 * Properties: `count`; `capacity`, where `count` grows up to it; `estimate(row)` in pixels; `row(row)` gives the cells; `rowClass(row)`; `rowKey(row)`; `version`, which
 * changes when all heights do; `isUniform` where all rows are equally high; `selected` and `onSelect(row)`, `onOpen(row)`;
 * `head`, a row that stays; `empty` in place of rows; `onRange(first, last)`; `follows`: stays at the end; `id`, `label`.
 */
export class List extends Component {
  constructor(props) {
    super(props)
    this.anchor = { row: 0, offset: 0 }
    this.view = 600
    this.width = 0
    this.headHeight = 0
    this.rounds = 0
    this.uniform = null
    this.sought = null
    this.observer = new ResizeObserver(() => this.resized())
    // Scrolling alone changes no row, and rows that are the same object are not compared again.
    this.cells = new Map()
    this.forget(props)
  }

  forget({ count, capacity = count, estimate }) {
    this.heights = new Heights(capacity, this.uniform === null ? estimate : () => this.uniform)
    this.limit(count)
  }

  limit(count) {
    this.heights.count = count
    this.anchor.row = Math.max(0, Math.min(this.anchor.row, count - 1))
  }

  componentWillReceiveProps(next) {
    const isOther = next.version !== this.props.version
    if (isOther) this.uniform = null
    if (isOther || (next.capacity ?? next.count) !== this.heights.capacity) this.forget(next)
    else this.limit(next.count)
    this.rounds = 0
    this.cells.clear()
  }

  componentDidMount() {
    this.observer.observe(this.scroller)
    this.resized()
  }

  componentWillUnmount() {
    this.observer.disconnect()
  }

  componentDidUpdate() {
    this.settle()
  }

  resized() {
    const { clientHeight, clientWidth } = this.scroller
    const isWider = clientWidth !== this.width
    if (!isWider && clientHeight === this.view) return
    if (isWider) this.uniform = null
    this.width = clientWidth
    this.view = clientHeight
    if (isWider) this.forget(this.props)
    this.rounds = 0
    this.setState({})
  }

  /** Height of the part in which rows are seen. */
  get room() {
    return Math.max(0, this.view - this.headHeight)
  }

  /** Distance between the top of all rows and the top of the view. */
  get from() {
    const wanted = this.heights.top(this.anchor.row) + this.anchor.offset
    return Math.max(0, Math.min(wanted, this.heights.total - this.room))
  }

  get height() {
    return Math.min(this.heights.total, TALLEST)
  }

  /** Pixels of rows for each pixel of the scroll bar. */
  get factor() {
    const hidden = this.height - this.room
    return hidden > 0 ? Math.max(1, (this.heights.total - this.room) / hidden) : 1
  }

  scrolled = () => {
    const { scrollTop } = this.scroller
    if (Math.abs(scrollTop - this.placed) < 1) return
    this.placed = scrollTop
    this.sought = null
    this.anchorAt(scrollTop * this.factor)
    this.rounds = 0
    this.setState({})
  }

  anchorAt(distance) {
    const row = this.heights.at(distance)
    this.anchor = { row, offset: distance - this.heights.top(row) }
  }

  /** Takes the real heights of the rendered rows, and renders again until nothing changes. */
  settle() {
    const head = this.headElement?.offsetHeight ?? 0
    let isChanged = head !== this.headHeight
    this.headHeight = head
    for (const element of this.space?.children ?? []) {
      const row = Number(element.dataset.row)
      const height = element.getBoundingClientRect().height
      if (!height || row >= this.heights.count || Math.abs(height - this.heights.sizes[row]) < 0.5) continue
      isChanged = true
      if (this.props.isUniform) {
        this.uniform = height
        this.forget(this.props)
        break
      }
      this.heights.set(row, height)
    }
    if (this.props.follows) this.toEnd()
    const wanted = this.from / this.factor
    if (Math.abs(this.scroller.scrollTop - wanted) >= 1) {
      this.scroller.scrollTop = wanted
      this.placed = this.scroller.scrollTop
    }
    if (isChanged && (this.rounds += 1) < ROUNDS) this.setState({})
    else this.seek()
  }

  /** Brings the part that is sought into view. */
  seek() {
    const found = this.sought && this.scroller.querySelector(this.sought)
    if (!found) return
    this.sought = null
    const { top, bottom } = found.getBoundingClientRect()
    const start = this.scroller.getBoundingClientRect().top + this.headHeight
    if (top >= start && bottom <= start + this.room) return
    this.anchorAt(Math.max(0, this.from + (top + bottom) / 2 - start - this.room / 2))
    this.rounds = 0
    this.setState({})
  }

  toEnd() {
    this.anchorAt(Math.max(0, this.heights.total - this.room))
  }

  /** Scrolls to a row: to the top of the view, to its middle, or as little as it takes; then to the part of a selector, since a row may be higher than the view. */
  scrollTo(row, how = 'nearest', part = null) {
    this.sought = part
    const top = this.heights.top(row)
    const height = this.heights.sizes[row] ?? 0
    const { from, room } = this
    if (how === 'nearest' && top >= from && top + height <= from + room) return
    const isAbove = top < from || height > room
    const offset = how === 'start' || (how === 'nearest' && isAbove) ? 0 : how === 'center' ? (height - room) / 2 : height - room
    this.anchor = { row, offset }
    this.rounds = 0
    this.setState({})
  }

  /** The first and the last row in view. */
  get range() {
    const { from, heights } = this
    return [heights.at(from), heights.at(from + Math.max(0, this.room - 1))]
  }

  focus() {
    this.scroller.focus({ preventScroll: true })
  }

  select(row, how) {
    const last = this.props.count - 1
    if (last < 0) return
    const bounded = Math.max(0, Math.min(last, row))
    this.props.onSelect?.(bounded)
    this.scrollTo(bounded, how)
  }

  move(step) {
    const { selected } = this.props
    const isNone = selected == null || selected < 0
    this.select(isNone ? this.range[0] : selected + step)
  }

  page(step) {
    const { selected } = this.props
    const from = selected == null || selected < 0 ? this.range[0] : selected
    const aim = this.heights.at(Math.max(0, this.heights.top(from) + step * this.room))
    this.select(aim === from ? from + step : aim)
  }

  pressed = event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.scroller) return
    const actions = {
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      PageDown: () => this.page(1),
      PageUp: () => this.page(-1),
      Home: () => this.select(0),
      End: () => this.select(this.props.count - 1),
      Enter: () => this.props.selected >= 0 && this.props.onOpen?.(this.props.selected),
    }
    const action = actions[event.key]
    if (!action) return
    event.preventDefault()
    event.stopPropagation()
    action()
  }

  clicked = event => {
    const row = event.target.closest('[data-row]')
    if (!row || String(getSelection()) !== '') return
    this.props.onSelect?.(Number(row.dataset.row))
  }

  doubled = event => {
    const row = event.target.closest('[data-row]')
    if (row && !event.target.closest('a, button')) this.props.onOpen?.(Number(row.dataset.row))
  }

  cellsOf(row) {
    let cells = this.cells.get(row)
    if (!cells) {
      if (this.cells.size > 400) this.cells.clear()
      cells = this.props.row(row)
      this.cells.set(row, cells)
    }
    return cells
  }

  rows() {
    const { count, rowClass, rowKey, selected, id, head } = this.props
    if (count === 0) return []
    const { from, heights } = this
    const first = heights.at(Math.max(0, from - MARGIN))
    const scrollTop = from / this.factor
    const rows = []
    let top = heights.top(first) - from + scrollTop
    for (let at = first; at < count && top < scrollTop + this.view + MARGIN; at += 1) {
      rows.push(html`<div key=${rowKey?.(at) ?? at} data-row=${at} id="${id}-${at}" role="row" aria-rowindex=${at + (head ? 2 : 1)}
        aria-selected=${at === selected ? 'true' : 'false'} class="list-row ${rowClass?.(at) ?? ''}"
        style=${{ transform: `translateY(${top}px)` }}>${this.cellsOf(at)}</div>`)
      top += heights.sizes[at]
    }
    return rows
  }

  render({ count, head, empty, id, label, selected, onRange, class: name = '' }) {
    const rows = this.rows()
    onRange?.(...(count ? this.range : [0, -1]))
    const isShown = selected >= 0 && rows.some(row => row.props['data-row'] === selected)
    return html`<div class="list ${name}" role="grid" tabindex="0" aria-label=${label} aria-rowcount=${count + (head ? 1 : 0)}
        aria-activedescendant=${isShown ? `${id}-${selected}` : null} ref=${element => (this.scroller = element ?? this.scroller)}
        onScroll=${this.scrolled} onKeyDown=${this.pressed} onClick=${this.clicked} onDblClick=${this.doubled}>
      ${head && html`<div role="rowgroup" class="list-head" ref=${element => (this.headElement = element)}>
        <div role="row" aria-rowindex="1" class="list-heads">${head}</div></div>`}
      ${count === 0
        ? html`<div role="rowgroup"><div role="row"><div role="gridcell" class="empty">${empty}</div></div></div>`
        : html`<div role="rowgroup" class="list-space" style=${{ height: `${this.height}px` }}
            ref=${element => (this.space = element)}>${rows}</div>`}
    </div>`
  }
}
