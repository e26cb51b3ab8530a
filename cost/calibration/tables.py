"""The one reader of coefficient tables: dataclasses that check themselves, and errors as one line with the place.

A table is a pydantic dataclass with :data:`CHECKED`: no key but its own, no text for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from topology.base.figures import Figure
from topology.base.reading import load_yaml, nearest, shown
from topology.base.schema import Kind, source_text, validated

T = TypeVar("T")
CHECKED = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

Count = Annotated[int, Field(strict=True, ge=1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]
Share = Annotated[float, Field(strict=True, gt=0, le=1)]
Text = Annotated[str, Field(strict=True, min_length=1)]


@dataclass(frozen=True, config=CHECKED)
class SourcedShare:
    """A part of a whole with its evidence, as files have it."""

    value: Share
    kind: Kind
    source: Text
    note: Text | None = None

    def figure(self, sources: Mapping[str, str], where: str) -> Figure:
        """Return it with the text of its source."""
        source = source_text(self.source, sources, where) + (f"; {self.note}" if self.note else "")
        return Figure(self.value, "1", self.kind, source, f"{self.value:g}")


def one_of(label: str, known: Callable[[], Iterable[str]]) -> AfterValidator:
    """Return the check that a text is one of ``known``; ``label`` messages call such a thing."""

    def check(name: str) -> str:
        if name not in known():
            raise ValueError(f"{shown(name)} is not a {label}; {nearest(name, known())}")
        return name

    return AfterValidator(check)


def load_table(kind: type[T], path: Path) -> T:
    """Return the table in a YAML file; messages call it by the file's name."""
    table: T = validated(kind, load_yaml(path, path.name), path.name)
    return table
