"""Moves as executable steps: order, sources, and transfer time.

No copy is overwritten before all who fetch it have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.arrays import Bools, Floats, Index, Ints
from topology.base.errors import MissingFigureError
from topology.cluster import Cluster, Gpu


@dataclass(frozen=True)
class Step:
    """One move.

    Attributes
    ----------
    layer:
        Absolute id of the layer.
    gpu, source:
        Numbers of the GPU that fetches and of the one it fetches from, in ``Cluster.gpus``; source None: storage.
    slot:
        Position among the slots of the GPU.
    expert, replaces:
        What comes, and what it overwrites; None where the slot is empty.
    buffer:
        Fetch it into a spare buffer at this step, and put it into the slot after the layer's other steps.
    """

    layer: int
    gpu: int
    slot: int
    expert: int
    replaces: int | None
    source: int | None = None
    buffer: bool = False


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Return the steps layer by layer, each after those that fetch what it overwrites.

    Where steps wait for each other in a circle, as in a swap, one of them is marked ``buffer``: its expert is
    fetched in turn, but overwrites nothing until the layer's other steps are done.
    """
    layers: dict[int, list[Step]] = {}
    for step in steps:
        layers.setdefault(step.layer, []).append(step)
    return [step for layer in sorted(layers) for step in _one_layer(layers[layer])]


def _one_layer(steps: Sequence[Step]) -> list[Step]:
    readers: dict[tuple[int, int], int] = {}
    for step in steps:
        if step.source is not None:
            readers[step.source, step.expert] = readers.get((step.source, step.expert), 0) + 1
    overwrites = {(step.gpu, step.replaces): at for at, step in enumerate(steps) if step.replaces is not None}

    def free(step: Step) -> bool:
        return step.replaces is None or readers.get((step.gpu, step.replaces), 0) == 0

    ready = [at for at, step in enumerate(steps) if free(step)][::-1]
    waiting = dict.fromkeys(range(len(steps)))
    ordered = []
    while waiting:
        buffered = not ready
        at = next(iter(waiting)) if buffered else ready.pop()
        if at not in waiting:
            continue
        del waiting[at]
        step = steps[at]
        ordered.append(replace(step, buffer=True) if buffered else step)
        if step.source is None:
            continue
        readers[step.source, step.expert] -= 1
        then = overwrites.get((step.source, step.expert))
        if then is not None and then in waiting and free(steps[then]):
            ready.append(then)
    return ordered


DISTANCES = ("node", "domain", "rack", "across", "storage")
"""How near a source is: in the same node, scale-up domain or rack, elsewhere, or no GPU at all."""


@dataclass(frozen=True)
class Transfers:
    """Transfer demand of the moves.

    Attributes
    ----------
    seconds:
        Until the last byte has arrived over the scale-up and scale-out links, all fetched at once; None where a
        link's rate is not published. What comes from storage is not in it.
    bytes_by_distance:
        Bytes by :data:`DISTANCES`.
    bottleneck:
        The busiest link; empty where nothing travels.
    """

    seconds: float | None
    bytes_by_distance: dict[str, float]
    bottleneck: str


def nearest_sources(
    cluster: Cluster,
    steps: Sequence[Step],
    holders: Mapping[tuple[int, int], Sequence[int]],
    expert_bytes: Mapping[int, float],
) -> list[Step]:
    """Return the steps with their sources: the nearest GPU that holds the expert, of those the one that sends least.

    ``holders`` are the GPUs of ``cluster`` that hold a copy before any step, by layer and expert; ``expert_bytes``
    the size of one by layer. Steps with the fewest nearest holders choose first.
    """
    choices = []
    inside: dict[tuple[int, int], dict[int, list[int]]] = {}
    for step in steps:
        key = step.layer, step.expert
        if key not in inside:
            inside[key] = {}
            for gpu in holders.get(key, ()):
                inside[key].setdefault(cluster.gpus[gpu].domain, []).append(gpu)
        # one in the same domain is nearer than any other: thousands of replicas need not be looked at
        held = inside[key].get(cluster.gpus[step.gpu].domain) or holders.get(key, ())
        near = [_distance(cluster.gpus[step.gpu], cluster.gpus[gpu]) for gpu in held]
        least = min(near, default=0)
        choices.append([gpu for gpu, far in zip(held, near, strict=True) if far == least])
    sent: dict[int, float] = {}
    chosen = list(steps)
    for at in sorted(range(len(steps)), key=lambda i: (len(choices[i]), i)):
        if choices[at]:
            source = min(choices[at], key=lambda gpu: (sent.get(gpu, 0.0), gpu))
            sent[source] = sent.get(source, 0.0) + expert_bytes[steps[at].layer]
            chosen[at] = replace(steps[at], source=source)
    return chosen


def spread_over_sources(
    held: Bools, moves: tuple[Index, Index, Index], places: tuple[Ints, Ints], size: Floats
) -> Index:
    """Return the source of each move of one group: :func:`nearest_sources` for arrays, ``[moves]``.

    Parameters
    ----------
    held:
        ``[layers, gpus, experts]``: whether a GPU holds an expert before any move; each is held somewhere.
    moves:
        Layer, GPU and expert of each move.
    places:
        Node and domain of each GPU, ``[gpus]``; racks are not told apart.
    size:
        Bytes of each move.
    """
    layer, target, expert = moves
    node, domain = places
    by_expert, holder = np.divmod(np.flatnonzero(held.transpose(0, 2, 1)), held.shape[1])
    begins = np.searchsorted(by_expert, np.arange(held.shape[0] * held.shape[2] + 1))
    key = layer * held.shape[2] + expert
    count = begins[key + 1] - begins[key]
    move = np.repeat(np.arange(key.size), count)
    first = np.cumsum(count) - count
    there = holder[begins[key][move] + np.arange(move.size) - first[move]]
    here = target[move]
    far = np.where(node[here] == node[there], 0, np.where(domain[here] == domain[there], 1, 2))
    nearest = np.full(key.size, 3)
    np.minimum.at(nearest, move, far)
    near = far == nearest[move]
    move, there = move[near], there[near]
    choices = np.bincount(move, minlength=key.size)
    begins = np.cumsum(choices) - choices
    source: Index = there[begins].astype(np.intp)
    sent = np.bincount(source[choices == 1], weights=size[choices == 1], minlength=held.shape[1]).tolist()
    amount = size.tolist()
    several = np.flatnonzero(choices > 1)
    for at in several[np.argsort(choices[several], kind="stable")].tolist():
        own = there[begins[at] : begins[at] + choices[at]].tolist()
        chosen = min(own, key=sent.__getitem__)  # of equals the first
        source[at] = chosen
        sent[chosen] += amount[at]
    return source


def _distance(here: Gpu, there: Gpu) -> int:
    """Position in :data:`DISTANCES`."""
    if here.node == there.node:
        return 0
    if here.domain == there.domain:
        return 1
    return 2 if here.rack == there.rack else 3


def transfers(cluster: Cluster, steps: Sequence[Step], expert_bytes: Mapping[int, float]) -> Transfers:
    """Return what ``steps`` ask of the links of ``cluster``."""
    amounts = dict.fromkeys(DISTANCES, 0.0)
    pairs: dict[tuple[int, int], float] = {}
    for step in steps:
        if step.source is None:
            amounts["storage"] += expert_bytes[step.layer]
            continue
        near = DISTANCES[_distance(cluster.gpus[step.gpu], cluster.gpus[step.source])]
        amounts[near] += expert_bytes[step.layer]
        pair = step.source, step.gpu
        pairs[pair] = pairs.get(pair, 0.0) + expert_bytes[step.layer]
    if not pairs:
        return Transfers(0.0, amounts, "")
    from topology.routes import Pairs, Router, Traffic

    sources, targets = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    amounts_sent = Pairs(sources, targets, np.array(list(pairs.values())))
    traffic = Traffic("moves", len(cluster.gpus), pairs=amounts_sent)
    try:
        loads = Router(cluster).loads(traffic)
    except MissingFigureError:
        return Transfers(None, amounts, "")
    return Transfers(loads.bound_s, amounts, " to ".join(loads.bottleneck.ends))
