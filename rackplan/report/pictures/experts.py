"""Expert map: layers x GPUs, with experts, copies and GPU loads."""

from __future__ import annotations

import base64
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment
from cost.inputs.layout import StageSpec
from placement.plan import Plan
from placement.scoring import gpu_load, stage_loads
from rackplan.report.doc import Picture
from topology.base.units import plural

MAX_BYTES = 900_000
"""Maximum size of the map's data in base64."""
LOAD_STEP = 1 / 8192
"""Resolution of loads relative to the layer mean; the largest value is eight times the mean."""


def expert_map(plan: Plan, arrived: NDArray[np.int64] | None = None) -> Picture | None:
    """Return the expert map of a plan; None without experts, or if larger than :data:`MAX_BYTES`.

    Columns are the GPUs of the first replica (the others hold the same), rows the layers with experts. The data are
    little-endian arrays in base64: the expert of each slot, a row for each different layer, the load of each GPU over
    its layer's mean, and the load of each expert, which larger maps leave out.

    ``arrived``: copies that a re-plan moves to each GPU, ``[layers, GPUs]``.
    """
    parts = [
        (stage, entry)
        for stage, entry in zip(plan.layout.replicas[0], plan.experts, strict=True)
        if entry is not None
    ]
    if not parts or plan.loads is None:
        return None
    gpus = [gpu for stage, _ in parts for gpu in stage.gpus]
    moe = plan.deployment.model.moe_layers
    layers = [layer for stage, _ in parts for layer in moe if layer in stage.layers]
    groups = [_group(plan, *part) for part in parts]
    if _size(groups) > MAX_BYTES:
        for group in groups:
            del group["expert_load"]
    if _size(groups) > MAX_BYTES:
        return None
    data: dict[str, Any] = {
        "layers": _packed(np.array(layers), np.int32),
        "rows": len(layers),
        **_places(plan, gpus),
        "experts": parts[0][1].experts,
        "replicas": len(plan.layout.replicas),
        "loads": ", ".join(plan.loads.names[:4]) + (", ..." if len(plan.loads.names) > 4 else ""),
        "groups": groups,
        "load_step": LOAD_STEP,
    }
    if arrived is not None:
        data["arrived"] = _packed(np.minimum(arrived, 255), np.uint8)
    return Picture("experts", _says(plan, len(layers), len(gpus)), data=data)


def _group(plan: Plan, stage: StageSpec, entry: Assignment) -> dict[str, Any]:
    """Return one stage: the experts of its slots, a row for each different layer, and its loads."""
    kinds, row_of = np.unique(entry.slot_expert, axis=0, return_inverse=True)
    mean = stage_loads(plan.deployment, plan.loads, stage.layers).mean if plan.loads is not None else None
    assert mean is not None  # noqa: S101 - checked by expert_map
    share = mean / np.maximum(mean.mean(axis=1, keepdims=True), 1e-300)
    distinct = len(kinds) == entry.layers
    return {
        "rows": entry.layers,
        "columns": entry.gpus,
        "slots": _packed(entry.slots_per_gpu, np.uint16),
        "experts": _packed(entry.slot_expert if distinct else kinds, np.uint16),
        "row_of": "" if distinct else _packed(row_of.reshape(-1), np.uint16),
        "load": _in_steps(gpu_load(plan, stage, entry)),
        "expert_load": _in_steps(share),
    }


def _places(plan: Plan, gpus: list[int]) -> dict[str, Any]:
    """Return the ids of GPUs, and node and rack of each: runs of names."""
    table = [plan.deployment.cluster.gpus[gpu] for gpu in gpus]
    return {
        "gpus": [gpu.id for gpu in table],
        "nodes": _runs([gpu.node for gpu in table]),
        "racks": _runs([gpu.rack for gpu in table]),
        "domains": _runs([f"d{gpu.domain}" for gpu in table]),
    }


def _runs(names: list[str]) -> list[tuple[str, int]]:
    """Return names with how often each comes in a row."""
    return [(name, len(list(run))) for name, run in groupby(names)]


def _in_steps(loads: NDArray[np.float64]) -> str:
    """Return loads in :data:`LOAD_STEP`, packed."""
    return _packed(np.clip(np.rint(loads / LOAD_STEP), 0, np.iinfo(np.uint16).max), np.uint16)


def _packed(values: NDArray[Any], dtype: type) -> str:
    """Return an array as base64 of its little-endian bytes, row by row."""
    held = np.ascontiguousarray(values).astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(held.tobytes()).decode("ascii")


def _size(groups: list[dict[str, Any]]) -> int:
    return sum(len(value) for group in groups for value in group.values() if isinstance(value, str))


def _says(plan: Plan, layers: int, gpus: int) -> str:
    """Return the map in one sentence."""
    entry = next(placed for placed in plan.experts if placed is not None)
    replicas = len(plan.layout.replicas)
    repeats = f", the same in {plural(replicas, 'replica')}" if replicas > 1 else ""
    copies = entry.slots - entry.experts
    return (
        f"Map of {plural(layers, 'layer')} x {plural(gpus, 'GPU')}{repeats}: "
        f"{plural(entry.experts, 'expert')} a layer in "
        f"{plural(entry.slots, 'slot')}, {copies} of them further copies"
    )
