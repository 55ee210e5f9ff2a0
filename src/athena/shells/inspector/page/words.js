// Numbers, times and names as people read them.

import { brief } from "./dom.js";

export const DIALECTS = {
  anthropic_messages: "Anthropic Messages",
  openai_chat: "OpenAI Chat",
  openai_responses: "OpenAI Responses",
  gemini: "Gemini",
};

export const VERDICTS = {
  ok: ["ok", "good"],
  repaired: ["repaired", "warn"],
  echo: ["echo held", "warn"],
  error: ["error", "bad"],
  left: ["client left", "soft"],
  live: ["in flight", "live"],
};

export function dialectName(id) {
  return DIALECTS[id] || brief(id) || "–";
}

export function millis(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 60000) return `${Math.floor(value / 60000)} min ${Math.round((value % 60000) / 1000)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10000 ? 1 : 2)} s`;
  return value >= 10 || value === 0 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
}

export function seconds(value) {
  return `+${value.toFixed(3)} s`;
}

export function micros(value) {
  return `${value >= 100 ? Math.round(value) : value.toFixed(1)} µs`;
}

export function bytes(value) {
  if (value < 1000) return `${value} B`;
  if (value < 1e6) return `${(value / 1000).toFixed(1)} kB`;
  return `${(value / 1e6).toFixed(1)} MB`;
}

/** How many bytes a text takes on the wire. */
export function sizeOf(text) {
  return new TextEncoder().encode(text).length;
}

export function count(value, word, words = word + "s") {
  return `${value.toLocaleString("en")} ${value === 1 ? word : words}`;
}

export function percent(part, whole) {
  if (!whole) return "–";
  const value = (100 * part) / whole;
  return `${value === 100 || value === 0 ? value : value.toFixed(1)} %`;
}

export function clockTime(at) {
  const date = new Date(at * 1000);
  return date.toLocaleTimeString("en-GB");
}

export function dateTime(at) {
  const date = new Date(at * 1000);
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return `${day}, ${date.toLocaleTimeString("en-GB")}`;
}

/** What was asked for and what answered, `claude-sonnet-5 → kimi-k2`. */
export function route(row) {
  const asked = brief(row.model || row.path || "no model");
  return row.upstream_model && row.upstream_model !== row.model ? `${asked} → ${brief(row.upstream_model)}` : asked;
}

/** The same, short: without the maker before a model's name. */
export function shortRoute(row) {
  const short = (name) => name.slice(name.lastIndexOf("/") + 1) || name;
  return row.model ? route({ model: short(row.model), upstream_model: short(row.upstream_model) }) : route(row);
}

/** The line under a row's title. */
export function summary(row) {
  if (row.state === "live") {
    const doing = row.stream ? "streaming" : "answering";
    const so = row.chunks ? `${doing} · ${count(row.chunks, "chunk")}` : `waiting for ${brief(row.upstream) || "an upstream"}`;
    return `${so} · ${millis(row.duration_ms)}`;
  }
  const words = [];
  if (row.kind === "refused") words.push("refused");
  if (row.error) words.push(brief(row.error).replaceAll("_", " "));
  else if (row.kind === "passed") words.push("passed through");
  else if (row.calls) {
    const found = row.text_calls ? `, ${row.text_calls} found in text${row.format ? ` (${brief(row.format)})` : ""}` : "";
    words.push(count(row.calls, "call") + found);
  } else words.push(row.verdict === "left" ? "client left" : "text");
  if (row.bad_calls) words.push(count(row.bad_calls, "bad call"));
  if (row.echoes) words.push(count(row.echoes, "echo", "echoes") + " kept as text");
  if (row.repairs) words.push(count(row.repairs, "repair"));
  if (row.attempts > 1) words.push(count(row.attempts, "attempt"));
  words.push(millis(row.duration_ms));
  return words.join(" · ");
}
