"""Place experts: a fast constructive answer that beats the baselines, then CP-SAT within a time limit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from placement.baselines import baselines
from placement.bounds import lower_bound
from placement.pack import pack
from placement.recount import recount
from placement.repair import distinct_copies
from placement.replicate import replicate
from placement.swap import swap_down
from placement.verify import verify_experts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from cost.assignment import Assignment
    from placement.baselines import Baseline
    from placement.problem import ExpertProblem

    OnProgress = Callable[[int, int, float, float, float], None]

__all__ = ["ExpertResult", "fast_placement", "place_experts"]

_EQUAL = 1e-9  # relative: the objective is the bound up to rounding
_ROUNDING = 1e-12  # a rival is not ahead by less
_WIDE = 5e-3  # the gap from which the fast path looks at other copy counts
_ROUNDS = 10  # of such a look
_HARD_ROUNDS, _HARD_TRIED = 100, 24  # where a rival is ahead
_COUNT_SHARE = 0.5  # of the time limit: then CP-SAT has the rest


@dataclass(frozen=True, eq=False)
class ExpertResult:
    """A placement of experts and how good it is; all loads are multiples of the mean GPU load.

    Attributes
    ----------
    assignment:
        The placement, legal by :func:`placement.verify.verify_experts`.
    status:
        ``OPTIMAL`` only where the recomputed objective equals the bound, else ``FEASIBLE``.
    max_load, bound:
        ``[layers]``: the largest GPU load, recomputed from the assignment, and what none can be below.
    interrupted:
        Whether Ctrl-C ended the search.
    log:
        What ran, in words.
    baselines:
        The rivals by name, each with an assignment or the reason why it does not apply.
    """

    assignment: Assignment
    status: Literal["OPTIMAL", "FEASIBLE"]
    max_load: NDArray[np.float64]
    bound: NDArray[np.float64]
    interrupted: bool
    log: tuple[str, ...]
    baselines: Mapping[str, Baseline]

    @property
    def objective(self) -> float:
        """Mean over layers of largest over mean GPU load."""
        return float(self.max_load.mean())

    @property
    def objective_bound(self) -> float:
        """Mean over layers of the bound."""
        return float(self.bound.mean())

    @property
    def gap(self) -> float:
        """How much of the objective may still be saved at most: ``(objective - bound) / objective``."""
        return 1.0 - self.objective_bound / self.objective


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
    baseline, except where that one puts two copies on one GPU and wins by it; the log names such layers.
    """
    rivals = baselines(problem, eplb_groups=eplb_groups, nodes=nodes)
    bound = lower_bound(problem)
    slot_expert, log = fast_placement(problem, rivals, bound)
    interrupted = False
    if _proven(problem.max_load(problem.assignment(slot_expert)), bound).all():
        log += ("the fast placement reaches the bound in every layer: nothing is left to a solver",)
    elif time_limit_s > 0:
        from placement.subpack import improve

        spent, interrupted, ran = _recount_timed(problem, slot_expert, bound, time_limit_s * _COUNT_SHARE)
        log += ran
        if not interrupted:
            left = time_limit_s - spent
            improved = improve(
                problem, slot_expert, bound, time_limit_s=left, seed=seed, on_progress=on_progress
            )
            slot_expert, interrupted = improved.slot_expert, improved.interrupted
            log += improved.log
    return _result(problem, slot_expert, bound, interrupted=interrupted, log=log, rivals=rivals)


def fast_placement(
    problem: ExpertProblem, rivals: Mapping[str, Baseline], bound: NDArray[np.float64]
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Greedy counts, largest first, best swaps; other counts, and a rival's start, where that falls short.

    Returns ``[layers, slots]`` and what ran, in words. Deterministic.
    """
    slot_expert = swap_down(problem, pack(problem, replicate(problem)))
    log = ["greedy counts, largest first, best swaps"]
    if int(problem.slots_per_gpu.max()) <= 1:
        log.append("one slot per GPU: greedy counts are provably optimal")
    wide = np.flatnonzero(problem.max_load(problem.assignment(slot_expert)) > bound * (1 + _WIDE))
    if wide.size:
        recount(problem, slot_expert, wide, rounds=_ROUNDS)
        log.append(f"other copy counts tried in {wide.size} layers with a gap above {_WIDE:.1%}")
    for name, rival in rivals.items():
        if rival.assignment is None:
            continue
        rival_load = problem.max_load(rival.assignment)
        behind = np.flatnonzero(
            problem.max_load(problem.assignment(slot_expert)) > rival_load * (1 + _ROUNDING)
        )
        if behind.size:
            better = _descend_from(problem, slot_expert, rival.assignment.slot_expert, behind)
            recount(problem, slot_expert, behind, rounds=_HARD_ROUNDS, tried=_HARD_TRIED)
            log.append(f"best swaps from {name}: {better} layers better")
        ahead = np.flatnonzero(problem.max_load(problem.assignment(slot_expert)) > rival_load * (1 + _EQUAL))
        if ahead.size:
            log.append(f"{name} is ahead with two copies of an expert on one GPU in rows {ahead.tolist()}")
    return slot_expert, tuple(log)


def _descend_from(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], rival: NDArray[np.int32], layers: NDArray[np.intp]
) -> int:
    """Start again from ``rival`` in some layers, its copies moved apart; keep and count what is better."""
    start, fits = distinct_copies(problem.rows(layers), rival[layers])
    layers, start = layers[fits], start[fits]
    if layers.size == 0:
        return 0
    part = problem.rows(layers)
    again = swap_down(part, start)
    recount(part, again, np.arange(layers.size), rounds=_HARD_ROUNDS, tried=_HARD_TRIED)
    better = part.max_load(part.assignment(again)) < part.max_load(part.assignment(slot_expert[layers]))
    slot_expert[layers[better]] = again[better]
    return int(better.sum())


def _recount_timed(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], bound: NDArray[np.float64], time_limit_s: float
) -> tuple[float, bool, tuple[str, ...]]:
    """Look at other counts in all layers with a gap, in place; return seconds, interrupted or not, a log."""
    start = time.monotonic()
    before = problem.max_load(problem.assignment(slot_expert))
    interrupted = False
    try:
        rounds = problem.slots  # more than any descent needs
        open_layers = np.flatnonzero(~_proven(before, bound))
        recount(
            problem,
            slot_expert,
            open_layers,
            rounds=rounds,
            keep_on=lambda: time.monotonic() - start < time_limit_s,
        )
    except KeyboardInterrupt:
        interrupted = True
    better = int((problem.max_load(problem.assignment(slot_expert)) < before).sum())
    spent = time.monotonic() - start
    ran = [f"other copy counts: {better} layers better in {spent:.1f} s"]
    if interrupted:
        ran.append("interrupted: the best placement so far is kept")
    return spent, interrupted, tuple(ran)


def _result(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    bound: NDArray[np.float64],
    *,
    interrupted: bool,
    log: tuple[str, ...],
    rivals: Mapping[str, Baseline],
) -> ExpertResult:
    assignment = problem.assignment(slot_expert)
    wrong = verify_experts(assignment, problem)
    if wrong:
        raise AssertionError(f"the placement found is not legal, which is a defect of rackplan: {wrong[0]}")
    max_load = problem.max_load(assignment)
    proven = _proven(max_load, bound)
    return ExpertResult(
        assignment=assignment,
        status="OPTIMAL" if proven.all() else "FEASIBLE",
        max_load=max_load,
        bound=np.minimum(bound, max_load),  # a bound above the answer is rounding
        interrupted=interrupted,
        log=log,
        baselines=rivals,
    )


def _proven(max_load: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.bool_]:
    reached: NDArray[np.bool_] = max_load <= bound * (1 + _EQUAL)
    return reached
