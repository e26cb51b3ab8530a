// What the page asks and shows, kept in the address: a link shows the same again.

export const DEFAULTS = {
  model: { name: "deepseek-v3" },
  clusters: [{ name: "gb200-nvl72" }],
  gpus: null,
  isl: 4096,
  osl: 1024,
  pools: false,
  weights: null,
  kv_dtype: "bf16",
  draft_tokens: 0,
  tpot_ms: null,
  ttft_ms: null,
  price_basis: null,
  prices: "",
  factors: {},
  up: "gpu",
  point: null,
  a: null,
  b: null,
  loads: "lognormal:0.63",
  seconds: 10,
  lost: [],
};
const NUMBERS = ["gpus", "draft_tokens", "seconds"];
const LENGTHS = ["isl", "osl"];
const LIMITS = ["tpot_ms", "ttft_ms"];
const WORDS = ["weights", "kv_dtype", "price_basis", "prices", "up", "loads"];
const PACKED = ["point", "a", "b"];
const SLIDERS = ["hbm", "flop", "up", "out", "price"];

export const state = structuredClone(DEFAULTS);

// the request that the state stands for; prices are read from text, and thrown by field where they cannot be
export function asked(from = state) {
  const { model, clusters, gpus, isl, osl, pools, weights, kv_dtype, draft_tokens, tpot_ms, ttft_ms, price_basis } = from;
  const served = { gpus: clusters.length > 1 ? gpus : null, isl, osl, pools, weights, kv_dtype, draft_tokens };
  return {
    model, clusters, ...served, tpot_ms, ttft_ms: pools ? ttft_ms : null, price_basis,
    prices: readPrices(from.prices), factors: from.factors,
  };
}

// a number where it is one, else the text as it was typed: the server reads 8k
export function readLength(text) {
  const typed = text.trim();
  return typed !== "" && Number.isFinite(Number(typed)) ? Number(typed) : typed;
}

function readPrices(text) {
  const prices = {};
  for (const part of text.split(/[,;]/).map((one) => one.trim()).filter(Boolean)) {
    const [name, price, more] = part.split("=").map((one) => one.trim());
    if (!name || !price || more !== undefined || !Number.isFinite(Number(price))) {
      throw Object.assign(new Error(), { errors: { prices: `${part}: expected a GPU and USD per hour, like gb200=3.10.` } });
    }
    prices[name] = Number(price);
  }
  return prices;
}

function packBytes(bytes) {
  let text = "";
  for (const byte of bytes) { text += String.fromCharCode(byte); }
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

async function pack(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  return packBytes(await through(bytes, new CompressionStream("deflate-raw")));
}

async function unpack(text) {
  const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw"))));
}

async function named(one) { return one.text ? `file:${await pack(one)}` : one.name; }

async function unnamed(text) { return text.startsWith("file:") ? unpack(text.slice(5)) : { name: text }; }

export async function toAddress() {
  const found = new URLSearchParams();
  found.set("model", await named(state.model));
  for (const one of state.clusters) { found.append("cluster", await named(one)); }
  for (const key of [...NUMBERS, ...LENGTHS, ...LIMITS, ...WORDS]) {
    if (state[key] !== DEFAULTS[key]) { found.set(key, state[key]); }
  }
  if (state.pools) { found.set("pools", "1"); }
  for (const [name, factor] of Object.entries(state.factors)) { found.set(`x-${name}`, factor); }
  for (const key of PACKED) { if (state[key]) { found.set(key, await pack(state[key])); } }
  for (const one of state.lost) { found.append("lost", one); }
  return `#${found}`;
}

// reads the address into the state; what cannot be read stays as it was
export async function fromAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  if (![...given.keys()].length) { return false; }
  const fresh = structuredClone(DEFAULTS);
  const read = async (run) => { try { await run(); } catch { /* a broken link: the default stays */ } };
  if (given.has("model")) { await read(async () => { fresh.model = await unnamed(given.get("model")); }); }
  if (given.has("cluster")) {
    await read(async () => { fresh.clusters = await Promise.all(given.getAll("cluster").slice(0, 5).map(unnamed)); });
  }
  for (const key of NUMBERS) {
    if (given.has(key) && Number.isFinite(Number(given.get(key)))) { fresh[key] = Number(given.get(key)); }
  }
  for (const key of LENGTHS) { if (given.has(key)) { fresh[key] = readLength(given.get(key)); } }
  for (const key of LIMITS) {
    if (given.has(key)) { fresh[key] = given.get(key) === "none" ? "none" : Number(given.get(key)); }
  }
  for (const key of WORDS) { if (given.has(key)) { fresh[key] = given.get(key); } }
  fresh.pools = given.get("pools") === "1";
  for (const name of SLIDERS) {
    const factor = Number(given.get(`x-${name}`));
    if (factor) { fresh.factors[name] = factor; }
  }
  for (const key of PACKED) { if (given.has(key)) { await read(async () => { fresh[key] = await unpack(given.get(key)); }); } }
  fresh.lost = given.getAll("lost").slice(0, 64);
  Object.assign(state, fresh);
  return true;
}
