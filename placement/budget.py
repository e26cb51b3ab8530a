"""How much a search may do: units of work that it counts, a deadline, Ctrl-C. One object, passed down."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Any, Self

from topology.base.errors import RackplanError
from topology.base.interrupts import CAME, ctrl_c

Cancel = Event | Callable[[], bool]
"""What says that a search shall end: an event that is set, or a function that says so."""

EVERY_S = 0.1
"""Progress is told no more often."""
CUT = "ended early, by the time limit or an interruption: the best so far is kept"
_UNITS = 1000.0  # of work that a search worth a second has
_TIMED_UNITS = 500.0  # ... and one with a time limit, so that on most machines steps end it before the clock


class CancelledError(RackplanError):
    """Ended from outside before there was anything to keep."""


def _never() -> bool:
    return False


class Interrupts:
    """Whether Ctrl-C or a cancellation came, and what Ctrl-C does in the block that runs.

    Attributes
    ----------
    came:
        Whether one came.
    cancelled:
        Whether a cancellation is asked for now.
    held:
        Of the blocks that were entered, whether they hold Ctrl-C back.
    """

    def __init__(self, cancel: Cancel | None) -> None:
        self.cancelled: Callable[[], bool] = cancel.is_set if isinstance(cancel, Event) else cancel or _never
        self.came = False
        self.held: list[bool] = []

    def here(self) -> bool:
        """Whether Ctrl-C or a cancellation came."""
        self.came = self.came or self.cancelled()
        return self.came

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Hold Ctrl-C back, unless somebody else handles it."""
        before = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
        ours = before in {signal.default_int_handler, ctrl_c}
        self.held.append(True)
        if ours:
            self.came = self.came or bool(CAME)  # compiled modules lose one now and then
            signal.signal(signal.SIGINT, self._heard)
        try:
            yield
        finally:
            self.held.pop()
            if ours:
                signal.signal(signal.SIGINT, before)

    def _heard(self, *_: object) -> None:
        if self.came or not self.held[-1]:
            raise KeyboardInterrupt
        self.came = True


class Budget:
    """How much a search may do.

    What a search does follows from the units of work that it counts (a millisecond or two each), so that it is the
    same each time. A time limit also ends it by the clock, where the machine is slower.

    Parameters
    ----------
    seconds:
        Of search after the fast path; 0 for the fast path alone; None for as much work as each search is worth.
    on_progress:
        Called with what a search says of its state, and seconds.
    cancel:
        What ends all search as Ctrl-C does.

    Attributes
    ----------
    units, deadline:
        Work that it may do, and when the clock ends it.
    done:
        Units done.
    share:
        Of what a search is worth where no time was asked for.
    ended:
        Whether the clock, Ctrl-C or a cancellation ended it before its work was done.
    """

    def __init__(
        self,
        seconds: float | None = 0.0,
        on_progress: Callable[..., None] | None = None,
        *,
        cancel: Cancel | None = None,
        whole: Budget | None = None,
    ) -> None:
        self.seconds, self.on_progress = seconds, on_progress
        self.units, self.deadline = (seconds or 0.0) * _TIMED_UNITS, math.inf
        self.done, self.share, self.ended = 0.0, 1.0, False
        self.interrupts: Interrupts = Interrupts(cancel) if whole is None else whole.interrupts
        self._whole = whole
        self._begun = self._told = time.monotonic()

    @property
    def fast(self) -> bool:
        """Whether nothing is searched beyond the fast path."""
        return self.seconds == 0

    @property
    def usual(self) -> bool:
        """Whether no time was asked for, so that each search takes what it is worth."""
        return self.seconds is None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a cancellation came: what was found so far is kept."""
        return self.interrupts.here()

    @property
    def cut(self) -> bool:
        """Whether the clock, Ctrl-C or a cancellation ended a search here before its work was done."""
        return self.ended or self.interrupted

    def unless_cancelled(self) -> None:
        """Go on only if it was not cancelled.

        Raises
        ------
        CancelledError
            If it was.
        """
        if self.interrupts.cancelled():
            raise CancelledError("cancelled before there was anything to keep.")

    def part(self, share: float) -> Budget:
        """Return a part with a share of what is left, which begins now."""
        part = Budget(None if self.seconds is None else share * self.seconds, self.on_progress, whole=self)
        now = time.monotonic()
        part.share, part.units = share * self.share, share * (self.units - self.done)
        part.deadline = self.deadline if self.deadline == math.inf else now + share * (self.deadline - now)
        return part

    def search(self, worth_s: float) -> Budget:
        """Return the budget of a search that begins now: the time asked for, or the work of ``worth_s`` seconds."""
        found = self.part(1.0)
        found.units = worth_s * self.share * _UNITS if self.seconds is None else self.seconds * _TIMED_UNITS
        if self.seconds:
            found.deadline = min(self.deadline, time.monotonic() + self.seconds)
        return found

    def fixed(self, seconds: float) -> Budget:
        """Return the budget of a search with the work of so many seconds, whatever was asked for but none at all."""
        found = self.part(1.0)
        found.units, found.deadline = (0.0 if self.fast else seconds * _UNITS), math.inf
        return found

    def spend(self, units: float) -> None:
        """Count work that was done."""
        self.done += units
        if self._whole is not None:
            self._whole.spend(units)

    def end(self) -> None:
        """Note that it ended before its work was done."""
        self.ended = True
        if self._whole is not None:
            self._whole.end()

    def left(self) -> float:
        """Units of work that are left; 0 or less when it is over."""
        left = self.units - self.done
        if left > 0 and (self.interrupted or time.monotonic() >= self.deadline):
            self.end()
            return 0.0
        return left

    def goes_on(self) -> bool:
        """Whether there is work left."""
        return self.left() > 0

    def progress(self) -> float:
        """How much of its work is done, from 0 to 1: where the clock is ahead, a schedule catches up with it."""
        if not self.goes_on():
            return 1.0
        steps = self.done / self.units
        if self.deadline == math.inf:
            return steps
        clock = (time.monotonic() - self._begun) / (self.deadline - self._begun)
        return max(steps, 2 * clock - 1)

    def elapsed(self) -> float:
        """Seconds since it began, for those who watch."""
        return time.monotonic() - self._begun

    def tell(self, state: Callable[[], tuple[Any, ...]]) -> None:
        """Report the state of a search, now and then."""
        now = time.monotonic()
        if self.on_progress is not None and now - self._told >= EVERY_S:
            self.on_progress(*state(), now - self._begun)
            self._told = time.monotonic()

    def __enter__(self) -> Self:
        """Begin a block that Ctrl-C ends, and no more than it: what was found before is kept."""
        self.interrupts.held.append(False)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Note Ctrl-C and go on after the block; not at a second one."""
        self.interrupts.held.pop()
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            return False
        first, self.interrupts.came = not self.interrupts.came, True
        return first

    def keeping(self) -> AbstractContextManager[None]:
        """Hold Ctrl-C back while there is an answer: it ends all search, and what follows is done the fast way.

        A second one is not held back.
        """
        return self.interrupts.keeping()
