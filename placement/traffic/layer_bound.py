"""What no placement of layers costs less than: relaxations of the partition of all layers' experts over GPUs.

Groups of GPUs in groups cost in steps, and each step is a partition of its own: its bounds add up. Of one partition
into groups with equal slots three bounds are known here, and the largest counts:

* *pairs*: an expert keeps at most as many partners of the next layer as a group has slots: a flow for each hop, exact
  in whole numbers;
* *doubly non-negative*: with ``Z[u, v] = 1`` where experts ``u`` and ``v`` share a group, ``Z`` is positive
  semidefinite, its rows sum to a group's slots over each layer, and no entry is below 0. The dual of that relaxation
  is a bound for any multipliers (a sum of eigenvalues): it can stop anywhere, and runs of layers add up;
* *eigenvalues* (Donath and Hoffman, with the layers' balance projected out) is its first step, with no multipliers.

References
----------
Donath and Hoffman, IBM J. Res. Dev. 17 (1973). Oliveira, Wolkowicz and Xu, ADMM for the SDP relaxation of the QAP,
Math. Prog. Comp. 10 (2018).
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.traffic.min_cost_flow import Arcs, least_cost_flow
from placement.traffic.tiers import Tiers

MOST_NODES = 800
"""Experts of a run of layers whose relaxation is solved: an iteration takes a tenth of a second."""
_UNITS = 10**9
"""Weights of flows in whole numbers, of the largest."""
_PENALTY, _STEP = 0.15, 0.9
"""Of the augmented Lagrangian, in mean weights of an expert; found on random and published transitions."""
_CHECK = 20


def crossing_bound(weights: Floats, slots: Ints, tiers: Tiers, seconds: float) -> float:
    """Return a lower bound of the price of all transitions.

    Parameters
    ----------
    weights:
        ``[hops, experts, experts]``.
    slots:
        ``[gpus]`` experts of a layer on each GPU.
    seconds:
        Work for the relaxations, in seconds of a core of 2026 as estimated from the sizes.
    """
    found = 0.0
    whole = bool((weights == np.rint(weights)).all()) and float(weights.sum()) < 2**52
    priced = [(float(step), group) for step, group in zip(tiers.steps, tiers.groups, strict=True) if step > 0]
    for step, group in priced:
        sizes = np.bincount(group, weights=slots).astype(np.int64)
        sizes = sizes[sizes > 0]
        if sizes.size < 2:
            continue
        bound = partition_bound(weights, sizes, seconds / len(priced))
        if whole:
            bound = float(np.ceil(bound - 1e-6 * max(1.0, bound * 1e-6)))
        found += step * max(0.0, bound)
    return found


def partition_bound(weights: Floats, sizes: Ints, seconds: float) -> float:
    """Return a lower bound of the weight between groups that hold ``sizes`` experts of each layer."""
    largest = int(sizes.max())
    pairs = np.array([float(hop.sum()) - _pairs_kept(hop, largest) for hop in weights])
    bound = float(pairs.sum())
    if sizes.min() != largest or seconds <= 0:
        return bound
    experts = weights.shape[1]
    layers = max(2, MOST_NODES // experts)
    if 2 * experts > MOST_NODES:
        return bound
    runs = [(first, min(first + layers - 1, len(weights))) for first in range(0, len(weights), layers - 1)]
    # each run takes the better of its bounds: their sum holds for all
    total = 0.0
    for first, last in runs:
        alone = float(pairs[first:last].sum())
        nodes = (last - first + 1) * experts
        rounds = int(seconds / len(runs) / (5e-4 + nodes**3 * 2.2e-10))
        total += max(alone, _relaxed(weights[first:last], int(sizes.size), min(rounds, 1000), alone))
    return max(bound, total)


def _pairs_kept(hop: Floats, most: int) -> float:
    """Return the most weight that pairs keep if no expert has more than ``most`` partners."""
    rows, columns = np.nonzero(hop)
    if rows.size == 0:
        return 0.0
    experts = len(hop)
    values = hop[rows, columns]
    exact = bool((values == np.rint(values)).all()) and float(values.max()) < 2**40
    scale = 1.0 if exact else _UNITS / float(values.max())
    # rounded up: what is kept is not less
    costs = -np.ceil(values * scale).astype(np.int64)
    source, sink = 2 * experts, 2 * experts + 1
    every = np.arange(experts)
    supply = np.zeros(sink + 1, dtype=np.int64)
    supply[source], supply[sink] = experts * most, -experts * most
    total, _ = least_cost_flow(
        [
            Arcs(rows, columns + experts, 1, costs),
            Arcs(source, every, most, 0),
            Arcs(every + experts, sink, most, 0),
            Arcs(source, sink, experts * most, 0),
        ],
        supply,
    )
    return -total / scale


def _relaxed(weights: Floats, groups: int, rounds: int, enough: float) -> float:
    """Return the best bound of the doubly non-negative relaxation in so many rounds."""
    hops, experts, _ = weights.shape
    layers = hops + 1
    nodes = layers * experts
    total = float(weights.sum())
    if total <= 0 or rounds < 1:
        return 0.0
    gain = np.zeros((nodes, nodes))
    for hop, block in enumerate(weights):
        here = slice(hop * experts, (hop + 1) * experts)
        after = slice((hop + 1) * experts, (hop + 2) * experts)
        gain[here, after], gain[after, here] = block / 2, block.T / 2
    unit = total / nodes
    gain /= unit
    even, size = 1.0 / groups, nodes / groups
    dual = gain.copy()
    shared = np.full((nodes, nodes), even)
    np.fill_diagonal(shared, 1.0)
    best: float = -np.inf
    for turn in range(rounds):
        values, vectors = np.linalg.eigh(_centred(shared - even + dual / _PENALTY, layers))
        kept = _capped(values, size, nodes - size)
        used = kept > 0
        positive = (vectors[:, used] * kept[used]) @ vectors[:, used].T + even
        dual += _STEP * _PENALTY * (shared - positive)
        shared = np.clip(positive + (gain - dual) / _PENALTY, 0.0, 1.0)
        np.fill_diagonal(shared, 1.0)
        dual += _STEP * _PENALTY * (shared - positive)
        if turn % _CHECK == _CHECK - 1 or turn == rounds - 1:
            bound = float(total - unit * _most_kept(gain, dual, layers, groups))
            if bound <= best + 1e-5 * total and best > enough:
                return float(max(best, bound))
            best = max(best, bound)
    return float(best)


def _most_kept(gain: Floats, dual: Floats, layers: int, groups: int) -> float:
    """Return what no partition keeps more than, whatever symmetric ``dual`` is.

    ``<gain, Z> = <gain - dual, Z> + <dual, Z>``: in the first, entries are 1 on the diagonal and 0 to 1 elsewhere;
    in the second ``Z`` is even plus ``groups - 1`` orthogonal directions of length ``nodes / groups`` that no layer's
    sum sees.
    """
    nodes = len(gain)
    rest = gain - dual
    diagonal = rest.diagonal()
    first = float(np.maximum(rest, 0.0).sum() - np.maximum(diagonal, 0.0).sum() + diagonal.sum())
    largest = np.linalg.eigvalsh(_centred(dual, layers))[nodes - groups + 1 :]
    found: float = first + float(dual.sum()) / groups + nodes / groups * float(largest.sum())
    # rounding of eigenvalues: far above what it is, far below what counts
    return found + 1e-10 * float(abs(first) + nodes * float(np.abs(largest).max()))


def _centred(matrix: Floats, layers: int) -> Floats:
    """Return ``matrix`` without what is even over a layer, symmetric."""
    nodes = len(matrix)
    block = matrix.reshape(layers, -1, nodes)
    block = (block - block.mean(axis=1, keepdims=True)).reshape(nodes, layers, -1)
    whole: Floats = (block - block.mean(axis=2, keepdims=True)).reshape(nodes, nodes)
    return (whole + whole.T) / 2


def _capped(values: Floats, cap: float, total: float) -> Floats:
    """Return the nearest numbers from 0 to ``cap`` that add up to ``total``."""
    low, high = float(values.min()) - cap, float(values.max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(values - middle, 0.0, cap).sum() > total else (low, middle)
    kept: Floats = np.clip(values - low, 0.0, cap)
    return kept
