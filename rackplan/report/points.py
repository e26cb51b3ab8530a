"""The layouts and batches that a cluster offers: the points of the throughput-against-speed chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement.search import fitted_layouts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cost.score import LayoutScorer
    from cost.setting import Setting

__all__ = ["ReportPoint", "frontier", "report_points"]

MOST_LAYOUTS = 12
"""Layouts followed over all powers of two: those that come nearest to the frontier at three batches."""
STEPS = 3
"""Batches between a power of two and the next, for the layouts that the frontier is made of."""


@dataclass(frozen=True)
class ReportPoint:
    """One layout at one batch, its experts perfectly balanced; output tokens, per GPU of the whole cluster."""

    layout: str
    batch: int
    step_s: float
    tok_s_per_user: float
    tok_s_per_gpu: float
    bound_by: str


def report_points(setting: Setting, redundant: int | None) -> list[ReportPoint]:
    """Return points of the layouts that fit: those near the frontier at powers of two, those on it more densely.

    The setting's own batch is not looked at.
    """
    moe = setting.model.moe is not None
    fits = fitted_layouts(setting.with_batch(0), redundant)
    known: list[dict[int, ReportPoint]] = [{} for _ in fits]

    def add(index: int, batches: Iterable[int]) -> None:
        scorer, points = fits[index].scorer, known[index]
        for batch in batches:
            if batch not in points:
                points[batch] = _point(scorer, fits[index].layout.short(moe=moe), batch)

    for index, fit in enumerate(fits):
        add(index, _three(fit.scorer.max_batch))
    for index in _nearest([list(points.values()) for points in known]):
        add(index, _doubling(fits[index].scorer.max_batch, 1))
    edge = set(frontier(point for points in known for point in points.values()))
    for index, points in enumerate(known):
        if edge & set(points.values()):
            add(index, _doubling(fits[index].scorer.max_batch, STEPS))
    return [point for points in known for _, point in sorted(points.items())]


def frontier(points: Iterable[ReportPoint]) -> list[ReportPoint]:
    """Return the points that no other beats in both speeds, from the slowest per user to the fastest."""
    best: list[ReportPoint] = []
    for point in sorted(points, key=lambda p: (-p.tok_s_per_user, -p.tok_s_per_gpu, p.layout)):
        if not best or point.tok_s_per_gpu > best[-1].tok_s_per_gpu:
            best.append(point)
    return best[::-1]


def _point(scorer: LayoutScorer, layout: str, batch: int) -> ReportPoint:
    score = scorer.at(batch)
    return ReportPoint(layout, batch, score.step_s, score.tok_s_per_user, score.tok_s_per_gpu, score.bound_by)


def _three(most: int) -> list[int]:
    """Return the smallest, a middle and the largest batch."""
    return sorted({1, 1 << (most.bit_length() // 2), most})


def _doubling(most: int, steps: int) -> list[int]:
    """Return whole batches up to ``most``, ``steps`` of them from a power of two to the next."""
    count = steps * most.bit_length()
    return sorted({batch for step in range(count) if (batch := round(2 ** (step / steps))) <= most})


def _nearest(found: Sequence[Sequence[ReportPoint]]) -> list[int]:
    """Return the indices of the layouts of which some point comes nearest to the frontier of all."""
    edge = frontier(point for points in found for point in points)

    def behind(point: ReportPoint) -> float:
        """The throughput at this speed, or better, over the point's own: 1 on the frontier."""
        rivals = (p.tok_s_per_gpu for p in edge if p.tok_s_per_user >= point.tok_s_per_user)
        return max(rivals) / point.tok_s_per_gpu

    loss = [min(map(behind, points)) for points in found]
    return sorted(sorted(range(len(found)), key=lambda index: (loss[index], index))[:MOST_LAYOUTS])
