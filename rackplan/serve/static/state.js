// What the page asks and shows, kept in the address: a link shows the same again.

export const state = {};
export const SLIDERS = { hbm: "HBM rate", flop: "flop/s", up: "scale-up links", out: "scale-out links", price: "price" };
const PACKED = ["point", "a", "b", "runs"];
const SHOWN = { up: "gpu", log: 1, loads: "lognormal:0.63", seconds: 10 };
const BY_GPU = ["prices", "powers"];
let defaults = {}, fields = [], usualBasis = "";

export function startState(start) {
  fields = start.fields;
  usualBasis = start.basis;
  defaults = { ...start.defaults, ...SHOWN, point: null, a: null, b: null, runs: null, lost: [] };
  Object.assign(state, structuredClone({ ...defaults, ...start.asked }));
}

// the request that the state stands for; the server reads what was typed, and refuses what is no number
export function asked() {
  const found = { model: state.model, clusters: state.clusters, factors: state.factors, runs: state.runs, prices: state.prices, powers: state.powers };
  for (const { name } of fields) { found[name] = state[name]; }
  if (state.clusters.length < 2) { found.gpus = null; }
  if (state.serving === "decode") { found.ttft_ms = null; }
  return structuredClone(found);
}

// the question without prices and powers, of which the page counts money and power itself
export function unpriced(question) {
  const { price, ...factors } = question.factors;
  return { ...question, prices: {}, powers: {}, price_basis: null, factors };
}

export const basis = () => state.price_basis ?? usualBasis;

// nothing where a field is empty, a number where it is one, else the text as it was typed
export function typed(text) {
  const given = text.trim();
  return given === "" ? null : Number.isFinite(Number(given)) ? Number(given) : given;
}

// a value as the address has it
const written = (value) => String(typeof value === "boolean" ? Number(value) : value);

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

async function pack(value) {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(value)), new CompressionStream("deflate-raw"));
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function unpack(text) {
  const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
}

const named = async (source) => (source.text ? `file:${await pack(source)}` : source.name);
const unnamed = async (text) => (text.startsWith("file:") ? unpack(text.slice(5)) : { name: text });

export async function toAddress() {
  const found = new URLSearchParams({ model: await named(state.model) });
  for (const source of state.clusters) { found.append("cluster", await named(source)); }
  for (const name of [...fields.map((field) => field.name), ...Object.keys(SHOWN)]) {
    const value = state[name] ?? "";
    if (value !== (defaults[name] ?? "")) { found.set(name, written(value)); }
  }
  for (const name of BY_GPU) {
    const given = Object.entries(state[name]).map((pair) => pair.join("="));
    if (given.length) { found.set(name, given.join(";")); }
  }
  for (const [name, factor] of Object.entries(state.factors)) { found.set(`x-${name}`, factor); }
  for (const name of PACKED) { if (state[name]) { found.set(name, await pack(state[name])); } }
  for (const id of state.lost) { found.append("lost", id); }
  return `#${found}`;
}

// reads the address into the state; what cannot be read is as usual
export async function fromAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  if (!given.size) { return false; }
  const fresh = structuredClone(defaults);
  const read = async (run) => { try { await run(); } catch { /* a broken link */ } };
  if (given.has("model")) { await read(async () => { fresh.model = await unnamed(given.get("model")); }); }
  if (given.has("cluster")) {
    await read(async () => { fresh.clusters = await Promise.all(given.getAll("cluster").slice(0, 5).map(unnamed)); });
  }
  for (const { name, choices } of fields.filter((field) => given.has(field.name))) {
    const choice = choices?.find(([value]) => written(value) === given.get(name));
    if (choice || !choices) { fresh[name] = choice ? choice[0] : typed(given.get(name)); }
  }
  for (const name of Object.keys(SHOWN)) { if (given.has(name)) { fresh[name] = typed(given.get(name)); } }
  for (const name of BY_GPU) {
    const pairs = (given.get(name) ?? "").split(";").map((pair) => pair.split("=")).map(([gpu, figure]) => [gpu, Number(figure)]);
    fresh[name] = Object.fromEntries(pairs.filter(([gpu, figure]) => gpu && figure > 0 && Number.isFinite(figure)));
  }
  for (const name of Object.keys(SLIDERS)) {
    const factor = typed(given.get(`x-${name}`) ?? "");
    if (typeof factor === "number") { fresh.factors[name] = factor; }
  }
  for (const name of PACKED) { if (given.has(name)) { await read(async () => { fresh[name] = await unpack(given.get(name)); }); } }
  fresh.lost = given.getAll("lost").slice(0, 64);
  Object.assign(state, fresh);
  return true;
}
