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

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Let functions that are made of options be what they are when they run: with parameters and a docstring."""
        if pkg.name != "rackplan":
            return
        library = pkg["library"]
        for name, one in griffe.inspect("rackplan.library", filepath=library.filepath).functions.items():
            if library.members[name].is_attribute and one.docstring:
                one.docstring.value = as_markdown(one.docstring.value)
                one.docstring.parser = library.docstring.parser
                library.set_member(name, one)
