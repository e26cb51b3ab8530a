"""The layouts and batches that a cluster offers: the points of the throughput-against-speed chart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, sweep
from cost.layouts.front import pareto
from cost.serving.serving import Serving
from rackplan.views.blocks import thinned

MOST_POINTS, MOST_SERVED = 1200, 60
"""Maximum points of a sweep shown besides its frontier, evenly spaced."""
MOST_LAYOUTS = 12
"""Maximum layouts shown at all powers of two, nearest to the frontier first."""


@dataclass(frozen=True)
class ReportPoint:
    """One layout at one batch, its experts perfectly balanced; output tokens, per GPU of the whole cluster."""

    COLUMNS: ClassVar = ("layout", "batch", "tok/s/user", "tok/s/GPU", "step ms", "bound by")

    layout: str
    batch: float
    step_s: float
    tok_s_per_user: float
    tok_s_per_gpu: float
    bound_by: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The point as a row of a table of those columns."""
        return (
            self.layout,
            f"{self.batch:,.4g}",
            f"{self.tok_s_per_user:,.1f}",
            f"{self.tok_s_per_gpu:,.0f}",
            f"{self.step_s * 1e3:,.2f}",
            self.bound_by,
        )


def report_points(deployment: Deployment, redundant: int | None) -> list[ReportPoint]:
    """Return points of the layouts that fit; the deployment's own batch is not looked at.

    All of them at three batches, those near the frontier at powers of two, those on it at every batch of the sweep.
    """
    found = sweep(deployment, redundant=redundant, cut_experts=False, chunk_tokens=None)
    keys = np.stack([found.layout, found.tp])
    layout = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    shown = np.zeros(len(found), dtype=bool)
    for key in range(int(layout.max(initial=-1)) + 1):
        rows = np.flatnonzero(layout == key)
        shown[rows[[0, len(rows) // 2, -1]] if len(rows) else rows] = True
    edge = found.frontier()
    shown |= np.isin(layout, layout[edge])
    near = np.isin(layout, _nearest(found, layout, edge))
    shown |= near & (np.log2(found.batch) % 1 == 0)
    drawn = found.rows(np.flatnonzero(shown))
    return [_point(drawn, index) for index in range(len(drawn))]


def sweep_points(found: Sweep) -> list[ReportPoint]:
    """Return the frontier of a sweep down to its fastest point, and some of its other configurations."""
    edge = found.frontier().tolist() if len(found) else []
    chosen = sorted({*edge, *thinned(range(len(found)), MOST_POINTS)})
    rows = found.rows(chosen)
    return [_point(rows, index) for index in range(len(chosen))]


def serving_points(serving: Serving) -> list[ReportPoint]:
    """Return the frontier of whole requests, a few of it: the workers of each, and the step of those that decode."""
    found = []
    for row in thinned(serving.frontier(), MOST_SERVED):
        sides = serving.sides(row)
        side, at = sides[-1][1], sides[-1][2]
        workers = (f"{count} x {one.worker_label(index)}" for _, one, index, count in sides)
        found.append(
            ReportPoint(
                " + ".join(workers),
                float(side.batch[at]),
                float(side.step_s[at]),
                row.tok_s_per_user,
                row.output_tok_s_per_gpu,
                side.rows([at]).bound(0),
            )
        )
    return found


def frontier(points: Iterable[ReportPoint]) -> list[ReportPoint]:
    """Return the points that no other beats in both speeds, from the slowest per user to the fastest."""
    given = sorted(points, key=lambda point: point.layout)  # of equal points the first is kept
    edge = pareto([point.tok_s_per_user for point in given], [point.tok_s_per_gpu for point in given])
    return [given[index] for index in edge.tolist()]


def _point(found: Sweep, index: int) -> ReportPoint:
    return ReportPoint(
        found.label(index),
        float(found.batch[index]),
        float(found.step_s[index]),
        float(found.tok_s_per_user[index]),
        float(found.tok_s_per_gpu[index]),
        found.bound(index),
    )


def _nearest(found: Sweep, layout: NDArray[np.int64], edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the layouts of which some point comes nearest to the frontier ``edge``."""
    # the most throughput at a point's speed or a higher one: that of the next frontier point
    rival = edge[np.searchsorted(found.tok_s_per_user[edge], found.tok_s_per_user)]
    behind = found.tok_s_per_gpu[rival] / found.tok_s_per_gpu
    loss = np.full(int(layout.max(initial=-1)) + 1, np.inf)
    np.minimum.at(loss, layout, behind)
    return np.argsort(loss, kind="stable")[:MOST_LAYOUTS]
