"""When a search ends: at its deadline or at Ctrl-C; and who hears how far it is. One object, passed down."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

OnProgress = Callable[..., None]
"""Called with what a search says of its state, and seconds: of experts placed, done layers, all layers, objective and
bound; of a migration, a :class:`placement.migrate.migration.State`."""

EVERY_S = 0.1
"""Progress is told no more often."""


class Stop:
    """A deadline, Ctrl-C and progress.

    Parameters
    ----------
    seconds:
        Of search after the fast path; 0 for the fast path alone, which is the same every time; None for as long as
        the search is worth (:func:`placement.solve.worth_searching`).
    on_progress:
        Who hears how far the search is.

    Attributes
    ----------
    interrupted:
        Whether Ctrl-C came: what was found so far is kept, and what is still to do is done the fast way.
    """

    def __init__(
        self,
        seconds: float | None = 0.0,
        on_progress: OnProgress | None = None,
        *,
        whole: Stop | None = None,
        share: float = 1.0,
    ) -> None:
        self.seconds = seconds
        self._share = share
        self.on_progress = on_progress
        self._whole = whole
        self._interrupted = False
        self._begun = time.monotonic()
        self._told = self._begun

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came, here or in what this is a part of."""
        return self._interrupted or (self._whole is not None and self._whole.interrupted)

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
