"""When a search ends: at its deadline or at Ctrl-C; and who hears how far it is. One object, passed down."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Self

from topology.errors import RackplanError

OnProgress = Callable[..., None]
"""Called with what a search says of its state, and seconds: of experts placed, done layers, all layers, objective and
bound; of a migration, a :class:`placement.migrate.migration.State`."""

Say = Callable[[str], None]
"""Is told what is done now, in words: which of how many."""

EVERY_S = 0.1
"""Progress is told no more often."""
Cancel = Event | Callable[[], bool]
"""What says that a search shall end: an event that is set, or a function that says so."""


def silent(text: str) -> None:
    """Say nothing: where nobody listens."""


class CancelledError(RackplanError):
    """Ended from outside before there was anything to keep."""


@dataclass(frozen=True)
class Progress:
    """How far a plan or a re-plan is.

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
        """How far the objective may be from the best, as a fraction."""
        return max(0.0, 1 - self.bound / self.objective) if self.objective > 0 else math.nan


class Telling:
    """Makes a :class:`Progress` of what a plan or a re-plan says of its state, for ``hear``; None: for nobody."""

    def __init__(self, hear: Callable[[Progress], object] | None) -> None:
        self._hear, self._begun, self._last = hear, time.monotonic(), Progress("starting")

    def stage(self, name: str) -> None:
        """Tell what is done now; what was placed stays."""
        self._tell(replace(self._last, stage=name))

    def layers(self, done: int, total: int, objective: float, bound: float, _: float) -> None:
        """Tell how far the experts are placed."""
        self._tell(Progress("placing experts", done, total, objective, bound))

    def moves(self, state: Any, _: float) -> None:
        """Tell how far a re-plan is: a :class:`placement.migrate.migration.State`."""
        words = f"re-planning: pass {state.search_pass}, {state.phase}; {state.moves:,} moves"
        near = state.layers_near, state.layers
        self._tell(Progress(words, *near, 1 / state.balancedness, 1 / state.target))

    def _tell(self, progress: Progress) -> None:
        self._last = replace(progress, elapsed_s=time.monotonic() - self._begun)
        if self._hear is not None:
            self._hear(self._last)


class Stop:
    """A deadline, Ctrl-C and progress.

    Parameters
    ----------
    seconds:
        Of search after the fast path; 0 for the fast path alone, which is the same every time; None for as long as
        the search is worth (:func:`placement.solve.worth_searching`).
    on_progress:
        Who hears how far the search is.
    cancel:
        What says that it shall end as at Ctrl-C.

    Attributes
    ----------
    interrupted:
        Whether Ctrl-C came, or ``cancel`` says so: what was found so far is kept, and what is still to do is done the
        fast way.
    """

    def __init__(
        self,
        seconds: float | None = 0.0,
        on_progress: OnProgress | None = None,
        *,
        cancel: Cancel | None = None,
        whole: Stop | None = None,
        share: float = 1.0,
    ) -> None:
        self.seconds = seconds
        self._cancelled = cancel.is_set if isinstance(cancel, Event) else cancel
        self._share = share
        self.on_progress = on_progress
        self._whole = whole
        self._interrupted = False
        self._begun = time.monotonic()
        self._told = self._begun

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a cancellation came, here or in what this is a part of."""
        if not self._interrupted and self._cancelled is not None and self._cancelled():
            self._interrupted = True
        return self._interrupted or (self._whole is not None and self._whole.interrupted)

    def unless_cancelled(self) -> None:
        """Go on only if it was not cancelled.

        Raises
        ------
        CancelledError
            If it was.
        """
        if self._cancelled is not None and self._cancelled():
            raise CancelledError("cancelled before there was anything to keep.")

    def within(self, seconds: float) -> Stop:
        """Return a part that begins now and takes so long at most; its interruption is that of the whole."""
        return Stop(0.0 if self.interrupted else seconds, self.on_progress, whole=self)

    def part(self, share: float) -> Stop:
        """Return a part with a share of the seconds."""
        seconds = None if self.seconds is None else self.seconds * share
        return Stop(seconds, self.on_progress, whole=self, share=self._share * share)

    def search(self, worth_s: float) -> Stop:
        """Return the clock of a search that begins now: the seconds asked for, or else those it is worth."""
        return self.within(worth_s * self._share if self.seconds is None else self.seconds)

    def interrupt(self) -> None:
        """Say that Ctrl-C came."""
        self._interrupted = True
        if self._whole is not None:
            self._whole.interrupt()

    def __enter__(self) -> Self:
        """Begin a block that Ctrl-C may end, and no more than it: what was found before is kept."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Note Ctrl-C and go on after the block."""
        came = kind is not None and issubclass(kind, KeyboardInterrupt)
        if came:
            self.interrupt()
        return came

    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def left(self) -> float:
        """Seconds left; 0 or less when it is over."""
        return 0.0 if self.interrupted else (self.seconds or 0.0) - self.spent()

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return self.left() > 0

    def tell(self, state: Callable[[], tuple[Any, ...]]) -> None:
        """Report the state of a search, now and then."""
        now = time.monotonic()
        if self.on_progress is not None and now - self._told >= EVERY_S:
            self.on_progress(*state(), now - self._begun)
            self._told = time.monotonic()
