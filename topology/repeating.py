"""Rows of a raw file that repeat: ``repeat: {h: 01-18, g: 0-3}`` and names like ``n{h}.g{g}``.

A row with ``repeat`` stands for one row for each combination of its counters' values, the last counter fastest. A
group has ``repeat`` and rows of its own, under the key that its list has: all of them for one value, then for the
next. Values are a number (from 0 on), ranges that keep their width, as in a hostlist, or a list. ``{h}`` is the
value, ``{h+18}`` the number that much larger; doubled braces stand for themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from topology.errors import InputError
from topology.reading import Fields, shown

_MOST_VALUES = 200_000
_MOST_ROWS = 1_000_000
_DEEPEST = 8
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z][A-Za-z0-9_]{0,31})(?:([+-])(\d{1,9}))?\}|[{}]|[^{}]+")

Copy = Mapping[str, str]
"""The value of each counter."""


@dataclass(frozen=True)
class Counter:
    """The values of a counter, and to how many digits its numbers are filled with zeros (0: not)."""

    values: tuple[str, ...]
    width: int


@dataclass(frozen=True)
class Row:
    """A row as it is written, without its ``repeat``, and the counters around it; of none it stands for itself."""

    fields: Fields
    counters: Mapping[str, Counter]

    def text(self, key: str, pattern: str, used: set[str]) -> list[tuple[str, str, int]]:
        """Return the parts of a text: (literal, "", 0), or ("", counter, what is added); counters go to ``used``.

        Raises
        ------
        InputError
            If braces do not match, or name a counter that is not there or that has no numbers.
        """
        if not self.counters:
            return [(pattern, "", 0)]
        parts = []
        for match in _PART.finditer(pattern):
            name = match[1]
            if name is None:
                if match[0] in ("{", "}"):
                    self.fields.fail(
                        key, f"{shown(pattern)} has a single brace; write it twice if it is meant."
                    )
                parts.append((match[0][0] if match[0] in ("{{", "}}") else match[0], "", 0))
                continue
            if name not in self.counters:
                self.fields.fail(
                    key, f"{{{name}}} is no counter of its `repeat` ({', '.join(self.counters)})."
                )
            used.add(name)
            by = int(match[3] or 0) * (-1 if match[2] == "-" else 1)
            if by and not all(value.isdecimal() for value in self.counters[name].values):
                self.fields.fail(key, f"{match[0]}: the values of {name} are no numbers.")
            parts.append(("", name, by))
        return parts

    def filled(self, parts: list[tuple[str, str, int]], copy: Copy) -> str:
        """Return a text for one value of each counter."""
        return "".join(
            literal if not name else self._value(name, by, copy) if by else copy[name]
            for literal, name, by in parts
        )

    def _value(self, name: str, by: int, copy: Copy) -> str:
        number = int(copy[name]) + by
        if number < 0:
            raise InputError(f"{self.fields.where}: {{{name}{by:+d}}} of {copy[name]} is below zero.")
        return f"{number:0{self.counters[name].width}d}"


def repeating_rows(fields: Fields, key: str, *, empty: bool = False) -> Iterator[tuple[Row, Copy]]:
    """Yield the rows under ``key`` in their order, each as often as it repeats, with the values of its counters.

    Raises
    ------
    InputError
        If a counter's values cannot be read, or there are too many rows.
    """
    entries = fields.subs(key, empty=empty)
    total = 0
    for given in entries:
        total += (rows := _count(given, key, {}, 0))
        if total > _MOST_ROWS:
            more = "repeats to" if rows > _MOST_ROWS else "and those before it make"
            said = f"{given.where}: {more} {max(rows, total):,} {key}; at most {_MOST_ROWS:,} are supported."
            raise InputError(
                f"{said} What a domain and a fabric of a kind describe may be larger: `domains:`."
            )
    for given in entries:
        yield from _rows(given, key, {}, 0)


def _count(given: Fields, key: str, outer: Mapping[str, Counter], depth: int) -> int:
    """Return how many rows one entry stands for."""
    if depth > _DEEPEST:
        raise InputError(f"{given.where}: groups are nested more than {_DEEPEST} deep.")
    own = _counters(given, outer) if isinstance(given.data, dict) and "repeat" in given else {}
    if key in given:
        inside = given.subs(key)
        rows = sum(_count(row, key, {**outer, **own}, depth + 1) for row in inside)
    else:
        rows = 1
    return rows * math.prod(len(counter.values) for counter in own.values())


def _rows(given: Fields, key: str, outer: Mapping[str, Counter], depth: int) -> Iterator[tuple[Row, Copy]]:
    """Yield what one entry stands for."""
    own = _counters(given, outer) if isinstance(given.data, dict) and "repeat" in given else {}
    counters = {**outer, **own}
    if key in given:
        inside = [list(_rows(row, key, counters, depth + 1)) for row in given.subs(key)]
        given.done()
        found = [one for rows in inside for one in rows]
        # the values of its own counters are outermost
        for values in product(*(counter.values for counter in own.values())):
            copy = dict(zip(own, values, strict=True))
            for row, inner in found:
                yield row, {**copy, **inner}
        return
    data = {name: value for name, value in given.data.items() if name != "repeat"}
    row = Row(Fields(data, given.where), counters)
    for values in product(*(counter.values for counter in own.values())):
        yield row, dict(zip(own, values, strict=True))


def _counters(given: Fields, outer: Mapping[str, Counter]) -> dict[str, Counter]:
    """Return the counters of one ``repeat``."""
    row = given.sub("repeat")
    found = {}
    for name in row.names():
        if not _NAME.fullmatch(name):
            row.fail(name, "a counter's name is a letter, then letters and digits.")
        if name in outer:
            row.fail(name, "a group around it has a counter of that name.")
        values = _values(row, name)
        if len(set(values)) != len(values):
            row.fail(name, "has a value twice.")
        padded = any(len(value) > 1 and value.startswith("0") for value in values)
        found[name] = Counter(values, len(values[0]) if padded else 0)
    if not found:
        raise InputError(f"{row.where}: names no counter, like {{h: 0-7}}.")
    return found


def _values(row: Fields, name: str) -> tuple[str, ...]:
    """Return the values of a counter."""
    value = row.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return tuple(map(str, range(row.count(name, most=_MOST_VALUES))))
    if isinstance(value, list):
        if not value or len(value) > _MOST_VALUES:
            row.fail(name, f"must list 1 to {_MOST_VALUES} values.")
        return tuple(row.name_list(name))
    from topology.importers.hostlist import expand_hosts

    return tuple(expand_hosts(f"[{row.text(name)}]", row.at(name)))
