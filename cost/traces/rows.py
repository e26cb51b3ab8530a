"""The rows of a recording against the layers of a model: dense ones dropped, none that should have tokens empty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cost.traces.recording import Recording, Wanted
from topology.errors import InputError


def require_fit(recording: Recording, wanted: Wanted) -> None:
    """Refuse a recording of other layers or experts, before its counts are read.

    Raises
    ------
    InputError
        If it has another shape than the model needs.
    """
    rows = _kept_rows(recording, wanted)[0] if recording.layer_ids else range(recording.rows)
    if recording.experts != wanted.experts or len(rows) not in {len(wanted.moe_layers), wanted.layers}:
        raise InputError(f"{recording.path}: has shape {recording.shape}; the model needs {wanted.words}.")


def moe_rows(
    recording: Recording, tokens: NDArray[np.float64], names: tuple[str, ...], wanted: Wanted
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return ``[runs, MoE layers, experts]`` of ``tokens [runs, rows, experts]``, and notes.

    Raises
    ------
    InputError
        If a dense layer has tokens, or a MoE layer has none in some run.
    """
    notes: tuple[str, ...] = ()
    if recording.layer_ids:
        rows, notes = _kept_rows(recording, wanted)
        tokens = tokens[:, rows]
    moe = list(wanted.moe_layers)
    if tokens.shape[1] == wanted.layers and wanted.layers != len(moe):
        dense = sorted(set(range(wanted.layers)) - set(moe))
        used = tokens[:, dense].any(axis=2)
        if used.any():
            scenario, row = (int(i) for i in np.argwhere(used)[0])
            raise InputError(
                f"{recording.path}: scenario {names[scenario]}, row {dense[row]}: that layer of the model has no "
                "experts, but its loads are not zero; are these loads of another model?"
            )
        tokens = tokens[:, moe]
        notes = (*notes, f"{len(dense)} rows of dense layers, all zero, dropped")
    dead = ~tokens.any(axis=2)
    if dead.any():
        scenario, row = (int(i) for i in np.argwhere(dead)[0])
        raise InputError(
            f"{recording.path}: scenario {names[scenario]}, layer {moe[row]} of the model (MoE layer {row} from 0): "
            "all loads are 0; measure for longer, merge windows (--windows 1), or drop the scenario."
        )
    return tokens, notes


def _kept_rows(recording: Recording, wanted: Wanted) -> tuple[list[int], tuple[str, ...]]:
    """Return the rows to keep of a recording that names its layers, and a note where they are not the model's."""
    layers = recording.layer_ids or ()
    found = set(layers)
    if found in (set(wanted.moe_layers), set(range(wanted.layers))):
        return list(range(len(layers))), ()
    if found == set(range(len(wanted.moe_layers))):
        return list(range(len(layers))), (f"layers 0..{len(found) - 1} read as the MoE layers in order",)
    beyond = {layer for layer in found if layer >= wanted.layers}
    if found - beyond == set(wanted.moe_layers):
        kept = [row for row, layer in enumerate(layers) if layer not in beyond]
        named = ", ".join(map(str, sorted(beyond)[:8]))
        return kept, (f"layer {named} is beyond the model's {wanted.layers} (it drafts tokens?), left out",)
    span = f"{len(found)} layers from {min(found)} to {max(found)}"
    moe = wanted.moe_layers
    raise InputError(
        f"{recording.path}: has {span}; the model needs its MoE layers {moe[0]} to {moe[-1]} "
        f"({len(moe)} of them), or 0 to {wanted.layers - 1} with the dense ones zero."
    )
