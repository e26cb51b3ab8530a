"""What collectives of large messages reach of a fabric's line rate, with the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import pydantic
from pydantic import Field

from cost.calibration.tables import CHECKED, SourcedShare, Text, load_table
from topology.base.figures import Evidence, Figure
from topology.cluster import Cluster
from topology.routes import (
    ALGORITHMS,
    ONE_TO_ONE,
    LinkLoads,
    Router,
    TierLoad,
    Traffic,
    bus_factor,
    collective_traffic,
)
from topology.spec import FabricSpec

PATH = Path(__file__).with_name("collectives.yaml")


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class _Row:
    links: SourcedShare
    all_to_all: SourcedShare | None = None
    in_switch: SourcedShare | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class CollectiveTable:
    """The file: measured fabrics, the one that stands for each kind of link, and what all others may reach."""

    sources: Mapping[str, Text]
    fabrics: Annotated[Mapping[str, _Row], Field(min_length=1)]
    kinds: Mapping[str, Text]
    others: SourcedShare

    def row(self, fabric: FabricSpec) -> tuple[_Row, str]:
        """Return the figures of a fabric, and whose they are: empty of its own, else another's or nobody's."""
        if fabric.name in self.fabrics:
            return self.fabrics[fabric.name], ""
        stand_in = self.kinds.get(fabric.kind, "")
        return (self.fabrics[stand_in], stand_in) if stand_in else (_Row(self.others), "")

    def figure(self, entry: SourcedShare, stand_in: str) -> Figure:
        """Return an entry as a figure, assumed where it is another fabric's."""
        figure = entry.figure(self.sources, PATH.name)
        if not stand_in:
            return figure
        return replace(figure, kind=Evidence.ASSUMED, source=f"not measured: as {stand_in}; {figure.source}")


@cache
def _table() -> CollectiveTable:
    return load_table(CollectiveTable, PATH)


def reached_by_links(fabric: FabricSpec, *, all_to_all: bool = False) -> Figure:
    """Return the part of its line rate that bytes over the links of a fabric reach: round rings, or all to all."""
    row, stand_in = _table().row(fabric)
    return _table().figure((row.all_to_all if all_to_all else None) or row.links, stand_in)


def reached_in_switch(fabric: FabricSpec) -> Figure | None:
    """Return the part of its line rate that data summed by the switches of a fabric reaches; None where none can."""
    row, stand_in = _table().row(fabric)
    return None if row.in_switch is None else _table().figure(row.in_switch, stand_in)


class Reached(NamedTuple):
    """How many times as long as at line rate a traffic takes, and the figure of the tier that it waits for."""

    times: float
    tier: str
    figure: Figure


def reached(
    cluster: Cluster, loads: LinkLoads, *, in_switch: bool = False, all_to_all: bool = False
) -> Reached:
    """Return how traffic on links does beside their line rates.

    Each tier takes its time over the part of the rate that its fabric reaches; the slowest counts.
    ``in_switch``: domains are loaded by an all-reduce in their switches; ``all_to_all``: GPUs send to many at once.
    """
    inside = {fabric.name for domain in cluster.spec.domains for fabric in domain.fabrics}
    tiers = []
    for name, (fabric, load) in _tiers(cluster, loads).items():
        summed = reached_in_switch(fabric) if in_switch and fabric.name in inside else None
        figure = summed or reached_by_links(fabric, all_to_all=all_to_all)
        tiers.append((load.seconds / figure.value, name, figure))
    longest, tier, figure = max(tiers, key=lambda tier: tier[0])
    return Reached(longest / loads.transfer_s, tier, figure)


def reached_by_tier(cluster: Cluster, loads: LinkLoads) -> dict[str, float]:
    """Return the part of its line rate that each tier of links reaches, by name."""
    return {name: reached_by_links(fabric).value for name, (fabric, _) in _tiers(cluster, loads).items()}


def _tiers(cluster: Cluster, loads: LinkLoads) -> dict[str, tuple[FabricSpec, TierLoad]]:
    """Return the fabric and load of each tier; the name of a tier begins with its fabric's."""
    fabrics = {fabric.name: fabric for fabric in _fabrics(cluster)}
    return {
        tier: (fabrics[max((name for name in fabrics if f"{tier} ".startswith(f"{name} ")), key=len)], load)
        for tier, load in loads.tiers.items()
    }


@dataclass(frozen=True)
class Way:
    """One way of a collective: its traffic, the loads, and how it does beside line rate.

    ``bus_bytes`` over its time is what nccl-tests calls the bus bandwidth: of links that carry a ring, their rate.
    """

    algorithm: str
    traffic: Traffic
    loads: LinkLoads
    reached: Reached
    bus_bytes: float

    @property
    def reached_s(self) -> float:
        """Seconds of large messages."""
        return self.loads.transfer_s * self.reached.times + self.loads.latency_s


def reached_beside(cluster: Cluster, traffic: Traffic, loads: LinkLoads, ways: Sequence[Way]) -> Reached:
    """Return how traffic does beside line rate: as the first of a collective's ``ways``, else by its pattern."""
    return ways[0].reached if ways else reached(cluster, loads, all_to_all=traffic.name not in ONE_TO_ONE)


def collective_ways(
    router: Router, cluster: Cluster, collective: str, size_bytes: float, members: Sequence[int]
) -> list[Way]:
    """Return the ways of a collective of ``size_bytes`` among ``members`` that its fabrics know, the fastest first.

    Raises
    ------
    InputError
        If a pair of GPUs has no route.
    """
    ways = []
    bus_bytes = bus_factor(collective, len(members)) * size_bytes
    summed = all(
        domain.structure == "switch" and reached_in_switch(domain.fabric) for domain in cluster.spec.domains
    )
    for algorithm in ALGORITHMS if collective == "all-reduce" else ALGORITHMS[:2]:
        in_switch = algorithm == "in-switch"
        if in_switch and not summed:
            continue
        sent = collective_traffic(collective, algorithm, cluster, size_bytes, members)
        loads = router.loads(sent)
        ways.append(Way(algorithm, sent, loads, reached(cluster, loads, in_switch=in_switch), bus_bytes))
    return sorted(ways, key=lambda way: way.reached_s)


def _fabrics(cluster: Cluster) -> Iterable[FabricSpec]:
    for domain in cluster.spec.domains:
        yield from domain.fabrics
    if cluster.spec.scale_out is not None:
        yield cluster.spec.scale_out.fabric
    if cluster.spec.raw is not None:
        yield from (link.fabric for link in cluster.spec.raw.links)
