"""Every figure that a score rests on: of the machine, of the kernels, of the loads; and which is the weakest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost.dtypes import multiply_dtype
from topology.figures import UNPUBLISHED, Evidence, Figure, weakest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement.plan import Plan

__all__ = [
    "UsedFigure",
    "coefficients",
    "machine_figures",
    "term_evidence",
    "used_figures",
    "weakest_figures",
]

_WORK = {"attention": "attention", "experts": "experts", "dense": "gemm", "head": "gemm"}
_SENT = ("dispatch", "combine", "tp_all_reduce", "pipeline_hops")


@dataclass(frozen=True)
class UsedFigure:
    """A figure and what it is a figure of: ``of`` a GPU, a fabric, ``kernels`` or ``loads``."""

    of: str
    name: str
    figure: Figure


def coefficients(plan: Plan) -> list[UsedFigure]:
    """Return what kernels reach of the peaks, and their delays, as the expected step uses them."""
    return [UsedFigure("kernels", name, figure) for name, figure in plan.setting.kernels_reach().figures().items()]


def term_evidence(plan: Plan, term: str) -> Evidence | None:
    """Return the weakest kind among the coefficients of one part of the step; None where none is known."""
    figures = plan.setting.kernels_reach().figures()
    names: tuple[str, ...] = ()
    if term in _WORK:
        names = (_WORK[term], "hbm")
    elif term in _SENT:
        names = tuple(name for name in figures if name.startswith((term, "scale_")))
    kinds = [figures[name].kind for name in names if name in figures]
    return weakest(kinds) if kinds else None


def machine_figures(plan: Plan) -> list[UsedFigure]:
    """Return the figures of the GPUs and fabrics in use, each once."""
    cluster, model = plan.setting.cluster, plan.setting.model
    stages = [stage for replica in plan.layout.replicas for stage in replica]
    used = sorted({cluster.gpus[gpu].domain for stage in stages for gpu in stage.gpus})
    found: dict[tuple[str, str], UsedFigure] = {}

    def add(of: str, name: str, figure: Figure) -> None:
        found.setdefault((of, name), UsedFigure(of, name, figure))

    for index in used:
        domain = cluster.spec.domains[index]
        units = dict.fromkeys(
            f"{multiply_dtype(dtype, domain.gpu)[0]}_flop_per_s"
            for dtype in sorted({*model.precision.values(), "bf16"})
        )
        for name in (*units, "hbm_bytes_per_s", "hbm_bytes"):
            add(domain.gpu.name, name, domain.gpu.figures[name])
        add(domain.fabric.name, "link_bytes_per_s", domain.fabric.link_bytes_per_s)
        add(domain.fabric.name, "latency_s", domain.fabric.latency_s)
    out = cluster.spec.scale_out
    if out is not None and len(used) > 1:
        add(out.fabric.name, "link_bytes_per_s", out.fabric.link_bytes_per_s)
        add(out.fabric.name, "latency_s", out.fabric.latency_s)
    return list(found.values())


def used_figures(plan: Plan) -> list[UsedFigure]:
    """Return all of them; synthetic loads count as one without a value, assumed."""
    figures = [*machine_figures(plan), *coefficients(plan)]
    if plan.loads is not None and plan.loads.synthetic:
        assumed = Figure(UNPUBLISHED, "1", Evidence.ASSUMED, "synthetic: nobody measured them")
        figures.append(UsedFigure("loads", ", ".join(plan.loads.names), assumed))
    return figures


def weakest_figures(figures: Iterable[UsedFigure]) -> list[UsedFigure]:
    """Return those of the weakest kind among ``figures``."""
    given = list(figures)
    kind = weakest(used.figure.kind for used in given)
    return [used for used in given if used.figure.kind is kind]
