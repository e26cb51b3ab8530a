"""Where rows are kept: a journal that each second's rows are appended to, and Parquet files written whole.

A row is safe once its line is in ``journal`` and the system has written that out. Lines have a checksum: what a
kill or a power cut left of the last one is cut off. Now and then its rows go into ``results/part-00000.parquet``:
one of all rows, in the order of the points, takes its place (:mod:`topology.files`), so that no reader ever sees
half a file or a row twice. A row that is in both after a kill in between is taken once.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rackplan.digests import code_digest
from rackplan.studies.columns import NUMBER, TEXT, WHOLE, Row, checked_row, option_cells, row_digest
from rackplan.studies.spec import Point
from topology.errors import InputError, one_line
from topology.files import require_unlinked, write_folder
from topology.reading import read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL, RESULTS = "journal", "results"
PART = "part-00000.parquet"
PART_ROWS, PART_SHARE, PART_S = 5_000, 0.25, 120.0
"""Rows, share of those in the dataset, and seconds after which the journal's rows go into the dataset."""


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
        require_unlinked(folder, JOURNAL, f"{RESULTS}/{PART}")
        self.kept: dict[str, Row] = {row["digest"]: row for row in read_rows(folder)} if keep else {}
        self._keep = keep
        self._folder, self._columns = folder, columns
        self._journal = folder / JOURNAL
        (folder / RESULTS).mkdir(exist_ok=True)
        self._parted = self._in_parts()
        self._sure = True
        rows, good = journal_rows(folder)
        self.digests = self._parted | {row["digest"] for row in rows}
        self._lines = len(rows)
        self._unsynced = False
        self._compacted = time.monotonic()
        self._file = self._journal.open("ab", buffering=0)
        _to_disk(folder)
        if self._file.tell() != good:
            self._file.truncate(good)
        if rows:
            self.compact()

    def _in_parts(self) -> set[str]:
        return {row["digest"] for part in parts(self._folder) for row in _columns(part)}

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows to the journal; they are safe after :meth:`sync`.

        Raises
        ------
        InputError
            If they cannot be written; what is there already stays whole.
        """
        once = {row["digest"]: row for row in reversed(rows)}
        new = [row for row in reversed(once.values()) if row["digest"] not in self.digests]
        start, left = self._file.tell(), memoryview(b"".join(_line(row) for row in new))
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            os.ftruncate(self._file.fileno(), start)
            raise _unwritable(self._journal, error) from None
        self._unsynced = True
        self._lines += len(new)
        self.digests.update(row["digest"] for row in new)
        if self._keep:
            self.kept |= {row["digest"]: row for row in new}

    def sync(self) -> None:
        """Have the system write out what was added.

        Raises
        ------
        InputError
            If it cannot, or the journal is no more where it was: what is written to it would be lost.
        """
        if self._unsynced:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise _unwritable(self._journal, error) from None
            self._require_journal()
            self._unsynced = False
        late = time.monotonic() - self._compacted >= PART_S
        if self._lines >= max(PART_ROWS, PART_SHARE * len(self._parted)) or (self._lines and late):
            self.compact()

    def _require_journal(self) -> None:
        try:
            there = os.path.samestat(os.fstat(self._file.fileno()), self._journal.lstat())
        except OSError:
            there = False
        if not there:
            raise InputError(
                f"{self._journal}: it was moved or removed while the study ran; the same command goes on with the "
                "rows that its folder holds."
            )

    def compact(self) -> None:
        """Put the rows of the journal into the dataset, and begin a new one.

        What counts is what the journal and the files hold: Ctrl-C may have come between any two steps.

        Raises
        ------
        InputError
            If it cannot be written; the journal then stays.
        """
        if not self._sure:
            self._parted = self._in_parts()
        rows = [row for row in journal_rows(self._folder)[0] if row["digest"] not in self._parted]
        try:
            if rows:
                self._sure = False
                self._write([*map(_table, parts(self._folder)), self._table(rows)])
                self._parted.update(row["digest"] for row in rows)
                self._sure = True
            self._file.seek(0)
            self._file.truncate(0)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self._folder / RESULTS, error) from None
        self._lines, self._compacted = 0, time.monotonic()

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
        self.sync()
        self.compact()
        there = [(row["point"], row["digest"]) for part in parts(self._folder) for row in _columns(part)]
        wanted = sorted(there if numbers is None else [(numbers[digest], digest) for _, digest in there])
        if there != wanted or len(parts(self._folder)) > 1:
            named = {digest: number for number, digest in wanted}
            self._write([_numbered(_table(part), named) for part in parts(self._folder)])

    def close(self) -> None:
        """Move what is in the journal into the dataset, and end."""
        try:
            self.sync()
            self.compact()
        finally:
            self._file.close()

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        import pyarrow as pa

        return pa.Table.from_pylist(
            [_typed(row, self._columns) for row in rows], schema=schema(self._columns)
        )

    def _write(self, tables: Sequence[pa.Table]) -> None:
        """Make some rows the dataset, whole, in the order of their points."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.concat_tables(tables).sort_by([("point", "ascending"), ("digest", "ascending")])
        others = [f"{RESULTS}/{part.name}" for part in parts(self._folder) if part.name != PART]
        made = pa.BufferOutputStream()
        pq.write_table(table, made, compression="zstd")
        try:
            write_folder(self._folder, {f"{RESULTS}/{PART}": made.getvalue()}, gone=others)
        except InputError as error:
            if isinstance(error.__context__, OSError):
                raise _unwritable(self._folder / RESULTS, error.__context__) from None
            raise


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
    """Return all rows of a study, those in its journal too, in the order of its points.

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
    for row in journal_rows(folder)[0]:
        found.setdefault(row["digest"], row)
    return sorted(found.values(), key=lambda row: (row["point"], row["digest"]))


def parts(folder: Path) -> list[Path]:
    """Return the files of a study's dataset."""
    return sorted((folder / RESULTS).glob("part-*.parquet"))


def journal_rows(folder: Path) -> tuple[list[Row], int]:
    """Return the rows of a journal as far as its lines are whole, and how many bytes those have."""
    try:
        data = read_bytes(folder / JOURNAL, str(folder / JOURNAL))
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise InputError(f"{folder / JOURNAL}: cannot be read ({error.strerror or error}).") from None
    rows: list[Row] = []
    good = 0
    for line in _lines(data):
        try:
            mark, text = line[:8], line[9:-1]
            if int(mark, 16) != zlib.crc32(text):
                break
            rows.append(checked_row(json.loads(text)))
        except (ValueError, RecursionError):
            break
        good += len(line)
    return rows, good


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start : end + 1]
        start = end + 1


def _line(row: Row) -> bytes:
    text = json.dumps(row, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _typed(row: Row, columns: Mapping[str, str]) -> Row:
    """Return a row of the journal as Parquet takes it: times are text there."""
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


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path}: cannot write there ({error.strerror or error}); every row before is kept, and the same command "
        "goes on from there."
    )


def _to_disk(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
