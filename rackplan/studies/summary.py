"""What rows of a study show: the best, alone and by option, the Pareto-optimal, and why points have no figure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from cost.layouts.front import pareto
from rackplan.studies.columns import OK, Row, cell_of, column_of, columns_of
from rackplan.studies.spec import Study
from topology.base.units import read_number

COST, RATE, SPEED = "usd_per_million_tokens", "tok_s_per_gpu", "tok_s_per_user"
MOST_GROUP_ROWS, MOST_REASONS = 20, 8
_DIGITS = re.compile(r"[0-9][0-9.,]*")


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
    ranges = {**study.sample, **({} if study.search is None else study.search.ranges)}
    return [name for name in study.varied if name not in ranges or ranges[name].choices]


def _order(value: object) -> tuple[bool, float, str]:
    number = number_of(value)
    return number is None, number or 0.0, str(value)


def number_of(value: object) -> float | None:
    """Return a number, or the one that a text means (``2x``, ``500 GB/s``); None where there is none."""
    found = number_and_unit(value)
    return None if found is None else found[0]


def number_and_unit(value: object) -> tuple[float, str] | None:
    """Return the number and the unit of a value; None where it is no finite number."""
    if isinstance(value, bool) or value is None:
        return None
    found = (float(value), "") if isinstance(value, int | float) else read_number(str(value))
    return found if found is not None and math.isfinite(found[0]) else None


def optima(study: Study, rows: Sequence[Row]) -> list[tuple[Any, Row]]:
    """Return the best row at each value of the option that the tuner goes along; one without such an option."""
    search = study.search
    if search is None:
        return []
    able = [row for row in rows if row.get(search.goal) is not None]
    sign = 1 if search.least else -1

    def best(some: Sequence[Row]) -> Row:
        return min(some, key=lambda row: (sign * row[search.goal], row["point"]))

    if search.curve is None:
        return [(None, best(able))] if able else []
    name, values = search.curve
    kind = columns_of(study)[column_of(name)]
    some = [
        (value, [row for row in able if row.get(column_of(name)) == cell_of(value, kind)]) for value in values
    ]
    return [(value, best(group)) for value, group in some if group]


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
