// The step: its parts one after another, each from where the one before ends, up to the step's time.
(function () {
  "use strict";
  const { kinds, make, ms, percent, row, key } = rackplanPictures;

  kinds.waterfall = function (box, data) {
    const step = data.step_s, list = make("ol", { class: "rp-rows" });
    const lower = data.lower_step_s / step;
    const whole = [];
    let from = 0;
    data.terms.forEach(function (term) {
      const share = term.seconds / step;
      const bars = [{ from: from, size: share, colour: term.colour, class: "rp-term" }];
      let at = from;
      term.limits.forEach(function (limit) {
        bars.push({ from: at, size: limit[1] / step, colour: data.resources[limit[0]], class: "rp-limit" });
        at += limit[1] / step;
      });
      // what computing hides lies under the parts before it
      const hidden = Math.min((term.hidden_s || 0) / step, from);
      if (hidden) { bars.unshift({ from: from - hidden, size: hidden, colour: term.colour, class: "rp-term rp-hidden-part rp-hatched" }); }
      if (term.peak_s > 0) { bars.push({ from: from, size: term.peak_s / step, class: "rp-peak" }); }
      const limits = term.limits.map(function (limit) { return limit[0] + " " + ms(limit[1]); }).join(", ");
      row(list, {
        name: term.words,
        value: ms(term.seconds),
        bars: bars,
        marks: [{ at: lower, class: "rp-lower" }],
        lines: [
          term.words + ": " + ms(term.seconds) + ", " + percent(share) + " of the step",
          term.meaning,
          term.formula ? "= " + term.formula : "",
          term.hidden_s ? ms(term.hidden_s) + " more are hidden behind computing" : "",
          "bound by " + limits,
          "at data-sheet peaks " + ms(term.peak_s),
          ...term.origin
        ]
      });
      whole.push({ from: from, size: share, colour: term.colour, class: "rp-all" });
      from += share;
    });
    row(list, {
      name: "step",
      value: ms(step),
      class: "rp-total",
      bars: whole,
      marks: [{ at: lower, class: "rp-lower" }],
      lines: [
        "step: " + ms(step) + ", the sum of its parts",
        ...(data.tokens_per_step > 1 ? [ms(step / data.tokens_per_step) + " per output token"] : []),
        "no schedule of this layout is faster than " + ms(data.lower_step_s) + " (every resource at its peak, all at once)",
        data.composed
      ]
    });
    box.append(list);
    const used = {};
    data.terms.forEach(function (term) { term.limits.forEach(function (limit) { used[limit[0]] = true; }); });
    const resources = Object.keys(data.resources).filter(function (name) { return used[name]; });
    if (data.terms.some(function (term) { return term.hidden_s; })) {
      box.append(key("", [["hatched: hidden behind computing, in no sum", null, "rp-hatched rp-hidden-part"]]));
    }
    box.append(key("", [["outline: at data-sheet peaks", null, "rp-peak"], ["dotted: lower bound " + ms(data.lower_step_s), null, "rp-lower"]]));
    box.append(key("beneath each bar, what binds it:", resources.map(function (name) { return [name, data.resources[name]]; })));
    return {};
  };
})();
