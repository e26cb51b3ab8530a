// The Pareto plot: a frontier for each cluster, ways of serving, measured runs as dots, pins and the choice.
import { perMwOf, usdOf, whole } from "./money.js";
import { byId, colour, download, element, save, select } from "./page.js";
import { state } from "./state.js";

// what goes up: words, how a figure follows from tok/s/GPU, and the axis
const UPS = {
  gpu: { words: "tok/s per GPU", of: (gpu) => gpu, form: ",.4~r" },
  usd: { words: "dollars per million tokens", of: usdOf, form: "$,.3~r" },
  mw: { words: "tok/s per MW", of: perMwOf, form: ",.3~s" },
};
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross"];
let last = null, chosen = () => {};

export function makePlot(onChoice) {
  chosen = onChoice;
  byId("up").append(...Object.entries(UPS).map(([value, { words }]) => element("option", { value, text: words })));
  byId("png").addEventListener("click", png);
  byId("csv").addEventListener("click", csv);
  byId("others").addEventListener("change", () => { chosen({ conditions: last.others[Number(byId("others").value)].asked }); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (last) { draw(last); } });
  const walk = () => { const side = last.clusters[Number(which.value)]; return side.reason ? null : side; };
  const which = select({ id: "walk-cluster", "aria-label": "Cluster of the frontier to step through", onchange: () => { if (walk()) { choose(0); } } }, []);
  const range = element("input", { type: "range", id: "walk-range", min: "0", oninput: () => choose(Number(range.value)) });
  const choose = (index) => chosen(pointAt(walk(), Number(which.value), walk().frontier, index));
  byId("walk").append(element("label", { for: "walk-range", text: "Step along the frontier" }), which, range);
}

// on a phone the legend is short, and nothing floats over the plot
const isSmall = () => byId("plot").clientWidth < 600;
const pointAt = (side, cluster, points, index) => ({ cluster, layout: side.layouts[points.layout[index]], batch: points.batch[index] });

// Plotly reads a few tags in its labels: a name is shown as it is
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const hover = (texts) => texts.filter(Boolean).map(escaped).join("<br>");

function line(side, place, points, name, look, before) {
  const up = UPS[state.up];
  const heights = points.gpu.map((gpu) => up.of(gpu, side));
  return {
    type: "scatter", name: escaped(name), x: points.user, y: heights, hoverinfo: "text",
    hovertext: points.user.map((user, index) => hover([
      `${before}${side.layouts[points.layout[index]]}`,
      `batch ${points.batch[index].toLocaleString("en-US")} per GPU, step ${points.step[index].toPrecision(4)} ms`,
      `${user.toPrecision(4)} tok/s per user`,
      `${whole(points.gpu[index])} tok/s per GPU`,
      state.up !== "gpu" && heights[index] !== null && `${heights[index].toPrecision(3)} ${up.words}`,
      points.ttft[index] !== null && `first token ${whole(points.ttft[index])} ms`,
      `bound by ${side.bounds[points.bound[index]]}`,
    ])),
    customdata: points.user.map((_, index) => pointAt(side, place, points, index)), ...look,
  };
}

// the traces of one cluster
function sideTraces(side, place, many) {
  const ink = colour("--ink"), mode = "lines+markers";
  const rivals = side.rivals.map(({ name, points }, index) => {
    const color = side.rival_colours[index];
    const look = { mode, opacity: 0.75, showlegend: !isSmall(), line: { color, width: 2, dash: "dot" }, marker: { color, size: 4 } };
    return line(side, place, points, name, look, "");
  });
  const symbol = SYMBOLS[place % SYMBOLS.length], color = side.colour;
  const edge = { mode, line: { color, width: 2.5 }, marker: { color, size: 5, symbol } };
  const star = { mode: "markers", showlegend: false, marker: { color, size: 15, symbol: "star", line: { color: ink, width: 1 } } };
  return [
    ...rivals, line(side, place, side.frontier, many ? side.name : side.ways && state.serving !== "better" ? state.serving : "frontier", edge, many ? `${side.name}: ` : ""),
    ...(side.best ? [line(side, place, side.best, "at the limit", star, `best at the limit, ${side.name}: `)] : []),
  ];
}

function traces(found) {
  const up = UPS[state.up], ink = colour("--ink");
  const made = found.clusters.flatMap((side, place) => (side.reason ? [] : sideTraces(side, place, found.clusters.length > 1)));
  const dots = found.measured.filter((dot) => !found.clusters[dot.cluster].reason);
  if (dots.length) {
    made.push({
      type: "scatter", mode: "markers", name: "measured run", x: dots.map((dot) => dot.user),
      y: dots.map((dot) => up.of(dot.gpu, found.clusters[dot.cluster])), hoverinfo: "text",
      hovertext: dots.map((dot) => hover([`measured: ${dot.words}`, `${dot.user.toPrecision(4)} tok/s per user, ${whole(dot.gpu)} per GPU`,
        dot.source, "select it to load its settings"])),
      customdata: dots.map((dot) => ({ conditions: dot.asked })),
      marker: { symbol: "circle", size: 11, color: dots.map((dot) => found.clusters[dot.cluster].colour), line: { color: ink, width: 2 } },
    });
  }
  for (const [name, at] of [["A", state.a?.shown], ["B", state.b?.shown], ["", found.at]]) {
    if (!found.clusters[at?.cluster]) { continue; }
    made.push({
      type: "scatter", mode: name ? "markers+text" : "markers", x: [at.user], y: [up.of(at.gpu, found.clusters[at.cluster])], text: [name], textposition: "top center",
      hoverinfo: "skip", showlegend: false, textfont: { size: 16, color: ink },
      marker: { symbol: "circle-open", size: 20, color: ink, line: { width: 2 } },
    });
  }
  return made;
}

function axes(found) {
  const ink = colour("--ink"), rule = colour("--rule"), up = UPS[state.up], clear = "rgba(0,0,0,0)";
  const axis = { gridcolor: rule, linecolor: rule, zeroline: false, automargin: true, ticks: "outside", tickcolor: rule, showline: true };
  const speeds = found.clusters.flatMap((side) => side.frontier?.user ?? []).concat(found.measured.map((dot) => dot.user));
  const range = speeds.length ? [Math.log10(Math.min(...speeds)) - 0.04, Math.log10(Math.max(...speeds)) + 0.04] : [0, 2];
  const steps = range[1] - range[0] < 0.8 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : [1, 2, 5];
  const ticks = [-1, 0, 1, 2, 3].flatMap((power) => steps.map((step) => Number((step * 10 ** power).toPrecision(3))));
  const limit = { type: "line", x0: 1e3 / found.tpot_ms, x1: 1e3 / found.tpot_ms, yref: "paper", y0: 0, y1: 1, line: { color: ink, width: 1, dash: "dot" } };
  return {
    paper_bgcolor: clear, plot_bgcolor: clear, height: isSmall() ? 340 : 400, hovermode: "closest", dragmode: "pan",
    font: { family: "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif", size: 13, color: ink },
    margin: { l: 48, r: 12, t: 8, b: 44 }, hoverlabel: { align: "left" }, shapes: found.tpot_ms ? [limit] : [],
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: clear },
    xaxis: { ...axis, type: "log", title: { text: "tok/s per user", standoff: 8 }, tickvals: ticks, ticktext: ticks.map(String), range },
    yaxis: { ...axis, type: state.log ? "log" : "linear", rangemode: "tozero", dtick: state.log ? "D2" : null, tickformat: up.form, title: { text: up.words, standoff: 6 } },
  };
}

export function draw(found) {
  last = found;
  if (!UPS[state.up]) { state.up = "gpu"; }
  byId("up").value = state.up;
  byId("log").checked = Boolean(state.log);
  const plot = byId("plot"), first = !plot.data;
  window.Plotly.react(plot, traces(found), axes(found), {
    responsive: true, displayModeBar: isSmall() ? false : "hover", displaylogo: false, scrollZoom: false,
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"]],
  });
  if (first) { plot.on("plotly_click", ({ points }) => { if (points[0]?.customdata) { chosen(points[0].customdata); } }); }
  const sides = found.clusters.map((side) => (side.reason ? `${side.name}: ${side.reason}` : `${side.name}, ${whole(side.configurations)} configurations`));
  plot.setAttribute("aria-label", `${UPS[state.up].words} against tok/s per user of ${found.title}: ${sides.join("; ")}. The table below shows the best points at the limit.`);
  showWalk(found);
  showMeasured(found);
}

// the chart as a picture on paper, and its frontiers as rows
async function png() {
  const { data, layout } = byId("plot"), paper = colour("--paper");
  const titled = { ...layout, paper_bgcolor: paper, plot_bgcolor: paper, margin: { ...layout.margin, t: 70 }, title: { text: escaped(`${last.title}, on ${last.clusters.map((side) => side.name).join(", ")}`), font: { size: 16 } } };
  save(await window.Plotly.toImage({ data, layout: titled }, { format: "png", width: 1200, height: 640, scale: 2 }), `${last.model}.png`);
}

function csv() {
  const rows = [["cluster", "line", "layout", "batch per GPU", "step ms", "first token ms", "tok/s per user", "tok/s per GPU", "USD per million tokens", "tok/s per MW", "bound by"]];
  for (const side of last.clusters.filter((one) => !one.reason)) {
    for (const { name, points } of [{ name: "frontier", points: side.frontier }, ...side.rivals]) {
      points.user.forEach((user, index) => rows.push([side.name, name, side.layouts[points.layout[index]], points.batch[index], points.step[index], points.ttft[index],
        user, points.gpu[index], usdOf(points.gpu[index], side), perMwOf(points.gpu[index], side), side.bounds[points.bound[index]]]));
    }
  }
  for (const dot of last.measured) { rows.push([last.clusters[dot.cluster].name, "measured", dot.words, "", "", "", dot.user, dot.gpu, "", "", ""]); }
  // a cell that begins as a formula does is text to a spreadsheet
  const cell = (value) => (typeof value === "string" && /^[=+@-]|[",\n]/.test(value) ? `"${value.replace(/^(?=[=+@-])/, "'").replaceAll('"', '""')}"` : value ?? "");
  download(rows.map((row) => row.map(cell).join(",")).join("\r\n"), `${last.model}.csv`, "text/csv");
}

// runs under what is asked are dots; the conditions of others are offered
function showMeasured({ measured, others }) {
  byId("measured").hidden = !measured.length && !others.length;
  byId("plot-note").textContent = measured.length ? `Dots: ${measured.length} measured runs at these settings.` : "No measured runs at these settings.";
  byId("others").closest("label").hidden = !others.length;
  byId("others").replaceChildren(element("option", { text: `Other settings: ${others.reduce((sum, one) => sum + one.runs, 0)} measured runs`, value: "" }),
    ...others.map(({ words, runs }, place) => element("option", { text: `${words} (${runs})`, value: String(place) })));
}

// the frontier by keyboard: a slider whose steps are its points
function showWalk({ clusters, point, at }) {
  const place = point?.cluster ?? 0, side = clusters[place], which = byId("walk-cluster"), range = byId("walk-range");
  byId("walk").hidden = Boolean(side.reason);
  if (side.reason) { return; }
  which.replaceChildren(...clusters.map((one, index) => element("option", { value: String(index), text: one.name, disabled: Boolean(one.reason) })));
  which.value = String(place);
  which.hidden = clusters.length < 2;
  const { user, gpu, layout, batch } = side.frontier;
  const far = user.map((speed) => Math.abs(Math.log(speed / (at?.user ?? user[0]))));
  const same = user.findIndex((_, index) => side.layouts[layout[index]] === point?.layout && batch[index] === point.batch);
  const index = same >= 0 ? same : far.indexOf(Math.min(...far));
  range.max = String(user.length - 1);
  range.value = String(index);
  range.setAttribute("aria-valuetext", `${user[index].toPrecision(3)} tok/s per user, ${Math.round(gpu[index])} tok/s per GPU`);
}
