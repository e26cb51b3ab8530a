// Long work: ordered, watched with incumbent and bound, cancelled; its plan, and what is left where GPUs are lost.
import { command, compared, figuresOf, ofKind, shown } from "./blocks.js";
import { button, byId, colour, download, drawing, element, error, get, lines, post, select } from "./page.js";
import { asked, state } from "./state.js";

const LOADS = ["lognormal:0.63", "lognormal:1", "zipf:0.4", "uniform"];
const SECONDS = [[0, "0 s (fast path only)"], [10, "10 s"], [30, "30 s"], [120, "2 minutes"]];
// base: the plan before losses; planned: the one that is shown; running: what ends the work on one
let running = null, planned = null, base = null, remember = () => {};

export function makeJobs(plans, changed) {
  remember = changed;
  const choose = (id, words, entries, read) => {
    const made = select({ id, onchange: () => { state[id] = read(made.value); changed(); } }, entries);
    made.value = String(state[id]);
    return element("label", { class: "inline" }, `${words} `, made);
  };
  byId("order").append(
    element("div", { class: "row" },
      button("Place experts", () => place({ cluster: state.point?.cluster ?? 0 })),
      choose("loads", "with loads", LOADS.map((name) => [name, name === "uniform" ? "uniform" : `${name} (synthetic)`]), String),
      choose("seconds", "and search for", SECONDS, Number)),
    element("p", { class: "hint", text: "For whole requests, the better serving mode at the service level is planned on the cluster of the point above." }),
    element("div", { id: "lost" }));
  showLost();
  if (plans.length > 1) {
    const opened = select({ id: "opened", onchange: () => open(Number(opened.value)) }, [...plans.entries()]);
    byId("order").prepend(element("label", { class: "inline" }, "Opened plan ", opened));
  }
}

export const open = (plan) => work({ kind: "open", plan }, showPlan);

export function place(order, lost = []) {
  state.lost = lost;
  showLost();
  remember();
  byId("plan-heading").scrollIntoView({ block: "nearest" });
  return work({ kind: "place", asked: asked(), order: { ...order, loads: state.loads, seconds: state.seconds } }, showPlan);
}

// orders a job, shows how it goes, and hands its result on; another one ends it
async function work(order, show, into = byId("job")) {
  const own = new AbortController();
  if (order.kind !== "report") {
    running?.abort();
    running = own;
  }
  try {
    const [id, { result, errors }] = await watch(order, own, into);
    into.replaceChildren(...(result ? [] : [error(Object.values(errors).join("; "))]));
    return result ? show(result, id) : null;
  } catch (failed) {
    if (running === own || failed.name !== "AbortError") { into.replaceChildren(error(own.signal.aborted ? "stopped." : failed.message)); }
    return null;
  }
}

// returns the id of a job, and what came of it
async function watch(order, own, into) {
  const words = element("p", { text: "waiting ..." }), chart = element("div", { class: "trail" }), trail = [];
  let id = "";
  const stop = button("Cancel", () => {
    if (stop.textContent !== "Cancel") { own.abort(); return; }
    stop.textContent = "Stop now";
    post(`/api/jobs/${id}/cancel`, {}).catch(() => {});
  });
  into.replaceChildren(element("div", { class: "row" }, stop, words), chart);
  for await (const told of lines("/api/jobs", order, own.signal)) {
    if (told.result || told.errors) { return [id, told]; }
    ({ id } = told);
    words.textContent = progress(told, order.kind === "lose");
    if (told.objective && told.elapsed_s !== trail.at(-1)?.elapsed_s) {
      trail.push(told);
      if (trail.length > 400) { trail.splice(0, trail.length, ...trail.filter((_, place) => place % 2)); }
      drawTrail(chart, trail, order.kind === "lose" ? "fresh plan" : "lower bound");
    }
  }
  throw new Error("the server stopped before the job was finished.");
}

function progress({ stage, waited_s, objective, bound, done, total }, moved) {
  const parts = [stage, `${waited_s.toFixed(1)} s`];
  if (objective) {
    const gap = Math.abs(1 - bound / objective) * 100;
    const beside = moved ? `fresh plan ${bound.toFixed(4)}: ${gap.toFixed(2)}% ${objective > bound ? "worse" : "better"}`
      : `lower bound ${bound.toFixed(4)}: gap ${gap.toFixed(2)}%`;
    parts.push(`largest over mean load ${objective.toFixed(4)}, ${beside}`, `${done} of ${total} layers ${moved ? "close to the fresh plan" : "at their bound"}`);
  }
  return parts.join("; ");
}

function drawTrail(holder, trail, bound) {
  const axis = { gridcolor: colour("--rule"), linecolor: colour("--rule"), zeroline: false, automargin: true }, clear = "rgba(0,0,0,0)";
  const line = (name, figure, look) =>
    ({ type: "scatter", mode: "lines", name, x: trail.map((one) => one.elapsed_s), y: trail.map((one) => one[figure]), line: look });
  window.Plotly.react(holder, [
    line("incumbent", "objective", { color: "#d55e00", shape: "hv" }), line(bound, "bound", { color: "#0072b2", dash: "dash" }),
  ], {
    height: 180, margin: { l: 60, r: 10, t: 28, b: 36 }, paper_bgcolor: clear, plot_bgcolor: clear, font: { color: colour("--ink"), size: 12 },
    xaxis: { ...axis, title: { text: "s" } }, yaxis: { ...axis, tickformat: ".4f" }, legend: { orientation: "h", y: 1, yanchor: "bottom", bgcolor: clear },
  }, { displayModeBar: false, responsive: true });
}

function showPlan(found, job) {
  base = { job, found };
  show(base);
  if (state.lost.length) { lose(); }
}

function show(one) {
  planned = one;
  const { found } = one, count = (figure) => figure.toLocaleString("en-US");
  const lost = found.lost ? element("p", { text: `Without ${found.lost.join(", ")}: ${count(found.lost_gpus)} GPUs, ${count(found.lost_copies)} copies of experts.` }) : "";
  const columns = found.before ? [{ name: "before", figures: figuresOf(found.before) }, { name: "after", figures: figuresOf(found) }]
    : [{ name: "plan", figures: figuresOf(found) }];
  const pictures = ofKind(found, "picture").filter(({ scene }) => !scene);
  const map = pictures.find(({ svg }) => !svg), picked = drawing(base.found.svg), held = map && shown(map);
  for (const pickable of [picked, held]) { if (pickable) { pickable.dataset.pick = "1"; } }
  byId("plan").replaceChildren(
    element("p", { class: "verdict", text: found.answer.join(" ") }), ...ofKind(found, "note").map(shown),
    element("div", { class: "row" },
      button("Download the report", (event) => report({ kind: "report", of: planned.job }, event.target)),
      button("Download plan.json", async () => download(await (await get(`/api/jobs/${planned.job}/plan`)).text(), "plan.json", "application/json"))),
    found.command ? command(found.command) : "",
    lost,
    element("div", { class: "beside" },
      element("div", {}, compared(columns), ...ofKind(found, "table").map(shown)),
      element("div", { class: "pictures" }, ...pictures.filter((other) => other !== map).map(shown))),
    ...(held ? [element("h3", { text: "Experts: layers x GPUs" }), held] : []),
    element("h3", { text: "Cluster: select a GPU, a node or a rack to simulate its failure" }), picked,
  );
  window.rackplanPictures.topology?.(picked)?.mark?.(state.lost, "lost");
}

// what is lost; the first loss places experts where no plan is yet
function showLost() {
  const add = () => { if (field.value.trim()) { toggle(field.value.trim()); } };
  const field = element("input", {
    type: "text", id: "lose-id", placeholder: "d0.n0.g0", size: "12", autocomplete: "off",
    onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); add(); } },
  });
  byId("lost").replaceChildren(element("div", { class: "row" }, element("label", { for: "lose-id", text: "Failed GPU, node or rack" }), field, button("Fail", add),
    ...state.lost.map((id) => element("span", { class: "pin" }, `${id} failed `,
      button("Restore", () => toggle(id), { class: "quiet", "aria-label": `Restore ${id}` })))));
}

export function toggle(id) {
  const lost = state.lost.includes(id) ? state.lost.filter((one) => one !== id) : [...state.lost, id];
  if (!base) { place({ cluster: state.point?.cluster ?? 0 }, lost); return; }
  state.lost = lost;
  showLost();
  remember();
  if (state.lost.length) { lose(); } else { show(base); }
}

// what is left without all that is lost; where that cannot serve, the plan before is shown beside the reason
async function lose() {
  const { lost } = state;
  const done = await work({ kind: "lose", of: base.job, lost }, (found, job) => { show({ job, found }); return true; });
  if (!done && lost === state.lost) { show(base); }
}

export async function report(order, pressed) {
  const before = pressed.textContent;
  Object.assign(pressed, { disabled: true, textContent: "Writing ..." });
  await work(order, (found) => download(found.page, found.name, "text/html"), byId("report-state"));
  Object.assign(pressed, { disabled: false, textContent: before });
}
