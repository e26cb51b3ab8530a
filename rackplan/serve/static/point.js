// The chosen point in detail, and two that are pinned with their differences.
import { command, compared, figureOf, ofKind, shown } from "./blocks.js";
import { place } from "./jobs.js";
import { flags, moneyRows } from "./money.js";
import { button, byId, drawing, element, error, post } from "./page.js";
import { asked, state, unpriced } from "./state.js";

const REST_MS = 500;
const drawn = { key: "", held: null, timer: 0 };

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
  const gpu = figureOf(found.figures, "tok_s_per_gpu");
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
    element("div", { class: "beside" }, compared(columns), element("div", { class: "pictures" }, ...ofKind(found, "picture").map(shown))),
    element("h3", { text: "Placement on the cluster" }), whereItRuns(found, point),
    ...ofKind(found, "note").map(shown),
    found.order ? command(found.command, button(found.experts ? "Place experts" : "Plan", () => place(found.order))) : "",
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
