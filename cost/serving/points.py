"""The layouts and batches that a cluster offers, as points of throughput against speed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, sweep
from cost.layouts.front import pareto
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving

MAX_LAYOUTS = 12
"""Maximum layouts with points at all powers of two, nearest to the frontier first."""


@dataclass(frozen=True)
class LayoutPoint:
    """One layout at one batch, its experts perfectly balanced; output tokens, per GPU of the whole cluster.

    ``ep``: GPUs that the experts of a layer are spread over, of the pool that decodes.
    """

    layout: str
    batch: float
    step_s: float
    tok_s_per_user: float
    tok_s_per_gpu: float
    bound_by: str
    ep: int


def layout_points(deployment: Deployment, redundant: int | None) -> list[LayoutPoint]:
    """Return points of the layouts that fit; the deployment's own batch is not looked at.

    All of them at three batches, those near the frontier at powers of two, those on it at every batch of the sweep.
    """
    swept = sweep(deployment, redundant=redundant, cut_experts=False, chunk_tokens=None)
    keys = np.stack([swept.layout, swept.tp, swept.dcp, swept.pcp])
    layout = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    shown = np.zeros(len(swept), dtype=bool)
    for key in range(int(layout.max(initial=-1)) + 1):
        rows = np.flatnonzero(layout == key)
        shown[rows[[0, len(rows) // 2, -1]] if len(rows) else rows] = True
    edge = swept.frontier()
    shown |= np.isin(layout, layout[edge])
    near = np.isin(layout, _nearest(swept, layout, edge))
    shown |= near & (np.log2(swept.batch) % 1 == 0)
    return sweep_points(swept.rows(np.flatnonzero(shown)))


def sweep_points(swept: Sweep) -> list[LayoutPoint]:
    """Return every configuration of a sweep."""
    return [
        LayoutPoint(
            swept.label(index),
            float(swept.batch[index]),
            float(swept.step_s[index]),
            float(swept.tok_s_per_user[index]),
            float(swept.tok_s_per_gpu[index]),
            swept.bound(index),
            int(swept.ep[index]),
        )
        for index in range(len(swept))
    ]


def serving_points(serving: Serving, rows: Sequence[RateMatch]) -> list[LayoutPoint]:
    """Return matches of whole requests: the workers of each, and the step of those that decode."""
    points = []
    for row in rows:
        sides = serving.sides(row)
        side, at = sides[-1][1], sides[-1][2]
        workers = (f"{count} x {swept.worker_label(index)}" for _, swept, index, count in sides)
        points.append(
            LayoutPoint(
                " + ".join(workers),
                float(side.batch[at]),
                float(side.step_s[at]),
                row.tok_s_per_user,
                row.output_tok_s_per_gpu,
                side.rows([at]).bound(0),
                int(side.ep[at]),
            )
        )
    return points


def frontier(points: Iterable[LayoutPoint]) -> list[LayoutPoint]:
    """Return the points that no other beats in both speeds, from the slowest per user to the fastest."""
    ordered = sorted(points, key=lambda point: point.layout)  # of equal points the first is kept
    edge = pareto([point.tok_s_per_user for point in ordered], [point.tok_s_per_gpu for point in ordered])
    return [ordered[index] for index in edge.tolist()]


def _nearest(swept: Sweep, layout: NDArray[np.int64], edge: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the layouts of which some point comes nearest to the frontier ``edge``."""
    # the most throughput at a point's speed or a higher one: that of the next frontier point
    rival = edge[np.searchsorted(swept.tok_s_per_user[edge], swept.tok_s_per_user)]
    behind = swept.tok_s_per_gpu[rival] / swept.tok_s_per_gpu
    loss = np.full(int(layout.max(initial=-1)) + 1, np.inf)
    np.minimum.at(loss, layout, behind)
    return np.argsort(loss, kind="stable")[:MAX_LAYOUTS]
