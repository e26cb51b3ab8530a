"""The max-min fair time of a traffic: its classes of flows on the links of a cluster, and when the last one ends.

Each route of a pair of GPUs is a flow of its own, with its share of the pair's bytes. Where that makes too many, a
pair is one flow that keeps to the shares of its routes; and GPUs of one domain that send alike and whose own links
are alike make one class for each target: as many flows as it has senders, with the mean of their routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from topology.base.errors import InputError
from topology.routes.demand import NO_PAIRS, Pairs, summed, table
from topology.routes.fair import Flows, Progress, colours, last_end_s, rounded
from topology.routes.network import Floats, Ints, Network
from topology.routes.single_routes import MOST_ROUTES, route_flows
from topology.routes.symmetry import uniform_flows
from topology.routes.traffic import AlikeRows, Traffic

if TYPE_CHECKING:
    from topology.routes.link_loads import LinkLoads, Router

FEW_CLASSES = 60_000
"""Classes of flows whose fair time takes a few seconds."""
_MOST_PAIRS = 4_000_000  # beyond, the routes of all pairs do not fit in memory
_MOST_ALIKE = 40_000_000  # pairs of senders that are alike, which make fewer classes
_BLOCK_PAIRS = 250_000
_FEW_GPUS = 33  # whose pairs are as quick as their symmetry


@dataclass(frozen=True)
class FairTime:
    """Two times of a traffic.

    Attributes
    ----------
    completion_s:
        Seconds until the last byte has arrived, if all flows begin at once and share links max-min fairly; the bound
        where this was not computed.
    bound_s:
        Seconds of the busiest link, with the latency of the longest route: what no schedule on these routes beats.
    classes:
        How many classes of flows there are.
    fair:
        Whether ``completion_s`` is that of fair sharing.
    """

    completion_s: float
    bound_s: float
    classes: int
    fair: bool


def fair_s(
    router: Router,
    traffic: Traffic,
    loads: LinkLoads | None = None,
    *,
    most_classes: int | None = None,
    progress: Progress | None = None,
) -> FairTime:
    """Return the max-min fair time of ``traffic``, and the bound beside it.

    Parameters
    ----------
    loads:
        The router's of this traffic, if they are known.
    most_classes:
        With more classes of flows than this the fair time is not computed.
    progress:
        Is told now and then which part of the bytes has arrived.

    Raises
    ------
    InputError
        If the traffic does not fit the cluster, a pair of GPUs has no route, or there are more pairs than memory is
        for.
    MissingFigureError
        If it takes a link whose rate nobody has published.
    """
    loads = router.loads(traffic) if loads is None else loads
    flows = _by_symmetry(router, traffic, loads) if most_classes != 0 else None
    classes = count_classes(router, traffic) if flows is None else len(flows.amounts)
    if most_classes is not None and classes > most_classes:
        return FairTime(loads.bound_s, loads.bound_s, classes, fair=False)
    if flows is None:
        check_pairs(traffic)
        flows = _flows(router, traffic)
    last = max(last_end_s(flows, progress), loads.transfer_s)
    return FairTime(last + loads.latency_s, loads.bound_s, classes, fair=True)


def check_pairs(traffic: Traffic) -> None:
    """Refuse a traffic whose pairs are too many for the fair time.

    Raises
    ------
    InputError
        If there are more than memory is for.
    """
    pairs, most = _pairs_and_most(traffic)
    if pairs > most:
        raise InputError(
            f"the fair time of {traffic.name} among {traffic.gpus:,} GPUs: its {pairs:,} pairs of GPUs are more "
            f"than the {most:,} that memory is for; ask for fewer GPUs, or for the bound alone."
        )


def _pairs_and_most(traffic: Traffic) -> tuple[int, int]:
    """Return how many pairs of GPUs there may be, and how many memory is for."""
    pairs = sum(len(members) ** 2 for members in (traffic.uniform, traffic.members)) + len(traffic.pairs[0])
    written = traffic.matrix is not None and not isinstance(traffic.matrix, AlikeRows)
    return pairs, _MOST_PAIRS if written else _MOST_ALIKE


def count_classes(router: Router, traffic: Traffic) -> int:
    """Return how many classes of flows there are without regard to symmetry, at most."""
    found = len(traffic.pairs.sources)
    for rows, members in _alike_parts(traffic):
        found += (int(_groups(router.network, rows.row_of, members).max()) + 1) * len(members)
    if traffic.matrix is not None and not isinstance(traffic.matrix, AlikeRows):
        found += len(traffic.members) * (len(traffic.members) - 1)
    return found


def _by_symmetry(router: Router, traffic: Traffic, loads: LinkLoads) -> Flows | None:
    """Return the flows of an all-to-all of many GPUs, and nothing else, on a symmetric cluster."""
    count = len(traffic.uniform)
    alone = traffic.matrix is None and not len(traffic.pairs.sources)
    if not alone or count < _FEW_GPUS:
        return None
    return uniform_flows(router, traffic.uniform, traffic.uniform_bytes, loads.load_bytes)


def _flows(router: Router, traffic: Traffic) -> Flows:
    """Return the classes of flows of a traffic."""
    from scipy.sparse import hstack

    weights, amounts = [], []
    for senders, column, sent in _blocks(router.network, traffic):
        apart = len(sent) == len(column) <= FEW_CLASSES
        if apart and (found := route_flows(router, senders, MOST_ROUTES)) is not None:
            weights.append(found[0].weights)
            amounts.append(found[0].amounts)
            continue
        link, pair, part = router.taken(senders.sources, senders.targets)
        weights.append(table(link, column[pair], part, (router.network.links, len(sent))))
        amounts.append(sent)
    return Flows(hstack(weights, format="csr"), router.network.bytes_per_s, np.concatenate(amounts))


def _blocks(network: Network, traffic: Traffic) -> Iterator[tuple[Pairs, Ints, Floats]]:
    """Yield pairs of GPUs, the class that each pair is of, and the bytes of a pair of each class."""
    for rows, members in _alike_parts(traffic):
        yield from _alike_blocks(rows, members, _groups(network, rows.row_of, members))
    none = NO_PAIRS.sources
    matrix = None if isinstance(traffic.matrix, AlikeRows) else traffic.matrix
    for pairs in replace(traffic, uniform=none, matrix=matrix).blocks():
        yield pairs, np.arange(len(pairs.amounts)), pairs.amounts


def _alike_blocks(rows: AlikeRows, members: Ints, group: Ints) -> Iterator[tuple[Pairs, Ints, Floats]]:
    """Yield the same for rows that are alike in each of some groups of senders."""
    count = len(members)
    order = np.argsort(group, kind="stable")
    step = max(1, _BLOCK_PAIRS // count)
    first = 0
    while first < count:
        last = int(np.searchsorted(group[order], group[order[min(first + step, count) - 1]], side="right"))
        some = order[first:last]
        sender, target = np.repeat(some, count), np.tile(np.arange(count), len(some))
        amounts = rows[some].reshape(-1)
        moving = (sender != target) & (amounts > 0)
        sender, target, amounts = sender[moving], target[moving], amounts[moving]
        _, one, column = np.unique(group[sender] * count + target, return_index=True, return_inverse=True)
        yield Pairs(members[sender], members[target], amounts), column.reshape(-1), amounts[one]
        first = last


def _alike_parts(traffic: Traffic) -> Iterator[tuple[AlikeRows, Ints]]:
    """Yield the parts of a traffic in which many GPUs send alike, and the GPUs that take part."""
    count = len(traffic.uniform)
    if count > 1 and traffic.uniform_bytes > 0:
        rows = np.full((1, count), traffic.uniform_bytes)
        yield AlikeRows(rows, np.zeros(count, dtype=np.int64)), traffic.uniform
    if isinstance(traffic.matrix, AlikeRows):
        yield traffic.matrix, traffic.members


def _groups(network: Network, row_of: Ints, members: Ints) -> Ints:
    """Return ``[members]`` the group of each sender; each has one of its own where there are few."""
    count = len(members)
    if count * (count - 1) <= FEW_CLASSES:
        return np.arange(count)
    names = np.random.default_rng(0).uniform(1, 2, len(network.types.tier))
    gpus = network.gpus
    leaving, coming = network.tail < gpus, network.head < gpus
    links = [
        rounded(summed(ends[chosen], names[network.type[chosen]], gpus))[members]
        for ends, chosen in ((network.tail, leaving), (network.head, coming))
    ]
    return colours(network.domain[members], row_of, *links)
