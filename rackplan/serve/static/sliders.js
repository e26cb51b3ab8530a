// Five sliders, from half to four times the figure; in the middle of their way lies what is sold.
import { byId, element } from "./page.js";
import { state } from "./state.js";

const SLIDERS = [
  ["hbm", "HBM rate"],
  ["flop", "flop/s"],
  ["up", "scale-up links"],
  ["out", "scale-out links"],
  ["price", "price"],
];

export function makeSliders(changed) {
  for (const [name, words] of SLIDERS) {
    const id = `slider-${name}`;
    const range = element("input", {
      type: "range", id, min: "-1", max: "2", step: "0.05", list: "slider-marks",
      "aria-describedby": `factors.${name}-error`,
    });
    const shown = element("output", { for: id, id: `${id}-shown` });
    const one = element("button", { type: "button", class: "quiet", text: "x1", "aria-label": `${words} as it is` });
    range.addEventListener("input", () => {
      const factor = Number((2 ** Number(range.value)).toPrecision(3));
      setFactor(name, factor);
      changed();
    });
    one.addEventListener("click", () => { setFactor(name, 1); showSliders(); changed(); });
    byId("sliders").append(element("div", { class: "slider" },
      element("label", { for: id, text: words }), range, shown, one,
      element("p", { class: "error", id: `factors.${name}-error`, role: "alert" })));
  }
  const marks = ["-1", "0", "1", "2"].map((value) => element("option", { value }));
  byId("sliders").append(element("datalist", { id: "slider-marks" }, ...marks));
  showSliders();
}

function setFactor(name, factor) {
  if (factor === 1) { delete state.factors[name]; } else { state.factors[name] = factor; }
  showOne(name);
}

function showOne(name) {
  const factor = state.factors[name] ?? 1;
  const range = byId(`slider-${name}`);
  range.setAttribute("aria-valuetext", `${factor} times`);
  byId(`slider-${name}-shown`).textContent = `x${factor.toFixed(2)}`;
}

export function showSliders() {
  for (const [name] of SLIDERS) {
    byId(`slider-${name}`).value = Math.log2(state.factors[name] ?? 1);
    showOne(name);
  }
}
