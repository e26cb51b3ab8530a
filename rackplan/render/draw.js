(function () {
  "use strict";
  if (typeof Plotly === "undefined") { return; }
  document.documentElement.classList.add("drawn");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const plots = [];

  // colours of text and rules for a light or a dark page; a printed page is light
  function paint(layout, isDark) {
    const ink = isDark ? "#e6edf3" : "#1b1f24", rule = isDark ? "#3a424c" : "#d0d7de";
    const changes = { "font.color": ink, "legend.bgcolor": "rgba(0,0,0,0)" };
    Object.keys(layout).filter(function (key) { return /^[xy]axis/.test(key); }).forEach(function (axis) {
      changes[axis + ".gridcolor"] = rule;
      changes[axis + ".linecolor"] = rule;
      changes[axis + ".zerolinecolor"] = rule;
    });
    (layout.shapes || []).forEach(function (shape, index) { changes["shapes[" + index + "].line.color"] = ink; });
    return changes;
  }

  function repaint(isDark) {
    plots.forEach(function (plot) { Plotly.relayout(plot, paint(plot.layout, isDark)); });
  }

  document.querySelectorAll("figure.chart").forEach(function (figure) {
    const wanted = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot");
    const options = {
      responsive: true, displaylogo: false, toImageButtonOptions: { format: "svg" },
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]
    };
    plots.push(plot);
    Plotly.newPlot(plot, wanted.data, wanted.layout, options);
    Plotly.relayout(plot, paint(wanted.layout, dark.matches));
  });
  dark.addEventListener("change", function (event) { repaint(event.matches); });
  window.addEventListener("beforeprint", function () { repaint(false); });
  window.addEventListener("afterprint", function () { repaint(dark.matches); });
})();
