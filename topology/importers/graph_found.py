"""A graph that was found, by hosts and domains, and the domain that most of its hosts are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from topology.importers.found import commonest
from topology.importers.parts import Parts
from topology.spec import (
    DomainSpec,
    FabricSpec,
    GpuSpec,
    RawLink,
    RawTopology,
)
from topology.units import format_quantity

MOST_LACKING = 0.02
"""Part of the GPUs, and of the links, that may lack: above it a graph is not regular but for its faults."""


@dataclass
class GraphFound:
    """A raw graph by hosts and domains.

    Attributes
    ----------
    gpus:
        GPUs of each host, in order.
    domains:
        Hosts of each domain.
    up:
        Scale-up links of each GPU, by chip or GPU at the other end.
    nics:
        Links of each GPU to leaves.
    above:
        Links of each switch to those of the level above.
    levels:
        Kind of each switch of the fabric: leaf, spine or core.
    links, kinds:
        All links but those of PCIe, and the kind of each node.
    bundles:
        Whether one link may stand for several.
    odd:
        GPUs that no scale-up link joins to their host, which PCIe does.
    """

    gpu: GpuSpec
    gpus: dict[str, list[str]]
    domains: dict[str, list[str]]
    up: dict[str, dict[str, RawLink]]
    nics: dict[str, dict[str, RawLink]]
    above: dict[str, dict[str, RawLink]]
    levels: dict[str, str]
    links: list[RawLink]
    kinds: dict[str, str]
    bundles: bool = False
    odd: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, raw: RawTopology, *, bundles: bool = False) -> GraphFound | None:
        """Return what a graph has, None where it has what no short form says."""
        kinds = {node.id: node.kind for node in raw.nodes}
        gpus: dict[str, list[str]] = defaultdict(list)
        hosts: dict[str, dict[str, None]] = defaultdict(dict)
        types = []
        for node in raw.nodes:
            if node.kind == "gpu":
                if node.node is None or node.domain is None or node.gpu is None:
                    return None
                gpus[node.node].append(node.id)
                hosts[node.domain][node.node] = None
                types.append(node.gpu)
            elif node.kind not in ("switch", "leaf", "spine", "core", "host", "pcie"):
                return None
        # a link of no node is refused by name when the raw graph is built
        whole = kinds.keys() >= set(chain.from_iterable(link.between for link in raw.links))
        alike = bool(types) and types == types[:1] * len(types) and sum(map(len, hosts.values())) == len(gpus)
        if not (whole and alike):
            return None
        levels = {name: kind for name, kind in kinds.items() if kind in ("leaf", "spine", "core")}
        up, nics, above = (defaultdict[str, dict[str, RawLink]](dict) for _ in range(3))
        inner: set[str] = set()
        links = []
        for link in raw.links:
            a, b = link.between
            ends = {kinds[a], kinds[b]}
            if ends & {"host", "pcie"}:
                inner.update(end for end in (a, b) if kinds[end] == "gpu")
                continue
            links.append(link)
            for one, other in ((a, b), (b, a)):
                if kinds[one] == "gpu" and kinds[other] in ("gpu", "switch"):
                    up[one][other] = link
                elif kinds[one] == "gpu":
                    nics[one][other] = link
                elif (ends == {"leaf", "spine"} and kinds[one] == "leaf") or (
                    ends == {"spine", "core"} and kinds[one] == "spine"
                ):
                    above[one][other] = link
        domains = {label: list(own) for label, own in hosts.items()}
        found = cls(types[0], dict(gpus), domains, up, nics, above, levels, links, kinds, bundles)
        found.odd = {name for name in inner if name not in up}
        # GPUs that NVLink joins have PCIe in the graph only because one of their host has no NVLink
        usual = inner - found.odd
        beside = {
            own for members in found.gpus.values() if found.odd.intersection(members) for own in members
        }
        return found if usual <= beside and found.few(len(found.odd)) else None

    def few(self, gpus: int) -> bool:
        """Whether so many GPUs are few enough to be faults."""
        return gpus <= MOST_LACKING * sum(map(len, self.gpus.values()))

    @cached_property
    def leaves(self) -> dict[str, list[str]]:
        """The hosts of each leaf that has any."""
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for host, members in self.gpus.items():
            for member in members:
                for leaf in self.nics.get(member, ()):
                    found[leaf][host] = None
        return {leaf: list(hosts) for leaf, hosts in found.items()}

    def unit(self, parts: Parts) -> DomainSpec | None:
        """Return the domain that most are, None where its GPUs are not all linked alike."""
        per_node = commonest(len(own) for own in self.gpus.values()) or 0
        size = commonest(len(own) for own in self.domains.values()) or 0
        seen: Counter[tuple[str, tuple[int, ...], int]] = Counter()
        for hosts in self.domains.values():
            own = [gpu for host in hosts for gpu in self.gpus[host]]
            whole = len(hosts) == size and all(len(self.gpus[host]) == per_node for host in hosts)
            if whole and (kind := self._structure(own)) is not None:
                seen[(*kind, len(own))] += 1
        if not seen:
            return None
        (structure, counts, gpus), _ = seen.most_common(1)[0]
        links: Counter[tuple[float, float]] = Counter()
        first: dict[tuple[float, float], FabricSpec] = {}
        for link in chain.from_iterable(own.values() for own in self.up.values()):
            links[rate_of(link.fabric)] += 1
            first.setdefault(rate_of(link.fabric), link.fabric)
        fabric = first[links.most_common(1)[0][0]]
        return self._as_part(parts, fabric, structure, counts, gpus, per_node)

    def _structure(self, gpus: Sequence[str]) -> tuple[str, tuple[int, ...]] | None:
        """Return how some GPUs are linked to each other, None where they are not all linked alike."""
        chips: dict[str, list[int]] = defaultdict(list)
        for gpu in gpus:
            for other, link in self.up.get(gpu, {}).items():
                chips[other].append(link.count)
        if any(len(set(counts)) != 1 for counts in chips.values()) or not chips or len(gpus) < 2:
            return None
        counts = tuple(sorted((own[0] for own in chips.values()), reverse=True))
        if chips.keys().isdisjoint(gpus) and all(len(own) == len(gpus) for own in chips.values()):
            return "switch", counts
        if (
            chips.keys() == set(gpus)
            and len(set(counts)) == 1
            and all(len(o) == len(gpus) - 1 for o in chips.values())
        ):
            return "mesh", counts[:1]
        return None

    def _as_part(
        self,
        parts: Parts,
        fabric: FabricSpec,
        structure: str,
        counts: tuple[int, ...],
        gpus: int,
        per_node: int,
    ) -> DomainSpec:
        """Return the named system where the domain is exactly one, else as a cluster file describes it."""
        system = parts.system
        same = (
            system is not None and system.structure == structure and rate_of(system.fabric) == rate_of(fabric)
        )
        if same and system is not None and structure == "switch":
            same = sorted(system.links_per_switch, reverse=True) == list(counts)
            counts = system.links_per_switch if same else counts
        elif same and system is not None:
            same = (system.links_per_neighbour,) == counts
        if (
            same
            and system is not None
            and parts.named_system is not None
            and system.gpus_per_node == per_node
        ):
            return replace(system, gpus=gpus)
        rate = format_quantity(fabric.link_bytes_per_s.value, "byte/s")
        return DomainSpec(
            part="custom",
            title=f"domain of {gpus} {self.gpu.title}",
            status="user",
            gpu=self.gpu,
            gpus=gpus,
            gpus_per_node=per_node,
            structure=structure,
            fabric=replace(fabric, name=f"scale-up {rate}"),
            links_per_switch=counts if structure == "switch" else (),
            nodes_per_rack=system.nodes_per_rack if system and system.gpus_per_node == per_node else 1,
            links_per_neighbour=counts[0] if structure == "mesh" else 0,
        )


def rate_of(fabric: FabricSpec) -> tuple[float, float]:
    """Return bytes/s and latency of a link, which make two fabrics alike."""
    return fabric.link_bytes_per_s.value, fabric.latency_s.value
