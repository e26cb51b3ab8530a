"""From the old placement down: fewer and fewer GPUs above a target load, each move at a rising price of excess.

For a target, excess over it is cheap at first, so that only moves are made that relieve much; then it grows dear.
Few moves come out that way: starting dear fills every gap with whatever fits. The state after each price is a
point of the front too. A layer that does not come near the fresh placement in this way starts from that one instead
and takes moves back, dear excess first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.replan.cycles import WIDEST, Cycles
from placement.replan.front import TaskFront


class _Sweep(NamedTuple):
    """A target as a multiple of the fresh placement's largest load, (price, eagerness) by phase, rounds of each."""

    factor: float
    phases: tuple[tuple[float, float], ...]
    rounds: int


_FINE = ((10, 1.0), (20, 1.0), (40, 1.0), (80, 1.0), (200, 0.9), (500, 0.7), (1500, 0.6))
_COARSE = ((10, 1.0), (40, 1.0), (160, 0.8))
DOWN = (
    _Sweep(1.006, _FINE, 40),
    _Sweep(1.02, _COARSE, 20),
    _Sweep(1.05, _COARSE, 16),
    _Sweep(1.12, _COARSE, 12),
    _Sweep(1.30, _COARSE, 12),
    _Sweep(1.70, _COARSE, 12),
)
CLOSER = _Sweep(1.003, _FINE, 60)
BACK = _Sweep(1.007, ((1500, 0.8), (300, 0.9), (80, 1.0)), 60)
_NEAR = 1.008  # times the fresh placement's objective, in the mean: near enough
_FEWEST_ROUNDS = 4
_EFFORT = 20_000
"""Assignments of :data:`placement.replan.cycles.WIDEST` GPUs that one pass down may take: some ten seconds."""
_CELLS = 1 << 23  # of [layers, GPUs, experts] in one part


def explore(
    front: TaskFront,
    fresh: NDArray[np.int32],
    *,
    seed: int,
    keep_on: Callable[[], bool] = lambda: True,
    on_price: Callable[[float], None] = lambda _: None,
) -> None:
    """Add to ``front`` what one pass finds, for targets from as good as ``fresh`` to loose.

    ``fresh`` is ``[layers, slots]``; it is added too. Deterministic for a seed while ``keep_on`` says yes.
    ``on_price`` hears of each price of excess when its states are on the front.
    """
    task = front.task
    start = front.placement([0] * task.problem.layers)
    reached, now = task.peaks(fresh), task.peaks(start)
    if task.objective == "worst":
        reached = np.broadcast_to(reached.max(axis=0), reached.shape)
    work = [(sweep, np.flatnonzero((now > reached * sweep.factor).any(axis=0))) for sweep in DOWN]
    run = _Run(front, reached, _scale(front, work), seed, keep_on, on_price)
    for sweep, layers in work:
        run.sweep(sweep, start, layers)
    run.sweep(CLOSER, start, run.far(fresh))
    far = run.far(fresh)
    front.add(np.arange(task.problem.layers), fresh)
    run.sweep(BACK, fresh, far)


@dataclass(frozen=True, eq=False)
class _Run:
    """What all sweeps of a pass share; ``reached`` ``[scenarios, layers]`` are the peaks of the fresh placement."""

    front: TaskFront
    reached: NDArray[np.float64]
    scale: float
    seed: int
    keep_on: Callable[[], bool]
    on_price: Callable[[float], None]

    def sweep(self, sweep: _Sweep, start: NDArray[np.int32], layers: NDArray[np.intp]) -> None:
        """Go through the phases of ``sweep`` from ``start`` in some layers; add the state after each."""
        problem = self.front.task.problem
        rounds = max(_FEWEST_ROUNDS, round(sweep.rounds * self.scale))
        size = max(1, _CELLS // (problem.gpus * (problem.experts + 1)))
        for first in range(0, layers.size, size):
            part = layers[first : first + size]
            if not self.keep_on():
                return
            cycles = Cycles(
                self.front.task.rows(part),
                start[part],
                self.reached[:, part] * sweep.factor,
                np.random.default_rng(self.seed),
            )
            for price, eager in sweep.phases:
                cycles.run(rounds, price, eager, self.keep_on)
                self.front.add(part, cycles.slot_expert)
                self.on_price(price)

    def far(self, fresh: NDArray[np.int32]) -> NDArray[np.intp]:
        """The layers that are not near the fresh placement; none where all are near it in the mean."""
        best = np.array([points[-1].value for points in self.front.points])
        ratio = best / self.front.task.value(fresh)
        return np.flatnonzero(ratio > (_NEAR if ratio.mean() > _NEAR else np.inf))


def _scale(front: TaskFront, work: list[tuple[_Sweep, NDArray[np.intp]]]) -> float:
    """By how much to multiply rounds: more for GPUs that do not all fit one assignment, fewer for many layers."""
    gpus = front.task.problem.gpus
    parts = max(1.0, gpus / WIDEST)
    each = min(1.0, gpus / WIDEST) ** 1.5  # seconds of an assignment grow about like this
    wanted = parts * each * sum(sweep.rounds * len(sweep.phases) * layers.size for sweep, layers in work)
    return float(parts * min(1.0, _EFFORT / max(wanted, 1.0)))
