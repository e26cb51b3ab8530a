"""What a study has come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackplan.studies.progress import Progress
from rackplan.studies.spec import Study
from rackplan.studies.statuses import STATUSES
from topology.base.shown import Shown

Row = dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(Shown):
    """What a study has come to.

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
        """Return the kind of the points, how they fared, and where they are."""
        counts = Counter(row["status"] for row in self.rows)
        said = ", ".join(f"{counts[status]:,} {status}" for status in STATUSES if counts[status])
        return f"of kind {self.study.kind} in {self.folder}: {said or 'no points yet'}"
