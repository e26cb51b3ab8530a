"""Physical limits of a cluster: power, weight, racks, cables and optical links, counted on its links.

Power is that of the GPUs that are there, as their share of what somebody published: a part of a host or of a rack
draws its part. Hosts that are domains of their own share racks as far as a rack's power allows; where the power of
a host is not known, neither is the number of racks.

The rule of links: a link between chips of one host is on its board; a link that stays in a rack is copper; a link
that leaves a rack is optical, with a transceiver at each end, unless the catalog knows that a system's are copper
or share transceivers. Switch chips of a domain stand in its host or rack where it has one, in racks of their own
where it spans several (counted where the catalog says how many); leaves, spines, cores and routers stand in racks
of their own. Where the catalog gives racks of a torus as blocks (TPU cubes), a link that closes a ring passes the
optical switch between racks, so it is optical too.
Broken parts are cabled and powered, so they count. A spine plane that one switch has no ports for counts as the
spines and cores that it stands for (:func:`topology.fabrics.switches_above`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

import numpy as np

from topology.base.errors import called
from topology.base.figures import Evidence, Figure, weakest
from topology.base.units import added, format_quantity, plural
from topology.build import build_cluster
from topology.catalog import full_domain, rack_budget
from topology.cluster import Cluster, ClusterSpec, Gpu
from topology.graph import INSIDE_KINDS, SCALE_OUT_KINDS
from topology.scale_out import switches_above
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain
from topology.wiring import Bools, Ints

BOARD, COPPER, OPTICAL = range(3)
PLACES = ("on board", "copper", "optical")
"""Where a link runs."""
_UNITS = ("domain", "rack", "node")
"""Scope of a figure, in order of preference."""


@dataclass(frozen=True)
class Cabling:
    """Links of one fabric by where they run; ``copper_cables`` where the catalog says how many make one link.

    A transceiver carries ``links_per_transceiver`` optical links. Without ``counted`` the number of links is not
    published, and one represents all of a GPU.
    """

    fabric: str
    scale_up: bool
    board_links: int
    copper_links: int
    optical_links: int
    copper_cables: int | None = None
    counted: bool = True
    links_per_transceiver: int = 1

    @property
    def transceivers(self) -> int:
        """Optical modules, those of both ends."""
        return 2 * -(-self.optical_links // self.links_per_transceiver)


@dataclass(frozen=True)
class Total:
    """Watts or kilograms of the parts that ``basis`` names, None where no figure is published.

    Of switches between domains never; ``scope`` is what a power contains: ``all-in`` (with cooling and conversion),
    ``IT`` (machines), ``chips alone``.
    """

    value: float | None
    basis: str
    evidence: Evidence
    scope: str = ""


@dataclass(frozen=True)
class Racks:
    """How many racks there are, None where it is not known; ``basis`` says why, or what the number rests on.

    ``hosts_each`` are the most hosts that one takes where their number follows from power.
    """

    count: int | None
    basis: str
    hosts_each: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """Their number, and the hosts that one takes where that follows from power."""
        hosts = " or ".join(map(str, sorted(set(self.hosts_each))))
        return plural(self.count or 0, "rack") + f" (up to {hosts} hosts a rack)" * bool(hosts)


@dataclass(frozen=True)
class Physical:
    """Physical requirements of a cluster: parts, links by fabric, power and weight in total and per rack.

    ``racks`` counts those that hold switches of a domain alone too, as far as published: ``switch_racks`` of them.
    What is of a rack is None where their number is not known.
    ``switches`` has none of a domain whose number of switch chips is not published.
    """

    gpus: int
    hosts: int
    racks: Racks
    switch_racks: int
    switches: Mapping[str, int]
    cabling: tuple[Cabling, ...]
    power: Total
    rack_power_w: float | None
    mass: Total
    rack_mass_kg: float | None

    @property
    def optical_links(self) -> int:
        """Optical links of all fabrics that can be counted."""
        return sum(fabric.optical_links for fabric in self.cabling if fabric.counted)

    @property
    def transceivers(self) -> int:
        """Optical modules of all fabrics that can be counted."""
        return sum(fabric.transceivers for fabric in self.cabling if fabric.counted)

    @property
    def copper_links(self) -> int:
        """Copper links of all fabrics that can be counted."""
        return sum(fabric.copper_links for fabric in self.cabling if fabric.counted)


def as_built(cluster: Cluster, *, moved: bool = False) -> Cluster:
    """Return ``cluster`` with nothing broken; if ``moved``, cables that end elsewhere than planned end there."""
    if not cluster.spec.faults:
        return cluster
    faults = tuple(fault for fault in cluster.spec.faults if moved and fault.cabled_to is not None)
    return build_cluster(replace(cluster.spec, faults=faults))


def physical_of_whole(cluster: Cluster) -> Physical:
    """Return what the whole of ``cluster`` takes, from its graph with failed parts and its domains' figures."""
    cluster = as_built(cluster.whole)
    power, mass = _total(cluster.spec, _power), _total(cluster.spec, _mass)
    racks = racks_of(cluster, ((gpu, 1) for gpu in cluster.gpus))
    uncounted = {number for number, domain in enumerate(cluster.spec.domains) if domain.links_bundled}
    kinds = Counter(cluster.wiring.kinds)
    if uncounted:
        number = cluster.wiring.domain[cluster.wiring.is_kind("switch")]
        kinds["switch"] -= int(np.isin(number, list(uncounted)).sum())
    above = switches_above(cluster)
    kinds.update(above.more)
    return Physical(
        gpus=len(cluster.gpus),
        hosts=len({gpu.node for gpu in cluster.gpus}),
        racks=racks,
        # a partial domain has all of them
        switch_racks=sum(domain.counted("switch_racks") for domain in cluster.spec.domains),
        switches={kind: kinds[kind] for kind in ("switch", *SCALE_OUT_KINDS) if kinds[kind]},
        cabling=_cabling(cluster, above.links),
        power=power,
        rack_power_w=None if power.value is None or not racks.count else power.value / racks.count,
        mass=mass,
        rack_mass_kg=None if mass.value is None or not racks.count else mass.value / racks.count,
    )


def racks_of(cluster: Cluster, copies: Iterable[tuple[Gpu, int]]) -> Racks:
    """Return the racks of some GPUs of ``cluster``, of each as many as its number says.

    Racks that hold switches of their domains alone are counted too.
    """
    spec = cluster.spec
    if spec.raw is not None and any(node.rack is None for node in spec.raw.nodes if node.kind == "gpu"):
        return Racks(None, "the cluster file does not say which GPUs share a rack.")
    held: dict[str, tuple[int, int]] = {}
    domains: dict[int, int] = {}
    for gpu, count in copies:
        held[gpu.rack] = max(held.get(gpu.rack, (0, 0)), (count, gpu.domain))
        domains[gpu.domain] = max(domains.get(gpu.domain, 0), count)
    racks = sum(count * spec.domains[d].counted("switch_racks") for d, count in domains.items())
    hosts = Counter[DomainSpec]()
    for count, number in held.values():
        domain = spec.domains[number]
        alone = domain.nodes_per_rack is None and domain.nodes == 1
        hosts[domain] += count * alone
        racks += count * (not alone)
    bases, hosts_each = ["racks of the system or file"] * bool(racks), []
    for domain, count in (+hosts).items():
        share, budget = power_share(domain), rack_budget(domain)
        if count == 1:
            racks += 1
        elif share is None:
            name = _name(domain)
            return Racks(
                None,
                f"no published power for a host of {name}, so hosts a rack are not known; set one with "
                f"{called('settings')} {name}.node_power_w=10 kW.",
            )
        else:
            hosts_each.append(max(1, int(budget.value / (share.value * domain.gpus) + 1e-9)))
            racks += -(-count // hosts_each[-1])
            bases.append(
                f"{plural(hosts_each[-1], 'host')} of {_name(domain)} in a rack of "
                f"{format_quantity(budget.value, 'W')} ({budget.kind.label}: {budget.source})"
            )
    return Racks(racks, "; ".join(bases) or "one host", tuple(hosts_each))


def _total(spec: ClusterSpec, figure: Callable[[DomainSpec], Total]) -> Total:
    """Return a total over all domains; None where that of one is not known."""
    parts = [(figure(domain), len(list(run))) for domain, run in groupby(spec.domains)]
    value = added(math.nan if part.value is None else part.value * count for part, count in parts)
    bases = "; ".join(dict.fromkeys(part.basis for part, _ in parts))
    scopes = " and ".join(dict.fromkeys(part.scope for part, _ in parts if part.scope))
    evidence = weakest(part.evidence for part, _ in parts)
    return Total(None if math.isnan(value) else value, bases, evidence, scopes)


def _published(domain: DomainSpec) -> tuple[Figure, int, str] | None:
    """Return the power of a full domain, rack or host, with its number of GPUs and what it is; None without one."""
    full = full_domain(domain)
    host = full.gpus_per_node
    for unit, gpus in zip(_UNITS, (full.gpus, host * full.nodes_in_rack, host), strict=True):
        if figure := domain.figures.get(f"{unit}_power_w"):
            return figure, gpus, unit
    return None


def power_share(domain: DomainSpec) -> Figure | None:
    """Return watts of one GPU as its share of a full rack, host or domain, whichever somebody published.

    None where there is none, or only that of its GPUs. Cooling, conversion and the network between domains are not
    in it.
    """
    if (published := _published(domain)) is None:
        return None
    figure, gpus, unit = published
    return Figure(figure.value / gpus, "W", figure.kind, f"of a full {unit}: {figure.source}")


def _power(domain: DomainSpec) -> Total:
    """Return the power of the GPUs of one domain: the user's, their share of machines, or that of chips alone."""
    name, chip = _name(domain), domain.gpu.figures.get("power_w")
    if chip is not None and chip.kind is Evidence.USER:
        return Total(
            chip.value * domain.gpus, f"{name}: all-in power of its GPUs as given", chip.kind, "all-in"
        )
    if published := _published(domain):
        figure, gpus, unit = published
        basis = f"{name}: IT power, the share of its GPUs in that of a full {unit}"
        return Total(figure.value * domain.gpus / gpus, basis, figure.kind, "IT")
    if chip is not None:
        basis = (
            f"{name}: chips alone, without hosts, switches and cooling, since no figure for a host or "
            "rack is published"
        )
        return Total(chip.value * domain.gpus, basis, chip.kind, "chips alone")
    basis = f"{name}: no published power for {domain.gpu.name}, its host or its rack"
    return Total(None, basis, Evidence.MEASURED)


def _mass(domain: DomainSpec) -> Total:
    """Return the weight of one domain: that of its racks, else of its hosts without the racks they stand in.

    A rack that is partly filled counts as a whole one.
    """
    racks = -(-domain.nodes // domain.nodes_in_rack)
    counts = (
        (1, "the whole domain"),
        (racks, "racks, partly filled ones counted as full"),
        (domain.nodes, "hosts, without racks"),
    )
    for unit, (count, words) in zip(_UNITS, counts, strict=True):
        if figure := domain.figures.get(f"{unit}_mass_kg"):
            return Total(figure.value * count, f"{_name(domain)}: figure for {words}", figure.kind)
    return Total(None, f"{_name(domain)}: no published weight for its racks or hosts", Evidence.MEASURED)


def _name(domain: DomainSpec) -> str:
    return domain.title if domain.part == "custom" else domain.part


def _cabling(cluster: Cluster, above: int) -> tuple[Cabling, ...]:
    """Count the links of each fabric by where they run, with those ``above`` the spines that no graph has."""
    counts = _links_by_place(cluster)
    if above and cluster.spec.scale_out is not None:
        counts[cluster.spec.scale_out.fabric.name, False][OPTICAL] += above
    domains = cluster.spec.domains
    cables, shared = (_counts(domains, key) for key in ("copper_cables_per_link", "links_per_transceiver"))
    bundled = {domain.fabric.name for domain in domains if domain.links_bundled}
    rows = []
    for (fabric, up), places in counts.items():
        board, copper, optical = map(round, places)
        per_link = cables.get(fabric) if copper and up else None
        total = None if per_link is None else copper * per_link
        per_module = shared.get(fabric, 1) if up else 1
        rows.append(Cabling(fabric, up, board, copper, optical, total, fabric not in bundled, per_module))
    return tuple(rows)


def _links_by_place(cluster: Cluster) -> dict[tuple[str, bool], list[float]]:
    """Return the links by fabric, inside a domain or not, on boards, copper and optical."""
    wiring, scale_up = cluster.wiring, _scale_up(cluster)
    kinds = wiring.fabric * 2 + scale_up
    used, positions = np.unique(kinds[wiring.in_order], return_index=True)
    places = np.bincount(kinds * 3 + link_places(cluster), wiring.count, 6 * len(wiring.fabrics)).reshape(
        -1, 3
    )
    counts: dict[tuple[str, bool], list[float]] = {}
    for kind in used[np.argsort(positions)].tolist():
        row = counts.setdefault((wiring.fabrics[kind // 2].name, kind % 2 == 1), [0.0, 0.0, 0.0])
        row[:] = [total + count for total, count in zip(row, places[kind].tolist(), strict=True)]
    return counts


def _scale_up(cluster: Cluster) -> Bools:
    """Return for each link whether it joins two nodes of one domain."""
    wiring = cluster.wiring
    domain = wiring.domain[wiring.a]
    joined: Bools = (domain >= 0) & (domain == wiring.domain[wiring.b])
    return joined


def link_places(cluster: Cluster) -> Ints:
    """Return ``[links]`` where each runs, its place in :data:`PLACES`, by the rule of this module."""
    wiring, scale_up = cluster.wiring, _scale_up(cluster)
    a, b = wiring.a, wiring.b
    hosts, racks = _spans(cluster)
    host, rack = _numbered(wiring.node), _numbered(wiring.rack)
    rack_of_host = {gpu.node: gpu.rack for gpu in cluster.gpus}
    around = _numbered([None if node is None else rack_of_host.get(node) for node in wiring.node])
    same_host, same_rack, hosts_beside = ((of[a] >= 0) & (of[a] == of[b]) for of in (host, rack, around))
    outside, inside, gpu = (wiring.is_kind(*kinds) for kinds in (SCALE_OUT_KINDS, INSIDE_KINDS, ("gpu",)))
    domain = wiring.domain[a]
    copper = np.array([*(part.copper_between_racks for part in cluster.spec.domains), False])
    # where transceivers of a domain are counted its upper switches stand in racks of their own, however few its hosts
    apart = np.array([*("links_per_transceiver" in part.figures for part in cluster.spec.domains), False])
    rules = [
        (outside[a] | outside[b], OPTICAL),
        (same_host | inside[a] | inside[b], BOARD),
        (~scale_up & same_rack, COPPER),
        (~scale_up, OPTICAL),
        (gpu[a] & gpu[b] & (same_rack & ~_closes_ring(cluster) | copper[domain]), COPPER),
        (gpu[a] & gpu[b], OPTICAL),
        (hosts[domain] == 1, BOARD),
        (hosts_beside, COPPER),
        ((racks[domain] == 1) & ~apart[domain], COPPER),
    ]
    return np.select([rule for rule, _ in rules], [place for _, place in rules], OPTICAL)


def _spans(cluster: Cluster) -> tuple[Ints, Ints]:
    """Return how many hosts, and how many racks, each domain has."""
    domains = len(cluster.spec.domains)
    hosts, racks = (
        {(gpu.domain, name(gpu)) for gpu in cluster.gpus} for name in (attrgetter("node"), attrgetter("rack"))
    )
    of_hosts, of_racks = (
        np.bincount([domain for domain, _ in members], minlength=domains) for members in (hosts, racks)
    )
    return of_hosts, of_racks


def _numbered(names: Sequence[str | None]) -> Ints:
    """Return a number for each different name, -1 for none."""
    known: dict[str | None, int] = {None: -1}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)


def _closes_ring(cluster: Cluster) -> Bools:
    """Return for each link between neighbours of a torus of blocks whether they are not side by side on its grid."""
    wiring = cluster.wiring
    blocks = [isinstance(domain, TorusDomain) and bool(domain.rack_shape) for domain in cluster.spec.domains]
    closes = np.zeros(len(wiring.a), dtype=bool)
    if any(blocks):
        links = np.flatnonzero(np.array([*blocks, False])[wiring.domain[wiring.a]])
        coordinates = [place for place in wiring.coordinate if place is not None]
        grid = np.zeros((len(wiring.names), max(map(len, coordinates))), dtype=np.int64)
        for node, place in enumerate(wiring.coordinate):
            if place is not None:
                grid[node, : len(place)] = place
        closes[links] = np.abs(grid[wiring.a[links]] - grid[wiring.b[links]]).max(axis=1) > 1
    return closes


def _counts(domains: Sequence[DomainSpec], key: str) -> dict[str, int]:
    """Return the figure ``key`` of the domains by fabric, where the catalog says it and all domains agree."""
    known: dict[str, set[int | None]] = {}
    for domain in domains:
        figure = domain.figures.get(key)
        known.setdefault(domain.fabric.name, set()).add(None if figure is None else round(figure.value))
    return {
        fabric: count
        for fabric, counts in known.items()
        if len(counts) == 1 and (count := next(iter(counts))) is not None
    }
