"""When a search ends: after its work or at Ctrl-C; and who hears how far it is. One object, passed down."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Self

from placement.work import Work
from topology.errors import RackplanError
from topology.interrupts import CAME, ctrl_c

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


@dataclass(frozen=True)
class _Part:
    """What a part has of a whole: a share of its work, of what is left of it, or a work of its own."""

    whole: Stop | None = None
    share: float = 1.0
    worth_s: float = 0.0
    fixed: float | None = None
    of_rest: int | None = None


class _CtrlC:
    """What Ctrl-C does in the blocks of a search: the innermost one says.

    Parameters
    ----------
    end:
        Ends the search.

    Attributes
    ----------
    modes:
        Of the blocks that were entered: ``raise`` an error, which they catch; ``keep`` what there is and end the
        search; wait for the end of a ``step``.
    waits:
        Whether one came within a step.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end, self._handled, self._came = end, False, False
        self.modes: list[str] = []
        self.waits = False

    @contextmanager
    def handled(self, mode: str) -> Iterator[None]:
        """Let Ctrl-C do what ``mode`` says, unless somebody else handles it."""
        before = None
        if not self._handled and threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
        ours = before in {signal.default_int_handler, ctrl_c}
        self.modes.append(mode)
        if ours:
            self._handled = True
            signal.signal(signal.SIGINT, self._heard)
            if CAME and not self._came:  # and was lost
                self._came = True
                self._end()
        try:
            yield
        finally:
            self.modes.pop()
            if ours:
                signal.signal(signal.SIGINT, before)
                self._handled = False

    def _heard(self, *_: object) -> None:
        mode = self.modes[-1]
        if self._came or mode == "raise":
            raise KeyboardInterrupt
        self._came = True
        if mode == "step":
            self.waits = True
        else:
            self._end()


class Stop:
    """When a search ends, Ctrl-C and progress.

    What a search does follows from the work it counted (:class:`placement.work.Work`), never from the clock: a timed
    run looks at that where work is counted (:meth:`spend`), and ends all search there.

    Parameters
    ----------
    seconds:
        Of search after the fast path; 0 for the fast path alone; None for as much work as the search is worth
        (:func:`placement.solve.worth_searching`).
    on_progress:
        Who hears how far the search is.
    work:
        What a run recorded (:attr:`number`), which is repeated; or as much work, in millionths of a core's second.
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
        work: int | None = None,
        cancel: Cancel | None = None,
        part: _Part | None = None,
    ) -> None:
        self._part, self._whole = part or _Part(), None if part is None else part.whole
        self.work: Work = Work(seconds, work) if self._whole is None else self._whole.work
        self._cancelled = cancel.is_set if isinstance(cancel, Event) else cancel
        self.on_progress = on_progress
        self._interrupted = False
        self.ctrl_c: _CtrlC = _CtrlC(self.interrupt) if self._whole is None else self._whole.ctrl_c
        self._begun = time.monotonic()
        self._told = self._begun
        self._first = self.work.units

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a cancellation came, here or in what this is a part of."""
        if not self._interrupted and self._cancelled is not None and self._cancelled():
            self.interrupt()
        return self._interrupted or (self._whole is not None and self._whole.interrupted)

    @property
    def fast(self) -> bool:
        """Whether nothing is searched beyond the fast path."""
        return self.work.fast

    @property
    def usual(self) -> bool:
        """Whether nobody said how long: each search takes what it is worth."""
        return self.work.usual

    @property
    def number(self) -> int:
        """What ``work`` has to be for the same search again."""
        return self.work.number

    def unless_cancelled(self) -> None:
        """Go on only if it was not cancelled.

        Raises
        ------
        CancelledError
            If it was.
        """
        if self._cancelled is not None and self._cancelled():
            raise CancelledError("cancelled before there was anything to keep.")

    def part(self, share: float) -> Stop:
        """Return a part with a share of the work, which begins now."""
        return self._made(self._part.share * share, self._part.worth_s)

    def search(self, worth_s: float) -> Stop:
        """Return the part of a search that begins now: the work asked for, or else that of ``worth_s`` seconds."""
        if self._part.fixed is not None:
            return self
        self.work.begin(self._part.share)
        return self._made(self._part.share, worth_s)

    def rest(self, share: float) -> Stop:
        """Return a part with a share of the work that is left here, which begins now."""
        return self._made(share, of_rest=self.done())

    def fixed(self, seconds: float) -> Stop:
        """Return a part with the work of so many seconds, whatever the time given, which it takes nothing of."""
        return self._made(fixed=0.0 if self.fast else seconds * 1000)

    def _made(
        self,
        share: float = 1.0,
        worth_s: float = 0.0,
        *,
        fixed: float | None = None,
        of_rest: int | None = None,
    ) -> Stop:
        return Stop(None, self.on_progress, part=_Part(self, share, worth_s, fixed, of_rest))

    def interrupt(self) -> None:
        """Say that Ctrl-C came."""
        self._interrupted = True
        self.work.end()
        if self._whole is not None:
            self._whole.interrupt()

    def end(self) -> None:
        """End all search here; Ctrl-C if it is held back is an interruption now."""
        if self.ctrl_c.waits or self.interrupted:
            self.interrupt()
        self.work.end()

    def __enter__(self) -> Self:
        """Begin a block that Ctrl-C may end, and no more than it: what was found before is kept."""
        self.ctrl_c.modes.append("raise")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Note Ctrl-C and go on after the block."""
        self.ctrl_c.modes.pop()
        came = kind is not None and issubclass(kind, KeyboardInterrupt)
        if came:
            self.interrupt()
        return came

    def keeping(self) -> AbstractContextManager[None]:
        """Hold Ctrl-C back while there is an answer: it ends all search, and what follows is done the fast way.

        A second one is not held back.
        """
        return self.ctrl_c.handled("keep")

    @contextmanager
    def stepwise(self) -> Iterator[None]:
        """Hold Ctrl-C back until the next step is counted, so that it ends the search where work can be repeated.

        A second one is not held back.
        """
        with self.ctrl_c.handled("step"):
            try:
                yield
            finally:
                if self.ctrl_c.waits:
                    self.interrupt()

    def spend(self, units: float, *, clock: bool = True) -> None:
        """Count a step that was done, in units of work; what ends the search ends it here."""
        self.work.spend(units, clock=clock, own=self._part.fixed is not None)
        if self.ctrl_c.waits or self.interrupted:
            self.interrupt()

    def mark(self, *, inside: bool = False) -> None:
        """Count a place between steps or ``inside`` one, after what was done because there was work left."""
        self.work.mark(inside=inside)

    @property
    def allotted(self) -> float:
        """Units of work for this part; infinite where a timed run has not measured a step yet."""
        part = self._part
        if part.fixed is not None:
            return part.fixed
        if part.of_rest is not None and self._whole is not None:
            return part.share * (self._whole.allotted - part.of_rest)
        if self.usual:
            return part.share * part.worth_s * 1000
        return 0.0 if self.fast else part.share * self.work.horizon

    def done(self) -> int:
        """Units of work since this part began."""
        return self.work.units - self._first

    def left(self) -> float:
        """Units of work that are left; 0 or less when it is over."""
        return 0.0 if self.work.over else self.allotted - self.done()

    def goes_on(self) -> bool:
        """Whether there is work left."""
        return self.left() > 0

    def progress(self) -> float:
        """How much of its work is done, from 0 to 1."""
        if not self.goes_on():
            return 1.0
        return self.done() / self.allotted

    def elapsed(self) -> float:
        """Seconds since the start, for those who watch."""
        return time.monotonic() - self._begun

    def out_of_time(self) -> bool:
        """Whether a timed run has to end a step that is not done, or Ctrl-C came: what the step found is not kept."""
        return self.ctrl_c.waits or self.interrupted or (self._part.fixed is None and self.work.out_of_time())

    def tell(self, state: Callable[[], tuple[Any, ...]]) -> None:
        """Report the state of a search, now and then."""
        now = time.monotonic()
        if self.on_progress is not None and now - self._told >= EVERY_S:
            self.on_progress(*state(), now - self._begun)
            self._told = time.monotonic()
