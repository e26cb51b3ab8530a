"""Regular expressions in a file of others: those that end soon whatever they are tried on.

Python's matcher goes back over every way to divide a text between repeats, which takes for ever where they are within
each other or side by side (``(a+)+``, ``.*.*.*``). Quantisers write literal text between theirs.
"""

from __future__ import annotations

import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from topology.errors import InputError

_LONGEST = 1_000
_MOST_REPEATS = 6
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def expression(text: str, where: str) -> re.Pattern[str]:
    """Return a compiled expression.

    Raises
    ------
    InputError
        If it is broken, long, or has repeats within each other or with no text between.
    """
    if len(text) > _LONGEST:
        raise InputError(f"{where}: {text!r} has more than {_LONGEST:,} characters.")
    try:
        found = re.compile(text)
        walk = _Walk()
        walk.over(parser.parse(text), within=False)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: {text!r} is no regular expression ({error}).") from None
    if walk.wrong or walk.repeats > _MOST_REPEATS:
        why = walk.wrong or f"more than {_MOST_REPEATS} repeats"
        raise InputError(
            f"{where}: {text!r} has {why}, and may take for ever; write `.*` once, between texts."
        )
    return found


class _Walk:
    """Repeats from left to right: how many, and whether text stands between each and the next."""

    def __init__(self) -> None:
        self.repeats = 0
        self.wrong = ""
        self._open = False  # a repeat, and no literal since
        self._side_by_side = 0

    def over(self, tree: Any, *, within: bool) -> None:
        """Go over a part of an expression, ``within`` a repeat or not."""
        for code, value in tree:
            if code is codes.LITERAL:
                self._open = False
            elif code in _REPEATS:
                self._repeat(value, within=within)
            elif code is codes.BRANCH:
                before = self._open
                after = []
                for branch in value[1]:
                    self._open = before
                    self.over(branch, within=within)
                    after.append(self._open)
                self._open = any(after)
            elif code is codes.SUBPATTERN:
                self.over(value[3], within=within)
            elif code is codes.ATOMIC_GROUP:
                self.over(value, within=within)
            elif code in (codes.ASSERT, codes.ASSERT_NOT):
                before = self._open
                self.over(value[1], within=within)
                self._open = before
            elif code not in (codes.ANY, codes.IN, codes.NOT_LITERAL, codes.AT, codes.RANGE, codes.CATEGORY):
                self.wrong = self.wrong or "a back-reference or a condition"

    def _repeat(self, value: Any, *, within: bool) -> None:
        _, most, inner = value
        self.repeats += 1
        if most == 1:  # what may be left out
            before = self._open
            self.over(inner, within=within)
            self._open = self._open or before
            return
        self._side_by_side += self._open
        if within:
            self.wrong = self.wrong or "repeats within each other"
        elif self._side_by_side > 1:
            self.wrong = self.wrong or "several repeats with no text between"
        self.over(inner, within=True)
        self._open = True
