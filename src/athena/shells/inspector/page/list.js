// The list of exchanges, newest first, those in flight among them; and the same as trees of sessions and agents.

import { getRows, getSessions } from "./data.js";
import { arrange, brief, fill, h } from "./dom.js";
import { pill } from "./exchange.js";
import { clockTime, count, route, shortRoute, summary } from "./words.js";

const KNOWN = new Set(["session", "agent", "model", "upstream", "program", "outcome", "verdict", "kind", "repaired", "since", "until"]);
const QUICK = [["", "All"], ["verdict:live", "In flight"], ["repaired:yes", "Repaired"], ["verdict:echo", "Echo"], ["verdict:error", "Errors"], ["kind:refused", "Refused"]];
const MOST = 2000;
const SESSIONS_MS = 1000;

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
  constructor({ onOpen, onSearch, onMode, onDraw }) {
    this.rows = new Map();
    this.onOpen = onOpen;
    this.onSearch = onSearch;
    this.onMode = onMode;
    this.onDraw = onDraw;
    this.filters = {};
    this.search = "";
    this.mode = "time";
    this.selected = "";
    this.next = null;
    this.isCut = false;
    this.sessions = [];
    this.closed = new Set();
    this.parts = new Map();
    this.isPressed = false;
    this.pushed = -9;
    this.made = 0;
    this.news = null;
    this.body = h("div.rows", { role: "listbox", "aria-label": "exchanges", tabindex: "0" });
    this.quick = QUICK.map(([search, label]) => h("button.chip", { type: "button", data: { search }, onclick: () => this.onSearch(search) }, label));
    this.modes = [["time", "By time"], ["sessions", "Sessions"]].map(([mode, label]) => h("button.chip", { type: "button", data: { mode }, onclick: () => this.onMode(mode) }, label));
    this.element = h("nav.list", { "aria-label": "exchanges" }, h("div.list-head", h("div.chips", { role: "group", "aria-label": "filter" }, this.quick), h("div.chips", { role: "group", "aria-label": "grouping" }, this.modes)), this.body);
    this.drawHead();
    // Who points at a row keeps it under the pointer while others come above it; who leaves sees the newest again.
    this.body.addEventListener("pointerenter", () => { this.pushed = this.body.scrollTop < 4 ? this.body.scrollTop : -9; });
    this.body.addEventListener("pointerleave", () => { if (this.wasPushed) this.body.scrollTop = 0; });
    this.body.addEventListener("pointerdown", () => { this.isPressed = true; });
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => this.released());
  }

  /** Is the list where the rows that came pushed it, from its top, and nobody scrolled it? */
  get wasPushed() {
    return Math.abs(this.body.scrollTop - this.pushed) < 4;
  }

  /** A click belongs to the row on which it began: nothing moves between its two halves. */
  released() {
    if (this.isPressed) this.schedule();
    this.isPressed = false;
  }

  drawHead() {
    for (const chip of this.quick) chip.setAttribute("aria-pressed", String(chip.dataset.search === this.search));
    for (const chip of this.modes) chip.setAttribute("aria-pressed", String(chip.dataset.mode === this.mode));
  }

  setMode(mode) {
    this.mode = mode;
    this.drawHead();
    if (mode === "sessions") this.loadSessions();
    this.draw();
  }

  /** What the gateway knows of the sessions; the rows here may be only some of theirs. */
  async loadSessions() {
    const answer = await getSessions().catch(() => null);
    if (answer === null) return;
    this.sessions = answer.sessions;
    this.schedule();
  }

  /** Figures of sessions change with every request: they are asked for again, but not for each. */
  sessionsChanged() {
    if (this.mode !== "sessions" || this.sessionsWait) return;
    this.sessionsWait = setTimeout(() => {
      this.sessionsWait = 0;
      this.loadSessions();
    }, SESSIONS_MS);
  }

  async load(search) {
    this.search = search;
    this.filters = parseSearch(search);
    this.drawHead();
    const news = (this.news = []);
    const answer = await getRows(this.filters).finally(() => {
      if (news === this.news) this.news = null;
      else news.isOld = true;
    });
    if (news.isOld) return answer;
    this.rows = new Map(answer.rows.map((row) => [row.id, row]));
    this.next = answer.next;
    this.isCut = false;
    this.loaded = true;
    // What happened while the gateway was asked may be newer than its answer.
    for (const change of news) change();
    if (this.mode === "sessions") this.loadSessions();
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
    this.news?.push(() => this.put(row));
    if (fits(row, this.filters)) this.rows.set(row.id, row);
    else this.rows.delete(row.id);
    this.sessionsChanged();
    this.schedule();
  }

  /** A row in flight is further on. */
  grow(row) {
    if (!this.rows.has(row.id)) return;
    this.rows.set(row.id, row);
    this.schedule();
  }

  drop(id) {
    this.news?.push(() => this.drop(id));
    this.rows.delete(id);
    this.sessionsChanged();
    this.schedule();
  }

  schedule() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  /** The rows, the newest first. A page that is open for days forgets the oldest. */
  ordered() {
    const rows = [...this.rows.values()].sort((a, b) => b.at - a.at);
    for (const row of rows.splice(MOST)) {
      this.rows.delete(row.id);
      this.isCut = true;
    }
    return rows;
  }

  select(id) {
    this.selected = id;
    this.body.removeAttribute("aria-activedescendant");
    for (const element of this.body.querySelectorAll(".row")) this.markRow(element);
    this.body.querySelector(".row.on")?.scrollIntoView({ block: "nearest" });
  }

  markRow(element) {
    const on = element.dataset.id === this.selected;
    element.classList.toggle("on", on);
    element.setAttribute("aria-selected", String(on));
    if (on) this.body.setAttribute("aria-activedescendant", element.id);
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

  /** Elements stay what they are as long as they show the same thing: a person may be about to click one, or have the focus there. */
  draw() {
    if (!this.loaded || this.isPressed) return;
    const rows = this.ordered();
    const wasPushed = this.wasPushed;
    const pointed = this.body.querySelector(".row:hover");
    const at = pointed ? pointed.getBoundingClientRect().top : 0;
    this.used = new Set();
    let shown;
    if (!rows.length) shown = [this.search ? h("div.empty.small", h("p", "No exchange is like that."), h("button.chip", { type: "button", onclick: () => this.onSearch("") }, "Show all")) : h("div.empty.small", h("p", "No exchange yet."))];
    else if (this.mode === "sessions") shown = this.tree(rows);
    else shown = rows.map((row) => this.row(row));
    if (this.isCut) shown.push(this.part("cut", () => h("p.quiet-text.older", `The newest ${MOST.toLocaleString("en")} are listed. Search for older ones.`)));
    else if (this.next) shown.push(this.part("older", () => h("button.more.older", { type: "button", onclick: () => this.loadMore() }, "Older exchanges")));
    arrange(this.body, shown);
    for (const key of this.parts.keys()) if (!this.used.has(key)) this.parts.delete(key);
    if (pointed?.isConnected) this.body.scrollTop += pointed.getBoundingClientRect().top - at;
    else if (pointed && wasPushed) this.body.scrollTop = 0;
    if (wasPushed) this.pushed = this.body.scrollTop;
    for (const element of this.body.querySelectorAll(".row")) this.markRow(element);
    this.onDraw();
  }

  /** The element that stands for something, made where there is none yet. */
  part(key, make) {
    this.used.add(key);
    if (!this.parts.has(key)) this.parts.set(key, make());
    return this.parts.get(key);
  }

  row(row, depth = 0) {
    const element = this.part(`row ${row.id}`, () => h("a.row", { id: `row-${(this.made += 1)}`, href: `#/x/${encodeURIComponent(row.id)}`, role: "option", data: { id: row.id }, onclick: (event) => {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      this.onOpen(row.id);
    } }, h("span.t", clockTime(row.at)), h("span.m"), h("span.pill"), h("span.s")));
    if (element.shown !== row) {
      element.shown = row;
      const [, model, state, line] = element.children;
      const word = pill(row);
      model.title = route(row);
      fill(model, shortRoute(row));
      state.className = word.className;
      fill(state, word.textContent);
      fill(line, summary(row));
    }
    element.dataset.depth = String(depth);
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
    const group = this.part(`session ${id}`, () => h("details.session", { open: !this.closed.has(id), ontoggle: (event) => (event.target.open ? this.closed.delete(id) : this.closed.add(id)) },
      h("summary", h("b", id ? brief(known?.program || rows[0].program || "session") : "without a session"), id ? h("code", brief(id)) : null, h("span.counts"))));
    fill(group.querySelector("summary .counts"), count(known?.exchanges ?? rows.length, "request") + (known?.errors ? ` · ${count(known.errors, "error")}` : "") + (known?.repaired ? ` · ${known.repaired} repaired` : ""));
    const members = [group.firstChild];
    for (const [agent, depth] of agentsOf(rows, known?.agents ?? [])) {
      if (depth) {
        const line = this.part(`agent ${id} ${agent.id}`, () => h("div.agent", h("span", "sub-agent "), h("code", brief(agent.id)), h("span.counts")));
        line.style.setProperty("--depth", String(Math.min(depth, 5)));
        fill(line.lastChild, count(agent.rows.length, "request"));
        members.push(line);
      }
      members.push(...agent.rows.map((row) => this.row(row, depth)));
    }
    arrange(group, members);
    return group;
  }
}

/** The agents of a session with their rows, each before those that it started, and how deep it stands. An agent of which nobody
 * says who started it is the main one, unless there is one without a name: then that is. */
function agentsOf(rows, known) {
  const agents = new Map();
  for (const row of rows) {
    if (!agents.has(row.agent)) agents.set(row.agent, { id: row.agent, parent: row.parent, rows: [] });
    agents.get(row.agent).rows.push(row);
  }
  for (const agent of known) if (agents.has(agent.id)) agents.get(agent.id).parent ||= agent.parent;
  const hasMain = agents.has("") || known.some((agent) => agent.id === "");
  const isRoot = (agent) => agent.id === "" || (!agent.parent && !hasMain);
  const found = new Map();
  const add = (agent, depth) => {
    if (found.has(agent)) return;
    found.set(agent, depth);
    for (const other of agents.values()) if (other.parent === agent.id && !isRoot(other)) add(other, depth + 1);
  };
  for (const agent of agents.values()) if (isRoot(agent)) add(agent, 0);
  for (const agent of agents.values()) if (!agents.has(agent.parent)) add(agent, 1);
  for (const agent of agents.values()) add(agent, 1);
  return found;
}
