// One bar of parts that fill it (HBM of a GPU), and bars side by side (links of a step).
(function () {
  "use strict";
  const { kinds, make, bytes, ms, percent, number, row, key, tips, inkOn } = rackplanPictures;

  kinds.memory = function (box, data) {
    const bar = make("div", { class: "rp-stack", "aria-hidden": "true" });
    data.uses.forEach(function (use) {
      const share = use.bytes / data.total, part = make("span", { class: "rp-part" + (use.hatched ? " rp-hatched" : "") });
      part.style.width = 100 * share + "%";
      if (use.name !== "free") {  // what is free is empty
        part.style.backgroundColor = use.colour;
        part.style.color = inkOn(use.colour);
      }
      part.dataset.words = use.words;
      tips(part, function () { return lines(use); });
      bar.append(part);
    });
    function lines(use) {
      return [use.words + ": " + bytes(use.bytes) + ", " + percent(use.bytes / data.total) + " " + (data.of || "of the GPU"),
        use.formula ? "= " + use.formula : "", use.origin];
    }
    const list = make("ol", { class: "rp-rows rp-listed" });
    data.uses.forEach(function (use) {
      row(list, {
        name: use.words, value: bytes(use.bytes), share: percent(use.bytes / data.total), lines: lines(use),
        swatch: use.name === "free" ? "" : use.colour, look: use.hatched ? "rp-hatched" : use.name === "free" ? "rp-free" : ""
      });
    });
    row(list, {
      name: "in all", value: bytes(data.total), share: "", class: "rp-total", swatch: "",
      lines: ["in all: " + bytes(data.total) + (data.of ? "" : " on the fullest GPU"), data.origin]
    });
    box.append(bar, list);
    // words that a part has no room for are left out
    const watch = new ResizeObserver(function () {
      bar.querySelectorAll(".rp-part").forEach(function (part) {
        part.textContent = part.dataset.words;
        if (part.scrollWidth > part.clientWidth) { part.textContent = ""; }
      });
    });
    watch.observe(bar);
    return { destroy: function () { watch.disconnect(); } };
  };

  // bars by the time that each kind of link is busy, of the step
  kinds.links = function (box, data) {
    const list = make("ol", { class: "rp-rows" });
    data.links.forEach(function (link) {
      const share = link.seconds / data.step_s;
      row(list, {
        name: link.name,
        value: link.seconds ? percent(share) : "idle",
        bars: [
          { from: 0, size: 1, class: "rp-room" },
          { from: 0, size: Math.min(1, share), colour: link.colour, class: "rp-term" }
        ],
        marks: link.waited_s ? [{ at: Math.min(1, link.waited_s / data.step_s), class: "rp-waited" }] : [],
        lines: [
          link.name + ": busy " + percent(share) + " of the step (" + ms(link.seconds) + " of " + ms(data.step_s) + ")",
          link.waited_s ? "the step waits " + ms(link.waited_s) + " for it (" + percent(link.waited_s / data.step_s) + ")" : "",
          link.bytes ? bytes(link.bytes) + " in a step, all GPUs together" : "",
          ...link.lines
        ]
      });
      link.tiers.forEach(function (tier) {
        const part = tier.seconds / data.step_s;
        row(list, {
          name: tier.name, value: tier.seconds ? percent(part) : "idle", class: "rp-within",
          bars: [{ from: 0, size: 1, class: "rp-room" }, { from: 0, size: Math.min(1, part), colour: link.colour, class: "rp-term" }],
          lines: [tier.name + ": busy " + percent(part) + " of the step", "the busiest link of this tier, as an even all-to-all between the same GPUs has it"]
        });
      });
    });
    box.append(list, key("", [["bar: busy at the link's rate", data.links.length ? data.links[0].colour : null], ["line: what the step waits for it, start-up times included", null, "rp-waited"]]));
    return {};
  };
})();
