"""One row of a CSV of measurements: typed cells, and errors that name the file, the row and the column."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from topology.errors import InputError
from topology.reading import nearest

_LONGEST_FILE_BYTES = 256_000_000
_LARGEST = 1e15


class Row:
    """The cells of one row; blank cells and ``-`` mean "not given"."""

    def __init__(self, cells: Mapping[str, str], where: str) -> None:
        self._cells = cells
        self.where = where

    def fail(self, column: str, problem: str) -> NoReturn:
        """Raise the error of this cell."""
        raise InputError(f"{self.where}, column {column}: {problem}")

    def text(self, column: str) -> str:
        """Return the text of a cell, "" where it is blank."""
        found = self._cells.get(column, "").strip()
        return "" if found in ("-", "\N{EN DASH}") else found

    def need(self, column: str) -> str:
        """Return the text of a cell that must not be blank."""
        found = self.text(column)
        if not found:
            self.fail(column, "it is blank; every row needs it.")
        return found

    def number(self, column: str, default: float = 0.0, *, most: float = _LARGEST) -> float:
        """Return a finite number from 0 to ``most``, ``default`` where the cell is blank."""
        text = self.text(column)
        if not text:
            return default
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not 0 <= value <= most:
            limit = f"from 0 to {most:g}" if most < _LARGEST else "of 0 or more"
            self.fail(column, f"{text!r} must be a number {limit}, without a unit.")
        return value

    def count(self, column: str, default: int = 0) -> int:
        """Return a whole number of 0 or more, ``default`` where the cell is blank."""
        value = self.number(column, float(default))
        if value != int(value):
            self.fail(column, f"{self.text(column)!r} must be a whole number.")
        return int(value)

    def positive(self, column: str) -> float:
        """Return a number above 0 that must be there."""
        self.need(column)
        value = self.number(column)
        if value <= 0:
            self.fail(column, f"{self.text(column)!r} must be a number above 0, without a unit.")
        return value

    def known(
        self, column: str, read: Callable[[str], str | None], names: Iterable[str], default: str
    ) -> str:
        """Return what ``read`` makes of the cell, ``default`` where it is blank."""
        text = self.text(column)
        if not text:
            return default
        found = read(text)
        if found is None:
            self.fail(column, f"unknown value {text!r}; {nearest(text, names)}")
        return found


def table_of(path: str | Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file; rows without any text are dropped.

    Raises
    ------
    InputError
        If it cannot be read, is not UTF-8 text, or has no header.
    """
    where = str(path)
    try:
        if Path(path).stat().st_size > _LONGEST_FILE_BYTES:
            raise InputError(f"{where}: too long for a file of measurements.")
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            table = list(csv.reader(file, strict=True))
    except OSError as error:
        raise InputError(f"{where}: cannot read it ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not UTF-8 text; measurements are read from CSV files.") from None
    except csv.Error as error:
        raise InputError(f"{where}: not a CSV file ({error}).") from None
    if not table or not any(cell.strip() for cell in table[0]):
        raise InputError(f"{where}: has no header line with the names of the columns.")
    return [cell.strip() for cell in table[0]], table[1:]


def rows_of(path: str | Path, header: Sequence[str], table: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Yield the rows that are not empty, numbered as a spreadsheet numbers them (the header is row 1)."""
    for number, cells in enumerate(table, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path}: row {number}"
        if len(cells) != len(header):
            raise InputError(
                f"{where}: {len(cells)} cells, but the header names {len(header)} columns; "
                "quote cells that hold commas."
            )
        yield Row(dict(zip(header, cells, strict=True)), where)
