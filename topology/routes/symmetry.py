"""Classes of flows of an all-to-all by the symmetry of the cluster, so that only few pairs are written out.

Nodes are told apart by colour refinement of the graph, links by their ends and their bytes. Where all GPUs of a
colour see the same cluster, the flows of one of them stand for those of all, and all links of a colour carry the
same. Routes may be less symmetric than links are (dimension order in a grid): the bytes that the classes put on the
links of each colour are held against the true ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from topology.routes.demand import Pairs, summed, table
from topology.routes.fair import Flows, colours, rounded
from topology.routes.network import Floats, Ints, Network
from topology.routes.single_routes import MOST_ROUTES, route_flows

if TYPE_CHECKING:
    from topology.routes.link_loads import Router

_BLOCK_PAIRS = 30_000
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
    nodes, before = colours(network.kinds, takes_part), 0
    alike = _numbered(network.type, rounded(load_bytes / network.bytes_per_s))
    names = random.uniform(1, 2, int(alike.max(initial=0)) + 1)[alike]
    while (now := int(nodes.max()) + 1) != before:
        before = now
        name = random.uniform(1, 2, now)[nodes]
        out = summed(network.tail, names * name[network.head], count)
        into = summed(network.head, names * name[network.tail], count)
        nodes = colours(nodes, rounded(out), rounded(into))
    return nodes, _numbered(alike, nodes[network.tail], nodes[network.head])


def _numbered(*columns: Any) -> Ints:
    """Return what :func:`topology.routes.fair.colours` does, quickly where few rows differ, in little memory."""
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for values in columns:
        different = np.unique(values)
        found *= len(different)
        found += np.searchsorted(different, values)
    return np.searchsorted(np.unique(found), found)


def _weights(router: Router, members: Ints, sources: Ints, size: Ints, links: Ints) -> tuple[Any, Floats]:
    """Return the weights ``[colours of links, classes]`` of flows: ``size`` GPUs send like each of ``sources``.

    Returns also the part of a pair's bytes that a flow of each class has: a route's, where those are not too many.
    """
    from scipy.sparse import hstack

    each, count = np.bincount(links), len(members)
    names = np.random.default_rng(1).uniform(1, 2, (len(each), 2))
    few = len(sources) * count <= _FEW_PAIRS
    every = np.arange(len(sources) * count)
    blocks, kinds, parts = [], [], []
    for some in np.split(every, np.arange(_FEW_PAIRS if few else _BLOCK_PAIRS, len(every), _BLOCK_PAIRS)):
        sender, target = some // count, members[some % count]
        away = sources[sender] != target
        sender, target = sender[away], target[away]
        pairs = Pairs(sources[sender], target, np.ones(len(sender)))
        routes = route_flows(router, pairs, MOST_ROUTES) if few else None
        if routes is None:
            (link, column, share), part = router.taken(pairs.sources, target), pairs.amounts
        else:
            cells, part, sender = routes[0].weights.tocoo(), routes[0].amounts, sender[routes[1]]
            link, column, share = cells.row, cells.col, cells.data
        taken = table(links[link], column, share, (len(each), len(sender)))
        told = np.column_stack([sender, rounded(part), rounded(taken.T @ names)])
        kind = colours(told)
        first = np.unique(kind, return_index=True)[1]
        blocks.append(taken @ _mix(kind, size[sender]))
        kinds.append(told[first])
        parts.append(part[first])
    kind = colours(np.concatenate(kinds))
    weights = (hstack(blocks, format="csr") @ _mix(kind, np.ones(len(kind)))).tocsr()
    weights.data /= np.repeat(each, np.diff(weights.indptr))
    return weights, np.concatenate(parts)[np.unique(kind, return_index=True)[1]]


def _mix(kind: Ints, times: Any) -> Any:
    """Return ``[columns, kinds]`` the sum of the columns of each kind, each so many times."""
    return table(np.arange(len(kind)), kind, times, (len(kind), int(kind.max()) + 1))
