// The map of experts: a canvas of layers x GPUs with its controls; mouse, touch and keyboard do the same things.
(function () {
  "use strict";
  const { make, count, showTip, hideTip, pick } = rackplanPictures;
  const GUTTER = 46, HEADER = 36, MOST_WIDE = 150, MOST_HIGH = 30, LEAST = 120, TALLEST = 460;
  let made = 0;

  rackplanPictures.experts = function (box, data) {
    const map = rackplanPictures.expertData(data), dark = window.matchMedia("(prefers-color-scheme: dark)");
    // equal loads are one colour: copies tell more then, or which experts lie where
    const first = map.arrived ? "moves" : !map.even ? "load" : map.copied > map.fewest ? "copies" : "expert";
    const state = { mode: first, zoom: 1, x: 0, y: 0, row: -1, column: -1, found: null, expert: -1 };
    let painted = null, size = { width: 0, height: 0, ratio: 1 }, asked = 0;
    made += 1;
    const names = { mode: "rp-mode-" + made, find: "rp-find-" + made, help: "rp-help-" + made };

    const modes = make("select", { id: names.mode, class: "rp-input" },
      ...[...(map.arrived ? [["moves", "copies arriving"]] : []), ["load", "load / mean"], ["expert", "first expert"], ["copies", "most copies"]]
        .map(function (mode) { return make("option", { value: mode[0], text: mode[1], selected: mode[0] === first ? "" : null }); }));
    const find = make("input", { id: names.find, class: "rp-input", type: "search", size: "12", autocomplete: "off",
      placeholder: "17 or d0.n0.g0" });
    const buttons = [["+", "zoom in", 1.6], ["\u2212", "zoom out", 1 / 1.6], ["fit", "show the whole map", 0]].map(function (entry) {
      const button = make("button", { type: "button", class: "rp-button", text: entry[0], "aria-label": entry[1] });
      button.addEventListener("click", function () { entry[2] ? zoomAt(entry[2]) : reset(); });
      return button;
    });
    const canvas = make("canvas", { class: "rp-map", tabindex: "0", role: "application", "aria-describedby": names.help,
      "aria-label": "map of experts, " + map.rows + " rows of layers by " + map.columns + " columns of GPUs" });
    const help = make("p", { id: names.help, class: "rp-hidden unseen",
      text: "Arrow keys move between cells, Page Up and Page Down by ten layers, Home and End to the first and last GPU; "
        + "plus and minus zoom, zero shows the whole map, Enter selects." });
    const at = make("p", { class: "rp-at", "aria-live": "polite" });
    const foundWords = make("p", { class: "rp-at", "aria-live": "polite" });
    const picks = make("div", { class: "rp-picks" });
    const legend = make("div", {});
    box.append(
      make("div", { class: "rp-controls" },
        make("label", { for: names.mode, text: "colour by" }), modes,
        make("label", { for: names.find, text: "find expert or GPU" }), find, ...buttons),
      canvas, help, legend, foundWords, at, picks);
    const draw2d = canvas.getContext("2d");

    function gutter() { return size.width < 500 ? 34 : GUTTER; }
    function cells() {
      const baseX = (size.width - gutter()) / map.columns, baseY = (size.height - HEADER) / map.rows;
      return { x: Math.min(baseX * state.zoom, Math.max(baseX, MOST_WIDE)), y: Math.min(baseY * state.zoom, Math.max(baseY, MOST_HIGH)) };
    }
    function mostZoom() {
      const baseX = (size.width - gutter()) / map.columns, baseY = (size.height - HEADER) / map.rows;
      return Math.max(1, MOST_WIDE / baseX, MOST_HIGH / baseY);
    }
    function clamp() {
      const cell = cells();
      state.x = Math.max(0, Math.min(state.x, cell.x * map.columns - (size.width - gutter())));
      state.y = Math.max(0, Math.min(state.y, cell.y * map.rows - (size.height - HEADER)));
      canvas.style.touchAction = state.zoom > 1 ? "none" : "pan-y";
    }
    function ask() { if (!asked) { asked = window.requestAnimationFrame(function () { asked = 0; paint(); }); } }

    function measure() {
      const width = Math.floor(box.clientWidth), ratio = window.devicePixelRatio || 1;
      if (!width) { return; }
      const height = HEADER + Math.max(LEAST, Math.min(width < 500 ? 300 : TALLEST, map.rows * Math.max(4, Math.min(26, 1200 / map.rows))));
      size = { width: width, height: height, ratio: ratio };
      canvas.style.height = height + "px";
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      clamp();
      ask();
    }

    function recolour() {
      painted = rackplanPictures.expertColours(map, state.mode, dark.matches, state.found);
      const entries = rackplanPictures.expertKey(painted, state.mode, dark.matches);
      const span = map.least.toFixed(3) + " to " + map.most.toFixed(3);
      const words = { load: "GPU load over the layer mean" + (map.even ? ":" : ", " + span + ":"),
        copies: "copies of the most replicated expert on a GPU:", moves: "copies arriving:",
        expert: "the first expert of a GPU: colours distinguish neighbouring numbers" }[state.mode];
      const even = map.even ? "GPU loads are equal, " + span + " of the layer mean;" : "";
      legend.replaceChildren(rackplanPictures.key(even ? even + " " + words : words, entries));
      ask();
    }

    function paint() {
      if (!painted || !size.width) { return; }
      const ratio = size.ratio, cell = cells(), left = gutter(), look = painted.look;
      draw2d.setTransform(1, 0, 0, 1, 0, 0);
      draw2d.clearRect(0, 0, canvas.width, canvas.height);
      draw2d.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw2d.font = "11px system-ui, sans-serif";
      draw2d.textBaseline = "middle";
      const shown = { left: Math.floor(state.x / cell.x), right: Math.min(map.columns, Math.ceil((state.x + size.width - left) / cell.x)),
        top: Math.floor(state.y / cell.y), bottom: Math.min(map.rows, Math.ceil((state.y + size.height - HEADER) / cell.y)) };
      draw2d.save();
      draw2d.beginPath();
      draw2d.rect(left, HEADER, size.width - left, size.height - HEADER);
      draw2d.clip();
      rackplanPictures.paintCells(draw2d, map, painted, { x: state.x, y: state.y, cellX: cell.x, cellY: cell.y,
        left: left, top: HEADER, width: size.width - left, height: size.height - HEADER });
      if (cell.x >= 7 && cell.y >= 6) { inside(cell, left, shown, look); }
      outline(cell, left, look);
      draw2d.restore();
      layersDown(cell, left, shown, look);
      placesAcross(cell, left, shown, look);
    }

    // what a cell has room for: the experts' numbers, a dot where one of them has further copies
    function inside(cell, left, shown, look) {
      draw2d.textAlign = "left";
      for (let row = shown.top; row < shown.bottom; row += 1) {
        for (let column = shown.left; column < shown.right; column += 1) {
          const place = row * map.columns + column, x = left + column * cell.x - state.x, y = HEADER + row * cell.y - state.y;
          if (map.first[place] < 0) { continue; }
          const dim = state.found && !state.found[place], word = painted.colours[place];
          const bright = 0.299 * (word & 255) + 0.587 * (word >> 8 & 255) + 0.114 * (word >> 16 & 255);
          draw2d.fillStyle = dim ? look.soft : bright > 140 ? "#11161b" : "#ffffff";
          if (map.copies[place] > 1 && !dim) {
            draw2d.globalAlpha = 0.6;
            draw2d.beginPath();
            draw2d.arc(x + cell.x - 4, y + 3.5, Math.min(2, cell.y / 6), 0, 7);
            draw2d.fill();
            draw2d.globalAlpha = 1;
          }
          if (cell.x >= 30 && cell.y >= 12) {
            const held = map.held(row, column).map(function (one) { return one.expert; });
            const room = Math.floor((cell.x - 10) / 6.4);
            let text = held.join(" ");
            if (text.length > room) {
              const short = String(held[0]) + (held.length > 1 ? " +" + (held.length - 1) : "");
              text = short.length <= room ? short : String(held[0]);
            }
            if (text.length <= room) { draw2d.fillText(text, x + 3, y + cell.y / 2); }
          }
        }
      }
    }

    function outline(cell, left, look) {
      if (state.found) {
        draw2d.strokeStyle = draw2d.fillStyle = look.ink;
        draw2d.lineWidth = 1.5;
        for (let place = 0; place < state.found.length; place += 1) {
          if (!state.found[place]) { continue; }
          const row = Math.floor(place / map.columns), column = place % map.columns;
          const x = left + column * cell.x - state.x, y = HEADER + row * cell.y - state.y;
          if (cell.x < 5 || cell.y < 4) { draw2d.fillRect(x + cell.x / 2 - 1.5, y + cell.y / 2 - 1.5, 3, Math.max(3, Math.min(6, cell.y - 1))); }
          else { draw2d.strokeRect(x + 0.5, y + 0.5, cell.x - 2, cell.y - 2); }
        }
      }
      if (state.row < 0) { return; }
      const x = left + state.column * cell.x - state.x, y = HEADER + state.row * cell.y - state.y;
      draw2d.lineWidth = 2;
      draw2d.strokeStyle = look.ink;
      draw2d.strokeRect(x - 1, y - 1, Math.max(4, cell.x) + 1, Math.max(4, cell.y) + 1);
    }

    function layersDown(cell, left, shown, look) {
      draw2d.fillStyle = look.soft;
      draw2d.textAlign = "right";
      const every = Math.max(1, Math.ceil(13 / cell.y));
      for (let row = Math.ceil(shown.top / every) * every; row < shown.bottom; row += every) {
        const y = HEADER + (row + 0.5) * cell.y - state.y;
        if (y > HEADER && y < size.height) { draw2d.fillText(String(map.layers[row]), left - 6, y); }
      }
      draw2d.textAlign = "left";
      draw2d.fillText("layer", 2, HEADER - 9);
    }

    // above the columns: racks or domains, and beneath them nodes or GPUs, as far as there is room
    function placesAcross(cell, left, shown, look) {
      const upper = map.racks.names.length > 1 ? map.racks : map.domains;
      names2(upper, 10, cell, left, shown, look);
      const last = map.gpus[Math.max(0, shown.right - 1)];
      if (cell.x >= 40 && draw2d.measureText(last).width + 6 <= cell.x) {
        draw2d.textAlign = "left";
        draw2d.fillStyle = look.soft;
        for (let column = shown.left; column < shown.right; column += 1) {
          const x = left + column * cell.x - state.x;
          if (x >= left - 1) { draw2d.fillText(map.gpus[column], x + 2, 27); }
        }
      } else { names2(map.nodes, 27, cell, left, shown, look); }
    }

    function names2(runs, y, cell, left, shown, look) {
      draw2d.textAlign = "left";
      let free = left;
      runs.starts.forEach(function (start, index) {
        const end = index + 1 < runs.starts.length ? runs.starts[index + 1] : map.columns;
        if (end <= shown.left || start >= shown.right) { return; }
        const x = Math.max(left, left + start * cell.x - state.x), room = left + end * cell.x - state.x - x;
        if (room >= 4) { draw2d.fillStyle = look.rule; draw2d.fillRect(Math.round(x), y - 7, 1, 14); }
        const width = draw2d.measureText(runs.names[index]).width;
        if (width + 6 <= room && x >= free) {
          draw2d.fillStyle = look.soft;
          draw2d.fillText(runs.names[index], x + 4, y);
          free = x + width + 8;
        }
      });
    }

    function cellAt(event) {
      const bounds = canvas.getBoundingClientRect(), cell = cells();
      const x = event.clientX - bounds.left - gutter(), y = event.clientY - bounds.top - HEADER;
      if (x < 0 || y < 0) { return null; }
      const column = Math.floor((x + state.x) / cell.x), row = Math.floor((y + state.y) / cell.y);
      return row < map.rows && column < map.columns ? { row: row, column: column } : null;
    }

    function lines(row, column) {
      const place = row * map.columns + column, held = map.held(row, column);
      const where = map.gpus[column], said = ["layer " + map.layers[row] + ", " + where];
      said.push("node " + map.nodes.names[map.nodes.of[column]] + ", rack " + map.racks.names[map.racks.of[column]]);
      if (!held.length) { return [...said, "no experts of this layer"]; }
      said.push("load " + map.load[place].toFixed(4) + " of the layer mean");
      if (map.arrived) {
        const many = map.arrived[place];
        said.push(many ? many + (many === 1 ? " copy arrives" : " copies arrive") : "no copies arrive");
      }
      const told = held.slice(0, 12).map(function (one) {
        const load = one.load === null ? "" : " at " + one.load.toFixed(2) + " of the mean expert";
        return "expert " + one.expert + ": " + (one.copies > 1 ? one.copies + " copies" : "1 copy") + load;
      });
      if (held.length > 12) { told.push("and " + (held.length - 12) + " more"); }
      if (map.replicas > 1) { told.push("the same in " + (map.replicas - 1) + " more replicas"); }
      return [...said, ...told];
    }

    function select(row, column) {
      state.row = Math.max(0, Math.min(map.rows - 1, row));
      state.column = Math.max(0, Math.min(map.columns - 1, column));
      const cell = cells(), x = state.column * cell.x, y = state.row * cell.y;
      state.x = Math.min(x, Math.max(state.x, x + cell.x - (size.width - gutter())));
      state.y = Math.min(y, Math.max(state.y, y + cell.y - (size.height - HEADER)));
      clamp();
      at.textContent = lines(state.row, state.column).join("; ");
      if (box.dataset.pick) { offer(); }
      ask();
    }

    function chosen() {
      const held = map.held(state.row, state.column);
      return { layer: map.layers[state.row], experts: held.map(function (one) { return one.expert; }) };
    }
    // buttons that choose the GPU, its node or its rack of the selected cell
    function offer() {
      const column = state.column;
      const entries = [["gpu", map.gpus[column]], ["node", map.nodes.names[map.nodes.of[column]]], ["rack", map.racks.names[map.racks.of[column]]]];
      picks.replaceChildren(...entries.map(function (entry) {
        const button = make("button", { type: "button", class: "rp-button", text: (box.dataset.pick === "1" ? "choose " : box.dataset.pick + " ") + entry[0] + " " + entry[1] });
        button.addEventListener("click", function () { pick(box, { kind: entry[0], id: entry[1], ...chosen() }); });
        return button;
      }));
    }

    function zoomAt(factor, x, y) {
      const before = cells(), px = x === undefined ? (size.width - gutter()) / 2 : x, py = y === undefined ? (size.height - HEADER) / 2 : y;
      state.zoom = Math.max(1, Math.min(mostZoom(), state.zoom * factor));
      const after = cells();
      state.x = (state.x + px) / before.x * after.x - px;
      state.y = (state.y + py) / before.y * after.y - py;
      clamp();
      ask();
    }
    function reset() { state.zoom = 1; state.x = state.y = 0; clamp(); ask(); }

    function search() {
      const text = find.value.trim().toLowerCase();
      state.found = null;
      state.expert = -1;
      foundWords.textContent = "";
      if (text) {
        const wanted = /^e?(\d+)$/.exec(text), column = data.gpus.findIndex(function (id) { return id.toLowerCase() === text; });
        const near = column < 0 ? data.gpus.findIndex(function (id) { return id.toLowerCase().startsWith(text + "."); }) : column;
        if (wanted && Number(wanted[1]) < map.experts) {
          const expert = Number(wanted[1]), result = map.find(expert);
          state.found = result.mask;
          state.expert = expert;
          const row = state.row < 0 ? 0 : state.row, on = [];
          for (let place = 0; place < map.columns; place += 1) {
            if (result.mask[row * map.columns + place]) { on.push(map.gpus[place]); }
          }
          foundWords.textContent = "expert " + expert + ": " + count(result.total) + (result.total === 1 ? " copy" : " copies") + " in " + map.rows
            + " layers; in layer " + map.layers[row] + " on " + (on.join(", ") || "no GPU");
        } else if (near >= 0) {
          if (state.zoom < 4) { zoomAt(Math.min(mostZoom(), 6) / state.zoom, 0, 0); }
          select(Math.max(0, state.row), near);
          foundWords.textContent = "GPU " + data.gpus[near];
        } else {
          foundWords.textContent = wanted ? "there is no expert " + wanted[1] + "; experts are 0 to " + (map.experts - 1)
            : "no GPU in the map is named " + find.value.trim() + (map.replicas > 1 ? "; the map shows the first replica, and the others hold the same experts" : "");
        }
      }
      recolour();
    }

    // pointers: one drags, two zoom, a tap selects
    const held = new Map();
    let moved = 0, spread = 0;
    canvas.addEventListener("pointerdown", function (event) {
      held.set(event.pointerId, event);
      moved = 0;
      spread = 0;
      if (event.pointerType !== "touch" || state.zoom > 1) { canvas.setPointerCapture(event.pointerId); }
    });
    canvas.addEventListener("pointermove", function (event) {
      const before = held.get(event.pointerId);
      if (!before) {
        const cell = cellAt(event);
        if (cell && event.pointerType !== "touch") { showTip(lines(cell.row, cell.column), event.clientX, event.clientY); }
        else { hideTip(); }
        return;
      }
      held.set(event.pointerId, event);
      moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
      if (held.size === 2) {
        const [one, two] = [...held.values()], apart = Math.hypot(one.clientX - two.clientX, one.clientY - two.clientY);
        const bounds = canvas.getBoundingClientRect();
        if (spread) {
          zoomAt(apart / spread, (one.clientX + two.clientX) / 2 - bounds.left - gutter(), (one.clientY + two.clientY) / 2 - bounds.top - HEADER);
        }
        spread = apart;
      } else if (state.zoom > 1) {
        hideTip();
        state.x -= event.clientX - before.clientX;
        state.y -= event.clientY - before.clientY;
        clamp();
        ask();
      }
    });
    function up(event) {
      const mine = held.delete(event.pointerId);
      if (mine && moved < 6 && event.type === "pointerup") {
        const cell = cellAt(event);
        if (cell) {
          select(cell.row, cell.column);
          if (state.expert >= 0) { search(); }
        }
      }
    }
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("dblclick", function (event) {
      const bounds = canvas.getBoundingClientRect();
      zoomAt(2, event.clientX - bounds.left - gutter(), event.clientY - bounds.top - HEADER);
    });
    canvas.addEventListener("wheel", function (event) {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) { return; }
      event.preventDefault();
      const bounds = canvas.getBoundingClientRect();
      zoomAt(Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) / 200), event.clientX - bounds.left - gutter(), event.clientY - bounds.top - HEADER);
    }, { passive: false });
    canvas.addEventListener("keydown", function (event) {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-10, 0], PageDown: [10, 0],
        Home: [0, -map.columns], End: [0, map.columns] }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) { return; }
      if (step) { state.row < 0 ? select(0, 0) : select(state.row + step[0], state.column + step[1]); }
      else if (event.key === "+" || event.key === "=") { zoomKey(1.6); }
      else if (event.key === "-") { zoomKey(1 / 1.6); }
      else if (event.key === "0") { reset(); }
      else if (event.key === "Enter" && state.row >= 0) { pick(box, { kind: "gpu", id: map.gpus[state.column], ...chosen() }); }
      else { return; }
      event.preventDefault();
    });
    function zoomKey(factor) {
      const cell = cells();
      if (state.row < 0) { zoomAt(factor); }
      else {
        zoomAt(factor, (state.column + 0.5) * cell.x - state.x, (state.row + 0.5) * cell.y - state.y);
        select(state.row, state.column);
      }
    }
    modes.addEventListener("change", function () { state.mode = modes.value; recolour(); });
    find.addEventListener("input", search);

    new ResizeObserver(measure).observe(box);
    dark.addEventListener("change", recolour);
    // a printer takes the page as it lies: light
    window.addEventListener("beforeprint", recolour);
    measure();
    recolour();
  };
})();
