"""Rows of nodes and links rolled up where they repeat, as :mod:`topology.repeating` unrolls them, in the same order.

Rows are texts with numbers in them. A run of equal bodies, of one row or several, whose numbers move in step becomes
a loop; loops are rows too, so bodies nest. A loop is only made where it is clearly shorter than its rows.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topology.figures import Figure
from topology.importers.hostlist import compress_hosts

_NUMBER = re.compile(r"(\d{1,9})(?!\d)")
_LONGEST_BODY = 24
_SHORTER = 0.6
"""A loop must be shorter than this part of the rows that it stands for."""
_OF_LOOP = 25
"""About the letters that a loop takes beside its body."""
_DEEPEST = 6
_COUNTERS = "ijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class _Item:
    """A row or a loop: ``shape`` numbers all but what is free to change in it, ``numbers`` are that.

    Of a loop, ``bound`` says which numbers of which row of its body go with its counter, and by how much they are
    larger.
    """

    shape: int
    numbers: tuple[str, ...]
    weight: int
    row: Mapping[str, Any] = field(default_factory=dict)
    body: tuple[_Item, ...] = ()
    values: tuple[str, ...] = ()
    bound: Mapping[tuple[int, int], int] = field(default_factory=dict)
    depth: int = 0


def rolled(key: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of a list called ``key`` with ``repeat`` where they repeat.

    The values of a row under ``id``, ``domain``, ``node``, ``rack`` and ``rail``, and the ends ``between``, may
    change; all others are the same in every copy.
    """
    shapes: dict[Hashable, int] = {}
    items = [_item(row, shapes) for row in rows]
    length = 1
    while length <= _LONGEST_BODY:
        shorter = _rolled_once(items, length, shapes)
        # a loop more may make bodies alike that were not
        length = 1 if len(shorter) < len(items) else length + 1
        items = shorter
    return [_written(item, key, list(item.numbers), 0) for item in items]


def _item(row: Mapping[str, Any], shapes: dict[Hashable, int]) -> _Item:
    """Return a row as an item; what may change is split at its numbers."""
    shape: list[Hashable] = []
    numbers: list[str] = []
    weight = 12
    for name, value in row.items():
        texts = value if name == "between" else (str(value),) if name in _CHANGING else ()
        pieces = [_NUMBER.split(text) for text in texts]
        numbers += [number for parts in pieces for number in parts[1::2]]
        rest = tuple(tuple(parts[::2]) for parts in pieces)
        # where a figure was read does not matter
        same = (value.value, value.text) if isinstance(value, Figure) else str(value)
        shape.append((name, rest) if texts else (name, same))
        weight += len(name) + 4 + len(str(same))
    return _Item(shapes.setdefault(tuple(shape), len(shapes)), tuple(numbers), weight, row)


_CHANGING = ("id", "domain", "node", "rack", "rail")


def _rolled_once(items: list[_Item], length: int, shapes: dict[Hashable, int]) -> list[_Item]:
    """Return items with runs of bodies of ``length`` items as loops."""
    kinds = [item.shape for item in items]
    found: list[_Item] = []
    at = 0
    while at < len(items):
        loop, end = None, at
        alike = kinds[at : at + length] == kinds[at + length : at + 2 * length]
        if alike and _in_step(items, at, length):
            loop, end = _loop(items, kinds, at, length, shapes)
        if loop is None:
            found.append(items[at])
            at += 1
        else:
            found.append(loop)
            at = end
    return found


def _in_step(items: Sequence[_Item], at: int, length: int) -> bool:
    """Whether the numbers of a body and the next that differ do so by the same: else no loop begins here."""
    step = 0
    for one, other in zip(items[at : at + length], items[at + length : at + 2 * length], strict=True):
        for old, new in zip(one.numbers, other.numbers, strict=True):
            if old != new:
                by = int(new) - int(old)
                if step not in (0, by):
                    return False
                step = by
    return step != 0


def _loop(
    items: Sequence[_Item], kinds: Sequence[int], at: int, length: int, shapes: dict[Hashable, int]
) -> tuple[_Item | None, int]:
    """Return the loop of the longest run of bodies from ``at`` on, and where it ends; None where none is worth it."""
    body = items[at : at + length]
    if any(item.depth >= _DEEPEST for item in body):
        return None, at
    first = [number for item in body for number in item.numbers]
    places = [(i, j) for i, item in enumerate(body) for j in range(len(item.numbers))]
    moving: list[int] = []
    values: list[str] = []
    offsets: dict[int, int] = {}
    padded = plain = True
    end = at
    while kinds[end : end + length] == kinds[at : at + length]:
        numbers = [number for item in items[end : end + length] for number in item.numbers]
        if end > at:
            changed = [i for i, (old, new) in enumerate(zip(first, numbers, strict=True)) if old != new]
            if not values:
                moving = changed
                if not moving:
                    break
                values = [first[moving[0]]]
                offsets = {i: int(first[i]) - int(values[0]) for i in moving}
                padded, plain = _formats(first, moving, offsets, values[0], len(values[0]), True, True)
            elif changed != moving:
                break
            value = numbers[moving[0]]
            still = _formats(numbers, moving, offsets, value, len(values[0]), padded, plain)
            if not any(still) or value in values[-1:]:
                break
            padded, plain = still
            values.append(value)
        end += length
    if len(values) < 2 or len(set(values)) != len(values):
        return None, at
    # zeros in front say that numbers are filled up; all of one length may be either
    if (
        not plain
        and not any(len(value) > 1 and value[0] == "0" for value in values)
        and any(offsets.values())
    ):
        return None, at
    once = sum(item.weight for item in body)
    if once + _OF_LOOP > _SHORTER * once * len(values):
        return None, at
    bound = {places[i]: offsets[i] for i in moving}
    free = tuple(number for i, number in enumerate(first) if i not in offsets)
    shape = (tuple(item.shape for item in body), tuple(values), tuple(sorted(bound.items())))
    return (
        _Item(
            shapes.setdefault(shape, len(shapes)),
            free,
            once + _OF_LOOP,
            body=tuple(body),
            values=tuple(values),
            bound=bound,
            depth=1 + max(item.depth for item in body),
        ),
        end,
    )


def _formats(
    numbers: Sequence[str],
    moving: Sequence[int],
    offsets: Mapping[int, int],
    value: str,
    width: int,
    padded: bool,
    plain: bool,
) -> tuple[bool, bool]:
    """Return whether numbers are the value and so much more, filled up to ``width`` digits, and as they are."""
    for i in moving:
        number = int(value) + offsets[i]
        padded = padded and numbers[i] == f"{number:0{width}d}"
        plain = plain and numbers[i] == str(number)
    return padded, plain


def _written(item: _Item, key: str, numbers: list[str], depth: int) -> dict[str, Any]:
    """Return an item as a row of the file; ``numbers`` are its free ones, or what stands for them."""
    if not item.body:
        return _row(item.row, numbers, depth)
    name = _COUNTERS[depth]
    left = iter(numbers)
    rows = []
    for i, inner in enumerate(item.body):
        own = [
            (f"{{{name}{item.bound[i, j]:+d}}}" if item.bound[i, j] else f"{{{name}}}")
            if (i, j) in item.bound
            else next(left)
            for j in range(len(inner.numbers))
        ]
        rows.append(_written(inner, key, own, depth + 1))
    repeat = {name: _ranges(item.values)}
    if len(rows) == 1:
        return {**rows[0], "repeat": {**repeat, **rows[0].get("repeat", {})}}
    return {"repeat": repeat, key: rows}


def _ranges(values: Sequence[str]) -> str:
    return compress_hosts([f"x{value}" for value in values])[1:].strip("[]")


def _row(row: Mapping[str, Any], numbers: list[str], depth: int) -> dict[str, Any]:
    """Return a row with its numbers replaced."""
    left = iter(numbers)

    def filled(text: str) -> str:
        parts = _NUMBER.split(text)
        if depth:
            parts[::2] = [part.replace("{", "{{").replace("}", "}}") for part in parts[::2]]
        parts[1::2] = [next(left) for _ in parts[1::2]]
        return "".join(parts)

    found = dict(row)
    for name, value in row.items():
        if name == "between":
            found[name] = [filled(end) for end in value]
        elif name in _CHANGING:
            text = filled(str(value))
            found[name] = int(text) if name == "rail" and text.isdecimal() else text
    return found
