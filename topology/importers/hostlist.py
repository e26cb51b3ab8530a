"""Slurm hostlists: ``n[001-016,020]x[1-2]`` to names and back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, product

from topology.base.errors import InputError, printable
from topology.base.reading import shown

_MAX_NAMES = 200_000
_MAX_NAME_CHARACTERS = 1_000
_MAX_DIGITS = 18
_MAX_BRACKETS = 8
"""Of one text: beyond them it is a slip, or would fill the memory."""
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_ITEM = r"((?:[^\[\],]|\[[^\[\]]*+\])*+),"
_LAST_NUMBER = re.compile(r"(.*?)(?<!\d)(\d++)(\D*+)")  # as written each digit is looked at once


def expand_hosts(text: str, where: str) -> list[str]:
    """Return the names of a hostlist, in its order.

    Commas outside brackets separate names; several brackets multiply, the last running fastest; the width of
    a range's first number is kept (``n[08-10]`` is ``n08``, ``n09``, ``n10``).

    Raises
    ------
    InputError
        If brackets do not close, a range runs backwards, a name is duplicate or too long, or they are too many.
    """
    if not re.fullmatch(f"(?:{_ITEM})++", f"{text},"):
        problem = "do not match or are nested; is the text truncated?"
        raise InputError(f"{where}: the brackets of hostlist {shown(text)} {problem}")
    names: list[str] = []
    for item in map(str.strip, re.findall(_ITEM, f"{text},")):
        if not item or re.search(r"\s", item) or printable(item) != item:
            problem = "has an empty name, a space or a control character."
            raise InputError(f"{where}: hostlist {shown(text)} {problem}")
        count, longest, pieces = 1, 0, list[list[str]]()
        for bracket, plain in _PIECE.findall(item):
            pieces.append([plain] if plain else _numbers(bracket, item, where))
            count *= len(pieces[-1])
            longest += max(map(len, pieces[-1]))
            if count + len(names) > _MAX_NAMES or item.count("[") > _MAX_BRACKETS:
                excess = f"more than {_MAX_NAMES} hosts, or a name with more than {_MAX_BRACKETS} brackets"
                raise InputError(f"{where}: hostlist {shown(text)} names {excess}.")
        if longest > _MAX_NAME_CHARACTERS:
            limit = f"{longest:,} characters; a host name may have {_MAX_NAME_CHARACTERS:,}"
            raise InputError(f"{where}: {shown(item)} has {limit}.")
        names += map("".join, product(*pieces))
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(f"{where}: hostlist {shown(text)} has {twice} twice.")
    return names


def _numbers(bracket: str, item: str, where: str) -> list[str]:
    """Return the numbers of ``7,001-016``, with their zeros."""
    numbers: list[str] = []
    for part in map(str.strip, bracket.split(",")):
        match = _RANGE.fullmatch(part)
        if match is None or len(part) > 2 * _MAX_DIGITS:
            raise InputError(f"{where}: {shown(part)} in {shown(item)} is not a number or a range.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(f"{where}: the range {part} in {shown(item)} runs backwards.")
        if last - first + len(numbers) >= _MAX_NAMES:
            raise InputError(f"{where}: hostlist {shown(item)} names more than {_MAX_NAMES} hosts.")
        numbers += [f"{number:0{len(match[1])}d}" for number in range(first, last + 1)]
    return numbers


def compress_hosts(names: Iterable[str]) -> str:
    """Return the names as one hostlist, in their order: runs of consecutive numbers become ranges."""
    folded: list[str] = []
    for (head, tail), group in groupby(map(_split, names), key=lambda parts: (parts[0], parts[2])):
        numbers = [number for _, number, _ in group]
        if tail is None:
            folded += [head] * len(numbers)
        else:
            within = numbers[0] if len(numbers) == 1 else f"[{','.join(_runs(numbers))}]"
            folded.append(f"{head}{within}{tail}")
    return ",".join(folded)


def _split(name: str) -> tuple[str, str, str | None]:
    """Return what is before the last number of a name, that number, and what follows: None where it has none."""
    match = _LAST_NUMBER.fullmatch(name)
    short = match is not None and len(match[2]) <= _MAX_DIGITS
    return (match[1], match[2], match[3]) if match and short else (name, "", None)


def _runs(numbers: list[str]) -> Iterator[str]:
    """Yield ``first-last`` for runs of consecutive numbers of one width."""
    first = last = numbers[0]
    for number in [*numbers[1:], ""]:
        if number and int(number) == int(last) + 1 and number == f"{int(number):0{len(last)}d}":
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number
