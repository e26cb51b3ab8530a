"""Price all layouts at all batches: stages first, then pipelines, then layouts, each as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.workload import CHUNK_TOKENS
from cost.layouts.arrays import Index, numbered, pairs
from cost.layouts.batches import may_be_best
from cost.layouts.candidates import Arrangement
from cost.layouts.fitting import FittingLayouts, Priced
from cost.layouts.idle_gpus import chosen
from cost.layouts.parts import PartsOf
from cost.layouts.result import Sweep
from cost.layouts.stages import Pricer
from topology.base.errors import InputError


def sweep(
    deployment: Deployment,
    *,
    redundant: int | None = None,
    cut_experts: bool = True,
    imbalance: float | None = 1.0,
    chunk_tokens: float | None = CHUNK_TOKENS,
    speeds: Sequence[float] = (),
    batches: Sequence[float] = (),
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
        :data:`cost.inputs.workload.IMBALANCE_FROM_EP` GPUs or more, and unequal use of experts everywhere.
    chunk_tokens:
        Prefill: prompt tokens that an attention group takes in one step, cached ones not counted, but at least one
        whole prompt; None: all that fit. A longer prompt takes several chunks, which are counted at what the prompt
        costs at once.
    speeds:
        Tokens per second of one sequence at which each layout is priced at its largest batch, besides the grid.
    batches:
        Sequences per GPU at which each layout that holds so many, whole ones of a group, is priced besides the grid.
    arranged:
        Groups of GPUs to price in place of all that the cluster allows.

    Notes
    -----
    Groups of GPUs inside a domain and of whole domains (:func:`cost.layouts.candidates.candidates`), every
    tensor-parallel width that stays in a domain and divides the heads, numbers of stages up to
    :data:`cost.layouts.candidates.MAX_STAGES`, as many replicas as there is room for, some GPUs left over where that
    is better; batches on a grid, and near the frontier every one (:mod:`cost.layouts.batches`); at each batch the
    fastest split of the layers (:mod:`cost.layouts.partition`). A layout costs what
    :class:`cost.step.score.LayoutScorer` says for balanced experts. Where nothing fits the sweep is empty
    and says how much is missing.

    Raises
    ------
    InputError
        If no group of GPUs can hold the redundant experts, the imbalance is below 1, or a speed is not above 0.
    """
    for speed in speeds:
        if not (math.isfinite(speed) and speed > 0):
            raise InputError(f"`speeds` {speed:g}: a speed per user must be above 0 tok/s.")
    if imbalance is not None and not 1 <= imbalance < math.inf:
        raise InputError(f"`imbalance` {imbalance:g}: the busiest GPU over the mean must be 1 or more.")
    layouts, priced = _on_the_grid(
        Pricer(deployment, redundant),
        arranged,
        cut_experts=cut_experts,
        imbalance=imbalance,
        chunk_tokens=chunk_tokens,
    )
    layout = np.unique(priced.layout)
    limits_s = list(dict.fromkeys(deployment.workload.tokens_per_step / speed for speed in speeds))
    between, *near = layouts.price_apart(
        layouts.between(priced, may_be_best(1 / priced.step_s, priced.tok_s)),
        *(layouts.near(priced, step_s) for step_s in limits_s),
    )
    priced = priced.joined(between)
    for step_s, tried in zip(limits_s, near, strict=True):
        priced = priced.joined(layouts.largest_within(priced.joined(tried), step_s))
    for batch in dict.fromkeys(batches):
        is_whole = np.isclose(np.rint(batch * layouts.tp[layout]), batch * layouts.tp[layout], atol=0.0)
        able = layout[(layouts.most[layout] >= batch) & is_whole]
        holds = np.setdiff1d(able, priced.layout[priced.batch == batch])
        if len(holds):
            priced = priced.joined(layouts.price(holds, np.full(len(holds), float(batch))))
    return _result(layouts, priced.take(_best_splits(layouts, priced)))


def _on_the_grid(
    pricer: Pricer,
    arranged: Sequence[Arrangement] | None,
    *,
    cut_experts: bool,
    imbalance: float | None,
    chunk_tokens: float | None,
) -> tuple[FittingLayouts, Priced]:
    """Return the layouts of ``arranged``, or of all worth pricing, at every batch of the grid, in order of both.

    Where none that is deployable holds the model, of any shape.
    """
    if arranged is None:
        choice = chosen(pricer, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens)
        if not (pricer.deployment.any_shape or (choice.found is not None and len(choice.found))):
            pricer = Pricer(pricer.deployment.for_want_of_deployable(), pricer.redundant)
            choice = chosen(pricer, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens)
        if choice.layouts is not None and choice.found is not None:
            layouts = choice.layouts
            idle = layouts.price(*layouts.grid(np.isin(layouts.arrangement, choice.alone)))
            return layouts, choice.found.joined(idle)
    else:
        fitting = FittingLayouts.of(
            pricer, arranged, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens
        )
        if fitting is not None:
            return fitting, fitting.price(*fitting.grid())
    cluster, model = pricer.deployment.cluster.name, pricer.deployment.model.name
    if pricer.redundant is None:
        raise InputError(
            f"{model} has no legal layout on {cluster}: no GPU group divides the heads and holds all "
            "experts in equal slots."
        )
    raise InputError(
        f"no group of {cluster}'s GPUs can hold that many extra copies without two copies of an expert on "
        "one GPU; give fewer.",
        field="redundant",
        value=pricer.redundant,
    )


def _best_splits(layouts: FittingLayouts, priced: Priced) -> Index:
    """Rows by layout and batch, without those that another split of the layers beats on the same GPUs.

    It beats them where it is faster at the same batch, or no slower at a larger one: a split that holds more
    sequences takes fewer in less time, but need not be priced at their number.
    """
    layout, step_s = priced.layout, priced.step_s
    widths = layouts.widths(np.arange(len(layouts.tp)), layouts.most)
    cut = numbered(pairs(layouts.arrangement, numbered(widths.cut)[1]))[1][layout]
    sequences = numbered(np.rint(priced.batch * layouts.tp[layout]).astype(np.int64))[1]
    places, at = numbered(pairs(cut, sequences))
    least_s = np.full(len(places), np.inf)
    np.minimum.at(least_s, at, step_s)
    fastest, equal = np.empty_like(places), np.flatnonzero(step_s == least_s[at])[::-1]
    fastest[at[equal]] = equal  # of equal ones the first
    # the rank of each among all, those of each cut above all of the one before, whose least is then of its own
    rank = pairs(cut[fastest], np.unique(least_s, return_inverse=True)[1])
    rows = fastest[rank <= np.minimum.accumulate(rank[::-1])[::-1]]
    return np.asarray(rows[np.argsort(pairs(layout, sequences)[rows])])


def _result(layouts: FittingLayouts, priced: Priced) -> Sweep:
    deployment, variants = layouts.pricer.deployment, layouts.variants
    variant, widths = layouts.variant[priced.layout], layouts.widths(priced.layout, priced.batch)
    tp, moe_tp = widths.tp, widths.moe_tp
    arrangements = [arrangement.arrangement for arrangement in variants]
    figures = [
        (arrangement.group, arrangement.gpus_used, len(arrangement.replicas), arrangement.stages)
        for arrangement in arrangements
    ]
    group, used, replicas, stages = np.array(figures, dtype=np.int64)[variant].T
    return Sweep(
        deployment=deployment,
        layout=variant,
        tp=tp,
        attention_dp=group // tp,
        ep=group // moe_tp if deployment.model.moe is not None else np.ones_like(group),
        moe_tp=moe_tp,
        dcp=widths.dcp,
        pcp=widths.pcp,
        stages=stages,
        replicas=replicas,
        gpus=used // replicas,
        batch=priced.batch,
        max_batch=layouts.most[priced.layout],
        step_s=priced.step_s,
        tok_s=priced.tok_s,
        parts_of=PartsOf(layouts, priced.layout, priced.batch),
        variants=tuple(variants),
        shortage_bytes=layouts.shortage_bytes,
        imbalance=layouts.imbalance,
    )
