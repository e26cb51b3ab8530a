// The page: what is asked goes to the server, and what comes back is shown.
import { get, Latest, post } from "./api.js";
import { makeForm, showErrors, showForm } from "./form.js";
import { makeJobs, open, place, report, toggle } from "./jobs.js";
import { byId, copy } from "./page.js";
import { draw, makePlot, placeOf } from "./plot.js";
import { pointOf, showPoint } from "./point.js";
import { makeSliders, showSliders } from "./sliders.js";
import { asked, fromAddress, state, toAddress } from "./state.js";

let found = null, written = "";

const plots = new Latest((question) => post("/api/plot", question), shown, refused);
const points = new Latest(({ question, point }) => pointOf(point, question), (answer) => { pointShown(answer); }, refused);

function refused(error) {
  byId("answers").classList.add("stale");
  if (error.errors) { showErrors(error.errors); } else { showErrors({ request: String(error.message || error) }); }
}

async function shown(answer, question) {
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
  if (found.point) { points.want({ question, point: found.point }); } else { showPoint(null, { pin, place, point: found?.point }); }
}

// the best at the service level, or where there is none the end of the first frontier
function firstPoint(answer) {
  const cluster = answer.clusters.findIndex((side) => !side.reason);
  if (cluster < 0) { return null; }
  const side = answer.clusters[cluster], from = side.best ?? side.frontier;
  return { cluster, layout: side.layouts[from.layout[0]], batch: from.batch[0] };
}

function pointShown(answer) {
  showErrors({}, found?.notes);
  if (!answer.gone) { found.at = placed(answer, found.point.cluster); } else { delete found.at; }
  showPoint(answer, { pin, place, point: found?.point });
  draw(found);
}

function placed(answer, cluster) {
  const figure = (what) => answer.figures.find((row) => row.what === what)?.value;
  return placeOf(found.clusters[cluster], figure("tok/s per user"), figure("tok/s per GPU"));
}

function pin(name, answer) {
  state[name] = answer && {
    asked: asked(), point: found.point, figures: answer.figures, shown: found.at,
    words: `${answer.layout} on ${answer.cluster}`,
  };
  remember();
  if (answer) { showPoint(answer, { pin, place, point: found?.point }); } else { points.want({ question: asked(), point: found.point }); }
  draw(found);
}

function choose(point) {
  if (point.conditions) {
    Object.assign(state, point.conditions, { point: null });
    showForm();
    ask();
    return;
  }
  state.point = found.point = point;
  remember();
  points.want({ question: asked(), point });
}

// asks again; what cannot even be asked is said at once
function ask() {
  remember();
  try {
    plots.want(asked());
  } catch (error) {
    refused(error);
  }
}

let timer = 0;
function remember() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    written = await toAddress();
    history.replaceState(null, "", written);
  }, 150);
}

async function begin() {
  const start = await get("/api/start");
  if (!await fromAddress(location.hash)) { Object.assign(state, start.asked); }
  byId("more").open = window.innerWidth > 900;
  makeForm(start, ask);
  makeSliders(ask);
  makePlot(choose);
  makeJobs(start.plans, remember);
  byId("up").addEventListener("change", () => { state.up = byId("up").value; remember(); draw(found); });
  byId("copy-command").addEventListener("click", () => copy(byId("command").textContent, byId("copy-command")));
  byId("report").addEventListener("click", () => report({ kind: "report", asked: asked() }, byId("report")));
  document.addEventListener("rackplan:pick", (event) => { if (event.target.closest("#plan")) { toggle(event.detail.id); } });
  window.addEventListener("hashchange", async () => {
    if (location.hash === written || !await fromAddress(location.hash)) { return; }
    showForm();
    showSliders();
    ask();
  });
  ask();
  if (start.plans.length) { open(0); }
}

begin().catch(refused);
