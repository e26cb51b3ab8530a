"""vllm-ascend's policy: ``rebalance_experts`` with the current table and the load of each slot.

References
----------
``vllm_ascend/eplb/core`` of https://github.com/vllm-project/vllm-ascend, 182b75ea84ff: ``policy_abstract.py``,
``policy_factory.py``, and ``eplb_worker.py``, which puts back a layer where an expert lies twice on a device or a
copy that stays has changed its slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from placement.arrays import Floats, Ints
from rackplan.balancers.arrays import as_given, ids_of, loads_of, of_type, refusing
from rackplan.balancers.balance import plan, request
from rackplan.balancers.maps import logical_count
from topology.base.errors import InputError

__all__ = ["RackplanPolicy", "rebalance_experts"]


def rebalance_experts(current_expert_table: Any, expert_workload: Any) -> tuple[int, Ints, Any]:
    """Return whether anything moves, the layers sorted by gain, and the table after a few moves.

    Parameters
    ----------
    current_expert_table:
        The expert in each slot of each device, ``[layers, devices, slots]``.
    expert_workload:
        Tokens of each slot, of the same shape; several windows, with an axis before the others, are summed.

    Returns
    -------
    tuple
        1 where some layer changed, else 0; the layers, the one that gains most first, int64 ``[layers]``; the
        table, like the one given: a tensor or an array of its type.

    Raises
    ------
    ValueError
        If the shapes differ, a load is no count, or an expert has no copy.
    """
    with refusing():
        axes = "layers", "devices", "slots"
        table = ids_of(current_expert_table, "current_expert_table", axes)
        load = _summed(expert_workload)
        if load.shape != table.shape:
            raise InputError(
                f"expert_workload has shape {list(load.shape)}, current_expert_table {list(table.shape)}: "
                "give one load per slot."
            )
        layers, devices, size = table.shape
        old = table.reshape(layers, -1)
        loads = _of_experts(old, load.reshape(layers, -1))
        starts = [_array_split_start(old, devices)]
        called = "slots", "devices"
        placed = plan(request(loads, devices * size, devices, old=old, starts=starts, called=called))
    gain = _peaks(old, loads, devices) - _peaks(placed, loads, devices)
    order = np.argsort(-gain, kind="stable").astype(np.int64)
    new = as_given(placed.reshape(table.shape), current_expert_table)
    return int((placed != old).any()), order, of_type(new, current_expert_table)


class RackplanPolicy:
    """The function in the form of vllm-ascend's ``EplbPolicy``."""

    rebalance_experts = staticmethod(rebalance_experts)


def _array_split_start(table: Ints, devices: int) -> Ints:
    """Return the layer ``[slots]`` of ``generate_global_placement`` with shared experts among the routed ones.

    Each device has a run of routed experts, the last devices one or more of the next run's besides, and all a shared
    expert, numbered after the routed ones. Without shared experts it was the start until July 2026 (61eb47b4d8).
    """
    experts, size = int(table.max()) + 1, table.shape[1] // devices
    last_held = table[0].reshape(devices, size)[:, -1]
    shared = experts - int(last_held.min())
    if shared == experts or not np.array_equal(last_held, experts - shared + np.arange(devices) % shared):
        shared = 0
    routed, routed_slots = experts - shared, size - (shared > 0)
    runs = [run.tolist() for run in np.array_split(np.arange(routed), devices)]
    for copy in range(devices * routed_slots - routed):
        run = runs[-1 - copy % devices]
        run.append((run[-1] + 1) % routed if run else copy % devices + 1)
    if shared:
        for device, run in enumerate(runs):
            run.append(routed + device % shared)
    return np.concatenate(runs).astype(np.int64)


def _summed(workload: Any) -> Floats:
    if getattr(workload, "ndim", 3) == 4:
        windows = loads_of(workload, "expert_workload", ("windows", "layers", "devices", "slots"))
        total: Floats = windows.sum(axis=0)
        return total
    return loads_of(workload, "expert_workload", ("layers", "devices", "slots"))


def _of_experts(table: Ints, load: Floats) -> Floats:
    """Return tokens of each expert ``[layers, experts]`` from the expert and the tokens of each slot."""
    layers = len(table)
    if table.min() < 0:
        layer, slot = (int(i) for i in np.argwhere(table < 0)[0])
        raise InputError(
            f"current_expert_table, layer {layer}: slot {slot} holds {table[layer, slot]}, which is not an expert id."
        )
    experts = int(table.max()) + 1
    key = np.arange(layers)[:, None] * experts + table
    total = np.bincount(key.ravel(), weights=load.ravel(), minlength=layers * experts).astype(np.float64)
    return total.reshape(layers, experts)


def _peaks(table: Ints, loads: Floats, devices: int) -> Floats:
    """Return the largest load of a device over the mean, ``[layers]``; 1 where there is none."""
    copies = logical_count(table, loads.shape[1])
    of_slot = np.take_along_axis(loads / np.maximum(copies, 1), table, axis=1)
    of_device = of_slot.reshape(len(table), devices, -1).sum(axis=2)
    mean = of_device.mean(axis=1)
    return np.where(mean > 0, of_device.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)
