"""How an engine splits an expert's tokens over its copies: evenly, by source rank, or as an LP says."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from topology.errors import InputError

Split = Literal["even", "source", "lp"]

SPLITS: tuple[Split, ...] = get_args(Split)
"""``even``: TensorRT-LLM, vLLM, SGLang ``dynamic``. ``source``: SGLang ``static``, vllm-ascend. ``lp``: SGLang's
``lp``, DeepSeek's LPLB."""


def require_split(split: str) -> Split:
    """Return ``split`` if it is known.

    Raises
    ------
    InputError
        If it is not.
    """
    for known in SPLITS:
        if split == known:
            return known
    raise InputError(f"--split {split}: expected {', '.join(SPLITS[:-1])} or {SPLITS[-1]}.")


def slot_shares(
    assignment: Assignment,
    split: Split,
    *,
    load: NDArray[np.float64] | None = None,
    nodes: NDArray[np.int64] | None = None,
    speed: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the fraction of its expert's load that each slot takes, ``[layers, slots]``; 1 over the copies.

    Parameters
    ----------
    load:
        ``[layers, experts]``: what an LP split looks at; the other splits do not.
    nodes:
        Node of each GPU, ``[gpus]``, for a split by source; None: each GPU is a node of its own.
    speed:
        Relative speed of each GPU, ``[gpus]``, for an LP split; None: all alike.

    Raises
    ------
    InputError
        If the split is not known, or is ``lp`` and there is no load.
    """
    if require_split(split) == "even":
        return np.take_along_axis(1.0 / np.maximum(assignment.copies, 1), _experts(assignment), axis=1)
    if split == "source":
        return source_shares(assignment, nodes)
    if load is None:
        raise InputError("--split lp: the best split depends on the loads; give them.")
    from cost.split_lp import lp_shares

    return lp_shares(assignment, load, speed)[0]


def source_shares(
    assignment: Assignment, nodes: NDArray[np.int64] | None = None, *, nearest: bool = True
) -> NDArray[np.float64]:
    """Return the shares where each source rank uses one copy of an expert for all its tokens, ``[layers, slots]``.

    Every GPU of the group is a source of equally many tokens.

    Parameters
    ----------
    nearest:
        As SGLang 0.5.23's ``static``: the copy on the rank's own GPU; else the first one on its own node, where some
        other node has one too; else the copies in turn (the ones left over go to the first copies; SGLang draws
        them, seeded). False, as vllm-ascend: rank r uses copy ``r % copies``.
    """
    gpus = assignment.gpus
    where = np.arange(gpus) if nodes is None else np.unique(nodes, return_inverse=True)[1].reshape(-1)
    node_gpus = np.bincount(where)
    layers, slots = assignment.slot_expert.shape
    slot_node = where[assignment.slot_gpu].astype(np.int64)
    slot_gpu = assignment.slot_gpu.astype(np.int64)
    experts = _experts(assignment)
    # The slots of a layer by expert, then node, then place.
    order = np.argsort(experts * len(node_gpus) + slot_node, axis=1, kind="stable")
    expert = np.take_along_axis(experts, order, axis=1)
    copies = np.take_along_axis(assignment.copies, expert, axis=1)
    new_expert = _starts(expert)
    turn = np.arange(slots) - np.maximum.accumulate(np.where(new_expert, np.arange(slots), 0), axis=1)
    if nearest:
        new_node = new_expert | _starts(slot_node[order])
        own = new_node | _starts(slot_gpu[order])
        local, far = _by_distance(new_expert, new_node, own, node_gpus[slot_node[order]], gpus)
    else:
        local, far = np.zeros((layers, slots), dtype=np.int64), np.full((layers, slots), gpus)
    ranks = local + far // copies + (turn < far % copies)
    shares = np.empty((layers, slots))
    np.put_along_axis(shares, order, ranks / gpus, axis=1)
    return shares


def _by_distance(
    new_expert: NDArray[np.bool_],
    new_node: NDArray[np.bool_],
    own: NDArray[np.bool_],
    node_gpus: NDArray[np.int64],
    gpus: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ranks that use a slot as the nearest copy, and ranks far from every copy of its expert, ``[layers, slots]``.

    Slots are sorted by expert and node; the flags say where a run of an expert, a node and a GPU begins.
    """
    nodes_of_expert = _run_sums(new_expert, new_node.astype(np.int64))
    near = np.where(nodes_of_expert > 1, node_gpus, 0)  # a node that has all the copies prefers none
    holders = _run_sums(new_node, own.astype(np.int64))
    local = own.astype(np.int64) + np.where(new_node & (near > 0), near - holders, 0)
    served = np.where(near > 0, new_node * near, own)
    return local, gpus - _run_sums(new_expert, served)


def _starts(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    first = np.ones(values.shape, dtype=bool)
    first[:, 1:] = values[:, 1:] != values[:, :-1]
    return first


def _run_sums(first: NDArray[np.bool_], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum over the run that each entry belongs to; ``first`` is true where one begins, as at the start of a row."""
    flat, start = values.reshape(-1), np.flatnonzero(first.reshape(-1))
    lengths = np.diff(np.append(start, flat.size))
    return np.repeat(np.add.reduceat(flat, start), lengths).reshape(values.shape)


def _experts(assignment: Assignment) -> NDArray[np.int64]:
    return assignment.slot_expert.astype(np.int64)
