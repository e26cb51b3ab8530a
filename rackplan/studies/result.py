"""The result of a study: progress of a run, the best rows, alone and by option, the Pareto-optimal, and failures."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from cost.layouts.front import pareto
from rackplan.studies.rows import FAILED, OK, STATUSES, TIMEOUT, Row, cell_of, column_of, columns_of
from rackplan.studies.spec import Study
from topology.base.shown import Shown
from topology.base.units import read_number

COST, RATE, SPEED = "usd_per_million_tokens", "tok_s_per_gpu", "tok_s_per_user"
MOST_GROUP_ROWS, MOST_REASONS = 20, 8
_DIGITS = re.compile(r"[0-9][0-9.,]*")


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
            parts += [
                f"{per_s:,.3g} points/s",
                f"{timedelta(seconds=round((self.total - self.done) / per_s))} left",
            ]
        return f"{', '.join(parts)} (Ctrl-C keeps finished points)"


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


def best_row(rows: Sequence[Row]) -> Row | None:
    """Return the cheapest row where all have a price, else that of most tokens/s/GPU."""
    if not rows:
        return None
    if all(row.get(COST) is not None for row in rows):
        return min(rows, key=lambda row: row[COST])
    return max(rows, key=lambda row: row[RATE])


def front(rows: Sequence[Row]) -> list[Row]:
    """Return the Pareto-optimal rows in both speeds, slowest for the user first."""
    able = [row for row in rows if row.get(SPEED) is not None and row.get(RATE) is not None]
    if not able:
        return []
    return [able[i] for i in pareto([row[SPEED] for row in able], [row[RATE] for row in able]).tolist()]


def best_by_option(study: Study, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return, for each varied option of few values, the best row at each; no draws of a range, which are all one."""
    result: dict[str, list[Row]] = {}
    for name in common_options(study):
        column = column_of(name)
        values = list(dict.fromkeys(row.get(column) for row in rows))
        if 1 < len(values) <= MOST_GROUP_ROWS:
            some = ([row for row in rows if row.get(column) == value] for value in sorted(values, key=_order))
            result[name] = [best for group in some if (best := best_row(group)) is not None]
    return result


def common_options(study: Study) -> list[str]:
    """Return the varied options that points have in common."""
    return [name for name in study.varied if name in study.grid or study.ranges[name].choices]


def _order(value: object) -> tuple[bool, float, str]:
    number = number_of(value)
    return number is None, number or 0.0, str(value)


def number_of(value: object) -> float | None:
    """Return a number, or the one that a text means (``2x``, ``500 GB/s``); None where there is no finite one."""
    if isinstance(value, bool) or value is None:
        return None
    number = value if isinstance(value, int | float) else (read_number(str(value)) or (math.nan,))[0]
    return float(number) if math.isfinite(number) else None


def optima(study: Study, rows: Sequence[Row]) -> list[tuple[Any, Row]]:
    """Return the best row at each value of the option that the tuner goes along; one without such an option."""
    sign = 1 if study.least else -1
    able = [row for row in rows if study.goal and row.get(study.goal) is not None]
    able.sort(key=lambda row: (sign * row[study.goal], row["point"]))
    if not study.grid:
        return [(None, row) for row in able[:1]]
    name, values = next(iter(study.grid.items()))
    column = column_of(name)
    kind = columns_of(study)[column]
    best = (
        (value, next((row for row in able if row.get(column) == cell_of(value, kind)), None))
        for value in values
    )
    return [(value, row) for value, row in best if row is not None]


def reasons(rows: Sequence[Row]) -> list[tuple[int, str, str]]:
    """Return how many points have no figure, how they ended, and why; reasons that differ in numbers are one."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["status"] != OK:
            text = str(row["reason"])
            alike.setdefault((row["status"], _DIGITS.sub("#", text)), []).append(text)
    found = [
        (len(texts), status, f"such as {texts[0]}" if len(set(texts)) > 1 else texts[0])
        for (status, _), texts in alike.items()
    ]
    return sorted(found, key=lambda one: -one[0])[:MOST_REASONS]
