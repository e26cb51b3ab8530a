// The page: what is asked goes to the server, and what comes back is shown.
import { headline, leading, showAnswer } from "./answer.js";
import { figureOf, figuresOf } from "./blocks.js";
import { makeForm, showErrors, showForm } from "./form.js";
import { makeJobs, open, report, toggle } from "./jobs.js";
import { flags, showMoney } from "./money.js";
import { byId, copy, error, get, latest, post } from "./page.js";
import { arrive, isHere, keep, record, showPast } from "./past.js";
import { draw, makePlot } from "./plot.js";
import { priced, showPoint } from "./point.js";
import { asked, fromAddress, startState, state, toAddress, unpriced } from "./state.js";

const REST_MS = 300;
let found = null, wanted = "", timer = 0;

const wantPlot = latest((question) => post("/api/plot", question), shown, refused, (busy) => {
  document.body.classList.toggle("busy", busy);
  byId("computing").textContent = busy ? "computing ..." : "";
});
const wantPoint = latest((question) => post("/api/point", question), pointShown,
  (failed) => byId("point").replaceChildren(error(failed.message)));

function refused(failed) {
  wanted = "";
  byId("answers").classList.add("stale");
  showErrors(failed.errors || { request: String(failed.message || failed) });
}

function shown(answer, question) {
  found = answer;
  byId("answers").classList.remove("stale");
  showErrors({}, answer.notes);
  document.title = `${answer.model} - rackplan`;
  byId("title").textContent = answer.title;
  if (state.point && !answer.clusters[state.point.cluster]) { state.point = null; }
  found.point = state.point ?? firstPoint(answer);
  reprice();
  performance.mark("rackplan-plot");
  if (found.point) { wantPoint({ asked: question, point: found.point }); } else { showPoint(null, null, pin); }
}

// all that follows from an answer and the prices of now
function reprice() {
  showMoney(found.clusters, ask);
  byId("command").textContent = found.command + flags(found.clusters);
  showAnswer(found);
  draw(found);
  if (found.about) { showPoint(priced(found.about, found.clusters, found.point), found.point, pin); }
  listed();
}

const listed = () => { if (wanted) { keep(JSON.stringify(asked()), headline(found), found.title, byId("command").textContent); } };

// the best at the service level, or where there is none the end of the first frontier
function firstPoint(answer) {
  const lead = leading(answer);
  return lead && { cluster: answer.clusters.indexOf(lead.side), layout: lead.side.layouts[lead.at.layout[0]], batch: lead.at.batch[0] };
}

function pointShown(answer, { point }) {
  found.about = answer.gone ? answer : { ...answer, figures: figuresOf(answer) };
  const { figures } = found.about;
  found.at = answer.gone ? null : { cluster: point.cluster, user: figureOf(figures, "tok_s_per_user"), gpu: figureOf(figures, "tok_s_per_gpu") };
  showPoint(priced(found.about, found.clusters, point), point, pin);
  draw(found);
}

function pin(name, answer) {
  state[name] = answer && { figures: answer.figures, shown: found.at, words: `${answer.layout} on ${answer.cluster}` };
  remember();
  reprice();
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
  wantPoint({ asked: unpriced(asked()), point });
}

function ask() {
  remember();
  const question = unpriced(asked()), key = JSON.stringify(question);
  if (key !== wanted) {
    wanted = key;
    wantPlot(question);
  } else if (found) {
    reprice();
  }
}

function remember() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    record(JSON.stringify(asked()), await toAddress());
    if (found && !document.body.classList.contains("busy")) { listed(); }
  }, REST_MS);
}

async function begin() {
  const start = await (await get("/api/start")).json();
  startState(start);
  await fromAddress(location.hash);
  for (const id of ["more", "costs"]) { byId(id).open = window.innerWidth > 900; }
  makeForm(start, ask);
  makePlot(choose);
  makeJobs(start.plans, remember);
  for (const [id, read] of [["up", (field) => field.value], ["log", (field) => Number(field.checked)]]) {
    byId(id).addEventListener("change", () => { state[id] = read(byId(id)); remember(); draw(found); });
  }
  for (const link of document.querySelectorAll(".skip")) {
    link.addEventListener("click", (event) => { event.preventDefault(); byId(link.dataset.to).focus(); });
  }
  byId("undo").addEventListener("click", () => history.back());
  byId("copy-command").addEventListener("click", () => copy(byId("command").textContent, byId("copy-command")));
  byId("report").addEventListener("click", () => report({ kind: "report", asked: asked() }, byId("report")));
  document.addEventListener("rackplan:pick", (event) => { if (event.target.closest("#plan")) { toggle(event.detail.id); } });
  window.addEventListener("hashchange", async () => {
    clearTimeout(timer);
    if (isHere() || !await fromAddress(location.hash)) { return; }
    arrive(JSON.stringify(asked()));
    showForm();
    ask();
  });
  arrive(JSON.stringify(asked()));
  showPast();
  ask();
  if (start.plans.length) { open(0); }
}

begin().catch(refused);
