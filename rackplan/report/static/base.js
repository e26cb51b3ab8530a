// What the map of experts and the drawing share. One global:
//   rackplanPictures.start(root)          draws every figure.picture under root, and makes drawings answer
//   rackplanPictures.draw(element, data)  draws a map of experts
//   rackplanPictures.topology(element)    -> { mark(ids, state) }   (topology.js)
// Picks bubble as CustomEvent "rackplan:pick" with detail { kind, id, ... }.
window.rackplanPictures = (function () {
  "use strict";

  // an element with text and attributes; never markup from data
  function make(name, options, ...children) {
    const element = document.createElement(name);
    fill(element, options, children);
    return element;
  }

  function fill(element, options, children) {
    for (const [key, value] of Object.entries(options || {})) {
      if (value === null || value === undefined) { continue; }
      if (key === "text") { element.textContent = value; }
      else if (key === "class") { element.className = value; }
      else { element.setAttribute(key, value); }
    }
    element.append(...children.filter(function (child) { return child !== null && child !== undefined; }));
  }

  // one tip for the page, beside the pointer or the focused element; a screen reader hears labels instead
  let tip = null;
  function showTip(lines, x, y) {
    if (!tip) { tip = make("div", { class: "rp-tip", "aria-hidden": "true" }); }
    if (!tip.isConnected) { document.body.append(tip); }
    tip.replaceChildren(...lines.filter(Boolean).map(function (line, index) {
      return make("div", { class: index ? "" : "rp-tip-first", text: line });
    }));
    tip.hidden = false;
    const wide = tip.offsetWidth, high = tip.offsetHeight, gap = 14;
    const left = x + gap + wide > window.innerWidth ? Math.max(4, x - gap - wide) : x + gap;
    const top = y + gap + high > window.innerHeight ? Math.max(4, y - gap - high) : y + gap;
    tip.style.left = left + "px";
    tip.style.top = top + "px";
  }
  function hideTip() { if (tip) { tip.hidden = true; } }
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") { hideTip(); } });
  window.addEventListener("scroll", hideTip, { passive: true, capture: true });

  function count(value) { return value.toLocaleString("en-US"); }

  // what colours mean: [[name, colour]]
  function key(words, entries) {
    const made = make("div", { class: "rp-key" }, make("span", { class: "rp-key-words", text: words }));
    entries.forEach(function (entry) {
      const swatch = make("span", { class: "rp-swatch", "aria-hidden": "true" });
      if (entry[1]) { swatch.style.backgroundColor = entry[1]; }
      made.append(make("span", { class: "rp-key-entry" }, swatch, make("span", { text: entry[0] })));
    });
    return made;
  }

  // base64 of a little-endian array
  function array(text, Type) {
    const raw = atob(text), held = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) { held[i] = raw.charCodeAt(i); }
    return new Type(held.buffer);
  }

  function pick(element, detail) {
    element.dispatchEvent(new CustomEvent("rackplan:pick", { bubbles: true, detail: detail }));
  }

  function draw(element, data) {
    element.classList.add("picture");
    return rackplanPictures.experts(element, data);
  }

  function start(root) {
    root.querySelectorAll("figure.picture").forEach(function (figure) {
      const script = figure.querySelector("script");
      if (!script || figure.dataset.drawn) { return; }
      figure.dataset.drawn = "1";
      const box = make("div", { class: "rp-box" });
      figure.append(box);
      draw(box, JSON.parse(script.textContent));
    });
    root.querySelectorAll(".drawing").forEach(function (box) { rackplanPictures.topology(box); });
  }

  return { make, showTip, hideTip, count, key, array, pick, draw, start };
})();
