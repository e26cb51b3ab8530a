"""Results as Python shows them: the document of each type, as HTML, text, frame, figure and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.report.doc import Code, Doc
from rackplan.report.page import fragment, page
from rackplan.report.text import text as text_of
from topology.base.errors import InputError
from topology.cluster import Cluster
from topology.draw import Overlay, cluster_svg, draw_cluster

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from placement.plan import Plan

DOCS: Mapping[str, str] = {
    "cost.experts.loads.ExpertLoads": "loads.loaded_doc",
    "cost.layouts.result.Sweep": "sweep.sweep_doc",
    "cost.principles.economics.Economics": "principles.economics_doc",
    "cost.principles.roofline.Rooflines": "principles.roofline_doc",
    "cost.queueing.result.Simulated": "simulate.simulate_doc",
    "cost.serving.result.Pools": "sweep.sweep_doc",
    "cost.serving.sizes.Sizes": "size.size_doc",
    "cost.serving.sizing.Size": "size.size_doc",
    "cost.validation.validation.Validation": "validate.validate_doc",
    "placement.analysis.comparison.Comparison": "compare.compare_doc",
    "placement.analysis.levers.Levers": "levers.levers_doc",
    "placement.migrate.replan.Replanned": "changes.replan_doc",
    "placement.online.replayed.Replayed": "replay.replay_doc",
    "placement.plan.Plan": "plan.plan_doc",
    "rackplan.studies.run.StudyResult": "study.study_doc",
    "topology.cluster.Cluster": "cluster.cluster_doc",
}
"""What tells each type of result: a function of a module of :mod:`rackplan.report`."""


def of(result: object) -> Doc | None:
    """Return the document of a result; None where there is none of its type."""
    for kind in type(result).__mro__:
        where = DOCS.get(f"{kind.__module__}.{kind.__qualname__}")
        if where is not None:
            module, _, function = where.partition(".")
            doc: Doc = getattr(import_module(f"rackplan.report.{module}"), function)(result)
            return doc
    return None


def _doc_of(result: object, form: str) -> Doc:
    doc = of(result)
    if doc is None:
        raise InputError(f"{type(result).__name__}: there is no {form} of it.")
    return doc


def html(result: object) -> str | None:
    """Return a result as a piece of HTML; None where there is none."""
    doc = of(result)
    return None if doc is None else fragment(doc)


def _drawn(result: object) -> tuple[Cluster, Overlay | None] | None:
    """Return the cluster of a result with what a plan adds to its drawing; None of others."""
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.report.pictures.overlay import drawn_plan

    shown = result.plan if isinstance(result, Replanned) else result
    if isinstance(shown, Plan):
        return drawn_plan(shown)
    return (shown, None) if isinstance(shown, Cluster) else None


def svg(result: object) -> str | None:
    """Return the drawing of a cluster, or of a plan's with the plan on it; None of others."""
    drawn = _drawn(result)
    return None if drawn is None else cluster_svg(*drawn)


def text(result: object) -> str:
    """Return a result as lines; empty where there is none."""
    doc = of(result)
    return "" if doc is None else text_of(doc)


def draw_on(result: Cluster | Plan, path: Path, level: str = "auto") -> None:
    """Draw a cluster, or a plan's with the plan on it, into a file.

    Raises
    ------
    InputError
        If it cannot be drawn or written.
    """
    drawn = _drawn(result)
    assert drawn is not None  # noqa: S101 - of each there is a drawing
    draw_cluster(drawn[0], path, level=level, overlay=drawn[1])


def frame(result: object) -> Any:
    """Return the rows of a result as a pandas ``DataFrame``.

    Raises
    ------
    InputError
        If pandas is not installed, or such a result has no rows.
    """
    rows = _doc_of(result, "frame").rows
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_frame() needs pandas: pip install pandas.") from None
    return pd.DataFrame(rows)


def figure(result: object) -> Figure:
    """Return the picture that the page of a result leads with, as a figure of Plotly.

    Raises
    ------
    InputError
        If there is none of such a result.
    """
    from rackplan.report.charts import leading

    drawn = leading(_doc_of(result, "chart"))
    if drawn is None:
        raise InputError(f"{type(result).__name__}: there is no chart of it.")
    return drawn.update_layout(paper_bgcolor="white", plot_bgcolor="white")


def page_of(result: object, command: str = "") -> str:
    """Return the self-contained page of a result; ``command`` made it, where it was not made from Python.

    Raises
    ------
    InputError
        If there is no document of such a result.
    """
    command = command or f"rackplan.write_report(<{type(result).__name__}>, 'report.html')"
    doc = _doc_of(result, "report")
    return page(replace(doc, details=[*doc.details, Code("", command, "How it was made")]))
