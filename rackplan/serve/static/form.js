// The fields and sliders: what they hold is the state; what is wrong with one is written beside it.
import { button, byId, element, select } from "./page.js";
import { SLIDERS, state, typed } from "./state.js";

const MOST_CLUSTERS = 5, MOST_TEXT = 262_144, USUAL = ["hgx-h100", "hgx-b200", "gb300-nvl72", "vr-nvl72"];
const PLACES = { gpus: "size-field", price_basis: "basis-field", settings: "settings-field" };
const shows = [];
let start = null, changed = () => {};

const errorOf = (id) => element("p", { class: "error", id: `${id}-error`, role: "alert" });
const list = (id, entries) =>
  element("datalist", { id }, ...entries.map(([value, label]) => element("option", { value, label: label || null })));

export function makeForm(found, onChange) {
  start = found;
  changed = onChange;
  document.body.append(list("models", start.models.map(({ name, title }) => [name, title])), list("clusters", start.clusters.map((name) => [name, ""])));
  byId("add-cluster").addEventListener("click", () => {
    const name = [...USUAL, ...start.clusters].find((one) => !state.clusters.some((source) => source.name === one));
    state.clusters.push({ name });
    refresh();
    byId(`clusters.${state.clusters.length - 1}`).select();
  });
  for (const field of start.fields) { makeField(field); }
  for (const [name, words] of Object.entries(SLIDERS)) { makeSlider(name, words); }
  byId("sliders").append(element("datalist", { id: "slider-marks" }, ...["-1", "0", "1", "2"].map((value) => element("option", { value }))));
  const dropping = (on) => document.body.classList.toggle("dropping", on);
  document.addEventListener("dragover", (event) => { event.preventDefault(); dropping(true); });
  document.addEventListener("dragleave", () => dropping(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    dropping(false);
    for (const file of event.dataTransfer.files) {
      const cluster = Math.min(state.clusters.length, MOST_CLUSTERS - 1);
      take(file, /\.csv$/i.test(file.name) ? "runs" : /\.ya?ml$/i.test(file.name) ? cluster : "model");
    }
  });
  byId("inputs").addEventListener("submit", (event) => event.preventDefault());
  showForm();
}

function refresh() {
  showForm();
  changed();
}

// takes a dropped file as the model, as measured runs, or as a cluster by its place
async function take(file, place) {
  const id = typeof place === "string" ? place : `clusters.${place}`;
  if (file.size > MOST_TEXT) { showErrors({ [id]: `${file.name}: more than ${MOST_TEXT.toLocaleString("en-US")} bytes.` }); return; }
  const source = { name: file.name, text: await file.text() };
  if (typeof place === "string") { state[place] = source; } else { state.clusters[place] = source; }
  refresh();
}

// a field with a file beside it
function withFile(input, words, place, accept, isFile, drop, away) {
  const label = `${words}: ${isFile ? "remove the file" : "use a file"}`;
  const file = element("input", {
    type: "file", id: `${input.id}-file`, class: "hidden-file", accept, "aria-label": label,
    onchange: () => { if (file.files[0]) { take(file.files[0], place); } },
  });
  const other = button(isFile ? "Remove" : "File ...", () => {
    if (isFile) { drop(); refresh(); } else { file.click(); }
  }, { class: "quiet", "aria-label": label });
  return element("div", { class: "field" },
    element("label", { for: input.id, text: words }), element("div", { class: "row" }, input, other, away, file), errorOf(input.id));
}

// the field of a model or a cluster: a name of the catalog, or a file
function named(words, place, value, remove) {
  const isModel = place === "model", id = isModel ? place : `clusters.${place}`, isFile = Boolean(value.text);
  const set = (name) => { if (isModel) { state.model = { name }; } else { state.clusters[place] = { name }; } };
  const input = element("input", {
    type: "text", id, list: isFile ? null : isModel ? "models" : "clusters", value: value.name, autocomplete: "off", spellcheck: "false",
    "aria-describedby": `${id}-error`, readOnly: isFile, onchange: () => { set(input.value.trim()); changed(); },
  });
  const away = remove && button("\u00d7", remove, { class: "quiet", title: "Remove", "aria-label": `Remove ${value.name}` });
  const usual = (isModel ? start.defaults.model : start.defaults.clusters[0]).name;
  return withFile(input, words, place, isModel ? ".json,application/json" : ".yaml,.yml", isFile, () => set(usual), away);
}

// measured runs of the user's own: a CSV of points
function runsField() {
  const input = element("input", { type: "text", id: "runs", value: state.runs?.name ?? "", placeholder: "none", readOnly: true, "aria-describedby": "runs-error" });
  return withFile(input, "Your measured runs", "runs", ".csv,text/csv", Boolean(state.runs), () => { state.runs = null; });
}

export function showForm() {
  const many = state.clusters.length > 1;
  byId("model-field").replaceChildren(named("Model", "model", state.model));
  byId("cluster-fields").replaceChildren(...state.clusters.map((source, place) => {
    const remove = () => { state.clusters.splice(place, 1); state.point = null; refresh(); };
    return named(many ? `Cluster ${place + 1}` : "Cluster", place, source, many && remove);
  }));
  byId("runs-field").replaceChildren(runsField());
  byId("add-cluster").hidden = state.clusters.length >= MOST_CLUSTERS;
  for (const show of shows) { show(); }
  byId("size-field").hidden = !many;
  byId("ttft_ms").closest(".field").hidden = state.serving === "decode";
}

// a field as the server describes it: one of several choices, or a text that the server reads
function makeField({ name, title, hint, example, choices }) {
  const input = choices ? select({ id: name }, choices.map(([, text], place) => [place, text]))
    : element("input", { type: "text", id: name, placeholder: example, autocomplete: "off", spellcheck: "false" });
  input.setAttribute("aria-describedby", `${name}-error`);
  input.addEventListener("change", () => {
    state[name] = choices ? choices[Number(input.value)][0] : typed(input.value);
    refresh();
  });
  shows.push(() => { input.value = choices ? String(choices.findIndex(([value]) => value === (state[name] ?? null))) : state[name] ?? ""; });
  byId(PLACES[name] ?? "serving-fields").append(element("div", { class: "field" },
    element("label", { for: name, text: title }), input, hint && element("span", { class: "hint", text: hint }), errorOf(name)));
}

// a slider from half to four times the figure; in the middle of its way is what is sold
function makeSlider(name, words) {
  const id = `slider-${name}`, shown = element("output", { for: id });
  const show = () => {
    const factor = state.factors[name] ?? 1;
    range.setAttribute("aria-valuetext", `${factor} times`);
    shown.textContent = `x${factor.toFixed(2)}`;
  };
  const set = (factor) => {
    if (factor === 1) { delete state.factors[name]; } else { state.factors[name] = factor; }
    show();
    changed();
  };
  const range = element("input", {
    type: "range", id, min: "-1", max: "2", step: "0.05", list: "slider-marks", "aria-describedby": `factors.${name}-error`,
    oninput: () => set(Number((2 ** Number(range.value)).toPrecision(3))),
  });
  const one = button("x1", () => { range.value = "0"; set(1); }, { class: "quiet", "aria-label": `Reset ${words}` });
  byId("sliders").append(element("div", { class: "slider" },
    element("label", { for: id, text: words }), range, shown, one, errorOf(`factors.${name}`)));
  shows.push(() => { range.value = String(Math.log2(state.factors[name] ?? 1)); show(); });
}

// shows what is wrong beside its field; notes are softer. Prices and powers are the page's own to check: an answer that
// comes back leaves what is said of them
export function showErrors(errors, notes = {}) {
  for (const old of document.querySelectorAll("#inputs .error:not(#money-fields *)")) { old.textContent = ""; old.classList.remove("note"); }
  for (const old of document.querySelectorAll("#inputs [aria-invalid]:not(#money-fields *)")) { old.removeAttribute("aria-invalid"); }
  for (const [name, text] of Object.entries({ ...notes, ...errors })) {
    const slot = byId(`${name}-error`) || byId("request-error"), soft = !(name in errors);
    slot.textContent = slot.id === "request-error" && name !== "request" ? `${name}: ${text}` : text;
    slot.classList.toggle("note", soft);
    if (soft) { continue; }
    byId(name)?.setAttribute("aria-invalid", "true");
    if (slot.closest("details")) { slot.closest("details").open = true; }
  }
}
