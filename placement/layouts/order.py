"""Stages over unlike domains in their best order: of any groups, and of the layout that a plan has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.layouts.candidates import Group, domain_gpus
from cost.layouts.order_search import exchanged_order, split_in_order
from cost.layouts.stage_order import OrderProblem, StageOrder
from cost.layouts.stages import Pricer
from cost.layouts.unlike_stages import differs, order_problem
from placement.budget import Budget
from placement.layouts.choose import Placed, candidates, place
from placement.layouts.fitting import Fitting, batch_that_fits, fitted, stage_slots, wanted_batch
from placement.layouts.shapes import Shape
from placement.options import PlanOptions
from placement.plan import OrderProof
from topology.base.errors import InfeasibleError

ORDER_S = 5.0
"""Of the solver's own seconds that the order of stages is worth at most, besides the work for the experts."""
STEP_ROUNDING = 1e-6
"""Part of the step that integers of the solver may lose: nearer to the bound than this is the best there is."""
PROOF_SHARE = 0.4
"""Part of the time to prove that nothing is shorter, with hops as short as any are: mostly it is enough."""


def solve_order(
    problem: OrderProblem,
    budget: Budget | None = None,
    *,
    known: Sequence[Sequence[int]] = (),
    seed: int = 0,
    worth_s: float = 10.0,
) -> StageOrder:
    """Return the order of groups and the split of the layers whose step is shortest, with a proven bound.

    Parameters
    ----------
    budget:
        Ctrl-C, and whether exchanges alone are wanted. The best so far is returned, never worse than those of
        ``known``.
    known:
        Orders to begin with.
    worth_s:
        Of the solver's own seconds, counted in steps: the same on every machine.

    Raises
    ------
    InfeasibleError
        If no order and no split has room, proven; or none was found in time.
    """
    from placement.layouts.order_model import least_seconds, none_within, search_order

    budget = (budget or Budget(None)).fixed(worth_s)
    best, bound_s, search = (
        exchanged_order(problem, known),
        least_seconds(problem),
        "exchanges of groups only",
    )
    if best is not None and best.step_s > bound_s * (1 + STEP_ROUNDING) and budget.goes_on():
        shorter_s = best.step_s * (1 - STEP_ROUNDING / 4)
        if none_within(problem, shorter_s, budget.part(PROOF_SHARE), seed=seed):
            bound_s, search = shorter_s, "CP-SAT assigns layers to groups; hops do not bind"
    if best is None or (best.step_s > bound_s * (1 + STEP_ROUNDING) and budget.goes_on()):
        best, bound_s, search = search_order(problem, best, budget, least_s=bound_s, seed=seed)
    if best is None:
        fits = "fits in HBM" if np.isinf(bound_s) else "that fits in HBM was found within the time limit"
        raise InfeasibleError(
            f"no split of {problem.layers} layers into {problem.stages} consecutive stages, in any order of "
            f"{problem.groups} groups, {fits} ({problem.capacity.min() / 1e9:.1f} GB usable on the smallest GPU)."
        )
    status = "OPTIMAL" if best.step_s <= bound_s * (1 + STEP_ROUNDING) else "FEASIBLE"
    return replace(best, bound_s=min(best.step_s, bound_s), status=status, search=search)


def improve_order(
    target: Deployment, placed: Placed, loads: ExpertLoads | None, options: PlanOptions, budget: Budget
) -> tuple[Placed, OrderProof | None]:
    """Return a layout with its stages in the best order over unlike domains, never a slower one, and what is proven.

    Idle domains may take the place of those in use. A layout of one stage, of several replicas, or on domains that
    are all alike comes back as it is, without a proof. ``target`` has the batch that was asked for.
    """
    candidate = placed.candidate
    deployment, layout = candidate.deployment, candidate.layout
    if layout.stages == 1 or len(layout.replicas) > 1 or not differs(deployment):
        return placed, None
    groups = _with_idle_domains(deployment, [stage.gpus for stage in layout.replicas[0]])
    current, ranges = tuple(range(layout.stages)), tuple(stage.layers for stage in layout.replicas[0])
    sequences = float(deployment.workload.batch * layout.gpus_used)
    problem = order_problem(
        Pricer(deployment, options.copies), groups, sequences=sequences, stages=layout.stages, tp=layout.tp
    )
    if len(set(problem.alike)) == 1:
        return placed, None
    try:
        solved = solve_order(problem, budget, known=[current], seed=options.seed, worth_s=ORDER_S)
    except InfeasibleError:
        return placed, None  # slots by free HBM fit where even ones do not
    objective = problem.step_seconds(current, ranges)
    better = None
    if solved.step_s < objective:
        shape = Shape((tuple(groups[group] for group in solved.order),), **layout.widths)
        better = _best_placed(target, placed, shape, solved.ranges, loads, options)
    if better is not None and better.worth > placed.worth:
        placed = replace(better, passed_over=placed.passed_over, service_level=placed.service_level)
        objective, used = solved.step_s, solved.order
    else:
        used = current
    bound = min(solved.bound_s, objective)
    in_turn = sorted(used, key=groups.__getitem__)
    split = split_in_order(problem, in_turn)
    status = "OPTIMAL" if solved.status == "OPTIMAL" and objective <= solved.step_s else "FEASIBLE"
    return placed, OrderProof(
        status,
        objective,
        bound,
        max(0.0, 1 - bound / objective),
        None if split is None else problem.step_seconds(in_turn, split),
        solved.search,
    )


def _with_idle_domains(deployment: Deployment, groups: list[Group]) -> list[Group]:
    """Return the groups, and whole domains of which no GPU is in use that are as large as one of them."""
    used = {gpu for group in groups for gpu in group}
    sizes = {len(group) for group in groups}
    idle = (domain for domain in domain_gpus(deployment.cluster) if not used & set(domain))
    return groups + [domain for domain in idle if len(domain) in sizes]


def _best_placed(
    target: Deployment,
    placed: Placed,
    shape: Shape,
    ranges: tuple[range, ...],
    loads: ExpertLoads | None,
    options: PlanOptions,
) -> Placed | None:
    """Return the shape with its experts placed, split for the batch there was or its largest; None if none fits."""
    slots = stage_slots(target, shape, options.copies, options.spread)
    if slots is None:
        return None
    fitting = Fitting(shape, slots, batch_that_fits(target, shape, slots))
    old = placed.candidate.deployment
    best: Placed | None = None
    for deployment, fit in ((old, fitted(old, fitting, ranges)), (target, fitted(target, fitting))):
        if fit is None or not options.admits(fit.layout):
            continue
        batch = wanted_batch(target.workload, fit.scorer.max_batch, shape.tp)
        resized = replace(fit, batch=batch, fixed=placed.candidate.fitted.fixed)
        limit_s, aim = placed.candidate.limit_s, placed.candidate.aim
        for candidate in candidates(deployment, [resized], limit_s, aim):
            trial = place(candidate, loads, options)
            if trial.meets and (best is None or trial.worth > best.worth):
                best = trial
    return best
