// The list of exchanges, newest first, those in flight among them; and the same as trees of sessions and agents.

import { getRows, getSessions } from "./data.js";
import { brief, fill, h } from "./dom.js";
import { pill } from "./exchange.js";
import { clockTime, count, route, shortRoute, summary } from "./words.js";

const KNOWN = new Set(["session", "agent", "model", "upstream", "program", "outcome", "verdict", "kind", "repaired", "since", "until"]);
const QUICK = [["", "All"], ["verdict:live", "In flight"], ["repaired:yes", "Repaired"], ["verdict:echo", "Echo"], ["verdict:error", "Errors"], ["kind:refused", "Refused"]];
const MOST = 2000;

/** `model:kimi repaired:yes some words` as the parameters of the gateway's list. */
export function parseSearch(text) {
  const filters = {};
  const words = [];
  for (const word of text.trim().split(/\s+/)) {
    const [name, ...rest] = word.split(":");
    const value = rest.join(":");
    if (KNOWN.has(name) && value) filters[name] = name === "repaired" ? (/^(?:no|0|false)$/i.test(value) ? "0" : "1") : value;
    else if (word) words.push(word);
  }
  if (words.length) filters.q = words.join(" ");
  return filters;
}

/** A part of a name, or a pattern with `*`. */
function isLike(pattern, name) {
  const parts = pattern.toLowerCase().split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return parts.length > 1 ? new RegExp(`^${parts.join(".*")}$`, "s").test(name.toLowerCase()) : name.toLowerCase().includes(pattern.toLowerCase());
}

/** For each filter whether it lets a row through. The gateway decides in the same way (`Filter.holds`). */
const FILTERS = {
  q: (row, words) => {
    const all = [row.id, row.model, row.upstream, row.upstream_model, row.session, row.program, row.error, row.outcome, row.format].join(" ").toLowerCase();
    return words.toLowerCase().split(/\s+/).every((word) => all.includes(word));
  },
  id: (row, value) => row.id.startsWith(value),
  session: (row, value) => row.session.startsWith(value),
  program: (row, value) => isLike(value, row.program),
  model: (row, value) => isLike(value, row.model) || isLike(value, row.upstream_model),
  upstream: (row, value) => isLike(value, row.upstream),
  outcome: (row, value) => [row.outcome, row.verdict, row.kind === "served" ? "" : row.kind, row.error, String(row.status)].includes(value),
  repaired: (row, value) => value !== "1" || Boolean(row.repairs || row.text_calls || row.echoes),
  since: (row, value) => row.at >= Number(value),
  until: (row, value) => row.at <= Number(value),
};

/** Does a row that came live belong into the list as it is filtered now? */
export function fits(row, filters) {
  return Object.entries(filters).every(([name, value]) => (FILTERS[name] ? FILTERS[name](row, value) : row[name] === undefined || String(row[name]) === value));
}

export class ExchangeList {
  /** `onDraw` is told when the list shows something else. */
  constructor({ onOpen, onSearch, onDraw }) {
    this.rows = new Map();
    this.onOpen = onOpen;
    this.onSearch = onSearch;
    this.onDraw = onDraw;
    this.filters = {};
    this.search = "";
    this.mode = "time";
    this.selected = "";
    this.next = null;
    this.sessions = [];
    this.closed = new Set();
    this.body = h("div.rows", { role: "listbox", "aria-label": "exchanges", tabindex: "0" });
    this.quick = QUICK.map(([search, label]) => h("button.chip", { type: "button", data: { search }, onclick: () => this.onSearch(search) }, label));
    this.modes = [["time", "By time"], ["sessions", "Sessions"]].map(([mode, label]) => h("button.chip", { type: "button", data: { mode }, onclick: () => this.setMode(mode) }, label));
    this.element = h("nav.list", { "aria-label": "exchanges" }, h("div.list-head", h("div.chips", { role: "group", "aria-label": "filter" }, this.quick), h("div.chips", { role: "group", "aria-label": "grouping" }, this.modes)), this.body);
    this.drawHead();
  }

  drawHead() {
    for (const chip of this.quick) chip.setAttribute("aria-pressed", String(chip.dataset.search === this.search));
    for (const chip of this.modes) chip.setAttribute("aria-pressed", String(chip.dataset.mode === this.mode));
  }

  setMode(mode) {
    this.mode = mode;
    this.drawHead();
    if (mode === "sessions") this.loadSessions().then(() => this.draw());
    this.draw();
  }

  async loadSessions() {
    this.sessions = (await getSessions()).sessions;
  }

  async load(search) {
    this.search = search;
    this.filters = parseSearch(search);
    this.drawHead();
    const asked = this.filters;
    const answer = await getRows(asked);
    if (asked !== this.filters) return answer;
    this.rows = new Map(answer.rows.map((row) => [row.id, row]));
    this.next = answer.next;
    this.total = answer.total;
    this.loaded = true;
    if (this.mode === "sessions") await this.loadSessions();
    this.draw();
    return answer;
  }

  async loadMore() {
    const answer = await getRows({ ...this.filters, cursor: this.next });
    for (const row of answer.rows) this.rows.set(row.id, row);
    this.next = answer.next;
    this.draw();
  }

  /** A row began, changed or ended. */
  put(row) {
    if (fits(row, this.filters)) this.rows.set(row.id, row);
    else this.rows.delete(row.id);
    this.schedule();
  }

  /** A row in flight is further on. Nothing is drawn anew: who is about to click it does. */
  grow(row) {
    if (!this.rows.has(row.id)) return;
    this.rows.set(row.id, row);
    const element = this.body.querySelector(`.row[data-id="${CSS.escape(row.id)}"]`);
    if (!element) return;
    fill(element.querySelector(".m"), shortRoute(row));
    fill(element.querySelector(".s"), summary(row));
  }

  drop(id) {
    this.rows.delete(id);
    this.schedule();
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  ordered() {
    return [...this.rows.values()].sort((a, b) => b.at - a.at).slice(0, MOST);
  }

  select(id) {
    this.selected = id;
    for (const element of this.body.querySelectorAll(".row")) this.markRow(element);
    this.body.querySelector(".row.on")?.scrollIntoView({ block: "nearest" });
  }

  markRow(element) {
    const on = element.dataset.id === this.selected;
    element.classList.toggle("on", on);
    element.setAttribute("aria-selected", String(on));
  }

  /** Choose another row. The list has the focus then, so that `enter` opens the row and presses no button. */
  move(by) {
    this.body.focus({ preventScroll: true });
    const ids = [...this.body.querySelectorAll(".row")].map((element) => element.dataset.id);
    const now = ids.indexOf(this.selected);
    const next = ids[now < 0 ? 0 : Math.max(0, Math.min(ids.length - 1, now + by))];
    if (next !== undefined) this.select(next);
    return next;
  }

  draw() {
    if (!this.loaded) return;
    const rows = this.ordered();
    if (!rows.length) fill(this.body, this.search ? h("div.empty.small", h("p", "No exchange is like that."), h("button.chip", { type: "button", onclick: () => this.onSearch("") }, "Show all")) : h("div.empty.small", h("p", "No exchange yet.")));
    else if (this.mode === "sessions") fill(this.body, this.tree(rows));
    else fill(this.body, rows.map((row) => this.row(row)));
    if (this.next) this.body.append(h("button.more.older", { type: "button", onclick: () => this.loadMore() }, "Older exchanges"));
    for (const element of this.body.querySelectorAll(".row")) this.markRow(element);
    this.onDraw();
  }

  row(row, depth = 0) {
    const element = h("a.row", { href: `#/x/${encodeURIComponent(row.id)}`, role: "option", data: { id: row.id, depth: String(depth) }, onclick: (event) => {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      this.onOpen(row.id);
    } },
    h("span.t", clockTime(row.at)), h("span.m", { title: route(row) }, shortRoute(row)), pill(row), h("span.s", summary(row)));
    element.style.setProperty("--depth", String(Math.min(depth, 5)));
    return element;
  }

  tree(rows) {
    const bySession = new Map();
    for (const row of rows) {
      const key = row.session || "";
      if (!bySession.has(key)) bySession.set(key, []);
      bySession.get(key).push(row);
    }
    return [...bySession].sort(([a], [b]) => Number(a === "") - Number(b === "")).map(([id, own]) => this.session(id, own));
  }

  session(id, rows) {
    const known = this.sessions.find((session) => session.id === id);
    const group = h("details.session", { open: !this.closed.has(id), ontoggle: (event) => (event.target.open ? this.closed.delete(id) : this.closed.add(id)) },
      h("summary", h("b", id ? brief(known?.program || rows[0].program || "session") : "without a session"), id ? h("code", brief(id)) : null,
        h("span.counts", count(known?.exchanges ?? rows.length, "request") + (known?.errors ? ` · ${count(known.errors, "error")}` : "") + (known?.repaired ? ` · ${known.repaired} repaired` : ""))));
    const agents = new Map();
    for (const row of rows) {
      if (!agents.has(row.agent)) agents.set(row.agent, { id: row.agent, parent: row.parent, rows: [] });
      agents.get(row.agent).rows.push(row);
    }
    for (const agent of known?.agents ?? []) if (agents.has(agent.id)) agents.get(agent.id).parent ||= agent.parent;
    const drawn = new Set();
    const draw = (agent, depth) => {
      if (drawn.has(agent.id)) return;
      drawn.add(agent.id);
      if (depth) {
        const line = h("div.agent", h("span", "sub-agent "), h("code", brief(agent.id)), h("span.counts", count(agent.rows.length, "request")));
        line.style.setProperty("--depth", String(Math.min(depth, 5)));
        group.append(line);
      }
      for (const row of agent.rows) group.append(this.row(row, depth));
      for (const other of agents.values()) if (other.parent === agent.id && other.id !== agent.id) draw(other, depth + 1);
    };
    for (const agent of agents.values()) if (!agent.parent || !agents.has(agent.parent)) draw(agent, agent.parent ? 1 : 0);
    for (const agent of agents.values()) draw(agent, 1);
    return group;
  }
}
