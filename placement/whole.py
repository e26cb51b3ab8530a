"""Plans for whole requests: one pool for both phases, or a decode and a prefill pool, whichever serves more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.layouts import Sweep
from cost.layouts.candidates import Group, domain_gpus
from cost.serving.lengths import Lengths
from cost.serving.limits import (
    LimitError,
    left_out_words,
    out_of_reach,
    relax_default_limits,
    rounded_down,
    rounded_up,
)
from cost.serving.pools import RateMatch
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving
from cost.serving.steady_state import busy_share
from placement.analysis.failures import FEW_TOKENS
from placement.budget import Cancel
from placement.layouts.choose import choose_layout
from placement.layouts.fitting import (
    Fitted,
    Fitting,
    batch_that_fits,
    copies_of,
    fitted,
    fitted_layouts,
    stage_slots,
)
from placement.layouts.price import plan_rows
from placement.layouts.refuse import refuse_capacity, refuse_layout
from placement.layouts.shapes import Shape
from placement.options import AUTO, OFF, PlanOptions
from placement.pairing import Side, paired
from placement.plan import ROUNDING, Asked, Decision, Plan
from placement.planner import Rival, closed_by, fast_plan, make_plan, reached_by
from placement.pools import with_pools
from placement.progress import OnProgress, Say, silent
from topology.base.errors import InfeasibleError, called, input_name
from topology.cluster import ClusterView


@dataclass(frozen=True)
class Limits:
    """Longest seconds per output token and to the first token without waiting; None: no limit.

    ``usual``: those that give way where nothing keeps them.
    """

    tpot_s: float | None
    ttft_s: float | None
    usual: frozenset[str] = frozenset()


def plan_requests(  # noqa: PLR0913 - what is planned, and who hears of it
    deployment: Deployment,
    lengths: Lengths,
    loads: ExpertLoads | None,
    options: PlanOptions,
    limits: Limits,
    *,
    on_progress: OnProgress | None = None,
    on_stage: Say | None = None,
    cancel: Cancel | None = None,
    rival: Rival | None = None,
) -> Plan:
    """Return the plan of the only pool, or of the decode pool with that of the prefill pool (:attr:`Plan.beside`).

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
    able = _that_plans_have(deployment, lengths, speeds, options)

    part = 1.0  # of a limit on the first token that priced layouts must keep: placed experts may take longer

    def best_within(limits: Limits) -> tuple[Serving, RateMatch, Limits]:
        serving = replace(able, ttft_s=limits.ttft_s and part * limits.ttft_s, _known={})
        if "ttft_s" in limits.usual:
            serving = serving.reachable()
            limits = replace(limits, ttft_s=serving.ttft_s)
        return serving, serving.best(limits.tpot_s) or refuse_limits(serving, limits), limits

    nearest: list[float] = []
    while True:
        try:
            (serving, best, level), left_out = relax_default_limits(best_within, limits, limits.usual)
        except LimitError:
            if not nearest:
                raise
            near = f"with experts placed under these loads the first token takes {rounded_up(min(nearest) * 1e3)} ms"
            where, limit_s = deployment.cluster.name, limits.ttft_s or 0.0
            raise out_of_reach("ttft_s", "ttft_ms", limit_s, where, near) from None
        sampled = loads and loads.divided().sampled(FEW_TOKENS)
        pools = [
            (pool, opts, choose_layout(pool, sampled, opts, fits))
            for pool, fits, opts in pools_of(serving, best, options, level)
        ]
        notes = left_out_words(left_out)
        if limits.ttft_s is not None and level.ttft_s not in (None, limits.ttft_s):
            later = f"{(level.ttft_s or 0.0) * 1e3:,.0f} ms, twice the fastest, is the limit"
            notes += (f"{called('ttft_ms')} {limits.ttft_s * 1e3:g} is out of reach (default): {later}",)
        pairing = "" if best.one_pool else side_by_side(serving, best, options.seed)[1]
        question = _asked(serving, level, notes, pairing)
        fast = with_pools([fast_plan(placed, loads) for *_, placed in pools], question)
        decision: Decision | None = closed_by(
            fast.totals.tok_s,
            most_per_s(serving, level.tpot_s) * (question.osl or 1),
            ", attention apart left out" * (options.afd != OFF),
        )
        if rival is not None and not fast.late[0]:
            answer = rival(replace(fast, decision=decision))
            if isinstance(answer, Plan):
                return answer
            decision = answer
        plans: list[Plan] = []
        for pool, opts, placed in pools:
            if plans and plans[0].interrupted:
                # what is left is finished the fast way, and not cancelled again
                opts, cancel = replace(opts, time_limit_s=0.0), None  # noqa: PLW2901
            done = make_plan(
                pool, loads, opts, on_progress=on_progress, on_stage=say, cancel=cancel, layouts=placed
            )
            plans.append(replace(done, request=replace(opts, ttft_s=level.ttft_s if best.one_pool else None)))
        plan = with_pools(plans, question)
        first_s, limit_s = plan.late
        if not first_s or plan.interrupted:
            return replace(plan, decision=decision and reached_by(decision, plan.totals.tok_s))
        nearest.append(first_s)
        part *= limit_s / first_s


def most_per_s(serving: Serving, tpot_s: float | None) -> float:
    """Return the requests per second that no mix of the priced layouts serves more of, within the limits.

    Each GPU decodes or prefills as the best layout does for each of its GPUs, one phase or both, and GPUs divide at
    will. Prefill is as busy as if it had half as much again to do, which is more than it can be
    (:func:`cost.serving.steady_state.busy_share`).
    """
    gpus, ways, osl = (
        len(serving.decode.deployment.cluster.gpus),
        serving.ways(tpot_s),
        serving.lengths.mean_osl,
    )
    alone = ways.get(ONE_POOL)
    bound = (
        0.0 if alone is None else gpus * float(np.max(alone.requests_per_s / alone.decode_gpus, initial=0.0))
    )
    split = ways.get(TWO_POOLS)
    if split is None or not len(split):
        return bound
    decode, prefill = serving.decode, serving.prefill
    tokens = decode.deployment.workload.tokens_per_step
    fast = decode.tok_s_per_user >= (0.0 if tpot_s is None else (1 - ROUNDING) / tpot_s)
    decodes = float(np.max((decode.batch * tokens / osl / decode.step_s)[fast], initial=0.0))
    able = prefill.step_s <= (np.inf if serving.ttft_s is None else serving.ttft_s)
    prompts = (prefill.batch / prefill.step_s)[able]
    stays_s = osl / tokens * float(np.max(decode.step_s[fast], initial=0.0)) + prefill.step_s[able]
    always = gpus / (1 / decodes + 1 / float(np.max(prompts, initial=0.0)))
    busy = busy_share(1.5 * always, stays_s, (prefill.batch * prefill.gpus)[able])
    return max(bound, gpus / (1 / decodes + 1 / float(np.max(prompts * busy))))


def _that_plans_have(
    deployment: Deployment, lengths: Lengths, speeds: Sequence[float], options: PlanOptions
) -> Serving:
    """Return the configurations that plans can have, of the widths asked for.

    Experts are whole, but where `ep` 1 is asked for, or HBM holds no layout of whole ones.

    Raises
    ------
    InfeasibleError
        If there is none.
    """

    def those(swept: Sweep, widths: dict[str, int]) -> Sweep:
        able = plan_rows(swept)
        for name, value in widths.items():
            dense = name == "ep" and swept.deployment.model.moe is None
            able &= (swept.gpus // swept.stages if dense else getattr(swept, name)) == value
        return swept.rows(np.flatnonzero(able))

    for cut_experts in (options.cuts_experts, True):
        serving = Serving.of(
            deployment, lengths, speeds=speeds, redundant=options.copies, cut_experts=cut_experts
        )
        assert serving.both is not None  # noqa: S101 - both phases are swept on one cluster
        one_pool, decode = (those(swept, options.widths) for swept in (serving.both, serving.decode))
        prompts = [(share, those(swept, {})) for share, swept in serving.prompts]
        decodes = len(one_pool) or len(decode)
        if decodes and all(len(swept) for _, swept in prompts):
            # with attention apart by a ratio that is asked for, another pool prefills
            both = one_pool if options.afd in (OFF, AUTO) else None
            return replace(serving, decode=decode, prompts=prompts, both=both)
        if options.widths or deployment.model.moe is None:
            break
    where = serving.prefill.deployment if decodes else serving.decode.deployment
    if options.widths and not decodes:
        refuse_layout(where, options, fitted_layouts(where, options.copies, options.spread))
    return refuse_capacity(where, options.copies, options.spread)


def refuse_limits(serving: Serving, limits: Limits) -> NoReturn:
    """Raise LimitError: which limit nothing keeps, and the nearest there is; InfeasibleError where it is no limit."""
    where = serving.decode.deployment.cluster.name
    speeds = [matches.tok_s_per_user.max() for matches in serving.ways().values() if len(matches)]
    if not speeds and limits.ttft_s is None:
        wider = (
            "" if serving.decode.deployment.any_shape else f", or allow them with {input_name('any_shape')}"
        )
        raise InfeasibleError(
            f"{where}: {serving.refused or 'a decode pool of these widths leaves no GPUs for prefill'}, and no "
            f"layout of these widths serves both phases in one pool; use more GPUs, or leave out widths{wider}."
        )
    if speeds and limits.tpot_s is not None:
        limit, asked_s, least_s, event = "tpot_s", limits.tpot_s, 1 / float(max(speeds)), "an output token"
    else:
        limit, asked_s, least_s, event = (
            "ttft_s",
            limits.ttft_s or 0.0,
            serving.fastest_ttft_s,
            "the first token",
        )
    speed = f" ({rounded_down(1 / least_s)} tok/s/user)" if limit == "tpot_s" else ""
    best = f"{event} of whole requests takes {rounded_up(least_s * 1e3)} ms at least{speed}"
    raise out_of_reach(limit, f"{limit[:-2]}_ms", asked_s, where, best)


def pools_of(
    serving: Serving, best: RateMatch, options: PlanOptions, limits: Limits
) -> Iterator[tuple[Deployment, list[Fitted], PlanOptions]]:
    """Yield the pool that decodes, or the only one, then the one that prefills: GPUs, layout and options.

    The layout with each number of copies that it may have, the fewest first.

    Raises
    ------
    InfeasibleError
        If whole copies of experts do not fit.
    """
    for deployment, shape, ranges, opts in pool_shapes(serving, best, options, limits):
        yield deployment, fits_of(deployment, shape, ranges, opts), opts


def pool_shapes(
    serving: Serving, best: RateMatch, options: PlanOptions, limits: Limits
) -> Iterator[tuple[Deployment, Shape, tuple[range, ...], PlanOptions]]:
    """Yield the pools of :func:`pools_of` before they are fitted: GPUs, shape, layers of each stage, options."""
    placed = {} if best.one_pool else side_by_side(serving, best, options.seed)[0]
    for role, swept, row, _ in reversed(serving.sides(best)):
        variant = swept.variants[swept.layout[row]]
        deployment, replicas = swept.deployment, variant.arrangement.replicas
        if role in placed:
            deployment, replicas = alone_on(deployment, placed[role])
        opts = replace(options, ttft_s=None)
        if role == "prefill":
            opts = replace(opts, ep=None, tp=None, stages=None, split=options.prefill_split)
        if role == "prefill" or limits.tpot_s is None:
            opts, deployment = (replace(opts, tpot_s=None), deployment.with_batch(float(swept.batch[row])))
        yield deployment, Shape(replicas, **swept.widths_of(row)), variant.ranges, opts


def side_by_side(
    serving: Serving, best: RateMatch, seed: int
) -> tuple[dict[str, tuple[tuple[Group, ...], ...]], str]:
    """Return the GPUs of the workers of both pools, beside each other as far as that goes, and what decided."""
    cluster = serving.decode.deployment.cluster
    free = [list(gpus) for gpus in domain_gpus(cluster)]
    sides = {}
    for role, swept, row, workers in reversed(serving.sides(best)):
        sizes = [len(stage) for stage in swept.variants[swept.layout[row]].arrangement.replicas[0]]
        workers_gpus = tuple(_take(free, sizes, last=role == "prefill") for _ in range(workers))
        sides[role] = Side(role == "prefill", best.requests_per_s / workers, workers_gpus)
    moved, words = paired(cluster, list(sides.values()), seed=seed)
    return dict(zip(sides, moved, strict=True)), words


def _take(free: list[list[int]], sizes: Sequence[int], *, last: bool) -> tuple[Group, ...]:
    """Take the GPUs of a worker's stages out of what is ``free`` of each domain, the first or the ``last`` of them.

    A stage is a part of one domain, or several whole ones (:class:`cost.serving.packing.Room`).
    """
    order, largest, stages = free[::-1] if last else free, max(map(len, free)), []
    for size in sizes:
        share = min(size, largest)
        gpus_of: list[int] = []
        for gpus in order:
            if len(gpus_of) < size and len(gpus) >= share:
                at = len(gpus) - share if last else 0
                gpus_of += gpus[at : at + share]
                del gpus[at : at + share]
        stages.append(tuple(sorted(gpus_of)))
    return tuple(stages)


def alone_on(
    deployment: Deployment, replicas: Sequence[tuple[Group, ...]]
) -> tuple[Deployment, tuple[tuple[Group, ...], ...]]:
    """Return a deployment on the GPUs of some replicas alone, and those as numbered there."""
    members = sorted(gpu for stages in replicas for stage in stages for gpu in stage)
    number = {gpu: index for index, gpu in enumerate(members)}
    view = ClusterView(deployment.cluster, [deployment.cluster.gpus[gpu].id for gpu in members])
    inside = (tuple(tuple(number[gpu] for gpu in stage) for stage in stages) for stages in replicas)
    return replace(deployment, cluster=view), tuple(inside)


def fits_of(
    deployment: Deployment, shape: Shape, ranges: tuple[range, ...] | None, options: PlanOptions
) -> list[Fitted]:
    """Return a shape of each number of copies, its layers as priced (``ranges``) or split anew.

    Raises
    ------
    InfeasibleError
        If none fits whole.
    """
    fits: list[Fitted] = []
    why = "copies of experts cannot be spread as requested"
    for copies in copies_of(deployment, shape, options.copies):
        slots = stage_slots(deployment, shape, copies, options.spread)
        if slots is None:
            continue
        why, largest = "HBM holds no sequence of a group", batch_that_fits(deployment, shape, slots)
        at_batch = deployment.with_batch(min(deployment.workload.batch, largest))
        fit = fitted(at_batch, Fitting(shape, slots, largest), ranges) if largest else None
        fits += [] if fit is None else [fit]
    if not fits:
        raise InfeasibleError(
            f"{deployment.model.name} on {deployment.cluster.name}: {why} in the best layout."
        )
    return fits


def _asked(serving: Serving, limits: Limits, left_out: tuple[str, ...], pairing: str) -> Asked:
    """Return what was asked for, and how the ways of serving it compare."""
    return Asked(
        isl=serving.lengths.isl[0],
        osl=serving.lengths.osl[0],
        tpot_limit_s=limits.tpot_s,
        ttft_limit_s=limits.ttft_s,
        defaults=tuple(sorted(limits.usual)),
        left_out=left_out,
        priced_tok_s_per_gpu={
            name: row.output_tok_s_per_gpu for name, row in serving.bests(limits.tpot_s).items()
        },
        turns=tuple(serving.turns()),
        refused=serving.refused,
        pairing=pairing,
    )
