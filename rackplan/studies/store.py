"""Where rows are kept: a Parquet dataset, to which each second's rows are added as a file of their own.

Every file is written whole (:mod:`topology.base.files`), so that no reader ever sees half of one; a kill
loses the rows of the last second. Many small files become one in the order of the points; a row that is in
two files after a kill in between is taken once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rackplan.digests import code_digest
from rackplan.studies.columns import NUMBER, TEXT, WHOLE, Row, checked_row, option_cells, row_digest
from rackplan.studies.spec import Point
from topology.base.errors import InputError, one_line
from topology.base.files import require_unlinked, write_folder

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS = "results"
PART = "part-00000.parquet"
PART_S, MOST_PARTS = 1.0, 32
"""Seconds of rows in a file, and how many files there are before they become one."""


def require_pyarrow() -> None:
    """Refuse a study where Parquet cannot be written.

    Raises
    ------
    InputError
        If pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise InputError('studies write Parquet with pyarrow: pip install "rackplan[study]".') from None


class Store:
    """The rows of a study on disk.

    Parameters
    ----------
    folder:
        That of the study; one process at a time writes there.
    columns:
        As :func:`columns_of` gives them.
    keep:
        Whether all rows stay in memory too, by digest (``kept``).
    """

    def __init__(self, folder: Path, columns: Mapping[str, str], *, keep: bool = False) -> None:
        require_unlinked(folder, f"{RESULTS}/{PART}")
        self.kept: dict[str, Row] = {row["digest"]: row for row in read_rows(folder)} if keep else {}
        self._keep = keep
        self._folder, self._columns = folder, columns
        (folder / RESULTS).mkdir(exist_ok=True)
        self.digests = {row["digest"] for part in parts(folder) for row in _columns(part)}
        self._new: list[Row] = []
        self._written = time.monotonic()

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows of points that have none yet; they are on disk after :meth:`sync`."""
        for row in rows:
            if row["digest"] not in self.digests:
                self.digests.add(row["digest"])
                self._new.append(row)
                if self._keep:
                    self.kept[row["digest"]] = row

    def sync(self, *, now: bool = False) -> None:
        """Write what was added, once a second or ``now``.

        Raises
        ------
        InputError
            If it cannot be written.
        """
        if not self._new or not (now or time.monotonic() - self._written >= PART_S):
            return
        there = {part.name for part in parts(self._folder)}
        name = next(name for name in (f"part-{n:05}.parquet" for n in count()) if name not in there)
        self._write(name, self._table(self._new))
        self._new, self._written = [], time.monotonic()
        if len(there) >= MOST_PARTS:
            self.compact()

    def compact(self) -> None:
        """Make all rows one file, in the order of the points.

        Raises
        ------
        InputError
            If it cannot be written.
        """
        self.sync(now=True)
        there = parts(self._folder)
        if len(there) > 1:
            import pyarrow as pa

            table = pa.concat_tables(map(_table, there))
            first = {digest: at for at, digest in reversed(list(enumerate(table["digest"].to_pylist())))}
            self._write(PART, table.take(sorted(first.values())))
            for part in there:
                if part.name != PART:
                    part.unlink()

    def order(self, numbers: Mapping[str, int] | None = None) -> None:
        """Put all rows in the order of the points, where they are not.

        Parameters
        ----------
        numbers:
            The number of each point by digest: of a study that was enlarged some are others than before.

        Raises
        ------
        InputError
            If it cannot be written; the rows then stay as they were.
        """
        self.compact()
        there = [(row["point"], row["digest"]) for part in parts(self._folder) for row in _columns(part)]
        wanted = sorted(there if numbers is None else [(numbers[digest], digest) for _, digest in there])
        if there != wanted:
            named = {digest: number for number, digest in wanted}
            self._write(
                PART, pa.concat_tables(_numbered(_table(part), named) for part in parts(self._folder))
            )

    def close(self) -> None:
        """Make all rows one file, and end."""
        self.compact()

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_pylist(
            [_typed(row, self._columns) for row in rows], schema=schema(self._columns)
        )

    def _write(self, name: str, table: pa.Table) -> None:
        """Write a file of rows, in the order of their points."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        made = pa.BufferOutputStream()
        try:
            ordered = table.sort_by([("point", "ascending"), ("digest", "ascending")])
            pq.write_table(ordered, made, compression="zstd")
            write_folder(self._folder, {f"{RESULTS}/{name}": made.getvalue()})
        except (OSError, InputError) as error:
            cause = error if isinstance(error, OSError) else error.__context__
            if not isinstance(cause, OSError):
                raise
            raise InputError(
                f"{self._folder / RESULTS}: cannot write there ({cause.strerror or cause}); every row before is "
                "kept, and the same command goes on from there."
            ) from None


def schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the columns as Parquet has them."""
    import pyarrow as pa

    kinds = {
        TEXT: pa.string(),
        WHOLE: pa.int64(),
        NUMBER: pa.float64(),
        "bool": pa.bool_(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


def version() -> str:
    """Return the version of rackplan and, since a version has many commits, the digest of its code and figures."""
    return f"{import_module('rackplan').__version__}+{code_digest()[:16]}"


def complete(row: Row, point: Point, kind: str, columns: Mapping[str, str]) -> Row:
    """Return a worker's row with its options and digests, without columns that are not the study's."""
    found = {
        **option_cells(point.options, columns),
        **{name: value for name, value in row.items() if name in columns},
        "kind": kind,
        "files": json.dumps(point.files, sort_keys=True) if point.files else None,
        "rackplan": version(),
    }
    return {**found, "row_digest": row_digest(found)}


def read_rows(folder: Path) -> list[Row]:
    """Return all rows of a study in the order of its points.

    Raises
    ------
    InputError
        If a file of the dataset cannot be read.
    """
    found: dict[str, Row] = {}
    for part in parts(folder):
        try:
            for row in map(checked_row, _table(part).to_pylist()):
                found.setdefault(row["digest"], row)
        except (ValueError, OverflowError) as error:
            raise _no_results(part, error) from None
    return sorted(found.values(), key=lambda row: (row["point"], row["digest"]))


def parts(folder: Path) -> list[Path]:
    """Return the files of a study's dataset."""
    return sorted((folder / RESULTS).glob("part-*.parquet"))


def _typed(row: Row, columns: Mapping[str, str]) -> Row:
    """Return a row of a worker as Parquet takes it: times are text there."""
    from datetime import datetime

    found: Row = {name: row.get(name) for name in columns}
    if isinstance(found.get("finished"), str):
        found["finished"] = datetime.fromisoformat(found["finished"])
    for name, kind in columns.items():
        if kind == NUMBER and found[name] is not None:
            found[name] = float(found[name])
    return found


def _numbered(table: pa.Table, numbers: Mapping[str, int]) -> pa.Table:
    """Return rows each under its number."""
    import pyarrow as pa

    named = [numbers[digest] for digest in table.column("digest").to_pylist()]
    place = table.schema.get_field_index("point")
    return table.set_column(place, table.schema.field(place), pa.array(named, pa.int64()))


def _table(part: Path, columns: list[str] | None = None) -> pa.Table:
    """Return the rows of a file of the dataset.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # `read_table` takes a name for an address (`con:`), and `~` for a home; its threads hold what they read after
        # it returned, and a file of Python that they let go of when Python ends aborts the process
        with pa.OSFile(os.fsencode(part)) as file:
            return pq.ParquetFile(file).read(columns, use_threads=False)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise _no_results(part, error) from None


def _columns(part: Path) -> list[Row]:
    """Return number and digest of the rows of a file."""
    table = _table(part, ["point", "digest"])
    if table.num_columns != 2:
        raise _no_results(part, ValueError("no column `point` or `digest`"))
    found: list[Row] = table.to_pylist()
    return found


def _no_results(part: Path, error: Exception) -> InputError:
    return InputError(f"{part}: no file of results ({one_line(error)}); move it away.")
