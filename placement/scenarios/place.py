"""Place experts once for several scenarios: fast and deterministic, then better within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from placement.anti_affinity import place_spread
from placement.arrays import Experts, Floats, Index
from placement.baselines import Baseline, baselines
from placement.copy_exchange import exchange_drawn
from placement.experts import place_apart, place_experts
from placement.failure_domains import legal
from placement.pack import distinct_copies, pack
from placement.replication import replicate
from placement.result import ExpertResult
from placement.scenario_search import descend, pairs, smooth_load
from placement.scenarios.problem import ScenarioProblem
from placement.verify import verify_experts

OnProgress = Callable[[int, int, float, float, float], None]


_EQUAL = 1e-9  # relative: the objective is the bound up to rounding
_ALIKE = 1e-3
_FAST_ROUNDS = 12  # of exchanges on the fast path, at most
_FAST_WORK = 120_000_000  # pairs of slots over layers and scenarios in them: a second or two
_ORDINARY = "the placement for the mean load"
_ROUNDS = 1_000_000  # more than any time limit allows


def place_over_scenarios(
    problem: ScenarioProblem,
    *,
    time_limit_s: float,
    seed: int,
    eplb_groups: int | None,
    nodes: int,
    on_progress: OnProgress | None = None,
) -> ExpertResult:
    """Place the experts of all layers of ``problem`` once for all its scenarios.

    What is kept small, layer by layer, is the mean over scenarios (or the worst of them) of the largest over the
    mean GPU load; ``max_load`` and ``bound`` of the result are that. The search itself minimises a smooth stand-in
    for it, which holds better on loads not seen. With ``time_limit_s = 0`` the answer is deterministic. No layer
    is worse over the scenarios given than the fast placement for the mean load, or than any baseline (planned on
    the mean load) that is legal there. The order of scenarios changes nothing. One scenario, or several that are
    alike, is the ordinary placement.

    Parameters
    ----------
    time_limit_s, seed, eplb_groups, nodes, on_progress:
        As in :func:`placement.experts.place_experts`.
    """
    problem = problem.sorted()
    if problem.single:
        return place_experts(
            problem.parts[0],
            time_limit_s=time_limit_s,
            seed=seed,
            eplb_groups=eplb_groups,
            nodes=nodes,
            on_progress=on_progress,
        )

    def place(some: ScenarioProblem, limit_s: float) -> ExpertResult:
        return _place_apart(
            some,
            time_limit_s=limit_s,
            seed=seed,
            eplb_groups=eplb_groups,
            nodes=nodes,
            on_progress=on_progress,
        )

    return place_spread(problem, place, time_limit_s=time_limit_s)


def _place_apart(
    problem: ScenarioProblem,
    *,
    time_limit_s: float,
    seed: int,
    eplb_groups: int | None,
    nodes: int,
    on_progress: OnProgress | None,
) -> ExpertResult:
    """Place with no two copies of an expert in a failure domain."""
    start = time.monotonic()
    rivals = baselines(problem.average, eplb_groups=eplb_groups, nodes=nodes)
    ordinary = place_apart(problem.average, time_limit_s=0, seed=0, eplb_groups=eplb_groups, nodes=nodes)
    bound = problem.lower_bound()
    slot_expert = fast_over_scenarios(problem)
    log = [
        f"{len(problem.parts)} scenarios at once: copies by each expert's highest load, best swaps, other counts"
    ]
    interrupted = False
    if time_limit_s > 0:
        interrupted, ran = _improve(problem, slot_expert, bound, start, time_limit_s, seed, on_progress)
        log.append(ran)
    log += _keep_up(problem, slot_expert, {**rivals, _ORDINARY: Baseline(ordinary.assignment)})
    return _result(problem, slot_expert, bound, interrupted=interrupted, log=tuple(log), rivals=rivals)


def fast_over_scenarios(problem: ScenarioProblem) -> Experts:
    """Copies by each expert's highest load in any scenario, largest first, best swaps, some exchanges of copies.

    Copies by the mean load leave an expert that is hot in one scenario with too few there. For the worst
    scenario the mean is also made small first, and that is taken where the worst is alike: where one scenario holds
    the worst up, the others stay good.
    Returns ``[layers, slots]``; deterministic.
    """
    packed = pack(problem.average, replicate(problem.highest))
    slot_expert = descend(problem, packed)
    if problem.objective == "worst":
        gentle = descend(problem, descend(problem.towards("mean"), packed))
        load, gentle_load = (
            problem.max_load(problem.average.assignment(row)) for row in (slot_expert, gentle)
        )
        slot_expert = np.where((gentle_load <= load * (1 + _ALIKE))[:, None], gentle, slot_expert)
    rounds = min(_FAST_ROUNDS, _FAST_WORK // (pairs(problem) * len(problem.parts) * len(slot_expert)))
    exchange_drawn(problem, slot_expert, np.random.default_rng(0), rounds=rounds)
    return slot_expert


def _improve(
    problem: ScenarioProblem,
    slot_expert: Experts,
    bound: Floats,
    start: float,
    time_limit_s: float,
    seed: int,
    on_progress: OnProgress | None,
) -> tuple[bool, str]:
    """Try other counts in place until the time is up; return whether Ctrl-C came first, and what ran."""
    ran = 0

    def round_done() -> None:
        nonlocal ran
        ran += 1
        if on_progress is not None:
            load = problem.max_load(problem.average.assignment(slot_expert))
            done = int((load <= bound * (1 + _EQUAL)).sum())
            on_progress(done, len(load), float(load.mean()), float(bound.mean()), time.monotonic() - start)

    interrupted = False
    before = smooth_load(problem, slot_expert)
    try:
        exchange_drawn(
            problem,
            slot_expert,
            np.random.default_rng(seed),
            rounds=_ROUNDS,
            keep_on=lambda: time.monotonic() - start < time_limit_s,
            on_round=round_done,
        )
    except KeyboardInterrupt:
        interrupted = True
    better = int((smooth_load(problem, slot_expert) < before).sum())
    text = f"other copy counts: {ran} rounds, {better} layers better in {time.monotonic() - start:.1f} s, seed {seed}"
    return interrupted, text + ("; interrupted: the best placement so far is kept" if interrupted else "")


def _keep_up(problem: ScenarioProblem, slot_expert: Experts, rivals: Mapping[str, Baseline]) -> list[str]:
    """Take a rival's placement, or what swaps make of it, in the layers where it is ahead, in place."""
    log = []
    for name, rival in rivals.items():
        if rival.assignment is None:
            continue
        load = problem.max_load(problem.average.assignment(slot_expert))
        ahead = np.flatnonzero(problem.max_load(rival.assignment) < load * (1 - _EQUAL))
        ahead, apart = _apart(problem, rival.assignment.slot_expert, ahead)
        if ahead.size == 0:
            continue
        part = problem.rows(ahead)
        swapped = descend(part, apart)
        loads = np.stack([part.max_load(part.average.assignment(rows)) for rows in (apart, swapped)])
        trial = np.where((loads[1] <= loads[0])[:, None], swapped, apart)
        won = loads.min(axis=0) < load[ahead] * (1 - _EQUAL)
        slot_expert[ahead[won]] = trial[won]
        if won.any():
            log.append(f"{name} is better over the scenarios and taken in {int(won.sum())} layers")
    return log


def _apart(problem: ScenarioProblem, rival: Experts, layers: Index) -> tuple[Index, Experts]:
    """Move a rival's copies to distinct GPUs in some layers; return where all domains are then distinct, and how."""
    if layers.size == 0:
        return layers, rival[layers]
    average = problem.average
    apart, fits = distinct_copies(average.rows(layers), rival[layers])
    fine = fits & legal(average, apart)
    return layers[fine], apart[fine]


def _result(
    problem: ScenarioProblem,
    slot_expert: Experts,
    bound: Floats,
    *,
    interrupted: bool,
    log: tuple[str, ...],
    rivals: Mapping[str, Baseline],
) -> ExpertResult:
    assignment = problem.average.assignment(slot_expert)
    wrong = verify_experts(assignment, problem.average)
    if wrong:
        raise AssertionError(f"the placement found is not legal, which is a defect of rackplan: {wrong[0]}")
    max_load = problem.max_load(assignment)
    return ExpertResult(
        assignment=assignment,
        status="OPTIMAL" if (max_load <= bound * (1 + _EQUAL)).all() else "FEASIBLE",
        max_load=max_load,
        bound=np.minimum(bound, max_load),  # a bound above the answer is rounding
        interrupted=interrupted,
        log=log,
        baselines=rivals,
    )
