"""Lists of module names as quantisers write them: literal, with ``*``, or ``re:`` and a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from topology.errors import InputError

_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
_STRIPPED = re.compile(r"^(model\.|language_model\.|transformer\.)+")


def _parts(pattern: str) -> list[str]:
    """Return the dotted parts of a pattern, from the layers on."""
    parts = [part for part in _STRIPPED.sub("", pattern).split(".") if part]
    if parts and parts[-1] in {"weight", "*"}:
        parts.pop()
    return parts


class Patterns:
    """Patterns that name a module, or a part that holds it.

    A literal, dotted or not, stands for every module in whose name its parts follow each other (``gate`` names
    ``mlp.gate``, not ``mlp.gate_proj``); ``*`` matches within one part.

    Raises
    ------
    InputError
        If a regular expression is broken.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._literals: set[str] = set()
        self._globs: list[list[str]] = []
        self._expressions: list[re.Pattern[str]] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self._expressions.append(_compiled(pattern[3:]))
            elif parts := _parts(pattern):
                if "*" in pattern:
                    self._globs.append(parts)
                else:
                    self._literals.add(".".join(parts))

    def name_one_of(self, names: Iterable[str]) -> bool:
        """Whether a pattern names one of ``names`` (each starting at ``layers.N`` or ``lm_head``)."""
        return any(self._matches(name) for name in names)

    def _matches(self, name: str) -> bool:
        parts = name.split(".")
        count = len(parts)
        if self._literals and any(
            ".".join(parts[start:end]) in self._literals
            for start in range(count)
            for end in range(start + 1, count + 1)
        ):
            return True
        for wanted in self._globs:
            starts = range(count - len(wanted) + 1)
            if any(all(map(fnmatchcase, parts[start:], wanted)) for start in starts):
                return True
        return any(one.match(prefix + name) for one in self._expressions for prefix in _PREFIXES)


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise InputError(f"quantization_config: {expression!r} is no regular expression ({error}).") from None
