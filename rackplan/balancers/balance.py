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
        given = ids_of(old, "the old map", ("layers", "slots"))
        old = _old_map(given, loads.shape, slots, slots // ranks)
        starts = np.arange(slots) % experts, *starts
        at_start = given.shape == old.shape and any(bool((old == start).all()) for start in starts)
    return Asked(loads, slots, ranks, old, at_start, groups, nodes)


def plan(asked: Asked, given: Settings | None = None) -> Ints:
    """Return the expert of each slot, int64 ``[layers, slots]``; copies that stay on their rank keep their slot.

    ``given``: the settings; those of the environment unless told otherwise.

    Raises
    ------
    InputError
        If the environment's settings or the stored scenarios cannot be used.
    """
    given = settings() if given is None else given
    asked = replace(asked, stored=stored_for(given, asked.loads, asked.slots, asked.ranks))
    nodes = _node_experts(asked, given)
    if nodes is None:
        return _placed(asked, given).astype(np.int64)
    inside = replace(
        asked,
        loads=nodes.loads(asked.loads),
        slots=asked.slots // asked.nodes,
        ranks=asked.ranks // asked.nodes,
        old=None if asked.old is None else nodes.inside(asked.old),
        stored=_inside(asked, nodes),
        names=nodes.experts.reshape(-1, asked.experts // asked.nodes),
    )
    return nodes.outside(_placed(inside, given)).astype(np.int64)


def _old_map(old: Ints, shape: tuple[int, ...], slots: int, each: int) -> Experts:
    layers, experts = shape
    if len(old) != layers or old.shape[1] % each:
        raise InputError(
            f"the old map has shape {list(old.shape)}: expected [{layers}, {slots}], one row per layer."
        )
    bad = (old < -1) | (old >= experts)
    if bad.any():
        layer, slot = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"the old map, layer {layer}, slot {slot}: {old[layer, slot]} is not an expert id; ids are 0 "
            f"to {experts - 1}, and -1 is an empty slot."
        )
    found = np.full((layers, slots), -1, dtype=np.int32)
    width = min(slots, old.shape[1])
    found[:, :width] = old[:, :width]
    return found


def _placed(asked: Asked, given: Settings) -> Experts:
    if asked.slots // asked.ranks >= asked.loads.shape[1]:
        return _all_everywhere(asked, None if asked.at_start and given.max_moves else given.max_moves)
    if asked.old is None and asked.stored is None and asked.ranks == asked.slots == asked.loads.shape[1]:
        row = np.arange(asked.slots, dtype=np.int32)  # an expert each: no placement is better than another
        return np.tile(row, (len(asked.loads), 1))
    return next_placement(asked, given)


def _all_everywhere(asked: Asked, most: float | None) -> Experts:
    """Return a placement with every expert on every rank, equally often: no other can be better balanced.

    Where something lies there, it is made layer by layer, within ``most`` of the copies besides those that must be
    restored.
    """
    (rows, experts), each = asked.loads.shape, asked.slots // asked.ranks
    fresh = np.tile((np.arange(each) % experts).astype(np.int32), (rows, asked.ranks))
    if asked.old is None:
        return fresh
    found = keep_slots(asked.old, fresh, asked.ranks)
    restored = forced_moves(asked.old, experts)
    if restored.any():
        _log.warning("rackplan: %s", restored_words(int(restored.sum())))
    chosen = (found != asked.old).sum(axis=1) - restored
    left = asked.old.size if most is None else int(most * asked.old.size + 1e-9)
    order = np.argsort(restored == 0, kind="stable")
    kept = order[np.cumsum(chosen[order]) > left]
    for layer in kept:
        old = asked.old[layer].copy()
        lost = np.setdiff1d(np.arange(experts), old)
        again = np.setdiff1d(np.arange(old.size), np.unique(old, return_index=True)[1])
        free = np.concatenate([np.flatnonzero(old < 0), again[old[again] >= 0]])
        old[free[: lost.size]] = lost
        found[layer] = np.where(old < 0, found[layer], old)
    return found


def _inside(asked: Asked, nodes: NodeExperts) -> Stored | None:
    """Return what is stored by node; the plan only where it puts the same groups on the nodes."""
    if asked.stored is None:
        return None
    placed = asked.stored.placed
    if placed is not None:
        lie = groups_as_they_lie(placed, asked.experts, asked.groups, asked.nodes)
        same = lie is not None and np.array_equal(lie.experts, nodes.experts)
        placed = nodes.inside(placed) if same else None
    return Stored(nodes.loads(asked.stored.loads), placed, asked.ranks // asked.nodes)


def _node_experts(asked: Asked, given: Settings) -> NodeExperts | None:
    """Return the experts of each node where groups are kept on one; None where they are not.

    They are where they lie so already, and where all is planned afresh, unless a stored plan scatters them.
    """
    if asked.nodes == 1 or given.node_groups == "ignore":
        return None
    planned = None if asked.stored is None else asked.stored.placed
    free = asked.at_start or given.max_moves is None
    gathers = given.node_groups == "gather" and free
    for placed in (asked.old, planned):
        if placed is not None:
            lie = groups_as_they_lie(placed, asked.experts, asked.groups, asked.nodes)
            if lie is not None or not gathers:
                return lie
    seen = asked.loads[None]
    loads = seen if asked.stored is None else np.concatenate([seen, asked.stored.loads])
    return packed_groups(loads, asked.groups, asked.nodes)
