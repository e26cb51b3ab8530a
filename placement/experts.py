"""Place experts: a fast constructive answer that beats the baselines, then search within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.baselines import Baseline, baselines
from placement.bounds import lower_bound
from placement.failure_domains import legal
from placement.fast_path import fast_placement
from placement.problem import ExpertProblem, max_loads, proven
from placement.result import ExpertResult
from placement.verify import verify_experts

OnProgress = Callable[[int, int, float, float, float], None]


def place_experts(
    problem: ExpertProblem,
    *,
    time_limit_s: float,
    seed: int,
    eplb_groups: int | None,
    nodes: int,
    on_progress: OnProgress | None = None,
) -> ExpertResult:
    """Place the experts of all layers of ``problem``.

    The fast path is deterministic; ``time_limit_s = 0`` runs it alone. ``eplb_groups`` (the model's expert
    groups) and ``nodes`` (the domains) are for the hierarchical baseline. ``on_progress`` is called with done
    layers, all layers, objective, bound and seconds. Every layer is at least as balanced as in each EPLB
    baseline, except where that one puts two copies in one failure domain and wins by it; the log names such
    layers. Copies are spread over failure domains as :func:`placement.failure_domains.most_in_domain` says.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread so.
    """
    from placement.anti_affinity import place_spread
    from placement.scenarios.problem import ScenarioProblem

    def place(some: ScenarioProblem, limit_s: float) -> ExpertResult:
        return place_apart(
            some.parts[0],
            time_limit_s=limit_s,
            seed=seed,
            eplb_groups=eplb_groups,
            nodes=nodes,
            on_progress=on_progress,
        )

    return place_spread(ScenarioProblem((problem,), "mean"), place, time_limit_s=time_limit_s)


def place_apart(
    problem: ExpertProblem,
    *,
    time_limit_s: float,
    seed: int,
    eplb_groups: int | None,
    nodes: int,
    on_progress: OnProgress | None = None,
) -> ExpertResult:
    """Place the experts with no two copies of one in a failure domain, parameters as in :func:`place_experts`.

    Raises
    ------
    InfeasibleError
        If a failure domain has more slots than there are experts.
    """
    named, rivals = problem, baselines(problem, eplb_groups=eplb_groups, nodes=nodes)
    order = np.argsort(-problem.loads, axis=1, kind="stable")
    problem = replace(problem, loads=np.take_along_axis(problem.loads, order, axis=1))
    bound = lower_bound(problem)
    slot_expert, bound, log = fast_placement(problem, _ranked(rivals, order), bound)
    interrupted = False
    if proven(max_loads(problem, slot_expert), bound).all():
        log += ("the fast placement reaches the bound in every layer: nothing is left to a solver",)
    elif time_limit_s > 0:
        from placement.timed import search

        found = search(
            problem, slot_expert, bound, time_limit_s=time_limit_s, seed=seed, on_progress=on_progress
        )
        slot_expert, interrupted = found.slot_expert, found.interrupted
        log += found.log
    slot_expert = np.take_along_axis(order, slot_expert.astype(np.int64), axis=1).astype(np.int32)
    return _result(named, slot_expert, bound, interrupted=interrupted, log=log, rivals=rivals)


def _ranked(rivals: Mapping[str, Baseline], order: Ints) -> dict[str, Baseline]:
    """Return the rivals with experts called by their place in ``order`` ``[layers, experts]``.

    The search sees experts by falling load, so that their names decide nothing, not even ties.
    """
    rank = np.argsort(order, axis=1)

    def renamed(rival: Baseline) -> Baseline:
        if rival.assignment is None:
            return rival
        slot_expert = np.take_along_axis(rank, rival.assignment.slot_expert.astype(np.int64), axis=1)
        return replace(rival, assignment=replace(rival.assignment, slot_expert=slot_expert.astype(np.int32)))

    return {name: renamed(rival) for name, rival in rivals.items()}


def _result(
    problem: ExpertProblem,
    slot_expert: Experts,
    bound: Floats,
    *,
    interrupted: bool,
    log: tuple[str, ...],
    rivals: Mapping[str, Baseline],
) -> ExpertResult:
    assignment = problem.assignment(slot_expert)
    wrong = np.flatnonzero(~legal(problem, slot_expert))
    if wrong.size:
        words = verify_experts(assignment, problem) or [f"row {wrong[0]}"]
        raise AssertionError(f"the placement found is not legal, which is a defect of rackplan: {words[0]}")
    max_load = problem.max_load(assignment)
    return ExpertResult(
        assignment=assignment,
        status="OPTIMAL" if proven(max_load, bound).all() else "FEASIBLE",
        max_load=max_load,
        bound=np.minimum(bound, max_load),  # a bound above the answer is rounding
        interrupted=interrupted,
        log=log,
        baselines=rivals,
    )
