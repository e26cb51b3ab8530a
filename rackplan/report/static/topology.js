// Makes the drawing of a cluster answer: what a GPU, node, rack, domain, switch or link is, on hover and by keyboard.
//   rackplanPictures.topology(element) -> { mark(ids, state) }     state "lost" or ""
// A click or Enter on what can be lost sends "rackplan:pick" with its kind and id. Arrows go from one to the next.
(function () {
  "use strict";
  const { pick, showTip, hideTip } = rackplanPictures;
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const looks = new Set();  // of drawings so far

  rackplanPictures.topology = function (element) {
    const svg = element.querySelector("svg");
    if (!svg || svg.dataset.answers) { return { mark: function () {} }; }
    svg.dataset.answers = "1";
    // a sheet made here passes a policy that refuses styles in markup
    svg.querySelectorAll("style").forEach(function (style) {
      if (!looks.has(style.textContent)) {
        const sheet = new CSSStyleSheet();
        sheet.replaceSync(style.textContent);
        document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
        looks.add(style.textContent);
      }
      style.remove();
    });
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", "drawing of the cluster; arrow keys move between parts");
    // titles become tips of ours, at once and for the keyboard too; links get a wider line to meet
    const told = new Map(), parts = [];
    svg.querySelectorAll("g > title").forEach(function (title) {
      const group = title.parentNode, text = title.textContent.trim();
      title.remove();
      told.set(group, text);
      group.classList.add("rp-told");
      if (!group.dataset.id) { return; }
      parts.push(group);
      group.setAttribute("tabindex", parts.length === 1 ? "0" : "-1");
      group.setAttribute("role", element.dataset.pick ? "button" : "img");
      group.setAttribute("aria-label", (group.dataset.kind + " " + text).slice(0, 300));
    });
    function lines(group) {
      const words = told.get(group).split("; ");
      return group.dataset.kind ? [group.dataset.kind + " " + words[0], ...words.slice(1)] : words;
    }
    svg.addEventListener("pointermove", function (event) {
      const group = event.target.closest(".rp-told");
      if (group && event.pointerType !== "touch") { showTip(lines(group), event.clientX, event.clientY); } else { hideTip(); }
    });
    svg.addEventListener("pointerleave", hideTip);
    svg.addEventListener("focusin", function (event) {
      const group = event.target.closest("[data-id]");
      if (!group) { return; }
      const bounds = group.getBoundingClientRect();
      if (group.matches(":focus-visible")) { showTip(lines(group), bounds.left + bounds.width / 2, bounds.bottom); }
    });
    svg.addEventListener("focusout", hideTip);
    function choose(group) { pick(element, { kind: group.dataset.kind, id: group.dataset.id }); }
    svg.addEventListener("click", function (event) {
      const group = event.target.closest(".rp-told");
      if (!group) { return; }
      if (group.dataset.id) { go(group); choose(group); }
      const bounds = group.getBoundingClientRect();
      showTip(lines(group), bounds.left + bounds.width / 2, bounds.bottom);
    });
    function go(group) {
      parts.forEach(function (part) { part.setAttribute("tabindex", part === group ? "0" : "-1"); });
      group.focus();
    }
    svg.addEventListener("keydown", function (event) {
      const at = parts.indexOf(event.target.closest("[data-id]"));
      if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) { return; }
      if (event.key in steps) { go(parts[Math.max(0, Math.min(parts.length - 1, at + steps[event.key]))]); }
      else if (event.key === "Home") { go(parts[0]); }
      else if (event.key === "End") { go(parts[parts.length - 1]); }
      else if (event.key === "Enter" || event.key === " ") { choose(parts[at]); }
      else { return; }
      event.preventDefault();
    });
    return {
      // marks what has one of the ids, and GPUs of a node or domain that has
      mark: function (ids, state) {
        const wanted = new Set(ids);
        parts.forEach(function (part) {
          const id = part.dataset.id;
          const hit = wanted.has(id) || ids.some(function (one) { return id.startsWith(one + "."); });
          if (hit) { part.classList.toggle("rp-lost", state === "lost"); }
        });
      }
    };
  };
})();
