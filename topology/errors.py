"""Errors that a person reads: what is wrong, where, which value, and what to do about it."""

from __future__ import annotations

import re

# C0 and C1 controls and DEL, separators that break lines, and marks that turn the direction of text.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return ``text`` with its control characters escaped, so that printing it cannot steer a terminal.

    Line breaks and tabs count: a name with one would forge a line of a table.
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class RackplanError(Exception):
    """Base of every error that ends a command with one line instead of a traceback."""

    exit_code = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(part) if isinstance(part, str) else part for part in args))


class InputError(RackplanError):
    """Input that cannot be used: the message names the place, the value and the remedy."""

    exit_code = 2


class MissingFigureError(InputError):
    """A figure that the catalog does not have; it is never filled in."""


class InfeasibleError(RackplanError):
    """Proven infeasible: the message names the limit that binds, by how much, and what would fit."""

    exit_code = 3


class NoAnswerError(RackplanError):
    """No answer within the time limit, and no proof that there is none."""

    exit_code = 4
