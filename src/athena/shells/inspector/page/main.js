// The page: address, keys, live updates, and which view stands in the middle.

import { Refused, embeddedViews, findToken, follow, getModels, getRows, getView, useToken } from "./data.js";
import { fill, h } from "./dom.js";
import { ExchangePage, TABS } from "./exchange.js";
import { HealthPage } from "./health.js";
import { ExchangeList, fits, parseSearch } from "./list.js";
import { TalksPage } from "./talks.js";
import { count, route } from "./words.js";

const THEME = "athena-inspector-theme";
const THEMES = ["auto", "light", "dark"];
const KEYS = [
  ["j  k", "next and previous exchange (arrows do as well), or step where the lanes have the focus"],
  ["enter", "into the exchange; there, into its lanes"],
  ["esc", "back: from the lanes to the list, from the search, from this help"],
  ["/", "search the exchanges"],
  ["f", "find in the lanes"],
  ["1 … 6", "the tabs of an exchange"],
  ["n  p", "next and previous mark"],
  ["b", "every byte, or only what matters of it"],
  ["r", "replay with other settings"],
  ["e", "export, redacted"],
  ["h", "health of upstreams and models"],
  ["c", "conversations that are stored"],
  ["l", "the list"],
  ["s", "sessions as trees"],
  ["t", "light, dark or as the system has it"],
  ["?", "this help"],
];

const SHARED_KEYS = [["j  k", "next and previous step"], ...KEYS.filter(([keys]) => ["f", "1 … 6", "n  p", "b", "?"].includes(keys))];

/** The address after the `#`: `/x/ID/TAB/STEP?q=SEARCH&by=sessions`. */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const given = new URLSearchParams(query);
  const shown = { search: given.get("q") || "", by: given.get("by") === "sessions" ? "sessions" : "time" };
  if (parts[0] === "x" && parts[1]) {
    const step = /^\d+$/.test(parts[3] || "") ? Number(parts[3]) : null;
    return { name: "exchange", id: parts[1], tab: TABS.includes(parts[2]) ? parts[2] : "lanes", step, ...shown };
  }
  if (parts[0] === "conversations") return { name: "talks", id: parts[1] || "", ...shown };
  return { name: parts[0] === "health" ? "health" : "list", ...shown };
}

export function formatRoute({ name, id, tab, step, search, by }) {
  let path = "#/";
  if (name === "health") path = "#/health";
  if (name === "talks") path = `#/conversations${id ? `/${encodeURIComponent(id)}` : ""}`;
  if (name === "exchange") path = `#/x/${encodeURIComponent(id)}/${tab}${step !== null && step !== undefined ? `/${step}` : ""}`;
  const query = String(new URLSearchParams({ ...(search ? { q: search } : {}), ...(by === "sessions" ? { by } : {}) }));
  return query ? `${path}?${query}` : path;
}

const FOLLOW_MS = 700;
/** What the list holds, in figures that lead to the rows which they count: name, search, tone. */
const FIGURES = [
  ["listed", "", ""],
  ["repaired", "verdict:repaired", "warn"],
  ["echoes held", "verdict:echo", "warn"],
  ["errors", "verdict:error", "bad"],
  ["in flight", "verdict:live", ""],
];

class Page {
  constructor() {
    this.main = h("main", { tabindex: "-1" });
    this.live = h("span.live", { role: "status" }, "…");
    this.flight = h("span.pill.soft", { hidden: true });
    this.search = h("input.search", { type: "search", placeholder: "Search: kimi  model:qwen  repaired:yes  outcome:error", "aria-label": "search the exchanges", spellcheck: "false", autocomplete: "off" });
    this.list = new ExchangeList({ onOpen: (id) => this.go({ name: "exchange", id, tab: "lanes", step: null }), onSearch: (search) => this.go({ ...this.route, search }), onMode: (by) => this.go({ ...this.route, by }, true), onDraw: () => this.countFigures() });
    this.view = null;
    this.figures = [];
    this.inFlight = new Set();
    this.kept = 0;
  }

  begin() {
    const brand = h("a.brand", { href: "#/", data: { search: "" } }, h("b", "athena"), h("span", "inspector"));
    const tools = h("div.header-tools", h("a.chip", { href: "#/conversations" }, "Conversations"), h("a.chip", { href: "#/health" }, "Health"), h("button.chip", { type: "button", title: "t", onclick: () => this.nextTheme() }, this.themeName = h("span", "theme")), h("button.chip", { type: "button", title: "?", "aria-label": "help", onclick: () => this.help() }, "?"));
    fill(document.body, h("header.top", brand, this.live, this.search, this.flight, h("span.grow"), tools), h("div.frame", this.list.element, this.main));
    this.useTheme();
    addEventListener("hashchange", () => this.show());
    addEventListener("click", (event) => this.followLink(event));
    addEventListener("keydown", (event) => this.key(event));
    let typing = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.go({ ...this.route, search: this.search.value }, true), 150);
    });
    this.route = parseRoute(location.hash);
    this.search.value = this.route.search;
    this.list.load(this.route.search).then((answer) => this.started(answer), (error) => this.failed(error));
  }

  started(answer) {
    // Of a search the total says nothing about what is kept besides; the gateway's first event does.
    this.kept = this.route.search ? 1 : answer.total;
    this.stop?.();
    this.stop = follow({ onEvent: (name, data) => this.happened(name, data), onState: (state) => this.showState(state) });
    this.show(true);
  }

  // -- live ------------------------------------------------------------------------------------------------------------------

  happened(name, data) {
    if (name === "hello") {
      this.kept = data.kept;
      this.dropped = data.dropped;
      // Those in flight follow, one by one. What began and ended before somebody listened is in the list alone.
      this.inFlight = new Set();
      this.list.load(this.list.search).then(() => this.listed(), () => {});
    } else if (name === "row") {
      const first = !this.kept && !this.list.rows.size;
      if (data.state === "live") this.inFlight.add(data.id);
      else this.inFlight.delete(data.id);
      this.list.put(data);
      if (this.route.name === "exchange" && this.route.id === data.id && data.state === "done" && this.waitsFor === data.id) this.show(true);
      if (first && this.route.name === "list") {
        this.kept = 1;
        this.show(true);
      }
    } else if (name === "again") {
      this.list.load(this.list.search).catch((error) => this.failed(error));
    } else if (name === "gone") {
      this.inFlight.delete(data.id);
      this.list.drop(data.id);
      if (this.view instanceof ExchangePage && this.route.id === data.id) this.view.lose();
    }
    if (this.view instanceof HealthPage && name !== "hello") this.view.refresh();
    this.showFlight();
  }

  /** The list is the gateway's own again, at the beginning or after it was away. */
  listed() {
    if (this.isTroubled || (this.view === null && this.route.name === "list")) this.show(true);
    else if (this.view instanceof ExchangePage && this.view.isKept && !this.list.rows.has(this.route.id)) this.checkKept(this.view, this.route.id);
  }

  async checkKept(page, id) {
    const answer = await getRows({ name: id }).catch(() => null);
    if (answer !== null && !answer.rows.length && this.view === page) page.lose();
  }

  showFlight() {
    this.flight.hidden = this.inFlight.size === 0;
    fill(this.flight, `${this.inFlight.size} in flight`);
    if (!this.asksFlight) this.askFlight();
  }

  /** How far the exchanges in flight are: asked for while there are any, and somebody looks at the page. */
  async askFlight() {
    this.asksFlight = true;
    let took = 0;
    while (this.inFlight.size) {
      await new Promise((done) => setTimeout(done, Math.max(FOLLOW_MS, 10 * took)));
      if (document.hidden || !this.inFlight.size || this.state !== "live") continue;
      const began = performance.now();
      const answer = await getRows({ verdict: "live" }).catch(() => ({ rows: [] }));
      took = performance.now() - began;
      for (const row of answer.rows) if (this.inFlight.has(row.id)) this.list.grow(row);
    }
    this.asksFlight = false;
  }

  showState(state) {
    this.state = state;
    const words = { live: "live", waiting: "reconnecting", refused: "refused" };
    this.live.className = `live ${state}`;
    fill(this.live, words[state]);
  }

  // -- views -----------------------------------------------------------------------------------------------------------------

  go(next, replace = false) {
    const target = this.address(next);
    if (location.hash === target) return;
    if (replace) {
      history.replaceState(null, "", target);
      this.show();
    } else location.hash = target;
  }

  /** Where something of this page is found again, with the list beside it as it is now. */
  address(next) {
    return formatRoute({ search: this.list.search, by: this.list.mode, ...next });
  }

  /** A link leads to something and leaves the list as it is, unless it is about the list. */
  followLink(event) {
    const link = event.target.closest?.("a[href^='#']");
    if (!link || event.defaultPrevented || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const { search, by: _, ...next } = parseRoute(link.getAttribute("href"));
    this.go(search || "search" in link.dataset ? { ...next, search } : next);
  }

  async show(again = false) {
    const before = this.route;
    const next = parseRoute(location.hash);
    this.route = next;
    document.body.dataset.view = next.name;
    if (next.search !== this.list.search) {
      if (this.search.value !== next.search) this.search.value = next.search;
      this.list.load(next.search).catch((error) => this.failed(error));
    }
    if (next.by !== this.list.mode) this.list.setMode(next.by);
    this.list.select(next.name === "exchange" ? next.id : "");
    const same = !again && this.view !== null && before.name === next.name && before.id === next.id;
    if (same && next.name === "exchange") {
      if (this.view instanceof ExchangePage && this.view.tab !== next.tab) this.view.open(next.tab, next.step);
      else if (next.step !== null) this.view.lanes?.select(next.step, true);
      return;
    }
    if (same) return;
    this.view?.close();
    this.view = null;
    this.isTroubled = false;
    this.waitsFor = "";
    document.title = "Athena inspector";
    if (next.name === "health") await this.showPage(new HealthPage());
    else if (next.name === "talks") await this.showPage(new TalksPage(next.id));
    else if (next.name === "exchange") await this.showExchange(next);
    else this.showStart();
  }

  async showPage(page) {
    this.view = page;
    fill(this.main, this.back(), page.element);
    await page.start().catch((error) => this.problem(error));
  }

  async showExchange(wanted) {
    fill(this.main, h("p.loading", "Loading…"));
    let view;
    try {
      view = await getView(wanted.id);
    } catch (error) {
      if (this.route.id === wanted.id) this.problem(error, wanted.id);
      return;
    }
    if (this.route.name !== "exchange" || this.route.id !== wanted.id) return;
    document.title = `${route(view.row)} · Athena inspector`;
    const page = new ExchangePage(view, {
      tab: this.route.tab,
      step: this.route.step,
      onRoute: (tab, step) => {
        this.route = { ...this.route, tab, step };
        history.replaceState(null, "", this.address({ name: "exchange", id: wanted.id, tab, step }));
      },
      onGone: () => this.go({ name: "list" }),
    });
    this.view = page;
    fill(this.main, this.back(), page.element);
    page.start();
    if (view.row.state === "live") this.follow(page, wanted.id);
  }

  /** Show what comes while the exchange is in flight. Every look replays all of it, so long ones are looked at less often. */
  async follow(page, id) {
    this.waitsFor = id;
    let took = 0;
    while (this.view === page) {
      await new Promise((done) => setTimeout(done, Math.max(FOLLOW_MS, 10 * took)));
      if (this.view !== page) return;
      if (this.state !== "live") continue;
      const began = performance.now();
      const view = await getView(id).catch((error) => error);
      took = performance.now() - began;
      if (this.view !== page) return;
      if (view.status === 404) page.lose();
      if (view.status === 404 || view.status === 401) return;
      if (view instanceof Error) continue;
      if (view.row.state !== "live") {
        this.show(true);
        return;
      }
      page.grow(view);
    }
  }

  back() {
    return h("a.back", { href: "#/" }, "‹ all exchanges");
  }

  showStart() {
    if (this.list.rows.size || this.kept) {
      const dropped = this.dropped ? h("p.sub", `${count(this.dropped, "recording")} could not be kept; the gateway's log says why.`) : null;
      fill(this.main, h("div.empty.start", h("h2", "Choose an exchange"), h("p", "What came from the upstream, what was made of it, and what the client got, side by side."), this.overview(), h("p.keys", h("kbd", "j"), h("kbd", "k"), " move, ", h("kbd", "enter"), " opens, ", h("kbd", "?"), " shows all keys"), dropped));
      return;
    }
    fill(this.main, emptyState());
  }

  overview() {
    this.figures = FIGURES.map(([name, search]) => h("a.figure", { href: formatRoute({ name: "list", search }), data: { search } }, h("b"), h("span", name)));
    this.countFigures();
    return h("div.figures.overview", this.figures);
  }

  countFigures() {
    const rows = [...this.list.rows.values()];
    this.figures.forEach((figure, place) => {
      const [, search, tone] = FIGURES[place];
      const filters = parseSearch(search);
      const value = rows.filter((row) => fits(row, filters)).length;
      fill(figure.firstChild, String(value));
      if (tone) figure.classList.toggle(tone, value > 0);
    });
  }

  problem(error, id = "") {
    if (error instanceof Refused && error.status === 401) {
      this.failed(error);
      return;
    }
    if (error instanceof Refused && error.status === 409) {
      this.waitsFor = id;
      fill(this.main, this.back(), h("div.empty.waiting", h("h2", h("span.dot.pulse"), "In flight"), h("p", "There was no room to record it: nothing is shown before the answer has ended.")));
      return;
    }
    this.isTroubled = true;
    const gone = error instanceof Refused && error.status === 404;
    fill(this.main, this.back(), h("div.empty", h("h2", gone ? "No such exchange" : "That did not work"), h("p", gone ? "It was deleted, or it made room for newer ones. With “record: on” in the configuration, recordings are kept on disk." : error.message)));
  }

  failed(error) {
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
      this.stop?.();
      if (error.status === 401) useToken("");
      signIn(error.status === 403 ? error.message : "The gateway does not take this token or key.");
      return;
    }
    this.problem(error);
  }

  // -- keys ------------------------------------------------------------------------------------------------------------------

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(?:INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") {
      this.escape(typing, event.target);
      return;
    }
    if (typing) {
      if (event.key === "Enter" && event.target === this.search) this.list.body.focus();
      return;
    }
    const page = this.view instanceof ExchangePage ? this.view : null;
    const inLanes = Boolean(page?.lanes?.scroller.contains(document.activeElement));
    const acts = {
      j: () => (inLanes ? page.lanes.move(1) : this.list.move(1)),
      k: () => (inLanes ? page.lanes.move(-1) : this.list.move(-1)),
      n: () => page?.lanes?.nextMark(1),
      p: () => page?.lanes?.nextMark(-1),
      b: () => page?.lanes?.toggleRaw(),
      f: () => page?.lanes?.search.focus(),
      r: () => page?.open("replay"),
      e: () => page?.isKept && page.export(),
      h: () => this.go({ name: "health" }),
      c: () => this.go({ name: "talks", id: "" }),
      l: () => this.go({ name: "list" }),
      s: () => this.list.onMode(this.list.mode === "sessions" ? "time" : "sessions"),
      t: () => this.nextTheme(),
      "/": () => this.search.focus(),
      "?": () => this.help(),
      Enter: () => this.enter(page, inLanes),
    };
    if (this.list.body.contains(event.target)) Object.assign(acts, { ArrowDown: acts.j, ArrowUp: acts.k });
    const number = Number(event.key);
    if (number >= 1 && page && page.tabs[number - 1]) page.open(page.tabs[number - 1]);
    else if (Object.hasOwn(acts, event.key)) {
      if (event.key === "Enter" && event.target.closest("button, a:not(.row), summary")) return;
      acts[event.key]();
    } else return;
    event.preventDefault();
  }

  enter(page, inLanes) {
    const chosen = this.list.selected;
    if (chosen && !(this.route.name === "exchange" && this.route.id === chosen)) this.go({ name: "exchange", id: chosen, tab: "lanes", step: null });
    else if (page && !inLanes) {
      if (page.tab !== "lanes") page.open("lanes");
      page.lanes.scroller.focus();
    }
  }

  escape(typing, target) {
    const open = document.querySelector("dialog[open]");
    if (open) open.close();
    else if (typing) {
      target.blur();
      if (target === this.search && this.search.value) this.go({ ...this.route, search: "" });
    } else if (this.view instanceof ExchangePage && this.view.lanes?.scroller.contains(document.activeElement)) this.list.body.focus();
    else if (this.route.name !== "list") this.go({ name: "list" });
  }

  help() {
    showHelp();
  }

  // -- light and dark --------------------------------------------------------------------------------------------------------

  nextTheme() {
    const now = themeNow();
    localStorage.setItem(THEME, THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
    this.useTheme();
  }

  useTheme() {
    const now = applyTheme();
    fill(this.themeName, { auto: "Auto", light: "Light", dark: "Dark" }[now]);
  }
}

function themeNow() {
  try {
    const kept = localStorage.getItem(THEME);
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

function applyTheme(theme = themeNow()) {
  document.documentElement.dataset.theme = theme;
  return theme;
}

/** A shared page has fewer keys: there is no list in it, and no gateway behind it. */
function showHelp(keys = KEYS) {
  document.querySelector("dialog")?.remove();
  const dialog = h("dialog.help", { "aria-label": "keys" }, h("h2", "Keys"), h("dl", keys.map(([keys, what]) => [h("dt", keys.split("  ").map((key) => h("kbd", key))), h("dd", what)])), h("form", { method: "dialog" }, h("button.button", { type: "submit" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

function command(text) {
  return h("pre.command", text);
}

function emptyState() {
  const base = location.origin;
  const first = command("");
  const showFirst = (model) => fill(first, `curl ${base}/v1/chat/completions -H 'content-type: application/json' -d '{\n  "model": "${model}", "stream": true,\n  "messages": [{"role": "user", "content": "What is the weather in Paris?"}],\n  "tools": [{"type": "function", "function": {"name": "weather",\n    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]}'`);
  showFirst("MODEL");
  // It will be copied into a shell: only a name that cannot end its quotes.
  getModels().then(({ models }) => showFirst(models.find((name) => /^[\w./:@-]{1,200}$/.test(name)) ?? "MODEL"), () => {});
  return h("div.empty.start.first", h("h2", "Nothing has come through yet"),
    h("p", "Every request to this gateway appears here as it begins. Make the first one:"),
    first,
    h("p", "Or let a coding agent run through the gateway, with its own settings left alone:"),
    command(`athena code claude --url ${base}\nathena code codex --url ${base}`),
    h("p.sub", "Exchanges are kept in memory, the last 200, unless “record: on” in the configuration keeps them on disk."));
}

function signIn(why) {
  const input = h("input.search", { type: "password", name: "token", "aria-label": "token or gateway key", placeholder: "token or gateway key", autocomplete: "off" });
  const form = h("form.sign-in", { onsubmit: (event) => {
    event.preventDefault();
    useToken(input.value);
    location.reload();
  } }, h("h1", "Athena inspector"), h("p", "It shows what prompts and answers hold, so it asks for a token."), why ? h("p.bad", why) : null, input, h("button.button.main", { type: "submit" }, "Open"),
  h("p.sub", "“athena serve” prints the address with its token when it starts. A key of the gateway does as well."));
  fill(document.body, h("div.sign-in-frame", form));
  input.focus();
}

/** A page that is a file: the exchange that its address names, else its first; a menu where it holds several. */
function showShared(held) {
  const wanted = () => held.find((one) => one.id === parseRoute(location.hash).id) || held[0];
  const main = h("main");
  const menu = h("select.choice", { "aria-label": "exchange", onchange: () => { location.hash = formatRoute({ name: "exchange", id: menu.value, tab: "lanes", step: null }); } }, held.map((one) => h("option", { value: one.id }, one.label)));
  const help = () => showHelp(SHARED_KEYS);
  let page = null;
  let shown = null;
  const open = () => {
    page?.lanes?.close();
    shown = wanted();
    menu.value = shown.id;
    const { id } = shown;
    page = new ExchangePage(shown.read(), { ...parseRoute(location.hash), shared: true, onRoute: (tab, step) => history.replaceState(null, "", formatRoute({ name: "exchange", id, tab, step })) });
    fill(main, page.element);
    page.start();
  };
  const theme = h("button.chip", { type: "button", onclick: () => fill(theme, applyTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3])) }, "auto");
  document.body.dataset.view = "shared";
  fill(document.body, h("header.top", h("span.brand", h("b", "athena"), h("span", "recording")), held.length > 1 ? menu : null, h("span.grow"), h("div.header-tools", theme, h("button.chip", { type: "button", "aria-label": "help", onclick: help }, "?"))), h("div.frame.single", main));
  applyTheme("auto");
  open();
  addEventListener("hashchange", () => {
    const next = parseRoute(location.hash);
    if (wanted() !== shown) open();
    else if (next.tab !== page.tab) page.open(next.tab, next.step);
    else if (next.step !== null) page.lanes?.select(next.step, true);
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(?:INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const acts = { j: () => page.lanes?.move(1), k: () => page.lanes?.move(-1), n: () => page.lanes?.nextMark(1), p: () => page.lanes?.nextMark(-1), b: () => page.lanes?.toggleRaw(), f: () => page.lanes?.search.focus(), "?": help };
    if (page.tabs[Number(event.key) - 1]) page.open(page.tabs[Number(event.key) - 1]);
    else if (Object.hasOwn(acts, event.key)) acts[event.key]();
    else return;
    event.preventDefault();
  });
}

async function begin() {
  const shared = embeddedViews();
  if (shared.length) {
    showShared(shared);
    return;
  }
  applyTheme();
  if (await findToken()) new Page().begin();
  else signIn("");
}

begin();
