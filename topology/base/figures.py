"""A figure with its origin: value, unit, kind of evidence and source."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, get_args

UNPUBLISHED = math.nan
"""Value of an unpublished link rate; nothing can be computed from it."""


EvidenceLabel = Literal["measured", "datasheet", "derived", "user", "assumed", "projected"]
"""Label of each kind of evidence in files and reports, strongest first."""


class Evidence(IntEnum):
    """Kinds of evidence, strongest first; a larger value is weaker evidence."""

    MEASURED = 0
    DATASHEET = 1
    DERIVED = 2
    USER = 3
    ASSUMED = 4
    PROJECTED = 5

    @property
    def label(self) -> EvidenceLabel:
        """The word written in files and reports."""
        return _LABELS[self]


_LABELS: tuple[EvidenceLabel, ...] = get_args(EvidenceLabel)


@dataclass(frozen=True)
class Figure:
    """One number in SI units (bytes, seconds, bytes/s, flop/s, watts), with its origin.

    Attributes
    ----------
    value:
        The number, in the SI unit of ``unit``.
    unit:
        ``"byte"``, ``"byte/s"``, ``"flop/s"``, ``"s"``, ``"W"``, ``"1"`` (a count), ``"USD/h"``,
        ``"kg"`` or ``"m"``.
    kind:
        How the number is known.
    source:
        Where a reader can check it.
    text:
        The number as the data sheet prints it (``"4.8 TB/s"``).
    """

    value: float
    unit: str
    kind: Evidence
    source: str
    text: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether both say the same: an unpublished figure equals itself, although NaN does not."""
        return self._said == other._said if isinstance(other, Figure) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def _said(self) -> tuple[object, ...]:
        return (self.value if self.published else None, self.unit, self.kind, self.source, self.text)

    @property
    def published(self) -> bool:
        """Whether there is a number at all (a link may be known to exist before its rate is)."""
        return not math.isnan(self.value)


@dataclass(frozen=True)
class WrittenFigure:
    """A figure as results are written: plain data.

    Attributes
    ----------
    value, unit:
        The figure, and its unit in SI.
    kind:
        How it is known.
    source:
        Where it was read.
    """

    value: float
    unit: str
    kind: EvidenceLabel
    source: str

    @classmethod
    def of(cls, figure: Figure) -> WrittenFigure:
        """Return ``figure`` as results have it."""
        return cls(figure.value, figure.unit, figure.kind.label, figure.source)


def weakest(kinds: Iterable[Evidence]) -> Evidence:
    """Return the weakest of several kinds of evidence, which is that of a combined result."""
    return max(kinds, default=Evidence.MEASURED)
