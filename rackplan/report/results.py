"""Results as Python shows them: the document of each type, as HTML, text, frame, figure and page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.report.doc import Code, Doc
from topology.base.errors import InputError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from cost.inputs.deployment import Deployment
    from placement.plan import Plan
    from rackplan.views.blocks import Block, Chart, Drawing, View
    from topology.cluster import Cluster
    from topology.draw import Overlay


def of(result: object) -> Doc | None:
    """Return the document of a result; None where there is none of its type."""
    for kind, make in _docs().items():
        if isinstance(result, kind):
            return make(result)
    return None


def _docs() -> Mapping[type, Callable[[Any], Doc]]:
    """Return what makes the document of each type of result."""
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.report.changes import replan_doc
    from rackplan.report.plan import plan_doc

    return {Plan: plan_doc, Replanned: replan_doc}


def html(result: object) -> str | None:
    """Return a result as a piece of HTML; None where there is none."""
    from rackplan.render.html import fragment

    doc = of(result)
    if doc is not None:
        from rackplan.report.page import fragment as fragment_of

        return fragment_of(doc)
    view = view_of(result)
    return None if view is None else fragment(view.blocks, svg(result) or "")


def svg(result: object) -> str | None:
    """Return the drawing of a cluster, or of a plan's with the plan on it; None of others."""
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from rackplan.report.pictures.overlay import plan_overlay
    from topology.cluster import Cluster

    shown = result.plan if isinstance(result, Replanned) else result
    if not isinstance(shown, Cluster | Plan):
        return None
    if isinstance(shown, Plan):
        return drawing(shown.deployment.cluster, plan_overlay(shown))
    return drawing(shown)


def drawing(cluster: Cluster, overlay: Overlay | None = None) -> str:
    """Return the SVG file of a cluster, with what each GPU does on it."""
    from topology.draw import cluster_svg

    return cluster_svg(cluster, overlay)


def text(result: object) -> str:
    """Return a result as lines; empty where there is none."""
    from rackplan.render.text import text_lines

    doc = of(result)
    if doc is not None:
        from rackplan.report.text import text as text_of

        return text_of(doc)
    view = view_of(result)
    return "" if view is None else "\n".join(text_lines(view.blocks))


def draw_on(result: Cluster | Plan, path: Path, level: str = "auto") -> None:
    """Draw a cluster, or a plan's with the plan on it, into a file.

    Raises
    ------
    InputError
        If it cannot be drawn or written.
    """
    from placement.plan import Plan
    from rackplan.report.pictures.overlay import plan_overlay
    from topology.draw import draw_cluster

    if isinstance(result, Plan):
        draw_cluster(result.deployment.cluster, path, level=level, overlay=plan_overlay(result))
    else:
        draw_cluster(result, path, level=level)


def frame(result: object) -> Any:
    """Return the rows of a result as a pandas ``DataFrame``.

    Raises
    ------
    InputError
        If pandas is not installed, or such a result has no rows.
    """
    from rackplan.views.frames import rows_of

    doc = of(result)
    found = doc.rows if doc is not None else rows_of(result)
    if found is None:
        raise InputError(f"{type(result).__name__} has no rows.")
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_frame() needs pandas: pip install pandas.") from None
    return pd.DataFrame(found)


def figure(result: object) -> Figure:
    """Return the picture that the page of a result leads with, as a figure of Plotly.

    Raises
    ------
    InputError
        If there is none of such a result.
    """
    from rackplan.report.plotting import picture_of
    from rackplan.views.blocks import Drawing

    doc = of(result)
    if doc is not None:
        from rackplan.report.charts import leading

        shown = leading(doc)
        if shown is None:
            raise InputError(f"{type(result).__name__}: there is no chart of it.")
        return shown.update_layout(paper_bgcolor="white", plot_bgcolor="white")
    for block in _pictures(_blocks_of(result, "")):
        found = picture_of(block.svg) if isinstance(block, Drawing) else block.figure
        height = found.layout.height if isinstance(block, Drawing) else block.height
        return found.update_layout(height=height, paper_bgcolor="white", plot_bgcolor="white")
    raise InputError(f"{type(result).__name__}: there is no chart of it.")


def _pictures(blocks: Iterable[Block]) -> Iterator[Chart | Drawing]:
    """Yield charts and drawings in order; what a page makes late is made when its turn comes."""
    from rackplan.views.blocks import Beside, Chart, Details, Drawing, Page

    for block in blocks:
        if isinstance(block, Chart | Drawing):
            yield block
        elif isinstance(block, Beside):
            yield from block.charts
        elif isinstance(block, Page | Details):
            yield from _pictures(block.blocks)


def view_of(result: object) -> View | None:
    """Return what a command says of such a result; None where no command does."""
    for kind, view in _views().items():
        if isinstance(result, kind):
            return view(result)
    return None


def _views() -> Mapping[type, Callable[[Any], View]]:
    from cost.layouts import Sweep
    from cost.queueing.result import Simulated
    from cost.serving.result import Pools
    from cost.serving.sizes import Sizes
    from cost.serving.sizing import Size
    from cost.validation.validation import Validation
    from placement.analysis.comparison import Comparison
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
    from placement.online.replayed import Replayed
    from rackplan.studies.result import StudyResult
    from rackplan.views.compare import compare_view
    from rackplan.views.fleet import fleet_view
    from rackplan.views.levers import levers_view
    from rackplan.views.replay import replay_view
    from rackplan.views.simulate import simulate_view
    from rackplan.views.size import size_view
    from rackplan.views.study import study_view
    from rackplan.views.sweep import sweep_view
    from rackplan.views.validate import validate_view

    return {
        Comparison: compare_view,
        Sweep: sweep_view,
        Replayed: replay_view,
        Pools: sweep_view,
        Size: size_view,
        Sizes: size_view,
        Simulated: simulate_view,
        Levers: levers_view,
        Validation: lambda one: validate_view([one]),
        StudyResult: lambda found: study_view(found, {}),
        Fleet: lambda fleet: fleet_view(fleet, {}),
    }


def page_of(result: object, command: str = "") -> str:
    """Return the self-contained page of a result; of one that has none of its own, the page of its view.

    ``command`` made it; empty: it was made from Python.

    Raises
    ------
    InputError
        If there is no view of such a result.
    """
    from rackplan.render.html import page

    command = command or f"rackplan.write_report(<{type(result).__name__}>, 'report.html')"

    doc = of(result)
    if doc is not None:
        from rackplan.report.page import page as page_face

        return page_face(replace(doc, details=[*doc.details, Code("", command, "How it was made")]))
    blocks = _blocks_of(result, command)
    if not blocks:
        raise InputError(f"{type(result).__name__}: no report is available for this type.")
    return page(blocks)


def _blocks_of(result: object, command: str) -> Sequence[Block]:
    """Return the blocks of a result's own page, else those of its view; none without a view."""
    for kind, make in _pages().items():
        if isinstance(result, kind):
            return make(result, command)
    view = view_of(result)
    return [] if view is None else view.blocks


def _pages() -> Mapping[type, Callable[[Any, str], Sequence[Block]]]:
    """Return what makes the page of each kind of result, of the result and the command that makes it again."""
    from cost.experts.loads import ExpertLoads
    from cost.layouts import Sweep
    from cost.queueing.result import Simulated
    from cost.serving.result import Pools, sweeps_of
    from placement.analysis.comparison import Comparison
    from placement.fleet.fleet import Fleet
    from placement.online.replayed import Replayed
    from rackplan.studies.result import StudyResult
    from rackplan.views.blocks import Drawing, Heading
    from rackplan.views.compare import compare_blocks
    from rackplan.views.fleet import fleet_blocks, fleet_overlay
    from rackplan.views.loads import skew_blocks
    from rackplan.views.replay import replay_blocks
    from rackplan.views.simulate import simulate_blocks
    from rackplan.views.study import study_blocks
    from rackplan.views.sweep import sweep_blocks
    from topology.cluster import Cluster

    def of_sweep(found: Sweep | Pools, command: str) -> Sequence[Block]:
        drawings = _drawn(one.deployment for one in sweeps_of(found))
        return sweep_blocks(found, command=command, drawings=drawings)

    return {
        Comparison: lambda one, command: compare_blocks(
            one, command=command, drawings=_drawn(one.deployments)
        ),
        Sweep: of_sweep,
        Pools: of_sweep,
        Fleet: lambda fleet, command: fleet_blocks(
            fleet, command=command, drawing=drawing(fleet.cluster, fleet_overlay(fleet))
        ),
        Replayed: replay_blocks,
        Simulated: simulate_blocks,
        StudyResult: study_blocks,
        Cluster: lambda one, _: [Heading(one.brief()), Drawing(drawing(one))],
        ExpertLoads: lambda one, _: skew_blocks(one),
    }


def _drawn(deployments: Iterable[Deployment]) -> dict[str, str]:
    """Return the SVG file of each cluster by its name."""
    return {one.cluster.name: drawing(one.cluster) for one in deployments}
