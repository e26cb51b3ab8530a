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
    :data:`cost.layouts.candidates.MOST_STAGES`, as many replicas as there is room for, some GPUs left over where that
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
    layouts, found = _on_the_grid(
        Pricer(deployment, redundant),
        arranged,
        cut_experts=cut_experts,
        imbalance=imbalance,
        chunk_tokens=chunk_tokens,
    )
    layout = np.unique(found.layout)
    limits_s = list(dict.fromkeys(deployment.workload.tokens_per_step / speed for speed in speeds))
    between, *near = layouts.price_apart(
        layouts.between(found, may_be_best(1 / found.step_s, found.tok_s)),
        *(layouts.near(found, step_s) for step_s in limits_s),
    )
    found = found.joined(between)
    for step_s, tried in zip(limits_s, near, strict=True):
        found = found.joined(layouts.largest_within(found.joined(tried), step_s))
    for many in dict.fromkeys(batches):
        whole = np.isclose(np.rint(many * layouts.tp[layout]), many * layouts.tp[layout], atol=0.0)
        able = layout[(layouts.most[layout] >= many) & whole]
        holds = np.setdiff1d(able, found.layout[found.batch == many])
        if len(holds):
            found = found.joined(layouts.price(holds, np.full(len(holds), float(many))))
    return _result(layouts, found.take(_best_splits(layouts, found)))


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
        seen = chosen(pricer, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens)
        if not (pricer.deployment.any_shape or (seen.found is not None and len(seen.found))):
            pricer = Pricer(pricer.deployment.for_want_of_deployable(), pricer.redundant)
            seen = chosen(pricer, cut_experts=cut_experts, imbalance=imbalance, chunk_tokens=chunk_tokens)
        if seen.layouts is not None and seen.found is not None:
            layouts = seen.layouts
            idle = layouts.price(*layouts.grid(np.isin(layouts.arrangement, seen.alone)))
            return layouts, seen.found.joined(idle)
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


def _best_splits(layouts: FittingLayouts, found: Priced) -> Index:
    """Rows by layout and batch, without those that another split of the layers beats on the same GPUs.

    It beats them where it is faster at the same batch, or no slower at a larger one: a split that holds more
    sequences takes fewer in less time, but need not be priced at their number.
    """
    layout, step_s = found.layout, found.step_s
    cut = numbered(pairs(layouts.arrangement, pairs(layouts.tp, layouts.moe_tp)))[1][layout]
    sequences = numbered(np.rint(found.batch * layouts.tp[layout]).astype(np.int64))[1]
    places, at = numbered(pairs(cut, sequences))
    least_s = np.full(len(places), np.inf)
    np.minimum.at(least_s, at, step_s)
    fastest, equal = np.empty_like(places), np.flatnonzero(step_s == least_s[at])[::-1]
    fastest[at[equal]] = equal  # of equal ones the first
    # the rank of each among all, those of each cut above all of the one before, whose least is then of its own
    rank = pairs(cut[fastest], np.unique(least_s, return_inverse=True)[1])
    rows = fastest[rank <= np.minimum.accumulate(rank[::-1])[::-1]]
    return np.asarray(rows[np.argsort(pairs(layout, sequences)[rows])])


def _result(layouts: FittingLayouts, found: Priced) -> Sweep:
    deployment, variants = layouts.pricer.deployment, layouts.variants
    variant, tp, moe_tp = (column[found.layout] for column in (layouts.variant, layouts.tp, layouts.moe_tp))
    what = [one.arrangement for one in variants]
    figures = [(one.group, one.gpus_used, len(one.replicas), one.stages) for one in what]
    group, used, replicas, stages = np.array(figures, dtype=np.int64)[variant].T
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
        batch=found.batch,
        max_batch=layouts.most[found.layout],
        step_s=found.step_s,
        tok_s=found.tok_s,
        parts_of=PartsOf(layouts, found.layout, found.batch),
        variants=tuple(variants),
        shortage_bytes=layouts.shortage_bytes,
        imbalance=layouts.imbalance,
    )
