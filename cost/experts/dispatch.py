"""Dispatch policies: how an engine splits an expert's tokens over its copies, and the resulting GPU loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment, numbered
from cost.experts.best_split import lp_shares
from topology.base.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

DispatchPolicy = Literal[
    "even", "source", "lp", "quota", "rank", "rank-tp2", "rank-tp4", "rank-tp8", "rank-tp16"
]

DISPATCH_POLICIES: tuple[DispatchPolicy, ...] = get_args(DispatchPolicy)
"""``even``: TensorRT-LLM, vLLM, SGLang ``dynamic``. ``source``: SGLang ``static``. ``lp``: SGLang's ``lp``,
DeepSeek's LPLB. ``quota``: UltraEP. ``rank``: vllm-ascend; ``rank-tpN``: with attention of tensor parallelism N."""


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
    return split not in ("even", "lp", "quota")


def follows_loads(split: DispatchPolicy) -> bool:
    """Whether the tokens of each batch are split by its own loads."""
    return split in ("lp", "quota")


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
        If the split is ``lp`` and there is no load, or ``quota``: what it fills is
        :func:`cost.experts.quota.fill_quota`.
    """
    if split == "even":
        return np.take_along_axis(1.0 / np.maximum(assignment.copies, 1), _slot_experts(assignment), axis=1)
    if split == "source":
        local, neighbours, _, drawn = _by_distance(assignment, nodes)
        shares: Floats = (local + np.maximum(neighbours, 0) + drawn) / assignment.gpus
        return shares
    tp = rank_tp(split)
    if tp is not None:
        return rank_shares(assignment, tp)
    if split == "quota":
        raise InputError("slots are filled anew for each batch: use fill_quota.", field="split", value=split)
    if load is None:
        raise InputError("the best split depends on the loads; give them.", field="split", value="lp")
    return lp_shares(assignment, load, speed)[0]


def slot_choices(
    assignment: Assignment,
    split: DispatchPolicy,
    *,
    load: Floats | None = None,
    nodes: Ints | None = None,
    speed: Floats | None = None,
) -> Iterator[Floats]:
    """Yield by layer the fraction of a source's tokens of the slot's expert that go to it, ``[sources, slots]``.

    Arguments as for :func:`slot_shares`, which are the mean over sources. By ``source`` and ``rank`` each GPU is one,
    with 1 or 0, or a chance where the engine draws; else there is one source, which stands for all.
    """
    tp = rank_tp(split)
    if split == "source":
        yield from _source_choices(assignment, nodes)
    elif tp is not None:
        copies, number_of_slot, number = _by_number(assignment, tp)
        for count, slot in zip(copies, number_of_slot, strict=True):
            yield (number[:, None] % count == slot).astype(np.float64)
    else:
        yield from slot_shares(assignment, split, load=load, speed=speed)[:, None]


def _source_choices(assignment: Assignment, nodes: Ints | None) -> Iterator[Floats]:
    """Yield what each source rank uses: a rank far from every copy each of them with the chance of its turn."""
    gpus, slots = assignment.gpus, np.arange(assignment.slots)
    where = np.arange(gpus) if nodes is None else numbered(nodes)
    for expert, local, neighbours, far, drawn in zip(
        _slot_experts(assignment), *_by_distance(assignment, nodes), strict=True
    ):
        # the slot that a rank prefers, by expert: on its GPU, else the first on its node where another has one too
        target = np.full((gpus, assignment.experts), -1, dtype=np.int64)
        near, held = np.flatnonzero(neighbours >= 0), np.flatnonzero(local)
        rank, slot = np.nonzero(where[:, None] == where[assignment.slot_gpu[near]])
        target[rank, expert[near[slot]]] = near[slot]
        target[assignment.slot_gpu[held], expert[held]] = held
        preferred = target[:, expert]
        yield np.where(preferred >= 0, preferred == slots, drawn / np.maximum(far, 1))


def rank_shares(assignment: Assignment, tp: int = 1) -> Floats:
    """Return the shares where source rank r uses a copy that its number alone decides, ``[layers, slots]``.

    As vllm-ascend (``generate_log2phy_map``): copies of an expert are counted in the order of the ranks that hold
    them, and rank r uses copy ``r % copies``; in engines that run attention with tensor parallelism ``tp`` above 1,
    copy ``(r % tp + r // tp + expert) % copies``. Every GPU of the group is a source of equally many tokens.
    """
    copies, number_of_slot, number = _by_number(assignment, tp)
    shares = np.empty(copies.shape)
    for count in np.unique(copies).tolist():
        users = np.bincount(number % count, minlength=count) / assignment.gpus
        shares = np.where(copies == count, users[np.minimum(number_of_slot, count - 1)], shares)
    return shares


def _by_number(assignment: Assignment, tp: int) -> tuple[Ints, Ints, Ints]:
    """Copies of a slot's expert, and a number below that, ``[layers, slots]``; of each rank a number, ``[gpus]``.

    A rank uses the slot where its number, modulo the copies, is the slot's.
    """
    expert = _slot_experts(assignment)
    copies = np.take_along_axis(assignment.copies, expert, axis=1)
    order = np.argsort(expert, axis=1, kind="stable")  # slots come in the order of their ranks
    turn = np.empty_like(expert)
    np.put_along_axis(turn, order, _turns(_starts(np.take_along_axis(expert, order, axis=1))), axis=1)
    ranks = np.arange(assignment.gpus)
    number, shift = (ranks, 0) if tp == 1 else (ranks % tp + ranks // tp, expert)
    return copies, (turn - shift) % copies, number


def _by_distance(assignment: Assignment, nodes: Ints | None) -> Ints:
    """Return how source ranks choose copies by distance, ``[4, layers, slots]``.

    As SGLang 0.5.23's ``static``: each rank uses one copy of an expert for all its tokens: the one on its own GPU;
    else the first on its own node, where some other node has one too; else the copies in turn (the ones left over go
    to the first copies; SGLang draws them, seeded). Every GPU of the group is a source of equally many tokens.

    Returned are whether a slot is the copy for the rank of its own GPU; the ranks of its node that have none and use
    it for that (-1: it is not the first on the node, or no other node has one); the ranks far from every copy of its
    expert; and how many of those use the slot.
    """
    gpus, slot_gpu, experts = assignment.gpus, assignment.slot_gpu.astype(np.int64), _slot_experts(assignment)
    where = np.arange(gpus) if nodes is None else numbered(nodes)
    node_gpus = np.bincount(where)
    slot_node = where[slot_gpu].astype(np.int64)
    # The slots of a layer by expert, then node, then place.
    order = np.argsort(experts * len(node_gpus) + slot_node, axis=1, kind="stable")
    expert = np.take_along_axis(experts, order, axis=1)
    copies = np.take_along_axis(assignment.copies, expert, axis=1)
    new_expert = _starts(expert)
    new_node = new_expert | _starts(slot_node[order])
    local = (new_node | _starts(slot_gpu[order])).astype(np.int64)
    several = (
        _run_sums(new_expert, new_node.astype(np.int64)) > 1
    )  # a node that has all the copies prefers none
    neighbours = node_gpus[slot_node[order]] - _run_sums(new_node, local)
    neighbours = np.where(new_node & several, neighbours, -1)
    far = gpus - _run_sums(new_expert, local + np.maximum(neighbours, 0))
    drawn = far // copies + (_turns(new_expert) < far % copies)
    table = np.empty((4, *order.shape), dtype=np.int64)
    np.put_along_axis(table, order[None], np.stack([local, neighbours, far, drawn]), axis=2)
    return table


def _turns(starts: Flags) -> Ints:
    """Count 0, 1, .. in each run; ``starts`` is true where one begins."""
    place = np.arange(starts.shape[1])
    return place - np.maximum.accumulate(np.where(starts, place, 0), axis=1)


def _starts(values: Ints) -> Flags:
    starts = np.ones(values.shape, dtype=bool)
    starts[:, 1:] = values[:, 1:] != values[:, :-1]
    return starts


def _run_sums(starts: Flags, values: Ints) -> Ints:
    """Sum over the run that each entry belongs to; ``starts`` is true where one begins, as at the start of a row."""
    flat, begin = values.reshape(-1), np.flatnonzero(starts.reshape(-1))
    lengths = np.diff(np.append(begin, flat.size))
    return np.repeat(np.add.reduceat(flat, begin), lengths).reshape(values.shape)


def _slot_experts(assignment: Assignment) -> Ints:
    return assignment.slot_expert.astype(np.int64)
