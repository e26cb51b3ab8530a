// What all pictures share. One global:
//   rackplanPictures.start(root)               draws every figure.picture under root, and makes drawings answer
//   rackplanPictures.draw(element, kind, data)  -> { update(data), destroy() }
//   rackplanPictures.topology(element)          -> { mark(ids, state) }   (topology.js)
// Picks bubble as CustomEvent "rackplan:pick" with detail { kind, id, ... }.
window.rackplanPictures = (function () {
  "use strict";
  const kinds = {};
  const svgSpace = "http://www.w3.org/2000/svg";

  // an element with text and attributes; never markup from data
  function make(name, options, ...children) {
    const element = document.createElement(name);
    fill(element, options, children);
    return element;
  }

  function makeSvg(name, attributes, ...children) {
    const element = document.createElementNS(svgSpace, name);
    for (const [key, value] of Object.entries(attributes || {})) { element.setAttribute(key, value); }
    element.append(...children);
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

  // shows what lines() says while the pointer or the focus is on an element
  function tips(element, lines) {
    element.addEventListener("pointermove", function (event) {
      if (event.pointerType !== "touch") { showTip(lines(), event.clientX, event.clientY); }
    });
    element.addEventListener("pointerleave", hideTip);
    element.addEventListener("focus", function () {
      if (!element.matches(":focus-visible")) { return; }
      const box = element.getBoundingClientRect();
      showTip(lines(), box.left + Math.min(box.width / 2, 120), box.bottom - 8);
    });
    element.addEventListener("blur", hideTip);
  }

  const digits = { 3: new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 }) };
  function number(value, places) {
    if (places === undefined) { return digits[3].format(value); }
    return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  }
  function ms(seconds) {
    const value = seconds * 1e3;
    return number(value, value >= 100 ? 1 : value >= 1 ? 2 : 3) + " ms";
  }
  function bytes(value) {
    const steps = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
    const [size, unit] = steps.find(function (step) { return value >= step[0]; }) || [1, "B"];
    const shown = value / size;
    return number(shown, shown >= 100 ? 0 : shown >= 10 ? 1 : 2) + " " + unit;
  }
  function percent(share) { return number(100 * share, share < 0.0995 ? 1 : 0) + "%"; }
  function count(value) { return value.toLocaleString("en-US"); }

  // whether letters on a colour are dark
  function inkOn(colour) {
    const [red, green, blue] = [1, 3, 5].map(function (at) { return parseInt(colour.slice(at, at + 2), 16) / 255; })
      .map(function (part) { return part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4); });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 ? "#11161b" : "#ffffff";
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

  function draw(element, kind, data) {
    const made = kinds[kind];
    if (!made) { throw new Error("no picture of kind " + kind); }
    element.classList.add("picture", "rp-" + kind);
    let shown = made(element, data);
    return {
      update: function (next) {
        if (shown && shown.destroy) { shown.destroy(); }
        element.replaceChildren();
        shown = made(element, next);
      },
      destroy: function () {
        if (shown && shown.destroy) { shown.destroy(); }
        element.replaceChildren();
        hideTip();
      }
    };
  }

  function start(root) {
    root.querySelectorAll("figure.picture[data-kind]").forEach(function (figure) {
      const script = figure.querySelector("script");
      if (!script || figure.dataset.drawn) { return; }
      figure.dataset.drawn = "1";
      const data = JSON.parse(script.textContent);
      const box = make("div", { class: "rp-box" });
      figure.append(box);
      draw(box, figure.dataset.kind, data);
    });
    root.querySelectorAll(".drawing").forEach(function (box) { rackplanPictures.topology(box); });
  }

  return { kinds, make, makeSvg, showTip, hideTip, tips, number, ms, bytes, percent, count, inkOn, array, pick, draw, start };
})();
