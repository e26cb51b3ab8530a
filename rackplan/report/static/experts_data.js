// The data of the map of experts, decoded: rows are layers, columns GPUs of the first replica.
(function () {
  "use strict";
  const { array } = rackplanPictures;
  const EVEN = 0.005;  // of the layer's mean: loads that no colours tell apart

  // runs [[name, count]] as { names, of: the index of the name of each column, starts }
  function runs(given, columns) {
    const of = new Uint32Array(columns), starts = [];
    let at = 0;
    given.forEach(function (run, index) {
      starts.push(at);
      of.fill(index, at, at + run[1]);
      at += run[1];
    });
    return { names: given.map(function (run) { return run[0]; }), of: of, starts: starts };
  }

  rackplanPictures.expertData = function (data) {
    const layers = array(data.layers, Int32Array), rows = data.rows, columns = data.gpus.length;
    const load = new Float32Array(rows * columns);
    const copies = new Uint16Array(rows * columns), first = new Int32Array(rows * columns).fill(-1);
    const groups = [];
    let top = 0, left = 0;
    data.groups.forEach(function (group) {
      const slots = array(group.slots, Uint16Array), experts = array(group.experts, Uint16Array);
      const rowOf = group.row_of ? array(group.row_of, Uint16Array) : null;
      const shares = group.expert_load ? array(group.expert_load, Uint16Array) : null;
      const busy = array(group.load, Uint16Array), starts = new Uint32Array(group.columns + 1);
      slots.forEach(function (count, column) { starts[column + 1] = starts[column] + count; });
      const width = starts[group.columns];
      const held = { top, left, rows: group.rows, columns: group.columns, starts, width, experts, rowOf, shares, counts: [] };
      groups.push(held);
      for (let row = 0; row < group.rows; row += 1) {
        const base = (rowOf ? rowOf[row] : row) * width, counts = countsOf(held, row);
        for (let column = 0; column < group.columns; column += 1) {
          const cell = (top + row) * columns + left + column;
          load[cell] = busy[row * group.columns + column] * data.load_step;
          if (starts[column] < starts[column + 1]) { first[cell] = experts[base + starts[column]]; }
          for (let slot = starts[column]; slot < starts[column + 1]; slot += 1) {
            copies[cell] = Math.max(copies[cell], counts[experts[base + slot]]);
          }
        }
      }
      top += group.rows;
      left += group.columns;
    });
    let least = Infinity, most = 0, copied = 1, fewest = Infinity;
    first.forEach(function (expert, cell) {
      if (expert < 0) { return; }
      least = Math.min(least, load[cell]);
      most = Math.max(most, load[cell]);
      copied = Math.max(copied, copies[cell]);
      fewest = Math.min(fewest, copies[cell]);
    });

    // copies of each expert in a layer of a group, made once for each different layer
    function countsOf(group, row) {
      const kind = group.rowOf ? group.rowOf[row] : row;
      if (!group.counts[kind]) {
        const counts = new Uint16Array(data.experts), base = kind * group.width;
        for (let slot = 0; slot < group.width; slot += 1) { counts[group.experts[base + slot]] += 1; }
        group.counts[kind] = counts;
      }
      return group.counts[kind];
    }

    function groupAt(row, column) {
      return groups.find(function (group) {
        return row >= group.top && row < group.top + group.rows && column >= group.left && column < group.left + group.columns;
      });
    }

    // what a cell holds: [{ expert, copies, share of the mean expert's load }]
    function held(row, column) {
      const group = groupAt(row, column);
      if (!group) { return []; }
      const at = row - group.top, from = column - group.left, counts = countsOf(group, at), found = [];
      const base = (group.rowOf ? group.rowOf[at] : at) * group.width;
      for (let slot = group.starts[from]; slot < group.starts[from + 1]; slot += 1) {
        const expert = group.experts[base + slot];
        const load = group.shares ? group.shares[at * data.experts + expert] * data.load_step : null;
        found.push({ expert: expert, copies: counts[expert], load: load });
      }
      return found.sort(function (a, b) { return a.expert - b.expert; });
    }

    // cells with a copy of an expert: a mask over all cells, and how many copies there are
    function find(expert) {
      const mask = new Uint8Array(rows * columns);
      let total = 0;
      groups.forEach(function (group) {
        for (let row = 0; row < group.rows; row += 1) {
          const base = (group.rowOf ? group.rowOf[row] : row) * group.width;
          for (let column = 0; column < group.columns; column += 1) {
            for (let slot = group.starts[column]; slot < group.starts[column + 1]; slot += 1) {
              if (group.experts[base + slot] === expert) { mask[(group.top + row) * columns + group.left + column] = 1; total += 1; }
            }
          }
        }
      });
      return { mask: mask, total: total };
    }

    return {
      arrived: data.arrived ? array(data.arrived, Uint8Array) : null,
      rows, columns, layers, load, copies, first, held, find, least, most, copied, fewest,
      even: most - least <= EVEN, away: Math.min(1, Math.max(EVEN, 1 - least, most - 1)),
      gpus: data.gpus, experts: data.experts, replicas: data.replicas,
      nodes: runs(data.nodes, columns), racks: runs(data.racks, columns), domains: runs(data.domains, columns)
    };
  };
})();
