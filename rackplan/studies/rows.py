"""The rows of a study, and its folder: what was asked for (``study.json``), and the rows as a Parquet dataset.

Rows are appended as files of their own, each written whole; a finished study is one file in the order of its points.
A row that a kill then leaves in two files is read once. ``study.json`` holds the content of the ``STUDY.yaml``, the
folder from which its names of files are read first, their digests, and the version of rackplan that began it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rackplan.digests import code_digest
from rackplan.studies.spec import Point, Study
from topology.base.errors import InputError, one_line
from topology.base.files import TEMPORARY, require_unlinked, write_folder
from topology.base.reading import parse_json, read_text, require_version
from topology.base.schema import Spec, keyword_spec, validated

Row = dict[str, Any]
OK, INFEASIBLE, FAILED, TIMEOUT = STATUSES = "ok", "infeasible", "failed", "timeout"
WHEN = ("seconds", "cpu_s", "host", "finished")
"""Columns that say when, where and how long: rows differ in nothing else from run to run."""
_COLUMNS = {
    "string": "status reason layout bound_by proof evidence notes digest host",
    "double": "tok_s_per_gpu tok_s_per_user step_s usd_per_million_tokens tok_s_per_mw lower_step_s "
    "tok_s_per_gpu_used tok_s requests_per_s usd_per_hour power_w layout_batch balancedness gap seconds cpu_s",
    "int64": "gpus gpus_idle layout_ep layout_tp layout_stages layout_replicas pools configurations",
    "timestamp[ms, tz=UTC]": "finished",
}
FIGURES: Mapping[str, str] = {name: kind for kind, names in _COLUMNS.items() for name in names.split()}
"""Columns of every study after the options of its points, and their types."""
_TYPES = {"bool": "bool", "int": "int64", "float": "double", "float int": "double"}
RECORD, RESULTS, ALL_ROWS = "study.json", "results", "part-00000.parquet"
SCHEMA_VERSION = 2
PART_S, PART_SHARE = 1.0, 0.01
"""Seconds of rows in a file, and share of the run so far: what a kill loses, against the number of files."""


def columns_of(study: Study) -> dict[str, str]:
    """Return the columns of a study's rows and their types: number, options, figures."""
    options = {}
    for name, values in study.values.items():
        types = {type(value).__name__ for value in values if value is not None}
        options[column_of(name)] = _TYPES.get(" ".join(sorted(types)), "string")
    if study.worth:
        options["price_more"] = "double"
    return {"point": "int64", "kind": "string", **options, **FIGURES}


def column_of(option: str) -> str:
    """Return the column of an option, renamed if it is also a result, like ``layout``."""
    return f"asked_{option}" if option in FIGURES else option


def cell_of(value: object, kind: str) -> object:
    """Return a value for a column of this type; lists, mappings and mixed values are JSON."""
    if kind == "string" and value is not None and not isinstance(value, str):
        return json.dumps(value, sort_keys=True)
    return value


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of rows in any order: that of a study is the same on every machine."""
    omitted = {*WHEN, "point"}
    figures = ({name: value for name, value in row.items() if name not in omitted} for row in rows)
    texts = sorted(json.dumps(row, sort_keys=True) for row in figures)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


@cache
def version() -> str:
    """Return the version of rackplan with a digest of its code and figures."""
    return f"{import_module('rackplan').__version__}+{code_digest()[:16]}"


@keyword_spec
class Record(Spec):
    """What ``study.json`` holds: the content of the study, and what its rows depend on besides."""

    schema_version: int
    rackplan: str
    base: str
    files: dict[str, str]
    study: dict[str, Any]


def recorded(folder: Path) -> Record:
    """Return the record of the study in a folder.

    Raises
    ------
    InputError
        If the folder holds none, or one of another schema.
    """
    path = folder / RECORD
    if not path.is_file():
        raise InputError(f"{folder}: no {RECORD} in this folder, so it contains no study; give a STUDY.yaml.")
    record = parse_json(read_text(path, str(path)), str(path))
    require_version(isinstance(record, dict) and record.get("schema_version"), str(path), SCHEMA_VERSION)
    return validated(Record, record, str(path))


def _require_same(study: Study, folder: Path) -> None:
    """Reject a folder of another rackplan version, with other files, or with trials of another study."""
    record = recorded(folder)
    if record.rackplan != version():
        raise InputError(
            f"{folder}: its rows were made by rackplan {record.rackplan[:40]}, but this is {version()}; code or "
            "catalog differ, and one study cannot mix versions. Run its STUDY.yaml with a new folder, -o DIR."
        )
    for text, digest in study.sha256.items():
        if digest != record.files.get(text, digest):
            raise InputError(f"-o {folder}: {text} has changed since the study began; choose another -o.")
    if study.goal and {**record.study, "limit_s": None} != {**study.content, "limit_s": None}:
        raise InputError(f"-o {folder}: it contains another study; choose another -o.")


class Store:
    """The rows of a study by the digest of their point, in memory and on disk; see :func:`opened`."""

    def __init__(self, folder: Path, columns: Mapping[str, str]) -> None:
        require_unlinked(folder, f"{RESULTS}/{ALL_ROWS}")
        self._folder, self._columns, self._new = folder, columns, list[Row]()
        self._began = self._written = time.monotonic()
        self.rows = {row["digest"]: row for row in read_rows(folder, columns)}

    def add(self, study: Study, point: Point, figures: Row) -> None:
        """Add the row of a point, and write new rows when due."""
        options = {column_of(name): value for name, value in point.options.items()}
        cells = {**figures, **options, "kind": study.kind, "point": point.number}
        row = {name: cell_of(cells.get(name), kind) for name, kind in self._columns.items()}
        self.rows[point.digest] = row
        self._new.append(row)
        now = time.monotonic()
        if now - self._written >= max(PART_S, PART_SHARE * (now - self._began)):
            self.flush()

    def flush(self) -> None:
        """Write the new rows as a separate file, named by the number of rows."""
        if self._new:
            self._write(f"part-{len(self.rows):05}.parquet", self._new)
            self._new, self._written = [], time.monotonic()

    def finish(self) -> None:
        """Write all rows as one file in the order of the points."""
        names = [f"{RESULTS}/{path.name}" for path in _parts(self._folder) if path.name != ALL_ROWS]
        self._new = []
        self._write(ALL_ROWS, self.rows.values(), gone=names)

    def _write(self, name: str, rows: Iterable[Row], gone: Iterable[str] = ()) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = pa.BufferOutputStream()
        table = pa.Table.from_pylist(sorted(rows, key=_place), _schema(self._columns))
        pq.write_table(table, file, compression="zstd")
        write_folder(self._folder, {f"{RESULTS}/{name}": file.getvalue()}, gone=gone)


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
    record = {"schema_version": SCHEMA_VERSION, "rackplan": version(), "base": str(study.base)}
    record |= {"files": study.sha256, "study": study.content}
    data = {RECORD: (json.dumps(record, indent=2) + "\n").encode()}
    if (folder / RECORD).is_file():
        _require_same(study, folder)
    elif not folder.exists():
        write_folder(folder, data)
    elif not all(path.name.startswith(TEMPORARY) for path in folder.iterdir()):
        raise InputError(f"-o {folder}: it contains files but no study; choose a new or an empty folder.")
    lock = os.open(require_unlinked(folder), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        store = Store(folder, columns_of(study))
        if numbers is not None:
            if unknown := len(store.rows.keys() - numbers):
                why = "rows match no point of this study, which has changed. Choose another -o."
                raise InputError(f"-o {folder}: {unknown:,} {why}")
            for digest, row in store.rows.items():
                row["point"] = numbers[digest]
        write_folder(folder, data)
        yield store
    except BlockingIOError:
        why = "another rackplan process is writing to it; wait, or choose another -o."
        raise InputError(f"{folder}: {why}") from None
    finally:
        os.close(lock)


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
            with path.open("rb") as file:  # `read_table` takes a name for an address (`con:`)
                table = pq.ParquetFile(file).read(use_threads=False).cast(_schema(columns))
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: not a valid results file ({one_line(error)}); move it away.") from None
        rows |= {row["digest"]: row for row in table.to_pylist()}
    return sorted(rows.values(), key=_place)


def _place(row: Row) -> tuple[int, str]:
    return row["point"], row["digest"]


def _parts(folder: Path) -> list[Path]:
    return sorted((folder / RESULTS).glob("part-*.parquet"))


def _schema(columns: Mapping[str, str]) -> Any:
    import pyarrow as pa

    moment = pa.timestamp("ms", tz="UTC")
    return pa.schema([(name, moment if kind.startswith("time") else kind) for name, kind in columns.items()])
