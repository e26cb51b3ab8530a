"""Every route of some pairs of GPUs one by one, as flows of their own.

Where the routes of a pair are unlike (a slow link on one of them, GPUs that stand in for one without a NIC) each goes
at its own rate. A pair is a hop inside its domain to who hands over, the way between domains, and a hop inside; each
is a graph without a cycle, whose routes are written out from the parts of the bytes on its links.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topology.routes.demand import Pairs, runs
from topology.routes.fair import Flows
from topology.routes.network import Floats, Ints, Network

if TYPE_CHECKING:
    from topology.routes.ecmp import Taken
    from topology.routes.link_loads import Router

MOST_ROUTES = 400_000
"""Routes of pairs beyond which a pair is one flow."""


class _Routes(NamedTuple):
    """Routes of some pairs in the order of pairs: ``links [routes, links]`` sparse, ``share [routes]`` of the bytes.

    Those of pair ``k`` begin at ``first[k]``; a pair of a GPU with itself has one route without a link.
    """

    links: Any
    share: Floats
    first: Ints


def route_flows(router: Router, pairs: Pairs, most: int) -> tuple[Flows, Ints] | None:
    """Return a flow for each route of each pair, and the pair of each; None where there are more than ``most``."""
    network = router.network
    legs = router.handed(pairs.sources, pairs.targets)
    ends = (pairs.sources[legs.pair], legs.giver, legs.taker, pairs.targets[legs.pair])
    hops, which = [], []
    for a, b in pairwise(ends):
        key, at = np.unique(a * network.gpus + b, return_inverse=True)
        from_gpu, to_gpu = np.divmod(key, network.gpus)
        away = np.flatnonzero(from_gpu != to_gpu)
        taken = router.direct(from_gpu[away], to_gpu[away]).of(away)
        found = _written_out(network, from_gpu, to_gpu, taken, most)
        if found is None:
            return None
        hops.append(found)
        which.append(at.reshape(-1))
    counts = [np.diff(hop.first)[at] for hop, at in zip(hops, which, strict=True)]
    each = counts[0] * counts[1] * counts[2]
    if each.sum() > most:
        return None
    number, leg = runs(np.zeros_like(each), each)
    amounts = (pairs.amounts[legs.pair] * legs.part)[leg]
    weights: Any = 0
    for hop, at, count in zip(hops, which, counts, strict=True):
        number, turn = np.divmod(number, count[leg])
        route = hop.first[at[leg]] + turn
        amounts = amounts * hop.share[route]
        links = hop.links[route]
        weights = links + weights
    return Flows(weights.T.tocsr(), network.bytes_per_s, amounts), legs.pair[leg]


def _written_out(network: Network, sources: Ints, targets: Ints, taken: Taken, most: int) -> _Routes | None:
    """Return the routes of pairs, None where there are more than ``most``."""
    from scipy.sparse import csr_array

    nodes = len(network.names)
    whole = csr_array((taken.part, (taken.pair, taken.link)), shape=(len(sources), network.links)).tocoo()
    begin = whole.row.astype(np.int64) * nodes + network.tail[whole.col]
    order = np.argsort(begin, kind="stable")
    begin, link, part = begin[order], whole.col[order].astype(np.int64), whole.data[order]
    starts = np.flatnonzero(np.diff(begin, prepend=-1))
    onward = (
        np.repeat(np.add.reduceat(part, starts), np.diff(starts, append=len(part))) if len(part) else part
    )
    # from level to level: the pair, the node reached, the share, the link that led there and what was before it
    levels = [(np.arange(len(sources)), sources, np.ones(len(sources)), np.full(len(sources), -1), sources)]
    while True:
        pair, node, share, *_ = levels[-1]
        moving = np.flatnonzero(node != targets[pair])
        if not len(moving):
            break
        key = pair[moving] * nodes + node[moving]
        first = np.searchsorted(begin, key)
        entry, parent = runs(first, np.searchsorted(begin, key, side="right") - first)
        parent = moving[parent]
        if len(entry) > most:
            return None
        levels.append(
            (
                pair[parent],
                network.head[link[entry]],
                share[parent] * part[entry] / onward[entry],
                link[entry],
                parent,
            )
        )
    return _gathered(network, levels, targets)


def _gathered(
    network: Network, levels: list[tuple[Ints, Ints, Floats, Ints, Ints]], targets: Ints
) -> _Routes:
    """Return the routes that end at each level, with the links back to their beginning."""
    from scipy.sparse import csr_array

    pairs, shares, rows, columns = [], [], [], []
    at = np.zeros(0, dtype=np.int64)
    route = np.zeros(0, dtype=np.int64)
    count = 0
    for pair, node, share, link, parent in reversed(levels):
        ends = np.flatnonzero(node == targets[pair])
        pairs.append(pair[ends])
        shares.append(share[ends])
        at, route = np.concatenate([at, ends]), np.concatenate([route, count + np.arange(len(ends))])
        count += len(ends)
        led = link[at] >= 0
        rows.append(route[led])
        columns.append(link[at[led]])
        at, route = parent[at[led]], route[led]
    pair, share = np.concatenate(pairs), np.concatenate(shares)
    row, column = np.concatenate(rows), np.concatenate(columns)
    order = np.argsort(pair, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(count)
    links = csr_array((np.ones(len(row)), (place[row], column)), shape=(count, network.links))
    first = np.searchsorted(pair[order], np.arange(len(targets) + 1))
    return _Routes(links, share[order], first)
