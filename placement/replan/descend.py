"""From the old placement down: fewer and fewer GPUs above a target load, each move at a rising price of excess.

For a target, excess over it is cheap at first, so that only moves are made that relieve much; then it grows dear.
Few moves come out that way: starting dear fills every gap with whatever fits. The state after each price is a
point of the front too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement.replan.cycles import WIDEST, Cycles

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from placement.replan.front import TaskFront

__all__ = ["explore"]


class _Sweep(NamedTuple):
    """A target as a multiple of the fresh placement's largest load, and (price, eagerness) by phase."""

    factor: float
    phases: tuple[tuple[float, float], ...]
    rounds: int


_FINE = ((10, 1.0), (20, 1.0), (40, 1.0), (80, 1.0), (200, 0.9), (500, 0.7), (1500, 0.6))
_COARSE = ((10, 1.0), (40, 1.0), (160, 0.8))
SWEEPS = (
    _Sweep(1.008, _FINE, 40),
    _Sweep(1.02, _COARSE, 20),
    _Sweep(1.05, _COARSE, 16),
    _Sweep(1.12, _COARSE, 12),
    _Sweep(1.30, _COARSE, 12),
    _Sweep(1.70, _COARSE, 12),
)
_FEWEST_ROUNDS = 4
_EFFORT = 30_000
"""Assignments of :data:`placement.replan.cycles.WIDEST` GPUs that one pass may take: some ten seconds."""
_CELLS = 1 << 23  # of [layers, GPUs, experts] in one part


def explore(
    front: TaskFront,
    fresh: NDArray[np.int32],
    *,
    seed: int,
    keep_on: Callable[[], bool] = lambda: True,
) -> None:
    """Add to ``front`` what one pass from its first points finds, for targets from loose to as good as ``fresh``.

    ``fresh`` is ``[layers, slots]``. Deterministic for a seed while ``keep_on`` says yes; a layer's result does not
    depend on the other layers but through their number.
    """
    task = front.task
    start = front.placement([0] * task.problem.layers)
    reached, now = task.peaks(fresh), task.peaks(start)
    if task.objective == "worst":
        reached = np.broadcast_to(reached.max(axis=0), reached.shape)
    work = [(sweep, np.flatnonzero((now > reached * sweep.factor).any(axis=0))) for sweep in SWEEPS]
    scale = _scale(front, work)
    size = max(1, _CELLS // (task.problem.gpus * (task.problem.experts + 1)))
    for sweep, layers in work:
        rounds = max(_FEWEST_ROUNDS, round(sweep.rounds * scale))
        for first in range(0, layers.size, size):
            part = layers[first : first + size]
            if not keep_on():
                return
            cycles = Cycles(
                task.rows(part), start[part], reached[:, part] * sweep.factor, np.random.default_rng(seed)
            )
            for price, eager in sweep.phases:
                cycles.run(rounds, price, eager, keep_on)
                front.add(part, cycles.slot_expert)


def _scale(front: TaskFront, work: list[tuple[_Sweep, NDArray[np.intp]]]) -> float:
    """By how much to multiply rounds: more for GPUs that do not all fit one assignment, fewer for many layers."""
    parts = max(1.0, front.task.problem.gpus / WIDEST)
    wanted = sum(sweep.rounds * len(sweep.phases) * layers.size for sweep, layers in work) * parts
    return parts * min(1.0, _EFFORT / max(wanted, 1.0))
