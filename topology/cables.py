"""The bill of cables of a cluster: its links by kind of end, rate and place, and the ports that they take.

Every link of the graph as built is in one row, those on boards too, so that all rows together are the links of the
graph; those inside spine planes, which no graph has, are a row beside them. Where a link runs is the rule of
:mod:`topology.physical`: copper if both ends are in one rack, optical between racks, nothing inside a host.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from topology.base.units import format_quantity, plural, span
from topology.cluster import Cluster
from topology.fabrics.fabric import CabledFabric
from topology.graph import NODE_KINDS
from topology.physical import PLACES, as_built, link_places
from topology.scale_out import switches_above
from topology.wiring import Ints

_UPWARDS = ("gpu", "nic", "pcie", "host", "switch", "upper", "router", "leaf", "spine", "core")
KIND_WORDS = {"nic": "NIC", "pcie": "PCIe switch", "host": "CPU socket"}
KIND_WORDS |= {"switch": "switch chip", "upper": "second-tier chip"}
"""What ends are called where that is not their kind."""


@dataclass(frozen=True)
class CableEnd:
    """What is at one end of some links: how many of which ``kind``; the least and most ``ports`` that one uses.

    No ports are named of an end that is in no graph. ``count`` is None of switch chips whose number is not published.
    """

    kind: str
    count: int | None
    ports: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}s" if self.count is None else plural(self.count, self.kind)

    @property
    def ports_each(self) -> str:
        """Return "32", or "4 to 32"."""
        return span(f"{number:,}" for number in self.ports)


@dataclass(frozen=True)
class CableRow:
    """Links of one rate between two kinds of ends; ``links`` is None where their number is not published.

    ``place`` is one of :data:`topology.physical.PLACES`; ``bytes_per_s`` is of one link per direction, NaN where it
    is not published. ``in_graph`` is False for links inside spine planes, which the graph has as one switch each.
    """

    near: CableEnd
    far: CableEnd
    links: int | None
    bytes_per_s: float
    fabric: str
    place: str
    in_graph: bool = True

    @property
    def texts(self) -> tuple[str, ...]:
        """From, ports of each, to, ports of each, links, rate of one, and where they run."""
        known = self.links is not None and not isnan(self.bytes_per_s)
        rate = format_quantity(self.bytes_per_s, "byte/s") if known else "not published"
        links = "not published" if self.links is None else f"{self.links:,}"
        near, far = self.near, self.far
        return (str(near), near.ports_each, str(far), far.ports_each, links, rate, self.place)


TITLES = ("from", "ports each", "to", "ports each", "links", "rate", "runs")
"""What the texts of a row are."""


def cable_rows(cluster: Cluster, domain: int | None = None) -> list[CableRow]:
    """Return the bill of cables of the whole of ``cluster`` as built, or of the links of one ``domain``."""
    built = as_built(cluster.whole)
    wiring, spec = built.wiring, built.spec
    kind = _kinds(built)
    swap = kind[wiring.a] > kind[wiring.b]
    near, far = np.where(swap, [wiring.b, wiring.a], [wiring.a, wiring.b])
    # a raw graph has fabrics that look the same
    number_of = {
        (link_type.name, str(link_type.link_bytes_per_s.value)): n
        for n, link_type in reversed([*enumerate(wiring.fabrics)])
    }
    same = [number_of[link_type.name, str(link_type.link_bytes_per_s.value)] for link_type in wiring.fabrics]
    fabric = np.array(same, dtype=np.int64)[wiring.fabric]
    shape = len(_UPWARDS), len(_UPWARDS), len(PLACES), max(1, len(same))
    keys = np.ravel_multi_index((kind[near], kind[far], link_places(built), fabric), shape)
    if domain is not None:
        hosts = {gpu.node for gpu in built.gpus if gpu.domain == domain}
        inside = (wiring.domain == domain) | np.array([node in hosts for node in wiring.node])
        keys = np.where(inside[near] | inside[far], keys, -1)
    uncounted = {part.fabric.name for part in spec.domains if part.links_bundled}
    out = spec.scale_out
    words = {"gpu": spec.noun} | KIND_WORDS
    words["spine"] = out.spine if isinstance(out, CabledFabric) else "spine"
    rows = []
    for key in sorted({*np.unique(keys).tolist()} - {-1}):
        low, high, where, named = np.unravel_index(key, shape)
        links = np.flatnonzero(keys == key)
        count, at = wiring.count[links], [near[links], far[links]]
        if low == high:  # both ends are of one kind, so that each counts the links on both sides
            count, at = np.tile(count, 2), [np.concatenate(at)] * 2
        names = [words.get(_UPWARDS[of], _UPWARDS[of]) for of in (low, high)]
        a, b = (_end(name, end, count) for name, end in zip(names, at, strict=True))
        name, total = wiring.fabrics[named].name, int(wiring.count[links].sum())
        row = CableRow(a, b, total, wiring.fabrics[named].link_bytes_per_s.value, name, PLACES[where])
        if name in uncounted:  # one link of the graph stands for all of a GPU
            row = replace(row, near=CableEnd(a.kind, a.count), far=CableEnd(b.kind, None), links=None)
        rows.append(row)
    above = switches_above(built)
    if above.links and domain is None and out is not None:
        spines = above.more["spine"] + int(wiring.is_kind("spine").sum())
        ends = CableEnd("spine", spines), CableEnd("core", above.more["core"])
        nic = out.fabric
        rows.append(
            CableRow(*ends, above.links, nic.link_bytes_per_s.value, nic.name, PLACES[-1], in_graph=False)
        )
    return rows


def _kinds(cluster: Cluster) -> Ints:
    """Return the place in ``_UPWARDS`` of each node; a chip of a domain that no GPU or host hangs on is ``upper``."""
    wiring = cluster.wiring
    number = np.array([_UPWARDS.index(kind) for kind in NODE_KINDS])[wiring.kind_number]
    return np.where(wiring.is_kind("switch") & ~wiring.on_hosts, _UPWARDS.index("upper"), number)


def _end(kind: str, nodes: Ints, count: Ints) -> CableEnd:
    """Return one end of some links."""
    ports = np.bincount(nodes, count)
    ports = ports[ports > 0]
    return CableEnd(kind, len(ports), (round(ports.min()), round(ports.max())))


def cables_csv(cluster: Cluster) -> str:
    """Return the bill of cables as CSV: a line a row, counts as numbers, empty where nothing is published."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    ends = [
        f"{end}{suffix}" for end in ("from", "to") for suffix in ("", "_count", "_ports_least", "_ports_most")
    ]
    writer.writerow([*ends, "links", "link_bytes_per_s", "fabric", "runs"])
    for row in cable_rows(cluster):
        cells = [(end.kind, end.count, *(end.ports or ("", ""))) for end in (row.near, row.far)]
        known = row.links is not None and not isnan(row.bytes_per_s)
        rate = f"{row.bytes_per_s:.12g}" if known else ""
        writer.writerow([*cells[0], *cells[1], row.links, rate, row.fabric, row.place])
    return file.getvalue()
