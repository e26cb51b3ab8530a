"""A placement made for the split that will run: found for even shares, then fitted to the engine's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.dispatch import Split, require_split, slot_shares
from placement.anti_affinity import spread_evenly
from placement.arrays import Experts, Floats, Index, Ints
from placement.bounds import largest_copy, mean_load, neighbours
from placement.failure_domains import can_be_apart, legal
from placement.lp_copies import SLACK, lp_max_load, place_for_lp
from placement.pack import distinct_copies
from placement.problem import ExpertProblem
from placement.result import ExpertResult
from placement.scenarios.problem import ScenarioProblem
from placement.source_copies import swap_under_source
from placement.verify import verify_experts

_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


def under_split(
    result: ExpertResult, problem: ExpertProblem | ScenarioProblem, split: Split, nodes: Ints | None = None
) -> ExpertResult:
    """Return ``result``, found for even shares, fitted to ``split``: its copies, largest loads and bound.

    ``even``: returned as it is. ``source``: best swaps under the shares by source rank, until within the slack.
    ``lp``: copies that bear drift (:mod:`placement.lp_copies`). A layer where a baseline, its copies apart, has the
    smaller largest load (with ``lp``: by more than the slack) takes that one's placement.

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
    bound = _bound(judge.parts, worst=judge.worst)
    log = list(result.log)
    own = result.assignment.slot_expert
    if split == "lp":
        slot_expert = _connected(judge, own, bound)
        log.append(f"copies for an LP split: the most connected within {SLACK:.1%} of the best")
    else:
        enough = bound * (1 + SLACK)
        slot_expert = swap_under_source(average, own, judge.rows, nodes=nodes, enough=enough)
        better = int((judge.max_load(slot_expert) < judge.max_load(own)).sum())
        log.append(f"swaps under shares by source rank: {better} layers better")
    log += _keep_up(result, judge, slot_expert)
    return _result(result, judge, slot_expert, bound, tuple(log))


def split_max_load(
    problem: ExpertProblem | ScenarioProblem, slot_expert: Experts, split: Split, nodes: Ints | None = None
) -> Floats:
    """Largest over mean GPU load under ``split``, mean or worst over scenarios, ``[layers]``; speeds count."""
    return _Judge(_parts(problem), _worst(problem), require_split(split), nodes).max_load(slot_expert)


def any_split_bound(problem: ExpertProblem | ScenarioProblem) -> Floats:
    """What no placement can be below however the engine splits, ``[layers]``.

    Mean load, largest copy and the single copies beside an expert hold for any split: of c copies one has at least
    a c-th of the load. Over scenarios: the mean, or the worst, of their own bounds. Failure domains are left out:
    an expert may have more copies than domains.
    """
    return _bound(_parts(problem), worst=_worst(problem))


def _bound(parts: Sequence[ExpertProblem], *, worst: bool) -> Floats:
    free = [replace(part, spread=None) for part in parts]
    each = np.stack(
        [np.maximum.reduce([mean_load(part), largest_copy(part), neighbours(part)]) for part in free]
    )
    bound: Floats = each.max(axis=0) if worst else each.mean(axis=0)
    return bound


@dataclass(frozen=True, eq=False)
class _Judge:
    """Largest loads under one split, over all scenarios."""

    parts: Sequence[ExpertProblem]
    worst: bool
    split: Split
    nodes: Ints | None

    @property
    def average(self) -> ExpertProblem:
        loads = np.mean([part.loads for part in self.parts], axis=0)
        return replace(self.parts[0], loads=loads)

    def max_load(self, slot_expert: Experts) -> Floats:
        return self.rows(slot_expert, np.arange(len(slot_expert)))

    def rows(self, slot_expert: Experts, layers: Index) -> Floats:
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
        over: Floats = each.max(axis=0) if self.worst else each.mean(axis=0)
        return over


def _connected(judge: _Judge, own: Experts, bound: Floats) -> Experts:
    """Return ``[layers, slots]`` with copies that bear drift; ``own`` where its copies are too many to lie apart.

    Of such layers those made without failure domains are spread evenly, and taken where they are as good.
    """
    average = judge.average
    slot_expert = own.copy()
    lies_apart = legal(average, own) if can_be_apart(average) else np.zeros(len(own), dtype=bool)
    for evenly, rows in ((False, np.flatnonzero(lies_apart)), (True, np.flatnonzero(~lies_apart))):
        if rows.size == 0:
            continue
        part = average.rows(rows)
        loads = [scenario.loads[rows] for scenario in judge.parts]
        free = replace(part, spread=None) if evenly else part
        found = place_for_lp(free, [own[rows]], loads, worst=judge.worst, bound=bound[rows])
        if evenly:
            found, fine = spread_evenly(part, found)
            value = judge.rows(found, rows)
            fine &= value <= judge.rows(own[rows], rows) * (1 + SLACK)
            found[~fine] = own[rows[~fine]]
        slot_expert[rows] = found
    return slot_expert


def _parts(problem: ExpertProblem | ScenarioProblem) -> Sequence[ExpertProblem]:
    return problem.parts if isinstance(problem, ScenarioProblem) else (problem,)


def _worst(problem: ExpertProblem | ScenarioProblem) -> bool:
    return isinstance(problem, ScenarioProblem) and problem.objective == "worst"


def _keep_up(result: ExpertResult, judge: _Judge, slot_expert: Experts) -> list[str]:
    """Take a baseline's placement, its copies apart, in the layers where it is ahead, in place; say so."""
    slack = SLACK if judge.split == "lp" else 0.0
    value, log = judge.max_load(slot_expert), []
    for name, rival in result.baselines.items():
        if rival.assignment is None:
            continue
        theirs = rival.assignment.slot_expert
        ahead = np.flatnonzero(judge.max_load(theirs) * (1 + slack) < value * (1 - _EQUAL))
        if ahead.size == 0:
            continue
        spread = distinct_copies if can_be_apart(judge.average) else spread_evenly
        apart, fits = spread(judge.average.rows(ahead), theirs[ahead])
        after = judge.rows(apart, ahead)
        better = fits & (after * (1 + slack) < value[ahead] * (1 - _EQUAL))
        taken = ahead[better]
        slot_expert[taken], value[taken] = apart[better], after[better]
        if taken.size:
            log.append(f"{name} is better under the split and taken in {taken.size} layers")
    return log


def _result(
    result: ExpertResult, judge: _Judge, slot_expert: Experts, bound: Floats, log: tuple[str, ...]
) -> ExpertResult:
    assignment = judge.average.assignment(slot_expert)
    wrong = verify_experts(assignment, judge.average)
    if wrong:
        raise AssertionError(f"the placement found is not legal, which is a defect of rackplan: {wrong[0]}")
    max_load = judge.max_load(slot_expert)
    return replace(
        result,
        assignment=assignment,
        status="OPTIMAL" if (max_load <= bound * (1 + _EQUAL)).all() else "FEASIBLE",
        max_load=max_load,
        bound=np.minimum(bound, max_load),
        log=log,
    )
