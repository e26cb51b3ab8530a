"""Where rows are kept: a journal that each second's rows are appended to, and Parquet files written whole.

A row is safe once its line is in ``journal`` and the system has written that out. Lines carry a checksum: what a kill
or a power cut left of the last one is cut off. Rows move from the journal into a file of ``results/`` that is
complete before it has its name; a row that is in both after a kill in between is taken once. When a study is done all
rows are put in the order of its points, in one file: a whole folder of results is made aside and takes the place of
the other, so that no reader ever sees a row twice.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rackplan.studies.columns import NUMBER, TEXT, WHOLE, Row, checked_row, option_cells, row_digest
from rackplan.studies.spec import Point
from topology.errors import InputError, one_line
from topology.limits import STUDY_BYTES
from topology.reading import read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL, RESULTS = "journal", "results"
PART_ROWS, PART_S = 5_000, 120.0
"""Rows, and seconds, after which the journal becomes a file of the dataset."""
_MAKING = ".rackplan-making.parquet"
_ORDERED, _BEFORE = ".rackplan-ordered", ".rackplan-before"
"""Folders of results: one in the order of the points that is being made, and the one whose place it takes."""


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
        self.kept: dict[str, Row] = {row["digest"]: row for row in read_rows(folder)} if keep else {}
        self._keep = keep
        self._folder, self._columns = folder, columns
        self._journal = folder / JOURNAL
        if self._journal.is_symlink():  # it is cut where a kill left half a line: never a file elsewhere
            raise InputError(f"{self._journal}: it is a link, and a study writes its own file; remove it.")
        _recover(folder)
        (folder / RESULTS).mkdir(exist_ok=True)
        (folder / _MAKING).unlink(missing_ok=True)
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
        """Have the system write out what was added."""
        if self._unsynced:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise _unwritable(self._journal, error) from None
            self._unsynced = False
        late = time.monotonic() - self._compacted >= PART_S
        if self._lines >= PART_ROWS or (self._lines and late):
            self.compact()

    def compact(self) -> None:
        """Turn the journal into a file of the dataset, and begin a new one.

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
                self._write_part(rows)
                self._parted.update(row["digest"] for row in rows)
                self._sure = True
            self._file.seek(0)
            self._file.truncate(0)
            os.fsync(self._file.fileno())
        except OSError as error:
            (self._folder / _MAKING).unlink(missing_ok=True)
            raise _unwritable(self._folder / RESULTS, error) from None
        self._lines, self._compacted = 0, time.monotonic()

    def order(self, numbers: Mapping[str, int] | None = None) -> None:
        """Put all rows into one file in the order of the points, where they are not.

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
        if there == wanted and len(parts(self._folder)) <= 1:
            return
        aside = self._folder / _ORDERED
        try:
            aside.mkdir()
            _write_ordered(self._folder, aside, {digest: number for number, digest in wanted})
            _to_disk(self._folder)
            (self._folder / RESULTS).rename(self._folder / _BEFORE)
            _recover(self._folder)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise _unwritable(self._folder / RESULTS, error) from None

    def close(self) -> None:
        """Move what is in the journal into the dataset, and end."""
        try:
            self.sync()
            self.compact()
        finally:
            self._file.close()

    def _write_part(self, rows: Sequence[Row]) -> None:
        import pyarrow as pa

        aside = self._folder / _MAKING
        order = sorted(rows, key=lambda row: (row["point"], row["digest"]))
        table = pa.Table.from_pylist(
            [_typed(row, self._columns) for row in order], schema=schema(self._columns)
        )
        _write_table(table, aside)
        taken = [int(part.stem.rpartition("-")[2]) for part in parts(self._folder)]
        aside.rename(self._folder / RESULTS / f"part-{max(taken, default=-1) + 1:05d}.parquet")
        for folder in (self._folder / RESULTS, self._folder):
            _to_disk(folder)


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
    """Return the version of rackplan."""
    return str(import_module("rackplan").__version__)


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
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, Row] = {}
    for part in parts(folder):
        try:
            for row in map(checked_row, pq.read_table(part).to_pylist()):
                found.setdefault(row["digest"], row)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise InputError(f"{part}: no file of results ({one_line(error)}).") from None
    for row in journal_rows(folder)[0]:
        found.setdefault(row["digest"], row)
    return sorted(found.values(), key=lambda row: (row["point"], row["digest"]))


def parts(folder: Path) -> list[Path]:
    """Return the files of a study's dataset."""
    where = folder / RESULTS
    if not where.exists() and (folder / _BEFORE).exists():  # killed between two names
        where = folder / _BEFORE
    return sorted(where.glob("part-*.parquet"))


def journal_rows(folder: Path) -> tuple[list[Row], int]:
    """Return the rows of a journal as far as its lines are whole, and how many bytes those have."""
    try:
        data = read_bytes(folder / JOURNAL, str(folder / JOURNAL), most_bytes=STUDY_BYTES)
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


def _recover(folder: Path) -> None:
    """Complete an exchange of results that a kill ended, or undo what was not ready."""
    results, ordered, before = folder / RESULTS, folder / _ORDERED, folder / _BEFORE
    if before.exists():
        if not results.exists():
            (ordered if ordered.exists() else before).rename(results)
        _to_disk(folder)
        shutil.rmtree(before, ignore_errors=True)
    shutil.rmtree(ordered, ignore_errors=True)


def _write_ordered(folder: Path, aside: Path, numbers: Mapping[str, int]) -> None:
    """Write the rows of all files into one, each under its number and in that order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables([pq.read_table(part) for part in parts(folder)])
    named = [numbers[digest] for digest in table.column("digest").to_pylist()]
    place = table.schema.get_field_index("point")
    table = table.set_column(place, table.schema.field(place), pa.array(named, pa.int64()))
    _write_table(
        table.sort_by([("point", "ascending"), ("digest", "ascending")]), aside / "part-00000.parquet"
    )
    _to_disk(aside)


def _write_table(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())


def _columns(part: Path) -> list[Row]:
    """Return number and digest of the rows of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found: list[Row] = pq.read_table(part, columns=["point", "digest"]).to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{part}: no file of results ({one_line(error)}); move it away.") from None
    return found


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
