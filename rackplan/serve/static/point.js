// The chosen point in detail, and two that are pinned with their differences.
import { place } from "./jobs.js";
import { flags, moneyRows } from "./money.js";
import { button, byId, copyButton, drawing, element, error, picture, post, region, table } from "./page.js";
import { asked, state, unpriced } from "./state.js";

const REST_MS = 500;
const drawn = { key: "", held: null, timer: 0 };

function difference(from, to) {
  if (!(from?.value > 0) || !(to?.value > 0)) { return ""; }
  const change = to.value / from.value - 1;
  return Math.abs(change) < 5e-4 ? "same" : `${change > 0 ? "+" : ""}${(change * 100).toFixed(1)}%`;
}

// figures side by side, the last two with what differs
export function compared(columns) {
  const whats = [...new Set(columns.flatMap(({ figures }) => figures.map((row) => row.what)))];
  const many = columns.length > 1;
  const head = ["", ...columns.map(({ name }) => name), ...(many ? [`${columns.at(-1).name} over ${columns.at(-2).name}`] : [])];
  const rows = whats.map((what) => {
    const found = columns.map(({ figures }) => figures.find((row) => row.what === what));
    return [what, ...found.map((row) => row?.said ?? "-"), ...(many ? [difference(found.at(-2), found.at(-1))] : [])];
  });
  return region("Figures side by side", table(head, rows));
}

// the cluster of the point, asked for when nothing else is; kept while cluster and layout stay
function whereItRuns(found, point) {
  const key = JSON.stringify([found.cluster, found.layout]);
  clearTimeout(drawn.timer);
  if (drawn.key === key) { return element("div", {}, drawn.held); }
  const question = { asked: unpriced(asked()), point }, holder = element("div", {}, element("p", { class: "hint", text: "Drawing the cluster ..." }));
  drawn.timer = setTimeout(async () => {
    try {
      const held = drawing((await post("/api/drawing", question)).svg);
      Object.assign(drawn, { key, held });
      holder.replaceChildren(held);
      window.rackplanPictures.topology(held);
    } catch (failed) {
      holder.replaceChildren(error(failed.message));
    }
  }, REST_MS);
  return holder;
}

// the answer with money at the prices of now
export function priced(found, clusters, point) {
  if (!found || found.gone) { return found; }
  const gpu = found.figures.find((row) => row.what === "tok/s per GPU").value;
  return { ...found, figures: [...found.figures, ...moneyRows(clusters[point.cluster], gpu)], command: found.command && found.command + flags([clusters[point.cluster]]) };
}

export function showPoint(found, point, pin) {
  const holder = byId("point");
  if (!found || found.gone) {
    holder.replaceChildren(element("p", { class: "hint", text: found?.gone ?? "Select a point in the plot." }), pins(null, pin));
    return;
  }
  const columns = [["A", state.a], ["B", state.b]].filter(([, one]) => one).map(([name, { figures }]) => ({ name, figures }));
  const pinned = columns.some(({ figures }) => JSON.stringify(figures) === JSON.stringify(found.figures));
  if (!pinned) { columns.push({ name: columns.length ? "selected" : found.cluster, figures: found.figures }); }
  holder.replaceChildren(
    element("p", {}, element("b", { text: found.layout }), ` on ${found.cluster}, ${found.batch.toLocaleString("en-US")} sequences per GPU`,
      found.moved && " (nearest to the selected batch)"),
    pins(found, pin),
    element("div", { class: "beside" }, compared(columns), element("div", { class: "pictures" }, ...found.pictures.map(picture))),
    element("h3", { text: "Placement on the cluster" }), whereItRuns(found, point),
    found.note ? element("p", { class: "hint", text: found.note }) : "",
    found.order ? element("div", { class: "command" },
      button(found.experts ? "Place experts" : "Plan", () => place(found.order)),
      element("code", { text: found.command }), copyButton(found.command)) : "",
  );
}

function pins(found, pin) {
  const row = element("div", { class: "row" });
  for (const name of ["a", "b"]) {
    const letter = name.toUpperCase();
    if (found) { row.append(button(`Pin as ${letter}`, () => pin(name, found))); }
    if (state[name]) {
      row.append(element("span", { class: "pin" }, `${letter}: ${state[name].words} `,
        button("Remove", () => pin(name, null), { class: "quiet", "aria-label": `Remove pin ${letter}` })));
    }
  }
  return row;
}
