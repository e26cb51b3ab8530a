"""The result of a study, and the progress of a run."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rackplan.studies.columns import FAILED, STATUSES, TIMEOUT, Row
from rackplan.studies.spec import Study
from topology.base.shown import Shown


@dataclass
class Progress:
    """Progress of a study.

    Attributes
    ----------
    total, done:
        Points of the study, and those on disk, of earlier runs too.
    here, failed:
        Points priced in this run, and how many of them failed or took too long.
    replaced:
        Workers that died and were replaced.
    """

    total: int
    done: int
    here: int = 0
    failed: int = 0
    replaced: int = 0
    _began: float = field(default_factory=time.monotonic)

    def count(self, row: Row) -> None:
        """Count a new row."""
        self.done += 1
        self.here += 1
        self.failed += row["status"] in (FAILED, TIMEOUT)

    def words(self) -> str:
        """Return progress and remaining time in words."""
        parts = [f"{self.done:,} of {self.total:,} points"]
        parts += [f"{self.failed:,} failed"] * bool(self.failed)
        parts += [f"{self.replaced} workers replaced"] * bool(self.replaced)
        if self.here:
            per_s = self.here / max(time.monotonic() - self._began, 1e-9)
            parts += [f"{per_s:,.3g} points/s", f"{_duration((self.total - self.done) / per_s)} left"]
        return f"{', '.join(parts)} (Ctrl-C keeps finished points)"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(Shown):
    """The rows of a study.

    Attributes
    ----------
    rows:
        Those on disk, in the order of the points.
    progress:
        What this run did; None where it only read.
    interrupted:
        Whether Ctrl-C ended it.
    """

    study: Study
    folder: Path
    rows: list[Row]
    progress: Progress | None = None
    interrupted: bool = False

    def brief(self) -> str:
        """Return kind, status counts and folder of the points."""
        counts = Counter(row["status"] for row in self.rows)
        fared = ", ".join(f"{counts[status]:,} {status}" for status in STATUSES if counts[status])
        return f"{self.study.kind} study in {self.folder}: {fared or 'no points yet'}"
