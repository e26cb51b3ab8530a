// The search dialog of the theme has no name that a screen reader could say.
document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
// Tables that scroll sideways on a phone are reached by the keyboard too; the theme wraps them when the page is there.
addEventListener("load", () => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (table.scrollWidth > table.clientWidth) { table.tabIndex = 0; }
  }
});
