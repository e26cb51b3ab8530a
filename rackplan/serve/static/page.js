// Elements made from data: text is text, never markup.

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

export function byId(id) { return document.getElementById(id); }

export function table(columns, rows, options = {}) {
  const head = element("tr", {}, ...columns.map((text) => element("th", { text, scope: "col" })));
  const cell = (value, place) => {
    const shown = value instanceof Node ? [value] : [String(value ?? "")];
    if (place === 0) { return element("th", { scope: "row" }, ...shown); }
    return element("td", { class: options.words?.includes(place) ? "" : "figure" }, ...shown);
  };
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  return element("table", {},
    options.caption ? element("caption", { text: options.caption }) : null,
    element("thead", {}, head), element("tbody", {}, ...body));
}

export async function copy(text, button) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy";
  }
  setTimeout(() => { button.textContent = said; }, 1500);
}

export function download(text, name, type) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// a diagram of the server, or the map of experts, in an element of its own
export function picture(found) {
  const held = element("figure", { class: found.svg ? "diagram" : "picture", "aria-label": found.says });
  if (found.svg) { held.append(...parsed(found.svg)); return held; }
  // it is measured when it is drawn, so it must stand in the page by then
  requestAnimationFrame(() => window.rackplanPictures.draw(held, found.data));
  return held;
}

export function drawing(text) { return element("div", { class: "drawing" }, ...parsed(text)); }

// an SVG of the server, parsed as a document of its own: no markup of this page is made from it
function parsed(text) {
  const made = new DOMParser().parseFromString(text, "image/svg+xml");
  return made.querySelector("parsererror") ? [] : [document.importNode(made.documentElement, true)];
}
