"""The reference of the library: every public name, from its docstring (mkdocstrings), in the order of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/python.md"
HEAD = """# Python

`import rackplan` is the whole public face: functions that do what the commands do, and what they take and return.
[From Python](../python.md) shows them at work; here is every name.

Figures have SI units, which the names say (`step_s` seconds, `hbm_bytes` bytes); keywords in milliseconds end in
`_ms`.
What cannot be used is an `InputError`, what cannot be done an `InfeasibleError`, each with a line for people.
"""
SECTIONS = {
    "One line each": (
        "plan score replan what_if replay sweep compare fleet size simulate study draw export write_report validate "
        "make_cluster make_deployment make_loads"
    ),
    "Keywords": (
        "rackplan.requests.PlanRequest rackplan.requests.ReplanRequest rackplan.requests.SweepRequest "
        "rackplan.requests.SizeRequest rackplan.requests.CompareRequest rackplan.requests.FleetRequest "
        "rackplan.requests.ReplayRequest rackplan.requests.SimulateRequest"
    ),
    "Results": (
        "Plan Score Comparison cost.layouts.result.Sweep rackplan.views.pools.Pools cost.serving.sizing.Size "
        "rackplan.views.simulate.Simulated rackplan.studies.result.StudyResult placement.fleet.fleet.Fleet "
        "placement.migrate.replan.Replanned rackplan.views.replay.Replayed placement.engines.export.Exported"
    ),
    "Options": (
        "PlanOptions placement.migrate.replan.ReplanOptions placement.fleet.options.FleetOptions "
        "PriceBook Workload"
    ),
    "Models, clusters, loads": (
        "Model model_names model_from_config resolve_model Cluster cluster_names resolve_cluster overrides "
        "ExpertLoads read_loads Deployment Assignment"
    ),
    "Step by step": (
        "make_plan read_plan plan_to_dict score_placement verify_plan compare_clusters find_levers draw_cluster"
    ),
    "Errors and progress": "RackplanError InputError InfeasibleError CancelledError Progress",
}
"""Public names of ``rackplan``, and what else its functions take and return by its full name."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=python_page()))
    return files


def python_page() -> str:
    """Return a section for each group of names, which mkdocstrings fills."""
    import rackplan

    sections = {title: names.split() for title, names in SECTIONS.items()}
    known = {name for names in sections.values() for name in names}
    others = [name for name in rackplan.__all__ if name not in known and not name.startswith("__")]
    lines = [HEAD]
    for title, names in {**sections, "Others": others}.items():
        lines += [f"## {title}", ""] if names else []
        for name in names:
            apart = "false" if name.split(".")[-1][0].isupper() else "true"
            lines += [
                f"::: {home_of(name)}",
                f"    options: {{heading_level: 3, separate_signature: {apart}}}",
                "",
            ]
    return "\n".join(lines)


def home_of(name: str) -> str:
    """Return the full name of a public one, in the module where it is defined."""
    import rackplan

    return name if "." in name else f"{getattr(rackplan, name).__module__}.{name}"
