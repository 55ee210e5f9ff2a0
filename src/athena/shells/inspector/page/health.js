// How upstreams and models are doing: figures and small plots over time.

import { forgetLessons, getHealth } from "./data.js";
import { brief, fill, h, svg } from "./dom.js";
import { clockTime, count, dateTime, millis, percent } from "./words.js";

const REFRESH_MS = 2000;

export class HealthPage {
  constructor() {
    this.cards = h("div.health-cards");
    this.since = h("p.sub");
    this.lessons = h("div.lessons");
    this.routes = h("div.routes");
    this.element = h("article.health", h("header.head", h("h1", "Health of upstreams and models"), this.since), this.cards, this.routes, this.lessons);
  }

  async start() {
    const { upstreams, since, lessons, routes = [] } = await getHealth();
    this.showRoutes(routes);
    this.showLessons(lessons);
    fill(this.since, `Counted since ${dateTime(since)}.`);
    fill(this.cards, upstreams.length ? upstreams.map((health) => this.card(health)) : h("div.empty", h("h2", "Nothing was asked yet"), h("p", "Upstreams appear here with their first request.")));
  }

  /** Figures change with every request: they are asked for again, but not for each, and not while somebody presses a button. */
  refresh() {
    if (this.waits || this.isClosed) return;
    this.waits = setTimeout(() => {
      this.waits = 0;
      if (this.isClosed) return;
      if (this.element.querySelector(":active, :focus")) this.refresh();
      else this.start().catch(() => {});
    }, REFRESH_MS);
  }

  close() {
    this.isClosed = true;
  }

  /** What the gateway itself counts, and by what it leaves models out. */
  showRoutes(routes) {
    if (!routes.length) {
      fill(this.routes);
      return;
    }
    const line = (route) => {
      const out = route.state === "out";
      const found = Object.entries(route.found).map(([name, times]) => `${times} ${name}`).join(", ");
      return h("tr",
        h("td", brief(route.upstream)), h("td", brief(route.model)),
        h("td", h("span.pill." + (out ? "bad" : "good"), out ? "left out" : "in use"), out ? ` ${count(route.good_canaries, "good canary", "good canaries")}` : ""),
        h("td", route.answers.toLocaleString("en")), h("td", `${route.bad} of ${route.judged}`), h("td", found || "nothing"));
    };
    fill(this.routes, h("section.card",
      h("header", h("div", h("h2", "Answers lately"), h("p.sub", "What this server process found in them. A model whose answers turn bad is left out while its rule has another target."))),
      h("table", h("thead", h("tr", ["upstream", "model", "state", "answers", "bad, with tools", "found"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", routes.map(line)))));
  }

  showLessons(lessons) {
    if (!lessons.length) {
      fill(this.lessons);
      return;
    }
    const problem = h("p.sub", { role: "status" });
    const line = (lesson) => {
      const forget = async () => {
        try {
          await forgetLessons(lesson.upstream, lesson.model);
          await this.start();
        } catch (error) {
          fill(problem, error.message);
        }
      };
      return h("tr",
        h("td", brief(lesson.upstream)), h("td", brief(lesson.model)), h("td", brief(lesson.feature)), h("td", `in ${count(Math.ceil(lesson.expires_s / 60), "minute")}`),
        h("td", h("button.button", { type: "button", onclick: forget, title: "Forget everything that was learnt about this model" }, "Forget")));
    };
    fill(this.lessons, h("section.card",
      h("header", h("div", h("h2", "Learnt from refusals"), h("p.sub", "Requests go without these parts, because the upstream refused them."))),
      h("table", h("thead", h("tr", ["upstream", "model", "refuses", "tried again", ""].map((name) => h("th", { scope: "col" }, name)))), h("tbody", lessons.map(line))),
      problem));
  }

  card(health) {
    const good = health.calls ? health.good_calls / health.calls : 1;
    const tone = !health.up || health.errors > 0.5 * health.requests ? "bad" : good < 0.9 || health.errors > 0.1 * health.requests ? "warn" : "good";
    const figure = (name, value, mark = "") => h("div.figure" + mark, h("b", value), h("span", name));
    const points = health.points;
    const search = new URLSearchParams({ q: `upstream:${health.upstream}${health.model ? ` model:${health.model}` : ""}` });
    return h(`section.card.health-card.${tone}`,
      h("header", h("span.dot", { "aria-hidden": "true" }), h("div", h("h2", health.upstream), h("p.sub", health.model || "all models")), h("span.grow"), h("span.pill." + (health.up ? "good" : "bad"), health.up ? "in use" : "left out"), h("a.jump", { href: `#/?${search}` }, "its exchanges")),
      h("div.figures",
        figure("good calls", percent(health.good_calls, health.calls), good < 0.9 ? ".warn" : ""),
        figure("requests", health.requests.toLocaleString("en")),
        figure("errors", percent(health.errors, health.requests), health.errors > 0.05 * health.requests ? ".bad" : ""),
        figure("answers with leaks", health.leaks.toLocaleString("en"), health.leaks ? ".warn" : "")),
      points.length > 1 ? h("div.plots",
        this.plot("requests and errors", points, (point) => [["plain", point.requests], ["bad", point.errors]], (most) => count(most, "request")),
        this.plot("calls, in text, bad", points, (point) => [["call", point.calls], ["warn", point.text_calls], ["bad", point.bad_calls]], (most) => count(most, "call")),
        this.plot("first byte, mean", points, (point) => [["call", point.first_byte_ms]], millis)) : h("p.quiet-text", "Plots appear with the second slice of time."));
  }

  plot(name, points, bars, words) {
    const all = points.map(bars);
    const most = Math.max(...all.map((entries) => entries[0][1]));
    const width = 300 / points.length;
    const drawing = svg("svg", { viewBox: "0 0 300 56", preserveAspectRatio: "none", role: "img", "aria-label": name });
    all.forEach((entries, index) => {
      for (const [tone, value] of entries) {
        if (!value) continue;
        const height = Math.max(1.5, (50 * value) / most);
        drawing.append(svg("rect", { class: `bar ${tone}`, x: index * width + width * 0.1, y: 54 - height, width: width * 0.8, height }));
      }
    });
    drawing.append(svg("path", { class: "base", d: "M0 54.5H300" }));
    return this.frame(name, most ? `most ${words(most)}` : "none", drawing, points);
  }

  frame(name, most, drawing, points) {
    return h("figure.plot-frame", h("figcaption", h("b", name), h("span", most)), drawing, h("div.ticks", h("span", clockTime(points[0].at)), h("span", clockTime(points[points.length - 1].at))));
  }
}
