"""Price layouts by a sweep: expected throughput, fastest split, time to first token.

Layers are split again for the batch that a plan has: what leaves most room for sequences is seldom what is fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts import Sweep, sweep
from cost.layouts.candidates import Arrangement
from placement.arrays import Bools, Floats, Ints
from placement.layouts.fitting import Fitted, Fitting, fitted

LayoutKey = tuple[int, int, int, int]
"""What tells layouts apart here: tensor-parallel width, GPUs of the experts, stages, GPUs of a replica."""


def promised(
    deployment: Deployment, layouts: Sequence[Fitted], limit_s: float | None, redundant: int | None
) -> Floats:
    """Return the most tok/s/GPU that each layout can have, however its layers are split, float64 ``[layouts]``.

    By a sweep: experts balanced, the best batch. Infinite where no sweep prices it; 0 where no batch holds the limit.
    Parameters as of :func:`faster_splits`.
    """
    arranged = [None if fit.shape is None else fit.shape.what for fit in layouts]
    known = [what for what in arranged if what is not None]
    if not known or deployment.shared.hbm_differs:  # a sweep has equally many slots on GPUs of unlike HBM
        return np.full(len(layouts), np.inf)
    priced, held, within, of, number = _priced(deployment, known, limit_s, redundant)
    best: dict[tuple[int, int], float] = {}
    rates = np.where(within, priced.tok_s_per_gpu, 0.0)[held]
    for one, tp, rate in zip(of[held].tolist(), priced.tp[held].tolist(), rates.tolist(), strict=True):
        best[one, tp] = max(best.get((one, tp), 0.0), rate)
    pairs = zip(arranged, layouts, strict=True)
    return np.array(
        [np.inf if what is None else best.get((number[what], fit.layout.tp), np.inf) for what, fit in pairs]
    )


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
    priced, held, within, of, number = _priced(
        deployment, [what for _, _, what in staged], limit_s, redundant
    )
    more: list[Fitted] = []
    for fit, shape, what in staged:
        rows = np.flatnonzero(held & within & (of == number[what]) & (priced.tp == shape.tp))
        if len(rows):
            best = int(rows[np.argmax(priced.tok_s[rows])])
            split = priced.variants[int(priced.layout[best])].ranges
            if split != tuple(stage.layers for stage in fit.layout.replicas[0]):
                other = fitted(deployment, Fitting(shape, fit.slots, fit.batch), split)
                more += [] if other is None else [replace(other, fixed=fit.fixed)]
    return more


def _priced(
    deployment: Deployment, arranged: Sequence[Arrangement], limit_s: float | None, redundant: int | None
) -> tuple[Sweep, Bools, Bools, Ints, dict[Arrangement, int]]:
    """Price ``arranged``; of each row, whether a plan may have its batch and it holds the limit, and the arrangement.

    The arrangement as its number, which comes last.
    """
    number = {what: place for place, what in enumerate(dict.fromkeys(arranged))}
    workload = deployment.workload
    batch, each = workload.batch, workload.tokens_per_step if workload.decodes else 1.0
    priced = sweep(
        deployment,
        redundant=redundant,
        cut_experts=False,
        speeds=[] if limit_s is None or batch else [workload.tokens_per_step / (each * limit_s)],
        batches=[batch] if batch else [],
        arranged=list(number),
    )
    held = priced.batch == batch if batch else priced.batch >= 1
    within = priced.step_s <= each * (np.inf if limit_s is None else limit_s)
    of = np.array([variant.number for variant in priced.variants], dtype=np.int64)[priced.layout]
    return priced, held, within, of, number


def key_of(layout: Layout) -> LayoutKey:
    """Return the key of a layout."""
    gpus = max(sum(len(stage.gpus) for stage in stages) for stages in layout.replicas)
    return layout.tp, layout.ep, layout.stages, gpus


def keys_of(found: Sweep) -> list[LayoutKey]:
    """Return the same of each configuration of a sweep."""
    ep = found.ep if found.deployment.model.moe is not None else found.gpus // found.stages
    columns = (found.tp, ep, found.stages, found.gpus)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def first_tokens(
    deployment: Deployment, redundant: int | None, arranged: Sequence[Arrangement] | None = None
) -> dict[LayoutKey, float]:
    """Return by key the seconds in which one prompt alone is prefilled, experts balanced, on its fastest split.

    It waits for nothing, and its cache stays where it is. ``arranged``: what is looked at; None: all of a sweep.
    """
    there = replace(deployment, workload=deployment.workload.of_prompt)
    found = sweep(there, redundant=redundant, cut_experts=False, arranged=arranged)
    first: dict[LayoutKey, float] = {}
    for key, step_s in zip(keys_of(found), found.step_s.tolist(), strict=True):
        first[key] = min(step_s, first.get(key, np.inf))
    return first


def shortest_s(deployment: Deployment, redundant: int | None) -> float:
    """Return the shortest time per output token of any layout with as few sequences as there can be."""
    found = sweep(deployment, redundant=redundant, cut_experts=False)
    return float(np.min(found.step_s, initial=np.inf)) / deployment.workload.tokens_per_step
