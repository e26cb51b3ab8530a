"""Columns of a study's rows: their names and types, and what of a row its digest is of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rackplan.studies.spec import Study
from rackplan.studies.statuses import STATUSES
from topology.base.reading import shown

Row = dict[str, Any]
WHEN = ("seconds", "cpu_s", "host", "finished")
"""Columns that say when, where and how long; no digest of a row has them."""

TEXT, WHOLE, NUMBER = "string", "int64", "double"
FIGURES: Mapping[str, str] = {
    "status": TEXT,
    "reason": TEXT,
    "tok_s_per_gpu": NUMBER,
    "tok_s_per_user": NUMBER,
    "step_s": NUMBER,
    "usd_per_million_tokens": NUMBER,
    "tok_s_per_mw": NUMBER,
    "lower_step_s": NUMBER,
    "tok_s_per_gpu_used": NUMBER,
    "tok_s": NUMBER,
    "requests_per_s": NUMBER,
    "gpus": WHOLE,
    "gpus_idle": WHOLE,
    "usd_per_hour": NUMBER,
    "power_w": NUMBER,
    "layout": TEXT,
    "layout_ep": WHOLE,
    "layout_tp": WHOLE,
    "layout_stages": WHOLE,
    "layout_replicas": WHOLE,
    "layout_batch": NUMBER,
    "pools": WHOLE,
    "bound_by": TEXT,
    "configurations": WHOLE,
    "balancedness": NUMBER,
    "proof": TEXT,
    "gap": NUMBER,
    "evidence": TEXT,
    "notes": TEXT,
    "digest": TEXT,
    "files": TEXT,
    "row_digest": TEXT,
    "rackplan": TEXT,
    "seconds": NUMBER,
    "cpu_s": NUMBER,
    "host": TEXT,
    "finished": "timestamp",
}
"""Columns of every study after the options of its points, and their types."""
_READ_AS: Mapping[str, type | tuple[type, ...]] = {
    TEXT: str,
    WHOLE: int,
    NUMBER: (int, float),
    "timestamp": (str, datetime),
}
"""What a value of each type is in Python, in the dataset or as a worker gives it."""


def columns_of(study: Study) -> dict[str, str]:
    """Return the columns of a study's rows and their types: number, options, figures."""
    options = {name: _type(study.values(name)) for name in study.columns}
    if study.search is not None and study.search.worth:
        options["price_more"] = NUMBER
    named = {column_of(name): kind for name, kind in options.items()}
    return {"point": WHOLE, "kind": TEXT, **named, **FIGURES}


def checked_row(row: object) -> Row:
    """Return a row as it was read, with all figures.

    Raises
    ------
    ValueError
        If it is none that a study writes.
    """
    if not isinstance(row, dict) or not isinstance(row.get("digest"), str):
        raise ValueError("a row without a digest")  # noqa: TRY004 - of what a file holds, not of an argument
    if type(row.get("point")) is not int or row.get("status") not in STATUSES:
        raise ValueError("a row without a point or a status")
    found: Row = {**dict.fromkeys(FIGURES), **row}
    for name, kind in FIGURES.items():
        value = found[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, _READ_AS[kind])):
            raise ValueError(f"its {name} is a {type(value).__name__}")
    for name, value in found.items():
        if isinstance(value, list | dict) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"its {name} is {shown(value)}")
    return found


def column_of(option: str) -> str:
    """Return the column of an option: another name where it is a result too, as ``tok_s`` of a fleet is."""
    return f"asked_{option}" if option in FIGURES else option


def cell_of(value: object, column: str) -> object:
    """Return what a column of a type has for a value: lists and mappings are JSON, and what stands beside texts."""
    if value is None or column != TEXT or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)


def _type(values: Sequence[object]) -> str:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "bool"
    if known and all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return WHOLE
    if known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return NUMBER
    return TEXT


def option_cells(options: Mapping[str, Any], columns: Mapping[str, str]) -> Row:
    """Return options as cells of a row."""
    return {
        column: cell_of(value, columns[column])
        for name, value in options.items()
        if (column := column_of(name)) in columns
    }


def row_digest(row: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a row says, but for when, where, how long, and its place in the study."""
    said = {
        name: value
        for name, value in row.items()
        if value is not None and name not in {*WHEN, "point", "row_digest"}
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of what rows say, whatever their order: that of a study is the same on every machine."""
    every = sorted(str(row["row_digest"]) for row in rows)
    return hashlib.sha256("\n".join(every).encode()).hexdigest()
