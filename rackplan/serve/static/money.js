// Money and power, which the page counts itself: prices of the basis or the user's own, times the slider.
import { byId, element } from "./page.js";
import { basis, state } from "./state.js";

const KINDS = { prices: ["USD/h", "--price"], powers: ["W", "--power"] };
const gpusOf = (clusters) => [...new Map(clusters.flatMap((side) => side.bill.filter((part) => part.usd)).map((part) => [part.name, part])).values()];
const priceOf = (part) => {
  const usd = state.prices[part.name] ?? part.usd[basis()] ?? null;
  return usd === null ? null : usd * (state.factors.price ?? 1);
};
const sum = (parts, of) => (parts.some((part) => of(part) === null) ? null : parts.reduce((all, part) => all + part.count * of(part), 0));

// USD an hour and watts of a cluster, null where a GPU has no figure; a GPU with an own power has its network in it
export function billOf({ bill }) {
  const gpus = bill.filter((part) => part.usd), network = bill.filter((part) => !part.usd && part.power_w !== null);
  const count = (parts) => parts.reduce((all, part) => all + part.count, 0), apart = gpus.filter((part) => !part.all_in);
  const share = apart.length ? count(apart.filter((part) => !state.powers[part.name])) / count(apart) : 0;
  const watts = sum(gpus, (part) => state.powers[part.name] ?? part.power_w);
  return { usd_per_h: sum(gpus, priceOf), power_w: watts === null ? null : watts + share * sum(network, (part) => part.power_w) };
}

// dollars per million tokens, and tok/s per megawatt, of tok/s per GPU
export const usdOf = (gpu, side) => { const { usd_per_h: usd } = billOf(side); return usd === null ? null : (usd / 3600 * 1e6) / side.gpus / gpu; };
export const perMwOf = (gpu, side) => { const { power_w: watts } = billOf(side); return watts === null ? null : (1e6 * side.gpus * gpu) / watts; };

export const short = (value, digits = 3) => (value === null || value === undefined ? "-" : value.toLocaleString("en-US", { maximumSignificantDigits: digits }));
export const whole = (value) => Math.round(value).toLocaleString("en-US");
export const dollars = (value) => (value === null ? "-" : `$${value.toLocaleString("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 })}`);
export const rate = (value) => (value === null ? "-" : value >= 1e6 ? `${short(value / 1e6)}M` : short(value));

// the figures of a point that follow from its tok/s per GPU
export function moneyRows(side, gpu) {
  const usd = usdOf(gpu, side), perMw = perMwOf(gpu, side);
  return [{ key: "usd_per_million_tokens", label: "$ per million tokens", value: usd, text: dollars(usd) },
    { key: "tok_s_per_mw", label: "tok/s per MW", value: perMw, text: rate(perMw) }];
}

// what has no price or power, in words
export const lacks = (clusters) => gpusOf(clusters).flatMap((part) => [
  priceOf(part) === null && `${part.name} has no ${basis()} price; enter one`,
  part.power_w === null && !state.powers[part.name] && `${part.name} has no known all-in power; enter one`,
]).filter(Boolean);

// the options of a command that say the same
export function flags(clusters) {
  const quoted = (text) => (/^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);
  const figure = (value) => String(Number(value.toPrecision(6))), gpus = gpusOf(clusters);
  const moved = (state.factors.price ?? 1) !== 1;
  const prices = gpus.filter((part) => priceOf(part) !== null && (moved || state.prices[part.name]));
  return [
    state.price_basis && `--price-basis ${state.price_basis}`,
    ...prices.map((part) => `--price ${quoted(`${part.name}=${figure(priceOf(part))}`)}`),
    ...gpus.filter((part) => state.powers[part.name]).map((part) => `--power ${quoted(`${part.name}=${figure(state.powers[part.name])}`)}`),
  ].filter(Boolean).map((flag) => ` ${flag}`).join("");
}

// a price and a power for each kind of GPU; made anew where those change, so that none loses the focus
let made = "";
export function showMoney(clusters, changed) {
  const gpus = gpusOf(clusters), key = JSON.stringify([gpus.map((part) => [part.name, part.usd, part.power_w]), state.prices, state.powers, basis()]);
  if (key === made) { return; }
  made = key;
  byId("money-fields").replaceChildren(...gpus.flatMap((part) => Object.entries(KINDS).map(([kind, [unit, flag]]) => {
    const id = `${kind}-${part.name}`, known = (kind === "prices" ? part.usd[basis()] : part.power_w) ?? null;
    const wrong = element("p", { class: "error", id: `${id}-error`, role: "alert" });
    const input = element("input", {
      type: "text", id, inputmode: "decimal", autocomplete: "off", placeholder: known === null ? "unknown" : short(known, 4), "aria-describedby": wrong.id,
      value: String(state[kind][part.name] ?? ""), onchange: () => {
        const text = input.value.trim(), figure = Number(text), bad = text !== "" && !(figure > 0 && Number.isFinite(figure));
        wrong.textContent = bad ? `expected a number above 0 in ${unit}, like ${flag} ${part.name}=${kind === "prices" ? "3.10" : "1900"}.` : "";
        input.toggleAttribute("aria-invalid", bad);
        if (bad) { input.setAttribute("aria-invalid", "true"); return; }
        if (text === "") { delete state[kind][part.name]; } else { state[kind][part.name] = figure; }
        changed();
      },
    });
    return element("div", { class: "field" }, element("label", { for: id, text: `${part.name}, ${unit}` }), input, wrong);
  })));
}
