// Paints the map of experts: every pixel of the screen is set, so that it is crisp at any density and zoom.
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
    const colours = new Uint32Array(cells), weight = new Float32Array(cells);
    const counts = mode === "moves" ? map.arrived : map.copies;
    let away = 0.02, most = 1;
    for (let cell = 0; cell < cells; cell += 1) {
      if (map.load[cell]) { away = Math.max(away, Math.abs(map.load[cell] - 1)); }
      most = Math.max(most, counts[cell]);
    }
    away = Math.min(away, 1);
    const paper = rgb(look.paper), none = word(rgb(look.none)), known = new Map();
    for (let cell = 0; cell < cells; cell += 1) {
      const empty = map.folded ? !map.load[cell] : map.first[cell] < 0;
      if (empty) { colours[cell] = none; weight[cell] = -1; continue; }
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
      weight[cell] = (mode === "copies" || mode === "moves" ? counts[cell] : map.load[cell]) + (found && found[cell] ? 100 : 0);
    }
    return { colours, weight, away, most, look };
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

  // the cells that lie on each of `pixels` pixels: first and last, and where a gap after a cell is
  function spans(pixels, offset, size, count) {
    const from = new Int32Array(pixels).fill(-1), to = new Int32Array(pixels), gap = new Uint8Array(pixels);
    for (let pixel = 0; pixel < pixels; pixel += 1) {
      const first = Math.floor((pixel + offset) / size), last = Math.ceil((pixel + 1 + offset) / size) - 1;
      if (first >= count) { continue; }
      from[pixel] = Math.max(0, first);
      to[pixel] = Math.min(count - 1, Math.max(first, size < 1 ? last : first));
      gap[pixel] = size >= 5 && Math.floor((pixel + 1 + offset) / size) > first ? 1 : 0;
    }
    return { from, to, gap };
  }

  // view: { x, y } of the top left in pixels of the screen, { cellX, cellY } sizes; target an ImageData
  rackplanPictures.paintCells = function (image, map, painted, view) {
    const width = image.width, height = image.height, out = new Uint32Array(image.data.buffer);
    const across = spans(width, view.x, view.cellX, map.columns), down = spans(height, view.y, view.cellY, map.rows);
    const paper = word(rgb(painted.look.paper));
    let before = -1;
    for (let y = 0; y < height; y += 1) {
      const line = y * width;
      if (down.from[y] < 0 || down.gap[y]) { out.fill(paper, line, line + width); before = -1; continue; }
      if (before >= 0 && down.from[y] === down.from[before] && down.to[y] === down.to[before]) {
        out.copyWithin(line, before * width, before * width + width);
        continue;
      }
      before = y;
      for (let x = 0; x < width; x += 1) {
        if (across.from[x] < 0 || across.gap[x]) { out[line + x] = paper; continue; }
        if (x && !across.gap[x - 1] && across.from[x] === across.from[x - 1] && across.to[x] === across.to[x - 1]) {
          out[line + x] = out[line + x - 1];
          continue;
        }
        let best = down.from[y] * map.columns + across.from[x];
        if (down.to[y] > down.from[y] || across.to[x] > across.from[x]) {
          for (let row = down.from[y]; row <= down.to[y]; row += 1) {
            for (let column = across.from[x]; column <= across.to[x]; column += 1) {
              const cell = row * map.columns + column;
              if (painted.weight[cell] > painted.weight[best]) { best = cell; }
            }
          }
        }
        out[line + x] = painted.colours[best];
      }
    }
  };
})();
