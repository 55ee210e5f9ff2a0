// A list of any length of which only the rows in sight exist. Heights are estimated until a row has been drawn, then measured.

import { h } from "./dom.js";

const BEYOND = 400; // pixels above and below the window in which rows are drawn already

export class VirtualList {
  /** `estimate(item)` is a height in pixels, `draw(item)` an element. The list calls `onPaint(first, last)` after each painting. */
  constructor(scroller, { estimate, draw, onPaint = () => {} }) {
    this.scroller = scroller;
    this.space = h("div.space");
    this.estimate = estimate;
    this.draw = draw;
    this.onPaint = onPaint;
    this.items = [];
    this.drawn = new Map();
    this.waiting = 0;
    this.width = 0;
    this.above = 0;
    this.view = 0;
    this.places = new WeakMap();
    scroller.append(this.space);
    scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.space.addEventListener("resized", () => this.measureAll());
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(scroller);
  }

  setItems(items) {
    this.items = items;
    this.heights = new Float64Array(items.length);
    this.offsets = new Float64Array(items.length + 1);
    for (let i = 0; i < items.length; i++) this.heights[i] = this.estimate(items[i]);
    this.sumFrom(0);
    for (const element of this.drawn.values()) element.remove();
    this.drawn.clear();
    this.paint();
  }

  /** The same items and further ones behind them; the last one may have changed. */
  extend(items) {
    const kept = Math.max(0, Math.min(this.items.length - 1, items.length));
    const measured = this.heights.subarray(0, kept);
    this.items = items;
    this.heights = new Float64Array(items.length);
    this.heights.set(measured);
    for (let i = kept; i < items.length; i++) this.heights[i] = this.estimate(items[i]);
    const offsets = new Float64Array(items.length + 1);
    offsets.set(this.offsets.subarray(0, kept + 1));
    this.offsets = offsets;
    this.sumFrom(kept);
    for (const [index, element] of this.drawn) {
      if (index < kept) continue;
      element.remove();
      this.drawn.delete(index);
    }
    this.paint();
  }

  sumFrom(index) {
    for (let i = index; i < this.items.length; i++) this.offsets[i + 1] = this.offsets[i] + this.heights[i];
    this.space.style.setProperty("height", `${this.offsets[this.items.length]}px`);
  }

  /** The row at a height. */
  indexAt(y) {
    let low = 0;
    let high = this.items.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  resized() {
    this.look();
    const width = this.scroller.clientWidth;
    if (width === this.width) {
      this.schedule();
      return;
    }
    this.width = width;
    this.measureAll();
  }

  /** Sizes that only change with the window: to ask for them in each frame would lay the page out once more. */
  look() {
    this.above = this.space.offsetTop;
    this.view = this.scroller.clientHeight;
  }

  paint() {
    if (!this.view) this.look();
    if (!this.items.length) {
      this.onPaint(0, -1);
      return;
    }
    const above = this.above;
    const top = this.scroller.scrollTop - above;
    const anchor = this.indexAt(Math.max(0, top));
    const into = top - this.offsets[anchor];
    const first = this.indexAt(Math.max(0, top - BEYOND));
    const last = this.indexAt(top + this.view + BEYOND);
    for (const [index, element] of this.drawn) {
      if (index < first || index > last) {
        element.remove();
        this.drawn.delete(index);
      }
    }
    const fresh = [];
    const fragment = document.createDocumentFragment();
    for (let index = first; index <= last; index++) {
      if (this.drawn.has(index)) continue;
      const element = this.draw(this.items[index], index);
      this.drawn.set(index, element);
      fresh.push(index);
      fragment.append(element);
    }
    if (fresh.length) {
      this.space.append(fragment);
      this.measure(fresh);
    }
    this.place();
    const wanted = this.offsets[anchor] + into + above;
    if (top > 0 && Math.abs(wanted - this.scroller.scrollTop) > 1) this.scroller.scrollTop = wanted;
    this.onPaint(this.indexAt(Math.max(0, top)), this.indexAt(top + this.view));
  }

  measure(indexes) {
    let changed = Infinity;
    for (const index of indexes) {
      const height = this.drawn.get(index).offsetHeight;
      if (height && Math.abs(height - this.heights[index]) > 0.5) {
        this.heights[index] = height;
        changed = Math.min(changed, index);
      }
    }
    if (changed !== Infinity) this.sumFrom(changed);
  }

  measureAll() {
    this.measure([...this.drawn.keys()]);
    this.place();
    this.schedule();
  }

  /** Rows whose place is the one they have are left alone. */
  place() {
    for (const [index, element] of this.drawn) {
      const at = this.offsets[index];
      if (this.places.get(element) === at) continue;
      this.places.set(element, at);
      element.style.setProperty("transform", `translateY(${at}px)`);
    }
  }

  /** Scroll so that a row is in sight, in the middle of the window where it was not. */
  show(index) {
    if (index < 0 || index >= this.items.length) return;
    const above = this.space.offsetTop;
    const view = this.scroller.clientHeight;
    for (let round = 0; round < 3; round++) {
      const top = this.offsets[index] + above;
      const bottom = top + this.heights[index];
      const now = this.scroller.scrollTop;
      if (top >= now + above && bottom <= now + view) break;
      this.scroller.scrollTop = Math.max(0, top - view / 3);
      this.paint();
    }
  }

  close() {
    this.observer.disconnect();
  }
}
