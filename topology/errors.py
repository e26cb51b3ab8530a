"""Errors that a person reads: what is wrong, where, which value, and what to do about it."""

from __future__ import annotations


class RackplanError(Exception):
    """Base of every error that ends a command with one line instead of a traceback."""

    exit_code = 1


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


def printable(text: str) -> str:
    """Return ``text`` with what cannot be shown on a line (NUL, ANSI escapes, line ends) written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
