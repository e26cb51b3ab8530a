"""Collectives as traffic between GPUs: all-reduce, all-gather and reduce-scatter, in the ways that libraries know.

As NCCL does it: as many channels as a domain has GPUs share the data, each a ring or tree of its own that crosses
between domains on another GPU's NICs. A ring visits each domain's GPUs one after the other and leaves a domain where
it enters the next one, so that it stays on one rail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

import numpy as np

from topology.cluster import Cluster
from topology.routes.demand import Pairs
from topology.routes.traffic import Traffic

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter")
ALGORITHMS = ("ring", "direct", "tree", "in-switch")
"""Ways of an all-reduce; the others have the first two."""

_Hop = tuple[int, int, float]


def bus_factor(collective: str, gpus: int) -> float:
    """Return the bytes that cross the links of each of ``gpus`` in a ring, over the size of the collective.

    Sizes are those of nccl-tests: the whole buffer of an all-reduce, what an all-gather leaves on each GPU, what each
    GPU gives to a reduce-scatter (nccl-tests, doc/PERFORMANCE.md).
    """
    return (2 if collective == "all-reduce" else 1) * (gpus - 1) / gpus


def collective_traffic(
    collective: str, algorithm: str, cluster: Cluster, size_bytes: float, members: Sequence[int]
) -> Traffic:
    """Return what each GPU sends in a collective of ``size_bytes`` among ``members``, numbers in the cluster.

    ``direct``: each GPU of a domain sends each other one its part, as on a full mesh; ``in-switch``: switches of a
    domain add up and copy, so that each GPU sends and hears the data once. Between domains the part of each GPU goes
    round rings then.
    """
    domains: dict[int, list[int]] = {}
    for gpu in members:
        domains.setdefault(cluster.gpus[gpu].domain, []).append(gpu)
    groups = list(domains.values())
    if algorithm == "in-switch":
        hops = [*_around(groups, size_bytes), *_across(collective, groups, size_bytes)]
    elif algorithm == "direct":
        hops = [*_directly(collective, groups, size_bytes), *_across(collective, groups, size_bytes)]
    elif algorithm == "tree":
        hops = list(_trees(groups, size_bytes))
    else:
        hops = list(_rings(groups, bus_factor(collective, len(members)) * size_bytes))
    sources, targets, amounts = (np.array(column) for column in zip(*hops, strict=True))
    pairs = Pairs(sources.astype(np.int64), targets.astype(np.int64), amounts.astype(np.float64))
    return Traffic(f"{collective}, {algorithm}", len(cluster.gpus), pairs=pairs)


def _channels(groups: Sequence[Sequence[int]]) -> range:
    return range(max(map(len, groups)))


def _circle(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield GPUs with their successors; that of the last is the first."""
    return pairwise([*order, *order[:1]])


def _rings(groups: Sequence[Sequence[int]], sent_bytes: float) -> Iterator[_Hop]:
    """Yield the hops of the rings, in which each GPU sends so many bytes in all.

    Every other domain is visited backwards, so that a ring enters it where it left the one before.
    """
    channels = _channels(groups)
    for channel in channels:
        order: list[int] = []
        for place, group in enumerate(groups):
            turn, size = channel % len(group), len(group)
            forward = [group[(turn + step) % size] for step in range(size)]
            order += [*forward[1:], forward[0]] if place % 2 == 0 else [forward[0], *forward[:0:-1]]
        for source, target in _circle(order):
            yield source, target, sent_bytes / len(channels)


def _around(groups: Sequence[Sequence[int]], size_bytes: float) -> Iterator[_Hop]:
    """Yield what GPUs and the switches of each domain exchange: ``size_bytes`` up and down, as a ring loads them."""
    for group in groups:
        for source, target in _circle(group):
            if source != target:
                yield source, target, size_bytes


def _directly(collective: str, groups: Sequence[Sequence[int]], size_bytes: float) -> Iterator[_Hop]:
    """Yield what the GPUs of each domain send each other: their parts of the data."""
    for group in groups:
        share = bus_factor(collective, len(group)) * size_bytes / max(1, len(group) - 1)
        for source, target in permutations(group, 2):
            yield source, target, share


def _across(collective: str, groups: Sequence[Sequence[int]], size_bytes: float) -> Iterator[_Hop]:
    """Yield rings over the domains, one a channel, for its part of the data."""
    channels, count = _channels(groups), len(groups)
    for channel in channels if count > 1 else ():
        order = [group[channel % len(group)] for group in groups]
        for source, target in _circle(order):
            yield source, target, bus_factor(collective, count) * size_bytes / len(channels)


def _trees(groups: Sequence[Sequence[int]], size_bytes: float) -> Iterator[_Hop]:
    """Yield the hops of two trees over the domains, each for half of the data, and of chains inside them.

    In the second tree each domain has the place of the one before it, so that leaves of one are inside the other
    (Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009). Sums go
    up and results come down: every hop carries the same bytes both ways.
    """
    channels, count = _channels(groups), len(groups)
    part = size_bytes / len(channels)
    for channel in channels:
        heads = [group[channel % len(group)] for group in groups]
        hops = [(heads[a], heads[b], part / 2) for a, b in _tree_edges(count)]
        hops += [(heads[(a + 1) % count], heads[(b + 1) % count], part / 2) for a, b in _tree_edges(count)]
        for group in groups:
            turn = channel % len(group)
            chain = [*group[turn:], *group[:turn]]
            hops += [(a, b, part) for a, b in pairwise(chain)]
        for a, b, amount in hops:
            yield a, b, amount
            yield b, a, amount


def _tree_edges(count: int) -> Iterator[tuple[int, int]]:
    """Yield child and parent of a binary tree over ``count`` places whose leaves are every other place.

    Place ``i`` is at the height of the lowest bit of ``i``; place 0 is the root over all (NCCL, src/graph/trees.cc).
    """
    for place in range(1, count):
        bit = place & -place
        up = (place ^ bit) | (bit << 1)
        if up >= count:
            up = place ^ bit
        yield place, up
