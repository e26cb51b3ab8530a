"""Spend moves where they gain most: a point of each layer's front within a budget, or up to a balancedness."""

from __future__ import annotations

import numpy as np

from placement.replan.front import Front

_CELLS = 1 << 28  # of the exact table, layers x budget x points; beyond, the hulls decide
_EQUAL = 1e-12


def within(front: Front, most: int) -> list[int]:
    """Return the point of each layer, moves at most ``most`` in all, with the smallest mean objective.

    Exact (a multiple-choice knapsack by dynamic programming over layers) up to a size, beyond it steps along the
    hulls by gain per move, and what then still fits.

    Raises
    ------
    ValueError
        If even the fewest moves are more than ``most``.
    """
    fewest = sum(points[0].moves for points in front.points)
    if fewest > most:
        raise ValueError(f"at least {fewest} moves are needed, more than {most}")
    spare = min(most, sum(points[-1].moves for points in front.points)) - fewest
    if (spare + 1) * sum(len(points) for points in front.points) <= _CELLS:
        return _exact(front, spare)
    return along_hulls(front, spare)


def _exact(front: Front, spare: int) -> list[int]:
    best = np.zeros(spare + 1)
    choices = []
    for points in front.points:
        total = best + points[0].value
        choice = np.zeros(spare + 1, dtype=np.int32)
        for index, point in enumerate(points[1:], start=1):
            more = point.moves - points[0].moves
            if more > spare:
                break
            trial = best[: spare + 1 - more] + point.value
            better = trial < total[more:] - _EQUAL
            total[more:][better] = trial[better]
            choice[more:][better] = index
        best = total
        choices.append(choice)
    chosen = []
    left = int(np.flatnonzero(best <= best.min() + _EQUAL)[0])  # no more moves than the best needs
    for points, choice in zip(reversed(front.points), reversed(choices), strict=True):
        index = int(choice[left])
        chosen.append(index)
        left -= points[index].moves - points[0].moves
    return chosen[::-1]


def along_hulls(front: Front, spare: int) -> list[int]:
    """Return the point of each layer with ``spare`` moves above the fewest spent by gain per move."""
    chosen = [0] * len(front.points)
    closed = set()
    for step in front.steps():
        if step.layer in closed or step.moves > spare:
            closed.add(step.layer)
            continue
        chosen[step.layer] = step.point
        spare -= step.moves
    for layer, points in enumerate(front.points):
        fits = [i for i, point in enumerate(points) if point.moves - points[chosen[layer]].moves <= spare]
        spare -= points[fits[-1]].moves - points[chosen[layer]].moves
        chosen[layer] = fits[-1]
    return chosen


def reaching(front: Front, balancedness: float) -> list[int]:
    """Return the point of each layer with few moves in all and a mean balancedness of at least ``balancedness``.

    Steps along the hulls by gain per move until it is reached, then back in each layer as far as it still is. The
    best balanced points where nothing reaches it.
    """
    chosen = [0] * len(front.points)
    short = balancedness * len(chosen) - sum(points[0].balancedness for points in front.points)
    for step in front.steps(balancedness=True):
        if short <= _EQUAL:
            break
        chosen[step.layer] = step.point
        short -= step.gain
    for layer, points in enumerate(front.points):
        now = points[chosen[layer]].balancedness
        enough = next(
            i for i, point in enumerate(points) if i == chosen[layer] or now - point.balancedness <= -short
        )
        short += now - points[enough].balancedness
        chosen[layer] = enough
    return chosen
