"""Slurm hostlists: ``n[001-016,020]x[1-2]`` to names and back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from topology.base.errors import InputError, printable
from topology.base.reading import shown

_MOST_NAMES = 200_000
_LONGEST_NAME = 1_000
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*+\])*+")
_LAST_NUMBER = re.compile(r"(.*?)(?<!\d)(\d++)(\D*+)")  # as written each digit is looked at once
_LONGEST_NUMBER = 18
_BRACKETS = 8


def expand_hosts(text: str, where: str) -> list[str]:
    """Return the names of a hostlist, in its order.

    Commas outside brackets separate names; several brackets multiply, the last running fastest; the width of
    a range's first number is kept (``n[08-10]`` is ``n08``, ``n09``, ``n10``).

    Raises
    ------
    InputError
        If brackets do not close, a range runs backwards, a name is duplicate or too long, or they are too many.
    """
    names: list[str] = []
    for item in _items(text, where):
        count, pieces = 1, list[list[str]]()
        for piece in _pieces(item, where):
            count *= len(piece)
            if count + len(names) > _MOST_NAMES:
                raise _too_many(text, where)
            pieces.append(piece)
        longest = sum(max(map(len, piece)) for piece in pieces if piece)
        if longest > _LONGEST_NAME:
            raise InputError(
                f"{where}: {shown(item)} has {longest:,} characters; a host name may have {_LONGEST_NAME:,}."
            )
        names += ["".join(parts) for parts in product(*pieces)]
    if not names:
        raise InputError(f"{where}: the hostlist is empty.")
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(f"{where}: hostlist {shown(text)} has {twice} twice.")
    return names


def compress_hosts(names: Iterable[str]) -> str:
    """Return the names as one hostlist, in their order: runs of consecutive numbers become ranges."""
    folded: list[tuple[tuple[str, str], list[str]]] = []  # those that differ in their last number alone
    for name in names:
        match = _LAST_NUMBER.fullmatch(name)
        short = match is not None and len(match[2]) <= _LONGEST_NUMBER
        key, digits = ((match[1], match[3]), match[2]) if match and short else ((name, ""), "")
        if folded and digits and folded[-1][0] == key and folded[-1][1] != [""]:
            folded[-1][1].append(digits)
        else:
            folded.append((key, [digits]))
    return ",".join(
        f"{head}{numbers[0]}{tail}" if len(numbers) == 1 else f"{head}[{','.join(_runs(numbers))}]{tail}"
        for (head, tail), numbers in folded
    )


def _runs(numbers: list[str]) -> Iterator[str]:
    """Yield ``first-last`` for runs of consecutive numbers of one width."""
    first = last = numbers[0]
    for number in [*numbers[1:], ""]:
        if number and int(number) == int(last) + 1 and number == f"{int(number):0{len(last)}d}":
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number


def _items(text: str, where: str) -> list[str]:
    """Return what is between commas outside brackets: names without spaces and control characters."""
    items, at = list[str](), 0
    while at <= len(text):
        match = _ITEM.match(text, at)
        end = match.end() if match else at
        if end < len(text) and text[end] != ",":
            raise InputError(
                f"{where}: the brackets of hostlist {shown(text)} do not match or are nested; is the text truncated?"
            )
        items.append(text[at:end].strip())
        at = end + 1
    if any(not item or re.search(r"\s", item) or printable(item) != item for item in items):
        raise InputError(
            f"{where}: hostlist {shown(text)} has an empty name, a space or a control character."
        )
    return items


def _pieces(item: str, where: str) -> Iterator[list[str]]:
    """Yield the parts of a name: each a list of what may be there."""
    if item.count("[") > _BRACKETS:
        raise InputError(f"{where}: {shown(item)} has more than {_BRACKETS} brackets.")
    for bracket, plain in _PIECE.findall(item):
        if plain:
            yield [plain]
            continue
        values: list[str] = []
        for part in bracket.split(","):
            values += _numbers(part.strip(), item, where)
            if len(values) > _MOST_NAMES:
                raise _too_many(item, where)
        yield values


def _numbers(part: str, item: str, where: str) -> list[str]:
    """Return the numbers of ``7`` or ``001-016``, with their zeros."""
    match = _RANGE.fullmatch(part)
    if match is None or len(part) > 2 * _LONGEST_NUMBER:
        raise InputError(f"{where}: {shown(part)} in {shown(item)} is not a number or range like 001-016.")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise InputError(f"{where}: the range {part} in {shown(item)} runs backwards.")
    if int(last) - int(first) >= _MOST_NAMES:
        raise _too_many(item, where)
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]


def _too_many(text: str, where: str) -> InputError:
    return InputError(f"{where}: hostlist {shown(text)} names more than {_MOST_NAMES} hosts.")
