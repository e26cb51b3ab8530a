"""One call of an engine's balancer: validated inputs, and the resulting expert of each slot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.online.balancer import forced_moves, restored_words
from rackplan.balancers.arrays import ids_of, whole
from rackplan.balancers.groups import NodeExperts, groups_as_they_lie, packed_groups
from rackplan.balancers.maps import keep_slots
from rackplan.balancers.settings import Settings, settings
from rackplan.balancers.stored import Stored, stored_for
from rackplan.balancers.streams import Asked, next_placement
from topology.base.errors import InputError

_log = logging.getLogger(__name__)


def request(
    loads: Floats,
    slots: Any,
    ranks: Any,
    groups: Any = 1,
    nodes: Any = 1,
    *,
    old: Any = None,
    starts: Sequence[Ints] = (),
    called: tuple[str, str] = ("num_replicas", "num_ranks"),
) -> Asked:
    """Validate an engine's inputs; ``called`` are its names for slots and ranks.

    ``starts``: layers ``[slots]`` that the engine may start with, besides slot j with expert j mod E as vLLM
    (``build_initial_global_physical_to_logical_map``), SGLang (``init_trivial``) and vllm-ascend have it.

    Groups that do not divide over the nodes mean nothing, as to EPLB. An old map of more ranks loses its last ones,
    one of fewer gets empty slots, as ranks leave and come at the end.

    Raises
    ------
    InputError
        If the numbers do not fit together.
    """
    slots_name, ranks_name = called
    slots, ranks = whole(slots, slots_name), whole(ranks, ranks_name)
    groups, nodes = whole(groups, "num_groups"), whole(nodes, "num_nodes")
    experts = loads.shape[1]
    if slots % ranks:
        raise InputError(
            f"{slots_name} {slots} is not a multiple of {ranks_name} {ranks}: every rank needs the same number."
        )
    if slots < experts:
        raise InputError(
            f"{slots_name} {slots} slots cannot hold {experts} experts: give at least {experts}."
        )
    if groups % nodes:
        groups = nodes = 1
    if experts % groups:
        raise InputError(f"{experts} experts do not divide evenly into num_groups {groups}.")
    if ranks % nodes:
        raise InputError(f"{ranks_name} {ranks} is not a multiple of num_nodes {nodes}.")
    at_start = False
    if old is not None:
        placed = ids_of(old, "the old map", ("layers", "slots"))
        old = _old_map(placed, loads.shape, slots, slots // ranks)
        starts = np.arange(slots) % experts, *starts
        at_start = placed.shape == old.shape and any(bool((old == start).all()) for start in starts)
    return Asked(loads, slots, ranks, old, at_start, groups, nodes)


def plan(call: Asked, options: Settings | None = None) -> Ints:
    """Return the expert of each slot, int64 ``[layers, slots]``; copies that stay on their rank keep their slot.

    ``options``: the settings; those of the environment unless told otherwise.

    Raises
    ------
    InputError
        If the environment's settings or the stored scenarios cannot be used.
    """
    options = settings() if options is None else options
    call = replace(call, stored=stored_for(options, call.loads, call.slots, call.ranks))
    nodes = _node_experts(call, options)
    if nodes is None:
        return _placed(call, options).astype(np.int64)
    inside = replace(
        call,
        loads=nodes.loads(call.loads),
        slots=call.slots // call.nodes,
        ranks=call.ranks // call.nodes,
        old=None if call.old is None else nodes.inside(call.old),
        stored=_inside(call, nodes),
        names=nodes.experts.reshape(-1, call.experts // call.nodes),
    )
    return nodes.outside(_placed(inside, options)).astype(np.int64)


def _old_map(old: Ints, shape: tuple[int, ...], slots: int, size: int) -> Experts:
    layers, experts = shape
    if len(old) != layers or old.shape[1] % size:
        raise InputError(
            f"the old map has shape {list(old.shape)}: expected [{layers}, {slots}], one row per layer."
        )
    invalid = (old < -1) | (old >= experts)
    if invalid.any():
        layer, slot = (int(i) for i in np.argwhere(invalid)[0])
        raise InputError(
            f"the old map, layer {layer}, slot {slot}: {old[layer, slot]} is not an expert id; ids are 0 "
            f"to {experts - 1}, and -1 is an empty slot."
        )
    table = np.full((layers, slots), -1, dtype=np.int32)
    width = min(slots, old.shape[1])
    table[:, :width] = old[:, :width]
    return table


def _placed(call: Asked, options: Settings) -> Experts:
    if call.slots // call.ranks >= call.loads.shape[1]:
        return _all_everywhere(call, None if call.at_start and options.max_moves else options.max_moves)
    if call.old is None and call.stored is None and call.ranks == call.slots == call.loads.shape[1]:
        row = np.arange(call.slots, dtype=np.int32)  # an expert each: no placement is better than another
        return np.tile(row, (len(call.loads), 1))
    return next_placement(call, options)


def _all_everywhere(call: Asked, limit: float | None) -> Experts:
    """Return a placement with every expert on every rank, equally often: no other can be better balanced.

    Where something lies there, it is made layer by layer, within ``limit`` of the copies besides those that must be
    restored.
    """
    (rows, experts), size = call.loads.shape, call.slots // call.ranks
    fresh = np.tile((np.arange(size) % experts).astype(np.int32), (rows, call.ranks))
    if call.old is None:
        return fresh
    placed = keep_slots(call.old, fresh, call.ranks)
    restored = forced_moves(call.old, experts)
    if restored.any():
        _log.warning("rackplan: %s", restored_words(int(restored.sum())))
    chosen = (placed != call.old).sum(axis=1) - restored
    allowed = call.old.size if limit is None else int(limit * call.old.size + 1e-9)
    order = np.argsort(restored == 0, kind="stable")
    frozen = order[np.cumsum(chosen[order]) > allowed]
    for layer in frozen:
        old = call.old[layer].copy()
        lost = np.setdiff1d(np.arange(experts), old)
        repeats = np.setdiff1d(np.arange(old.size), np.unique(old, return_index=True)[1])
        free = np.concatenate([np.flatnonzero(old < 0), repeats[old[repeats] >= 0]])
        old[free[: lost.size]] = lost
        placed[layer] = np.where(old < 0, placed[layer], old)
    return placed


def _inside(call: Asked, nodes: NodeExperts) -> Stored | None:
    """Return what is stored by node; the plan only where it puts the same groups on the nodes."""
    if call.stored is None:
        return None
    placed = call.stored.placed
    if placed is not None:
        lie = groups_as_they_lie(placed, call.experts, call.groups, call.nodes)
        same = lie is not None and np.array_equal(lie.experts, nodes.experts)
        placed = nodes.inside(placed) if same else None
    return Stored(nodes.loads(call.stored.loads), placed, call.ranks // call.nodes)


def _node_experts(call: Asked, options: Settings) -> NodeExperts | None:
    """Return the experts of each node where groups are kept on one; None where they are not.

    They are where they lie so already, and where all is planned afresh, unless a stored plan scatters them.
    """
    if call.nodes == 1 or options.node_groups == "ignore":
        return None
    planned = None if call.stored is None else call.stored.placed
    free = call.at_start or options.max_moves is None
    gathers = options.node_groups == "gather" and free
    for placed in (call.old, planned):
        if placed is not None:
            lie = groups_as_they_lie(placed, call.experts, call.groups, call.nodes)
            if lie is not None or not gathers:
                return lie
    window = call.loads[None]
    loads = window if call.stored is None else np.concatenate([window, call.stored.loads])
    return packed_groups(loads, call.groups, call.nodes)
