"""The work of a search, counted: the clock of a timed run only says at which count it ends.

One unit is about a millisecond, by models of what each step costs that look at sizes alone. What a search does next
follows from the count and from the *horizon*, the work that its schedule is laid out for (how soon annealing cools,
when one phase gives way to the next). A timed run measures its first step, lays out its schedule for what fits the
time, and looks at the clock only where it counts; so its answer is a function of two whole numbers, the horizon and
the count at which it ended. :attr:`Work.number` is both in one: the count in thousands, the horizon in the last three
digits, even where it was laid out after the first step, odd where it was known before.
"""

from __future__ import annotations

import math
import time

from topology.errors import InputError

USUAL, FAST = 999, 998
"""Last digits of a search that takes what it is worth, and of one that has no time beyond the fast path."""
_SCHEDULES = 997
_RATIO = 1.02  # of one horizon to the next: 1 to 997 are a millisecond to a hundred hours
_MARGIN = 0.95  # of the time given, for which a schedule is laid out
_LEAST_S = 1e-6


def horizon_of(schedule: int) -> float:
    """Return the work for which schedule 1 to 997 is laid out."""
    found = 1.0
    for _ in range(schedule):  # no power: libraries differ in its last digit
        found *= _RATIO
    return found


def schedule_within(work: float) -> int:
    """Return the longest schedule for ``work`` or less, the shortest where there is none."""
    found, after = 0, _RATIO
    while found < _SCHEDULES and after <= work:
        found, after = found + 1, after * _RATIO
    return max(1, found)


def _measured(work: float) -> int:
    """Return the schedule of a timed run, laid out after its first step: an even one."""
    found = schedule_within(work)
    return max(2, found - found % 2)


def _asked(work: float) -> int:
    """Return the schedule of a run that is told its work, laid out before its first step: an odd one."""
    found = schedule_within(work)
    return found - 1 + found % 2


def repeat_words(number: int | None, *, interrupted: bool = False) -> str:
    """Say how to repeat a search that a clock or Ctrl-C ended; empty where it ends so by itself."""
    if not number or (number % 1000 >= FAST and not interrupted):
        return ""
    return f"exactly with `work` {number}"


def require_work(work: int | None, time_limit_s: float | None) -> None:
    """Check the work that is asked for.

    Raises
    ------
    InputError
        If it is no whole number from 0 up, or comes with a time limit.
    """
    if work is None:
        return
    if isinstance(work, bool) or not isinstance(work, int) or work < 0:
        raise InputError(f"`work` {work}: expected a whole number from 0 up, as a timed run prints it.")
    if time_limit_s is not None:
        raise InputError(
            f"`work` {work} and `time_limit` {time_limit_s:g}: one of them ends the search; leave one out."
        )


class Work:
    """What was searched so far, and when it ends.

    Parameters
    ----------
    seconds:
        Of search for each whole share; 0 for none; None for what each search is worth.
    number:
        That of another run, which is repeated; or units of work times 1000 for which a schedule is laid out; None:
        ``seconds`` say.

    Attributes
    ----------
    done:
        Units of work done, and one for each mark.
    units:
        Units of work done.
    last:
        Count of ``done`` at which all search ends; None: not known yet.
    """

    def __init__(self, seconds: float | None, number: int | None = None) -> None:
        self.done = self.units = 0
        self.last: int | None = None
        self.schedule = USUAL if seconds is None else FAST if seconds == 0 else None
        self._seconds = seconds or 0.0
        self._given = number is not None
        if number is not None:
            units, self.schedule = divmod(number, 1000)
            if self.schedule:
                self.last = units
            else:
                self.schedule = _asked(units) if units else FAST
        self._horizon = math.inf if self._late else self._laid_out()
        self._reserved = self._used_s = self._inside_s = 0.0
        self._mark = time.monotonic()
        self._cut = False

    @property
    def _late(self) -> bool:
        """Whether the schedule is that of a timed run, which knows it after its first step."""
        return self.schedule is None or (self.schedule < FAST and self.schedule % 2 == 0)

    def _laid_out(self) -> float:
        if self.schedule is None:
            return math.inf
        return 0.0 if self.schedule in {USUAL, FAST} else horizon_of(self.schedule)

    @property
    def usual(self) -> bool:
        """Whether each search takes what it is worth."""
        return self.schedule == USUAL

    @property
    def fast(self) -> bool:
        """Whether nothing is searched beyond the fast path."""
        return self.schedule == FAST

    @property
    def timed(self) -> bool:
        """Whether a clock ends it."""
        return not self._given and self._seconds > 0

    @property
    def horizon(self) -> float:
        """Units that a search of the whole share is laid out for; infinite until a timed run has done a step."""
        return self._horizon

    @property
    def over(self) -> bool:
        """Whether all search has ended."""
        return self.last is not None and self.done >= self.last

    @property
    def cut(self) -> bool:
        """Whether a clock or an interruption ended it before its schedule did."""
        return self._cut

    @property
    def number(self) -> int:
        """What repeats this run: the count at its end, one more where it ended by itself, and the schedule."""
        if self.done == 0 or (self.fast and not self._cut):
            return 0
        last = self.done + 1 if self.last is None else self.last
        return last * 1000 + (_measured(math.inf) if self.schedule is None else self.schedule)

    def begin(self, share: float) -> None:
        """Begin a search with a share of the time; shares that come to more than one take time of their own."""
        self._reserved += share
        self._mark = time.monotonic()
        self.mark()

    def mark(self, *, inside: bool = False) -> None:
        """Count a place between steps or ``inside`` one: what was done before it is told from what comes after."""
        self.done += 1
        took = self._look()
        self._inside_s = self._inside_s + took if inside else 0.0

    def _look(self) -> float:
        """Look at the clock of a timed run; return the seconds since the last look."""
        now = time.monotonic()
        took, self._mark = now - self._mark, now
        self._used_s += took
        return took

    def end(self) -> None:
        """End all search here: an interruption came."""
        if not self.over:
            self.last, self._cut = self.done, True

    def spend(self, units: float, *, clock: bool = True, own: bool = False) -> None:
        """Count a step that was done, at least one unit.

        A timed run looks at its clock, unless ``clock`` is False; ``own``: the step had time of its own.
        """
        count = max(1, round(units))
        self.done += count
        self.units += count
        if own:
            self._mark = time.monotonic()
        if own:
            return
        took, self._inside_s = (self._look() if self.timed else 0.0) + self._inside_s, 0.0
        if self.schedule is None:
            speed = count / max(took, _LEAST_S)
            self.schedule = _measured(speed * self._seconds * _MARGIN)
        if self._horizon == math.inf:
            self._horizon = self._laid_out()
        if self.timed and clock and self._used_s >= self._allowed_s:
            self.end()

    @property
    def _allowed_s(self) -> float:
        return self._seconds * max(1.0, self._reserved)

    def out_of_time(self) -> bool:
        """Whether the clock of a timed run is over in the middle of a step."""
        return self.timed and self._used_s + time.monotonic() - self._mark >= self._allowed_s
