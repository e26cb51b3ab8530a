"""Docstrings as Markdown, for the reference of the library: examples are code, and so is what they refer to."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|mod|meth|data|attr|exc):`(?:~[\w.]*\.)?([^`]*)`")
_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


def as_markdown(text: str) -> str:
    """Return a docstring with its doctests in blocks of code, and roles without their name."""
    return _ROLE.sub(r"`\1`", _EXAMPLE.sub(r"```pycon\n\1\n```", text))


class Docstrings(griffe.Extension):
    """Every docstring as Markdown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
