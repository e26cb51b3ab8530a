"""Budget of a search: counted units of work, a deadline, and Ctrl-C, in one object that is passed down."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from threading import Event
from typing import Any, Self

from topology.base.errors import RackplanError
from topology.base.interrupts import CtrlC

Cancel = Event | Callable[[], bool]
"""What says that a search shall end: an event that is set, or a function that says so."""

CUT = "stopped early by the time limit or an interruption; the best so far is kept"
EVERY_S = 0.1
"""Progress is told no more often."""

_UNITS = 1000.0  # of work in a second...
_TIMED_UNITS = 500.0  # ... and with a time limit: steps mostly end before the clock


def evenly(rounds: int) -> Iterator[float]:
    """Yield how much is done before each of so many rounds of equal work."""
    yield from (done / rounds for done in range(rounds))


class CancelledError(RackplanError):
    """Cancelled before there was a result."""


class Budget:
    """Budget of a search, divisible over its steps.

    What a search does follows from the units of work that it counts (a millisecond or two each), so that it is the
    same each time. A time limit also ends it by the clock, where the machine is slower. In a ``with`` block of it
    Ctrl-C ends that block and no more; what was found before is kept, and a second one is not caught.

    Parameters
    ----------
    seconds:
        Of search after the fast path; 0 for the fast path alone; None for as much work as each search is worth.
    on_progress:
        Called with what a search says of its state, and seconds.
    cancel:
        What ends all search as Ctrl-C does.
    """

    def __init__(
        self,
        seconds: float | None = 0.0,
        on_progress: Callable[..., None] | None = None,
        *,
        cancel: Cancel | None = None,
    ) -> None:
        self.seconds, self.on_progress = seconds, on_progress
        self.cancelled = cancel.is_set if isinstance(cancel, Event) else cancel or (lambda: False)
        self.units, self.deadline = (seconds or 0.0) * _TIMED_UNITS, math.inf  # of work, and of the clock
        self.done, self.ended, self.share = 0.0, False, 1.0  # ended: by the clock, Ctrl-C or a cancellation
        self.whole, self.parts = self, [self]  # of which it is a part, itself the last
        self.came, self.held = False, [False]  # Ctrl-C, and whether blocks hold it back: of the whole
        self.begun = self.told = time.monotonic()

    def part(self, share: float) -> Budget:
        """Return a part with a share of the remaining budget, starting now."""
        part = copy(self)
        part.begun = part.told = start = time.monotonic()
        part.done, part.ended, part.parts = 0.0, False, [*self.parts, part]
        part.seconds = None if self.seconds is None else share * self.seconds
        part.units, part.share = share * (self.units - self.done), share * self.share
        part.deadline = (
            self.deadline if self.deadline == math.inf else start + share * (self.deadline - start)
        )
        return part

    def search(self, worth_s: float) -> Budget:
        """Return a budget starting now: the requested time, or the work of ``worth_s`` seconds."""
        part = self.part(1.0)
        part.units = worth_s * self.share * _UNITS if self.seconds is None else self.seconds * _TIMED_UNITS
        if self.seconds:
            part.deadline = min(self.deadline, part.begun + self.seconds)
        return part

    def fixed(self, seconds: float) -> Budget:
        """Return a budget with the work of a number of seconds, regardless of the request unless that is 0."""
        return self.always(0.0 if self.seconds == 0 else seconds)

    def always(self, seconds: float) -> Budget:
        """Return a budget with the work of a number of seconds, whatever was asked for; clock and Ctrl-C end it."""
        part = self.part(1.0)
        part.units = seconds * _UNITS
        return part

    def spend(self, units: float) -> None:
        """Count work that was done."""
        for part in self.parts:
            part.done += units

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a cancellation arrived; results so far are kept."""
        self.whole.came = self.whole.came or self.cancelled()
        return self.whole.came

    @property
    def cut(self) -> bool:
        """Whether the deadline, Ctrl-C or a cancellation stopped a search before its work was done."""
        return self.ended or self.interrupted

    def left(self) -> float:
        """Units of work that are left; 0 or less when it is over."""
        remaining = self.units - self.done
        if remaining > 0 and (self.interrupted or time.monotonic() >= self.deadline):
            for part in self.parts:
                part.ended = True
            return 0.0
        return remaining

    def goes_on(self) -> bool:
        """Whether there is work left."""
        return self.left() > 0

    def rounds(self, cost: float, tell: Callable[[], None]) -> Iterator[float]:
        """Yield how much is done, from 0 to below 1, before each round of work of ``cost`` units; tell before that.

        Where the clock is ahead, that catches up with it. Ctrl-C while it is told ends the search, and keeps what it
        found.
        """
        while True:
            with self:
                tell()
            clock = (time.monotonic() - self.begun) / (self.deadline - self.begun)
            if not self.goes_on() or (done := max(self.done / self.units, 2 * clock - 1)) >= 1.0:
                return
            yield done
            self.spend(cost)

    def tell(self, state: Callable[[], tuple[Any, ...]], *, at_once: bool = False) -> None:
        """Report the state of a search, now and then."""
        moment = time.monotonic()
        if self.on_progress is not None and (at_once or moment - self.told >= EVERY_S):
            self.on_progress(*state(), moment - self.begun)
            self.told = time.monotonic()

    def unless_cancelled(self) -> None:
        """Raise a :class:`CancelledError` if it was cancelled."""
        if self.cancelled():
            raise CancelledError("cancelled before there was a result.")

    def __enter__(self) -> Self:
        self.whole.held.append(False)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.whole.held.pop()
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            return False
        handled, self.whole.came = not self.whole.came, True
        return handled

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Catch Ctrl-C once there is a result: it stops all searches, and the rest takes the fast path.

        A second one is not held back, and none that somebody else handles.
        """
        root, main = self.whole, threading.current_thread() is threading.main_thread()
        previous = signal.getsignal(signal.SIGINT) if main else None
        replaceable = previous is signal.default_int_handler or isinstance(previous, CtrlC)

        def hear(*_: object) -> None:
            if root.came or not root.held[-1]:
                raise KeyboardInterrupt
            root.came = True

        root.held.append(True)
        if replaceable:
            root.came = root.came or getattr(previous, "came", False)
            signal.signal(signal.SIGINT, hear)
        try:
            yield
        finally:
            root.held.pop()
            if replaceable:
                signal.signal(signal.SIGINT, previous)
