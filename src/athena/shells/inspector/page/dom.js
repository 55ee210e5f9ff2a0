// Elements and the text in them. Everything that a model, a client or an upstream wrote goes through `clean` and becomes a text
// node: no other way into the page exists, and the page's Content-Security-Policy (trusted types) refuses every other one.

const SVG = "http://www.w3.org/2000/svg";

// Control characters, marks that turn the direction of text, and characters without width: a reader has to see that they are there.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

function visible(character) {
  const code = character.codePointAt(0);
  if (code === 0x0d) return "␍";
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "␡";
  return "‹U+" + code.toString(16).toUpperCase().padStart(4, "0") + "›";
}

/** Text as it may be shown: what cannot be seen is made visible, and what is longer than `limit` is cut. */
export function clean(text, limit = 200000) {
  const whole = String(text);
  const cut = whole.length > limit ? whole.slice(0, limit) + "…" : whole;
  return cut.replace(HIDDEN, visible);
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else element.append(document.createTextNode(clean(child)));
  }
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") for (const [key, item] of Object.entries(value)) element.dataset[key] = item;
    else if (name === "href") element.setAttribute("href", value.startsWith("#") ? value : "#/");
    else element.setAttribute(name, value === true ? "" : clean(value, 2000));
  }
}

/** An element: `h("div.box.call", {title: "..."}, "text", child)`. Links lead to places inside the page only. */
export function h(kind, attributes, ...children) {
  const [name, ...classes] = kind.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.classList.add(...classes.filter(Boolean));
  const given = attributes !== null && typeof attributes === "object" && !(attributes instanceof Node) && !Array.isArray(attributes);
  if (given) setAttributes(element, attributes);
  append(element, given ? children : [attributes, ...children]);
  return element;
}

/** An element of a drawing. */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  for (const child of children) {
    if (child) element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Make these the children of an element. Those that are there already are left alone: they keep the focus and a click that began. */
export function arrange(element, children) {
  const wanted = new Set(children);
  for (const child of [...element.childNodes]) if (!wanted.has(child)) child.remove();
  children.forEach((child, place) => {
    const now = element.childNodes[place];
    if (now !== child) element.insertBefore(child, now ?? null);
  });
}

/** A name or a line that must stay one: cut where no person reads on. */
export function brief(text, limit = 120) {
  return clean(text, limit);
}

/** A long text that is cut at first, and a button that shows the rest in pieces a browser can lay out. */
export function longText(text, first = 600, step = 50000) {
  const whole = String(text);
  const holder = h("span.long");
  let shown = first;
  const draw = () => {
    fill(holder, clean(whole.slice(0, shown)));
    if (whole.length <= shown) return;
    const rest = whole.length - shown;
    const more = h("button.more", { type: "button", onclick: (event) => {
      event.stopPropagation();
      shown += step;
      draw();
      holder.dispatchEvent(new CustomEvent("resized", { bubbles: true }));
    } }, `show ${Math.min(step, rest).toLocaleString("en")} more of ${whole.length.toLocaleString("en")} characters`);
    holder.append(" ", more);
  };
  draw();
  return holder;
}
