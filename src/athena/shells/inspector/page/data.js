// Where the data comes from: the gateway's `/inspect/api`, or the page itself where it is a shared recording.
//
// The token comes in the address once. It is then kept by this tab alone (sessionStorage), sent in a header, and handed to further
// tabs of this page when they ask for it. It is in no cookie, because a browser sends those to every port of a machine.

const KEPT = "athena-inspector-token";
const API = "/inspect/api";
const HAND_OVER_MS = 400;

/** The recordings that a shared page carries, each with its id, its label and a way to read it; none on the gateway's page. */
export function embeddedViews() {
  const blocks = [...document.querySelectorAll("script[data-recording]")];
  return blocks.map((block) => ({ id: block.dataset.recording, label: block.dataset.label, read: () => JSON.parse(block.textContent) }));
}

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let token = "";
let channel = null;

function keep(value) {
  token = value;
  sessionStorage.setItem(KEPT, value);
}

/** Take the token out of the address, from this tab's memory, or from another tab of the page. */
export async function findToken() {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given) {
    keep(given);
    address.searchParams.delete("token");
    history.replaceState(null, "", address.pathname + address.search + address.hash);
  } else {
    token = sessionStorage.getItem(KEPT) || "";
  }
  channel = new BroadcastChannel(KEPT);
  channel.addEventListener("message", (event) => {
    if (event.data === "who has it?" && token) channel.postMessage({ token });
  });
  if (!token) await askOtherTabs();
  return token;
}

function askOtherTabs() {
  return new Promise((resolve) => {
    const listen = (event) => {
      if (typeof event.data?.token !== "string" || token) return;
      keep(event.data.token);
      resolve();
    };
    channel.addEventListener("message", listen);
    channel.postMessage("who has it?");
    setTimeout(() => {
      channel.removeEventListener("message", listen);
      resolve();
    }, HAND_OVER_MS);
  });
}

export function useToken(value) {
  keep(value.trim());
}

async function ask(path, options = {}, root = API) {
  const headers = { authorization: `Bearer ${token}`, ...options.headers };
  let answer;
  try {
    answer = await fetch(root + path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "The gateway does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  let said = {};
  try {
    said = (await answer.json()).error || {};
  } catch {
    said = {};
  }
  throw new Refused(answer.status, said.code || "", said.message || `the gateway answered ${answer.status}`);
}

function idPath(id) {
  return `/exchanges/${encodeURIComponent(id)}`;
}

export async function getRows(filters) {
  const query = new URLSearchParams(filters).toString();
  return (await ask(`/exchanges${query ? "?" + query : ""}`)).json();
}

export async function getView(id) {
  return (await ask(idPath(id))).json();
}

export async function getSessions() {
  return (await ask("/sessions")).json();
}

export async function getHealth() {
  return (await ask("/health")).json();
}

export async function getModels() {
  return (await ask("/models")).json();
}

export async function getTalks() {
  return (await ask("/conversations")).json();
}

export async function getTalk(id) {
  return (await ask(`/conversations/${encodeURIComponent(id)}`)).json();
}

/** Have the gateway forget what it learnt from the refusals of an upstream's model. */
export async function forgetLessons(upstream, model) {
  const body = JSON.stringify({ upstream, model });
  await ask("/learnt/forget", { method: "POST", body, headers: { "content-type": "application/json" } }, "");
}

export async function replayed(id, settings) {
  const body = JSON.stringify(settings);
  return (await ask(`${idPath(id)}/replay`, { method: "POST", body, headers: { "content-type": "application/json" } })).json();
}

export async function remove(id) {
  await ask(idPath(id), { method: "DELETE" });
}

export async function choices() {
  return (await fetch("/inspect/page/choices.json", { credentials: "omit" })).json();
}

/** Have the browser save what the gateway sends for a path. */
export async function download(id, path, name) {
  const blob = await (await ask(idPath(id) + path)).blob();
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.setAttribute("href", address);
  link.setAttribute("download", name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Follow `live` until `stop` is called; comes back by itself when the connection breaks. */
export function follow({ onEvent, onState }) {
  const stopping = new AbortController();
  const run = async () => {
    let wait = 500;
    while (!stopping.signal.aborted) {
      try {
        const answer = await ask("/live", { signal: stopping.signal });
        onState("live");
        wait = 500;
        for await (const [name, data] of serverSentEvents(answer.body)) onEvent(name, data);
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (error.status === 401 || error.status === 403) {
          onState("refused");
          return;
        }
      }
      onState("waiting");
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, 10000);
    }
  };
  run();
  return () => stopping.abort();
}

async function* serverSentEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (let step = await reader.read(); !step.done; step = await reader.read()) {
    buffer += step.value.replaceAll("\r\n", "\n");
    const records = buffer.split("\n\n");
    buffer = records.pop();
    for (const record of records) {
      let name = "message";
      const data = [];
      for (const line of record.split("\n")) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
      }
      if (data.length) yield [name, JSON.parse(data.join("\n"))];
    }
  }
}
