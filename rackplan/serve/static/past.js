// What was asked: each question is an entry of the browser's history, and the last ten stay in a list.
import { byId, element } from "./page.js";

const KEY = "rackplan-asked", MOST = 10;
let entry = { n: 0, question: null, address: "" };

const read = () => { try { return JSON.parse(localStorage.getItem(KEY)) ?? []; } catch { return []; } };

// begins with the page's own address, and with each that the browser goes back or forward to
export function arrive(question) {
  const n = history.state?.n ?? (entry.question === null ? 0 : entry.n + 1);
  entry = { n, question, address: location.hash };
  history.replaceState({ n }, "", location.hash || null);
  byId("undo").disabled = n === 0;
}

// writes the address: of another question as an entry of its own
export function record(question, address) {
  const other = question !== entry.question, n = entry.n + Number(other);
  entry = { n, question, address };
  history[other ? "pushState" : "replaceState"]({ n }, "", address);
  byId("undo").disabled = n === 0;
}

export const isHere = () => location.hash === entry.address;

// puts an answer on the list, by its question
export function keep(question, said, title, command) {
  if (question !== entry.question || !entry.address) { return; }
  const kept = [{ address: entry.address, said, title, command }, ...read().filter((one) => one.address !== entry.address)].slice(0, MOST);
  try { localStorage.setItem(KEY, JSON.stringify(kept)); } catch { /* a browser that keeps nothing, or a large file */ }
  showPast();
}

export function showPast() {
  const go = ({ address }) => { byId("past").open = false; location.hash = address; };
  byId("past-list").replaceChildren(...read().map((one) => element("li", {},
    element("button", { type: "button", title: one.command, onclick: () => go(one) }, element("b", { text: one.said }), element("span", { text: one.title }),
      element("small", { text: one.command.replace(/^rackplan /, "") })))));
  byId("past").hidden = !read().length;
}
