"""Dispatch policies: how an engine splits an expert's tokens over its copies, and the resulting GPU loads."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment, numbered
from cost.experts.best_split import lp_shares
from topology.base.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

DispatchPolicy = Literal["even", "source", "lp", "rank", "rank-tp2", "rank-tp4", "rank-tp8", "rank-tp16"]

DISPATCH_POLICIES: tuple[DispatchPolicy, ...] = get_args(DispatchPolicy)
"""``even``: TensorRT-LLM, vLLM, SGLang ``dynamic``. ``source``: SGLang ``static``. ``lp``: SGLang's ``lp``,
DeepSeek's LPLB. ``rank``: vllm-ascend; ``rank-tpN``: with attention of tensor parallelism N."""


def require_policy(split: str) -> DispatchPolicy:
    """Return ``split`` if it is known.

    Raises
    ------
    InputError
        If it is not.
    """
    for known in DISPATCH_POLICIES:
        if split == known:
            return known
    raise InputError(
        f"expected {', '.join(DISPATCH_POLICIES[:-1])} or {DISPATCH_POLICIES[-1]}.",
        field="split",
        value=split,
    )


def rank_tp(split: DispatchPolicy) -> int | None:
    """Return the tensor parallelism of attention for which ranks choose copies by number; None: they do not."""
    return int(split.removeprefix("rank").removeprefix("-tp") or 1) if split.startswith("rank") else None


def depends_on_placement(split: DispatchPolicy) -> bool:
    """Whether what a copy takes depends on the GPUs that the copies lie on, whatever the loads."""
    return split not in ("even", "lp")


def slot_shares(
    assignment: Assignment,
    split: DispatchPolicy,
    *,
    load: Floats | None = None,
    nodes: Ints | None = None,
    speed: Floats | None = None,
) -> Floats:
    """Return the fraction of its expert's load that each slot takes, ``[layers, slots]``; 1 over the copies.

    Parameters
    ----------
    load:
        ``[layers, experts]``: what an LP split looks at; the other splits do not.
    nodes:
        Node of each GPU, ``[gpus]``, for a split by source; None: each GPU is a node of its own.
    speed:
        Relative speed of each GPU, ``[gpus]``, for an LP split; None: all equal.

    Raises
    ------
    InputError
        If the split is not known, or is ``lp`` and there is no load.
    """
    if require_policy(split) == "even":
        return np.take_along_axis(1.0 / np.maximum(assignment.copies, 1), _slot_experts(assignment), axis=1)
    if split == "source":
        return source_shares(assignment, nodes)
    tp = rank_tp(split)
    if tp is not None:
        return rank_shares(assignment, tp)
    if load is None:
        raise InputError("the best split depends on the loads; give them.", field="split", value="lp")

    return lp_shares(assignment, load, speed)[0]


def source_shares(assignment: Assignment, nodes: Ints | None = None) -> Floats:
    """Return the shares where each source rank uses one copy of an expert for all its tokens, ``[layers, slots]``.

    As SGLang 0.5.23's ``static``: the copy on the rank's own GPU; else the first one on its own node, where some
    other node has one too; else the copies in turn (the ones left over go to the first copies; SGLang draws them,
    seeded). Every GPU of the group is a source of equally many tokens.
    """
    gpus = assignment.gpus
    where = np.arange(gpus) if nodes is None else numbered(nodes)
    node_gpus = np.bincount(where)
    layers, slots = assignment.slot_expert.shape
    slot_node = where[assignment.slot_gpu].astype(np.int64)
    slot_gpu = assignment.slot_gpu.astype(np.int64)
    experts = _slot_experts(assignment)
    # The slots of a layer by expert, then node, then place.
    order = np.argsort(experts * len(node_gpus) + slot_node, axis=1, kind="stable")
    expert = np.take_along_axis(experts, order, axis=1)
    copies = np.take_along_axis(assignment.copies, expert, axis=1)
    new_expert = _starts(expert)
    turn = np.arange(slots) - np.maximum.accumulate(np.where(new_expert, np.arange(slots), 0), axis=1)
    new_node = new_expert | _starts(slot_node[order])
    own = new_node | _starts(slot_gpu[order])
    local, far = _by_distance(new_expert, new_node, own, node_gpus[slot_node[order]], gpus)
    ranks = local + far // copies + (turn < far % copies)
    shares = np.empty((layers, slots))
    np.put_along_axis(shares, order, ranks / gpus, axis=1)
    return shares


def rank_shares(assignment: Assignment, tp: int = 1) -> Floats:
    """Return the shares where source rank r uses a copy that its number alone decides, ``[layers, slots]``.

    As vllm-ascend (``generate_log2phy_map``): copies of an expert are counted in the order of the ranks that hold
    them, and rank r uses copy ``r % copies``; in engines that run attention with tensor parallelism ``tp`` above 1,
    copy ``(r % tp + r // tp + expert) % copies``. Every GPU of the group is a source of equally many tokens.
    """
    copies, wanted, number = _by_number(assignment, tp)
    shares = np.empty(copies.shape)
    for many in np.unique(copies).tolist():
        users = np.bincount(number % many, minlength=many) / assignment.gpus
        shares = np.where(copies == many, users[np.minimum(wanted, many - 1)], shares)
    return shares


def rank_choices(assignment: Assignment, layer: int, tp: int = 1) -> Floats:
    """Return whether a source rank uses a slot in one layer, ``[gpus, slots]``: 1 or 0.

    The mean over ranks is :func:`rank_shares`.
    """
    one = Assignment(
        assignment.slot_expert[layer : layer + 1], assignment.slot_gpu, assignment.experts, assignment.gpus
    )
    copies, wanted, number = _by_number(one, tp)
    used: Floats = (number[:, None] % copies == wanted).astype(np.float64)
    return used


def _by_number(assignment: Assignment, tp: int) -> tuple[Ints, Ints, Ints]:
    """Copies of a slot's expert, and a number below that, ``[layers, slots]``; of each rank a number, ``[gpus]``.

    A rank uses the slot where its number, modulo the copies, is the slot's.
    """
    expert = _slot_experts(assignment)
    copies = np.take_along_axis(assignment.copies, expert, axis=1)
    order = np.argsort(expert, axis=1, kind="stable")  # slots come in the order of their ranks
    starts = np.where(_starts(np.take_along_axis(expert, order, axis=1)), np.arange(assignment.slots), 0)
    turn = np.empty_like(expert)
    counted = np.arange(assignment.slots) - np.maximum.accumulate(starts, axis=1)
    np.put_along_axis(turn, order, counted, axis=1)
    ranks = np.arange(assignment.gpus)
    number, shift = (ranks, 0) if tp == 1 else (ranks % tp + ranks // tp, expert)
    return copies, (turn - shift) % copies, number


def source_choices(assignment: Assignment, layer: int, nodes: Ints | None = None) -> Floats:
    """Return the copy that each source rank uses in one layer, ``[gpus, slots]``: 1, or a chance where it is drawn.

    The mean over ranks is :func:`source_shares`. A rank far from every copy of an expert uses each copy with the
    chance that its turn comes: which of the far ranks gets which copy is drawn by the engine.
    """
    gpus, slot_gpu = assignment.gpus, assignment.slot_gpu.astype(np.int64)
    where = np.arange(gpus) if nodes is None else numbered(nodes)
    expert = assignment.slot_expert[layer].astype(np.int64)
    slot_node = where[slot_gpu].astype(np.int64)
    places = int(where.max()) + 1
    order = np.argsort(expert * places + slot_node, kind="stable")
    new_node = np.empty(order.size, dtype=bool)
    new_node[order] = _starts((expert * places + slot_node)[order][None])[0]
    nodes_of = np.bincount(expert[new_node], minlength=assignment.experts)
    # the slot that a rank prefers, by expert: on its own GPU, else the first on its node where another has one too
    target = np.full((gpus, assignment.experts), -1, dtype=np.int64)
    near = np.flatnonzero(new_node & (nodes_of[expert] > 1))
    for node in np.unique(slot_node[near]).tolist():
        slots = near[slot_node[near] == node]
        target[np.ix_(where == node, expert[slots])] = slots
    backwards = np.arange(order.size)[::-1]  # the first of several on a GPU stays
    target[slot_gpu[backwards], expert[backwards]] = backwards
    far = (target < 0).sum(axis=0)[expert]
    copies = assignment.copies[layer][expert]
    turn = np.empty(order.size, dtype=np.int64)
    first = np.maximum.accumulate(np.where(_starts(expert[order][None])[0], np.arange(order.size), 0))
    turn[order] = np.arange(order.size) - first
    drawn = (far // copies + (turn < far % copies)) / np.maximum(far, 1)
    preferred = target[:, expert]
    chosen: Floats = np.where(preferred >= 0, preferred == np.arange(order.size), drawn)
    return chosen


def _by_distance(
    new_expert: Flags,
    new_node: Flags,
    own: Flags,
    node_gpus: Ints,
    gpus: int,
) -> tuple[Ints, Ints]:
    """Ranks that use a slot as the nearest copy, and ranks far from every copy of its expert, ``[layers, slots]``.

    Slots are sorted by expert and node; the flags say where a run of an expert, a node and a GPU begins.
    """
    nodes_of_expert = _run_sums(new_expert, new_node.astype(np.int64))
    near = np.where(nodes_of_expert > 1, node_gpus, 0)  # a node that has all the copies prefers none
    holders = _run_sums(new_node, own.astype(np.int64))
    local = own.astype(np.int64) + np.where(new_node & (near > 0), near - holders, 0)
    served = np.where(near > 0, new_node * near, own)
    return local, gpus - _run_sums(new_expert, served)


def _starts(values: Ints) -> Flags:
    first = np.ones(values.shape, dtype=bool)
    first[:, 1:] = values[:, 1:] != values[:, :-1]
    return first


def _run_sums(first: Flags, values: Ints) -> Ints:
    """Sum over the run that each entry belongs to; ``first`` is true where one begins, as at the start of a row."""
    flat, start = values.reshape(-1), np.flatnonzero(first.reshape(-1))
    lengths = np.diff(np.append(start, flat.size))
    return np.repeat(np.add.reduceat(flat, start), lengths).reshape(values.shape)


def _slot_experts(assignment: Assignment) -> Ints:
    return assignment.slot_expert.astype(np.int64)
