"""Routes inside scale-up domains; domains that are alike are routed at once.

Each structure says which way its pairs take: multi-path, or dimension order. A pair that has no such route
takes the next way there is, and the result says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial

import numpy as np

from topology.routes.demand import Alike, Pairs, alike_within, joined, nothing_alike
from topology.routes.dimension_order import DimensionOrder
from topology.routes.ecmp import Ecmp, Routed, Taken, nothing_routed, unreachable
from topology.routes.network import Floats, Ints, Network
from topology.structures.domain import DomainSpec, Way
from topology.structures.torus import TorusDomain

_WHERE = "over the scale-up links of its domain"
_Way = Ecmp | DimensionOrder


class ScaleUp:
    """Routes between GPUs of one domain; ``specs`` are the domains of the cluster."""

    def __init__(self, network: Network, specs: Sequence[DomainSpec]) -> None:
        self._net, self._specs = network, specs
        self._domain = network.domain[: network.gpus]
        everywhere = cache(
            partial(Ecmp, network, np.arange(network.gpus)[None], np.arange(network.links)[None])
        )
        self._kinds = [
            _Kind(network, places, links, specs[number], everywhere)
            for places, links, number in self._alike()
        ]
        self._kind = np.full(len(specs), -1, dtype=np.int64)
        for number, kind in enumerate(self._kinds):
            self._kind[self._domain[kind.places[:, 0]]] = number

    def _alike(self) -> Iterator[tuple[Ints, Ints, int]]:
        """Yield GPUs ``[copies, terminals]``, links ``[copies, links]`` and one's number of domains alike."""
        net = self._net
        order = np.argsort(net.domain, kind="stable")
        starts = np.searchsorted(net.domain[order], np.arange(len(self._specs) + 1))
        local = np.zeros(len(net.names), dtype=np.int64)
        local[order] = np.arange(len(order)) - starts[np.maximum(net.domain[order], 0)]
        domain, size = net.scale_up_domain, int(local.max(initial=0)) + 1
        up = np.flatnonzero(domain >= 0)
        key = (domain[up] * size + local[net.tail[up]]) * size + local[net.head[up]]
        links = up[np.argsort(key, kind="stable")]
        begin = np.searchsorted(domain[links], np.arange(len(self._specs) + 1)).tolist()
        rows = np.column_stack([local[net.tail[links]], local[net.head[links]], net.type[links]])
        sizes = np.bincount(self._domain, minlength=len(self._specs)).tolist()
        kinds: dict[object, list[int]] = defaultdict(list)
        for number, spec in enumerate(self._specs):
            gpus = order[starts[number] : starts[number] + sizes[number]]
            shape, wrap = _grid(spec)
            places = tuple(net.coordinates[gpu] for gpu in gpus) if shape else ()
            kind = (
                sizes[number],
                spec.structure,
                shape,
                wrap,
                places,
                rows[begin[number] : begin[number + 1]].tobytes(),
            )
            kinds[kind].append(number)
        for numbers in kinds.values():
            size, count = sizes[numbers[0]], begin[numbers[0] + 1] - begin[numbers[0]]
            if size:
                at = np.array(numbers)[:, None]
                yield (
                    order[starts[at] + np.arange(size)],
                    links[np.array(begin)[at] + np.arange(count)],
                    numbers[0],
                )

    def route(self, pairs: Pairs, alike: Alike) -> Routed:
        """Route pairs inside domains, and what GPUs that send alike send to the others of their domain."""
        routed = nothing_routed(self._net)
        kind = self._kind[self._domain[pairs.sources]]
        for number, domains in enumerate(self._kinds):
            kind_pairs = pairs.where(kind == number)
            kind_alike = alike.among(domains.places)
            if not kind_alike.any and not len(kind_pairs.sources):
                continue
            demand = [alike_within(self._domain, kind_alike)] if kind_alike.any else []
            if not domains.ways[0].joins_all:
                kind_pairs = joined(kind_pairs, *(demand_part.pairs() for demand_part in demand))
                kind_alike, demand = nothing_alike(self._net.gpus), []
            for way, note, way_pairs in domains.deal(kind_pairs):
                if isinstance(way, DimensionOrder):
                    routed.add(way.route(way_pairs, kind_alike))
                else:
                    routed.add(way.route([way_pairs.demand(self._net.gpus), *demand], _WHERE))
                routed.notes += [note] * (note != "" and note not in routed.notes)
        return routed

    def parts(self, gpus: Ints) -> tuple[dict[tuple[int, bytes], Ints], Ints]:
        """Return those of ``gpus`` that share a domain with others of them, domain by domain.

        Where pairs keep to their domain, the GPUs by the kind of the domain and their places in it: of equal ones the
        first, for what they send is alike. Then all those of other domains.
        """
        members = np.zeros(self._net.gpus, dtype=bool)
        members[gpus] = True
        closed: dict[tuple[int, bytes], Ints] = {}
        open_parts = [np.zeros(0, dtype=np.int64)]
        for number in np.unique(self._kind[self._domain[gpus]]).tolist():
            kind = self._kinds[number]
            inside = members[kind.places]
            for row in np.flatnonzero(inside.sum(axis=1) > 1).tolist():
                part = kind.places[row][inside[row]]
                if kind.ways[0].joins_all:
                    closed.setdefault((number, inside[row].tobytes()), part)
                else:
                    open_parts.append(part)
        return closed, np.concatenate(open_parts)

    def seconds(self, sources: Ints, targets: Ints) -> Floats:
        """Return the latency of the route of each pair inside a domain, -inf where there is none."""
        gpus = self._net.gpus
        kinds, which = np.unique(
            self._alike_gpu[sources] * gpus + self._alike_gpu[targets], return_inverse=True
        )
        sources, targets = np.divmod(kinds, gpus)
        seconds = np.full(len(kinds), -np.inf)
        for way, chosen in self._deal(sources, targets, refuse=False):
            seconds[chosen] = way.seconds(sources[chosen], targets[chosen])
        return seconds[which]

    @cached_property
    def _alike_gpu(self) -> Ints:
        """``[gpus]`` GPU of the first of the domains alike that has as long ways as each."""
        leaders = np.arange(self._net.gpus)
        for domains in self._kinds:
            if domains.ways[0].joins_all:
                leaders[domains.places] = domains.places[0]
        return leaders

    def taken(self, sources: Ints, targets: Ints) -> Taken:
        """Return the links of each pair inside a domain, and the part of its bytes that takes each."""
        ways = self._deal(sources, targets)
        return Taken.joined([way.taken(sources[chosen], targets[chosen]).of(chosen) for way, chosen in ways])

    def _deal(self, sources: Ints, targets: Ints, *, refuse: bool = True) -> Iterator[tuple[_Way, Ints]]:
        """Yield ways and the numbers of the pairs that take each."""
        kind = self._kind[self._domain[sources]]
        for number, domains in enumerate(self._kinds):
            members = np.flatnonzero(kind == number)
            if len(members):
                pairs = Pairs(sources[members], targets[members], members.astype(np.float64))
                for way, _, way_pairs in domains.deal(pairs, refuse=refuse):
                    yield way, way_pairs.amounts.astype(np.int64)


def _grid(spec: DomainSpec) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the shape of a torus and where it wraps, empty of another domain."""
    return (spec.shape, spec.wrap) if isinstance(spec, TorusDomain) else ((), ())


class _Kind:
    """Domains that are alike: GPUs ``[copies, terminals]`` and links ``[copies, links]``."""

    def __init__(
        self, network: Network, places: Ints, links: Ints, spec: DomainSpec, everywhere: Callable[[], _Way]
    ) -> None:
        self._net, self.places = network, places
        make: dict[Way, Callable[[], _Way]] = {
            Way.MULTIPATH: partial(Ecmp, network, places, links),
            Way.DIMENSION_ORDER: partial(DimensionOrder, network, places, links, *_grid(spec)),
            Way.FORWARDED: partial(Ecmp, network, places, links, forward=True),
            Way.EVERYWHERE: everywhere,
        }
        self._made = [(make[way], note) for way, note in spec.ways]

    @cached_property
    def ways(self) -> list[_Way]:
        """The ways of a pair, the usual one first, made when they are needed."""
        return [self._made[0][0]()]

    def deal(self, pairs: Pairs, *, refuse: bool = True) -> Iterator[tuple[_Way, str, Pairs]]:
        """Yield each way with its note and the pairs that take it: the first that joins them."""
        if self.ways[0].joins_all:
            yield self.ways[0], "", pairs
            return
        for number, (make, note) in enumerate(self._made):
            if number == len(self.ways):
                self.ways.append(make())
            joins = self.ways[number].seconds(pairs.sources, pairs.targets) > -np.inf
            if joins.any():
                yield self.ways[number], note, pairs.where(joins)
            pairs = pairs.where(~joins)
            if not len(pairs.sources):
                return
        if refuse:
            raise unreachable(self._net, int(pairs.sources[0]), int(pairs.targets[0]), _WHERE)
