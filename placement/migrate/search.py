"""The search near the old placements: anneal towards what is asked for, a share of a fresh plan or a budget of moves.

Excess is cheap at first, so that only moves are made that relieve much, and then it grows dear. Few moves come out
that way: starting dear fills every gap with whatever fits. What runs after each price is a point of the front.

Without a budget the target of each layer is what its fresh placement reaches, less what may be given up. With one,
short runs at several targets show which of them the budget pays for, and the search goes on near these. A layer that
does not come near its fresh placement in this way starts from that one instead and takes moves back, dear excess
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Index
from placement.experts.excess import HEAT, OCTAVES, ExcessAnnealing, between_powers
from placement.migrate.front import Front, TaskFront, along_hulls

STEPS = 500
"""Steps of one pass over 58 layers on 72 GPUs with 4 slots each; more of few small layers, fewer of many."""

_PASS = (100, 800)  # fewest and most steps of a pass...
_FEWEST_STEPS = 30  # ... and fewest of a part of it
_CELLS = 58 * 72 * 16  # of [scenarios, layers, GPUs, slots, slots], the size for which STEPS are meant
_FIXED = 0.3  # of the time of a step at that size does not depend on it
_CHAINS, _CHAINED = 32, 2000  # copies of a small layer that are searched at once, and GPUs in all
_MOST_CELLS = 1 << 23  # of [layers, GPUs, experts] in one part
_TRIED, _TRIED_GPUS = 64, 72  # exchanges looked at in each layer and step, on so many GPUs; fewer on more...
_FEWEST_TRIED = 8  # ... but so many
_STEP_COST, _CELL_COST = 1.0, 1e-4  # units of work in a step, and for each of its cells
_EVERY = 2  # steps from cycle to cycle: 2 to 5 % fewer moves than every 5, for 1.6 times the time
_EAGER = 0.9
_RISE, _FINISH, _FALL = (
    (0.0, OCTAVES),
    (8.0, OCTAVES),
    (OCTAVES, 6.0),
)  # the price, as powers of 2, from and to
_MARKS = 10  # states of a run that are put on the front
_MARGIN = 2e-3  # of the target: aimed for so much less
_LEAST = 1.003  # times what the fresh placement reaches: not aimed for less
_CLOSER = 0.5  # of the distance to the fresh placement, where the first run did not come near...
_AGAIN = 0.3  # ... and steps of a pass for that
_SCOUTS = (0.6, 0.35, 0.18, 0.08, 0.02)  # of the way from the fresh placement's load to the old one's...
_BEYOND = 1.6  # ... until so many times the budget are moved
_CURVE = (0.5, 0.2, 0.07)  # without a budget, for those who read from the front what one would bring
_SCOUT_STEPS, _NEAR_STEPS = 0.06, 0.2  # of a pass, with a budget
_NEARER = 0.8  # of the excess at the point that a budget pays for: the next target


@dataclass(frozen=True)
class Aim:
    """A mean balancedness over all layers to reach; or, where ``moves`` is not None, the best within so many."""

    balancedness: float
    moves: int | None


@dataclass(frozen=True, eq=False)
class Search:
    """One pass over some tasks, deterministic for a seed while ``keep_on`` says yes.

    Attributes
    ----------
    fronts:
        Of each task; what is found is added. The first point of each layer is where the search starts.
    fresh:
        A placement made afresh of each task, ``[layers, slots]``; added too.
    effort:
        How many times as many steps as a pass needs.
    keep_on:
        Whether to go on, told the units of work (:class:`placement.budget.Budget`) that were done since it was asked.
    on_price:
        Hears of each price of excess when its states are on the front.
    """

    fronts: Sequence[TaskFront]
    fresh: Sequence[Experts]
    aim: Aim
    seed: int = 0
    effort: float = 1.0
    keep_on: Callable[[float], bool] = lambda _: True
    on_price: Callable[[float], None] = lambda _: None

    def run(self) -> None:
        """Make the pass."""
        starts = [front.placement([0] * front.task.problem.layers) for front in self.fronts]
        reached = [_peaks(front, fresh) for front, fresh in zip(self.fronts, self.fresh, strict=True)]
        joined = Front.joined(self.fronts)
        if self.aim.moves is None or self.aim.moves <= joined.fewest:
            # nothing to spend: show what moves would bring
            self._to_balancedness(starts, reached)
        else:
            self._within_budget(starts, reached, self.aim.moves)
        for front, fresh in zip(self.fronts, self.fresh, strict=True):
            front.add(np.arange(front.task.problem.layers), fresh)

    def _to_balancedness(self, starts: Sequence[Experts], reached: Sequence[Floats]) -> None:
        best = float(np.concatenate([(1 / peaks).mean(axis=0) for peaks in reached]).mean())
        factor = max(_LEAST, best / self.aim.balancedness * (1 - _MARGIN))
        for share in _CURVE:
            self._scout(starts, reached, share)
        for front, start, peaks in zip(self.fronts, starts, reached, strict=True):
            self._anneal(front, start, peaks * factor)
        for octaves in (_FINISH, _RISE):
            if self._reached():
                return
            for front, start, peaks in zip(self.fronts, starts, reached, strict=True):
                target = peaks * (1 + _CLOSER * (factor - 1))
                nearest = start if octaves is _RISE else front.best
                self._anneal(front, nearest, target, _far(front, peaks * factor), octaves, share=_AGAIN)
        if self._reached():
            return
        for front, fresh, peaks in zip(self.fronts, self.fresh, reached, strict=True):
            self._anneal(front, fresh, peaks * factor, _far(front, peaks * factor), _FALL)

    def _reached(self) -> bool:
        joined = Front.joined(self.fronts)
        return joined.total([-1] * len(joined.points)).balancedness >= self.aim.balancedness

    def _within_budget(self, starts: Sequence[Experts], reached: Sequence[Floats], most: int) -> None:
        joined = Front.joined(self.fronts)
        spare = most - joined.fewest
        for share in _SCOUTS:
            self._scout(starts, reached, share)
            if joined.most > _BEYOND * most:
                break
        for _ in range(2):
            chosen = iter(along_hulls(joined, spare))
            for front, start, peaks in zip(self.fronts, starts, reached, strict=True):
                there = _peaks(front, front.placement(chosen))
                target = peaks + _NEARER * np.maximum(there - peaks, 0)
                self._anneal(front, start, target, share=_NEAR_STEPS)

    def _scout(self, starts: Sequence[Experts], reached: Sequence[Floats], share: float) -> None:
        """Anneal for a short time to a target so far from the fresh placements' loads to the old ones'."""
        for front, start, peaks in zip(self.fronts, starts, reached, strict=True):
            target = peaks + share * np.maximum(_peaks(front, start) - peaks, 0)
            self._anneal(front, start, target, share=_SCOUT_STEPS)

    def _anneal(
        self,
        front: TaskFront,
        start: Experts,
        target: Floats,
        layers: Index | None = None,
        octaves: tuple[float, float] = _RISE,
        *,
        share: float = 1.0,
    ) -> None:
        """Anneal ``layers`` (None: those that do not meet it) from ``start`` to ``target`` ``[scenarios, layers]``.

        The price goes from 2 to the first of ``octaves`` to 2 to the second. States on the way go to the front.
        """
        problem = front.task.problem
        if layers is None:
            layers = np.flatnonzero((_peaks(front, start) > target).any(axis=0))
        working = int((problem.slots_per_gpu > 0).sum())
        size = max(1, _MOST_CELLS // (working * (problem.experts + 1)))
        chains = max(1, min(_CHAINS, _CHAINED // max(1, layers.size * working)))
        together = np.tile(layers, chains)
        slots = min(int(problem.slots_per_gpu.max()), 5)
        cells = problem.scenarios * together.size * working * slots**2
        steps = STEPS / (_FIXED + (1 - _FIXED) * cells / _CELLS)
        steps = max(_FEWEST_STEPS, round(float(np.clip(steps, *_PASS)) * share * self.effort))
        for first in range(0, together.size, size):
            part = together[first : first + size]
            if not self.keep_on(1.0):
                return
            self._anneal_part(front, start, target, part, octaves, steps)

    def _anneal_part(
        self,
        front: TaskFront,
        start: Experts,
        target: Floats,
        layers: Index,
        octaves: tuple[float, float],
        steps: int,
    ) -> None:
        rng = np.random.default_rng(self.seed)
        task = front.task.rows(layers)
        annealing = ExcessAnnealing(task.problem, start[layers], target[:, layers], rng, task.old)
        tried = max(_FEWEST_TRIED, min(_TRIED, _TRIED * _TRIED_GPUS // annealing.gpus))
        marks = set(np.linspace(0, steps - 1, _MARKS + 1).round().astype(int)[1:].tolist())
        told = -1
        cells = front.task.problem.scenarios * layers.size * annealing.gpus
        cost = _STEP_COST + _CELL_COST * cells * annealing.width**2
        for step in range(steps):
            done = (step + 1) / steps
            octave = octaves[0] + (octaves[1] - octaves[0]) * done
            price = between_powers(octave)
            heat = HEAT[0] + (HEAT[1] - HEAT[0]) * octave / OCTAVES
            annealing.swap(price, heat)
            annealing.exchange(price, heat, tried)
            if step % _EVERY == _EVERY - 1:
                annealing.cycle(price, _EAGER, exchange=step // _EVERY % 2 == 1)
            if step in marks:
                front.add(layers, annealing.slot_expert)
                self.on_price(price)
                if not self.keep_on(cost * (step - told)):
                    return
                told = step


def _peaks(front: TaskFront, slot_expert: Experts) -> Floats:
    """Largest over mean GPU load, ``[scenarios, layers]``; for the worst scenario, that of all."""
    peaks = front.task.problem.peaks(slot_expert)
    if front.task.problem.objective == "worst":
        return np.broadcast_to(peaks.max(axis=0), peaks.shape)
    return peaks


def _far(front: TaskFront, peaks: Floats) -> Index:
    """The layers whose best point has a larger objective than ``peaks`` ``[scenarios, layers]`` would have."""
    now = np.array([points[-1].value for points in front.points])
    return np.flatnonzero(now > front.task.problem.over_scenarios(peaks))
