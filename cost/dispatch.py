"""The dispatch policy: how an engine splits an expert's tokens over its copies, and what that asks of each GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment, sum_by_gpu
from cost.loads import ExpertLoads
from cost.token_hits import TokenHits
from topology.base.errors import InputError

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
        f"`split` {split}: expected {', '.join(DISPATCH_POLICIES[:-1])} or {DISPATCH_POLICIES[-1]}."
    )


def rank_tp(split: DispatchPolicy) -> int | None:
    """Return the tensor parallelism of attention for which ranks choose copies by number; None: they do not."""
    return int(split.removeprefix("rank").removeprefix("-tp") or 1) if split.startswith("rank") else None


def hangs_on_places(split: DispatchPolicy) -> bool:
    """Whether what a copy takes depends on the GPUs that the copies lie on, whatever the loads."""
    return split not in ("even", "lp")


def slot_shares(
    assignment: Assignment,
    split: DispatchPolicy,
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
    if require_policy(split) == "even":
        return np.take_along_axis(1.0 / np.maximum(assignment.copies, 1), _slot_experts(assignment), axis=1)
    if split == "source":
        return source_shares(assignment, nodes)
    tp = rank_tp(split)
    if tp is not None:
        return rank_shares(assignment, tp)
    if load is None:
        raise InputError("`split` lp: the best split depends on the loads; give them.")

    return lp_shares(assignment, load, speed)[0]


def source_shares(assignment: Assignment, nodes: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Return the shares where each source rank uses one copy of an expert for all its tokens, ``[layers, slots]``.

    As SGLang 0.5.23's ``static``: the copy on the rank's own GPU; else the first one on its own node, where some
    other node has one too; else the copies in turn (the ones left over go to the first copies; SGLang draws them,
    seeded). Every GPU of the group is a source of equally many tokens.
    """
    gpus = assignment.gpus
    where = np.arange(gpus) if nodes is None else np.unique(nodes, return_inverse=True)[1].reshape(-1)
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


def rank_shares(assignment: Assignment, tp: int = 1) -> NDArray[np.float64]:
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


def rank_choices(assignment: Assignment, layer: int, tp: int = 1) -> NDArray[np.float64]:
    """Return whether a source rank uses a slot in one layer, ``[gpus, slots]``: 1 or 0.

    The mean over ranks is :func:`rank_shares`.
    """
    one = Assignment(
        assignment.slot_expert[layer : layer + 1], assignment.slot_gpu, assignment.experts, assignment.gpus
    )
    copies, wanted, number = _by_number(one, tp)
    used: NDArray[np.float64] = (number[:, None] % copies == wanted).astype(np.float64)
    return used


def _by_number(
    assignment: Assignment, tp: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
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


def source_choices(
    assignment: Assignment, layer: int, nodes: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Return the copy that each source rank uses in one layer, ``[gpus, slots]``: 1, or a chance where it is drawn.

    The mean over ranks is :func:`source_shares`. A rank far from every copy of an expert uses each copy with the
    chance that its turn comes: which of the far ranks gets which copy is drawn by the engine.
    """
    gpus, slot_gpu = assignment.gpus, assignment.slot_gpu.astype(np.int64)
    where = np.arange(gpus) if nodes is None else np.unique(nodes, return_inverse=True)[1].reshape(-1)
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
    chosen: NDArray[np.float64] = np.where(preferred >= 0, preferred == np.arange(order.size), drawn)
    return chosen


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


def _slot_experts(assignment: Assignment) -> NDArray[np.int64]:
    return assignment.slot_expert.astype(np.int64)


_UNITS = 1 << 30
"""Whole units that a layer's load is cut into: the flow is one of integers below 2 ** 31."""
_EQUAL = 1e-12


def lp_shares(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the best split of ``load`` ``[layers, experts]`` over the copies, and what no split is below.

    The LP ``min z: sum over copies of f = load, sum on a GPU of f <= z * speed`` has, by max-flow min-cut, the value
    ``max over sets S of GPUs: load of the experts with all copies in S / speed of S``. Newton's method on z finds it:
    the min cut of the flow that z admits is a set S with a larger ratio, until all load flows.

    Returns
    -------
    shares:
        Fraction of its expert's load that each slot takes, ``[layers, slots]``. The largest load over speed is
        within a few parts in 10^7 of the bound: flows are whole numbers.
    level:
        The bound, exact but for rounding, ``[layers]``: in units of ``load`` over ``speed``.
    """
    shares = np.empty((assignment.layers, assignment.slots))
    level = np.empty(assignment.layers)
    for layer, graph in enumerate(_graphs(assignment, load, speed)):
        level[layer] = graph.best_level()
        shares[layer] = graph.shares()
    return shares, level


def lp_level(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the largest load over speed under the best split, ``[layers]``."""
    if assignment.gpus <= _FEW_GPUS:
        return _level_by_sets(assignment, load, speed)
    return np.array([graph.best_level() for graph in _graphs(assignment, load, speed)])


_FEW_GPUS = 8
"""Up to so many the load that stays in each set of GPUs is summed: 256 sets cost less than a flow."""
_SET_CELLS = 1 << 22


def _level_by_sets(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return the maximum over sets of GPUs of the load that cannot leave them over their speed, ``[layers]``."""
    gpus, sets = assignment.gpus, 1 << assignment.gpus
    pace = np.zeros(sets)
    for gpu, each in enumerate(np.ones(gpus) if speed is None else speed):
        pace[1 << gpu : 2 << gpu] = pace[: 1 << gpu] + each
    level = np.empty(assignment.layers)
    size = max(1, _SET_CELLS // sets)
    for start in range(0, assignment.layers, size):
        rows = np.arange(len(assignment.slot_expert[start : start + size]))
        holders = np.zeros((rows.size, assignment.experts), dtype=np.int64)  # a bit for each GPU
        for slot, gpu in enumerate(assignment.slot_gpu.tolist()):
            holders[rows, assignment.slot_expert[start + rows, slot]] |= 1 << gpu
        stays = np.bincount(
            (rows[:, None] * sets + holders).ravel(), load[start + rows].ravel(), minlength=rows.size * sets
        ).reshape(rows.size, sets)
        for gpu in range(gpus):  # what stays in a set stays in a larger one
            pairs = stays.reshape(rows.size, -1, 2, 1 << gpu)
            pairs[:, :, 1] += pairs[:, :, 0]
        level[start + rows] = (stays[:, 1:] / pace[1:]).max(axis=1)
    return level


def _graphs(
    assignment: Assignment, load: NDArray[np.float64], speed: NDArray[np.float64] | None
) -> Iterator[_Graph]:
    pace = np.ones(assignment.gpus) if speed is None else speed
    for slot_expert, row in zip(assignment.slot_expert, load, strict=True):
        yield _Graph(slot_expert, assignment.slot_gpu, row, pace)


class _Graph:
    """The flow network of one layer: source, experts with a load, GPUs, sink; an edge for each copy."""

    def __init__(
        self,
        slot_expert: NDArray[np.int32],
        slot_gpu: NDArray[np.int32],
        load: NDArray[np.float64],
        speed: NDArray[np.float64],
    ) -> None:
        self.load, self.speed = load / load.max(), speed
        self.scale, self.unit = float(load.max()), _UNITS / float(self.load.sum())
        self.supply = np.floor(self.load * self.unit).astype(np.int32)
        experts, gpus = load.size, speed.size
        pair = slot_expert.astype(np.int64) * gpus + slot_gpu
        edges, first, self.edge_of_slot = np.unique(pair, return_index=True, return_inverse=True)
        self.expert, self.gpu = edges // gpus, edges % gpus
        self.first = np.zeros(slot_expert.size, dtype=bool)
        self.first[first] = True  # a second copy on the same GPU takes nothing
        self.slot_expert = slot_expert
        self.nodes = experts + gpus + 2
        copies = np.bincount(self.expert, minlength=experts)
        ends = np.arange(1, gpus + 1) + experts + edges.size
        self.indptr = np.concatenate(([0, experts], experts + np.cumsum(copies), ends, ends[-1:]))
        self.indices = np.concatenate(
            (np.arange(1, experts + 1), 1 + experts + self.gpu, np.full(gpus, self.nodes - 1))
        )
        self.flow: Any = None

    def best_level(self) -> float:
        """Raise the level from below until all load flows; return it in units of load over speed."""
        held = np.bincount(self.gpu, minlength=self.speed.size) > 0
        level = float(self.load.sum() / self.speed[held].sum())
        while True:
            experts, gpus = self._cut(level)
            if gpus.size == 0:
                break
            denser = float(self.load[experts].sum() / self.speed[gpus].sum())
            if denser <= level * (1 + _EQUAL):
                break
            level = denser
        return level * self.scale

    def _cut(self, level: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Send what fits below ``level``; return the experts that have load left, with their GPUs, all full."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        experts, sink = self.load.size, self.nodes - 1
        room = np.ceil(level * self.speed * self.unit)
        data = np.concatenate((self.supply, self.supply[self.expert], np.minimum(room, _UNITS)))
        network = csr_array(
            (data.astype(np.int32), self.indices, self.indptr), shape=(self.nodes, self.nodes)
        )
        result = maximum_flow(network, 0, sink)
        self.flow = result.flow
        if result.flow_value == self.supply.sum(dtype=np.int64):
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        left = network - result.flow
        left.eliminate_zeros()
        reached = breadth_first_order(left, 0, return_predecessors=False)
        return (
            reached[(reached > 0) & (reached <= experts)] - 1,
            reached[(reached > experts) & (reached < sink)] - 1 - experts,
        )

    def shares(self) -> NDArray[np.float64]:
        """Turn the last flow into shares of the slots; an expert without load splits evenly."""
        experts = self.load.size
        rows = self.flow[1 : experts + 1].tocoo()  # the solver's matrix holds each edge in both directions
        ahead = rows.col > experts
        flow = np.zeros((experts, self.speed.size))
        flow[rows.row[ahead], rows.col[ahead] - experts - 1] = rows.data[ahead]
        sent = flow.sum(axis=1)[self.expert]
        even = 1.0 / np.bincount(self.expert, minlength=experts)[self.expert]
        part = np.where(sent > 0, flow[self.expert, self.gpu] / np.maximum(sent, 1.0), even)
        share: NDArray[np.float64] = np.where(self.first, part[self.edge_of_slot], 0.0)
        return share


@dataclass(frozen=True, eq=False)
class ExpertUse:
    """What some layers' experts ask of each GPU of their EP group, by scenario.

    Attributes
    ----------
    share:
        Fraction of a layer's token-expert pairs that a GPU receives, ``[scenarios, layers, gpus]``.
    slot_share:
        The same for each slot, ``[scenarios, layers, slots]``.
    slot_gpu:
        GPU of each slot, ``[slots]``.
    experts, top_k:
        Logical experts, and how many of them a token uses.
    repeats:
        How many equal layers each row stands for.
    hits:
        What the tokens of routing traces reach (:func:`cost.routed_use.token_hits`); None: experts are taken to be
        chosen independently of each other.
    """

    share: NDArray[np.float64]
    slot_share: NDArray[np.float64]
    slot_gpu: NDArray[np.int32]
    experts: int
    top_k: int
    repeats: int = 1
    hits: TokenHits | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.share.shape[2])

    def touched_slots(self, tokens: float) -> NDArray[np.float64]:
        """Expected slots of each GPU that some of ``tokens`` tokens use, ``[scenarios, layers, gpus]``.

        A token uses a slot with probability ``top_k * slot_share``, so a slot is read with probability
        ``1 - (1 - p) ** tokens``: nearly all of them at large batch, few at small.
        """
        touched = -np.expm1(tokens * self._log_missed)
        return sum_by_gpu(touched, self.slot_gpu, self.gpus)

    @cached_property
    def _log_missed(self) -> NDArray[np.float64]:
        """Log of the chance that a token misses a slot, ``[scenarios, layers, slots]``, the same at every batch."""
        chance = np.clip(self.top_k * self.slot_share, 0.0, 1.0)
        found: NDArray[np.float64] = np.log1p(-np.minimum(chance, 1 - 1e-15))
        return found

    def token_share(self) -> NDArray[np.float64]:
        """Fraction of the tokens that a GPU receives, one copy a GPU, ``[scenarios, layers, gpus]``.

        A GPU with share ``s`` of the pairs stands for ``m = s * experts`` equally likely experts, and a token
        misses it with probability ``C(experts - m, top_k) / C(experts, top_k)``: exact for equal loads.
        A part of an expert draws no more tokens than it has pairs.
        """
        held = self.share * self.experts
        missed = np.ones_like(held)
        for draw in range(self.top_k):
            missed *= np.clip((self.experts - held - draw) / (self.experts - draw), 0.0, 1.0)
        return np.minimum(1.0 - missed, self.top_k * self.share)


def expert_use(
    assignment: Assignment,
    loads: ExpertLoads,
    top_k: int,
    *,
    split: DispatchPolicy = "even",
    nodes: NDArray[np.int64] | None = None,
    speed: NDArray[np.float64] | None = None,
) -> ExpertUse:
    """Return the use of ``assignment`` under ``loads``, an expert's tokens split over its copies as the engine does.

    ``split``, ``nodes`` and ``speed``: as for :func:`cost.dispatch.slot_shares`; an LP splits each scenario anew.

    Raises
    ------
    InputError
        If the loads are of other layers or experts than the assignment, or the split is not known.
    """
    tokens = loads.tokens
    if tokens.shape[1:] != (assignment.layers, assignment.experts):
        raise InputError(
            f"loads of {tokens.shape[1]} layers x {tokens.shape[2]} experts do not fit an assignment of "
            f"{assignment.layers} layers x {assignment.experts} experts."
        )
    fraction = loads.normalised / tokens.shape[2]
    shares = [
        None
        if split == "even"  # divided by the copies, not multiplied: the same bits as ever
        else slot_shares(assignment, split, load=scenario, nodes=nodes, speed=speed)
        for scenario in fraction
    ]
    slot_share = np.stack([assignment.slot_load(*each) for each in zip(fraction, shares, strict=True)])
    share = sum_by_gpu(slot_share, assignment.slot_gpu, assignment.gpus)
    return ExpertUse(share, slot_share, assignment.slot_gpu, assignment.experts, top_k)


def balanced_use(
    layers: int,
    slots_per_gpu: NDArray[np.int64],
    experts: int,
    top_k: int,
    speed: NDArray[np.float64] | None = None,
) -> ExpertUse:
    """Return the use of an ideal placement: every GPU with slots receives the same, its slots all alike.

    With ``speed`` ``[gpus]`` it receives in proportion to that, so that all take equally long.

    No placement receives less on its busiest GPU. (At a few tokens a step skew may still help a little: fewer
    experts are read.)
    """
    gpus = len(slots_per_gpu)
    slot_gpu = np.repeat(np.arange(gpus, dtype=np.int32), slots_per_gpu)
    weight = np.where(slots_per_gpu > 0, 1.0 if speed is None else speed, 0.0)
    share = weight / weight.sum()
    per_slot = share / np.maximum(slots_per_gpu, 1)
    shape = (1, 1)
    return ExpertUse(
        np.broadcast_to(share, (*shape, gpus)),
        np.broadcast_to(per_slot[slot_gpu], (*shape, len(slot_gpu))),
        slot_gpu,
        experts,
        top_k,
        repeats=layers,
    )
