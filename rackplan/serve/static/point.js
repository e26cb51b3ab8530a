// The chosen point in detail, and two that are pinned with their differences.
import { post } from "./api.js";
import { byId, copy, drawing, element, picture, table } from "./page.js";
import { asked, state } from "./state.js";

export async function pointOf(point, question = asked()) {
  return post("/api/point", { asked: question, point });
}

function difference(from, to) {
  if (!from || !to || !(from.value > 0) || !(to.value > 0)) { return ""; }
  const change = to.value / from.value - 1;
  return Math.abs(change) < 5e-4 ? "same" : `${change > 0 ? "+" : ""}${(change * 100).toFixed(1)}%`;
}

// figures side by side: the choice, and the pins with what differs
export function compared(columns) {
  const names = [...new Set(columns.flatMap(({ figures }) => figures.map((row) => row.what)))];
  const head = ["", ...columns.map(({ name }) => name)];
  if (columns.length > 1) { head.push(`${columns.at(-1).name} over ${columns.at(-2).name}`); }
  const rows = names.map((what) => {
    const found = columns.map(({ figures }) => figures.find((row) => row.what === what));
    const row = [what, ...found.map((one) => one?.said ?? "-")];
    if (columns.length > 1) { row.push(difference(found.at(-2), found.at(-1))); }
    return row;
  });
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Figures side by side" }, table(head, rows));
}

// the cluster of the point, asked for when nothing else is; kept while cluster and layout stay
const drawn = { key: "", held: null, timer: 0 };
const REST_MS = 500;

function whereItRuns(found, point) {
  const key = JSON.stringify([found.cluster, found.layout]);
  const holder = element("div", {});
  clearTimeout(drawn.timer);
  if (drawn.key === key && drawn.held) { holder.append(drawn.held); return holder; }
  const question = { asked: asked(), point };
  holder.append(element("p", { class: "hint", text: "Drawing the cluster ..." }));
  drawn.timer = setTimeout(async () => {
    try {
      const made = drawing((await post("/api/drawing", question)).svg);
      Object.assign(drawn, { key, held: made });
      holder.replaceChildren(made);
      window.rackplanPictures.topology(made);
    } catch (error) {
      holder.replaceChildren(element("p", { class: "error", text: error.message }));
    }
  }, REST_MS);
  return holder;
}

export function showPoint(found, { pin, place, point }) {
  const holder = byId("point");
  if (!found || found.gone) {
    holder.replaceChildren(element("p", { class: "hint", text: found?.gone ?? "Choose a point of the plot." }), pins(null, pin));
    return;
  }
  const columns = [];
  for (const [name, one] of [["A", state.a], ["B", state.b]]) { if (one) { columns.push({ name, figures: one.figures }); } }
  const here = { name: columns.length ? "chosen" : `${found.cluster}`, figures: found.figures };
  const same = [state.a, state.b].some((one) => one && JSON.stringify(one.figures) === JSON.stringify(found.figures));
  if (!same || !columns.length) { columns.push(here); }
  holder.replaceChildren(
    element("p", {}, element("b", { text: found.layout }), ` on ${found.cluster}, ${found.batch.toLocaleString("en-US")} sequences per GPU`,
      found.moved ? " (the nearest to the one that was chosen)" : ""),
    pins(found, pin),
    compared(columns),
    element("div", { class: "pictures" }, ...found.pictures.map(picture)),
    element("h3", { text: "Where it runs" }), whereItRuns(found, point),
    found.note ? element("p", { class: "hint", text: found.note }) : "",
    found.order ? orderRow(found, place) : "",
  );
}

function orderRow(found, place) {
  const go = element("button", { type: "button", text: found.experts ? "Place its experts" : "Plan it", onclick: () => place(found.order) });
  const line = element("code", { text: found.command });
  const copyIt = element("button", { type: "button", class: "quiet", text: "Copy", "aria-label": "Copy the command of this plan" });
  copyIt.addEventListener("click", () => copy(found.command, copyIt));
  return element("div", { class: "command" }, go, line, copyIt);
}

function pins(found, pin) {
  const row = element("div", { class: "row" });
  for (const name of ["a", "b"]) {
    const letter = name.toUpperCase(), pinned = state[name];
    if (found) { row.append(element("button", { type: "button", text: `Pin as ${letter}`, onclick: () => pin(name, found) })); }
    if (pinned) {
      row.append(element("span", { class: "pin" }, `${letter}: ${pinned.words} `,
        element("button", { type: "button", class: "quiet", text: "Remove", "aria-label": `Remove pin ${letter}`, onclick: () => pin(name, null) })));
    }
  }
  return row;
}
