// The three lanes: what upstreams sent, what was understood, what the client got; one row for every step, on one time axis.

import { brief, h, longText, svg } from "./dom.js";
import { Links, callNames, essential, eventWords, groupsOf, stepsOf } from "./steps.js";
import { VirtualList } from "./virtual.js";
import { bytes, count, millis, seconds } from "./words.js";

const SHOWN = 700; // characters of a box before it is cut
const GROUPS = 14; // boxes of one step and lane before they are cut
const BINS = 240;
const QUIET_S = 1;
const MARKUP = /<\|[^<>\n]{1,60}?\|>|<｜[^<>\n]{1,60}?｜>|<\/?[A-Za-z_:]*(?:tool_call|tool_use|function|invoke|parameter|arg_key|arg_value|tool)[A-Za-z_:]*(?:[ =][^<>\n]{0,80})?>|\[TOOL_CALLS\]|\[ARGS\]|\[CALL_ID\]/g;
export const MARK_NAMES = {
  text_call: "call in text", repair: "repaired", hold: "held", drop: "dropped", invented_id: "id made up", echo: "echo",
  bad_call: "bad call", finish: "finish", error: "error", keep_alive: "keep alive", retry: "retry",
};
export const MARK_TONES = {
  text_call: "warn", repair: "warn", hold: "hold", drop: "warn", invented_id: "note", echo: "warn", bad_call: "bad", finish: "note",
  error: "bad", keep_alive: "note", retry: "warn",
};

export class Lanes {
  /** `onSelect(step number)` is told when a person chooses a step. */
  constructor(view, { onSelect = () => {}, selected = null } = {}) {
    this.view = view;
    this.all = stepsOf(view);
    this.links = new Links(view);
    this.names = callNames(view);
    this.onSelect = onSelect;
    this.raw = false;
    this.find = "";
    this.only = "all";
    this.selected = selected;
    this.map = new TimeMap(this.all, (t) => this.showTime(t));
    this.scroller = h("div.lanes", { tabindex: "0", "aria-label": "steps of the exchange", role: "region" });
    this.scroller.append(
      h("div.lane-heads", h("span", "time"), h("span", "the upstream sent"), h("i"), h("span", "athena understood"), h("i"), h("span", "the client received")),
    );
    this.nothing = h("p.nothing", { hidden: true }, "No step is like that.");
    this.scroller.append(this.nothing);
    this.list = new VirtualList(this.scroller, {
      estimate: (step) => this.estimate(step),
      draw: (step) => this.draw(step),
      onPaint: (first, last) => this.painted(first, last),
    });
    this.element = h("div.lanes-view", this.tools(), this.map.element, this.scroller);
    this.scroller.addEventListener("pointerover", (event) => this.hover(event.target));
    this.scroller.addEventListener("pointerleave", () => this.highlight(null));
    this.scroller.addEventListener("click", (event) => this.click(event));
    this.steps = this.all;
  }

  /** Call it when the element is in the page: only then rows have heights. */
  start() {
    this.list.setItems(this.steps);
    if (this.selected !== null) this.select(this.selected, true);
  }

  close() {
    this.list.close();
  }

  /** The same exchange, in flight, further on: what was drawn stays, and who looks at its end goes on looking there. */
  grow(view) {
    this.view = view;
    this.all = stepsOf(view);
    this.links = new Links(view);
    this.names = callNames(view);
    const map = new TimeMap(this.all, (t) => this.showTime(t));
    this.map.element.replaceWith(map.element);
    this.map = map;
    this.chips[0].textContent = `all ${this.all.length.toLocaleString("en")} steps`;
    if (this.steps.length && (this.only !== "all" || this.search.value.trim())) return;
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    this.steps = this.all;
    this.list.extend(this.steps);
    if (scrollTop + clientHeight > scrollHeight - 8) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  // -- the bar above ---------------------------------------------------------------------------------------------------------

  tools() {
    const marked = this.all.filter((step) => step.marks.length).length;
    const chips = [["all", `all ${this.all.length.toLocaleString("en")} steps`], ["marks", `marked ${marked}`], ["calls", "calls"]];
    this.chips = chips.map(([kind, label]) =>
      h("button.chip", { type: "button", data: { only: kind }, "aria-pressed": String(kind === this.only), onclick: () => this.choose(kind) }, label),
    );
    this.rawButton = h("button.chip", { type: "button", "aria-pressed": "false", title: "b", onclick: () => this.toggleRaw() }, "every byte");
    this.search = h("input.find", { type: "search", placeholder: "find in the lanes", "aria-label": "find in the lanes", oninput: () => this.filter() });
    const steps = h("span.stepper",
      h("button.chip", { type: "button", title: "p", "aria-label": "previous mark", onclick: () => this.nextMark(-1) }, "‹"),
      h("span", "marks"),
      h("button.chip", { type: "button", title: "n", "aria-label": "next mark", onclick: () => this.nextMark(1) }, "›"));
    return h("div.lane-tools", h("div.chips", { role: "group", "aria-label": "which steps" }, this.chips), marked ? steps : null, h("span.grow"), this.search, this.rawButton);
  }

  choose(kind) {
    this.only = kind;
    for (const chip of this.chips) chip.setAttribute("aria-pressed", String(chip.dataset.only === kind));
    this.filter();
  }

  toggleRaw() {
    this.raw = !this.raw;
    this.rawButton.setAttribute("aria-pressed", String(this.raw));
    const chosen = this.steps.findIndex((step) => step.number === this.selected);
    const stays = this.list.drawn.has(chosen) ? chosen : this.list.indexAt(this.scroller.scrollTop);
    this.list.setItems(this.steps);
    this.list.show(stays);
  }

  filter() {
    const words = this.search.value.trim().toLowerCase();
    const holds = (text) => text.toLowerCase().includes(words);
    const fits = (step) => {
      if (this.only === "marks" && !step.marks.length) return false;
      if (this.only === "calls" && !step.events.some((item) => item.event.event.startsWith("ToolCall"))) return false;
      if (!words) return true;
      return (
        step.reads.some((item) => holds(item.text + item.note)) ||
        step.writes.some((item) => holds(item.text)) ||
        step.events.some((item) => holds(JSON.stringify(item.event))) ||
        step.marks.some((mark) => holds(mark.rule + " " + mark.text))
      );
    };
    this.steps = this.only === "all" && !words ? this.all : this.all.filter(fits);
    this.nothing.hidden = this.steps.length > 0;
    this.scroller.scrollTop = 0;
    this.list.setItems(this.steps);
  }

  // -- choosing --------------------------------------------------------------------------------------------------------------

  select(number, quietly = false) {
    const index = this.steps.findIndex((step) => step.number === number);
    if (index < 0) return;
    this.selected = number;
    this.list.show(index);
    this.highlight(this.steps[index]);
    if (!quietly) this.onSelect(number);
  }

  move(by) {
    const now = this.steps.findIndex((step) => step.number === this.selected);
    const next = now < 0 ? this.list.indexAt(this.scroller.scrollTop) : Math.max(0, Math.min(this.steps.length - 1, now + by));
    if (this.steps[next]) this.select(this.steps[next].number);
  }

  nextMark(by) {
    const now = this.steps.findIndex((step) => step.number === this.selected);
    for (let index = now < 0 ? (by > 0 ? 0 : this.steps.length - 1) : now + by; index >= 0 && index < this.steps.length; index += by) {
      if (this.steps[index].marks.length) {
        this.select(this.steps[index].number);
        return;
      }
    }
  }

  showTime(t) {
    let best = 0;
    for (let index = 0; index < this.steps.length; index++) if (this.steps[index].t <= t) best = index;
    if (this.steps[best]) this.select(this.steps[best].number);
  }

  click(event) {
    const row = event.target.closest(".step");
    if (row === null || event.target.closest("button, a") || String(getSelection())) return;
    this.select(Number(row.dataset.step));
  }

  hover(target) {
    const row = target.closest?.(".step");
    this.highlight(row ? this.steps.find((step) => step.number === Number(row.dataset.step)) : null);
  }

  highlight(step) {
    const shown = step || this.steps.find((candidate) => candidate.number === this.selected) || null;
    this.linked = shown ? this.links.of(shown) : null;
    for (const row of this.list.drawn.values()) this.mark(row);
  }

  mark(row) {
    const number = Number(row.dataset.step);
    row.classList.toggle("on", number === this.selected);
    if (!this.linked && !row.dataset.linked) return;
    row.dataset.linked = "1";
    for (const lane of ["up", "ev", "cl"]) {
      row.querySelector(`.lane.${lane}`).classList.toggle("linked", Boolean(this.linked) && this.linked[lane].has(number));
    }
  }

  painted(first, last) {
    if (this.steps.length) this.map.window(this.steps[first].t, this.steps[Math.max(first, last)].t);
  }

  // -- drawing ---------------------------------------------------------------------------------------------------------------

  estimate(step) {
    const length = (items) => items.reduce((sum, item) => sum + Math.min(SHOWN, item.text ? item.text.length : 40), 0);
    const perLine = 38;
    const up = Math.ceil((this.raw ? length(step.reads) : length(step.reads) / 5) / perLine) + step.reads.length;
    const cl = Math.ceil((this.raw ? length(step.writes) : length(step.writes) / 2) / perLine) + step.writes.length;
    const ev = Math.min(GROUPS, step.events.length) + 2 * step.marks.length;
    return 26 + 18 * Math.max(1, up, cl, ev);
  }

  draw(step) {
    const tone = step.marks.map((mark) => MARK_TONES[mark.kind] || "note");
    const strong = tone.includes("bad") ? "bad" : tone.includes("warn") ? "warn" : "";
    const row = h("div.step", { data: { step: String(step.number), t: String(step.t) } },
      h("div.time", step.gap >= QUIET_S ? h("span.quiet", `${millis(step.gap * 1000)} of silence`) : null, h("span.at", seconds(step.t)), h("a.number", { href: this.linkTo(step) }, `step ${step.number}`)),
      h("div.lane.up", { data: { lane: "upstream" } }, step.reads.map((item) => this.drawRead(item, step, strong))),
      h("div.link", step.reads.length && (step.events.length || step.marks.length) ? h("i") : null),
      h("div.lane.ev", { data: { lane: "understood" } }, this.drawEvents(step)),
      h("div.link" + (step.held ? `.held-${step.held}` : ""), step.writes.length && (step.events.length || step.held) ? h("i") : null),
      h("div.lane.cl", { data: { lane: "client" } }, step.writes.map((item) => this.drawWrite(item, step))),
    );
    this.mark(row);
    return row;
  }

  linkTo(step) {
    return `#/x/${encodeURIComponent(this.view.row.id)}/lanes/${step.number}`;
  }

  drawRead(item, step, strong) {
    if (item.kind !== "read") {
      const words = { attempt: `attempt ${item.attempt}`, head: `status ${item.status}`, end: "end", tick: "time is up", keep_alive: "keep alive", stop: "stopped" }[item.kind];
      const bad = item.status >= 400 || item.kind === "stop" || (item.kind === "end" && item.note);
      return h("div.moment" + (bad ? ".bad" : ""), h("b", words || item.kind), item.note ? longText(item.note, 300) : null);
    }
    const looked = step.marks.some((mark) => mark.kind !== "finish" && mark.kind !== "keep_alive");
    return h("div.box" + (looked && strong ? `.${strong}` : looked ? ".hold" : ""), { data: { size: bytes(item.size) } }, this.drawBytes(item.text, true));
  }

  drawBytes(text, markup) {
    const shown = this.raw ? text : essential(text) ?? text;
    if (!markup || shown.length > 4 * SHOWN) return longText(shown, SHOWN);
    const pieces = [];
    let last = 0;
    for (const found of shown.matchAll(MARKUP)) {
      pieces.push(shown.slice(last, found.index), h("mark", found[0]));
      last = found.index + found[0].length;
    }
    if (!pieces.length) return longText(shown, SHOWN);
    pieces.push(shown.slice(last));
    return h("span.long", pieces);
  }

  drawWrite(item, step) {
    const calls = step.events.some((event) => event.event.event.startsWith("ToolCall"));
    const later = item.first_event !== null && item.first_event !== undefined && this.links.eventStep.get(item.first_event) < step.number;
    return h("div.box" + (item.status >= 400 ? ".bad" : calls ? ".call" : ""), { data: { size: bytes(item.size) } },
      item.status ? h("small.status", `status ${item.status}`) : null,
      this.drawBytes(item.text, false),
      later ? h("small", `tells what was understood in step ${this.links.eventStep.get(item.first_event)}`) : null);
  }

  drawEvents(step) {
    const groups = groupsOf(step.events);
    const boxes = [];
    const marks = new Set(step.marks);
    for (const group of groups.slice(0, GROUPS)) {
      const own = step.marks.filter((mark) => group.items.some((item) => item.number === mark.event));
      for (const mark of own) marks.delete(mark);
      boxes.push(this.drawGroup(group, own));
    }
    if (groups.length > GROUPS) {
      const more = h("button.more", { type: "button", onclick: () => {
        const rest = groups.slice(GROUPS).map((group) => this.drawGroup(group, []));
        more.replaceWith(...rest);
        rest[0].dispatchEvent(new CustomEvent("resized", { bubbles: true }));
      } }, `show ${groups.length - GROUPS} more`);
      boxes.push(more);
    }
    // A mark of no event, or of an event of another step: something was held, dropped or derived here.
    for (const mark of marks) boxes.push(h("div.box.alone." + (MARK_TONES[mark.kind] || "note"), this.drawMark(mark)));
    return boxes;
  }

  drawGroup(group, marks) {
    const first = group.items[0].number;
    const last = group.items[group.items.length - 1].number;
    const number = h("span.numbers", first === last ? `#${first}` : `#${first}–${last}`);
    const parts = [];
    if (group.kind === "text" || group.kind === "thinking" || group.kind === "refusal") {
      const joined = group.items.map((item) => item.event.text || "").join("");
      const signed = group.items.some((item) => item.event.signature);
      parts.push(h("div.title", h("b", group.kind + (signed ? " · signed" : "")), number), joined ? longText(joined, SHOWN) : null);
    } else if (group.kind === "call") {
      const words = group.items.map((item) => eventWords(item.event, this.names));
      const starts = group.items.find((item) => item.event.event === "ToolCallStart");
      const complete = group.items.find((item) => item.event.event === "ToolCallComplete");
      const deltas = group.items.filter((item) => item.event.event === "ToolCallDelta").map((item) => item.event.arguments).join("");
      const name = brief(this.names.get(group.call) ?? String(group.call));
      const happened = [starts ? "starts" : "", complete ? "complete" : ""].filter(Boolean).join(" and is ");
      parts.push(h("div.title", h("b", starts || complete ? `call ${name} ${happened}` : words[0][0]), number));
      if (starts) parts.push(h("small", `id ${brief(starts.event.id)}`));
      if (deltas) parts.push(longText(deltas, SHOWN));
      // The pieces of a repaired call are most often repaired already.
      if (complete && (!deltas || (complete.event.repaired && !complete.event.arguments.endsWith(deltas)))) parts.push(h("div", longText(complete.event.arguments, SHOWN)));
    } else {
      for (const item of group.items.slice(0, 4)) {
        const [title, text] = eventWords(item.event, this.names);
        parts.push(h("div.title", h("b", title), item === group.items[0] ? number : null), text ? longText(text, 300) : null);
      }
    }
    return h(`div.box.${group.kind}`, parts, marks.map((mark) => this.drawMark(mark)));
  }

  drawMark(mark) {
    const name = MARK_NAMES[mark.kind] || mark.kind;
    const rule = brief(mark.rule, 80);
    return h("small.mark-line." + (MARK_TONES[mark.kind] || "note"), h("span.rule", rule && rule !== name ? `${name} · ${rule}` : name), " ", longText(mark.text, 300));
  }
}

/** The whole exchange on one axis: three strips of bars and a window that shows which part the lanes show. */
class TimeMap {
  constructor(steps, onTime) {
    this.end = Math.max(0.001, ...lastOf(steps));
    const strips = [["up", 0], ["ev", 1], ["cl", 2]];
    // An element of its own: moving it must not draw the bars anew.
    this.frame = h("div.window");
    const drawing = svg("svg", { viewBox: "0 0 1000 54", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const [lane, row] of strips) {
      for (const [tone, path] of this.bars(steps, lane, row * 18 + 16)) drawing.append(svg("path", { class: `bar ${lane} ${tone}`, d: path }));
      drawing.append(svg("path", { class: "base", d: `M0 ${row * 18 + 16.5}H1000` }));
    }
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", share ? millis(share * this.end * 1000) : "0"));
    this.element = h("div.map",
      h("div.map-names", h("span", "upstream"), h("span", "understood"), h("span", "client")),
      h("div.map-plot", { onclick: (event) => {
        const box = drawing.getBoundingClientRect();
        onTime(((event.clientX - box.left) / box.width) * this.end);
      }, role: "img", "aria-label": `${count(steps.length, "step")} in ${millis(this.end * 1000)}` }, drawing, this.frame, h("div.ticks", ticks)));
  }

  bars(steps, lane, base) {
    const sums = new Map();
    for (const step of steps) {
      const bin = Math.min(BINS - 1, Math.floor((step.t / this.end) * BINS));
      for (const [tone, size] of weights(step, lane)) {
        const bins = sums.get(tone) ?? sums.set(tone, new Float64Array(BINS)).get(tone);
        bins[bin] += size;
      }
    }
    const most = Math.log1p(Math.max(1, ...[...sums.values()].map((bins) => Math.max(...bins))));
    const width = 1000 / BINS;
    return [...sums].sort(([a], [b]) => TONES.indexOf(a) - TONES.indexOf(b)).map(([tone, bins]) => {
      let path = "";
      bins.forEach((size, bin) => {
        if (!size) return;
        const height = Math.max(2.5, (14 * Math.log1p(size)) / most);
        path += `M${(bin * width + 0.4).toFixed(1)} ${base}h${(width - 0.8).toFixed(1)}v-${height.toFixed(1)}h-${(width - 0.8).toFixed(1)}z`;
      });
      return [tone, path];
    });
  }

  window(from, to) {
    const x = Math.min(0.994, from / this.end);
    const width = Math.min(Math.max(0.006, (to - from) / this.end), 1 - x);
    const shown = `translateX(${(100 * x).toFixed(2)}%) scaleX(${width.toFixed(4)})`;
    if (shown === this.shown) return;
    this.shown = shown;
    this.frame.style.setProperty("transform", shown);
  }
}

const TONES = ["plain", "thinking", "call", "warn", "bad"];

function* lastOf(steps) {
  if (steps.length) yield steps[steps.length - 1].t;
}

function toneOf(step) {
  if (step.marks.some((mark) => MARK_TONES[mark.kind] === "bad")) return "bad";
  if (step.marks.some((mark) => MARK_TONES[mark.kind] === "warn" || mark.kind === "hold")) return "warn";
  if (step.events.some((item) => item.event.event.startsWith("ToolCall"))) return "call";
  return step.events.some((item) => item.event.event === "ThinkingDelta") ? "thinking" : "plain";
}

function weights(step, lane) {
  const tone = toneOf(step);
  if (lane === "up") return step.reads.length ? [[tone, 1 + step.reads.reduce((sum, item) => sum + item.size, 0)]] : [];
  if (lane === "cl") return step.writes.length ? [[tone, 1 + step.writes.reduce((sum, item) => sum + item.size, 0)]] : [];
  return step.events.length || step.marks.length ? [[tone, 1 + step.events.length]] : [];
}

/** Events alone, as text lines with their numbers: for comparing two runs. */
export function eventBox(event, names) {
  if (event === null || event === undefined) return h("div.box.none", "nothing");
  const inner = event.event !== null && typeof event.event === "object" ? event.event : event;
  const [title, text] = eventWords(inner, names);
  const kind = inner.event.startsWith("ToolCall") ? "call" : inner.event === "Error" ? "error" : inner.event === "ThinkingDelta" ? "thinking" : "text";
  return h(`div.box.${kind}`, h("div.title", h("b", title)), text ? longText(text, SHOWN) : null);
}
