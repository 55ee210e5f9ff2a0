// JSON as a tree whose branches are built when they are opened, and the difference between two JSON texts.

import { brief, h, longText } from "./dom.js";
import { count } from "./words.js";

const OPEN_DEPTH = 3;
const OPEN_SIZE = 12;
const AT_ONCE = 200;

/** The value of a JSON text; undefined where it is none. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Every text, number and truth value in a JSON value, as comparable strings. */
export function leavesOf(value, found = new Set(), name = "") {
  if (Array.isArray(value)) for (const item of value) leavesOf(item, found, name);
  else if (value !== null && typeof value === "object") for (const [key, item] of Object.entries(value)) leavesOf(item, found, key);
  else found.add(leafKey(value, name));
  return found;
}

/** Texts and numbers are known again under another name; `true` alone says nothing, so its name belongs to it. */
function leafKey(value, name) {
  if (value === null || typeof value === "boolean") return `${name} ${value}`;
  if (typeof value === "number") return String(value);
  const inner = /^\s*[[{]/.test(value) ? parsed(value) : undefined;
  return inner === undefined ? JSON.stringify(value.trim()) : JSON.stringify(inner);
}

/** A tree; leaves that are not in `others` get the class `only`. */
export function jsonTree(value, others = null, open = null) {
  const changed = (leaf, name) => others !== null && !others.has(leafKey(leaf, name));
  return h("div.json", branch(value, "", "", 0, changed, open));
}

function holdsChange(value, name, changed) {
  if (Array.isArray(value)) return value.some((item) => holdsChange(item, name, changed));
  if (value !== null && typeof value === "object") return Object.entries(value).some(([key, item]) => holdsChange(item, key, changed));
  return changed(value, name);
}

/** `field` is the name of the nearest object's field: items of a list have numbers for names. */
function branch(value, name, field, depth, changed, open) {
  const key = name === "" ? null : h("span.key", brief(name));
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value;
    const shown = typeof value === "string" ? longText(JSON.stringify(value), 400) : JSON.stringify(value);
    return h("div.leaf" + (changed(value, field) ? ".only" : ""), key, h(`span.value.${kind}`, shown));
  }
  const isList = Array.isArray(value);
  const entries = isList ? value.map((item, index) => [String(index), item]) : Object.entries(value);
  if (!entries.length) return h("div.leaf", key, h("span.value", isList ? "[ ]" : "{ }"));
  const size = isList ? count(entries.length, "item") : count(entries.length, "field");
  const summaryLine = h("summary" + (holdsChange(value, field, changed) ? ".has-only" : ""), key, h("span.value.kind", preview(value, isList, size)));
  const details = h("details", summaryLine);
  let filled = false;
  const fillIn = () => {
    if (filled) return;
    filled = true;
    addChildren(details, entries, 0, { field: isList ? field : null, depth, changed, open });
  };
  details.addEventListener("toggle", () => details.open && fillIn());
  const opens = open === null ? depth < OPEN_DEPTH && (depth === 0 || entries.length <= OPEN_SIZE) : open;
  if (opens && depth < 12) {
    fillIn();
    details.open = true;
  }
  return details;
}

/** `field` is that of a list, which its items share. */
function addChildren(details, entries, from, { field, depth, changed, open }) {
  const part = entries.slice(from, from + AT_ONCE);
  for (const [name, item] of part) details.append(branch(item, name, field ?? name, depth + 1, changed, open));
  if (entries.length <= from + AT_ONCE) return;
  const more = h("button.more", { type: "button", onclick: () => {
    more.remove();
    addChildren(details, entries, from + AT_ONCE, { field, depth, changed, open });
  } }, `show more of ${entries.length}`);
  details.append(more);
}

function preview(value, isList, size) {
  if (isList) return `[ ${size} ]`;
  const named = value.name ?? value.role ?? value.type;
  return typeof named === "string" ? `{ ${brief(named, 60)} }` : `{ ${size} }`;
}
