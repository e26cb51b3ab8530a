"""Place experts: a fast constructive answer that beats the baselines, then search within a time limit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from placement.apart import legal
from placement.baselines import baselines
from placement.bounds import lower_bound
from placement.bounds_priced import priced
from placement.counts import exact_fold, search_counts
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
_CLOSE = 2e-3  # to the mean load: where the fast path stops swapping, and what no engine can measure
_WIDE = 5e-3  # the gap from which other copy counts are looked at
_TRIED = 16  # exchanges of copies a step
_WORK = 32_000_000  # copies packed in such a look of the fast path, all layers together...
_FIXED_ROWS = (
    2500  # ... where a step of NumPy costs as much as so many rows (largest first, one copy at a time)
)
_FEWEST_STEPS, _MOST_STEPS = 24, 400  # ... but so many steps at least and at most
_HARD_ROUNDS, _HARD_TRIED = 100, 24  # where a rival is ahead
_FOLD_SHARE, _COUNT_SHARE = 0.85, 0.6  # of the time limit: then CP-SAT has the rest
_PROGRESS_S = 0.1


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
    baseline, except where that one puts two copies in one failure domain and wins by it; the log names such
    layers.

    Raises
    ------
    InfeasibleError
        If a failure domain has more slots than there are experts.
    """
    rivals = baselines(problem, eplb_groups=eplb_groups, nodes=nodes)
    bound = lower_bound(problem)
    slot_expert, bound, log = fast_placement(problem, rivals, bound)
    interrupted = False
    if _proven(_max_load(problem, slot_expert), bound).all():
        log += ("the fast placement reaches the bound in every layer: nothing is left to a solver",)
    elif time_limit_s > 0:
        search = _Timed(problem, slot_expert, bound, time_limit_s, on_progress)
        slot_expert, interrupted = search.run(seed)
        log += tuple(search.log)
    return _result(problem, slot_expert, bound, interrupted=interrupted, log=log, rivals=rivals)


def fast_placement(
    problem: ExpertProblem, rivals: Mapping[str, Baseline], bound: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.float64], tuple[str, ...]]:
    """Greedy counts, largest first, best swaps; other counts, and a rival's start, where that falls short.

    Returns ``[layers, slots]``, the bound ``[layers]`` (raised where a gap was wide and prices prove more) and
    what ran, in words. Deterministic.
    """
    copies = replicate(problem)
    slot_expert = swap_down(problem, pack(problem, copies), close=_CLOSE)
    log = ["greedy counts, largest first, best swaps"]
    if int(problem.slots_per_gpu.max()) <= 1 and (problem.speed == problem.speed[0]).all():
        log.append("one slot per GPU: greedy counts are provably optimal")
    wide = _wide(problem, slot_expert, bound)
    if wide.size:
        bound = bound.copy()
        bound[wide] = priced(problem.rows(wide), bound[wide], _max_load(problem, slot_expert)[wide])
        wide = _wide(problem, slot_expert, bound)
    if wide.size:
        steps = _fast_steps(problem, wide.size)
        part = problem.rows(wide)
        found, _ = search_counts(part, copies[wide], tried=_TRIED, spent=_counter(steps))
        _keep_better(problem, slot_expert, wide, swap_down(part, pack(part, found), close=_CLOSE))
        log.append(
            f"other copy counts tried in {wide.size} layers with a gap above {_WIDE:.1%}: {steps} steps"
        )
    for name, rival in rivals.items():
        if rival.assignment is not None:
            log += _not_behind(problem, slot_expert, name, rival.assignment)
    return slot_expert, bound, tuple(log)


def _not_behind(
    problem: ExpertProblem, slot_expert: NDArray[np.int32], name: str, rival: Assignment
) -> list[str]:
    """Search on, in place, in the layers where a rival is ahead; return what ran, in words."""
    log = []
    rival_load = problem.max_load(rival)
    behind = np.flatnonzero(_max_load(problem, slot_expert) > rival_load * (1 + _ROUNDING))
    if behind.size:
        better = _descend_from(problem, slot_expert, rival.slot_expert, behind)
        recount(problem, slot_expert, behind, rounds=_HARD_ROUNDS, tried=_HARD_TRIED)
        log.append(f"best swaps from {name}: {better} layers better")
        ahead = np.flatnonzero(_max_load(problem, slot_expert) > rival_load * (1 + _EQUAL))
        if ahead.size:
            log.append(
                f"{name} is ahead with two copies of an expert in one failure domain in rows {ahead.tolist()}"
            )
    return log


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
    return _keep_better(problem, slot_expert, layers, again)


class _Timed:
    """The search within a time limit: swaps to the end, copy counts, then CP-SAT on a few GPUs at a time."""

    def __init__(
        self,
        problem: ExpertProblem,
        slot_expert: NDArray[np.int32],
        bound: NDArray[np.float64],
        time_limit_s: float,
        on_progress: OnProgress | None,
    ) -> None:
        self.problem, self.slot_expert, self.bound = problem, slot_expert, bound
        self.time_limit_s, self.on_progress = time_limit_s, on_progress
        self.start = self.told = time.monotonic()
        self.log: list[str] = []

    def run(self, seed: int) -> tuple[NDArray[np.int32], bool]:
        """Return the best placement ``[layers, slots]``, and whether Ctrl-C ended the search."""
        from placement.subpack import improve

        try:
            interrupted = self._counts(seed)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            self.log.append("interrupted: the best placement so far is kept")
            return self.slot_expert, True
        spent = self._spent()
        improved = improve(
            self.problem,
            self.slot_expert,
            self.bound,
            time_limit_s=self.time_limit_s - spent,
            seed=seed,
            on_progress=None if self.on_progress is None else self._later(self.on_progress, spent),
        )
        self.log += improved.log
        return improved.slot_expert, improved.interrupted

    def _counts(self, seed: int) -> bool:
        """Swap to the end, then look at other counts in all layers with a wide gap; return if interrupted."""
        before = _max_load(self.problem, self.slot_expert)
        everyone = np.flatnonzero(~_proven(before, self.bound))
        part = self.problem.rows(everyone)
        _keep_better(self.problem, self.slot_expert, everyone, swap_down(part, self.slot_expert[everyone]))
        wide = _wide(self.problem, self.slot_expert, self.bound, self._least_gap())
        if wide.size == 0:
            return False
        # Given the counts the fold is exact: CP-SAT, which deals out copies again, has nothing to add.
        limit_s = self.time_limit_s * (_FOLD_SHARE if exact_fold(self.problem) else _COUNT_SHARE)
        part = self.problem.rows(wide)
        start = part.assignment(self.slot_expert[wide]).copies
        tried = _TRIED if wide.size > 4 else 3 * _TRIED
        found, interrupted = search_counts(
            part, start, tried=tried, spent=lambda: self._tell() / limit_s, seed=seed
        )
        _keep_better(self.problem, self.slot_expert, wide, swap_down(part, pack(part, found)))
        if not interrupted:
            recount(
                self.problem,
                self.slot_expert,
                wide,
                rounds=self.problem.slots,  # more than any descent needs
                keep_on=lambda: self._tell() < (limit_s + self.time_limit_s) / 2,
            )
        better = int((_max_load(self.problem, self.slot_expert) < before).sum())
        self.log.append(f"swaps and other copy counts: {better} layers better in {self._spent():.1f} s")
        return interrupted

    def _least_gap(self) -> float:
        """The gap from which other counts are worth a look: packing alone does better below."""
        return _WIDE if int(self.problem.slots_per_gpu.max()) > 2 else _WIDE / 10

    def _spent(self) -> float:
        return time.monotonic() - self.start

    def _tell(self) -> float:
        """Report the incumbent now and then; return the seconds spent."""
        spent = self._spent()
        if self.on_progress is not None and self.start + spent - self.told >= _PROGRESS_S:
            self.told = self.start + spent
            load = _max_load(self.problem, self.slot_expert)
            done = int(_proven(load, self.bound).sum())
            self.on_progress(
                done,
                self.problem.layers,
                float(load.mean()),
                float(np.minimum(self.bound, load).mean()),
                spent,
            )
        return spent

    @staticmethod
    def _later(tell: OnProgress, seconds: float) -> OnProgress:
        def told(done: int, layers: int, objective: float, bound: float, spent: float) -> None:
            tell(done, layers, objective, bound, spent + seconds)

        return told


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
    wrong = np.flatnonzero(~legal(problem, slot_expert))
    if wrong.size:
        words = verify_experts(assignment, problem) or [f"row {wrong[0]}"]
        raise AssertionError(f"the placement found is not legal, which is a defect of rackplan: {words[0]}")
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


def _keep_better(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    layers: NDArray[np.intp],
    again: NDArray[np.int32],
) -> int:
    """Take the rows of ``again`` that are better than ``slot_expert[layers]``, in place; return how many."""
    part = problem.rows(layers)
    better = _max_load(part, again) < _max_load(part, slot_expert[layers])
    slot_expert[layers[better]] = again[better]
    return int(better.sum())


def _max_load(problem: ExpertProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.float64]:
    return problem.max_load(problem.assignment(slot_expert))


def _wide(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    bound: NDArray[np.float64],
    gap: float = _WIDE,
) -> NDArray[np.intp]:
    """Return the layers with a gap above ``gap`` to their bound."""
    return np.flatnonzero(_max_load(problem, slot_expert) > bound * (1 + gap))


def _fast_steps(problem: ExpertProblem, layers: int) -> int:
    """Return how many steps of the count search the fast path affords."""
    rows = layers * _TRIED + (0 if exact_fold(problem) else _FIXED_ROWS)
    return int(np.clip(_WORK // (rows * problem.slots), _FEWEST_STEPS, _MOST_STEPS))


def _counter(steps: int) -> Callable[[], float]:
    """Return what counts up from 0 to 1 in ``steps`` calls."""
    count = iter(range(steps + 1))
    return lambda: next(count, steps) / steps


def _proven(max_load: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.bool_]:
    reached: NDArray[np.bool_] = max_load <= bound * (1 + _EQUAL)
    return reached
