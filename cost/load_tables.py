"""Cells of a table of loads (scenario, layer, expert, tokens) into an array, none absent and none twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Cells = Sequence[tuple[int, Mapping[str, str | None]]]

__all__ = ["COLUMNS", "table_of_cells"]

COLUMNS = ("scenario", "layer", "expert", "tokens")


def table_of_cells(
    name: str,
    header: Sequence[str],
    cells: Cells,
    *,
    moe_layers: Sequence[int],
    layers: int,
    experts: int,
) -> tuple[NDArray[np.float64], tuple[str, ...], tuple[str, ...]]:
    """Return loads ``[scenarios, layers, experts]``, the scenarios' names in order of appearance, and notes.

    ``cells`` are (line, row). Layers are absolute ids (the MoE layers, or all layers of the model), or the
    ordinals 0, 1, 2... of the MoE layers; which of them is read off the set of layers, and noted.

    Raises
    ------
    InputError
        If a column is missing, an entry is not a number, a cell is there twice or not at all, or the layers
        are none of the above. The message names the line.
    """
    absent = [column for column in COLUMNS if column not in header]
    if absent:
        raise InputError(f"{name}: has no column {', '.join(absent)}; give {', '.join(COLUMNS)}.")
    table: dict[tuple[str, int, int], float] = {}
    for line, row in cells:
        scenario = (row["scenario"] or "").strip()
        layer, expert = _whole(name, line, row, "layer"), _whole(name, line, row, "expert")
        if not 0 <= expert < experts:
            raise InputError(f"{name}, line {line}: expert {expert}, but the model has 0..{experts - 1}.")
        if (scenario, layer, expert) in table:
            raise InputError(
                f"{name}, line {line}: scenario {scenario!r}, layer {layer}, expert {expert} is there twice."
            )
        table[scenario, layer, expert] = _tokens(name, line, row)
    scenarios = tuple(dict.fromkeys(key[0] for key in table))
    if not scenarios:
        raise InputError(f"{name}: has a header and no loads below it.")
    rows, notes = _rows(name, {key[1] for key in table}, moe_layers, layers)
    values = np.empty((len(scenarios), len(rows), experts))
    for s, scenario in enumerate(scenarios):
        for r, layer in enumerate(rows):
            for expert in range(experts):
                if (scenario, layer, expert) not in table:
                    raise InputError(
                        f"{name}: scenario {scenario!r}, layer {layer}, expert {expert} is absent; "
                        "write 0 where no token went."
                    )
                values[s, r, expert] = table[scenario, layer, expert]
    return values, scenarios, notes


def _rows(
    name: str, found: set[int], moe_layers: Sequence[int], layers: int
) -> tuple[list[int], tuple[str, ...]]:
    """Return the layers in order, and a note where they are not the model's own ids."""
    if found in (set(moe_layers), set(range(layers))):
        return sorted(found), ()
    ordinals = set(range(len(moe_layers)))
    if found == ordinals:
        return sorted(found), (f"layers 0..{len(ordinals) - 1} read as the MoE layers in order",)
    span = f"{len(found)} layers from {min(found)} to {max(found)}"
    raise InputError(
        f"{name}: has {span}; the model needs its MoE layers {moe_layers[0]} to {moe_layers[-1]} "
        f"({len(moe_layers)} of them), or 0 to {layers - 1} with the dense ones zero."
    )


def _whole(name: str, line: int, row: Mapping[str, str | None], column: str) -> int:
    text = (row[column] or "").strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"{name}, line {line}: {column} {text!r} is not a whole number from 0.")
    return int(text)


def _tokens(name: str, line: int, row: Mapping[str, str | None]) -> float:
    text = (row["tokens"] or "").strip()
    try:
        tokens = float(text.replace("_", "?"))  # Python reads 1_000 as a number; a CSV file does not mean one
    except ValueError:
        raise InputError(f"{name}, line {line}: tokens {text!r} is not a number.") from None
    if not 0 <= tokens < float("inf"):  # false for nan as well
        raise InputError(f"{name}, line {line}: tokens {text} is not a count; give a finite number from 0.")
    return tokens
