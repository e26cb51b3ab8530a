"""Classes of flows of an all-to-all by the symmetry of the cluster, so that only few pairs are written out.

Nodes are told apart by colour refinement of the graph, links by their ends and their bytes. Where all GPUs of a
colour see the same cluster, the flows of one of them stand for those of all, and all links of a colour carry the
same. Routes may be less symmetric than links are (dimension order in a grid): the bytes that the classes put on the
links of each colour are held against the true ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from topology.routes.demand import Pairs, ones_at, summed
from topology.routes.fair import Flows, colours, rounded
from topology.routes.network import Floats, Ints, Network
from topology.routes.single_routes import MOST_ROUTES, route_flows

if TYPE_CHECKING:
    from topology.routes.link_loads import Router

_BLOCK_PAIRS = 250_000


_FEW_PAIRS = 60_000  # each route of which is a flow of its own
_MOST_PAIRS = 4_000_000  # of one GPU of each colour with all others
_CLOSE = 1e-6  # relative difference of bytes


def uniform_flows(router: Router, members: Ints, amount: float, load_bytes: Floats) -> Flows | None:
    """Return the classes of flows of ``amount`` bytes from each of ``members`` to every other one.

    ``load_bytes`` is what they put on the links in all. None where the cluster is not symmetric enough.
    """
    network = router.network
    nodes, links = _symmetry(network, members, load_bytes)
    _, first, size = np.unique(nodes[members], return_index=True, return_counts=True)
    if len(first) * len(members) > _MOST_PAIRS:
        return None
    _, link = np.unique(links, return_index=True)
    weights, parts = _weights(router, members, members[first], size, links)
    flows = Flows(weights, network.bytes_per_s[link], amount * parts)
    carried, true = weights @ flows.amounts, load_bytes[link]
    return flows if np.allclose(carried, true, rtol=_CLOSE, atol=_CLOSE * true.max(initial=0.0)) else None


def _symmetry(network: Network, members: Ints, load_bytes: Floats) -> tuple[Ints, Ints]:
    """Return the colours ``[nodes]`` and ``[links]`` under an all-to-all of members."""
    random = np.random.default_rng(0)
    count = len(network.names)
    takes_part = np.zeros(count)
    takes_part[members] = 1.0
    _, kinds = np.unique(network.kinds, return_inverse=True)
    nodes, before = colours(kinds, takes_part), 0
    load = rounded(load_bytes / network.bytes_per_s)
    alike = colours(network.tier, network.bytes_per_s, network.latency_s, network.weight, load)
    names = random.uniform(1, 2, int(alike.max(initial=0)) + 1)[alike]
    while (now := int(nodes.max()) + 1) != before:
        before = now
        name = random.uniform(1, 2, now)[nodes]
        out = summed(network.tail, names * name[network.head], count)
        into = summed(network.head, names * name[network.tail], count)
        nodes = colours(nodes, rounded(out), rounded(into))
    return nodes, colours(alike, nodes[network.tail], nodes[network.head])


def _weights(router: Router, members: Ints, sources: Ints, size: Ints, links: Ints) -> tuple[Any, Floats]:
    """Return the weights ``[colours of links, classes]`` of flows: ``size`` GPUs send like each of ``sources``.

    Returns also the part of a pair's bytes that a flow of each class has: a route's, where those are not too many.
    """
    from scipy.sparse import hstack

    each, count = np.bincount(links), len(members)
    fold = ones_at(links, np.arange(len(links)), (len(each), len(links)))
    names = np.random.default_rng(1).uniform(1, 2, (len(each), 2))
    step = max(1, _BLOCK_PAIRS // count)
    blocks, parts = [], []
    for first in range(0, len(sources), step):
        some = np.arange(first, min(first + step, len(sources)))
        sender, target = np.repeat(some, count), np.tile(members, len(some))
        away = sources[sender] != target
        sender, target = sender[away], target[away]
        whole = Pairs(sources[sender], target, np.ones(len(sender)))
        routes = route_flows(router, whole, MOST_ROUTES) if len(sender) <= _FEW_PAIRS else None
        if routes is None:
            taken, part = fold @ router.shares(whole.sources, target), whole.amounts
        else:
            taken, part, sender = fold @ routes[0].weights, routes[0].amounts, sender[routes[1]]
        kind = colours(sender, rounded(part), rounded(taken.T @ names))
        mix = ones_at(np.arange(len(kind)), kind, (len(kind), int(kind.max()) + 1))
        mix.data *= size[sender]
        blocks.append(taken @ mix)
        parts.append(part[np.unique(kind, return_index=True)[1]])
    weights = hstack(blocks, format="csr")
    weights.data /= np.repeat(each, np.diff(weights.indptr))
    return weights, np.concatenate(parts)
