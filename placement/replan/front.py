"""The front of imbalance against moves: for each layer the placements that no other one beats in both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.replan.task import ReplanTask

_LEAST_GAIN = 1e-9  # of the objective: a move that gains less is not worth it


class Point(NamedTuple):
    """A placement of one layer: its moves, objective, balancedness, and the expert of each slot ``[slots]``."""

    moves: int
    value: float
    balancedness: float
    slot_expert: NDArray[np.int32]


class Step(NamedTuple):
    """Going from one point of a layer's lower hull to the next: what it costs and what it gains."""

    layer: int
    point: int
    moves: int
    gain: float


@dataclass(frozen=True)
class CurvePoint:
    """A point of the front over all layers: a real placement.

    ``objective`` is the mean over layers of largest over mean GPU load, ``balancedness`` the mean of its inverse.
    """

    moves: int
    objective: float
    balancedness: float


class Front:
    """Points of every layer by rising moves, each strictly better balanced than the one before."""

    def __init__(self, points: list[list[Point]]) -> None:
        self.points = points

    @classmethod
    def joined(cls, fronts: Sequence[Front]) -> Front:
        """The layers of several fronts, one after another; points added to either are in both."""
        return cls([points for front in fronts for points in front.points])

    def steps(self, *, balancedness: bool = False) -> list[Step]:
        """Return the steps along the lower hulls of all layers, the largest gain per move first.

        The steps of one layer come in order. The gain is of the objective, or of ``balancedness``.
        """
        steps = []
        for layer, points in enumerate(self.points):
            good = [point.balancedness if balancedness else -point.value for point in points]
            at = 0
            while at + 1 < len(points):
                rest = range(at + 1, len(points))
                slope = [(good[i] - good[at]) / (points[i].moves - points[at].moves) for i in rest]
                to = at + 1 + int(np.argmax(slope))
                gain = good[to] - good[at]
                if gain <= 0:
                    break
                steps.append(Step(layer, to, points[to].moves - points[at].moves, gain))
                at = to
        return sorted(steps, key=lambda step: (-step.gain / step.moves, step.layer, step.point))

    def curve(self, most: int = 24) -> list[CurvePoint]:
        """Return at most ``most`` points of the front over all layers, from the fewest moves to the best balance."""
        chosen = [0] * len(self.points)
        found = [self._total(chosen)]
        for step in self.steps():
            chosen[step.layer] = step.point
            found.append(self._total(chosen))
        keep = np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int))
        return [found[i] for i in keep]

    def _total(self, chosen: Sequence[int]) -> CurvePoint:
        picked = [points[index] for points, index in zip(self.points, chosen, strict=True)]
        return CurvePoint(
            sum(point.moves for point in picked),
            sum(point.value for point in picked) / len(picked),
            sum(point.balancedness for point in picked) / len(picked),
        )


class TaskFront(Front):
    """The front of one task: from ``start`` ``[layers, slots]`` with the fewest moves on."""

    def __init__(self, task: ReplanTask, start: NDArray[np.int32]) -> None:
        super().__init__([[] for _ in range(task.problem.layers)])
        self.task = task
        self.allowed = task.sharing(start)
        self.add(np.arange(task.problem.layers), start)

    def add(self, layers: NDArray[np.intp], slot_expert: NDArray[np.int32]) -> None:
        """Add placements ``[n, slots]`` of ``layers`` ``[n]``, but those beaten or sharing more failure domains."""
        part = self.task.rows(layers)
        moves, (value, balance) = part.moves(slot_expert), part.judged(slot_expert)
        fine = part.sharing(slot_expert) <= self.allowed[layers]
        for i in np.flatnonzero(fine):
            row = slot_expert[i].copy()
            _insert(
                self.points[int(layers[i])], Point(int(moves[i]), float(value[i]), float(balance[i]), row)
            )

    def placement(self, chosen: Sequence[int]) -> NDArray[np.int32]:
        """Return the chosen point of each layer as ``[layers, slots]``."""
        rows = [points[index].slot_expert for points, index in zip(self.points, chosen, strict=True)]
        return np.array(rows, dtype=np.int32)


def _insert(points: list[Point], point: Point) -> None:
    """Put a point in its place, unless it is beaten; what it beats goes."""
    at = bisect_left(points, point.moves, key=lambda other: other.moves)
    same = at < len(points) and points[at].moves == point.moves
    if at > 0 and points[at - 1].value <= point.value + _LEAST_GAIN:
        return
    if same and points[at].value <= point.value:
        return
    end = at
    while end < len(points) and points[end].value >= point.value - _LEAST_GAIN:
        end += 1
    points[at:end] = [point]
