"""The rows of a study, and its folder: what was asked for (``study.json``), and the rows as a Parquet dataset.

Rows are appended as files of their own, each written whole: a kill loses at most a second of short points. A finished
study is one file in the order of its points; a row that a kill then leaves in two files is read once.

``study.json`` holds the content of the ``STUDY.yaml``, the folder from which its names of files are read first, and
the version of rackplan that began it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rackplan.digests import code_digest
from rackplan.studies.spec import Point, Study, study_of
from topology.base.errors import InputError, one_line
from topology.base.files import TEMPORARY, require_unlinked, write_folder
from topology.base.reading import parse_json, read_text, require_version

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

RECORD, RESULTS, WHOLE_TABLE = "study.json", "results", "part-00000.parquet"
SCHEMA_VERSION = 1
PART_S, MOST_PARTS = 1.0, 256
"""Seconds of rows per file, and files before they are merged."""


def columns_of(study: Study) -> dict[str, str]:
    """Return the columns of a study's rows and their types: number, options, figures."""
    options = {column_of(name): _type(study.values(name)) for name in study.columns}
    if study.worth:
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
    """Return the column of an option, renamed if it is also a result, like ``layout``."""
    return f"asked_{option}" if option in FIGURES else option


def cell_of(value: object, column: str) -> object:
    """Return a value for a column of this type; lists, mappings and mixed values are JSON."""
    if value is None or column != TEXT or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)


def complete(row: Row, point: Point, kind: str, columns: Mapping[str, str]) -> Row:
    """Return a worker's row with the options and digests of its point.

    Its own digest is without when, where and how long, and its place in the study.
    """
    options = {column_of(name): value for name, value in point.options.items()}
    whole = {
        **{name: cell_of(value, columns[name]) for name, value in options.items()},
        **row,
        "kind": kind,
        "point": point.number,
        "digest": point.digest,
        "files": json.dumps(point.files, sort_keys=True) if point.files else None,
        "rackplan": version(),
    }
    omitted = {*WHEN, "point"}
    covered = {name: value for name, value in whole.items() if value is not None and name not in omitted}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return {**whole, "row_digest": hashlib.sha256(text.encode()).hexdigest()}


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of rows in any order: that of a study is the same on every machine."""
    every = sorted(str(row["row_digest"]) for row in rows)
    return hashlib.sha256("\n".join(every).encode()).hexdigest()


@cache
def version() -> str:
    """Return the version of rackplan with a digest of its code and figures."""
    return f"{import_module('rackplan').__version__}+{code_digest()[:16]}"


def recorded(folder: Path) -> tuple[Study, str]:
    """Return the study in a folder, and the version of rackplan that started it.

    Raises
    ------
    InputError
        If the folder holds none, or one of another schema.
    """
    path = folder / RECORD
    if not path.is_file():
        raise InputError(f"{folder}: no {RECORD} in this folder, so it contains no study; give a STUDY.yaml.")
    record = parse_json(read_text(path, str(path)), str(path))
    schema = record.get("schema_version") if isinstance(record, dict) else None
    require_version(schema, str(path), SCHEMA_VERSION)
    if schema != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema {str(schema)[:20]} is not {SCHEMA_VERSION}, which this rackplan reads."
        )
    study = study_of(record.get("study"), str(path), Path(str(record.get("base", "."))))
    return study, str(record.get("rackplan"))


def _require_same(study: Study, folder: Path) -> None:
    """Reject a folder with another study, one of another rackplan version, or other files."""
    if (folder / RECORD).is_file():
        before, began = recorded(folder)
        if began != version():
            raise InputError(
                f"{folder}: its rows were made by rackplan {began[:40]}, but this is {version()}; code or "
                "catalog differ, and one study cannot mix versions. Run its STUDY.yaml with a new folder, -o DIR."
            )
        same = (before.kind, before.goal, columns_of(before)) == (study.kind, study.goal, columns_of(study))
        if study.goal:  # trials follow from all of it
            same = replace(before, limit_s=study.limit_s, base=study.base) == study
        if not same:
            raise InputError(f"-o {folder}: it contains another study; choose another -o.")
    elif folder.is_dir() and not all(path.name.startswith(TEMPORARY) for path in folder.iterdir()):
        raise InputError(f"-o {folder}: it contains files but no study; choose a new or an empty folder.")


def _record(study: Study, folder: Path) -> None:
    """Write the definition of the study."""
    base = str(study.base)
    record = {"schema_version": SCHEMA_VERSION, "rackplan": version(), "base": base, "study": study.content}
    write_folder(folder, {RECORD: (json.dumps(record, indent=2) + "\n").encode()})


class Store:
    """The rows of a study by the digest of their point, in memory and on disk; see :func:`opened`."""

    def __init__(self, folder: Path, columns: Mapping[str, str]) -> None:
        require_unlinked(folder, f"{RESULTS}/{WHOLE_TABLE}")
        self.columns = columns
        self.rows = {row["digest"]: row for row in read_rows(folder, columns)}
        self._folder = folder
        self._new: list[Row] = []
        self._part = max((int(path.stem.removeprefix("part-")) + 1 for path in _parts(folder)), default=0)
        self._written = time.monotonic()

    def add(self, row: Row) -> None:
        """Add a row, and write new rows when due."""
        self.rows[row["digest"]] = row
        self._new.append(row)
        if time.monotonic() - self._written >= PART_S or row["seconds"] >= PART_S:
            self.flush()

    def flush(self) -> None:
        """Write the new rows as a separate file; rows that Ctrl-C left new are written again under its name."""
        if self._new and self._part >= MOST_PARTS:
            self.compact()
        elif self._new:
            self._write(f"part-{self._part:05}.parquet", self._new)
            self._part += 1

    def compact(self) -> None:
        """Write all rows as one file in the order of the points."""
        parts = _parts(self._folder)
        self._write(WHOLE_TABLE, [*self.rows.values()])
        for path in parts:
            if path.name != WHOLE_TABLE:
                path.unlink()
        self._part = 1

    def _write(self, name: str, rows: list[Row]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        made = pa.BufferOutputStream()
        ordered = sorted(rows, key=_place)
        pq.write_table(pa.Table.from_pylist(ordered, _schema(self.columns)), made, compression="zstd")
        write_folder(self._folder, {f"{RESULTS}/{name}": made.getvalue()})
        self._new, self._written = [], time.monotonic()


@contextmanager
def opened(study: Study, folder: Path, numbers: Mapping[str, int] | None = None) -> Iterator[Store]:
    """Yield the rows of a study in its folder, locked against other runs.

    Parameters
    ----------
    numbers:
        The number of each point by digest, where they are known: in a study that was enlarged some have changed.

    Raises
    ------
    InputError
        If pyarrow is missing, another run is at work there, or the folder holds something else.
    """
    try:
        import fcntl

        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise InputError('studies write Parquet with pyarrow: pip install "rackplan[study]".') from None
    _require_same(study, folder)
    if not folder.exists():
        _record(study, folder)
    lock = os.open(require_unlinked(folder), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        store = Store(folder, columns_of(study))
        if numbers is not None:
            if strange := len(store.rows.keys() - numbers):
                raise unknown_rows(folder, strange)
            for digest, row in store.rows.items():
                row["point"] = numbers[digest]
        _record(study, folder)
        yield store
    except BlockingIOError:
        raise InputError(
            f"{folder}: another rackplan process is writing to it; wait, or choose another -o."
        ) from None
    finally:
        os.close(lock)


def unknown_rows(folder: Path, many: int) -> InputError:
    """Return the error of rows in a folder that are of no point of the study."""
    return InputError(
        f"-o {folder}: {many:,} rows match no point of this study, so the study or one of its files has changed. "
        "Choose another -o."
    )


def read_rows(folder: Path, columns: Mapping[str, str]) -> list[Row]:
    """Return all rows of a study with these columns in the order of its points.

    Raises
    ------
    InputError
        If a file of the dataset cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: dict[str, Row] = {}
    for path in _parts(folder):
        try:
            # `read_table` takes a name for an address (`con:`), and its threads hold what they read after it returned
            with pa.OSFile(os.fsencode(path)) as file:
                table = pq.ParquetFile(file).read(use_threads=False)
            if not table.schema.equals(_schema(columns)):
                raise ValueError("columns differ from those of the study")  # noqa: TRY301
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: not a valid results file ({one_line(error)}); move it away.") from None
        for row in table.to_pylist():
            rows.setdefault(row["digest"], row)
    return sorted(rows.values(), key=_place)


def _place(row: Row) -> tuple[int, str]:
    return row["point"], row["digest"]


def _parts(folder: Path) -> list[Path]:
    return sorted((folder / RESULTS).glob("part-[0-9][0-9][0-9][0-9][0-9].parquet"))


def _schema(columns: Mapping[str, str]) -> Any:
    import pyarrow as pa

    moment = pa.timestamp("ms", tz="UTC")
    return pa.schema([(name, moment if kind == TIME else kind) for name, kind in columns.items()])
