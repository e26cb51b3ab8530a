"""How far a study is, in words: points, those without a figure, speed and time left."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackplan.studies.statuses import FAILED, TIMEOUT

Row = Mapping[str, Any]


@dataclass
class Progress:
    """How far a study is.

    Attributes
    ----------
    total, done:
        Points of the study, and those on disk, of earlier runs too.
    statuses:
        How many rows of this run have each status.
    replaced:
        Workers that died and were replaced.
    """

    total: int
    done: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    _began: float = field(default_factory=time.monotonic)
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=240))

    @property
    def here(self) -> int:
        """Points that this run priced."""
        return sum(self.statuses.values())

    def took(self, rows: Iterable[Row]) -> None:
        """Count rows."""
        for row in rows:
            self.statuses[row["status"]] += 1
            self.done += 1
        self._recent.append((time.monotonic(), self.here))

    @property
    def per_s(self) -> float:
        """Points per second lately."""
        if len(self._recent) < 2:
            return 0.0
        (begun, before), (ended, after) = self._recent[0], self._recent[-1]
        return (after - before) / max(ended - begun, 1e-9)

    def words(self) -> str:
        """Say how far the study is, and how much time is left."""
        bad = sum(count for status, count in self.statuses.items() if status in (FAILED, TIMEOUT))
        parts = [f"{self.done:,} of {self.total:,} points"]
        parts += [f"{bad:,} failed"] * bool(bad)
        parts += [f"{self.replaced} workers replaced"] * bool(self.replaced)
        if self.per_s > 0:
            parts += [
                f"{self.per_s:,.3g} points/s",
                f"{duration((self.total - self.done) / self.per_s)} left",
            ]
        return f"{', '.join(parts)} (Ctrl-C keeps what is done)"


def duration(seconds: float) -> str:
    """Return a time in words: ``42 s``, ``3 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
