"""Price all layouts at all batches: stages first, then pipelines, then layouts, each as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.layouts.candidates import Arrangement, LayoutTable, Variant, batches_between, may_be_best
from cost.layouts.fitting import FittingLayouts
from cost.layouts.idle_gpus import look
from cost.layouts.lines import Details
from cost.layouts.result import Sweep
from cost.layouts.stages import Columns, Pricer, pairs
from cost.layouts.units import numbered
from cost.workload import CHUNK_TOKENS
from topology.base.errors import InputError

Index = NDArray[np.int64]


def sweep(
    deployment: Deployment,
    *,
    redundant: int | None = None,
    cut_experts: bool = True,
    imbalance: float | None = 1.0,
    chunk_tokens: float | None = CHUNK_TOKENS,
    speeds: Sequence[float] = (),
    batches: Sequence[int] = (),
    arranged: Sequence[Arrangement] | None = None,
) -> Sweep:
    """Price every parallel layout of a model on a cluster at every batch that fits.

    Parameters
    ----------
    deployment:
        Cluster, model and workload; the workload's batch plays no part.
    redundant:
        Extra expert copies per layer; None: the fewest that divide.
    cut_experts:
        Also price layouts that cut each expert into parts (which plans cannot have).
    imbalance:
        Busiest GPU's expert load over the mean, 1: experts balanced. None: the usual one of groups of
        :data:`cost.workload.IMBALANCE_FROM_EP` GPUs or more, and unequal use of experts everywhere.
    chunk_tokens:
        Prefill: prompt tokens that an attention group takes in one step, cached ones not counted, but at least one
        whole prompt; None: all that fit. A longer prompt takes several chunks, which are counted at what the prompt
        costs at once.
    speeds:
        Tokens per second of one sequence at which each layout is priced at its largest batch, besides the grid.
    batches:
        Whole sequences per GPU at which each layout that holds so many is priced, besides the grid.
    arranged:
        Groups of GPUs to price in place of all that the cluster allows.

    Notes
    -----
    Groups of GPUs inside a domain and of whole domains (:func:`cost.layouts.candidates.group_sizes`), every
    tensor-parallel width that stays in a domain and divides the heads, numbers of stages up to
    :data:`cost.layouts.candidates.MOST_STAGES`, as many replicas as there is room for, some GPUs left over where that
    is better; batches on a grid, and near the frontier every one (:mod:`cost.layouts.candidates`); at each batch the
    fastest split of the layers (:mod:`cost.layouts.partition`). A layout costs what :class:`cost.score.LayoutScorer`
    says for balanced experts. Where nothing fits the sweep is empty and says how much is missing.

    Raises
    ------
    InputError
        If no group of GPUs can hold the redundant experts, the imbalance is below 1, or a speed is not above 0.
    """
    for speed in speeds:
        if not (math.isfinite(speed) and speed > 0):
            raise InputError(f"`speeds` {speed:g}: a speed per user is above 0 tok/s.")
    if imbalance is not None and not 1 <= imbalance < math.inf:
        raise InputError(f"`imbalance` {imbalance:g}: the busiest GPU over the mean is 1 or more.")
    pricer = Pricer(deployment, redundant)
    layouts, found = _on_the_grid(
        pricer, arranged, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens
    )
    layout, batch, most = found["layout"], found["batch"], layouts.most
    able = may_be_best(1 / found["step_s"], found["tok_s"])
    more = batches_between(layout, batch, layouts.table.tp[layout], able)
    if len(more[0]):
        found = found.joined(layouts.price(*more))
    for step_s in dict.fromkeys(deployment.workload.tokens_per_step / speed for speed in speeds):
        exact = layouts.largest_within(found, step_s)
        found = found.joined(exact) if exact.rows else found
    chosen = np.unique(layout)
    for many in dict.fromkeys(batches):
        holds = np.setdiff1d(chosen[most[chosen] >= many], found["layout"][found["batch"] == many])
        if len(holds):
            found = found.joined(layouts.price(holds, np.full(len(holds), float(many))))
    found = found.take(_best_splits(layouts.table, layouts.variants, found))
    return _result(layouts, found)


def _on_the_grid(
    pricer: Pricer,
    arranged: Sequence[Arrangement] | None,
    *,
    cut_experts: bool,
    imbalance: float | None,
    chunk_tokens: float | None,
) -> tuple[FittingLayouts, Columns]:
    """Return the layouts, and those of ``arranged``, or of all worth pricing, at every batch of the grid.

    By layout and batch.
    """
    if arranged is None:
        seen = look(pricer, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens)
        layouts, found = seen.layouts, seen.found
        if layouts is not None and seen.alone:
            found = found.joined(layouts.price(*layouts.grid(seen.rows_of(seen.alone))))
    else:
        layouts = FittingLayouts.of(
            pricer, arranged, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens
        )
        if layouts is not None:
            found = layouts.price(*layouts.grid())
    if layouts is not None:
        return layouts, found
    cluster, model = pricer.deployment.cluster.name, pricer.deployment.model.name
    if pricer.redundant is None:
        raise InputError(
            f"{model} has no legal layout on {cluster}: no group of its GPUs divides the heads and holds every "
            "expert in equally many slots."
        )
    raise InputError(
        f"`redundant` {pricer.redundant}: no group of {cluster}'s GPUs can hold that many more copies without two "
        "copies of one expert on a GPU; give fewer."
    )


def _best_splits(table: LayoutTable, variants: Sequence[Variant], found: Columns) -> Index:
    """Rows by layout and batch, without those that another split of the layers beats on the same GPUs.

    It beats them where it is faster at the same batch, or no slower at a larger one: a split that holds more
    sequences takes fewer in less time, but need not be priced at their number.
    """
    layout, batch, step_s = found["layout"], found["batch"], found["step_s"]
    number: dict[int, int] = {}
    arrangement = np.array(
        [number.setdefault(id(v.arrangement), len(number)) for v in variants], dtype=np.int64
    )
    cut = numbered(pairs(arrangement[table.variant], pairs(table.tp, table.moe_tp)))[1][layout]
    sequences = np.rint(batch * table.tp[layout]).astype(np.int64)
    order = np.lexsort((np.arange(len(layout)), step_s, sequences, cut))
    fastest = order[np.flatnonzero(np.diff(pairs(cut, sequences)[order], prepend=-1))]
    kept = []
    for rows in np.split(fastest, np.flatnonzero(np.diff(cut[fastest])) + 1):
        later = np.minimum.accumulate(step_s[rows][::-1])[::-1]
        kept.append(rows[step_s[rows] <= later])
    found_rows = np.concatenate(kept)
    return np.asarray(found_rows[np.lexsort((batch[found_rows], layout[found_rows]))])


def _result(layouts: FittingLayouts, found: Columns) -> Sweep:
    deployment, table, layout = layouts.pricer.deployment, layouts.table, found["layout"]
    variant = table.variant[layout]
    what = [one.arrangement for one in layouts.variants]
    figures = [(one.group, one.gpus_used, len(one.replicas), one.stages) for one in what]
    group, used, replicas, stages = np.array(figures, dtype=np.int64)[variant].T
    tp, moe_tp = table.tp[layout], table.moe_tp[layout]
    return Sweep(
        deployment=deployment,
        layout=variant,
        tp=tp,
        attention_dp=group // tp,
        ep=group // moe_tp if deployment.model.moe is not None else np.ones_like(group),
        moe_tp=moe_tp,
        stages=stages,
        replicas=replicas,
        gpus=used // replicas,
        batch=found["batch"],
        max_batch=layouts.most[layout],
        step_s=found["step_s"],
        tok_s=found["tok_s"],
        parts_of=Details(layouts.pricer, table, layouts.pipelines, layout, found["batch"], layouts.imbalance),
        variants=tuple(layouts.variants),
        shortage_bytes=layouts.shortage_bytes,
        imbalance=layouts.imbalance,
    )
