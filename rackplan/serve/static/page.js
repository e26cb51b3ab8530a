// Elements made from data (text is text, never markup), and requests to the server that gave this page.

export function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) { continue; }
    if (key === "text") { made.textContent = value; }
    else if (key === "class") { made.className = value; }
    else if (key.startsWith("on")) { made.addEventListener(key.slice(2), value); }
    else if (key in made && typeof value !== "string") { made[key] = value; }
    else { made.setAttribute(key, value); }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);
export const button = (text, onclick, options = {}) => element("button", { type: "button", text, onclick, ...options });
export const select = (options, entries) =>
  element("select", options, ...entries.map(([value, text]) => element("option", { value: String(value), text })));
export const error = (text) => element("p", { class: "error", text });
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// a table in a box that scrolls sideways
export function table(columns, rows, { caption, label = caption, words = [] } = {}) {
  const head = columns.map((text, place) => element("th", { text, scope: "col", class: place === 0 || words.includes(place) ? "" : "figure" }));
  const cell = (value, place) => (place === 0 ? element("th", { scope: "row", text: String(value) })
    : element("td", { class: words.includes(place) || String(value ?? "").length > 30 ? "" : "figure", text: String(value ?? "") }));
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, element("table", {},
    caption && element("caption", { text: caption }),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell))))));
}

export async function copy(text, pressed) {
  const before = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    pressed.textContent = "Select and copy";
  }
  setTimeout(() => { pressed.textContent = before; }, 1500);
}

export function save(href, name) {
  element("a", { href, download: name }).click();
}

export const copyButton = (text) =>
  button("Copy", (event) => copy(text, event.target), { class: "quiet", "aria-label": "Copy the command of this plan" });

export function download(text, name, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  save(address, name);
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// a diagram of the server, or the map of experts, in an element of its own
export function picture(found) {
  const held = element("figure", { class: found.svg ? "diagram" : "picture", "aria-label": found.says }, ...parsed(found.svg));
  // it is measured when it is drawn, so it must be in the page by then
  if (!found.svg) { requestAnimationFrame(() => window.rackplanPictures.draw(held, found.data)); }
  return held;
}

export const drawing = (text) => element("div", { class: "drawing" }, ...parsed(text));

// an SVG of the server, parsed as a document of its own: no markup of this page is made from it
function parsed(text) {
  const made = text && new DOMParser().parseFromString(text, "image/svg+xml");
  return !made || made.querySelector("parsererror") ? [] : [document.importNode(made.documentElement, true)];
}

// what a request was refused for: a sentence by field
export class Refused extends Error {
  constructor(errors) {
    super(Object.values(errors).join("; "));
    this.errors = errors;
  }
}

async function reach(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (failed) {
    if (failed.name === "AbortError") { throw failed; }
    throw new Refused({ request: "no response from the server; is `rackplan serve` still running?" });
  }
  if (response.ok) { return response; }
  let errors = { request: `the server returned status ${response.status}.` };
  try { errors = (await response.json()).errors || errors; } catch { /* not JSON: the status says it */ }
  throw new Refused(errors);
}

export const get = (path) => reach(path, {});
const send = (path, body, signal) =>
  reach(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
export const post = async (path, body) => (await send(path, body)).json();

// the answer to a request line by line, each a JSON value
export async function* lines(path, body, signal) {
  const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const found = (rest + part.value).split("\n");
    rest = found.pop();
    for (const line of found) { yield JSON.parse(line); }
  }
}

// Asks for the latest of several questions: one is on its way at a time, and those between are left out. That one is
// on its way is told where it takes a while.
export function latest(ask, show, refuse, waiting = () => {}) {
  const SOON_MS = 120;
  let next = null, busy = false;
  return async (question) => {
    next = { question };
    if (busy) { return; }
    busy = true;
    const timer = setTimeout(() => waiting(true), SOON_MS);
    while (next) {
      const { question: now } = next;
      next = null;
      try {
        const found = await ask(now);
        if (!next) { await show(found, now); }
      } catch (failed) {
        if (!next) { refuse(failed); }
      }
    }
    busy = false;
    clearTimeout(timer);
    waiting(false);
  };
}
