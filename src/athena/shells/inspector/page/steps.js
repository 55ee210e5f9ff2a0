// One exchange as steps: what came in, the events it brought and the bytes it sent to the client; and how steps hang together.

import { brief } from "./dom.js";

const DULL = new Set(["index", "output_index", "content_index", "sequence_number", "obfuscation", "logprobs", "item_id"]);
const DULL_ON_TOP = new Set([
  "id", "object", "created", "model", "system_fingerprint", "provider", "service_tier", "responseId", "modelVersion",
  "native_finish_reason",
]);
const SHELLS = new Set(["choices", "candidates", "delta"]); // what only wraps
const LONGEST_RANGE = 5000;

export function stepsOf(view) {
  const steps = new Map();
  const at = (number, t) => {
    let step = steps.get(number);
    if (step === undefined) {
      step = { number, t, reads: [], events: [], writes: [], marks: [], gap: 0, held: false };
      steps.set(number, step);
    }
    if (t < step.t) step.t = t;
    return step;
  };
  for (const item of view.reads) {
    const step = at(item.step, item.t);
    if (item.kind !== "told") step.reads.push(item);
  }
  for (const item of view.events) at(item.step, item.t).events.push(item);
  for (const item of view.writes) at(item.step, item.t).writes.push(item);
  for (const mark of view.marks) at(mark.step, Infinity).marks.push(mark);
  const ordered = [...steps.values()].sort((a, b) => a.number - b.number);
  let last = 0;
  for (const step of ordered) {
    if (step.t === Infinity) step.t = last;
    step.gap = step.t - last;
    last = step.t;
  }
  markHeld(ordered, view);
  return ordered;
}

/** Steps between an event and the later write that tells it: there the text was held. */
function markHeld(ordered, view) {
  const index = new Map(ordered.map((step, place) => [step.number, place]));
  const eventStep = new Map(view.events.map((item) => [item.number, item.step]));
  for (const write of view.writes) {
    if (write.first_event === null || write.first_event === undefined) continue;
    const from = index.get(eventStep.get(write.first_event));
    const to = index.get(write.step);
    if (from === undefined || to === undefined || from >= to) continue;
    for (let place = from; place <= to && place < from + LONGEST_RANGE; place++) {
      const held = place === from ? "starts" : place === to ? "ends" : "lasts";
      ordered[place].held = ordered[place].held === "ends" && held === "starts" ? "lasts" : held;
    }
  }
}

/** For every step, the steps of each lane that belong together with it. */
export class Links {
  constructor(view) {
    this.eventStep = new Map(view.events.map((item) => [item.number, item.step]));
    this.writeOf = new Map();
    for (const write of view.writes) {
      if (write.first_event === null || write.first_event === undefined) continue;
      const last = Math.min(write.last_event ?? write.first_event, write.first_event + LONGEST_RANGE);
      for (let number = write.first_event; number <= last; number++) this.writeOf.set(number, write.step);
    }
  }

  of(step) {
    const linked = { up: new Set([step.number]), ev: new Set([step.number]), cl: new Set([step.number]) };
    for (const item of step.events) {
      const told = this.writeOf.get(item.number);
      if (told !== undefined) linked.cl.add(told);
    }
    for (const write of step.writes) {
      if (write.first_event === null || write.first_event === undefined) continue;
      const last = Math.min(write.last_event ?? write.first_event, write.first_event + LONGEST_RANGE);
      for (let number = write.first_event; number <= last; number++) {
        const brought = this.eventStep.get(number);
        if (brought === undefined) continue;
        linked.ev.add(brought);
        linked.up.add(brought);
      }
    }
    return linked;
  }
}

/** Events of one step that belong into one box: text with text, the pieces of one call together. */
export function groupsOf(events) {
  const groups = [];
  for (const item of events) {
    const kind = kindOf(item.event);
    const last = groups[groups.length - 1];
    if (last && last.kind === kind && (kind !== "call" || last.call === item.event.call) && kind !== "other") {
      last.items.push(item);
    } else {
      groups.push({ kind, call: item.event.call, items: [item] });
    }
  }
  return groups;
}

export function kindOf(event) {
  switch (event.event) {
    case "TextDelta":
      return event.refusal ? "refusal" : "text";
    case "ThinkingDelta":
      return "thinking";
    case "ToolCallStart":
    case "ToolCallDelta":
    case "ToolCallComplete":
      return "call";
    case "Error":
      return "error";
    case "Done":
      return "done";
    case "Start":
      return "start";
    default:
      return "other";
  }
}

/** The name that an exchange's calls were started with, by number. */
export function callNames(view) {
  const names = new Map();
  for (const call of view.calls) names.set(call.call, call.name);
  for (const { event } of view.events) if (event.event === "ToolCallStart") names.set(event.call, event.name);
  return names;
}

/** An event in words: a title and what it holds. */
export function eventWords(event, names = new Map()) {
  const name = brief(names.get(event.call) ?? event.name ?? `number ${event.call}`);
  switch (event.event) {
    case "Start":
      return ["answer starts", [event.model, event.id].filter(Boolean).join(" · ")];
    case "TextDelta":
      return [event.refusal ? "refusal" : "text", event.text];
    case "ThinkingDelta":
      return ["thinking" + (event.signature ? " · signed" : ""), event.text || ""];
    case "ToolCallStart":
      return [`call ${brief(event.name)} starts`, `id ${event.id}` + (event.arguments ? `\narguments ${event.arguments}` : "")];
    case "ToolCallDelta":
      return [`call ${name} arguments`, event.arguments];
    case "ToolCallComplete":
      return [`call ${name} complete` + (event.repaired ? " · repaired" : ""), event.arguments];
    case "Done": {
      const { kind = "stop", raw = "" } = event.finish || {};
      const used = event.usage;
      const said = raw && raw !== kind ? `upstream said “${raw}”` : "";
      const tokens = used ? `${used.input_total || 0} tokens in, ${used.output_total || 0} out${used.estimated ? " (estimated)" : ""}` : "";
      return [`done: ${kind}`, [said, tokens].filter(Boolean).join("\n")];
    }
    case "Error":
      return [`${event.fatal === false ? "error of one call" : "error"}: ${brief(event.code || event.kind || "upstream_error")}`, event.message];
    case "KeepAlive":
      return ["keep alive", ""];
    default:
      return [event.event, JSON.stringify({ ...event, event: undefined })];
  }
}

/** The fields of a record as lines `path: value`, without what repeats in every record. */
function flatten(value, path, lines) {
  if (value === null || value === "" || (Array.isArray(value) && !value.length)) return;
  if (typeof value !== "object") {
    lines.push((path ? `${path}: ` : "") + (typeof value === "string" ? shownText(value) : value));
    return;
  }
  const alone = Array.isArray(value) && value.length === 1;
  for (const [key, item] of Object.entries(value)) {
    if ((DULL.has(key) || (path === "" && DULL_ON_TOP.has(key))) && !Array.isArray(value) && (item === null || typeof item !== "object")) continue;
    if (key === "type" && typeof item === "string" && (item.endsWith("_delta") || item === "function")) continue;
    flatten(item, alone || SHELLS.has(key) ? path : path ? `${path}.${key}` : key, lines);
  }
}

function shownText(text) {
  return `"${text.replaceAll("\n", "\\n").replaceAll("\r", "\\r")}"`;
}

/** A read or write without what repeats in every record of a stream; null where that cannot be told, so that bytes are shown. */
export function essential(text) {
  if (!/^(?:data|event|:)/.test(text.trimStart().slice(0, 6))) return null;
  const lines = [];
  for (const record of text.split(/\r?\n\r?\n/)) {
    if (!record.trim()) continue;
    let name = "";
    const data = [];
    for (const line of record.split(/\r?\n/)) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
      else if (line.startsWith(":") || line.startsWith("id:")) lines.push(line);
      else if (line) return null;
    }
    if (!data.length) {
      if (name) lines.push(name);
      continue;
    }
    const joined = data.join("\n");
    if (joined === "[DONE]") {
      lines.push("[DONE]");
      continue;
    }
    try {
      const value = JSON.parse(joined);
      if (value !== null && typeof value === "object" && !Array.isArray(value)) {
        const type = typeof value.type === "string" ? value.type : "";
        const { type: _, ...rest } = value;
        const title = type || name;
        const fields = [];
        flatten(type ? rest : value, "", fields);
        if (title) lines.push(title);
        lines.push(...(fields.length || title ? fields : [joined]));
      } else lines.push(joined);
    } catch {
      return null;
    }
  }
  return lines.join("\n");
}
