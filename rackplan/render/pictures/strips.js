// What is left when each GPU, node or rack dies: a strip a kind of failure, a cell for each that was tried.
(function () {
  "use strict";
  const { kinds, make, makeSvg, percent, number, key, pick, showTip, hideTip } = rackplanPictures;
  // from all that is left to nothing: dark is bad, and differs in lightness for colour-blind readers
  const steps = [[1, "#d3e8e1"], [0.99, "#b4d9cd"], [0.97, "#f2d16b"], [0.93, "#f0a34a"], [0.85, "#dd6a3b"], [0.6, "#b3343a"], [0, "#6b1230"]];

  function colour(left) { return steps.find(function (step) { return left >= step[0]; })[1]; }

  function lines(strip, at) {
    const lost = strip.tokens_lost[at];
    return [
      strip.name + " " + strip.names[at] + " lost",
      percent(strip.left[at]) + " of the throughput is left: " + number(strip.tok_s_per_gpu[at], 0) + " tok/s/GPU over all GPUs given",
      strip.balancedness[at] > 0 ? "balancedness " + strip.balancedness[at].toFixed(4) : "",
      lost > 0 ? number(100 * lost, 3) + "% of the tokens have no copy left to go to" : "every expert has a copy left"
    ];
  }

  kinds.failures = function (box, data) {
    const said = make("p", { class: "rp-at", "aria-live": "polite" });
    data.strips.forEach(function (strip) {
      const cells = strip.names.length, least = Math.min(...strip.left), worst = strip.left.indexOf(least);
      const bad = strip.tokens_lost.filter(function (lost) { return lost > 0; }).length;
      const tried = cells < strip.choices ? cells + " of " + strip.choices + " tried" : cells + " in all";
      const svg = makeSvg("svg", { class: "rp-strip", viewBox: "0 0 " + cells + " 10", preserveAspectRatio: "none", "shape-rendering": "crispEdges", tabindex: "0",
        role: "application", "aria-label": "each " + strip.name + " lost alone: arrow keys go from one to the next" });
      for (let at = 0; at < cells; at += 1) {
        svg.append(makeSvg("rect", { x: at, y: 0, width: 1.001, height: 10, fill: colour(strip.left[at]) }));
        if (strip.tokens_lost[at] > 0) { svg.append(makeSvg("rect", { x: at, y: 8, width: 1.001, height: 2, class: "rp-dropped" })); }
      }
      const mark = makeSvg("rect", { x: 0, y: 0, width: 1, height: 10, class: "rp-chosen", visibility: "hidden" });
      svg.append(mark);
      let chosen = -1;
      function choose(at, quiet) {
        chosen = Math.max(0, Math.min(cells - 1, at));
        mark.setAttribute("x", chosen);
        mark.setAttribute("visibility", "visible");
        if (!quiet) { said.textContent = lines(strip, chosen).filter(Boolean).join("; "); }
      }
      function under(event) {
        const bounds = svg.getBoundingClientRect();
        return Math.max(0, Math.min(cells - 1, Math.floor((event.clientX - bounds.left) / bounds.width * cells)));
      }
      svg.addEventListener("pointermove", function (event) {
        if (event.pointerType !== "touch") { showTip(lines(strip, under(event)), event.clientX, event.clientY); }
      });
      svg.addEventListener("pointerleave", hideTip);
      svg.addEventListener("click", function (event) { choose(under(event)); pick(box, { kind: strip.unit, id: strip.names[chosen] }); });
      svg.addEventListener("keydown", function (event) {
        const step = { ArrowLeft: -1, ArrowRight: 1, Home: -cells, End: cells }[event.key];
        if (step) { choose(chosen < 0 && step !== cells ? 0 : chosen + step); }
        else if (event.key === "Enter" && chosen >= 0) { pick(box, { kind: strip.unit, id: strip.names[chosen] }); }
        else { return; }
        event.preventDefault();
      });
      box.append(make("div", { class: "rp-strip-row" },
        make("div", { class: "rp-strip-name" }, make("b", { text: "any " + strip.name }), make("span", { text: " (" + tried + ")" })),
        svg,
        make("div", { class: "rp-strip-says", text: "worst " + strip.names[worst] + ": " + percent(least) + " left"
          + (bad === cells ? "; each loses tokens" : bad ? "; " + bad + " of them lose tokens" : "; none loses tokens") })));
    });
    box.append(key("throughput left:", steps.map(function (step, at) {
      return [!at ? "all" : step[0] ? percent(step[0]) + " to " + percent(steps[at - 1][0]) : "less", step[1]];
    })), key("", [["beneath: some tokens have no copy left", null, "rp-dropped"]]), said);
    return {};
  };
})();
