"""EPLB's own result: ``phy2log`` ``[MoE layers, slots]`` in a ``.npy`` file; read only."""

from __future__ import annotations

from pathlib import Path

from placement.engines.findings import Finding, Inspected, Outcome, RowRules, Rows, inspect_rows
from placement.engines.mapping import ModelFacts
from placement.engines.strict_text import MOST_CELLS, require_file
from topology.base.errors import InputError
from topology.base.npy import load_npy

_WRONG = Outcome("wrong", "it cannot be a placement for this model")
_RULES = RowRules(_WRONG, _WRONG, _WRONG, _WRONG, _WRONG, _WRONG, _WRONG)


def inspect_phy2log(path: Path, facts: ModelFacts, ranks: int) -> Inspected:
    """Read and check a ``phy2log`` array: whole numbers, one row for each MoE layer.

    Raises
    ------
    InputError
        If the file is no ``.npy`` file of numbers, or longer than any plan.
    """
    require_file(path)
    try:
        table = load_npy(path, str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None
    if table.dtype.kind not in "iu":
        raise InputError(f"{path}: holds {table.dtype}, not whole numbers; phy2log has expert ids.")
    if len(table.shape) != 2 or table.shape[0] != len(facts.moe_layers):
        return Inspected(None, (Finding("shape", _shape_words(table.shape, facts), "wrong"),))
    if table.size > MOST_CELLS:
        raise InputError(f"{path}: shape {list(table.shape)} is too large for a placement.")
    places = [f"layer {layer} (row {row})" for row, layer in enumerate(facts.moe_layers)]
    return inspect_rows(Rows(table.tolist(), places), _RULES, facts, ranks)


def _shape_words(shape: tuple[int, ...], facts: ModelFacts) -> str:
    expected = len(facts.moe_layers)
    text = f"{list(shape)}, expected [{expected}, slots], the MoE layers of {facts.name} in order"
    if len(shape) == 3:
        return f"{text}; save one map (map[0]), not several"
    if len(shape) == 2 and shape[0] == facts.layers:
        dense = [layer for layer in range(facts.layers) if layer not in facts.moe_layers]
        return f"{text}; drop the rows of dense layers {dense}"
    return text
