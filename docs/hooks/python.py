"""The reference of the library: every public name from its docstring, on a page for each kind of object."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/python.md"
HEAD = """# Python

`import rackplan` is the whole public face: functions that do what the commands do, and what they take and return.
[From Python](../python.md) shows them at work, [Bring your own](../own.md) a GPU, a model, loads and a placement.

Figures have SI units, which the names say (`step_s` seconds, `hbm_bytes` bytes); keywords in milliseconds end in
`_ms`. A result prints as a line; `.summary()` is what the command prints, `.to_frame()` its rows, `.plot()` the chart
that its report leads with, `rackplan.write_report(result, path)` the report.
"""
PAGES = {
    "Functions that plan": "plan replan score what_if replay simulate",
    "Functions that compare and size": "sweep compare size study roofline economics",
    "Functions that make, read and write": (
        "make_cluster make_loads make_deployment read_plan export draw write_report validate"
    ),
    "Plans and scores": "Plan Score Assignment PlanOptions make_plan score_placement verify_plan plan_to_dict",
    "Clusters and prices": (
        "Cluster cluster_names resolve_cluster overrides draw_cluster compare_clusters PriceBook"
    ),
    "Models and loads": (
        "Model model_names resolve_model model_from_config ExpertLoads read_loads Workload Deployment"
    ),
    "Results": (
        "Replanned Levers Replayed Simulated Sweep Pools Comparison Size Sizes StudyResult Validation Exported "
        "Rooflines Economics find_levers"
    ),
    "Errors and progress": "RackplanError InputError InfeasibleError CancelledError Progress",
}
"""Public names by the title of their page."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages below theirs in the navigation."""
    below = [PAGE, *({title: page_of(title)} for title in PAGES)]
    for group in config.nav or ():
        for title, entries in group.items():
            if isinstance(entries, list) and PAGE in entries:
                group[title] = [{"Python": below} if entry == PAGE else entry for entry in entries]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from mkdocs.structure.files import File

    for page, content in pages().items():
        files.append(File.generated(config, page, content=content))
    return files


def pages() -> dict[str, str]:
    """Return the list of all names, and a page for each group of them, which mkdocstrings fills."""
    import rackplan

    found, lines = {}, [HEAD]
    for title, names in PAGES.items():
        page, objects = page_of(title), [f"# {title}", ""]
        lines += [f"## {title}", "", "| | |", "|---|---|"]
        for name in names.split():
            home = home_of(name)
            brief = (inspect.getdoc(getattr(rackplan, name)) or "").split("\n\n")[0]
            words = " ".join(brief.replace("|", "\\|").replace("``", "`").split())
            lines.append(f"| [`{name}`]({page.removeprefix('reference/')}#{home}) | {words} |")
            kind = (
                "separate_signature: false, show_signature_annotations: true"
                if name[0].isupper()
                else "separate_signature: true, show_signature_annotations: false"
            )
            objects += [f"::: {home}", f"    options: {{heading_level: 2, {kind}}}", ""]
        lines.append("")
        found[page] = "\n".join(objects)
    return {PAGE: "\n".join(lines), **found}


def page_of(title: str) -> str:
    """Return the page of a group of names."""
    return f"reference/python/{title.lower().replace(',', '').replace(' ', '-')}.md"


def home_of(name: str) -> str:
    """Return the full name of a public one, in the module where it is defined."""
    import rackplan

    return f"{getattr(rackplan, name).__module__}.{name}"
