"""Errors that a person reads: what is wrong, where, which value, and what to do about it."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped, so that printing it cannot steer a terminal.

    Line breaks and tabs count, as a name with one would forge a line of a table, and so do marks that turn the
    direction of text.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in _SPACES else c.encode("unicode_escape").decode() for c in text
    )


_SPACES = "\u00a0\u2007\u2009\u202f\u3000"  # no controls, although Python calls them not printable


def one_line(error: BaseException) -> str:
    """Return the message of another library's ``error`` on one line, not too long; its kind where it has none."""
    return " ".join(str(error).split())[:120] or type(error).__name__


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
