// The answer in figures: the headline, each cluster or way at the limit, and what the figures rest on.
import { billOf, dollars, lacks, perMwOf, rate, short, usdOf, whole } from "./money.js";
import { byId, element, table } from "./page.js";
import { state } from "./state.js";

const ahead = (one, other) => `${((one / other - 1) * 100).toFixed(0)}%`;

// the side that gives most at the limit, else the one that gives most at all, and its figures there
export function leading({ clusters }) {
  const able = clusters.filter((side) => !side.reason).map((side) => ({ side, at: side.best ?? side.frontier }));
  return able.sort((one, other) => Number(Boolean(other.side.best)) - Number(Boolean(one.side.best)) || other.at.gpu[0] - one.at.gpu[0])[0] ?? null;
}

export const headline = (found) => {
  const lead = leading(found);
  return lead ? `${whole(lead.at.gpu[0])} tok/s/GPU, ${dollars(usdOf(lead.at.gpu[0], lead.side))}/M` : "nothing fits";
};

export function showAnswer(found) {
  const lead = leading(found);
  byId("headline").replaceChildren(...(lead ? figures(found, lead) : [element("p", { class: "words", text: reasons(found) })]));
  showTable(found);
  showNotes(found);
}

const reasons = ({ clusters }) => clusters.filter((side) => side.reason).map((side) => `${side.name}: ${side.reason}`).join(" ");

function figures(found, { side, at }) {
  const gpu = at.gpu[0], band = side.band && `80%: ${short(gpu / side.band, 2)} to ${short(gpu * side.band, 2)}`;
  const { usd_per_h: usd, power_w: watts } = billOf(side), requests = found.osl && (gpu * side.gpus) / found.osl;
  const facts = [
    requests && ["requests/s", short(requests)], ["tok/s per user", short(at.user[0])],
    at.ttft[0] !== null && ["first token", `${short(at.ttft[0] / 1e3)} s`], ["per M tokens", dollars(usdOf(gpu, side))],
    ["tok/s per MW", rate(perMwOf(gpu, side))], ["cluster", `$${short(usd)}/h, ${watts === null ? "-" : short(watts / 1e3)} kW`],
  ].filter(Boolean);
  return [
    element("p", { class: "big" }, element("b", { text: whole(gpu) }), " tok/s per GPU ", band && element("span", { class: "band", title: side.factor, text: band })),
    element("dl", {}, ...facts.map(([name, text]) => element("div", {}, element("dt", { text: name }), element("dd", { text })))),
    element("p", { class: "words", text: words(found, side) }),
  ];
}

// which way or cluster is better, and by how much; and what the limit makes of it
function words(found, side) {
  const [first, second] = side.ways ?? [], limit = found.tpot_ms && `${short(1e3 / found.tpot_ms, 4)} tok/s per user`;
  const name = (text) => text[0].toUpperCase() + text.slice(1), said = [];
  const sides = found.clusters.filter((one) => one.best).sort((one, other) => other.best.gpu[0] - one.best.gpu[0]);
  if (sides.length > 1) { said.push(`${sides[0].name} leads ${sides[1].name} by ${ahead(sides[0].best.gpu[0], sides[1].best.gpu[0])} per GPU.`); }
  if (limit && !side.best) { said.push(`No layout reaches ${limit}; showing the highest throughput.`); }
  if (first && second) {
    const by = ahead(first.points.gpu[0], second.points.gpu[0]);
    said.push(`${name(first.name)} ${first.name === "one pool" ? "is" : "are"} better at this speed, by ${by} over ${second.name}.`);
    if (!["better", first.name].includes(state.serving)) { said.push(`Shown: ${state.serving}.`); }
    if (side.turns.includes(",")) { said.push(`Better: ${side.turns}.`); }
  } else if (first) { said.push(`${name(first.name)} ${first.name === "one pool" ? "is" : "are"} the only option that ${limit ? "meets the limits" : "fits"}.${side.refused ? ` Two pools: ${side.refused}` : ""}`); }
  return [...said, reasons(found)].join(" ");
}

function showTable(found) {
  const base = found.clusters.find((side) => side.best)?.best.gpu[0], many = found.clusters.length > 1;
  const row = (name, side, at, reason) => {
    if (!at) { return [name, "-", "-", "-", "-", "-", "-", "-", reason || (found.tpot_ms ? "unreachable" : "")]; }
    const gpu = at.gpu[0];
    return [name, whole(gpu), many ? `${(gpu / base).toFixed(2)}x` : "", short(at.user[0]), at.ttft[0] === null ? "-" : `${whole(at.ttft[0])} ms`,
      dollars(usdOf(gpu, side)), rate(perMwOf(gpu, side)), side.band ? `${side.band.toFixed(2)}x` : "-", side.layouts[at.layout[0]]];
  };
  const [only] = found.clusters;
  const rows = !many && only.ways?.length ? only.ways.map(({ name, points }) => row(name, only, points, ""))
    : found.clusters.map((side) => row(`${side.name}, ${side.gpus} GPUs`, side, side.best, side.reason));
  const keep = (cells) => cells.filter((_, place) => many || place !== 2);
  const columns = [many || !only.ways ? "cluster" : "serving", "tok/s/GPU", "ratio", "tok/s/user", "first token", "$/Mtok", "tok/s/MW", "80% within", "layout"];
  const caption = found.tpot_ms ? `Best at ${short(1e3 / found.tpot_ms, 4)} tok/s per user (${short(found.tpot_ms, 4)} ms per token${found.usual_tpot ? ", the default" : ""})`
    : "Highest throughput, without a limit on the time per token";
  byId("best").replaceChildren(table(keep(columns), rows.map(keep), { caption, words: [many ? 8 : 7] }));
}

function showNotes({ clusters, said }) {
  const of = ({ name, doubt, set, left_out, factor }) => [doubt, set && `${name}: ${set}`, ...left_out, factor && `${name}: ${factor}`];
  const notes = [...new Set([...said, ...lacks(clusters), ...clusters.flatMap(of)].filter(Boolean))];
  byId("notes").hidden = !notes.length;
  byId("notes-list").replaceChildren(...notes.map((note) => element("li", { text: note.replace(/\.?$/, ".") })));
}
