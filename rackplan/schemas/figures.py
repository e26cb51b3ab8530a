"""Figures with their origin, and what was set by the user."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from topology.base.figures import EvidenceLabel


class FigureData(TypedDict):
    """A figure of the catalog with its origin.

    Attributes
    ----------
    value, unit:
        The figure in SI, and its unit (``1``: a number); the value is null where nobody published it.
    text:
        The figure as its source prints it.
    source, kind:
        Where it was read, and how it is known.
    """

    value: float | None
    unit: str
    text: str
    source: str
    kind: EvidenceLabel


class SetFigureData(FigureData):
    """A figure that the user set.

    Attributes
    ----------
    part, figure:
        The GPU, fabric or system, and which of its figures.
    """

    part: str
    figure: str


class SetData(TypedDict):
    """What was set by the user.

    Attributes
    ----------
    set:
        The figures; absent where none was.
    """

    set: NotRequired[list[SetFigureData]]
