"""Copies spread over few failure domains: in different ones where that is good enough, else evenly over all.

With as many domains as an expert wants copies, all lie in different ones, and the placement made so stays. Over
fewer a hot expert needs more copies than there are domains. The placement made without domains is then repaired
(:mod:`placement.spread_repair`), swaps that keep the rule follow, and layer by layer that is taken where it is
better. Where copies suffice for two of every expert, so that all outlive a failure, all have two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placement.apart import can_be_apart, domain_slots, domains_used, each_alone, over_cap
from placement.bounds_priced import priced
from placement.pack import pack
from placement.replicate import counts_fit, replicate, room
from placement.result import ExpertResult
from placement.scenarios.problem import ScenarioProblem
from placement.spread_repair import spread_evenly
from placement.swap import swap_down
from topology.errors import InfeasibleError

Floats = NDArray[np.float64]
Place = Callable[[ScenarioProblem, float], ExpertResult]


LEAST_GAIN = 0.01
"""Of the largest load: for less, copies stay in different failure domains."""

_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


def place_spread(problem: ScenarioProblem, place: Place, *, time_limit_s: float) -> ExpertResult:
    """Return a placement with copies spread over the failure domains of ``problem``.

    ``place`` makes one with no expert twice in a domain, in so many seconds. Where that cannot be, or could be
    better by more than :data:`LEAST_GAIN` with more copies of an expert than domains, what it makes without domains
    is spread evenly. The bound holds for any placement with copies spread evenly.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread evenly.
    """
    average = problem.average
    if each_alone(average):
        return place(problem, time_limit_s)
    free = problem.without_spread()
    lowest = free.lower_bound()
    if not can_be_apart(average):
        if domains_used(average) == 1:
            domain_slots(average)  # raises: a second copy in the only domain is worth nothing
        return _all_evenly(problem, place(free, time_limit_s))
    apart = _with_bound(place(problem, time_limit_s), free, lowest)
    if domains_used(average) == 1:
        return apart
    fits = counts_fit(replicate(free.highest), room(domain_slots(average)))
    rows = np.flatnonzero(~fits & (apart.max_load > lowest * (1 + LEAST_GAIN)))
    return _best_of(problem, apart, rows, place(free.rows(rows), 0.0)) if rows.size else apart


def _with_bound(result: ExpertResult, free: ScenarioProblem, lowest: Floats) -> ExpertResult:
    """Return ``result`` with a bound that holds for more copies than failure domains too."""
    bound = result.bound.copy()
    doubtful = np.flatnonzero(bound > lowest * (1 + _EQUAL))
    if doubtful.size == 0:
        return result
    bound[doubtful] = lowest[doubtful]
    if len(free.parts) == 1:
        part = free.parts[0].rows(doubtful)
        proved = priced(part, lowest[doubtful], result.max_load[doubtful])
        bound[doubtful] = np.minimum(proved, result.bound[doubtful])
    return _judged(replace(result, bound=bound))


def _all_evenly(problem: ScenarioProblem, found: ExpertResult) -> ExpertResult:
    """Return ``found``, made without failure domains, with its copies spread evenly."""
    made = found.assignment.slot_expert
    if problem.average.slots >= 2 * problem.average.experts:
        made = _in_twos(problem.without_spread())
    slot_expert, fine = _spread(problem, made)
    if not fine.all():
        average = problem.average
        slots = np.bincount(average.failure_domain, weights=average.slots_per_gpu).astype(int)
        raise InfeasibleError(
            f"row {int(np.argmin(fine))}: no way was found to spread copies of {average.experts} experts evenly over "
            f"failure domains of {slots.tolist()} slots: give fewer --redundant or a narrower --spread."
        )
    return _result(problem, found, slot_expert, np.arange(len(slot_expert)))


def _best_of(
    problem: ScenarioProblem, apart: ExpertResult, rows: NDArray[np.intp], found: ExpertResult
) -> ExpertResult:
    """Take ``found``, made without failure domains for some ``rows``, spread evenly, where that is better."""
    part = problem.rows(rows)
    made = found.assignment.slot_expert.copy()
    safe = np.flatnonzero((apart.assignment.copies[rows] > 1).all(axis=1))
    if safe.size:
        made[safe] = _in_twos(part.rows(safe).without_spread())
    slot_expert, fine = _spread(part, made)
    load = part.max_load(part.average.assignment(slot_expert))
    better = fine & (load < apart.max_load[rows] * (1 - LEAST_GAIN))
    joined, bound = apart.assignment.slot_expert.copy(), apart.bound.copy()
    joined[rows[better]] = slot_expert[better]
    bound[rows] = found.bound
    return _result(problem, replace(apart, bound=bound), joined, rows[better])


def _in_twos(free: ScenarioProblem) -> NDArray[np.int32]:
    """Place with at least two copies of every expert, without failure domains, ``[layers, slots]``."""
    return _swapped(free, pack(free.average, replicate(free.highest, least=2)))


def _swapped(problem: ScenarioProblem, slot_expert: NDArray[np.int32]) -> NDArray[np.int32]:
    from placement.scenarios.descend import descend

    one = len(problem.parts) == 1
    return swap_down(problem.parts[0], slot_expert) if one else descend(problem, slot_expert)


def _spread(
    problem: ScenarioProblem, slot_expert: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Spread copies evenly, then swap while it helps; return ``[layers, slots]`` and where that is legal."""
    spread, fine = spread_evenly(problem.average, slot_expert)
    rows = np.flatnonzero(fine)
    if rows.size:
        spread[rows] = _swapped(problem.rows(rows), spread[rows])
    return spread, fine


def _result(
    problem: ScenarioProblem, base: ExpertResult, slot_expert: NDArray[np.int32], evenly: NDArray[np.intp]
) -> ExpertResult:
    average = problem.average
    if over_cap(average, slot_expert).any():
        raise AssertionError("copies are not spread over failure domains, which is a defect of rackplan")
    assignment = average.assignment(slot_expert)
    words = f"copies spread evenly over {domains_used(average)} failure domains in {evenly.size} layers"
    log = (*base.log, *([words] if evenly.size else []))
    max_load = problem.max_load(assignment)
    return _judged(replace(base, assignment=assignment, max_load=max_load, log=log))


def _judged(result: ExpertResult) -> ExpertResult:
    """Return ``result`` with the status that goes with its loads and bound."""
    proven = (result.max_load <= result.bound * (1 + _EQUAL)).all()
    bound = np.minimum(result.bound, result.max_load)
    return replace(result, status="OPTIMAL" if proven else "FEASIBLE", bound=bound)
