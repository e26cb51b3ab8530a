"""Max-min fair sharing: completion time of flows that start together and share links fairly.

Rates are max-min fair (Bertsekas and Gallager, "Data Networks", 1992, 6.5.2): no flow can go faster unless one that
is no faster goes slower. They are found by progressive filling; all links that are the bottleneck of every flow on
them are filled at once. When flows end the others share what they leave, so time goes in steps: to the next end, or
:data:`STEP` of the busiest link's time where ends lie closer together. A flow that ends inside a step spreads its
last bytes over it: no byte is lost and no link is overfull.

Flows are columns of a sparse matrix of links x classes. Each route of a pair of GPUs is a flow with its share of the
pair's bytes; where that makes too many, a pair is one flow that keeps to the shares of its routes. Flows that nothing
tells apart are one class, before their routes are written out where that can be known: the GPUs of a domain that send
alike over alike links, and in an all-to-all all pairs that the symmetry of the cluster maps onto each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topology.base.errors import InputError
from topology.routes.demand import Pairs, ones_at, runs, summed, table
from topology.routes.network import Bools, Floats, Ints, Network
from topology.routes.traffic import Traffic

if TYPE_CHECKING:
    from topology.routes.ecmp import Taken
    from topology.routes.link_loads import LinkLoads, Router

MOST_CLASSES = 150_000
"""Flow classes up to which the fair time takes some ten seconds."""
FEW_CLASSES = 60_000
"""Flow classes of a traffic whose routes are flows of their own."""
MOST_ROUTES = 400_000
"""Routes of pairs beyond which a pair is one flow."""
STEP = 0.005
"""Maximum step between flow completions, as a share of the busiest link's time."""
_MIN_STEP = 1e-4  # of the busiest link's time: how exactly the last end is known
_ROUNDING = 1e-9  # relative difference of amounts that rounding may leave
_DIGITS = 10  # of sums that tell classes apart
_SHARE_TOLERANCE = 1e-4  # relative difference of fair shares that are filled at once
_EXACT_ROUNDS = 50  # of filling, before shares that differ more are filled at once
_MAX_PAIRS = 4_000_000  # beyond, the routes of all pairs do not fit in memory
_MAX_ALIKE_PAIRS = 40_000_000  # pairs of senders that are alike, which make fewer classes
_BLOCK_PAIRS = 250_000
_MAX_UNFOLDED = 5_000_000  # links times senders beyond which links in proportion are left out first
_EMPTY = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
_ROUTED_PAIRS = 4_000  # whose links are written out at once: up to some hundred each
_UNIFORM_BLOCK = 4_000  # pairs of an all-to-all at once
_MIN_SYMMETRY_GPUS = 33  # whose pairs are as quick as their symmetry
_BYTES_TOLERANCE = 1e-6  # relative difference of bytes

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Flows:
    """Classes of flows on links.

    Attributes
    ----------
    weights:
        ``[links, classes]`` sparse: bytes/s on a link when each flow of a class goes at one byte/s.
    bytes_per_s:
        ``[links]`` capacity.
    amounts:
        ``[classes]`` bytes of one flow.
    """

    weights: Any
    bytes_per_s: Floats
    amounts: Floats

    @property
    def busiest_s(self) -> float:
        """Seconds that the busiest link needs."""
        return float((self.weights @ self.amounts / self.bytes_per_s).max(initial=0.0))


def last_end_s(flows: Flows, progress: Progress | None = None) -> float:
    """Return the second at which the last flow ends.

    ``progress`` is told after each step which part of the bytes has arrived.
    """
    flows = refined(folded(flows))
    bound = flows.busiest_s
    if bound <= 0:
        return 0.0
    links = _Links.of(flows)
    remaining = flows.amounts.copy()
    elapsed, total = 0.0, float(remaining.sum())
    while True:
        if 2 * np.count_nonzero(remaining) < len(remaining):
            links, remaining = links.only(remaining > 0)[0], remaining[remaining > 0]
        if not len(remaining):
            return elapsed
        drain_s = links.busiest_s(remaining)
        step = max(min(STEP * bound, drain_s), _MIN_STEP * bound)
        rates = links.fair_rates(remaining / step)
        ends = rates * step >= remaining * (1 - _ROUNDING)
        if ends.all():
            return elapsed + min(step, drain_s)
        if not ends[remaining > 0].any():  # nobody ends in this step: on to the next end
            step = float((remaining[remaining > 0] / rates[remaining > 0]).min())
            ends = rates * step >= remaining * (1 - _ROUNDING)
        remaining = np.where(ends, 0.0, remaining - rates * step)
        elapsed += step
        if progress is not None:
            progress(1 - float(remaining.sum()) / total)


def folded(flows: Flows) -> Flows:
    """Return the same flows on the links that can hold them up: of links in proportion the tightest."""
    rows = flows.weights.tocsr()
    used = np.flatnonzero(np.diff(rows.indptr))
    rows, rates = rows[used], flows.bytes_per_s[used]
    chosen = _tightest(rows @ np.random.default_rng(0).uniform(1, 2, (rows.shape[1], 3)), rates)
    return Flows(rows[chosen], rates[chosen], flows.amounts)


def _tightest(probes: Floats, bytes_per_s: Floats) -> Ints:
    """Return of links in proportion the tightest; ``probes [links, 3]`` are their sums over flows of random rates."""
    ratios = np.round(probes[:, 1:] / probes[:, :1], _DIGITS)
    order = np.lexsort((np.arange(len(probes)), -probes[:, 0] / bytes_per_s, ratios[:, 1], ratios[:, 0]))
    leads = np.ones(len(order), dtype=bool)
    leads[1:] = (np.diff(ratios[order], axis=0) != 0).any(axis=1)
    return np.sort(order[leads])


def refined(flows: Flows) -> Flows:
    """Return one class for all that nothing tells apart, and one link for each set of alike links.

    Colour refinement until links of a colour carry the same from each colour of flows, and flows of a colour take
    links of the same colours and have the same bytes (an equitable partition): such flows have the same fair rate
    at all times.
    """
    rows = flows.weights.tocsr()
    uses = rows.T.tocsr()
    uses.data = np.ones_like(uses.data)
    random = np.random.default_rng(0)
    links = np.zeros(rows.shape[0], dtype=np.int64)
    classes, previous = colours(rounded(flows.amounts)), 0
    while (colour_count := int(classes.max(initial=-1)) + 1) != previous:
        if colour_count == rows.shape[1]:
            return flows
        previous = colour_count
        shares = rows @ random.uniform(1, 2, (colour_count, 2))[classes] / flows.bytes_per_s[:, None]
        links = colours(links, rounded(shares))
        names = random.uniform(1, 2, (int(links.max(initial=-1)) + 1, 2))
        classes = colours(classes, rounded(uses @ names[links]))
    return _quotient(flows, links, classes)


def _quotient(flows: Flows, links: Ints, classes: Ints) -> Flows:
    """Return the flows on the first link of each colour, summed by colour of flows."""
    from scipy.sparse import csr_array

    _, first_link = np.unique(links, return_index=True)
    _, first_class = np.unique(classes, return_index=True)
    columns = np.arange(len(classes))
    member = csr_array((np.ones(len(classes)), (columns, classes)), shape=(len(classes), len(first_class)))
    return Flows(
        flows.weights.tocsr()[first_link] @ member, flows.bytes_per_s[first_link], flows.amounts[first_class]
    )


def rounded(values: Floats) -> Floats:
    """Return values without the digits that the order of a sum changes."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa, _DIGITS), exponent))


def colours(*columns: Any) -> Ints:
    """Return a number for each different row of some columns side by side."""
    rows = [values for column in columns for values in np.atleast_2d(column.T)]
    order = np.lexsort(rows)
    changed = np.zeros(max(len(order) - 1, 0), dtype=bool)
    for values in rows:
        ordered = values[order]
        changed |= ordered[1:] != ordered[:-1]
    numbers = np.zeros(len(order), dtype=np.int64)
    numbers[order[1:]] = np.cumsum(changed)
    return numbers


@dataclass(frozen=True)
class _Links:
    """Links and classes, by row and by column; an entry is the part of a link that a byte/s of its class takes."""

    rows: Any
    columns: Any

    @classmethod
    def of(cls, flows: Flows) -> _Links:
        """Return the links of some flows."""
        rows = flows.weights.tocsr().copy()
        rows.eliminate_zeros()
        rows.data /= np.repeat(flows.bytes_per_s, np.diff(rows.indptr))
        return cls(rows, rows.tocsc())

    def only(self, chosen: Bools) -> tuple[_Links, Ints]:
        """Return the chosen classes on the links that they take, and which links those are."""
        rows = self.columns[:, np.flatnonzero(chosen)].tocsr()
        used = np.flatnonzero(np.diff(rows.indptr))
        rows = rows[used]
        return _Links(rows, rows.tocsc()), used

    def busiest_s(self, amounts: Floats) -> float:
        """Return the seconds that the busiest link needs for the bytes of each class."""
        return float((self.rows @ amounts).max(initial=0.0))

    def fair_rates(self, limits: Floats) -> Floats:
        """Return ``[classes]`` max-min fair bytes/s, none above ``limits``; zero where that is zero."""
        rates = np.zeros(len(limits))
        links, who, free = self, np.arange(len(limits)), limits > 0
        room = np.ones(self.rows.shape[0])
        level = _SHARE_TOLERANCE
        for turn in count(1):
            if not free.any():
                return rates
            if 2 * np.count_nonzero(free) < len(free):
                links, used = links.only(free)
                who, limits, room, free = who[free], limits[free], room[used], np.ones(int(free.sum()), bool)
            settled = links.filled(free, limits, room, level)
            hit = settled > 0
            rates[who[hit]] = settled[hit]
            room = np.maximum(room - links.rows @ settled, 0.0)
            free &= ~hit
            level = level if turn < _EXACT_ROUNDS else 2 * level
        raise AssertionError

    def filled(self, free: Bools, limits: Floats, room: Floats, level: float) -> Floats:
        """Return the rates of the free flows that are settled now, zero for the others.

        ``level`` is the relative difference of shares that count as equal. No link gets more than its ``room``.
        """
        rows, columns = self.rows, self.columns
        load = rows @ free.astype(float)
        share = np.divide(room, load, out=np.full(len(load), np.inf), where=load > 0)
        fair = np.minimum.reduceat(share[columns.indices], columns.indptr[:-1])
        capped = free & (limits <= fair)
        offer = np.where(free, np.where(capped, 0.0, fair), np.inf)
        least = np.minimum.reduceat(offer[rows.indices], rows.indptr[:-1])
        full = (least >= share * (1 - level)) & (load > 0)
        settled = np.logical_or.reduceat(full[columns.indices], columns.indptr[:-1])
        return np.where(free & (capped | settled), np.minimum(fair, limits), 0.0)


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
    flows = uniform_flows(router, traffic, loads.load_bytes) if most_classes != 0 else None
    classes = count_classes(router, traffic) if flows is None else len(flows.amounts)
    if most_classes is not None and classes > most_classes:
        return FairTime(loads.bound_s, loads.bound_s, classes, fair=False)
    if flows is None:
        check_pairs(traffic)
        flows = _flows(router, traffic)
    end_s = max(last_end_s(flows, progress), loads.transfer_s)
    return FairTime(end_s + loads.latency_s, loads.bound_s, classes, fair=True)


def check_pairs(traffic: Traffic) -> None:
    """Reject a traffic whose pairs are too many for the fair time.

    Raises
    ------
    InputError
        If there are more than memory is for.
    """
    pairs = sum(len(members) ** 2 for members in (traffic.uniform, traffic.members)) + len(
        traffic.pairs.sources
    )
    limit = _MAX_ALIKE_PAIRS if traffic.matrix is None else _MAX_PAIRS
    if pairs > limit:
        raise InputError(
            f"the fair time of {traffic.name} among {traffic.gpus:,} GPUs: its {pairs:,} pairs of GPUs "
            f"exceed the limit of {limit:,}; use fewer GPUs, or compute only the bound."
        )


def count_classes(router: Router, traffic: Traffic) -> int:
    """Return how many classes of flows there are without regard to symmetry, at most."""
    classes = len(traffic.pairs.sources)
    for _, members in _alike_parts(traffic):
        classes += (int(_groups(router.network, members).max()) + 1) * len(members)
    if traffic.matrix is not None:
        classes += len(traffic.members) * (len(traffic.members) - 1)
    return classes


def _flows(router: Router, traffic: Traffic) -> Flows:
    """Return the classes of flows of a traffic."""
    from scipy.sparse import hstack

    weights, amounts = [], []
    network, links = router.network, _links_of_groups(router, traffic)
    for senders, column, sent in _blocks(network, traffic):
        apart = len(sent) == len(column) <= FEW_CLASSES
        if apart and (routed := route_flows(router, senders, MOST_ROUTES)) is not None:
            weights.append(routed[0].weights[links])
            amounts.append(routed[0].amounts)
            continue
        tables = _tables(router, senders, column, len(sent))
        weights.append(sum((part[links] for part in tables), start=table(*_EMPTY, (len(links), len(sent)))))
        amounts.append(sent)
    return Flows(hstack(weights, format="csr"), network.bytes_per_s[links], np.concatenate(amounts))


def _tables(router: Router, senders: Pairs, column: Ints, classes: int) -> Iterator[Any]:
    """Yield ``[links, classes]`` the links that pairs take, by the class of each, some pairs at a time."""
    for start in range(0, len(column), _ROUTED_PAIRS):
        block = slice(start, start + _ROUTED_PAIRS)
        link, pair, part = router.taken(senders.sources[block], senders.targets[block])
        yield table(link, column[block][pair], part, (router.network.links, classes))


def _links_of_groups(router: Router, traffic: Traffic) -> Ints:
    """Return the links that can hold flows up; all of them unless groups of senders take too many to be held."""
    network = router.network
    links = np.arange(network.links)
    if traffic.row is None or network.links * len(traffic.members) < _MAX_UNFOLDED:
        return links
    random, probes = np.random.default_rng(0), np.zeros((network.links, 3))
    for senders, column, sent in _blocks(network, traffic):
        rates = random.uniform(1, 2, (len(sent), 3))
        for part in _tables(router, senders, column, len(sent)):
            probes += part @ rates
    used = np.flatnonzero(probes[:, 0])
    return used[_tightest(probes[used], network.bytes_per_s[used])]


def _blocks(network: Network, traffic: Traffic) -> Iterator[tuple[Pairs, Ints, Floats]]:
    """Yield pairs of GPUs, the class that each pair is of, and the bytes of a pair of each class."""
    for row, members in _alike_parts(traffic):
        yield from _alike_blocks(row, members, _groups(network, members))
    for pairs in traffic.blocks():
        yield pairs, np.arange(len(pairs.amounts)), pairs.amounts


def _alike_blocks(row: Floats, members: Ints, group: Ints) -> Iterator[tuple[Pairs, Ints, Floats]]:
    """Yield the same for members that each send ``row`` ``[members]``, by groups of senders."""
    count = len(members)
    order = np.argsort(group, kind="stable")
    step = max(1, _BLOCK_PAIRS // count)
    start = 0
    while start < count:
        end = int(np.searchsorted(group[order], group[order[min(start + step, count) - 1]], side="right"))
        block = order[start:end]
        sender, target = np.repeat(block, count), np.tile(np.arange(count), len(block))
        amounts = row[target]
        moving = (sender != target) & (amounts > 0)
        sender, target, amounts = sender[moving], target[moving], amounts[moving]
        _, sample, column = np.unique(group[sender] * count + target, return_index=True, return_inverse=True)
        yield Pairs(members[sender], members[target], amounts), column.reshape(-1), amounts[sample]
        start = end


def _alike_parts(traffic: Traffic) -> Iterator[tuple[Floats, Ints]]:
    """Yield the parts of a traffic that GPUs send alike: the bytes from each to each that takes part, and those."""
    count = len(traffic.uniform)
    if count > 1 and traffic.uniform_bytes > 0:
        yield np.full(count, traffic.uniform_bytes), traffic.uniform
    if traffic.row is not None:
        yield traffic.row, traffic.members


def _groups(network: Network, members: Ints) -> Ints:
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
    return colours(network.domain[members], *links)


def uniform_flows(router: Router, traffic: Traffic, load_bytes: Floats) -> Flows | None:
    """Return the classes of flows of an all-to-all of many GPUs and nothing else, by symmetry.

    Nodes are told apart by colour refinement of the graph, links by their ends and their bytes, ``load_bytes``. The
    flows of one GPU of a colour stand for those of all, and all links of a colour carry the same. Routes may be less
    symmetric than links are (dimension order in a grid): None where the classes do not put the true bytes on links,
    or where the cluster is not symmetric enough.
    """
    network, members = router.network, traffic.uniform
    written = traffic.matrix is not None or traffic.row is not None or len(traffic.pairs.sources)
    if written or len(members) < _MIN_SYMMETRY_GPUS:
        return None
    nodes, links = _symmetry(network, members, load_bytes)
    leaders = np.unique(nodes[members], return_index=True)[1]
    if len(leaders) * len(members) > _MAX_PAIRS:
        return None
    separate = len(leaders) * len(members) <= FEW_CLASSES
    weighted = _uniform_weights(router, members, leaders, nodes, links, separate=True) if separate else None
    weighted = weighted or _uniform_weights(router, members, leaders, nodes, links, separate=False)
    if weighted is None:
        return None
    weights, parts = weighted
    link = np.unique(links, return_index=True)[1]
    flows = Flows(weights, network.bytes_per_s[link], traffic.uniform_bytes * parts)
    carried, true = weights @ flows.amounts, load_bytes[link]
    return (
        flows
        if np.allclose(carried, true, rtol=_BYTES_TOLERANCE, atol=_BYTES_TOLERANCE * true.max(initial=0.0))
        else None
    )


def _symmetry(network: Network, members: Ints, load_bytes: Floats) -> tuple[Ints, Ints]:
    """Return the colours ``[nodes]`` and ``[links]`` under an all-to-all of members."""
    random = np.random.default_rng(0)
    nodes = len(network.names)
    takes_part = np.zeros(nodes)
    takes_part[members] = 1.0
    node_colours, previous = colours(network.kinds, takes_part), 0
    alike = colours(network.type, rounded(load_bytes / network.bytes_per_s))
    names = random.uniform(1, 2, int(alike.max(initial=0)) + 1)[alike]
    while (colour_count := int(node_colours.max()) + 1) != previous:
        previous = colour_count
        name = random.uniform(1, 2, colour_count)[node_colours]
        out = summed(network.tail, names * name[network.head], nodes)
        into = summed(network.head, names * name[network.tail], nodes)
        node_colours = colours(node_colours, rounded(out), rounded(into))
    return node_colours, colours(alike, node_colours[network.tail], node_colours[network.head])


def _uniform_weights(
    router: Router, members: Ints, leaders: Ints, nodes: Ints, links: Ints, *, separate: bool
) -> tuple[Any, Floats] | None:
    """Return the weights ``[colours of links, classes]`` of flows from one member of each colour, for all.

    ``leaders`` are those members, by their places. Returns also the part of a pair's bytes that a flow of each class
    has: a route's with ``separate``, then None where there are too many. Of targets of a colour that routes reach in
    the same way one stands for all.
    """
    from scipy.sparse import hstack

    colour_sizes = np.bincount(links)
    names = np.random.default_rng(1).uniform(1, 2, (len(colour_sizes), 2))
    sender, target = np.repeat(members[leaders], len(members)), np.tile(members, len(leaders))
    sender, target = sender[sender != target], target[sender != target]
    facts = router.target_classes(sender, target)
    _, sample, often = np.unique(colours(sender, nodes[target], facts), return_index=True, return_counts=True)
    senders = np.bincount(nodes[members])[nodes[sender]]
    blocks, kinds, parts, budget = [], [], [], MOST_ROUTES
    for at in np.split(np.arange(len(sample)), np.arange(_UNIFORM_BLOCK, len(sample), _UNIFORM_BLOCK)):
        pairs, pair = Pairs(sender[sample[at]], target[sample[at]], np.ones(len(at))), np.arange(len(at))
        if separate:
            routed = route_flows(router, pairs, budget, often[at])
            if routed is None:
                return None
            carried, part, pair = routed[0].weights.tocoo(), routed[0].amounts, routed[1]
            budget -= int(often[at[pair]].sum())
            carried = table(links[carried.row], carried.col, carried.data, (len(colour_sizes), len(pair)))
        else:
            link, column, share = router.taken(pairs.sources, pairs.targets)
            carried, part = table(links[link], column, share, (len(colour_sizes), len(at))), pairs.amounts
        signs = np.column_stack([nodes[pairs.sources[pair]], rounded(part), rounded(carried.T @ names)])
        kind = colours(signs)
        kind_sample = np.unique(kind, return_index=True)[1]
        blocks.append(carried @ _mix(kind, (senders[sample] * often)[at[pair]]))
        kinds.append(signs[kind_sample])
        parts.append(part[kind_sample])
    kind = colours(np.concatenate(kinds))
    weights = (hstack(blocks, format="csr") @ _mix(kind, np.ones(len(kind)))).tocsr()
    weights.data /= np.repeat(colour_sizes, np.diff(weights.indptr))
    return weights, np.concatenate(parts)[np.unique(kind, return_index=True)[1]]


def _mix(kind: Ints, times: Any) -> Any:
    """Return ``[columns, kinds]`` the sum of the columns of each kind, each so many times."""
    return table(np.arange(len(kind)), kind, times, (len(kind), int(kind.max()) + 1))


class _Routes(NamedTuple):
    """Routes of some pairs in the order of pairs: ``links [routes, links]`` sparse, ``share [routes]`` of the bytes.

    Those of pair ``k`` begin at ``first[k]``; a pair of a GPU with itself has one route without a link.
    """

    links: Any
    share: Floats
    first: Ints


def route_flows(
    router: Router, pairs: Pairs, limit: int, times: Ints | None = None
) -> tuple[Flows, Ints] | None:
    """Return a flow for each route of each pair, and the pair of each; None where there are more than ``limit``.

    A pair is a hop inside its domain to who hands over, the way between domains, and a hop inside; the routes of each
    hop are written out one by one. ``times`` is how many pairs each stands for.
    """
    network = router.network
    relay = router.relayed(pairs.sources, pairs.targets)
    ends = (pairs.sources[relay.pair], relay.giver, relay.taker, pairs.targets[relay.pair])
    hops, which = [], []
    for a, b in pairwise(ends):
        key, at = np.unique(a * network.gpus + b, return_inverse=True)
        from_gpu, to_gpu = np.divmod(key, network.gpus)
        away = np.flatnonzero(from_gpu != to_gpu)
        parts = router.direct(from_gpu[away], to_gpu[away]).of(away)
        routes = _written_out(network, from_gpu, to_gpu, parts, limit)
        if routes is None:
            return None
        hops.append(routes)
        which.append(at.reshape(-1))
    counts = [np.diff(hop.first)[at] for hop, at in zip(hops, which, strict=True)]
    route_counts = counts[0] * counts[1] * counts[2]
    if (route_counts if times is None else route_counts * times[relay.pair]).sum() > limit:
        return None
    number, leg = runs(np.zeros_like(route_counts), route_counts)
    amounts = (pairs.amounts[relay.pair] * relay.part)[leg]
    weights: Any = 0
    for hop, at, size in zip(hops, which, counts, strict=True):
        number, turn = np.divmod(number, size[leg])
        route = hop.first[at[leg]] + turn
        amounts = amounts * hop.share[route]
        weights = hop.links[route] + weights
    return Flows(weights.T.tocsr(), network.bytes_per_s, amounts), relay.pair[leg]


def _written_out(network: Network, sources: Ints, targets: Ints, parts: Taken, limit: int) -> _Routes | None:
    """Return the routes of pairs, None where there are more than ``limit``."""
    from scipy.sparse import csr_array, vstack

    nodes, links = len(network.names), network.links
    merged = csr_array((parts.part, (parts.pair, parts.link)), shape=(len(sources), links)).tocoo()
    begin = merged.row.astype(np.int64) * nodes + network.tail[merged.col]
    order = np.argsort(begin, kind="stable")
    begin, link, part = begin[order], merged.col[order].astype(np.int64), merged.data[order]
    starts, node_of = np.unique(begin, return_inverse=True)
    part = part / summed(node_of, part, len(starts))[node_of]  # of what passes the node
    pair, node, share = np.arange(len(sources)), sources, np.ones(len(sources))
    routes: Any = csr_array((len(sources), links))
    ended = []
    while len(pair):
        ends = np.flatnonzero(node == targets[pair])
        ended.append((pair[ends], share[ends], routes[ends]))
        moving = np.flatnonzero(node != targets[pair])
        key = pair[moving] * nodes + node[moving]
        entry_start = np.searchsorted(begin, key)
        entry, parent = runs(entry_start, np.searchsorted(begin, key, side="right") - entry_start)
        if len(entry) > limit:
            return None
        parent = moving[parent]
        routes = routes[parent] + ones_at(np.arange(len(entry)), link[entry], (len(entry), links))
        pair, node, share = pair[parent], network.head[link[entry]], share[parent] * part[entry]
    pair, share = (np.concatenate(column) for column in ([batch[k] for batch in ended] for k in (0, 1)))
    order = np.argsort(pair, kind="stable")
    rows = vstack([batch[2] for batch in ended], format="csr")[order]
    return _Routes(rows, share[order], np.searchsorted(pair[order], np.arange(len(targets) + 1)))
