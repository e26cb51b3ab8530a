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
from placement.layouts.fitting import Fitted, Fitting, fitted, fitted_layouts
from placement.layouts.shapes import TP_WIDTHS

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
    known = [cut for cut in arranged if cut is not None]
    if not known or deployment.shared.hbm_differs:  # a sweep has equally many slots on GPUs of unlike HBM
        return np.full(len(layouts), np.inf)
    priced, held, within, of, number = _priced(
        deployment, known, limit_s, redundant, cut_experts=any(fit.layout.moe_tp > 1 for fit in layouts)
    )
    best: dict[tuple[object, ...], float] = {}
    rates = np.where(within, priced.tok_s_per_gpu, 0.0)
    columns = np.stack([of, priced.tp, priced.moe_tp, priced.dcp, priced.pcp])[:, held].T.tolist()
    for key, rate in zip(map(tuple, columns), rates[held].tolist(), strict=True):
        best[key] = max(best.get(key, 0.0), rate)
    return np.array(
        [
            np.inf if cut is None else best.get((number[cut], *fit.layout.widths.values()), np.inf)
            for cut, fit in zip(arranged, layouts, strict=True)
        ]
    )


def faster_splits(
    deployment: Deployment,
    layouts: Sequence[Fitted],
    limit_s: float | None,
    redundant: int | None,
    *,
    fewest: bool = False,
) -> list[Fitted]:
    """Return those of ``layouts`` that have a faster split of their layers, with that.

    Splits are those that a sweep prices (:func:`cost.layouts.partition.variants_of`), so that both have the same.

    Parameters
    ----------
    deployment:
        Its batch is the one to split for; without one, the largest that each split has within ``limit_s``, or with
        ``fewest`` a sequence for each attention group.
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
        deployment,
        [cut for _, _, cut in staged],
        limit_s,
        redundant,
        cut_experts=any(shape.moe_tp > 1 for _, shape, _ in staged),
    )
    faster: list[Fitted] = []
    for fit, shape, cut in staged:
        alike = of == number[cut]
        for name, width in shape.widths.items():
            alike &= getattr(priced, name) == width
        if fewest:
            alike &= np.rint(priced.batch * priced.tp) == 1
        rows = np.flatnonzero(held & within & alike)
        if len(rows):
            best = int(rows[np.argmax(priced.tok_s[rows])])
            split = priced.variants[int(priced.layout[best])].ranges
            if split != tuple(stage.layers for stage in fit.layout.replicas[0]):
                resplit = fitted(deployment, Fitting(shape, fit.slots, fit.batch), split)
                faster += [] if resplit is None else [replace(resplit, fixed=fit.fixed)]
    return faster


def plan_rows(swept: Sweep) -> Bools:
    """Rows that a plan may have: its widths, experts whole or each cut over all GPUs of a stage."""
    return np.asarray(np.isin(swept.tp, TP_WIDTHS) & ((swept.moe_tp == 1) | (swept.ep == 1)))


def fitted_row(swept: Sweep, row: int) -> Fitted | None:
    """Return the layout of a row at its batch, with the slots of its GPUs; None of one that no plan has."""
    if not plan_rows(swept)[row]:
        return None
    deployment = swept.deployment.with_batch(float(swept.batch[row]))
    arrangement = swept.variants[swept.layout[row]].arrangement
    widths = swept.widths_of(row)
    offered = fitted_layouts(deployment, None, "gpu", [arrangement], cut_experts=widths["moe_tp"] > 1)
    return next((fit for fit in offered if fit.layout.widths == widths), None)


def _priced(
    deployment: Deployment,
    arranged: Sequence[Arrangement],
    limit_s: float | None,
    redundant: int | None,
    *,
    cut_experts: bool,
) -> tuple[Sweep, Bools, Bools, Ints, dict[Arrangement, int]]:
    """Price ``arranged``; of each row, whether a plan may have its batch and it holds the limit, and the arrangement.

    The arrangement as its number, which comes last.
    """
    number = {cut: place for place, cut in enumerate(dict.fromkeys(arranged))}
    workload = deployment.workload
    batch, tokens = workload.batch, workload.tokens_per_step if workload.decodes else 1.0
    priced = sweep(
        deployment,
        redundant=redundant,
        cut_experts=cut_experts,
        speeds=[] if limit_s is None or batch else [workload.tokens_per_step / (tokens * limit_s)],
        batches=[batch] if batch else [],
        arranged=list(number),
    )
    held = priced.batch == batch if batch else np.ones(len(priced), dtype=np.bool_)
    within = priced.step_s <= tokens * (np.inf if limit_s is None else limit_s)
    of = np.array([variant.number for variant in priced.variants], dtype=np.int64)[priced.layout]
    return priced, held, within, of, number


def key_of(layout: Layout) -> LayoutKey:
    """Return the key of a layout."""
    gpus = max(sum(len(stage.gpus) for stage in stages) for stages in layout.replicas)
    return layout.tp, layout.ep, layout.stages, gpus


def keys_of(swept: Sweep) -> list[LayoutKey]:
    """Return the same of each configuration of a sweep."""
    ep = swept.ep if swept.deployment.model.moe is not None else swept.gpus // swept.stages
    columns = (swept.tp, ep, swept.stages, swept.gpus)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def first_tokens(
    deployment: Deployment, redundant: int | None, arranged: Sequence[Arrangement] | None = None
) -> dict[LayoutKey, float]:
    """Return by key the seconds in which one prompt alone is prefilled, experts balanced, on its fastest split.

    It waits for nothing, and its cache stays where it is. ``arranged``: what is looked at; None: all of a sweep.
    """
    prompts = replace(deployment, workload=deployment.workload.of_prompt)
    # GPUs that decode split no prompts
    swept = sweep(replace(prompts, pcp=1), redundant=redundant, arranged=arranged)
    first_s_of: dict[LayoutKey, float] = {}
    for key, step_s in zip(keys_of(swept), swept.step_s.tolist(), strict=True):
        first_s_of[key] = min(step_s, first_s_of.get(key, np.inf))
    return first_s_of
