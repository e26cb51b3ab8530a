"""The search near the old placements: anneal towards what is asked for, a share of a fresh plan or a budget of moves.

Excess is cheap at first, so that only moves are made that relieve much, and then it grows dear. Few moves come out
that way: starting dear fills every gap with whatever fits. What runs after each price is a point of the front.

Short runs at several targets show what moves would bring. Without a budget a long run follows, whose target in each
layer is what its fresh placement reaches, less what may be given up; with one, runs near what the budget pays for. A
layer that does not come near its fresh placement starts from that one instead and takes moves back, the dear first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Index
from placement.experts.excess import OCTAVES, ExcessAnnealing, anneal_along
from placement.migrate.front import Front, TaskFront, along_hulls

STEPS = 500
"""Steps of one pass over 58 layers on 72 GPUs with 4 slots each; more of few small layers, fewer of many."""

_PASS = (100, 800)  # fewest and most steps of a pass...
_FEWEST_STEPS = 30  # ... and fewest of a part of it
_CELLS = 58 * 72 * 16  # of [scenarios, layers, GPUs, slots, slots], the size for which STEPS are meant
_FIXED = 0.3  # of the time of a step at that size does not depend on it
_CHAINS, _CHAINED = 32, 2000  # copies of a small layer that are searched at once, and GPUs in all
_MOST_CELLS = 1 << 23  # of [layers, GPUs, experts] in one part
_EXCHANGES_TRIED = 8, 64  # exchanges looked at in each layer and step, at least and at most...
_TRIED_GPUS = 72 * 64  # ... and times GPUs
_STEP_COST, _CELL_COST = 1.0, 1e-4  # units of work in a step, and for each of its cells
_STEPS_A_CYCLE = 2  # steps from cycle to cycle: 2 to 5 % fewer moves than every 5, for 1.6 times the time
_CYCLE_PRICE_PART = 0.9
_RISE, _FALL = (0.0, OCTAVES), (OCTAVES, 6.0)  # the price, as powers of 2, from and to
_MARKS = 10  # states of a run that are put on the front
_TARGET_MARGIN = 2e-3  # of the target: aimed for so much less
_MIN_TARGET = 1.003  # times what the fresh placement reaches: not aimed for less
_SCOUTS = (0.5, 0.2, 0.07, 0.02)  # of the way from the fresh placement's load to the old one's...
_MAX_BUDGETS = 1.6  # ... until so many times the budget are moved
_SCOUT_STEPS, _NEAR_STEPS = 0.06, 0.23  # of a pass
_TARGET_STEP = 0.8  # of the excess at the point that a budget pays for: the next target


@dataclass(frozen=True, eq=False)
class Search:
    """One pass over some tasks, deterministic for a seed while ``keep_on`` says yes.

    Attributes
    ----------
    fronts:
        Of each task; placements are added. The first point of each layer is where the search starts.
    fresh:
        A placement made afresh of each task, ``[layers, slots]``; added too.
    balancedness, moves:
        A mean balancedness over all layers to reach; or, where ``moves`` is not None, the best within so many.
    effort:
        How many times as many steps as a pass needs.
    keep_on:
        Whether to go on, told the units of work (:class:`placement.budget.Budget`) that were done since it was asked.
    on_price:
        Hears of each price of excess when its states are on the front.
    """

    fronts: Sequence[TaskFront]
    fresh: Sequence[Experts]
    balancedness: float
    moves: int | None
    seed: int = 0
    effort: float = 1.0
    keep_on: Callable[[float], bool] = lambda _: True
    on_price: Callable[[float], None] = lambda _: None

    def run(self) -> None:
        """Make the pass."""
        starts = [front.placement([0] * front.task.problem.layers) for front in self.fronts]
        reached = [_peaks(front, fresh) for front, fresh in zip(self.fronts, self.fresh, strict=True)]
        excess = [
            np.maximum(_peaks(front, start) - peaks, 0)
            for front, start, peaks in zip(self.fronts, starts, reached, strict=True)
        ]
        joined = Front.joined(self.fronts)
        # with nothing to spend: show what moves would bring
        limit = self.moves if self.moves is not None and self.moves > joined.fewest else None
        for share in _SCOUTS:
            targets = [peaks + share * over for peaks, over in zip(reached, excess, strict=True)]
            self._anneal(starts, targets, share=_SCOUT_STEPS)
            if limit is not None and joined.most > _MAX_BUDGETS * limit:
                break
        if limit is None:
            self._to_balancedness(joined, starts, reached)
        else:
            for _ in range(2):
                chosen = iter(along_hulls(joined, limit - joined.fewest))
                near = [_peaks(front, front.placement(chosen)) for front in self.fronts]
                targets = [
                    peaks + _TARGET_STEP * np.maximum(there - peaks, 0)
                    for peaks, there in zip(reached, near, strict=True)
                ]
                self._anneal(starts, targets, share=_NEAR_STEPS)
        for front, fresh in zip(self.fronts, self.fresh, strict=True):
            front.add(np.arange(front.task.problem.layers), fresh)

    def _to_balancedness(self, joined: Front, starts: Sequence[Experts], reached: Sequence[Floats]) -> None:
        best = float(np.concatenate([(1 / peaks).mean(axis=0) for peaks in reached]).mean())
        factor = max(_MIN_TARGET, best / self.balancedness * (1 - _TARGET_MARGIN))
        targets = [peaks * factor for peaks in reached]
        self._anneal(starts, targets)
        if joined.total([-1] * len(joined.points)).balancedness < self.balancedness:
            far = [_far(front, target) for front, target in zip(self.fronts, targets, strict=True)]
            self._anneal(self.fresh, targets, _FALL, far)

    def _anneal(
        self,
        starts: Sequence[Experts],
        targets: Sequence[Floats],
        octaves: tuple[float, float] = _RISE,
        layers: Sequence[Index] | None = None,
        *,
        share: float = 1.0,
    ) -> None:
        """Anneal ``layers`` of each task (None: those that do not meet it) to its target ``[scenarios, layers]``.

        The price goes from 2 to the first of ``octaves`` to 2 to the second; ``share`` is of a pass.
        """
        for number, (front, start, target) in enumerate(zip(self.fronts, starts, targets, strict=True)):
            problem = front.task.problem
            rows = (
                np.flatnonzero((_peaks(front, start) > target).any(axis=0))
                if layers is None
                else layers[number]
            )
            working = int((problem.slots_per_gpu > 0).sum())
            size = max(1, _MOST_CELLS // (working * (problem.experts + 1)))
            chains = max(1, min(_CHAINS, _CHAINED // max(1, rows.size * working)))
            together = np.tile(rows, chains)
            slots = min(int(problem.slots_per_gpu.max()), ExcessAnnealing.columns)
            cells = problem.scenarios * together.size * working * slots**2
            steps = float(np.clip(STEPS / (_FIXED + (1 - _FIXED) * cells / _CELLS), *_PASS))
            steps = max(_FEWEST_STEPS, round(steps * share * self.effort))
            for first in range(0, together.size, size):
                if not self.keep_on(1.0):
                    return
                self._anneal_part(front, start, target, together[first : first + size], octaves, steps)

    def _anneal_part(
        self,
        front: TaskFront,
        start: Experts,
        target: Floats,
        layers: Index,
        octaves: tuple[float, float],
        steps: int,
    ) -> None:
        """Anneal some layers of a task; states on the way go to the front."""
        task, rng = front.task.rows(layers), np.random.default_rng(self.seed)
        annealing = ExcessAnnealing(task.problem, start[layers], target[:, layers], rng, task.old)
        tried = int(np.clip(_TRIED_GPUS // annealing.gpus, *_EXCHANGES_TRIED))
        marks = set(np.linspace(0, steps - 1, _MARKS + 1).round().astype(int)[1:].tolist())
        cells = task.problem.scenarios * layers.size * annealing.gpus * annealing.width**2
        told = -1
        for step, price in enumerate(anneal_along(annealing, octaves, steps, tried)):
            if step % _STEPS_A_CYCLE == _STEPS_A_CYCLE - 1:
                annealing.cycle(price, _CYCLE_PRICE_PART, exchange=step // _STEPS_A_CYCLE % 2 == 1)
            if step in marks:
                front.add(layers, annealing.slot_expert)
                self.on_price(price)
                if not self.keep_on((_STEP_COST + _CELL_COST * cells) * (step - told)):
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
