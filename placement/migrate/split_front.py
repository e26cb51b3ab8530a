"""From placements near the old one that suit an even split to those that suit the dispatch policy that runs.

The annealing searches for an even split. Their front holds good places to start from: what is on it is judged
again under the split that runs, and for a split by source swaps follow from several points of each layer, every
state on the way a point of the real front. So it does not matter how many of the moves are the annealing's and how
many the swaps'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np

from cost.experts.dispatch import depends_on_placement
from placement.arrays import Experts, Index, least_of_each
from placement.experts.dispatch_refinement import swap_round
from placement.experts.problem import Problem
from placement.migrate.front import TaskFront
from placement.migrate.start import Fresh
from placement.migrate.task import MigrationTask
from placement.progress import Say

_Key = tuple[int, bytes]
_MOST_WAYS = 20_000  # placements over layers and scenarios, all of which are judged


_ROUNDS = 60
_STARTS = (2, 8)
"""Points of a layer from which swaps start in one pass, at least and at most."""
_WORK = 300_000  # slots over layers, scenarios and starts in one pass, about
_POINTS = 12  # of a layer judged again under the split
_DONE_PEAK = 1.002  # times the fresh placement's objective: no more swaps in such a layer
_ROUND_COST = 1e-4  # units of work for a slot, a GPU and a scenario of a layer in one round
_PRICES_PHASE, _SWAPS_PHASE = "penalty on excess load {:g}", "swaps by source, round {}"


class SplitFront:
    """The front of one task under its split, and the one for an even split that the search works on.

    Parameters
    ----------
    start:
        The placement with the fewest moves, ``[layers, slots]``.
    fresh:
        Fresh placements near the old one.
    times:
        Replicas that the task is of.
    """

    def __init__(self, task: MigrationTask, start: Experts, fresh: Fresh, times: int = 1) -> None:
        self.problem = task.problem
        self.real = TaskFront(task, start, times)
        self.same = self.problem.split == "even"
        self.even = self.real if self.same else TaskFront(task.even, start, times)
        self.now = self.real
        self.fresh = fresh
        self.enough = self.problem.evaluate(fresh.fitted) * _DONE_PEAK
        if not self.same:
            self.real.add(np.arange(self.problem.layers), fresh.fitted)
        self._judged: set[_Key] = set()
        self._swapped: set[_Key] = set()

    @property
    def words(self) -> str:
        """What ran besides the annealing, for the log."""
        if self.same:
            return ""
        then = ", then swaps under shares by source rank" if depends_on_placement(self.problem.split) else ""
        return f" for an even split, evaluated under {self.problem.split}{then}"

    def say_price(self, say: Say) -> Callable[[float], None]:
        """What hears of a price of excess while the even front is searched, and tells ``say`` of it."""
        self.now = self.even
        words = _PRICES_PHASE if self.same else f"even split, {_PRICES_PHASE}"
        return lambda price: say(words.format(price))

    def fit(self, say: Say, keep_on: Callable[[float], bool]) -> None:
        """Go on from the even front to the split that runs; deterministic while ``keep_on`` says yes."""
        self.carry_over()
        self.now = self.real
        if depends_on_placement(self.problem.split):
            self._swap(say, keep_on)

    def add_all(self) -> bool:
        """Add the best of all placements for each number of moves, where they are few; return whether they are."""
        rows = all_placements(self.problem)
        if rows is None:
            return False
        for layer in range(self.problem.layers):
            layers = np.full(len(rows), layer)
            part = self.real.task.rows(layers)
            best = least_of_each(part.moves(rows), part.problem.evaluate(rows))
            self.real.add(layers[best], rows[best])
        return True

    def carry_over(self) -> None:
        """Judge points of the even front under the split that runs."""
        if self.same:
            return
        layers, rows = self._some(_POINTS, self._judged)
        if layers.size:
            self.real.add(layers, rows)
            self._judged.update(_keys(layers, rows))  # after it: Ctrl-C may come in between

    def _some(self, limit: int, done: set[_Key]) -> tuple[Index, Experts]:
        """Return points of each layer of the even front, both ends with them, that are not ``done`` yet."""
        layers, rows = [], []
        for layer, points in enumerate(self.even.points):
            for index in np.unique(np.linspace(len(points) - 1, 0, limit).round().astype(int)).tolist():
                row = points[index].slot_expert
                if (layer, row.tobytes()) not in done:
                    layers.append(layer)
                    rows.append(row)
        return np.array(layers, dtype=np.intp), np.array(rows, dtype=np.int32)

    def _swap(self, say: Say, keep_on: Callable[[float], bool]) -> None:
        """Swap copies off the hottest GPUs under the split, from several points of each layer at once."""
        problem = self.problem
        size = problem.layers * problem.slots * problem.scenarios
        layers, rows = self._some(int(np.clip(_WORK // size, *_STARTS)), self._swapped)
        if layers.size == 0:
            return
        self._swapped.update(_keys(layers, rows))
        part = problem.rows(layers)
        value = part.evaluate(rows)
        active = np.flatnonzero(value > self.enough[layers])
        cost = problem.slots * problem.gpus * problem.scenarios * _ROUND_COST
        for turn in range(_ROUNDS):
            if active.size == 0 or not keep_on(active.size * cost):
                return
            better = swap_round(part, rows, value, active)
            if better.size == 0:
                return
            self.real.add(layers[better], rows[better])
            say(_SWAPS_PHASE.format(turn + 1))
            active = better[value[better] > self.enough[layers[better]]]


def all_placements(problem: Problem) -> Experts | None:
    """Return every legal placement of one layer, ``[ways, slots]``; None where they are many."""
    held = [math.comb(problem.experts, slots) for slots in problem.slots_per_gpu.tolist()]
    if math.prod(held) * problem.layers * problem.scenarios > _MOST_WAYS:
        return None
    sets = [list(combinations(range(problem.experts), slots)) for slots in problem.slots_per_gpu.tolist()]
    rows = np.array([sum(chosen, ()) for chosen in product(*sets)], dtype=np.int32)
    return rows[problem.legal(rows)]


def _keys(layers: Index, rows: Experts) -> list[_Key]:
    """What tells placements of layers apart."""
    return [(layer, row.tobytes()) for layer, row in zip(layers.tolist(), rows, strict=True)]
