"""The front of imbalance against moves, and the point of it to take.

For each layer the front has the placements that no other one beats in both. A budget is spent where moves gain most;
without one the fewest moves up to a balancedness are taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placement.arrays import Experts, Index
from placement.migrate.task import MigrationTask
from topology.base.units import added

_WORTH = 1e-9  # of the objective: a move that gains less is not worth it


class Point(NamedTuple):
    """A placement of one layer: its moves, objective, balancedness, and the expert of each slot ``[slots]``."""

    moves: int
    value: float
    balancedness: float
    slot_expert: Experts


class HullStep(NamedTuple):
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
    """Points of every layer by rising moves, each strictly better balanced than the one before.

    ``times`` are the replicas that each layer's points are of: what moves or is gained counts in each of them.
    """

    def __init__(self, points: list[list[Point]], times: Sequence[int] | None = None) -> None:
        self.points = points
        self.times = [1] * len(points) if times is None else list(times)

    @classmethod
    def joined(cls, fronts: Sequence[Front]) -> Front:
        """The layers of several fronts, one after another; points added to either are in both."""
        times = [count for front in fronts for count in front.times]
        return cls([points for front in fronts for points in front.points], times)

    @property
    def fewest(self) -> int:
        """The fewest moves of all layers."""
        return sum(points[0].moves * times for points, times in zip(self.points, self.times, strict=True))

    @property
    def most(self) -> int:
        """The moves of the best balanced points."""
        return sum(points[-1].moves * times for points, times in zip(self.points, self.times, strict=True))

    def steps(self, *, balancedness: bool = False) -> list[HullStep]:
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
                times = self.times[layer]
                steps.append(HullStep(layer, to, times * (points[to].moves - points[at].moves), times * gain))
                at = to
        return sorted(steps, key=lambda step: (-step.gain / step.moves, step.layer, step.point))

    def along(self, limit: int = 24) -> list[list[int]]:
        """Return at most ``limit`` points of the front over all layers, from the fewest moves to the best balance.

        Each is the chosen point of each layer, as :meth:`total` takes it.
        """
        chosen = [0] * len(self.points)
        points = [chosen.copy()]
        for step in self.steps():
            chosen[step.layer] = step.point
            points.append(chosen.copy())
        keep = np.unique(np.linspace(0, len(points) - 1, min(limit, len(points))).round().astype(int))
        return [points[number] for number in keep]

    def total(self, chosen: Sequence[int]) -> CurvePoint:
        """Return the point over all layers of the chosen point of each."""
        picked = [
            (points[index], times)
            for points, index, times in zip(self.points, chosen, self.times, strict=True)
        ]
        return CurvePoint(
            sum(point.moves * times for point, times in picked),
            added(point.value * times for point, times in picked) / sum(self.times),
            added(point.balancedness * times for point, times in picked) / sum(self.times),
        )


class TaskFront(Front):
    """The front of one task: from ``start`` ``[layers, slots]`` with the fewest moves on."""

    def __init__(self, task: MigrationTask, start: Experts, times: int = 1) -> None:
        layers = task.problem.layers
        super().__init__([[] for _ in range(layers)], [times] * layers)
        self.task = task
        self.allowed = task.problem.over_cap(start)
        self.add(np.arange(task.problem.layers), start)

    def add(self, layers: Index, slot_expert: Experts) -> None:
        """Add placements ``[n, slots]`` of ``layers`` ``[n]``, but those beaten or sharing more failure domains."""
        part = self.task.rows(layers)
        moves, (value, balance) = part.moves(slot_expert), part.judged(slot_expert)
        fine = part.problem.over_cap(slot_expert) <= self.allowed[layers]
        for i in np.flatnonzero(fine):
            row = slot_expert[i].copy()
            _insert(
                self.points[int(layers[i])], Point(int(moves[i]), float(value[i]), float(balance[i]), row)
            )

    @property
    def best(self) -> Experts:
        """The best balanced point of each layer, ``[layers, slots]``."""
        return self.placement([-1] * len(self.points))

    def placement(self, chosen: Iterable[int]) -> Experts:
        """Return the chosen point of each layer as ``[layers, slots]``; takes no more of ``chosen`` than it needs."""
        rows = [points[index].slot_expert for points, index in zip(self.points, chosen, strict=False)]
        return np.array(rows, dtype=np.int32)


def _insert(points: list[Point], point: Point) -> None:
    """Put a point in its place, unless it is beaten; what it beats goes."""
    at = bisect_left(points, point.moves, key=lambda other: other.moves)
    same = at < len(points) and points[at].moves == point.moves
    if at > 0 and points[at - 1].value <= point.value + _WORTH:
        return
    if same and points[at].value <= point.value:
        return
    end = at
    while end < len(points) and points[end].value >= point.value - _WORTH:
        end += 1
    points[at:end] = [point]


_CELLS = 1 << 28  # of the exact table, layers x budget x points; beyond, the hulls decide
_SAME = 1e-12


def within(front: Front, limit: int) -> list[int]:
    """Return the point of each layer, moves at most ``limit`` in all, with the smallest mean objective.

    Exact (a multiple-choice knapsack by dynamic programming over layers) up to a size, beyond it steps along the
    hulls by gain per move, and what then still fits.

    Raises
    ------
    ValueError
        If even the fewest moves are more than ``limit``.
    """
    fewest = front.fewest
    if fewest > limit:
        raise ValueError(f"at least {fewest} moves are needed, more than {limit}")
    spare = min(limit, front.most) - fewest
    if (spare + 1) * sum(len(points) for points in front.points) <= _CELLS:
        return _exact(front, spare)
    return along_hulls(front, spare)


def _exact(front: Front, spare: int) -> list[int]:
    best = np.zeros(spare + 1)
    choices = []
    for points, times in zip(front.points, front.times, strict=True):
        total = best + times * points[0].value
        choice = np.zeros(spare + 1, dtype=np.int32)
        for index, point in enumerate(points[1:], start=1):
            more = times * (point.moves - points[0].moves)
            if more > spare:
                break
            trial = best[: spare + 1 - more] + times * point.value
            better = trial < total[more:] - _SAME
            total[more:][better] = trial[better]
            choice[more:][better] = index
        best = total
        choices.append(choice)
    chosen = []
    left = int(np.flatnonzero(best <= best.min() + _SAME)[0])  # no more moves than the best needs
    layers = zip(front.points, front.times, choices, strict=True)
    for points, times, choice in reversed(list(layers)):
        index = int(choice[left])
        chosen.append(index)
        left -= times * (points[index].moves - points[0].moves)
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
        times, now = front.times[layer], points[chosen[layer]].moves
        fits = [i for i, point in enumerate(points) if times * (point.moves - now) <= spare]
        spare -= times * (points[fits[-1]].moves - now)
        chosen[layer] = fits[-1]
    return chosen


def paying(front: Front, price: float) -> list[int]:
    """Return the point of each layer up to which every move lowers the mean objective by ``price`` at least."""
    chosen = [0] * len(front.points)
    for step in front.steps():  # those that gain most per move come first
        if step.gain < price * step.moves * sum(front.times):
            break
        chosen[step.layer] = step.point
    return chosen


def reaching(front: Front, balancedness: float) -> list[int]:
    """Return the point of each layer with few moves in all and a mean balancedness of at least ``balancedness``.

    Steps along the hulls by gain per move until it is reached, then back in each layer as far as it still is. The
    best balanced points where nothing reaches it.
    """
    chosen = [0] * len(front.points)
    now_balanced = added(
        points[0].balancedness * times for points, times in zip(front.points, front.times, strict=True)
    )
    short = balancedness * sum(front.times) - now_balanced
    for step in front.steps(balancedness=True):
        if short <= _SAME:
            break
        chosen[step.layer] = step.point
        short -= step.gain
    for layer, points in enumerate(front.points):
        times, now = front.times[layer], points[chosen[layer]].balancedness
        enough = next(
            i
            for i, point in enumerate(points)
            if i == chosen[layer] or times * (now - point.balancedness) <= -short
        )
        short += times * (now - points[enough].balancedness)
        chosen[layer] = enough
    return chosen
