"""A placement made for the split that will run: found for even shares, then fitted to the engine's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cost.split import require_split, slot_shares
from placement.bounds import largest_copy, mean_load, neighbours
from placement.lp_copies import SLACK, lp_max_load, place_for_lp
from placement.repair import distinct_copies
from placement.scenarios.problem import ScenarioProblem
from placement.source_copies import swap_under_source
from placement.verify import verify_experts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.split import Split
    from placement.experts import ExpertResult
    from placement.problem import ExpertProblem

__all__ = ["any_split_bound", "split_max_load", "under_split"]

_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


def under_split(
    result: ExpertResult,
    problem: ExpertProblem | ScenarioProblem,
    split: Split,
    nodes: NDArray[np.int64] | None = None,
) -> ExpertResult:
    """Return ``result``, found for even shares, fitted to ``split``: its copies, largest loads and bound.

    ``even``: returned as it is. ``source``: best swaps under the shares by source rank. ``lp``: copies that bear
    drift (:mod:`placement.lp_copies`). A layer where a baseline, its copies apart, has the smaller largest load takes
    that one's placement (with ``lp``: smaller by more than the slack).

    Parameters
    ----------
    problem:
        What ``result`` was found for.
    nodes:
        Node of each GPU, ``[gpus]``; matters to ``source`` alone.
    """
    if require_split(split) == "even":
        return result
    judge = _Judge(_parts(problem), _worst(problem), split, nodes)
    average = judge.average
    starts = [result.assignment.slot_expert, *_rivals(result, average)]
    log = list(result.log)
    if split == "lp":
        loads = [part.loads for part in judge.parts]
        slot_expert = place_for_lp(average, starts, loads, worst=judge.worst)
        log.append(f"copies for an LP split: the most connected within {SLACK:.1%} of the best")
    else:
        values = np.stack([judge.max_load(start) for start in starts])
        chosen = np.argmin(values, axis=0)
        slot_expert = np.stack([starts[which][layer] for layer, which in enumerate(chosen.tolist())])
        slot_expert = swap_under_source(average, slot_expert, judge.rows, nodes=nodes)
        better = int((judge.max_load(slot_expert) < values.min(axis=0)).sum())
        log.append(f"swaps under shares by source rank: {better} layers better")
    return _result(result, judge, slot_expert, tuple(log))


def split_max_load(
    problem: ExpertProblem | ScenarioProblem,
    slot_expert: NDArray[np.int32],
    split: Split,
    nodes: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Largest over mean GPU load under ``split``, mean or worst over scenarios, ``[layers]``; speeds count."""
    return _Judge(_parts(problem), _worst(problem), require_split(split), nodes).max_load(slot_expert)


def any_split_bound(problem: ExpertProblem | ScenarioProblem) -> NDArray[np.float64]:
    """What no placement can be below however the engine splits, ``[layers]``.

    Mean load, largest copy and the single copies beside an expert hold for any split: of c copies one has at least
    a c-th of the load. Over scenarios: the mean, or the worst, of their own bounds.
    """
    return _bound(_parts(problem), worst=_worst(problem))


def _bound(parts: Sequence[ExpertProblem], *, worst: bool) -> NDArray[np.float64]:
    each = np.stack(
        [np.maximum.reduce([mean_load(part), largest_copy(part), neighbours(part)]) for part in parts]
    )
    bound: NDArray[np.float64] = each.max(axis=0) if worst else each.mean(axis=0)
    return bound


@dataclass(frozen=True, eq=False)
class _Judge:
    """Largest loads under one split, over all scenarios."""

    parts: Sequence[ExpertProblem]
    worst: bool
    split: Split
    nodes: NDArray[np.int64] | None

    @property
    def average(self) -> ExpertProblem:
        loads = np.mean([part.loads for part in self.parts], axis=0)
        return replace(self.parts[0], loads=loads)

    def max_load(self, slot_expert: NDArray[np.int32]) -> NDArray[np.float64]:
        return self.rows(slot_expert, np.arange(len(slot_expert)))

    def rows(self, slot_expert: NDArray[np.int32], layers: NDArray[np.intp]) -> NDArray[np.float64]:
        """Judge rows ``[rows, slots]`` as those of ``layers`` ``[rows]``."""
        parts = [part.rows(layers) for part in self.parts]
        if self.split == "lp":
            each = np.stack([lp_max_load(part, slot_expert) for part in parts])
        else:
            assignment = parts[0].assignment(slot_expert)
            shares = slot_shares(assignment, self.split, nodes=self.nodes)
            busy = np.stack([assignment.gpu_load(part.loads, shares) / part.speed for part in parts])
            mean = np.stack([part.loads.sum(axis=1) / part.gpus for part in parts])
            each = busy.max(axis=2) / mean
        over: NDArray[np.float64] = each.max(axis=0) if self.worst else each.mean(axis=0)
        return over


def _parts(problem: ExpertProblem | ScenarioProblem) -> Sequence[ExpertProblem]:
    return problem.parts if isinstance(problem, ScenarioProblem) else (problem,)


def _worst(problem: ExpertProblem | ScenarioProblem) -> bool:
    return isinstance(problem, ScenarioProblem) and problem.objective == "worst"


def _rivals(result: ExpertResult, problem: ExpertProblem) -> list[NDArray[np.int32]]:
    """The baselines' placements, their copies apart; layers where that cannot be take the result's own."""
    found = []
    for rival in result.baselines.values():
        if rival.assignment is not None:
            apart, fits = distinct_copies(problem, rival.assignment.slot_expert)
            found.append(np.where(fits[:, None], apart, result.assignment.slot_expert))
    return found


def _result(
    result: ExpertResult, judge: _Judge, slot_expert: NDArray[np.int32], log: tuple[str, ...]
) -> ExpertResult:
    assignment = judge.average.assignment(slot_expert)
    wrong = verify_experts(assignment, judge.average)
    if wrong:
        raise AssertionError(f"the placement found is not legal, which is a defect of rackplan: {wrong[0]}")
    max_load = judge.max_load(slot_expert)
    bound = _bound(judge.parts, worst=judge.worst)
    return replace(
        result,
        assignment=assignment,
        status="OPTIMAL" if (max_load <= bound * (1 + _EQUAL)).all() else "FEASIBLE",
        max_load=max_load,
        bound=np.minimum(bound, max_load),
        log=log,
    )
