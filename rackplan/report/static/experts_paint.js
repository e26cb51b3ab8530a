// Paints the map of experts: a pixel for each cell, scaled without smoothing, so that it is crisp at any zoom.
(function () {
  "use strict";

  function rgb(hex) { return [1, 3, 5].map(function (at) { return parseInt(hex.slice(at, at + 2), 16); }); }
  function mixed(a, b, part) { return a.map(function (value, index) { return Math.round(value + (b[index] - value) * part); }); }
  function word(colour) { return (255 << 24 | colour[2] << 16 | colour[1] << 8 | colour[0]) >>> 0; }
  function css(colour) { return "rgb(" + colour.join(",") + ")"; }

  // below the mean, the mean, above it: told apart by colour-blind readers
  const looks = {
    light: { paper: "#ffffff", ink: "#1b1f24", soft: "#57606a", rule: "#c3cbd4", none: "#f1f3f5", below: "#2166ac", mean: "#e9edf1", above: "#c2410c" },
    dark: { paper: "#12161b", ink: "#e6edf3", soft: "#9aa4af", rule: "#4a545f", none: "#1b2128", below: "#6cb4f5", mean: "#303944", above: "#ff8a4c" }
  };

  function diverging(look, part) {  // part from -1 to 1
    const strength = Math.pow(Math.min(1, Math.abs(part)), 0.8);
    return mixed(rgb(look.mean), rgb(part < 0 ? look.below : look.above), strength);
  }
  function ramp(look, part, isDark) {  // from few to many
    return isDark ? mixed(rgb("#24303c"), rgb("#7fd6b5"), part) : mixed(rgb("#e6f2ee"), rgb("#00573f"), part);
  }
  function arrivals(look, part) { return mixed(rgb(look.mean), rgb(look.above), 0.45 + 0.55 * part); }
  function hue(expert, isDark) {  // neighbours differ most
    const turn = expert * 0.61803398875 % 1 * 6, level = isDark ? [58, 178] : [96, 224];
    const wave = [0, 4, 2].map(function (shift) {
      return Math.min(1, Math.max(0, Math.abs((turn + shift) % 6 - 3) - 1));
    });
    return wave.map(function (part) { return Math.round(level[0] + (level[1] - level[0]) * part); });
  }

  rackplanPictures.expertColours = function (map, mode, isDark, found) {
    const look = looks[isDark ? "dark" : "light"], cells = map.rows * map.columns;
    const colours = new Uint32Array(cells);
    const counts = mode === "moves" ? map.arrived : map.copies;
    const away = map.away;
    const most = mode === "moves" ? counts.reduce(function (a, b) { return Math.max(a, b); }, 1) : map.copied;
    const paper = rgb(look.paper), none = word(rgb(look.none)), known = new Map();
    for (let cell = 0; cell < cells; cell += 1) {
      if (map.first[cell] < 0) { colours[cell] = none; continue; }
      const dim = found && !found[cell];
      let key;
      if (mode === "load") { key = Math.round((map.load[cell] - 1) / away * 100); }
      else if (mode === "copies" || mode === "moves") { key = counts[cell]; }
      else { key = map.first[cell]; }
      const name = key * 2 + (dim ? 1 : 0);
      let colour = known.get(name);
      if (colour === undefined) {
        let made;
        if (mode === "load") { made = diverging(look, key / 100); }
        else if (mode === "copies") { made = ramp(look, most > 1 ? (key - 1) / (most - 1) : 0, isDark); }
        else if (mode === "moves") { made = key ? arrivals(look, key / most) : rgb(look.mean); }
        else { made = hue(key, isDark); }
        colour = word(dim ? mixed(made, paper, 0.8) : made);
        known.set(name, colour);
      }
      colours[cell] = colour;
    }
    return { colours, away, most, look };
  };

  // what the colours mean: [[words, css colour]]
  rackplanPictures.expertKey = function (painted, mode, isDark) {
    const look = painted.look, away = painted.away;
    if (mode === "load") {
      return [-1, -0.5, 0, 0.5, 1].map(function (part) {
        return [(1 + part * away).toFixed(away < 0.1 ? 3 : 2), css(diverging(look, part))];
      });
    }
    if (mode === "copies") {
      const steps = [];
      for (let count = 1; count <= painted.most; count += Math.max(1, Math.ceil(painted.most / 8))) {
        steps.push([String(count), css(ramp(look, painted.most > 1 ? (count - 1) / (painted.most - 1) : 0, isDark))]);
      }
      return steps;
    }
    if (mode === "moves") {
      return [["none", css(rgb(look.mean))], ["1", css(arrivals(look, 1 / painted.most))],
        ...(painted.most > 1 ? [[String(painted.most), css(arrivals(look, 1))]] : [])];
    }
    return [];
  };

  // view: { x, y } of the top left in pixels of the screen, { cellX, cellY } sizes, { left, top, width, height } of the map
  rackplanPictures.paintCells = function (draw2d, map, painted, view) {
    const cells = document.createElement("canvas");
    cells.width = map.columns;
    cells.height = map.rows;
    const image = new ImageData(new Uint8ClampedArray(painted.colours.buffer), map.columns, map.rows);
    cells.getContext("2d").putImageData(image, 0, 0);
    const wide = view.cellX * map.columns, high = view.cellY * map.rows;
    draw2d.imageSmoothingEnabled = false;
    draw2d.drawImage(cells, view.left - view.x, view.top - view.y, wide, high);
    draw2d.fillStyle = painted.look.paper;
    for (let column = 1; view.cellX >= 5 && column < map.columns; column += 1) {
      draw2d.fillRect(Math.round(view.left - view.x + column * view.cellX) - 1, view.top, 1, view.height);
    }
    for (let row = 1; view.cellY >= 5 && row < map.rows; row += 1) {
      draw2d.fillRect(view.left, Math.round(view.top - view.y + row * view.cellY) - 1, view.width, 1);
    }
  };
})();
