// Rows of a name, a track with bars on it, and a value: hover or focus tells more, a click keeps it open.
(function () {
  "use strict";
  const { make, tips } = rackplanPictures;

  // row: { name, value, lines: [...], class } and either { bars: [{ from, size, colour, class }], marks: [{ at, class }] }
  // or { swatch, look, share }
  rackplanPictures.row = function (list, row) {
    const track = make("span", { class: "rp-track", "aria-hidden": "true" });
    (row.bars || []).forEach(function (bar) {
      const drawn = make("span", { class: "rp-bar " + (bar.class || "") });
      drawn.style.left = 100 * bar.from + "%";
      drawn.style.width = 100 * bar.size + "%";
      if (bar.colour) { drawn.style.backgroundColor = bar.colour; }
      track.append(drawn);
    });
    (row.marks || []).forEach(function (mark) {
      const drawn = make("span", { class: "rp-mark " + (mark.class || "") });
      drawn.style.left = 100 * mark.at + "%";
      track.append(drawn);
    });
    const more = make("span", { class: "rp-more", hidden: "" },
      ...row.lines.slice(1).filter(Boolean).map(function (line) { return make("span", { text: line }); }));
    // a part of a bar above has its colour instead of a track
    let lead = track;
    if (row.swatch !== undefined) {
      lead = make("span", { class: "rp-swatch " + (row.look || ""), "aria-hidden": "true" });
      if (row.swatch) { lead.style.backgroundColor = row.swatch; }
    }
    const name = make("span", { class: "rp-name", text: row.name }), value = make("span", { class: "rp-value", text: row.value });
    const button = make("button", { type: "button", class: "rp-row", "aria-expanded": "false" },
      ...(lead === track ? [name, track, value] : [lead, name, value, make("span", { class: "rp-value", text: row.share })]));
    button.addEventListener("click", function () {
      more.hidden = !more.hidden;
      button.setAttribute("aria-expanded", String(!more.hidden));
      rackplanPictures.hideTip();
    });
    tips(button, function () { return row.lines; });
    list.append(make("li", { class: row.class || "" }, button, more));
    return button;
  };

  // what colours mean: [[name, colour, class]]
  rackplanPictures.key = function (words, entries) {
    const key = make("div", { class: "rp-key" });
    if (words) { key.append(make("span", { class: "rp-key-words", text: words })); }
    entries.forEach(function (entry) {
      const swatch = make("span", { class: "rp-swatch " + (entry[2] || ""), "aria-hidden": "true" });
      if (entry[1]) { swatch.style.backgroundColor = entry[1]; }
      key.append(make("span", { class: "rp-key-entry" }, swatch, make("span", { text: entry[0] })));
    });
    return key;
  };
})();
