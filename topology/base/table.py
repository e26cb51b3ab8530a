"""CSV files, read as strictly as other input: each row is the fields of its columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from topology.base.errors import InputError
from topology.base.names import plain_words
from topology.base.reading import nearest, read_text, shown
from topology.base.units import plain_number
from topology.base.values import require_number, require_whole, wrong

_MAX_COUNT = 1_000_000_000
_MAX_FIGURE = 1e15
"""Beyond what any column counts or measures: a slip of the pen."""
_MIN_MEASURED = 1e-15
"""Of a measured figure: errors are divided by it."""
_YES = frozenset({"yes", "y", "true", "t", "1", "on", "tbo", "dbo"})
_NO = frozenset({"no", "n", "false", "f", "0", "off", "none", "sbo"})


class Row:
    """The cells of one row; blank cells and ``-`` are absent, figures are read from their text."""

    def __init__(self, cells: Mapping[str, str], where: str) -> None:
        texts = {column: cell.strip() for column, cell in cells.items()}
        self._cells = {key: text for key, text in texts.items() if text not in ("", "-", "\N{EN DASH}")}
        self._where = where

    def at(self, key: str) -> str:
        """Return the place of a cell, for messages."""
        return f"{self._where}, column {key}"

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise InputError: ``problem`` is what is wrong with ``key``."""
        raise InputError(f"{self.at(key)}: {problem}")

    def must_be(self, key: str, expected: str) -> NoReturn:
        """Raise InputError: the cell is not what it must be."""
        raise wrong(self._cells.get(key), self.at(key), expected)

    def need(self, key: str) -> str:
        """Return the text of a cell that must not be blank."""
        if key not in self._cells:
            self.fail(key, "it is blank, but every row needs it.")
        return self._cells[key]

    def text(self, key: str) -> str:
        """Return the text of a cell, of several lines too; "" where it is blank."""
        return self._cells.get(key, "")

    def number(self, key: str, default: float | None = 0.0, *, most: float = _MAX_FIGURE) -> float:
        """Return a number from 0 to ``most``, by default 0 where the cell is blank."""
        if default is not None and key not in self._cells:
            return default
        return require_number(self._figure(key), self.at(key), 0.0, most)

    def positive(self, key: str) -> float:
        """Return a measured figure above 0 that must be there."""
        value = require_number(self._figure(key), self.at(key), None, _MAX_FIGURE)
        if value < _MIN_MEASURED:
            self.fail(
                key, f"{self.text(key)!r} is too small for a measurement; the least is {_MIN_MEASURED:g}."
            )
        return value

    def count(self, key: str, default: int | None = 0, *, least: int = 0) -> int:
        """Return a whole number, by default 0 where the cell is blank."""
        if default is not None and key not in self._cells:
            return default
        return require_whole(self._figure(key), self.at(key), least, _MAX_COUNT)

    def _figure(self, key: str) -> object:
        """Return the number that a cell spells; its text where it spells none."""
        text = self.need(key)
        value = plain_number(text)
        if value is None:
            return text
        return int(value) if value.is_integer() else value

    def flag(self, key: str) -> bool:
        """Return what a yes-or-no cell says, blank being no."""
        word = self.text(key).lower()
        if word and word not in _YES and word not in _NO:
            self.must_be(key, "yes or no")
        return word in _YES

    def named(self, key: str, names: Mapping[str, str], default: str = "") -> str:
        """Return the name that the cell spells (:func:`spellings`), ``default`` where it is blank."""
        return self.known(
            key,
            lambda text: names.get(plain_words(text).replace("-", "_")),
            sorted(set(names.values())),
            default,
        )

    def known(self, key: str, read: Callable[[str], str | None], names: Iterable[str], default: str) -> str:
        """Return what ``read`` makes of the cell, ``default`` where it is blank."""
        text = self.text(key)
        if not text:
            return default
        name = read(text)
        if name is None:
            self.fail(key, f"unknown value {shown(text)}; {nearest(text, names)}")
        return name


@dataclass(frozen=True)
class Table:
    """A CSV file: the names of its columns, and its cells."""

    path: str | Path
    header: tuple[str, ...]
    cells: Sequence[Sequence[str]]

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """Read a CSV file.

        Raises
        ------
        InputError
            If it cannot be read, is not UTF-8 text, or has no header.
        """
        return cls.of_text(read_text(Path(path), str(path)), path)

    @classmethod
    def of_text(cls, text: str, path: str | Path) -> Table:
        """Return the table of a CSV file's text; ``path`` is what messages call it.

        Raises
        ------
        InputError
            If it is none, or has no header.
        """
        where = str(path)
        try:
            table = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except csv.Error as error:
            raise InputError(f"{where}: not a CSV file ({error}).") from None
        if not table or not any(cell.strip() for cell in table[0]):
            raise InputError(f"{where}: has no header line with column names.")
        return cls(path, tuple(cell.strip() for cell in table[0]), table[1:])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of columns in lower case with underscores, however the header spells them."""
        return tuple(cell.strip().lower().replace(" ", "_").replace("-", "_") for cell in self.header)

    def of_columns(self, known: Sequence[str]) -> Table:
        """Return the table with its columns named as in ``known`` (:attr:`names`).

        Raises
        ------
        InputError
            If a column is not known, or there twice.
        """
        names = self.names
        for name, cell in zip(names, self.header, strict=True):
            if name not in known:
                raise InputError(f"{self.path}: unknown column {cell!r}; {nearest(cell, known)}")
            if names.count(name) > 1:
                raise InputError(f"{self.path}: duplicate column {name} in the header.")
        return replace(self, header=names)

    def rows(self, needed: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows that are not empty, numbered as a spreadsheet numbers them (the header is row 1).

        Raises
        ------
        InputError
            If a ``needed`` column is missing, or a row has more or fewer cells than the header.
        """
        for name in needed:
            if name not in self.header:
                raise InputError(
                    f"{self.path}: the column {name} is missing; required columns: {', '.join(needed)}."
                )
        for number, cells in enumerate(self.cells, start=2):
            if not any(cell.strip() for cell in cells):
                continue
            where = f"{self.path}: row {number}"
            if len(cells) != len(self.header):
                raise InputError(
                    f"{where}: {len(cells)} cells, but the header names {len(self.header)} columns; "
                    "quote cells that hold commas."
                )
            yield Row(dict(zip(self.header, cells, strict=True)), where)


def spellings(names: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each spelling, from names and their other spellings (with spaces between)."""
    return {word: name for name, words in names.items() for word in (name, *words.split())}
