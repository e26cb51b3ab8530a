// The Pareto plot: a frontier for each cluster, runners-up of one alone, measured runs as dots, pins and the choice.
import { byId, colour, element, table } from "./page.js";
import { state } from "./state.js";

// what goes up: words, how a figure follows from tok/s/GPU, and the axis
const UPS = {
  gpu: { words: "tok/s per GPU", of: (gpu) => gpu, form: ",.4~r", log: false },
  usd: { words: "dollars per million tokens", of: (gpu, side) => (side.usd === null ? null : side.usd / gpu), form: "$,.3~r", log: true },
  mw: { words: "tok/s per MW", of: (gpu, side) => (side.mw === null ? null : side.mw * gpu), form: ",.3~s", log: false },
};
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross"];
let last = null, chosen = () => {};

export function makePlot(onChoice) {
  chosen = onChoice;
  const select = byId("up");
  select.append(...Object.entries(UPS).map(([value, { words }]) => element("option", { value, text: words })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (last) { draw(last); } });
}

// on a phone the legend is short, and nothing floats over the plot
const isSmall = () => byId("plot").clientWidth < 600;

export function upIs(name) { return UPS[name] ? name : "gpu"; }

function hover(side, points, index, before) {
  const up = UPS[state.up];
  const height = up.of(points.gpu[index], side);
  const lines = [
    `${before}${side.layouts[points.layout[index]]}`,
    `batch ${points.batch[index].toLocaleString("en-US")} per GPU, step ${points.step[index].toPrecision(4)} ms`,
    `${points.user[index].toPrecision(4)} tok/s per user`,
    `${points.gpu[index].toLocaleString("en-US", { maximumFractionDigits: 0 })} tok/s per GPU`,
    state.up === "gpu" || height === null ? null : `${height.toPrecision(3)} ${up.words}`,
    `bound by ${side.bounds[points.bound[index]]}`,
  ];
  return lines.filter(Boolean).map(escaped).join("<br>");
}

// Plotly reads a few tags in its labels: a name is shown as it is
function escaped(text) { return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); }

function line(side, place, points, name, look, before) {
  const up = UPS[state.up];
  return {
    type: "scatter", name: escaped(name), x: points.user, y: points.gpu.map((gpu) => up.of(gpu, side)),
    hovertext: points.user.map((_, index) => hover(side, points, index, before)), hoverinfo: "text",
    customdata: points.user.map((_, index) => ({ cluster: place, layout: side.layouts[points.layout[index]], batch: points.batch[index] })),
    ...look,
  };
}

function traces(found) {
  const up = UPS[state.up], made = [], many = found.clusters.length > 1, small = isSmall();
  found.clusters.forEach((side, place) => {
    if (side.reason) { return; }
    for (const [index, points] of (side.runners || []).entries()) {
      const tint = side.runner_colours[index];
      made.push(line(side, place, points, side.layouts[points.layout[0]], {
        mode: "lines+markers", opacity: 0.75, showlegend: !small, line: { color: tint, width: 1, dash: "dot" }, marker: { color: tint, size: 4 },
      }, ""));
    }
    made.push(line(side, place, side.frontier, many ? side.name : "frontier", {
      mode: "lines+markers", line: { color: side.colour, width: 2.5 },
      marker: { color: side.colour, size: 5, symbol: SYMBOLS[place % SYMBOLS.length] },
    }, many ? `${side.name}: ` : ""));
    if (side.best) {
      made.push(line(side, place, side.best, "at the limit", {
        mode: "markers", showlegend: false,
        marker: { color: side.colour, size: 15, symbol: "star", line: { color: colour("--ink"), width: 1 } },
      }, `best at the limit, ${side.name}: `));
    }
  });
  const dots = found.measured.filter((dot) => !found.clusters[dot.cluster].reason);
  if (dots.length) {
    made.push({
      type: "scatter", mode: "markers", name: "measured run", x: dots.map((dot) => dot.user),
      y: dots.map((dot) => up.of(dot.gpu, found.clusters[dot.cluster])),
      hovertext: dots.map((dot) => [`measured: ${dot.words}`, `${dot.user.toPrecision(4)} tok/s per user, ${Math.round(dot.gpu).toLocaleString("en-US")} per GPU`, dot.source, "choose it to ask under its lengths and formats"].map(escaped).join("<br>")),
      hoverinfo: "text", customdata: dots.map((dot) => ({ conditions: dot.asked })),
      marker: { symbol: "circle", size: 11, color: dots.map((dot) => found.clusters[dot.cluster].colour), line: { color: colour("--ink"), width: 2 } },
    });
  }
  for (const [name, pin] of [["A", state.a], ["B", state.b], ["", found.at ? { shown: found.at } : null]]) {
    const at = pin?.shown;
    if (!at) { continue; }
    made.push({
      type: "scatter", mode: name ? "markers+text" : "markers", x: [at.user], y: [at[state.up]], text: [name], textposition: "top center",
      hoverinfo: "skip", showlegend: false, textfont: { size: 16, color: colour("--ink") },
      marker: { symbol: "circle-open", size: 20, color: colour("--ink"), line: { width: 2 } },
    });
  }
  return made;
}

function axes(found) {
  const ink = colour("--ink"), rule = colour("--rule"), up = UPS[state.up];
  const axis = { gridcolor: rule, linecolor: rule, zeroline: false, automargin: true, ticks: "outside", tickcolor: rule, showline: true };
  const speeds = found.clusters.flatMap((side) => side.frontier?.user ?? []).concat(found.measured.map((dot) => dot.user));
  const ticks = [-1, 0, 1, 2, 3].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
  const room = speeds.length ? [Math.log10(Math.min(...speeds)) - 0.04, Math.log10(Math.max(...speeds)) + 0.04] : [0, 2];
  const shapes = found.tpot_ms ? [{
    type: "line", x0: 1e3 / found.tpot_ms, x1: 1e3 / found.tpot_ms, yref: "paper", y0: 0, y1: 1, line: { color: ink, width: 1, dash: "dot" },
  }] : [];
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", height: isSmall() ? 360 : 460, hovermode: "closest", dragmode: "pan",
    font: { family: "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif", size: 13, color: ink },
    margin: { l: 48, r: 12, t: 12, b: 48 }, hoverlabel: { align: "left" }, shapes,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    xaxis: { ...axis, type: "log", title: { text: "tok/s per user", standoff: 8 }, tickvals: ticks, ticktext: ticks.map(String), range: room },
    yaxis: { ...axis, type: up.log ? "log" : "linear", rangemode: "tozero", tickformat: up.form, title: { text: up.words, standoff: 6 } },
  };
}

export function draw(found) {
  last = found;
  state.up = upIs(state.up);
  byId("up").value = state.up;
  const plot = byId("plot");
  const options = { responsive: true, displayModeBar: isSmall() ? false : "hover", displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], scrollZoom: false };
  const first = !plot.data;
  window.Plotly.react(plot, traces(found), axes(found), options);
  if (first) {
    plot.on("plotly_click", ({ points }) => { if (points[0]?.customdata) { chosen(points[0].customdata); } });
  }
  const said = found.clusters.map((side) => (side.reason ? `${side.name}: ${side.reason}` : `${side.name}, ${side.configurations.toLocaleString("en-US")} configurations`));
  plot.setAttribute("aria-label", `${UPS[state.up].words} against tok/s per user of ${found.title}: ${said.join("; ")}. The table below has the best at the limit.`);
  walk(found);
  best(found);
}

// the frontier by keyboard: a slider whose steps are its points
function walk(found) {
  const holder = byId("walk");
  const at = found.point, place = at && found.clusters[at.cluster] ? at.cluster : 0;
  const side = found.clusters[place];
  if (!side || side.reason) { holder.replaceChildren(); return; }
  const points = side.frontier;
  const same = at ? points.layout.findIndex((layout, index) => side.layouts[layout] === at.layout && points.batch[index] === at.batch) : -1;
  let range = byId("walk-range");
  if (!range) {
    range = element("input", { type: "range", id: "walk-range", min: "0" });
    const which = element("select", { id: "walk-cluster", "aria-label": "Cluster whose frontier is walked" });
    holder.append(element("label", { for: "walk-range", text: "Walk the frontier" }), which, range);
    range.addEventListener("input", () => {
      const now = last.clusters[Number(which.value)], index = Number(range.value);
      chosen({ cluster: Number(which.value), layout: now.layouts[now.frontier.layout[index]], batch: now.frontier.batch[index] });
    });
    which.addEventListener("change", () => {
      const now = last.clusters[Number(which.value)];
      if (now.reason) { return; }
      chosen({ cluster: Number(which.value), layout: now.layouts[now.frontier.layout[0]], batch: now.frontier.batch[0] });
    });
  }
  const which = byId("walk-cluster");
  which.replaceChildren(...found.clusters.map((one, index) => element("option", { value: String(index), text: one.name, disabled: Boolean(one.reason) })));
  which.value = String(place);
  which.hidden = found.clusters.length < 2;
  range.max = String(points.user.length - 1);
  const near = found.at ? nearest(points.user, found.at.user) : 0;
  range.value = String(same >= 0 ? same : near);
  const index = Number(range.value);
  range.setAttribute("aria-valuetext", `${points.user[index].toPrecision(3)} tok/s per user, ${Math.round(points.gpu[index])} tok/s per GPU`);
}

function nearest(speeds, speed) {
  const apart = speeds.map((one) => Math.abs(Math.log(one / speed)));
  return apart.indexOf(Math.min(...apart));
}

function best(found) {
  const short = (value, digits = 3) => (value === null ? "-" : value.toLocaleString("en-US", { maximumSignificantDigits: digits }));
  const base = found.clusters.find((side) => side.best)?.best.gpu[0];
  const rows = found.clusters.map((side) => {
    if (side.reason) { return [side.name, side.gpus, "-", "-", "-", "-", "-", "-", side.reason]; }
    const within = side.band ? `x${side.band.toFixed(2)}` : "-";
    if (!side.best) { return [side.name, side.gpus, found.tpot_ms ? "unreachable" : "-", "-", "-", "-", "-", within, ""]; }
    const gpu = side.best.gpu[0];
    return [
      side.name, side.gpus, Math.round(gpu).toLocaleString("en-US"), base ? `${(gpu / base).toFixed(2)}x` : "-",
      UPS.usd.of(gpu, side) === null ? "-" : `$${short(UPS.usd.of(gpu, side))}`, short(UPS.mw.of(gpu, side)),
      short(side.usd_per_h), within, side.layouts[side.best.layout[0]],
    ];
  });
  const caption = found.tpot_ms
    ? `The best at ${short(1e3 / found.tpot_ms, 4)} tok/s per user (${short(found.tpot_ms, 4)} ms a token${found.usual_tpot ? ", as usual" : ""})`
    : "No limit on the time per token: choose a point";
  const columns = ["cluster", "GPUs", "tok/s/GPU", "ratio", "$/Mtok", "tok/s/MW", "USD/h", "80% within", "layout"];
  byId("best").replaceChildren(table(columns, rows, { caption, words: [8] }));
  const ends = (note) => note.replace(/\.?$/, ".");
  byId("plot-note").textContent = found.measured.length
    ? "Dots are measured runs, under lengths, drafts and formats of their own: choose one to ask under those." : "";
  const notes = [...new Set([
    ...found.said,
    ...found.clusters.flatMap((side) => [side.doubt, side.set ? `${side.name}: ${side.set}` : "", ...(side.left_out || [])]),
    ...found.clusters.map((side) => (side.factor ? `${side.name}: ${side.factor}` : "")),
  ].filter(Boolean))];
  byId("notes").hidden = !notes.length;
  byId("notes-list").replaceChildren(...notes.map((note) => element("li", { text: ends(note) })));
}

// where a point lies, in every unit of the axis
export function placeOf(side, user, gpu) {
  const place = { user };
  for (const [name, up] of Object.entries(UPS)) { place[name] = up.of(gpu, side); }
  return place;
}
