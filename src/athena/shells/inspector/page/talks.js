// Stored Responses: conversations and chains of responses, item by item, with links to the exchanges that made them.

import { getTalk, getTalks } from "./data.js";
import { brief, fill, h, longText } from "./dom.js";
import { count, dateTime } from "./words.js";

const STATUS_TONES = { completed: "good", failed: "bad", cancelled: "warn", incomplete: "warn" };

export class TalksPage {
  /** `id` opens one conversation, by its own name or by that of one of its responses. */
  constructor(id) {
    this.id = id;
    this.body = h("div.talks");
    this.element = h("article.health", h("header.head", h("h1", "Conversations"), this.sub = h("p.sub", "Responses that this gateway keeps, and what continues them.")), this.body);
  }

  async start() {
    if (this.id) this.showTalk(await getTalk(this.id));
    else this.showAll(await getTalks());
  }

  close() {}

  showAll({ talks, keeps }) {
    if (!talks.length) {
      const why = keeps ? "A request to /v1/responses with store: true appears here, and every one that continues it." : "This gateway keeps no responses: its configuration says store: false.";
      fill(this.body, h("div.empty", h("h2", "Nothing is stored"), h("p", why)));
      return;
    }
    const line = (talk) => h("tr",
      h("td", h("a", { href: `#/conversations/${encodeURIComponent(talk.id)}` }, h("code", brief(talk.id, 60)))),
      h("td", talk.kind === "conversation" ? "conversation" : "responses in a row"),
      h("td", brief(talk.owner) || "no key"),
      h("td", count(talk.responses.length, "response")),
      h("td", dateTime(talk.last)),
      h("td", h("span.pill." + (STATUS_TONES[talk.status] || "soft"), talk.status)));
    fill(this.body, h("section.card", h("table",
      h("thead", h("tr", ["name", "kind", "key", "length", "last", "status"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", talks.map(line)))));
  }

  showTalk({ talk, told, is_whole }) {
    fill(this.sub, h("a", { href: "#/conversations" }, "all conversations"), " · ", h("code", brief(talk.id)), ` · ${count(talk.responses.length, "response")}, of ${talk.owner ? `key ${brief(talk.owner)}` : "no key"}`);
    fill(this.body, told.map((response) => this.response(response)), is_whole ? null : h("p.sub", "There is more than the page shows: the rest is left out."));
  }

  response(response) {
    return h("section.card", { data: { response: response.id } },
      h("header", h("div",
        h("h2", h("code", brief(response.id)), " ", h("span.pill." + (STATUS_TONES[response.status] || "soft"), response.status)),
        h("p.sub", [dateTime(response.created), brief(response.model), response.parent ? `continues ${brief(response.parent)}` : ""].filter(Boolean).join(" · "))),
        response.exchange ? h("a.chip", { href: `#/x/${encodeURIComponent(response.exchange)}/lanes` }, "the exchange") : h("span.sub", "not recorded")),
      h("div.talk-items", response.input.map((item) => this.item(item, "asked")), response.output.map((item) => this.item(item, "said"))));
  }

  item(item, side) {
    const kind = item.type || "message";
    const call = kind.endsWith("_call");
    const title = [kind === "message" ? item.role : kind, item.name, item.call_id].filter(Boolean).map((word) => brief(word, 60)).join(" · ");
    return h(`div.box.${call ? "call" : kind === "reasoning" ? "thinking" : "text"}.${side}`, h("div.title", h("b", title)), longText(wordsOf(item), 2000));
  }
}

/** What an item says; its JSON where nothing in it is text. */
function wordsOf(item) {
  if (typeof item.content === "string") return item.content;
  const parts = [...(Array.isArray(item.content) ? item.content : []), ...(Array.isArray(item.summary) ? item.summary : [])];
  const said = parts.map((part) => part.text ?? part.refusal ?? JSON.stringify(part));
  if (said.length) return said.join("\n");
  if (typeof item.arguments === "string") return item.arguments;
  if (item.output !== undefined) return typeof item.output === "string" ? item.output : JSON.stringify(item.output);
  return JSON.stringify(item);
}
