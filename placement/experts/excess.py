"""Excess of GPU loads over a target, at a price that rises: few moves come out that way.

Only ``+ - * /``, comparisons and sums in a fixed order decide: equal seeds give equal placements on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ldexp

import numpy as np

from placement.arrays import Experts, Floats, Index
from placement.experts.annealing import Annealing, Singles
from placement.experts.problem import Problem

OCTAVES = 10.0
"""The price of excess rises to 2 to the power of that."""

# moves by which a step may raise the cost in the mean, at the first price and at the last
_HEAT = 0.2, 0.02
_EXCHANGES_TRIED = 64  # exchanges looked at in each layer and step
_ROOM = 8.0  # moves that the square of a GPU's room below its target counts...
_CHEAP = 256.0  # ... at this price and above; below less


class ExcessAnnealing(Annealing):
    """What counts is what loads exceed their target, less a little for the square of the room below it.

    Room on few GPUs lets a move be taken back.
    """

    def look(self, price: float) -> None:
        """Take note of what room is worth at the price."""
        self.room = np.float32(_ROOM / max(price, _CHEAP))

    def energy(self, over: Singles, *_: object) -> Singles:
        """Return the excess, less a little for room."""
        room = np.minimum(over, 0)
        energy: Singles = over - room
        room *= room
        room *= self.room
        energy -= room
        return energy

    def add_swaps(self, total: Singles, mine: tuple[Index, Index], other: tuple[Index, Index]) -> None:
        """Add what swaps change, scenario by scenario."""
        (left, _), (right, _) = mine, other
        for over, gives, takes in zip(self.over, self.of_copies(*mine), self.of_copies(*other), strict=True):
            over_left, over_right = over[left], over[right]
            change = takes[None, :, :] - gives[:, None, :]
            more, less = (
                (change, change) if self.alike else (change * self.pace[left], change * self.pace[right])
            )
            gain = self.energy(over_left + more)
            gain += self.energy(over_right - less)
            gain -= self.energy(over_left) + self.energy(over_right)
            total += gain

    def excess(self) -> Singles:
        """Return the excess over all scenarios."""
        excess: Singles = np.maximum(self.over, 0).sum(axis=0)
        return excess


def relieve(
    problem: Problem,
    slot_expert: Experts,
    target: Floats,
    *,
    steps: int,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Experts:
    """Return ``[layers, slots]`` annealed from ``slot_expert`` towards ``target``; moves are free.

    ``target`` is of the largest over mean GPU load: ``[scenarios, layers]``, or ``[layers]`` under each load.
    ``stop`` is asked after each step.
    """
    wanted = np.broadcast_to(target, (problem.scenarios, problem.layers))
    annealing = ExcessAnnealing(problem, slot_expert, wanted, np.random.default_rng(seed))
    for _ in anneal_along(annealing, (0.0, OCTAVES), steps, _EXCHANGES_TRIED):
        if stop():
            break
    return annealing.slot_expert


def anneal_along(
    annealing: Annealing, octaves: tuple[float, float], steps: int, tried: int
) -> Iterator[float]:
    """Swap and exchange while the price rises and it cools; yield the price after each step.

    The price goes from 2 to the first of ``octaves`` to 2 to the second; ``tried`` as of :meth:`Annealing.exchange`.
    """
    first, last = octaves
    for step in range(steps):
        done = (step + 1) / steps
        price, heat = _between_powers(first + (last - first) * done), _HEAT[0] + (_HEAT[1] - _HEAT[0]) * done
        annealing.swap(price, heat)
        annealing.exchange(price, heat, tried)
        yield price


def _between_powers(octave: float) -> float:
    """Return 2 to the power of ``octave``, and between whole ones a line: the same on every machine."""
    return ldexp(1 + octave - int(octave), int(octave))
