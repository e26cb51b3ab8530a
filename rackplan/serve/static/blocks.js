// Blocks of a document, as the server makes them: records, tables, notes, pictures, commands. Records stand side by side.
import { copyButton, drawing, element, picture, table } from "./page.js";

// an element for a block; nothing for a kind that the page leaves out
export function shown(block) {
  switch (block.kind) {
    case "record": return compared([{ name: "", figures: block.figures }], block.title);
    case "table": {
      const words = block.heads.flatMap((head, place) => (head.words ? [place] : []));
      const rows = block.rows.map((cells) => cells.map((cell) => cell.text));
      return table(block.heads.map((head) => head.label), rows, { caption: block.title, words });
    }
    case "picture": return block.scene ? drawing(block.svg) : picture(block);
    case "note": return element("p", { class: block.about === "warning" ? "error" : "hint", text: block.text });
    case "code": return command(block.text);
    default: return null;
  }
}

// a command to copy, after what runs it here
export const command = (text, ...before) => element("div", { class: "command" }, ...before, element("code", { text }), copyButton(text));

export const ofKind = ({ blocks }, kind) => blocks.filter((block) => block.kind === kind);

// the figures of the record at the root
export const figuresOf = (doc) => ofKind(doc, "record").find(({ key }) => !key)?.figures ?? [];
export const figureOf = (figures, key) => figures.find((figure) => figure.key === key)?.value ?? null;

function difference(from, to) {
  if (!(from?.value > 0) || !(to?.value > 0)) { return ""; }
  const change = to.value / from.value - 1;
  return Math.abs(change) < 5e-4 ? "same" : `${change > 0 ? "+" : ""}${(change * 100).toFixed(1)}%`;
}

// records side by side, the last two with what differs
export function compared(columns, caption = "") {
  const labels = new Map(columns.flatMap(({ figures }) => figures.map((figure) => [figure.key, figure.label])));
  const many = columns.length > 1;
  const head = ["", ...columns.map(({ name }) => name), ...(many ? [`${columns.at(-1).name} over ${columns.at(-2).name}`] : [])];
  const rows = [...labels].map(([key, label]) => {
    const found = columns.map(({ figures }) => figures.find((figure) => figure.key === key));
    return [label, ...found.map((figure) => figure?.text ?? "-"), ...(many ? [difference(found.at(-2), found.at(-1))] : [])];
  });
  return table(head, rows, { caption, label: caption || "Figures side by side" });
}
