"""Names as people type them: in any case, with spaces for hyphens, or only the beginning of one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from topology.base.errors import InputError, printable
from topology.base.reading import nearest

_NEAREST_RATIO, _OFFERED_RATIO = 0.5, 0.35
"""Least likeness (of 1) of the nearest name to what was typed, and of those that are offered beside it."""
_MAX_OFFERED = 3
_MAX_CHARACTERS = 100
"""Of what was typed: looked for among the names, and repeated in a message."""


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``d10`` after ``d9``."""
    parts = re.split(r"(\d{1,18})", text)
    return [
        (0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part
    ]


_TYPOGRAPHY = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-") | {"\u00d7": "x", "\u00a0": " "}
)
"""What pages print for a hyphen, an x and a space."""


def plain_words(text: str) -> str:
    """Return ``text`` in lower case, its words joined by single hyphens and remarks in brackets dropped."""
    text = re.sub(r"\([^()]*\)", " ", text.lower().translate(_TYPOGRAPHY))
    return re.sub(r"[\s_]+", "-", text.strip()).strip("-")


def _joined(text: str) -> str:
    return plain_words(text).replace("-", "")


def _beginnings(spelling: str) -> list[str]:
    """Return the first word, the first two..., each as one word: what may stand for the whole."""
    words = plain_words(spelling).split("-")
    return ["".join(words[:count]) for count in range(1, len(words) + 1)]


def _inner_runs(spelling: str) -> list[str]:
    """Return the runs of words after the first that have a number: how people remember a name (``v3``, ``235b``)."""
    words = plain_words(spelling).split("-")
    runs = ["".join(words[start:end]) for end in range(1, len(words) + 1) for start in range(1, end)]
    return [run for run in runs if any(letter.isdigit() for letter in run)]


@dataclass(frozen=True)
class Names:
    """The names of one kind of thing, and other spellings of them.

    A text means a name if it spells it but for case, spaces, hyphens and underscores, or else if it is the first
    words of that name alone (``qwen3-235b`` of ``qwen3-235b-a22b``).

    Attributes
    ----------
    what:
        What messages call one: ``model``.
    spellings:
        The name that each spelling stands for; the names themselves are among them.
    before:
        What people write before a name and says nothing, like its maker.
    """

    what: str
    spellings: Mapping[str, str]
    before: re.Pattern[str] | None = None

    def _typed(self, text: str) -> str:
        return _joined(text if self.before is None else self.before.sub("", text))

    @cached_property
    def _whole(self) -> dict[str, str]:
        return {_joined(spelling): name for spelling, name in self.spellings.items()}

    @cached_property
    def _begun(self) -> dict[str, dict[str, None]]:
        by_beginning: dict[str, dict[str, None]] = {}
        for spelling, name in self.spellings.items():
            for beginning in _beginnings(spelling):
                by_beginning.setdefault(beginning, {})[name] = None
        return by_beginning

    @cached_property
    def _runs(self) -> dict[str, dict[str, None]]:
        by_run = {run: dict(names) for run, names in self._begun.items()}
        for spelling, name in self.spellings.items():
            for run in _inner_runs(spelling):
                by_run.setdefault(run, {})[name] = None
        return by_run

    def spelled(self, text: str) -> str | None:
        """Return the name that the whole of ``text`` spells, None where it spells none."""
        return self._whole.get(self._typed(text))

    def meant(self, text: str) -> tuple[str, ...]:
        """Return the names that ``text`` may mean: the one it spells, else all that begin with it."""
        if (name := self.spelled(text)) is not None:
            return (name,)
        return tuple(self._begun.get(self._typed(text), ()))

    def one(self, text: str) -> str | None:
        """Return the name that ``text`` means, None where it means none.

        Raises
        ------
        InputError
            If it may mean several; the message lists them.
        """
        return only(self.what, text, self.meant(text))

    def near(self, text: str) -> str:
        """Return "did you mean ...?" with the three nearest names, or a list of them, of many the first."""
        typed = self._typed(text[:_MAX_CHARACTERS])
        best: dict[str, float] = {}
        match = difflib.SequenceMatcher(b=typed)
        for run, names in self._runs.items():
            match.set_seq1(run)
            if match.real_quick_ratio() < _OFFERED_RATIO or match.quick_ratio() < _OFFERED_RATIO:
                continue
            for name in names:
                best[name] = max(best.get(name, 0.0), match.ratio())
        if max(best.values(), default=0.0) < _NEAREST_RATIO:
            return nearest("", self.spellings.values())
        like = [
            name
            for name in sorted(best, key=lambda name: (-best[name], name))
            if best[name] >= _OFFERED_RATIO
        ]
        return f"did you mean {' or '.join(like[:_MAX_OFFERED])}?"


def only(kind: str, text: str, meant: tuple[str, ...]) -> str | None:
    """Return the only name of ``meant``, None where there is none.

    Raises
    ------
    InputError
        If ``text`` means several.
    """
    if len(meant) > 1:
        raise InputError(
            f"{kind} {printable(text)[:_MAX_CHARACTERS]!r} may be {', '.join(meant[:-1])} or {meant[-1]}; "
            "write one of them."
        )
    return meant[0] if meant else None
