"""Layers split for the batch that a plan has: what leaves most room for sequences is seldom what is fastest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cost.deployment import Deployment
from cost.layouts import Sweep, sweep
from placement.arrays import Ints
from placement.fitting import Fitted, split_otherwise


def faster_splits(
    deployment: Deployment, layouts: Sequence[Fitted], limit_s: float | None, redundant: int | None
) -> list[Fitted]:
    """Return those of ``layouts`` that have a faster split of their layers, with that.

    Splits are those that a sweep prices (:func:`cost.layouts.partition.variants_of`), so that both have the same.

    Parameters
    ----------
    deployment:
        Its batch is the one to split for; without one, the largest that each split has within ``limit_s``.
    limit_s:
        Longest time per output token (prefill: of a step); None for none.
    redundant:
        Extra expert copies per layer, as of :func:`cost.layouts.sweep`.
    """
    staged = [
        (fit, fit.shape, fit.shape.what)
        for fit in layouts
        if fit.layout.stages > 1 and fit.shape is not None and fit.shape.what is not None
    ]
    if not staged:
        return []
    workload = deployment.workload
    batch, each = workload.batch, workload.tokens_per_step if workload.decodes else 1.0
    priced = sweep(
        deployment,
        redundant=redundant,
        cut_experts=False,
        speeds=[] if limit_s is None or batch else [workload.tokens_per_step / (each * limit_s)],
        batches=[batch] if batch else [],
        arranged=list({id(what): what for _, _, what in staged}.values()),
    )
    able = priced.batch == batch if batch else priced.batch >= 1
    if limit_s is not None:
        able &= priced.step_s <= each * limit_s
    of = np.array([id(variant.arrangement) for variant in priced.variants])[priced.layout]
    more = []
    for fit, shape, what in staged:
        rows = np.flatnonzero(able & (of == id(what)) & (priced.tp == shape.tp))
        if len(rows):
            split = _fastest_of(priced, rows)
            if split != tuple(stage.layers for stage in fit.layout.replicas[0]):
                more.append(split_otherwise(deployment, fit, split))
    return [fit for fit in more if fit is not None]


def _fastest_of(priced: Sweep, rows: Ints) -> tuple[range, ...]:
    """Return the split of the row with most tokens per second."""
    best = int(rows[np.argmax(priced.tok_s[rows])])
    return priced.variants[int(priced.layout[best])].ranges
