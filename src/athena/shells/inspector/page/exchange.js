// One exchange: its head, what to know first, and its tabs.

import { choices, download, remove, replayed } from "./data.js";
import { brief, fill, h, longText, svg } from "./dom.js";
import { jsonTree, leavesOf, parsed } from "./json.js";
import { Lanes, MARK_NAMES, MARK_TONES, eventBox } from "./lanes.js";
import { callNames } from "./steps.js";
import { VERDICTS, bytes, count, dateTime, dialectName, micros, millis, percent, route, seconds, sizeOf } from "./words.js";

export const TABS = ["lanes", "calls", "requests", "timing", "prefix", "replay"];
const TITLES = { lanes: "Lanes", calls: "Calls", requests: "Requests", timing: "Timing", prefix: "Prefix", replay: "Replay" };
const MOST_DIFFERENCES = 200;

export function pill(row) {
  const [word, tone] = VERDICTS[row.verdict] || [row.verdict, "soft"];
  // An answer that broke after its head has a good status and is an error all the same.
  const tells = row.verdict === "ok" || (row.verdict === "error" && row.status >= 400);
  const shown = tells && row.status ? String(row.status) : word;
  return h(`span.pill.${tone}`, shown);
}

/** Text that goes on to be held has a mark at each step that brought more of it. A table tells the last, which names all of it. */
function holdsAsOne(marks) {
  const known = new Set(marks.filter((mark) => mark.kind === "hold").map((mark) => `${mark.step} ${mark.rule}`));
  return marks.filter((mark) => mark.kind !== "hold" || !known.has(`${mark.step + 1} ${mark.rule}`));
}

export class ExchangePage {
  /** `shared`: the page is a file, without a gateway that could replay or export. */
  constructor(view, { tab, step, shared = false, onRoute = () => {}, onGone = () => {} }) {
    this.view = view;
    this.shared = shared;
    this.onRoute = onRoute;
    this.onGone = onGone;
    this.pane = h("div.pane");
    this.pane.setAttribute("role", "tabpanel");
    this.tabs = this.shownTabs();
    this.bar = h("div.tabs", { role: "tablist" }, this.tabs.map((name) => this.tabButton(name)));
    this.note = h("div.note-line", { role: "status" });
    this.element = h("article.exchange", this.head(), this.banners(), this.bar, this.pane);
    this.start = () => this.open(this.tabs.includes(tab) ? tab : "lanes", step);
  }

  /** Does a gateway keep it, whole? */
  get isKept() {
    return !this.shared && !this.isLost && this.view.row.state !== "live";
  }

  /** The gateway forgot it: what is shown stays, and what would ask the gateway goes. */
  lose() {
    if (this.isLost) return;
    this.isLost = true;
    this.tabs = this.shownTabs();
    for (const button of [...this.bar.children]) if (!this.tabs.includes(button.dataset.tab)) button.remove();
    this.element.querySelector(".head").replaceWith(this.head());
    this.say("The gateway no longer has this exchange: it was deleted, made room for newer ones, or went with a gateway that ended. What this page read of it is still shown.", "bad");
  }

  /** Only what was served, and has ended, can be served again. */
  get canReplay() {
    return this.isKept && (this.view.row.kind || "served") === "served";
  }

  shownTabs() {
    return TABS.filter((name) => (name !== "prefix" || this.view.prefix) && (name !== "replay" || this.canReplay));
  }

  tabButton(name) {
    const { calls, requests } = this.view;
    const numbers = { calls: calls.length, requests: requests.changes.length };
    const button = h("button.tab", { type: "button", role: "tab", data: { tab: name }, onclick: () => this.open(name) }, TITLES[name]);
    if (numbers[name]) button.append(h("span.badge", { title: name === "requests" ? "changes" : "calls" }, String(numbers[name])));
    return button;
  }

  /** A tab that this exchange does not have is left alone. */
  open(name, step = null) {
    if (!this.tabs.includes(name)) return;
    this.tab = name;
    this.lanes?.close();
    this.lanes = null;
    for (const button of this.bar.children) button.setAttribute("aria-selected", String(button.dataset.tab === name));
    this.pane.className = `pane pane-${name}`;
    const drawing = { lanes: () => this.drawLanes(step), calls: () => this.drawCalls(), requests: () => this.drawRequests(), timing: () => this.drawTiming(), prefix: () => this.drawPrefix(), replay: () => this.drawReplay() };
    drawing[name]();
    this.onRoute(name, step);
  }

  close() {
    this.lanes?.close();
  }

  /** The same exchange, in flight, further on. */
  grow(view) {
    this.view = view;
    this.element.querySelector(".head").replaceWith(this.head());
    if (this.tab === "lanes") this.lanes.grow(view);
    else if (this.tab === "calls" || this.tab === "timing") this.open(this.tab);
  }

  // -- head ------------------------------------------------------------------------------------------------------------------

  head() {
    const { row, prefix } = this.view;
    const isLive = row.state === "live";
    const actions = !this.isKept ? null : h("div.actions",
      h("button.button.quiet-button", { type: "button", onclick: (event) => this.delete(event.currentTarget) }, "Delete"),
      h("button.button", { type: "button", title: "e", onclick: () => this.export() }, "Export"),
      this.canReplay ? h("button.button", { type: "button", onclick: () => this.makeCase() }, "Make a case") : null,
      this.canReplay ? h("button.button.main", { type: "button", title: "r", onclick: () => this.open("replay") }, "Replay…") : null);
    const fact = (name, value) => (value ? h("span.fact", h("span", name), h("b", brief(value))) : null);
    return h("header.head",
      h("div.title-line",
        h("div.titles", h("h1", h("code", brief(`${this.view.requests.method} ${this.view.requests.path}`)), this.isLost && isLive ? h("span.pill.soft", "lost") : pill(row)), h("p.route", h("span", route(row)), h("span.id", `${row.id} · ${dateTime(row.at)}`))),
        actions),
      this.note,
      h("div.facts",
        fact("upstream", row.upstream ? `${row.upstream} (${dialectName(row.upstream_dialect)})` : ""),
        fact("client", `${row.program || "unnamed"} (${dialectName(row.dialect)})`),
        fact("format", row.format),
        fact("first byte", isLive && !row.first_byte_ms ? "" : millis(row.first_byte_ms)),
        fact(isLive ? "so far" : "total", millis(row.duration_ms)),
        fact("chunks", row.chunks.toLocaleString("en")),
        fact("our share", row.own_us_per_chunk ? `${micros(row.own_us_per_chunk)} per chunk` : ""),
        fact("tokens", isLive ? "" : `${row.input_tokens.toLocaleString("en")} in · ${row.output_tokens.toLocaleString("en")} out`),
        fact("attempts", row.attempts > 1 ? String(row.attempts) : ""),
        fact("prefix kept", prefix ? percent(prefix.common, prefix.size) : ""),
        fact("session", row.session)));
  }

  banners() {
    const { row, help, notes, replay, marks } = this.view;
    const found = [];
    if (row.error || row.verdict === "error") {
      const mark = marks.find((candidate) => candidate.kind === "error" || candidate.kind === "bad_call");
      found.push(h("div.banner.bad", h("b", brief(row.error || row.outcome || "error").replaceAll("_", " ")), mark ? longText(mark.text, 400) : null,
        help ? h("p.help", h("b", "What to do: "), longText(help, 1000)) : null));
    } else if (help) found.push(h("div.banner.warn", h("p.help", h("b", "What to do: "), longText(help, 1000))));
    if (!replay.equal) {
      found.push(h("div.banner.warn", h("b", "This version makes another answer of it"), h("ul", replay.differences.slice(0, 5).map((line) => h("li", longText(line, 300))))));
    }
    for (const note of notes) found.push(h("div.banner", longText(note, 400)));
    if (row.redacted) found.push(h("div.banner", "Redacted: words and values are replaced; lengths, markers and the borders of chunks are as they were."));
    return h("div.banners", found);
  }

  say(text, tone = "") {
    this.note.className = `note-line ${tone}`;
    fill(this.note, text);
  }

  async doing(words, work) {
    this.say(words);
    try {
      this.say((await work()) || "");
    } catch (error) {
      this.say(error.message, "bad");
    }
  }

  export() {
    const { id } = this.view.row;
    return this.doing("Redacting…", async () => {
      await download(id, "/export", `${id}.athena`);
      return `Saved ${id}.athena, redacted. “athena replay ${id}.athena” runs it again.`;
    });
  }

  /** A regression case of what was understood, or of what a replay with other settings understands. */
  makeCase(query = "") {
    const { id } = this.view.row;
    return this.doing("Writing the case…", async () => {
      await download(id, query ? `/case?${query}` : "/case", `${id}.toml`);
      return query ? `Saved ${id}.toml: it expects what this run understood.` : `Saved ${id}.toml: it expects what was understood here. Correct that, and it is a regression test.`;
    });
  }

  /** The second click counts. */
  async delete(button) {
    if (!button.classList.contains("sure")) {
      button.classList.add("sure");
      fill(button, "Delete for good?");
      return;
    }
    await this.doing("Deleting…", async () => {
      await remove(this.view.row.id);
      this.onGone(this.view.row.id);
    });
  }

  // -- lanes -----------------------------------------------------------------------------------------------------------------

  drawLanes(step) {
    this.lanes = new Lanes(this.view, { selected: step, onSelect: (number) => this.onRoute("lanes", number) });
    fill(this.pane, this.lanes.element);
    this.lanes.start();
  }

  // -- calls -----------------------------------------------------------------------------------------------------------------

  drawCalls() {
    const { calls, marks, requests, row } = this.view;
    if (!calls.length && row.state === "live") {
      fill(this.pane, h("div.empty", h("h2", "No call so far"), h("p", "The answer still comes: calls appear here as they begin.")), this.markTable(marks));
      return;
    }
    if (!calls.length) {
      fill(this.pane, h("div.empty", h("h2", "No call in this answer"), h("p", requests.tools.length ? `The client offered ${count(requests.tools.length, "tool")}: ${brief(requests.tools.slice(0, 30).join(", "), 1000)}. The model called none of them.` : "The client offered no tools.")), this.markTable(marks));
      return;
    }
    fill(this.pane, h("div.cards", calls.map((call) => this.callCard(call))), this.markTable(marks));
  }

  callCard(call) {
    const verdict = (name, good, word, why = "") => {
      const tone = good === null ? "soft" : good ? "good" : "bad";
      return h(`div.verdict.${tone}`, h("span.sign", { "aria-hidden": "true" }, good === null ? "–" : good ? "✓" : "✗"), h("span", h("b", name), h("span.word", word), why ? h("span.why", longText(why, 300)) : null));
    };
    const value = parsed(call.arguments);
    const fine = call.complete && call.json !== "no" && call.declared && call.schema !== "no" && call.provenance !== "quoted";
    return h("section.card.call-card" + (fine ? "" : ".bad"),
      h("header", h("h2", h("code", brief(call.name || "no name"))), h("a.jump", { href: `#/x/${encodeURIComponent(this.view.row.id)}/lanes/${call.step}` }, `step ${call.step}`), h("span.grow"), h("span.pill" + (call.came_as === "native" ? "" : ".warn"), brief(call.came_as)), call.repaired ? h("span.pill.warn", "repaired") : null),
      h("div.call-body",
        h("div.arguments", value === undefined || typeof value !== "object" ? h("pre", longText(call.arguments, 2000)) : jsonTree(value)),
        h("div.verdicts",
          verdict("complete", call.complete, call.complete ? "the call is whole" : "it ended before it was whole"),
          verdict("JSON", call.json === "custom" ? null : call.json === "yes", { yes: "arguments are JSON", no: "arguments are not JSON", custom: "free text by declaration" }[call.json]),
          verdict("declared", call.declared, call.declared ? "the client offers this tool" : "the client offers no such tool"),
          verdict("schema", call.schema === "unchecked" ? null : call.schema === "yes", { yes: "arguments fit the schema", no: "arguments do not fit", unchecked: "not checked" }[call.schema], call.schema_problem),
          verdict("provenance", call.provenance === "native" ? null : call.provenance === "model", { model: "the model's own words", quoted: "quoted from the request", native: "structured, not searched for" }[call.provenance]),
          verdict("finish", call.finish ? true : null, brief(call.finish || "not known")),
          verdict("id", call.id_from === "upstream" ? true : null, call.id_from === "upstream" ? brief(call.id) : `${brief(call.id)}, made up here`))));
  }

  markTable(marks) {
    if (!marks.length) return null;
    return h("section.card", h("header", h("h2", "What was done, and by which rule")),
      h("div.scroll", h("table", h("thead", h("tr", h("th", "step"), h("th", "what"), h("th", "rule"), h("th", "why"))),
        h("tbody", holdsAsOne(marks).slice(0, 300).map((mark) => h("tr",
          h("td", h("a", { href: `#/x/${encodeURIComponent(this.view.row.id)}/lanes/${mark.step}` }, String(mark.step))),
          h("td", h(`span.tone.${MARK_TONES[mark.kind] || "note"}`, MARK_NAMES[mark.kind] || mark.kind)),
          h("td", h("code", brief(mark.rule))),
          h("td", longText(mark.text, 300))))))));
  }

  // -- requests --------------------------------------------------------------------------------------------------------------

  drawRequests() {
    const { requests } = this.view;
    const own = parsed(requests.body);
    const chosen = requests.upstream[this.attempt ?? requests.upstream.length - 1];
    const theirs = chosen ? parsed(chosen.body) : undefined;
    const compare = own !== undefined && theirs !== undefined;
    const side = (title, sub, headers, body, value, others) => h("section.card.side",
      h("header", h("div", h("h2", title), h("p.sub", sub))),
      h("details.headers", h("summary", count(Object.keys(headers).length, "header")), h("dl", Object.entries(headers).map(([name, text]) => [h("dt", brief(name)), h("dd", longText(text, 200))]))),
      value === undefined ? h("pre.body", longText(body || "no body", 4000)) : jsonTree(value, others));
    const attempts = requests.upstream.length > 1 ? h("div.chips", requests.upstream.map((attempt, index) => h("button.chip", { type: "button", "aria-pressed": String(attempt === chosen), onclick: () => {
      this.attempt = index;
      this.drawRequests();
    } }, `attempt ${attempt.attempt}: ${brief(attempt.upstream)}${attempt.status ? ` ${attempt.status}` : ""}`))) : null;
    fill(this.pane,
      h("section.card", h("header", h("h2", "What changed on the way, and why")),
        requests.changes.length
          ? h("div.scroll", h("table", h("thead", h("tr", h("th", "field"), h("th", "what"), h("th", "why"))), h("tbody", requests.changes.map((change) => h("tr", h("td", h("code", brief(change.path || "–", 300))), h("td", brief(change.action)), h("td", longText(change.reason, 300)))))))
          : h("p.quiet-text", "Nothing was lost, emulated or repaired: the upstream was asked for all that the client asked for.")),
      attempts,
      compare ? h("p.legend", h("span.only-sample", "marked values"), " stand on one side only.") : null,
      h("div.sides",
        side("The client asked", `${requests.method} ${brief(requests.path)} · ${dialectName(this.view.row.dialect)} · ${bytes(sizeOf(requests.body))}`, requests.headers, requests.body, own, compare ? leavesOf(theirs) : null),
        chosen
          ? side("The upstream was asked", `${brief(chosen.url, 300)} · ${dialectName(chosen.dialect)} · ${bytes(sizeOf(chosen.body))}${chosen.failure ? " · " + brief(chosen.failure, 300) : ""}`, chosen.headers, chosen.body, theirs, compare ? leavesOf(own) : null)
          : h("section.card.side", h("div.empty", h("h2", "No upstream was asked"), h("p", "The request was answered or refused before it came to that.")))),
      h("section.card", h("header", h("h2", "Settings it was served by")), jsonTree(this.view.settings ?? {}, null)));
  }

  // -- timing ----------------------------------------------------------------------------------------------------------------

  drawTiming() {
    const { timing, marks, row } = this.view;
    const total = Math.max(timing.total, 1);
    const spans = [
      [row.attempts > 1 ? "attempts before the last" : "before the upstream was asked", 0, timing.attempt, row.attempts > 1 ? "warn" : "call"],
      ["waiting for the upstream's head", timing.attempt ?? 0, timing.upstream_head, "soft"],
      ["head to first byte", timing.upstream_head, timing.first_read, "call"],
      ["first byte in to first byte out", timing.first_read, timing.first_write, "warn"],
      ["streaming", timing.first_write, timing.total, "good"],
    ].filter(([, from, to]) => from !== null && to !== null && to !== undefined && to >= from);
    const held = holdsAsOne(marks.filter((mark) => mark.kind === "hold"));
    const number = (name, value, why) => h("div.figure", h("b", value), h("span", name), h("small", why));
    fill(this.pane,
      h("div.figures",
        number("first byte", millis(timing.first_write), "until the client had something"),
        number(row.state === "live" ? "so far" : "total", millis(timing.total), count(row.chunks, "chunk")),
        number("our share", timing.own_us_per_chunk ? micros(timing.own_us_per_chunk) : "–", "per chunk, processor time"),
        number("longest silence", millis(timing.longest_gap), "between two reads"),
        number("longest hold", millis(timing.held), "text that waited for its meaning")),
      h("section.card", h("header", h("h2", "Where the time went")),
        h("div.waterfall", spans.map(([name, from, to, tone]) => {
          const bar = h(`i.${tone}`);
          bar.style.setProperty("margin-left", `${(100 * from) / total}%`);
          bar.style.setProperty("width", `${Math.max(0.4, (100 * (to - from)) / total)}%`);
          return [h("span.name", name), h("span.took", millis(to - from)), h("span.track", bar)];
        }))),
      this.gapPlot(),
      h("section.card", h("header", h("h2", "Held text")),
        held.length
          ? h("ul.held", held.slice(0, 100).map((mark) => h("li", h("a", { href: `#/x/${encodeURIComponent(row.id)}/lanes/${mark.step}` }, `step ${mark.step}`), " ", h("code", brief(mark.rule)), " ", longText(mark.text, 300))))
          : h("p.quiet-text", "No text waited for its meaning.")));
  }

  gapPlot() {
    const reads = this.view.reads.filter((item) => item.kind === "read");
    if (reads.length < 3) return null;
    const end = reads[reads.length - 1].t || 1;
    const bins = new Float64Array(200);
    for (let index = 1; index < reads.length; index++) {
      const bin = Math.min(199, Math.floor((reads[index].t / end) * 200));
      bins[bin] = Math.max(bins[bin], (reads[index].t - reads[index - 1].t) * 1000);
    }
    const most = Math.max(...bins, 1);
    let path = "";
    bins.forEach((gap, bin) => {
      if (gap) path += `M${bin * 5 + 0.5} 80h4v-${Math.max(1, (72 * gap) / most).toFixed(1)}h-4z`;
    });
    return h("section.card", h("header", h("h2", "Time between reads"), h("span.sub", `the highest bar is ${millis(most)}`)),
      h("div.plot", svg("svg", { viewBox: "0 0 1000 82", preserveAspectRatio: "none", role: "img", "aria-label": "time between reads" }, svg("path", { class: "bar call", d: path }), svg("path", { class: "base", d: "M0 80.5H1000" }))),
      h("div.ticks", [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", share ? seconds(share * end).slice(1) : "0"))));
  }

  // -- prefix ----------------------------------------------------------------------------------------------------------------

  drawPrefix() {
    const { prefix } = this.view;
    const share = prefix.size ? (100 * prefix.common) / prefix.size : 0;
    const bar = h("i");
    bar.style.setProperty("width", `${share}%`);
    const whole = prefix.common >= prefix.size || (!prefix.was && !prefix.now);
    fill(this.pane, h("section.card",
      h("header", h("h2", "What a prompt cache can keep")),
      h("p", "The request is compared with the last one of its session, ", h("a", { href: `#/x/${encodeURIComponent(prefix.of)}` }, brief(prefix.of)), ", byte by byte from the start."),
      h("div.prefix-bar", bar),
      h("p.figures-line", h("b", percent(prefix.common, prefix.size)), ` is the same: ${prefix.common.toLocaleString("en")} of ${prefix.size.toLocaleString("en")} bytes.`),
      whole ? null : h("div.differs",
        h("h3", `The first byte that differs is byte ${(prefix.common + 1).toLocaleString("en")}`),
        h("div.ways", h("div.way", h("span.label", "before it"), h("pre", longText("…" + prefix.before, 600))),
          h("div.way", h("span.label", "it went on"), h("pre.was", longText(prefix.was || "(the end)", 600))),
          h("div.way", h("span.label", "now it goes on"), h("pre.now", longText(prefix.now || "(the end)", 600)))),
        share < 90 ? h("p.quiet-text", "What changes early (a date, a counter, the order of tools) makes everything after it new to the cache. Let it stand at the end.") : null)));
  }

  // -- replay ----------------------------------------------------------------------------------------------------------------

  drawReplay() {
    const result = h("div.replay-result");
    const form = h("form.card.replay-form", { onsubmit: (event) => {
      event.preventDefault();
      this.runReplay(new FormData(form), result);
    } });
    fill(this.pane, form, result);
    const build = (known) => {
      const select = (name, label, values, why) => h("label", h("span", label), h("select", { name }, h("option", { value: "" }, "as recorded"), values.map(([value, text]) => h("option", { value }, text))), h("small", why));
      fill(form, h("header", h("h2", "Run it again with other settings")),
        h("p.quiet-text", "The recorded bytes of the upstream go through this version of Athena. No upstream is asked."),
        h("div.fields",
          select("format", "Text format", known.formats.map((id) => [id, { off: "none: text stays text", auto: "found by its markers" }[id] || id]), "how the model writes calls"),
          select("client", "Client's dialect", known.dialects.map((id) => [id, dialectName(id)]), "what the answer is written in"),
          select("repair", "Repair", known.repair.map((id) => [id, id]), "how far broken arguments are repaired"),
          select("policy", "Policy", known.policy.map((id) => [id, id.replaceAll("_", " ")]), "what follows the first call"),
          select("chunks", "Chunks", [["1", "one byte each"], ["7", "seven bytes each"], ["random", "random borders"]], "where the bytes are cut")),
        h("div.buttons", h("button.button.main", { type: "submit" }, "Replay"), h("span.quiet-text", "With everything as recorded it says whether this version still makes the same answer.")));
    };
    choices().then(build, () => build({ formats: [], dialects: [], repair: [], policy: [] }));
  }

  async runReplay(data, place) {
    const settings = Object.fromEntries([...data].filter(([, value]) => value));
    fill(place, h("p.quiet-text", "Running…"));
    try {
      const result = await replayed(this.view.row.id, settings);
      fill(place, this.difference(result));
    } catch (error) {
      fill(place, h("div.banner.bad", error.message));
    }
  }

  difference(result) {
    const names = [callNames(result.was), callNames(result.now)];
    const used = Object.entries(result.settings).map(([name, value]) => `${name} ${value}`).join(", ") || "everything as recorded";
    const calls = (view) => view.calls.length ? view.calls.map((call) => h("div.call-line", h("code", brief(call.name)), h("span", longText(call.arguments, 160)), h(`span.pill.${call.complete && call.json !== "no" && call.schema !== "no" ? "good" : "bad"}`, brief(call.came_as)))) : h("p.quiet-text", "no call");
    return [
      h("div.banner" + (result.equal ? ".good" : ".warn"), h("b", result.equal ? "The events are equal." : `${count(result.differences.length, "event")} ${result.differences.length === 1 ? "differs" : "differ"}.`), h("span", ` With ${used}.`)),
      h("div.sides", h("section.card", h("header", h("h2", "Calls as recorded")), calls(result.was)), h("section.card", h("header", h("h2", "Calls now")), calls(result.now))),
      result.differences.length ? h("section.card", h("header", h("h2", "Events that differ")),
        h("div.differences", h("span.label"), h("span.label", "as recorded"), h("span.label", "now"),
          result.differences.slice(0, MOST_DIFFERENCES).map((difference) => [h("span.at", `#${difference.at}`), eventBox(difference.was, names[0]), eventBox(difference.now, names[1])])),
        result.differences.length > MOST_DIFFERENCES ? h("p.quiet-text", `and ${result.differences.length - MOST_DIFFERENCES} more`) : null) : null,
      this.replayedLanes(result),
    ];
  }

  replayedLanes(result) {
    const place = h("div.replayed-lanes");
    const button = h("button.button", { type: "button", onclick: () => {
      this.lanes?.close();
      this.lanes = new Lanes(result.now, {});
      fill(place, this.lanes.element);
      this.lanes.start();
      button.remove();
    } }, "Show the lanes of this run");
    const query = new URLSearchParams(Object.entries(result.settings).filter(([name]) => name !== "chunks")).toString();
    const keep = h("button.button", { type: "button", onclick: () => this.makeCase(query) }, "Make a case of this run");
    return [h("div.buttons", button, keep), place];
  }
}
