"""A lever as data, as the details of plans have it."""

from __future__ import annotations

from typing import Any

from pydantic.dataclasses import dataclass

from placement.analysis.lever import Lever, Reached
from rackplan.views.data import LEFT_OUT, Maybe

WAYS = ("batch_kept", "layout_kept", "layout_free")


@dataclass(frozen=True, kw_only=True)
class LeverData:
    """A lever: a figure or choice changed by itself.

    Attributes
    ----------
    lever, kind, change, to:
        What is changed, of which kind (hardware, precision, workload, layout), by how much, and to what; absent where
        nothing is changed.
    batch_kept, layout_kept, layout_free:
        What is reached with batch and layout kept, with the layout kept, with the best layout; null where it cannot
        be, absent where it was not tried.
    reasons:
        Why it cannot be, by which of the three.
    note:
        What is odd about it.
    """

    lever: Maybe[str] = LEFT_OUT
    kind: Maybe[str] = LEFT_OUT
    change: Maybe[str] = LEFT_OUT
    to: Maybe[str] = LEFT_OUT
    batch_kept: Maybe[Reached | None] = LEFT_OUT
    layout_kept: Maybe[Reached | None] = LEFT_OUT
    layout_free: Maybe[Reached | None] = LEFT_OUT
    reasons: dict[str, str]
    note: Maybe[str] = LEFT_OUT


def lever_data(row: Lever) -> LeverData:
    """Return one lever as data; null where it is not possible, with the reason."""
    ways = {way: end for way in WAYS if (end := getattr(row, way)) is not None}
    given: dict[str, Any] = {way: end if isinstance(end, Reached) else None for way, end in ways.items()}
    if row.change:
        given |= {"lever": row.name, "kind": row.kind, "change": row.change, "to": row.to}
    return LeverData(
        **given,
        reasons={way: end for way, end in ways.items() if isinstance(end, str)},
        note=row.note or LEFT_OUT,
    )
