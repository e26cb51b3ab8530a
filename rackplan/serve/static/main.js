// The page: what is asked goes to the server, and what comes back is shown.
import { makeForm, showErrors, showForm } from "./form.js";
import { makeJobs, open, report, toggle } from "./jobs.js";
import { byId, copy, error, get, latest, post } from "./page.js";
import { draw, makePlot, placeOf } from "./plot.js";
import { showPoint } from "./point.js";
import { asked, fromAddress, startState, state, toAddress } from "./state.js";

let found = null, address = "", timer = 0;

const wantPlot = latest((question) => post("/api/plot", question), shown, refused);
const wantPoint = latest((question) => post("/api/point", question), pointShown,
  (failed) => byId("point").replaceChildren(error(failed.message)));

function refused(failed) {
  byId("answers").classList.add("stale");
  showErrors(failed.errors || { request: String(failed.message || failed) });
}

function shown(answer, question) {
  found = answer;
  byId("answers").classList.remove("stale");
  showErrors({}, answer.notes);
  document.title = `${answer.model} - rackplan`;
  byId("title").textContent = answer.title;
  byId("command").textContent = answer.command;
  if (state.point && !answer.clusters[state.point.cluster]) { state.point = null; }
  found.point = state.point ?? firstPoint(answer);
  draw(answer);
  performance.mark("rackplan-plot");
  if (found.point) { wantPoint({ asked: question, point: found.point }); } else { showPoint(null, null, pin); }
}

// the best at the service level, or where there is none the end of the first frontier
function firstPoint({ clusters }) {
  const cluster = clusters.findIndex((side) => !side.reason);
  if (cluster < 0) { return null; }
  const side = clusters[cluster], from = side.best ?? side.frontier;
  return { cluster, layout: side.layouts[from.layout[0]], batch: from.batch[0] };
}

function pointShown(answer, { point }) {
  const figure = (what) => answer.figures.find((row) => row.what === what).value;
  found.at = answer.gone ? null : placeOf(found.clusters[point.cluster], figure("tok/s per user"), figure("tok/s per GPU"));
  showPoint(answer, point, pin);
  draw(found);
}

function pin(name, answer) {
  state[name] = answer && { figures: answer.figures, shown: found.at, words: `${answer.layout} on ${answer.cluster}` };
  remember();
  if (answer) { showPoint(answer, found.point, pin); } else { wantPoint({ asked: asked(), point: found.point }); }
  draw(found);
}

// a point was chosen, or the conditions of a measured run
function choose(point) {
  if (point.conditions) {
    Object.assign(state, point.conditions, { point: null });
    showForm();
    ask();
    return;
  }
  state.point = found.point = point;
  remember();
  wantPoint({ asked: asked(), point });
}

function ask() {
  remember();
  wantPlot(asked());
}

function remember() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    address = await toAddress();
    history.replaceState(null, "", address);
  }, 150);
}

async function begin() {
  const start = await (await get("/api/start")).json();
  startState(start);
  await fromAddress(location.hash);
  byId("more").open = window.innerWidth > 900;
  makeForm(start, ask);
  makePlot(choose);
  makeJobs(start.plans, remember);
  byId("up").addEventListener("change", () => { state.up = byId("up").value; remember(); draw(found); });
  byId("copy-command").addEventListener("click", () => copy(byId("command").textContent, byId("copy-command")));
  byId("report").addEventListener("click", () => report({ kind: "report", asked: asked() }, byId("report")));
  document.addEventListener("rackplan:pick", (event) => { if (event.target.closest("#plan")) { toggle(event.detail.id); } });
  window.addEventListener("hashchange", async () => {
    if (location.hash === address || !await fromAddress(location.hash)) { return; }
    showForm();
    ask();
  });
  ask();
  if (start.plans.length) { open(0); }
}

begin().catch(refused);
