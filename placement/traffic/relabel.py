"""New names for the GPUs of each layer so that fewer tokens change GPU: what sits together stays together.

Whole domains change places, then nodes inside a domain, then GPUs inside a node, and only where they are equal. Loads
of GPUs, nodes and domains, and how many of them a token reaches in a layer, stay what they were: the gain is free. As
all names may change at once without a cost, those of a layer against the one before are a choice of each hop alone: a
nest of assignment problems, solved exactly.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from cost.traces.transitions import Transitions
from placement.arrays import Floats, Index, Ints
from placement.traffic.tiers import Tiers
from topology.errors import InputError
from topology.units import plural

_ALL_ORDERS = 4
"""GPUs of a node whose orders are all tried at once; of more, assignment problems are solved one by one."""


def gpu_flows(
    transitions: Transitions, expert: NDArray[np.integer], slot_gpu: NDArray[np.integer], gpus: int
) -> Floats:
    """Return tokens from GPU to GPU of consecutive layers; copies of an expert share its tokens evenly.

    Parameters
    ----------
    expert:
        ``[layers, slots]`` expert in each slot; -1 for an empty one.
    slot_gpu:
        ``[slots]`` GPU of each slot.

    Returns
    -------
    Floats
        ``[hops, gpus, gpus]``.

    Raises
    ------
    InputError
        If layers or experts are not those of the transitions, or an expert has no slot.
    """
    if expert.shape != (transitions.layers, slot_gpu.size):
        raise InputError(
            f"a placement {list(expert.shape)}; the transitions are of {transitions.layers} layers, and there are "
            f"{plural(slot_gpu.size, 'slot')}."
        )
    if expert.min() < -1 or expert.max() >= transitions.experts:
        raise InputError(
            f"a placement of experts {expert.min()}..{expert.max()}; there are {transitions.experts}."
        )
    shares = np.zeros((transitions.layers, transitions.experts, gpus))
    rows, slots = np.nonzero(expert >= 0)
    np.add.at(shares, (rows, expert[rows, slots], slot_gpu[slots]), 1.0)
    copies = shares.sum(axis=2, keepdims=True)
    if not copies.all():
        layer, missing = (int(n) for n in np.argwhere(copies[..., 0] == 0)[0])
        raise InputError(f"expert {missing} has no slot in layer {layer} (from 0).")
    shares /= copies
    flows: Floats = shares[:-1].transpose(0, 2, 1) @ transitions.weights @ shares[1:]
    return flows


def flow_cost(flows: Floats, tiers: Tiers, names: Ints | None = None) -> float:
    """Return the price of all flows ``[hops, gpus, gpus]``, with GPUs called as ``names`` ``[layers, gpus]`` says."""
    if names is None:
        return float((flows * tiers.price).sum())
    return sum(
        float((hop * tiers.price[np.ix_(a, b)]).sum())
        for hop, a, b in zip(flows, names[:-1], names[1:], strict=True)
    )


def relabel(flows: Floats, tiers: Tiers, kinds: ArrayLike | None = None) -> Ints:
    """Return the names of GPUs in each layer by which the flows cost least.

    Parameters
    ----------
    flows:
        ``[hops, gpus, gpus]`` tokens from GPU to GPU, as :func:`gpu_flows` gives them.
    tiers:
        Groups of GPUs and prices. Groups are kept whole, and change places with equal ones alone.
    kinds:
        ``[gpus]`` what must be equal for GPUs to change places (slots, speed); None: all are equal.

    Returns
    -------
    Ints
        ``names`` ``[layers, gpus]``: what sat on GPU ``g`` in a layer goes to GPU ``names[layer, g]``. The first
        layer keeps its names, and so does each layer for which that is as good.

    Raises
    ------
    InputError
        If arrays are not of these GPUs.

    Notes
    -----
    The least possible over all such names, not an estimate.
    """
    gpus = tiers.gpus
    if flows.ndim != 3 or flows.shape[1:] != (gpus, gpus):
        raise InputError(f"flows have shape {list(flows.shape)}; expected [hops, {gpus}, {gpus}].")
    kind = (
        np.zeros(gpus, dtype=np.int64)
        if kinds is None
        else np.unique(np.asarray(kinds), return_inverse=True)[1]
    )
    if kind.shape != (gpus,):
        raise InputError(f"kinds of {kind.size} GPUs; there are {gpus}.")
    tree = _tree(tiers, kind)
    names = np.tile(np.arange(gpus), (len(flows) + 1, 1))
    for hop, flow in enumerate(flows):
        step = np.arange(gpus)
        value = _Match(flow, tiers.steps).best(tree, tree, step)
        # sums in another order differ in the last digits: a change of names must gain more than that
        if value <= _kept(flow, tiers) * (1 + 1e-12):
            step = np.arange(gpus)
        names[hop + 1] = names[hop][step]
    return names


def _kept(flow: Floats, tiers: Tiers) -> float:
    """What is saved by staying in groups, were every token to leave all of them."""
    return float((flow * (tiers.prices[-1] - tiers.price)).sum())


class _Group:
    """A group of GPUs and the groups in it; ``shape`` is equal for groups that may change places."""

    def __init__(self, tier: int, gpus: Index, parts: list[_Group], shape: tuple[object, ...]) -> None:
        self.tier, self.gpus, self.parts, self.shape = tier, gpus, parts, shape


def _tree(tiers: Tiers, kind: NDArray[np.integer]) -> _Group:
    level = [_Group(0, np.array([g]), [], (int(kind[g]),)) for g in range(tiers.gpus)]
    for tier, groups in enumerate(tiers.groups[1:], start=1):
        level = [
            _joined(tier, [part for part in level if groups[part.gpus[0]] == group])
            for group in range(int(groups.max()) + 1)
        ]
    return _joined(len(tiers.groups), level)


def _joined(tier: int, parts: list[_Group]) -> _Group:
    shape = tuple(sorted((part.shape for part in parts), key=repr))
    return _Group(tier, np.concatenate([part.gpus for part in parts]), parts, shape)


class _Match:
    """The best names of one hop, group by group."""

    def __init__(self, flow: Floats, steps: Floats) -> None:
        self.flow, self.steps = flow, steps

    def best(self, here: _Group, there: _Group, names: Ints) -> float:
        """Name the GPUs of ``there`` after those of ``here`` in ``names``; return what it saves."""
        saved = 0.0
        if here.tier < len(self.steps):
            saved = float(self.steps[here.tier] * self.flow[np.ix_(here.gpus, there.gpus)].sum())
        if not here.parts:
            names[there.gpus[0]] = here.gpus[0]
            return saved
        limit = self._limits(here, there)
        exact = np.zeros(limit.shape, dtype=bool)
        inner: dict[tuple[int, int], Ints] = {}
        while True:
            rows, columns = linear_sum_assignment(limit, maximize=True)
            open_pairs = [
                (i, j) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if not exact[i, j]
            ]
            if not open_pairs:
                break
            for i, j in open_pairs:
                inner[i, j] = names.copy()
                limit[i, j] = self.best(here.parts[i], there.parts[j], inner[i, j])
                exact[i, j] = True
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
            inside = there.parts[j].gpus
            names[inside] = inner[i, j][inside]
        return saved + float(limit[rows, columns].sum())

    def _limits(self, here: _Group, there: _Group) -> Floats:
        """Return what two parts could save at most, ``[parts, parts]``; -inf where they are not equal."""
        tier = here.parts[0].tier
        order, other = ([part.gpus for part in group.parts] for group in (here, there))
        first, second = (np.cumsum([0, *map(len, parts)])[:-1] for parts in (order, other))
        block = self.flow[np.ix_(np.concatenate(order), np.concatenate(other))]
        between = np.add.reduceat(np.add.reduceat(block, first, axis=0), second, axis=1)
        limits: Floats = between * float(self.steps[: tier + 1].sum())
        size = len(order[0])
        if tier == 1 and all(len(gpus) == size for gpus in (*order, *other)):
            limits = between * float(self.steps[1]) + float(self.steps[0]) * _paired(
                block.reshape(len(order), size, len(other), size)
            )
        equal = np.array([[a.shape == b.shape for b in there.parts] for a in here.parts])
        return np.where(equal, limits, -np.inf)


def _paired(blocks: Floats) -> Floats:
    """Return what one-to-one pairs keep at most of ``[parts, size, parts, size]``; exactly that of few GPUs."""
    size = blocks.shape[1]
    if size <= _ALL_ORDERS:
        every = np.arange(size)
        orders = [blocks[:, every, :, list(order)].sum(axis=0) for order in permutations(range(size))]
        found: Floats = np.max(orders, axis=0)
        return found
    limits: Floats = np.minimum(blocks.max(axis=3).sum(axis=1), blocks.max(axis=1).sum(axis=2))
    return limits
