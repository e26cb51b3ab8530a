// Long work: ordered, watched with incumbent and bound, cancelled; its plan, and what is left where GPUs are lost.
import { get, post, Refused } from "./api.js";
import { byId, colour, copy, download, drawing, element, picture, table } from "./page.js";
import { compared } from "./point.js";
import { asked, state } from "./state.js";

const EVERY_MS = 250, LOADS = ["lognormal:0.63", "lognormal:1", "zipf:0.4", "uniform"];
let running = null, planned = null, base = null, remember = () => {};

const wait = (time) => new Promise((done) => { setTimeout(done, time); });

export function makeJobs(plans, changed) {
  remember = changed;
  const choose = (id, words, options, read) => {
    const made = element("select", { id }, ...options.map(([value, text]) => element("option", { value, text })));
    made.value = String(state[id]);
    made.addEventListener("change", () => { state[id] = read(made.value); changed(); });
    return element("label", { class: "inline" }, `${words} `, made);
  };
  const go = element("button", { type: "button", text: "Place experts", onclick: () => place({ cluster: state.point?.cluster ?? 0 }) });
  byId("order").append(element("div", { class: "row" }, go,
    choose("loads", "under loads", LOADS.map((one) => [one, one === "uniform" ? "all alike" : `${one} (synthetic)`]), String),
    choose("seconds", "and search for", [["0", "no longer than the fast path"], ["10", "10 s"], ["30", "30 s"], ["120", "2 minutes"]], Number)),
  element("p", { class: "hint", text: "The best layout at the service level on the first cluster, or that of the point above." }));
  if (plans.length) {
    const list = element("select", { id: "opened", "aria-label": "Plans that were opened" }, ...plans.map((text, index) => element("option", { value: String(index), text })));
    list.addEventListener("change", () => open(Number(list.value)));
    if (plans.length > 1) { byId("order").prepend(element("label", { class: "inline" }, "Opened plan ", list)); }
  }
}

export const open = (index) => work({ kind: "open", plan: index }, showPlan);

export const place = (order) => {
  state.lost = [];
  byId("plan-heading").scrollIntoView({ block: "nearest" });
  return work({ kind: "place", asked: asked(), order: { ...order, loads: state.loads, seconds: state.seconds } }, showPlan);
};

// orders a job, shows how it goes, and hands its result on
async function work(order, show, into = byId("job")) {
  const isReport = order.kind === "report";
  if (running && !isReport) { await cancel(); }
  try {
    const job = await post("/api/jobs", order);
    if (!isReport) { running = job.id; }
    const status = await watch(job.id, into);
    if (running === job.id) { running = null; }
    if (status.state !== "done") { into.replaceChildren(element("p", { class: "error", text: status.message || status.state })); return null; }
    into.replaceChildren();
    const result = await get(`/api/jobs/${job.id}/result`);
    return show(result, job.id);
  } catch (error) {
    if (!isReport) { running = null; }
    const said = error instanceof Refused ? Object.values(error.errors).join("; ") : String(error);
    into.replaceChildren(element("p", { class: "error", text: said }));
    return null;
  }
}

async function cancel() {
  const job = running;
  if (!job) { return; }
  await post(`/api/jobs/${job}/cancel`, {}).catch(() => {});
  for (let turn = 0; turn < 40 && running === job; turn += 1) { await wait(EVERY_MS); }
}

async function watch(id, into) {
  const words = element("p", { text: "waiting ..." });
  const chart = element("div", { class: "trail" });
  const stop = element("button", { type: "button", text: "Cancel", onclick: () => { stop.disabled = true; post(`/api/jobs/${id}/cancel`, {}).catch(() => {}); } });
  into.replaceChildren(element("div", { class: "row" }, stop, words), chart);
  for (;;) {
    const status = await get(`/api/jobs/${id}`);
    if (["done", "failed", "cancelled"].includes(status.state)) { return status; }
    words.textContent = said(status);
    if (status.trail.length > 1) { trail(chart, status.trail); }
    await wait(EVERY_MS);
  }
}

function said(status) {
  const { stage, objective, bound, done, total } = status.progress;
  const parts = [status.state === "waiting" ? "waiting for its turn" : stage || "starting", `${status.elapsed_s.toFixed(1)} s`];
  if (objective) {
    const moved = status.kind === "lose", least = moved ? "a fresh plan has" : "none can be below";
    parts.push(`largest over mean load ${objective.toFixed(4)}, ${least} ${bound.toFixed(4)}: gap ${((1 - bound / objective) * 100).toFixed(2)}%`,
      `${done} of ${total} layers ${moved ? "near it" : "at their bound"}`);
  }
  return parts.join("; ");
}

function trail(holder, points) {
  const ink = colour("--ink"), rule = colour("--rule");
  const line = (name, index, look) => ({ type: "scatter", mode: "lines", name, x: points.map((one) => one[0]), y: points.map((one) => one[index]), line: look });
  const axis = { gridcolor: rule, linecolor: rule, zeroline: false, automargin: true };
  window.Plotly.react(holder, [line("incumbent", 1, { color: "#d55e00", shape: "hv" }), line("bound", 2, { color: "#0072b2", dash: "dash" })], {
    height: 180, margin: { l: 60, r: 10, t: 8, b: 36 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 12 },
    xaxis: { ...axis, title: { text: "s" } }, yaxis: { ...axis, tickformat: ".4f" }, legend: { orientation: "h", y: 1.1, bgcolor: "rgba(0,0,0,0)" },
  }, { displayModeBar: false, responsive: true });
}

function showPlan(found, job) {
  planned = { job, found };
  base = { job, found };
  show(found);
  if (state.lost.length) { lose(); }
}

function show(found) {
  const after = found.lost ? element("p", {},
    `Without ${found.lost.join(", ")} (${found.lost_gpus.toLocaleString("en-US")} GPUs, ${found.lost_copies.toLocaleString("en-US")} copies of experts): ${found.said.join(". ")}.`) : null;
  const columns = found.before ? [{ name: "before", figures: found.before }, { name: "after", figures: found.figures }] : [{ name: "plan", figures: found.figures }];
  const copyIt = element("button", { type: "button", class: "quiet", text: "Copy", "aria-label": "Copy the command of this plan" });
  copyIt.addEventListener("click", () => copy(found.command, copyIt));
  const map = found.pictures.find((one) => !one.svg);
  const others = found.pictures.filter((one) => one !== map);
  const picked = drawing(base.found.svg);
  picked.dataset.pick = "1";
  byId("plan").replaceChildren(
    element("p", { class: "verdict", text: found.verdict + (found.interrupted ? " The search was cut short: the best so far." : "") }),
    element("div", { class: "row" },
      element("button", { type: "button", text: "Download the report", onclick: (event) => report({ kind: "report", of: planned.job }, event.target) }),
      element("button", { type: "button", text: "Download plan.json", onclick: async () => download(await get(`/api/jobs/${planned.job}/plan`, "text"), "plan.json", "application/json") })),
    found.command ? element("div", { class: "command" }, element("code", { text: found.command }), copyIt) : "",
    lostRow(), after ?? "", compared(columns), baselines(found),
    map ? element("h3", { text: "Experts: layers x GPUs" }) : "",
    map ? mapOf(map) : "",
    element("h3", { text: "The cluster: choose a GPU, a node or a rack to lose it" }), picked,
    element("div", { class: "pictures" }, ...others.map(picture)),
  );
  const drawn = window.rackplanPictures.topology?.(picked);
  drawn?.mark?.(state.lost, "lost");
}

function mapOf(map) {
  const held = picture(map);
  held.dataset.pick = "1";
  return held;
}

function baselines(found) {
  const rows = found.baselines.filter((one) => one.tok_s_per_gpu).map((one) => [one.name, one.balancedness?.toFixed(4) ?? "-", Math.round(one.tok_s_per_gpu).toLocaleString("en-US")]);
  if (!rows.length) { return ""; }
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Other placements" },
    table(["placement", "balancedness", "tok/s/GPU"], rows, { caption: "Other placements of the same layout, loads and batch" }));
}

function lostRow() {
  if (!base?.found.experts) { return ""; }
  const field = element("input", { type: "text", id: "lose-id", placeholder: "d0.n3", "aria-label": "GPU, node or rack to lose", size: "12" });
  const add = () => { if (field.value.trim()) { toggle(field.value.trim()); } };
  field.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); add(); } });
  return element("div", { class: "row" },
    element("label", { for: "lose-id", text: "Lose" }), field, element("button", { type: "button", text: "Lose it", onclick: add }),
    ...state.lost.map((id) => element("span", { class: "pin" }, `${id} lost `,
      element("button", { type: "button", class: "quiet", text: "Bring back", "aria-label": `Bring back ${id}`, onclick: () => toggle(id) }))));
}

export function toggle(id) {
  state.lost = state.lost.includes(id) ? state.lost.filter((one) => one !== id) : [...state.lost, id];
  remember();
  if (state.lost.length) { lose(); } else { planned = base; show(base.found); }
}

// what is left without all that is lost; where that cannot serve, the plan before stands beside the reason
async function lose() {
  if (!base) { return; }
  const lost = state.lost;
  const done = await work({ kind: "lose", of: base.job, lost }, (found, job) => {
    planned = { job, found };
    show(found);
    return true;
  });
  if (!done && lost === state.lost) { planned = base; show(base.found); }
}

export async function report(order, button) {
  const said = button.textContent;
  button.disabled = true;
  button.textContent = "Writing ...";
  await work(order, (found) => download(found.page, found.name, "text/html"), byId("report-state"));
  button.disabled = false;
  button.textContent = said;
}
