"""The folder of a study: what was asked for (``study.json``), and its rows as a Parquet dataset.

Rows are appended as files of their own, each written whole: a kill loses at most a second of short points. A finished
study is one file in the order of its points; a row that a kill then leaves in two files is read once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rackplan.digests import code_digest
from rackplan.studies.columns import FLAG, NUMBER, TEXT, TIME, WHOLE, Row, columns_of
from rackplan.studies.spec import Study, study_of
from topology.base.errors import InputError, one_line
from topology.base.files import TEMPORARY, require_unlinked, write_folder
from topology.base.reading import parse_json, read_text, require_version

RECORD, RESULTS, WHOLE_TABLE = "study.json", "results", "part-00000.parquet"
SCHEMA_VERSION = 1
PART_S, LONG_S, MOST_PARTS = 1.0, 10.0, 256
"""Seconds of rows per file, point duration from which rows are written at once, and files before they are merged."""


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """``study.json``: what the study of a folder is, enough to go on with it.

    Attributes
    ----------
    rackplan:
        The version that began it.
    base:
        The folder from which names of files are read first.
    study:
        The content of the ``STUDY.yaml``.
    """

    rackplan: str
    base: str
    study: dict[str, Any]


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


def _record(study: Study, folder: Path) -> None:
    """Write the definition of the study; reject a folder with another study or another rackplan version."""
    if (folder / RECORD).is_file():
        before, began = recorded(folder)
        if began != version():
            raise InputError(
                f"{folder}: its rows were made by rackplan {began[:40]}, but this is {version()}; code or "
                "catalog differ, "
                "and one study cannot mix versions. Run its STUDY.yaml with a new folder, -o DIR."
            )
        same = before.kind == study.kind and before.search == study.search
        if not same or columns_of(before) != columns_of(study):
            raise InputError(f"-o {folder}: it contains another study; choose another -o.")
    elif folder.is_dir() and not all(path.name.startswith(TEMPORARY) for path in folder.iterdir()):
        raise InputError(f"-o {folder}: it contains files but no study; choose a new or an empty folder.")
    record = {
        "schema_version": SCHEMA_VERSION,
        "rackplan": version(),
        "base": str(study.base),
        "study": study.content,
    }
    write_folder(folder, {RECORD: (json.dumps(record, indent=2) + "\n").encode()})


class Store:
    """The rows of a study by the digest of their point, in memory and on disk; see :func:`opened`."""

    def __init__(self, folder: Path, columns: Mapping[str, str]) -> None:
        require_unlinked(folder, f"{RESULTS}/{WHOLE_TABLE}")
        self.columns = columns
        self.rows = {row["digest"]: row for row in read_rows(folder, columns)}
        self._folder = folder
        self._new: list[Row] = []
        parts = _parts(folder)
        self._part = int(parts[-1].stem.removeprefix("part-")) + 1 if parts else 0
        self._written = time.monotonic()

    def add(self, row: Row) -> None:
        """Add a row, and write new rows when due."""
        self.rows[row["digest"]] = row
        self._new.append(row)
        if time.monotonic() - self._written >= PART_S or row["seconds"] >= LONG_S:
            self.flush()

    def flush(self) -> None:
        """Write the new rows as a separate file; rows that Ctrl-C left new are written again under its name."""
        if not self._new:
            return
        if self._part >= MOST_PARTS:
            self.compact()
            return
        self._write(f"part-{self._part:05}.parquet", self._new)
        self._part += 1

    def compact(self, numbers: Mapping[str, int] | None = None) -> None:
        """Write all rows as one file in the order of the points.

        Parameters
        ----------
        numbers:
            The number of each point by digest: in a study that was enlarged some have changed.
        """
        rows = [{**row, "point": numbers[row["digest"]]} if numbers else row for row in self.rows.values()]
        there = _parts(self._folder)
        self._write(WHOLE_TABLE, rows)
        for path in there:
            if path.name != WHOLE_TABLE:
                path.unlink()
        self._part = 1

    def _write(self, name: str, rows: list[Row]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        made = pa.BufferOutputStream()
        ordered = sorted(rows, key=lambda row: (row["point"], row["digest"]))
        pq.write_table(pa.Table.from_pylist(ordered, _schema(self.columns)), made, compression="zstd")
        write_folder(self._folder, {f"{RESULTS}/{name}": made.getvalue()})
        self._new, self._written = [], time.monotonic()


@contextmanager
def opened(study: Study, folder: Path) -> Iterator[Store]:
    """Yield the rows of a study in its folder, locked against other runs.

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
    _record(study, folder)
    lock = os.open(require_unlinked(folder), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Store(folder, columns_of(study))
    except BlockingIOError:
        raise InputError(
            f"{folder}: another rackplan process is writing to it; wait, or choose another -o."
        ) from None
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

    found: dict[str, Row] = {}
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
            found.setdefault(row["digest"], row)
    return sorted(found.values(), key=lambda row: (row["point"], row["digest"]))


def _parts(folder: Path) -> list[Path]:
    return sorted((folder / RESULTS).glob("part-[0-9][0-9][0-9][0-9][0-9].parquet"))


def _schema(columns: Mapping[str, str]) -> Any:
    import pyarrow as pa

    kinds = {
        TEXT: pa.string(),
        WHOLE: pa.int64(),
        NUMBER: pa.float64(),
        FLAG: pa.bool_(),
        TIME: pa.timestamp("ms", tz="UTC"),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
