"""Progress of plans and re-plans, and its listeners."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

OnProgress = Callable[..., None]
"""Called with what a search says of its state, and seconds: of experts placed, done layers, all layers, objective and
bound; of a migration, a :class:`placement.migrate.migration.State`."""

Say = Callable[[str], None]
"""Called with a description of the current work, such as which item of how many."""


def silent(text: str) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Progress:
    """Progress of a plan or re-plan.

    Attributes
    ----------
    stage:
        What is being done, in words.
    done, total:
        Layers at their bound (of a re-plan: near a fresh plan), and all that are placed.
    objective, bound:
        Of what would be answered now, the mean over layers of largest over mean GPU load, and what no placement is
        below (of a re-plan: what a fresh plan has); NaN before there is anything.
    elapsed_s:
        Seconds since the beginning.
    """

    stage: str
    done: int = 0
    total: int = 0
    objective: float = math.nan
    bound: float = math.nan
    elapsed_s: float = 0.0

    @property
    def gap(self) -> float:
        """Gap between objective and bound, as a fraction."""
        return max(0.0, 1 - self.bound / self.objective) if self.objective > 0 else math.nan


class ProgressReporter:
    """Makes a :class:`Progress` of what a plan or a re-plan says of its state, for ``hear``; None: for nobody."""

    def __init__(self, hear: Callable[[Progress], object] | None) -> None:
        self._hear, self._begun, self._last = hear, time.monotonic(), Progress("starting")

    def stage(self, name: str) -> None:
        """Report the current stage."""
        self._tell(replace(self._last, stage=name))

    def layers(self, done: int, total: int, objective: float, bound: float, _: float) -> None:
        """Report the progress of expert placement."""
        self._tell(Progress("placing experts", done, total, objective, bound))

    def moves(self, state: Any, _: float) -> None:
        """Report the progress of a re-plan: a :class:`placement.migrate.migration.State`."""
        words = f"re-planning: pass {state.search_pass}, {state.phase}; {state.moves:,} moves"
        near = state.layers_near, state.layers
        self._tell(Progress(words, *near, 1 / state.balancedness, 1 / state.target))

    def _tell(self, progress: Progress) -> None:
        self._last = replace(progress, elapsed_s=time.monotonic() - self._begun)
        if self._hear is not None:
            self._hear(self._last)
