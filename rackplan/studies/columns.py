"""Columns of study rows: names, types, and which of them the row digest covers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackplan.studies.spec import Point, Study

Row = dict[str, Any]
OK, INFEASIBLE, FAILED, TIMEOUT = STATUSES = "ok", "infeasible", "failed", "timeout"
WHEN = ("seconds", "cpu_s", "host", "finished")
"""Columns that say when, where and how long; no digest of a row covers them."""

TEXT, WHOLE, NUMBER, FLAG, TIME = "string", "int64", "double", "bool", "timestamp"
_FIGURES = [
    ("status reason", TEXT),
    ("tok_s_per_gpu tok_s_per_user step_s usd_per_million_tokens tok_s_per_mw lower_step_s", NUMBER),
    ("tok_s_per_gpu_used tok_s requests_per_s", NUMBER),
    ("gpus gpus_idle", WHOLE),
    ("usd_per_hour power_w", NUMBER),
    ("layout", TEXT),
    ("layout_ep layout_tp layout_stages layout_replicas", WHOLE),
    ("layout_batch", NUMBER),
    ("pools", WHOLE),
    ("bound_by", TEXT),
    ("configurations", WHOLE),
    ("balancedness", NUMBER),
    ("proof", TEXT),
    ("gap", NUMBER),
    ("evidence notes digest files row_digest rackplan", TEXT),
    ("seconds cpu_s", NUMBER),
    ("host", TEXT),
    ("finished", TIME),
]
FIGURES: Mapping[str, str] = {name: kind for names, kind in _FIGURES for name in names.split()}
"""Columns of every study after the options of its points, and their types."""


def columns_of(study: Study) -> dict[str, str]:
    """Return the columns of a study's rows and their types: number, options, figures."""
    options = {column_of(name): _type(study.values(name)) for name in study.columns}
    if study.search is not None and study.search.worth:
        options["price_more"] = NUMBER
    return {"point": WHOLE, "kind": TEXT, **options, **FIGURES}


def _type(values: Sequence[object]) -> str:
    types = {type(value) for value in values if value is not None}
    if not types or not types <= {bool, int, float}:
        return TEXT
    if bool in types:
        return FLAG if len(types) == 1 else TEXT
    return NUMBER if float in types else WHOLE


def column_of(option: str) -> str:
    """Return the column of an option, renamed if it is also a result, like ``tok_s`` of a fleet."""
    return f"asked_{option}" if option in FIGURES else option


def cell_of(value: object, column: str) -> object:
    """Return a value for a column of this type; lists, mappings and mixed values are JSON."""
    if value is None or column != TEXT or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)


def complete(row: Row, point: Point, kind: str, columns: Mapping[str, str], version: str) -> Row:
    """Return a worker's row with the options and digests of its point."""
    cells = {column_of(name): value for name, value in point.options.items()}
    found = {
        **{name: cell_of(value, columns[name]) for name, value in cells.items() if name in columns},
        **{name: value for name, value in row.items() if name in columns},
        "kind": kind,
        "point": point.number,
        "digest": point.digest,
        "files": json.dumps(point.files, sort_keys=True) if point.files else None,
        "rackplan": version,
    }
    return {**found, "row_digest": row_digest(found)}


def row_digest(row: Row) -> str:
    """Return the SHA-256 of a row without when, where and how long, and its place in the study."""
    omitted = {*WHEN, "point", "row_digest"}
    covered = {name: value for name, value in row.items() if value is not None and name not in omitted}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of rows in any order: that of a study is the same on every machine."""
    every = sorted(str(row["row_digest"]) for row in rows)
    return hashlib.sha256("\n".join(every).encode()).hexdigest()
