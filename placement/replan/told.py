"""How far a re-plan is: the pass, the price of excess, and what would be answered now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placement.replan.budget import along_hulls, reaching
from placement.replan.front import Front
from placement.replan.to_split import SplitFront

_EVERY_S = 0.3


@dataclass(frozen=True)
class State:
    """What a re-plan would answer now.

    Attributes
    ----------
    search_pass:
        Number of the pass, from 1.
    phase:
        What runs, in words: the price of excess load, or swaps under the split.
    layers, layers_near:
        Layers in all, and those that some placement brings to the target.
    balancedness, moves:
        Of the answer so far, mean over layers, and over all layers of one replica.
    target:
        Balancedness near enough to a fresh plan's.
    elapsed_s:
        Seconds since the start.
    """

    search_pass: int
    phase: str
    layers: int
    layers_near: int
    balancedness: float
    moves: int
    target: float
    elapsed_s: float


OnProgress = Callable[[State], None]


class Told:
    """Tells ``on_progress`` (None: nobody) how the search over ``fronts`` goes, a few times a second.

    ``max_moves`` is the budget in moves of one replica; None: up to the ``target`` balancedness.
    """

    def __init__(
        self,
        fronts: Sequence[SplitFront],
        began: float,
        target: float,
        max_moves: int | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._fronts, self._began, self._target = fronts, began, target
        self._max_moves, self._on_progress = max_moves, on_progress
        self._last = -_EVERY_S

    def of_pass(self, number: int) -> Callable[[str], None]:
        """Return what to call with the phase in words during pass ``number``."""

        def say(phase: str) -> None:
            now = time.monotonic()
            if self._on_progress is not None and now - self._last >= _EVERY_S:
                self._on_progress(self._state(number, phase, now - self._began))
                self._last = time.monotonic()

        return say

    def _state(self, number: int, phase: str, elapsed_s: float) -> State:
        front = Front.joined([each.now for each in self._fronts])
        fewest = sum(points[0].moves for points in front.points)
        if self._max_moves is None:
            chosen = reaching(front, self._target)
        else:
            chosen = along_hulls(front, max(0, self._max_moves - fewest))
        picked = [points[index] for points, index in zip(front.points, chosen, strict=True)]
        return State(
            number,
            phase,
            len(picked),
            sum(points[-1].balancedness >= self._target for points in front.points),
            sum(point.balancedness for point in picked) / len(picked),
            sum(point.moves for point in picked),
            self._target,
            elapsed_s,
        )
