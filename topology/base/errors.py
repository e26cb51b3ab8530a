"""User-facing errors: problem, place, value and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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


LONGEST = 200
"""Characters of one value that a message repeats, and of a ``repr``, at most."""
_OVERLONG = re.compile(rf"\S{{{LONGEST},}}|(?<!\w)(['\"])(?:(?!\1).){{{LONGEST},}}\1(?!\w)", re.DOTALL)


def beginning(text: str) -> str:
    """Return a value as messages repeat it: of a long one the beginning."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def shortened(text: str) -> str:
    """Return a message with the beginning alone of what is long without a space, or between quotes."""
    return _OVERLONG.sub(lambda long: f"{long[0][: LONGEST - 4]}...{long[1] or ''}", text)


_MARK = re.compile("\ue000(\\w+)\ue001")  # of Unicode's private use: no text that people write has them


def input_name(name: str) -> str:
    """Return a placeholder for an input name in messages; each interface fills in its spelling.

    ``name`` is the parameter in Python; a command line has ``--tpot-ms`` in place of ``tpot_ms``.
    """
    return f"\ue000{name}\ue001"


def _quoted(name: str) -> str:
    return f"`{name}`"


_spelling: list[Callable[[str], str]] = [_quoted]


@contextmanager
def spelling(name_of: Callable[[str], str]) -> Iterator[None]:
    """Let :func:`spelled` call inputs by what ``name_of`` returns; else they are Python's names in backquotes."""
    _spelling.append(name_of)
    try:
        yield
    finally:
        _spelling.pop()


def called(name: str) -> str:
    """Return what this interface calls an input, for texts that are kept: ``--tpot-ms``, or ```tpot_ms```."""
    return _spelling[-1](name)


def spelled(text: str) -> str:
    """Return a text with the inputs that it names (:func:`input_name`) as this interface calls them."""
    return _MARK.sub(lambda mark: _spelling[-1](mark[1]), text)


class RackplanError(Exception):
    """Base of every error that ends a command with one line instead of a traceback.

    Parameters
    ----------
    problem:
        What is wrong, and what was expected or would work. It names inputs by :func:`input_name`.
    field, value:
        The input that is wrong, by its name in Python, and what it was; messages begin with both.
    hint:
        What to do that not every face can: a page has no paths.
    """

    exit_code = 1

    def __init__(self, problem: str = "", *, field: str = "", value: object = "", hint: str = "") -> None:
        super().__init__(problem)
        self.field, self.value, self.hint = field, value, hint

    @property
    def problem(self) -> str:
        """The message without its remedy, with Python names."""
        return self.text(_quoted, hint=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Inputs named by the message, the invalid one first."""
        return tuple(dict.fromkeys(_MARK.findall(self._message(hint=True))))

    def text(self, name_of: Callable[[str], str], *, hint: bool = True) -> str:
        """Return the message with input names from ``name_of``."""
        parts = _MARK.split(self._message(hint=hint))
        return "".join(
            name_of(part) if place % 2 else printable(shortened(part)) for place, part in enumerate(parts)
        )

    def _message(self, *, hint: bool) -> str:
        head = ""
        if self.field:
            head = f"{input_name(self.field)} {beginning(str(self.value))}".rstrip() + ": "
        return f"{head}{self.args[0]}" + (f" {self.hint}" if hint and self.hint else "")

    def __str__(self) -> str:
        return self.text(called)


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
