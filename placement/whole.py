"""Plans for whole requests: one pool for both phases, or one that decodes and one that prefills, as serves more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NoReturn

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy, rank_tp
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts import Sweep
from cost.layouts.candidates import Group, domain_gpus
from cost.serving.lengths import Lengths
from cost.serving.limits import LimitError, left_out_words, relax_default_limits, rounded_up
from cost.serving.pools import DECODE_DERATE, PREFILL_DERATE, RateMatch
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving
from cost.serving.supply import Pool
from cost.step.score import Score
from placement.analysis.failures import FEW_TOKENS
from placement.budget import Cancel
from placement.layouts.choose import choose_layout
from placement.layouts.fitting import Fitted, Fitting, batch_that_fits, fitted, stage_slots
from placement.layouts.shapes import TP_WIDTHS, Shape
from placement.options import PlanOptions
from placement.plan import Plan, Turn, WholeRequests
from placement.planner import make_plan
from placement.progress import OnProgress, Say, silent
from placement.scoring import placement_scorer
from topology.base.errors import InfeasibleError, input_name
from topology.cluster import Cluster, ClusterView

MOST_PLACED = 6
"""Layouts whose experts are placed the fast way before the best of them is taken."""


@dataclass(frozen=True)
class Limits:
    """Longest seconds per output token and to the first token without waiting; None: no limit.

    ``usual``: those that give way where nothing keeps them.
    """

    tpot_s: float | None
    ttft_s: float | None
    usual: frozenset[str] = frozenset()


def plan_requests(
    deployment: Deployment,
    lengths: Lengths,
    loads: ExpertLoads | None,
    options: PlanOptions,
    limits: Limits,
    *,
    on_progress: OnProgress | None = None,
    on_stage: Say | None = None,
    cancel: Cancel | None = None,
) -> Plan:
    """Return the plan of the only pool, or of the decode pool with that of the prefill pool (:attr:`Plan.prefill`).

    Widths asked for are those of the pool that decodes; the rest is as :func:`placement.planner.make_plan` takes it.

    Raises
    ------
    InputError
        As of :func:`placement.planner.make_plan`.
    InfeasibleError
        If nothing fits, or keeps the limits that are not usual.
    """
    say = on_stage or silent
    say("comparing one pool with two")
    speeds = [] if limits.tpot_s is None else [1 / limits.tpot_s]
    swept = Serving.of(deployment, lengths, speeds=speeds, redundant=options.copies, cut_experts=False)
    able = _that_plans_have(swept, options)

    def best_within(limits: Limits) -> tuple[Serving, RateMatch, Limits]:
        serving = replace(able, ttft_s=limits.ttft_s, _known={})
        best = serving.best(limits.tpot_s)
        if best is None:
            _refuse(serving, limits)
        return serving, best, limits

    (serving, _, kept), left_out = relax_default_limits(best_within, limits, limits.usual)
    best, pools = _best_placed(serving, kept, loads and loads.divided().sampled(FEW_TOKENS), options, say)
    plans: list[Plan] = []
    for pool in pools:
        say("planning the pool" if best.one_pool else f"planning the pool that does {pool.role}")
        hurried = bool(plans) and plans[-1].interrupted
        asked = replace(pool.asked, time_limit_s=0.0) if hurried else pool.asked
        made = make_plan(
            pool.deployment,
            loads,
            asked,
            on_progress=on_progress,
            on_stage=say,
            cancel=cancel,
            layouts=[pool.fit],
        )
        plans.append(replace(made, request=replace(asked, ttft_s=kept.ttft_s if best.one_pool else None)))
    decode, *prefill = plans
    done = [_Done(one.deployment, one.layout, one.experts, one.loads, one.split, one.score) for one in plans]
    requests = _served(done, serving, best, kept, left_out_words(left_out))
    return replace(decode, requests=requests, prefill=next(iter(prefill), None))


@dataclass(frozen=True, eq=False)
class _Pool:
    """A pool to plan: what it does on its GPUs, its layout, and what is asked of its plan."""

    role: str
    deployment: Deployment
    fit: Fitted
    asked: PlanOptions


@dataclass(frozen=True, eq=False)
class _Done:
    """A pool with its experts placed."""

    deployment: Deployment
    layout: Layout
    experts: Sequence[Assignment | None]
    loads: ExpertLoads | None
    split: DispatchPolicy
    score: Score


def _best_placed(
    serving: Serving, limits: Limits, loads: ExpertLoads | None, options: PlanOptions, say: Say
) -> tuple[RateMatch, list[_Pool]]:
    """Return the match that serves most with its experts placed the fast way, and its pools, decode first.

    In the order of what they were priced at, one of each layout that decodes, until none is expected to be better.

    Raises
    ------
    InfeasibleError
        If none can be placed within the limits: why the first cannot.
    """
    best: tuple[float, RateMatch, list[_Pool]] | None = None
    why: InfeasibleError | None = None
    for number, match in enumerate(islice(_by_rate(serving, limits), MOST_PLACED), 1):
        if best is not None and match.requests_per_s <= best[0]:
            break
        say(f"comparing layouts: experts of {number}, at most {MOST_PLACED}")
        try:
            pools = list(_pools(serving, match, options, limits))
            placed = [choose_layout(one.deployment, loads, one.asked, [one.fit]) for one in pools]
        except InfeasibleError as error:
            why = why or error
            continue
        done = [
            _Done(
                one.candidate.deployment, one.candidate.layout, one.experts, loads, options.split, one.score
            )
            for one in placed
        ]
        rate = min(_rates(done, serving, match, limits)[0])
        if best is None or rate > best[0]:
            best = rate, match, pools
    if best is None:
        raise why or InfeasibleError("nothing keeps the limits.")
    return best[1:]


def _by_rate(serving: Serving, limits: Limits) -> Iterator[RateMatch]:
    """Yield matches within the limits by throughput, the first of each way and layout that decodes."""
    rows = [
        (float(rate), one, at)
        for one in serving.ways(limits.tpot_s).values()
        for at, rate in enumerate(one.requests_per_s.tolist())
    ]
    seen = set()
    for _, one, at in sorted(rows, key=lambda row: -row[0]):
        match = one.row(at)
        _, found, index, _ = serving.sides(match)[-1]
        key = match.one_pool, int(found.layout[index]), int(found.tp[index])
        if key not in seen:
            seen.add(key)
            yield match


def _that_plans_have(serving: Serving, options: PlanOptions) -> Serving:
    """Return the configurations that plans can have: one sequence per GPU or more, of the widths asked for.

    Raises
    ------
    InfeasibleError
        If there is none.
    """

    def those(found: Sweep, *, decodes: bool) -> Sweep:
        able = np.isin(found.tp, TP_WIDTHS)
        if decodes:
            ep = found.ep if found.deployment.model.moe is not None else found.gpus // found.stages
            able &= found.batch >= 1
            for wanted, column in ((options.ep, ep), (options.tp, found.tp), (options.stages, found.stages)):
                able &= True if wanted is None else column == wanted
        return found.rows(np.flatnonzero(able))

    assert serving.both is not None  # noqa: S101 - both phases are swept on one cluster
    found = replace(
        serving,
        decode=those(serving.decode, decodes=True),
        prompts=[(share, those(one, decodes=False)) for share, one in serving.prompts],
        both=those(serving.both, decodes=True),
        _known={},
    )
    where, work = serving.decode.deployment, serving.decode.deployment.workload
    if found.both is None or not (len(found.both) or len(found.decode)):
        asked = {name: getattr(options, name) for name in ("ep", "tp", "stages")}
        words = " ".join(f"{input_name(name)} {value}" for name, value in asked.items() if value is not None)
        raise InfeasibleError(
            f"{words or 'HBM capacity binds'}: no such layout of {where.model.name} on {where.cluster.name} holds a "
            f"sequence of {work.context:,} tokens on each GPU"
            + (
                f"; the nearest lacks {serving.decode.shortage_bytes / 1e9:.1f} GB per GPU." * (not words)
                or "."
            )
        )
    return found


def _refuse(serving: Serving, limits: Limits) -> NoReturn:
    """Raise LimitError: which limit nothing keeps, and the nearest there is."""
    where = serving.decode.deployment.cluster.name
    rows = [row for one in serving.ways().values() for row in map(one.row, one.frontier().tolist())]
    if rows and limits.tpot_s is not None:
        limit, name, asked_s, what = "tpot_s", "tpot_ms", limits.tpot_s, "the fastest output token"
        least_s = min(1 / row.tok_s_per_user for row in rows)
    else:
        limit, name, asked_s, what = "ttft_s", "ttft_ms", limits.ttft_s or 0.0, "the fastest first token"
        least_s = serving.fastest_ttft_s
    raise LimitError(
        limit,
        f"{input_name(name)} {asked_s * 1e3:g} is out of reach on {where}: {what} of whole requests takes "
        f"{rounded_up(least_s * 1e3)} ms; ask for at least that, or use faster GPUs or more of them.",
    )


def _pools(serving: Serving, best: RateMatch, options: PlanOptions, limits: Limits) -> Iterator[_Pool]:
    """Yield the pool that decodes, or the only one, then the one that prefills."""
    cluster = serving.decode.deployment.cluster
    domains, at_end = [list(gpus) for gpus in domain_gpus(cluster)], False
    for role, found, row, workers in reversed(serving.sides(best)):
        variant = found.variants[found.layout[row]]
        groups = [tuple(stage) for stage in variant.arrangement.replicas[0]]
        deployment, chosen = found.deployment, variant.arrangement.replicas
        if not best.one_pool:
            chosen = _taken(domains, [len(stage) for stage in groups], workers, at_end=at_end)
            deployment, chosen = _alone(deployment, chosen)
        at_end = True
        asked, batch = replace(options, ttft_s=None), 0
        if role == "prefill":
            split = options.split if rank_tp(options.split) is None else "even"
            asked = replace(asked, ep=None, tp=None, stages=None, tpot_s=None, split=split)
        if role == "prefill" or limits.tpot_s is None:
            batch, asked = max(1, int(found.batch[row])), replace(asked, tpot_s=None)
        shape = Shape(tuple(chosen), int(found.tp[row]))
        pool = deployment.with_batch(batch)
        yield _Pool(role, pool, _fit(pool, shape, variant.ranges, asked), asked)


def _taken(
    domains: list[list[int]], sizes: Sequence[int], workers: int, *, at_end: bool
) -> list[tuple[Group, ...]]:
    """Take the GPUs of workers out of what is left of ``domains``, from the first on or from the last on backwards.

    Stages are a part of one domain, or several whole ones (:class:`cost.serving.packing.Room`).
    """
    order = domains[::-1] if at_end else domains
    most = max(map(len, domains))

    def take(size: int) -> Group:
        if size <= most:
            source = next(gpus for gpus in order if len(gpus) >= size)
            taken = source[-size:] if at_end else source[:size]
            source[:] = source[:-size] if at_end else source[size:]
            return tuple(taken)
        whole = [gpus for gpus in order if len(gpus) == most][: size // most]
        taken = [gpu for gpus in whole for gpu in gpus]
        for gpus in whole:
            gpus.clear()
        return tuple(sorted(taken))

    return [tuple(take(size) for size in sizes) for _ in range(workers)]


def _alone(
    deployment: Deployment, replicas: Sequence[tuple[Group, ...]]
) -> tuple[Deployment, list[tuple[Group, ...]]]:
    """Return a deployment on the GPUs of some replicas alone, and those as numbered there."""
    cluster: Cluster = deployment.cluster
    members = sorted(gpu for stages in replicas for stage in stages for gpu in stage)
    number = {gpu: index for index, gpu in enumerate(members)}
    view = ClusterView(cluster, [cluster.gpus[gpu].id for gpu in members])
    inside = [tuple(tuple(number[gpu] for gpu in stage) for stage in stages) for stages in replicas]
    return replace(deployment, cluster=view), inside


def _fit(deployment: Deployment, shape: Shape, ranges: tuple[range, ...], options: PlanOptions) -> Fitted:
    """Return a shape with its slots and layers as priced.

    Raises
    ------
    InfeasibleError
        If copies cannot be spread so, or HBM does not hold one sequence per GPU with whole layers.
    """
    slots = stage_slots(deployment, shape, options.copies, options.spread)
    most = 0 if slots is None else batch_that_fits(deployment.with_batch(1), shape, slots)
    found = None
    if slots is not None and most:
        batch = min(deployment.workload.batch, most)
        found = fitted(deployment.with_batch(batch), Fitting(shape, slots, most), ranges)
    if found is None:
        why = "no slots for the experts" if slots is None else "HBM does not hold one sequence per GPU"
        raise InfeasibleError(
            f"{deployment.model.name} on {deployment.cluster.name}: {why} of the best layout."
        )
    return found


def _rates(
    pools: Sequence[_Done], serving: Serving, match: RateMatch, limits: Limits
) -> tuple[list[float], list[float], list[float]]:
    """Return requests per second, seconds of a step and sequences per GPU of each pool, decode first."""
    decode, osl = pools[0], serving.lengths.osl[0]
    steps, batches = [decode.score.step_s], [float(decode.score.batch)]
    rates = [decode.score.tok_s_per_gpu * len(decode.deployment.cluster.gpus) / osl]
    for prefill in pools[1:]:
        batch = float(serving.prefill.batch[match.prefill])
        scorer, _ = placement_scorer(
            prefill.deployment, prefill.layout, prefill.experts, prefill.loads, prefill.split
        )
        steps.append(scorer.step_s(batch))
        batches.append(batch)
        prompts = batch * prefill.layout.gpus_used / steps[-1]
        rates = [rates[0] * DECODE_DERATE.value, prompts * PREFILL_DERATE.value]
        matches = serving.ways(limits.tpot_s)[TWO_POOLS]
        if matches.path is not None and matches.cache_bytes:
            each = matches.path.bytes_per_s / matches.cache_bytes
            rates = [min(rate, one.layout.gpus_used * each) for rate, one in zip(rates, pools, strict=True)]
    return rates, steps, batches


def _served(
    plans: Sequence[_Done], serving: Serving, best: RateMatch, limits: Limits, left_out: tuple[str, ...]
) -> WholeRequests:
    """Return what pools serve together: the decode pool, or the only one, is the first of ``plans``."""
    decode, lengths = plans[0], serving.lengths
    rates, steps, batches = _rates(plans, serving, best, limits)
    ttft_s = decode.score.step_s + decode.score.prefill_s if best.one_pool else steps[1] + best.transfer_s
    roles = ("both",) if best.one_pool else ("decode", "prefill")
    pools = [
        Pool(
            role,
            plan.layout.short(moe=plan.deployment.model.moe is not None),
            len(plan.layout.replicas),
            plan.layout.gpus_used // len(plan.layout.replicas),
            batch,
            step_s,
        )
        for role, plan, batch, step_s in zip(roles, plans, batches, steps, strict=True)
    ]
    whole = serving.decode.deployment
    requests_per_s = min(rates)
    return WholeRequests(
        isl=lengths.isl[0],
        osl=lengths.osl[0],
        serving=ONE_POOL if best.one_pool else TWO_POOLS,
        pools=tuple(reversed(pools)),
        requests_per_s=requests_per_s,
        tok_s_per_user=decode.score.tok_s_per_user,
        tpot_s=decode.score.tpot_s,
        ttft_s=ttft_s,
        tpot_limit_s=limits.tpot_s,
        ttft_limit_s=limits.ttft_s,
        defaults=tuple(sorted(limits.usual)),
        left_out=left_out,
        totals=whole.bill.totals(
            requests_per_s * lengths.osl[0],
            requests_per_s=requests_per_s,
            gpus_idle=len(whole.cluster.gpus) - sum(plan.layout.gpus_used for plan in plans),
        ),
        priced_tok_s_per_gpu={
            name: row.output_tok_s_per_gpu for name, row in serving.bests(limits.tpot_s).items()
        },
        turns=tuple(Turn(*turn) for turn in serving.turns()),
        refused=serving.refused,
    )
