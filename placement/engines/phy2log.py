"""EPLB's own result: ``phy2log`` ``[MoE layers, slots]`` in a ``.npy`` file; read only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from placement.engines.findings import Finding, Inspected, Outcome, RowRules, inspect_rows
from placement.engines.mapping import ModelFacts
from topology.errors import InputError

MOST_CELLS = 1 << 22
"""94 layers of 4,096 slots are a tenth of that."""

_WRONG = Outcome("wrong", "it cannot be a placement of this model")
_RULES = RowRules(_WRONG, _WRONG, _WRONG, _WRONG, _WRONG, _WRONG, _WRONG)


def inspect_phy2log(path: Path, facts: ModelFacts, ranks: int) -> Inspected:
    """Read and check a ``phy2log`` array: whole numbers, one row for each MoE layer.

    Raises
    ------
    InputError
        If the file is no ``.npy`` file of numbers, or longer than any plan.
    """
    shape, dtype = _header(path)
    if dtype.kind not in "iu":
        raise InputError(f"{path}: holds {dtype}, not whole numbers; phy2log has expert ids.")
    wanted = len(facts.moe_layers)
    if len(shape) != 2 or shape[0] != wanted:
        return Inspected(None, (Finding("shape", _shape_words(shape, facts), "wrong"),))
    if shape[0] * shape[1] > MOST_CELLS:
        raise InputError(f"{path}: shape {list(shape)} is more than any plan of experts.")
    with path.open("rb") as file:
        try:
            table = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise InputError(f"{path}: cut short ({' '.join(str(error).split())[:80]}).") from None
    places = [f"layer {layer} (row {row})" for row, layer in enumerate(facts.moe_layers)]
    return inspect_rows(table.tolist(), places, _RULES, facts, ranks)


def _header(path: Path) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Return shape and dtype without reading an element."""
    try:
        if not path.is_file():
            raise InputError(f"{path}: {'not a regular file' if path.exists() else 'there is no such file'}.")
        with path.open("rb") as file:
            first = np.lib.format.read_magic(file) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        # a header that is code comes back as the name of its tree, with an address that differs each time
        what = (
            "a header of other than plain values"
            if "malformed" in str(error)
            else " ".join(str(error).split())
        )
        raise InputError(f"{path}: not a whole .npy file ({what[:80] or type(error).__name__}).") from None
    return shape, dtype


def _shape_words(shape: tuple[int, ...], facts: ModelFacts) -> str:
    wanted = len(facts.moe_layers)
    text = f"{list(shape)}, expected [{wanted}, slots], the MoE layers of {facts.name} in order"
    if len(shape) == 3:
        return f"{text}; save one map (map[0]), not several"
    if len(shape) == 2 and shape[0] == facts.layers:
        dense = [layer for layer in range(facts.layers) if layer not in facts.moe_layers]
        return f"{text}; drop the rows of dense layers {dense}"
    return text
