// The fields: what they hold is the state; what is wrong with one stands beside it.
import { byId, element } from "./page.js";
import { readLength, state } from "./state.js";

const MOST_CLUSTERS = 5, MOST_TEXT = 262_144;
let start = null, changed = () => {};

export function makeForm(found, onChange) {
  start = found;
  changed = onChange;
  document.body.append(
    list("models", start.models.map(({ name, title }) => [name, title])),
    list("clusters", start.clusters.map((name) => [name, ""])));
  byId("add-cluster").addEventListener("click", () => {
    const left = start.clusters.find((name) => !state.clusters.some((one) => one.name === name));
    const usual = ["hgx-h100", "hgx-b200", "gb300-nvl72", "vr-nvl72"];
    state.clusters.push({ name: usual.find((name) => !state.clusters.some((one) => one.name === name)) || left });
    showForm();
    byId(`clusters.${state.clusters.length - 1}`).select();
    changed();
  });
  makeServing();
  document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    for (const file of event.dataTransfer.files) { take(file); }
  });
  byId("inputs").addEventListener("submit", (event) => event.preventDefault());
  showForm();
}

function list(id, entries) {
  return element("datalist", { id }, ...entries.map(([value, label]) => element("option", { value, label: label || null })));
}

// a dropped file is a cluster if it is YAML, else the config of a model
async function take(file, place = null) {
  const isCluster = place !== null ? place !== "model" : /\.ya?ml$/i.test(file.name);
  const field = isCluster ? `clusters.${Math.max(0, Math.min(place ?? state.clusters.length, MOST_CLUSTERS - 1))}` : "model";
  if (file.size > MOST_TEXT) { showErrors({ [field]: `${file.name}: more than ${MOST_TEXT.toLocaleString("en-US")} bytes.` }); return; }
  const one = { name: file.name, text: await file.text() };
  if (!isCluster) { state.model = one; }
  else if (place !== null) { state.clusters[place] = one; }
  else if (state.clusters.length < MOST_CLUSTERS) { state.clusters.push(one); }
  else { state.clusters[MOST_CLUSTERS - 1] = one; }
  showForm();
  changed();
}

function named(id, words, value, listed, kind, onName, remove) {
  const input = element("input", {
    type: "text", id, list: value.text ? null : listed, value: value.name, autocomplete: "off", spellcheck: "false",
    "aria-describedby": `${id}-error`, readOnly: Boolean(value.text),
  });
  input.addEventListener("change", () => { onName({ name: input.value.trim() }); changed(); });
  const file = element("input", { type: "file", id: `${id}-file`, class: "hidden-file", accept: kind, "aria-label": `${words}: a file of yours` });
  file.addEventListener("change", () => { if (file.files[0]) { take(file.files[0], id === "model" ? "model" : Number(id.split(".")[1])); } });
  const drop = element("button", { type: "button", class: "quiet", text: value.text ? "Back to the catalog" : "File ...", "aria-label": `${words}: ${value.text ? "back to the catalog" : "a file of yours"}` });
  drop.addEventListener("click", () => {
    if (!value.text) { file.click(); return; }
    onName({ name: id === "model" ? "deepseek-v3" : "gb200-nvl72" });
    showForm();
    changed();
  });
  const away = remove ? element("button", { type: "button", class: "quiet", text: "\u00d7", title: "Remove", "aria-label": `Remove ${value.name}` }) : null;
  away?.addEventListener("click", remove);
  return element("div", { class: "field" },
    element("label", { for: id, text: words }),
    element("div", { class: "row" }, input, drop, away, file),
    element("p", { class: "error", id: `${id}-error`, role: "alert" }));
}

export function showForm() {
  byId("model-field").replaceChildren(named("model", "Model", state.model, "models", ".json,application/json", (one) => { state.model = one; }));
  byId("cluster-fields").replaceChildren(...state.clusters.map((one, place) => {
    const words = state.clusters.length > 1 ? `Cluster ${place + 1}` : "Cluster";
    const remove = state.clusters.length > 1 ? () => { state.clusters.splice(place, 1); state.point = null; showForm(); changed(); } : null;
    return named(`clusters.${place}`, words, one, "clusters", ".yaml,.yml", (next) => { state.clusters[place] = next; }, remove);
  }));
  byId("add-cluster").hidden = state.clusters.length >= MOST_CLUSTERS;
  byId("size-field").hidden = state.clusters.length < 2;
  for (const show of shows) { show(); }
}

const shows = [];

function field(holder, id, words, input, hint) {
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-error`);
  byId(holder).append(element("div", { class: "field" },
    element("label", { for: id, text: words }), input,
    hint ? element("span", { class: "hint", text: hint }) : null,
    element("p", { class: "error", id: `${id}-error`, role: "alert" })));
  return input;
}

function number(holder, id, words, { hint, empty = false, least = 1 } = {}) {
  const input = field(holder, id, words, element("input", { type: "number", inputmode: "decimal", min: String(least), step: "any" }), hint);
  input.addEventListener("change", () => {
    const value = input.value.trim();
    state[id] = value === "" && empty ? null : Number(value);
    changed();
  });
  shows.push(() => { input.value = state[id] ?? ""; });
}

// tokens, which the server reads: 8192, or 8k
function length(id, words) {
  const input = field("serving-fields", id, words, element("input", { type: "text", inputmode: "decimal" }), "8k is 8,192");
  input.addEventListener("change", () => { state[id] = readLength(input.value); changed(); });
  shows.push(() => { input.value = state[id]; });
}

// a limit: the usual one, none, or a figure
function limit(id, words, usual) {
  const input = field("serving-fields", id, words, element("input", { type: "text", inputmode: "decimal", placeholder: usual }), "ms; empty: as usual; none: no limit");
  input.addEventListener("change", () => {
    const value = input.value.trim().toLowerCase();
    state[id] = value === "" ? null : value === "none" ? "none" : Number(value);
    changed();
  });
  shows.push(() => { input.value = state[id] ?? ""; });
}

function choice(id, words, options, read = (value) => value) {
  const input = field("serving-fields", id, words, element("select", {}, ...options.map(([value, text]) => element("option", { value, text }))));
  input.addEventListener("change", () => { state[id] = read(input.value); showForm(); changed(); });
  shows.push(() => { input.value = String(state[id] ?? ""); });
}

function makeServing() {
  const orNone = (value) => value || null;
  number("size-field", "gpus", "GPUs of each", { empty: true, hint: "empty: as many as the largest" });
  length("isl", "Tokens of a prompt");
  length("osl", "Tokens of an answer");
  choice("pools", "GPUs counted", [["false", "those that decode"], ["true", "those that prefill too"]], (value) => value === "true");
  limit("tpot_ms", "Time per token at most", "50");
  limit("ttft_ms", "First token within", "2000");
  choice("weights", "Weights", [["", "as in the checkpoint"], ...start.weights.map((one) => [one, one])], orNone);
  choice("kv_dtype", "KV cache", start.kv_dtypes.map((one) => [one, one]));
  choice("draft_tokens", "Tokens drafted a step", ["0", "1", "2", "3"].map((one) => [one, one]), Number);
  choice("price_basis", "Prices", [["", "rental (as usual)"], ...start.price_bases.filter((one) => one !== "rental").map((one) => [one, one])], orNone);
  const prices = field("serving-fields", "prices", "Your USD per GPU-hour", element("input", { type: "text", placeholder: "gb200=3.10" }));
  prices.addEventListener("change", () => { state.prices = prices.value.trim(); changed(); });
  shows.push(() => { prices.value = state.prices; });
  shows.push(() => { byId("ttft_ms").closest(".field").hidden = !state.pools; });
}

// shows what is wrong beside its field; notes are softer
export function showErrors(errors, notes = {}) {
  for (const old of document.querySelectorAll("#inputs .error")) { old.textContent = ""; old.classList.remove("note"); }
  for (const old of document.querySelectorAll("#inputs [aria-invalid]")) { old.removeAttribute("aria-invalid"); }
  for (const [name, text] of [...Object.entries(notes), ...Object.entries(errors)]) {
    const slot = byId(`${name}-error`) || byId("request-error");
    const soft = name in notes && !(name in errors);
    slot.textContent = slot.id === "request-error" && name !== "request" ? `${name}: ${text}` : text;
    slot.classList.toggle("note", soft);
    if (!soft) { byId(name)?.setAttribute("aria-invalid", "true"); }
    if (!soft && slot.closest("details")) { slot.closest("details").open = true; }
  }
}
