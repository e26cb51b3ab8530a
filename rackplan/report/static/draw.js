(function () {
  "use strict";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 600px)").matches;
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const plots = [];

  // the library is in the page, compressed; a browser too old to unpack it leaves the tables
  async function library() {
    const packed = document.getElementById("plotly");
    if (!packed || typeof DecompressionStream === "undefined") { return false; }
    const text = atob(packed.textContent), bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at += 1) { bytes[at] = text.charCodeAt(at); }
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.body.append(script);
    packed.remove();
    return typeof Plotly !== "undefined";
  }

  // colours of text and rules for a light or a dark page; a printed page is light
  function template(isDark) {
    const ink = isDark ? "#e6edf3" : "#1b1f24", rule = isDark ? "#3a424c" : "#d0d7de";
    const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule };
    const behind = isDark ? "rgba(18,22,27,0.7)" : "rgba(255,255,255,0.7)";  // labels may be on lines
    return { layout: { font: { color: ink }, legend: { bgcolor: "rgba(0,0,0,0)" }, xaxis: axis, yaxis: axis,
      shapedefaults: { line: { color: ink } }, annotationdefaults: { bgcolor: behind } } };
  }

  function repaint(isDark) {
    plots.forEach(function (plot) { Plotly.relayout(plot, { template: template(isDark) }); });
  }

  // paper is light, as wide as A4 between its margins, and each chart takes a third of a page at most
  const PAPER = { width: 686, height: 330 };
  function toPaper() {
    drawIn(document);
    plots.forEach(function (plot) {
      const height = Math.min(PAPER.height, plot.offsetHeight || PAPER.height);
      plot.dataset.height = plot.style.height;
      plot.style.height = height + "px";
      Plotly.relayout(plot, { template: template(false), autosize: false, width: PAPER.width, height: height });
    });
  }
  function toScreen() {
    plots.forEach(function (plot) {
      plot.style.height = plot.dataset.height;
      Plotly.relayout(plot, { template: template(dark.matches), autosize: true, width: null, height: null });
    });
  }

  // a phone has the legend beneath the chart, in two columns where names are short, in room of its own, and narrow margins
  function fit(layout, data, plot) {
    if (!narrow) { return layout; }
    const shown = data.filter(function (one) { return one.name && one.showlegend !== false; });
    const columns = shown.some(function (one) { return one.name.length > 12; }) ? 1 : 2;
    const height = parseInt(plot.style.height, 10);
    plot.style.height = height + (shown.length > 1 ? 18 * Math.ceil(shown.length / columns) : 0) + "px";
    const legend = Object.assign({}, layout.legend, {
      yref: "container", y: 0, yanchor: "bottom", maxheight: 0.9, font: { size: 11 },
      entrywidth: 0.9 / columns, entrywidthmode: "fraction"
    });
    const margin = Object.assign({}, layout.margin, { l: 48, r: 8, t: 16 });
    const font = Object.assign({}, layout.font, { size: 11 });
    return Object.assign({}, layout, { annotations: [], legend: legend, margin: margin, font: font });
  }

  function draw(figure) {
    const wanted = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot");
    const layout = fit(wanted.layout, wanted.data, plot);
    if (touch) { layout.dragmode = false; }  // a finger scrolls the page
    const options = {
      responsive: true, displaylogo: false, displayModeBar: narrow ? false : undefined,
      toImageButtonOptions: { format: "svg" }, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]
    };
    layout.template = template(dark.matches);
    plots.push(plot);
    Plotly.newPlot(plot, wanted.data, layout, options);
  }

  // a chart in a fold has no width until that is opened
  function drawIn(root) {
    root.querySelectorAll("figure.chart").forEach(function (figure) {
      const fold = figure.closest("details:not([open])");
      if (figure.dataset.drawn || fold) { return; }
      figure.dataset.drawn = "yes";
      draw(figure);
    });
  }

  // what scrolls in its box can be reached and scrolled with the keyboard
  function reach() {
    const boxes = Array.from(document.querySelectorAll(".wide, .drawing"), function (box) {
      return [box, box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1];
    });
    boxes.forEach(function ([box, scrolls]) {
      if (scrolls) {
        const caption = box.querySelector("caption, title");
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", (caption && caption.textContent.slice(0, 80)) || "scrolls sideways");
      } else {
        box.removeAttribute("tabindex");
        box.removeAttribute("role");
        box.removeAttribute("aria-label");
      }
    });
  }

  // a phone folds sections that paper has
  const shortened = [];
  function unfold() { shortened.forEach(function (one) { one.open = true; }); }
  function fold() { shortened.forEach(function (one) { one.open = false; }); }

  // a phone's page ends after a few screens: the sections that would come after that are folded
  const LONGEST = 4600, SHORT = 320;
  function shorten() {
    let used = document.querySelector("main > header").offsetHeight;
    document.querySelectorAll("section").forEach(function (section) {
      const fold = section.querySelector("details.section");
      const height = section.offsetHeight, ends = used + height;
      if (fold.open && ends > LONGEST && !(height < SHORT && ends < LONGEST + 2 * SHORT)) {
        fold.open = false;
        shortened.push(fold);
      }
      used += section.offsetHeight;
    });
  }

  // a link to a folded section opens it
  function follow() {
    const section = /^#s\d+$/.test(location.hash) && document.querySelector(location.hash);
    if (section) { section.querySelector("details.section").open = true; section.scrollIntoView(); }
  }

  async function start() {
    window.addEventListener("hashchange", follow);
    window.addEventListener("resize", reach);
    document.addEventListener("toggle", reach, true);
    window.addEventListener("beforeprint", unfold);
    window.addEventListener("afterprint", fold);
    if (typeof rackplanPictures !== "undefined") { rackplanPictures.start(document); }
    const plotly = await library();
    if (plotly) { document.documentElement.classList.add("drawn"); }
    if (narrow) { shorten(); }
    follow();
    if (plotly) {
      drawIn(document);
      document.addEventListener("toggle", function (event) { drawIn(event.target); }, true);
      dark.addEventListener("change", function (event) { repaint(event.matches); });
      window.addEventListener("beforeprint", toPaper);
      window.addEventListener("afterprint", toScreen);
    }
    reach();
    performance.mark("rackplan-charts");
  }
  start();
})();
