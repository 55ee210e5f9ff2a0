// Everything that a web page can make its visitor's browser send to a server, each with its name in the query. For every attempt:
// what the page learnt ("blocked" when nothing).
async (gateway) => {
  const learnt = {};
  const body = JSON.stringify({
    model: "any",
    max_tokens: 9,
    messages: [{ role: "user", content: "x" }],
    input: "x",
    contents: [{ role: "user", parts: [{ text: "x" }] }],
    tools: [],
  });
  const dialects = {
    anthropic: "/v1/messages",
    chat: "/v1/chat/completions",
    responses: "/v1/responses",
    gemini: "/v1beta/models/any:generateContent",
  };
  const at = (path, name) => `${gateway}${path}?attack=${name}`;
  const limit = (work) =>
    Promise.race([work, new Promise((_, fail) => setTimeout(() => fail(new Error("nothing happened")), 10000))]);
  const attempt = async (name, work) => {
    try {
      learnt[name] = await limit(work(name));
    } catch (error) {
      learnt[name] = error.message === "nothing happened" ? error.message : "blocked";
    }
  };
  const read = async (answer) => (answer.type === "opaque" ? "blocked" : `${answer.status} ${await answer.text()}`);
  const element = (kind, attributes, look = () => "blocked") =>
    new Promise((done) => {
      const made = document.createElement(kind);
      made.onload = () => done(look(made));
      made.onerror = () => done("blocked");
      Object.assign(made, attributes);
      document.body.append(made);
    });

  for (const path of ["/", "/health", "/ready", "/metrics", "/v1/models", "/v1beta/models"]) {
    const name = `get${path.replaceAll("/", "-")}`;
    await attempt(name, () => fetch(at(path, name)).then(read));
    await attempt(`opaque-${name}`, (own) => fetch(at(path, own), { mode: "no-cors" }).then(read));
  }
  for (const [dialect, path] of Object.entries(dialects)) {
    const plain = { "content-type": "text/plain" };
    await attempt(`plain-${dialect}`, (name) =>
      fetch(at(path, name), { method: "POST", mode: "no-cors", headers: plain, body }).then(read),
    );
    await attempt(`json-${dialect}`, (name) =>
      fetch(at(path, name), { method: "POST", headers: { "content-type": "application/json" }, body }).then(read),
    );
    await attempt(`key-${dialect}`, (name) =>
      fetch(at(path, name), { method: "POST", headers: { ...plain, authorization: "Bearer x" }, body }).then(read),
    );
    await attempt(`form-${dialect}`, async (name) => {
      const frame = document.createElement("iframe");
      frame.name = name;
      document.body.append(frame);
      const form = document.createElement("form");
      Object.assign(form, { action: at(path, name), method: "POST", enctype: "text/plain", target: name });
      const field = document.createElement("input");
      Object.assign(field, { name: body.slice(0, -1) + ',"x":"', value: '"}' });
      form.append(field);
      document.body.append(form);
      const loaded = new Promise((done) => (frame.onload = done));
      form.submit();
      await loaded;
      return frame.contentDocument ? `frame ${frame.contentDocument.body.innerText}` : "blocked";
    });
  }
  await attempt("beacon-plain", (name) => {
    navigator.sendBeacon(at("/v1/messages", name), body);
    return "blocked";
  });
  await attempt("beacon-json", (name) => {
    navigator.sendBeacon(at("/v1/messages", name), new Blob([body], { type: "application/json" }));
    return "blocked";
  });
  await attempt("request-object", (name) => {
    const request = new XMLHttpRequest();
    return new Promise((done) => {
      request.onload = () => done(`${request.status} ${request.responseText}`);
      request.onerror = () => done("blocked");
      request.open("POST", at("/v1/chat/completions", name));
      request.send(body);
    });
  });
  await attempt("events", (name) => {
    const source = new EventSource(at("/v1/models", name));
    return new Promise((done) => {
      source.onmessage = (event) => done(event.data);
      source.onerror = () => done("blocked");
    }).finally(() => source.close());
  });
  await attempt("socket", (name) => {
    const socket = new WebSocket(at("/v1/responses", name).replace("http:", "ws:"));
    return new Promise((done) => {
      socket.onopen = () => done("open");
      socket.onerror = () => done("blocked");
    });
  });
  await attempt("frame", (name) =>
    element("iframe", { src: at("/v1/models", name) }, (frame) =>
      frame.contentDocument ? `frame ${frame.contentDocument.body.innerText}` : "blocked",
    ),
  );
  await attempt("image", (name) => element("img", { src: at("/v1/models", name) }, () => "an image"));
  await attempt("script", (name) => element("script", { src: at("/v1/models", name) }, () => "a script"));
  await attempt("style", (name) => element("link", { rel: "stylesheet", href: at("/metrics", name) }, () => "a style"));
  return learnt;
}
