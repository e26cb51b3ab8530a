"""The short form of what is regular: equal domains and a fabric of one kind, and what is broken in it.

The commonest host, domain, leaf and spine of a graph give the cluster as it was meant; its own graph is built and
compared link by link with the one found. What lacks is written as broken. A short form is only given where nothing is
left over, and little lacks: then both are the same graph, but for the names of hosts and switches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, zip_longest

import numpy as np
from networkx.utils import UnionFind

from topology.build import build_cluster, check_cluster
from topology.catalog import systems_of
from topology.errors import InputError
from topology.fabrics import check_scale_out
from topology.graph import SCALE_OUT_KINDS
from topology.importers.assemble import Assembled
from topology.importers.found import FabricFound, commonest
from topology.importers.parts import Parts, missing
from topology.spec import (
    ClusterSpec,
    DomainSpec,
    FabricSpec,
    Fault,
    GpuSpec,
    RawLink,
    RawTopology,
    ScaleOutSpec,
)
from topology.structures import check_domain
from topology.units import format_quantity
from topology.wiring import Floats, Wiring

_MOST_LACKING = 0.02
"""Part of the GPUs, and of the links, that may lack: above it a graph is not regular but for its faults."""
_MOST_TOLD = 8
_SAME = 1e-9
_Row = tuple[RawLink, str, str, float]
"""A link found, its ends and its count in the short form."""


def regular_form(
    name: str, assembled: Assembled, parts: Parts, place: str, *, bundles: bool = False
) -> tuple[ClusterSpec, list[str]] | None:
    """Return the short form of a graph and its hosts in order, None where it is not regular.

    With ``bundles`` one link may stand for several, so only rates between switches are compared.
    """
    found = _Found.of(assembled.raw, bundles=bundles)
    unit = None if found is None else found.unit(parts)
    if found is None or unit is None:
        return None
    shape: _Shape | None = _Shape(None, list(found.domains.values()), {})
    if found.leaves:
        shape = None if len(found.domains) == 1 else found.shape(unit)
    if shape is None:
        return None
    try:
        check_domain(unit, place)
        if shape.out is not None:
            check_scale_out(shape.out, place)
        spec = check_cluster(ClusterSpec(name, (unit,) * len(shape.hosts), shape.out), place)
        return _compared(spec, shape.hosts, found, unit, shape.names, parts)
    except InputError:
        return None


def unswitched(
    name: str, fabric: FabricFound, assembled: Assembled, parts: Parts
) -> tuple[ClusterSpec, list[str]]:
    """Return hosts that no file puts on switches, in the fabric of the system that the user named.

    Raises
    ------
    InputError
        If no system was named: then nothing says how its domains are cabled.
    """
    found = _Found.of(assembled.raw)
    unit = None if found is None else found.unit(parts)
    if found is None or unit is None:
        raise InputError(f"{fabric.place}: names no switches, and its hosts differ; add the fabric's file.")
    each = unit.gpus_per_node
    domains = tuple(replace(unit, gpus=each * len(hosts)) for hosts in found.domains.values())
    compared = _compared(
        ClusterSpec(name, domains, None), list(found.domains.values()), found, unit, {}, parts
    )
    if compared is None or compared[0].faults:
        raise InputError(f"{fabric.place}: names no switches, and its hosts differ; add the fabric's file.")
    design = parts.design
    if len(domains) == 1:
        design = None
    elif design is None:
        systems = ", ".join(one.part for one in systems_of(parts.gpu.name)) or "of the catalog"
        how = f"the fabric's file too (Slurm tree, ibnetdiscover, ...) or option `gpu` SYSTEM ({systems})"
        raise missing(fabric.place, {"how its domains are cabled to each other": how})
    else:
        nic = parts.nic()
        parts.take(
            f"Fabric between domains: {design.kind}, as catalog system {parts.named_system} is cabled."
        )
        if nic != design.fabric:
            count = parts.nics_per_gpu()
            design = replace(design, fabric=_as_read(design.kind, nic), nic_links_per_gpu=count)
        if parts.options.oversubscription is not None:
            ratio = parts.oversubscription()
            design = replace(design, oversubscription=ratio, fabric=_as_read(design.kind, nic))
    return check_cluster(ClusterSpec(name, domains, design), fabric.place), compared[1]


@dataclass(frozen=True)
class _Shape:
    """A fabric, the hosts of each domain in its order (an empty name for one that lacks), and its switches' names."""

    out: ScaleOutSpec | None
    hosts: list[list[str]]
    names: dict[str, str]


@dataclass
class _Found:
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
    def of(cls, raw: RawTopology, *, bundles: bool = False) -> _Found | None:
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
        if any(one != types[0] for one in types) or sum(map(len, hosts.values())) != len(gpus):
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
        return gpus <= _MOST_LACKING * sum(map(len, self.gpus.values()))

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
            links[_rate(link.fabric)] += 1
            first.setdefault(_rate(link.fabric), link.fabric)
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
        same = system is not None and system.structure == structure and _rate(system.fabric) == _rate(fabric)
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

    def _nic(self) -> RawLink | None:
        """Return the link to a leaf that most GPUs have."""
        links = [link for own in self.nics.values() for link in own.values()]
        usual = commonest((link.count, *_rate(link.fabric)) for link in links)
        return next((link for link in links if (link.count, *_rate(link.fabric)) == usual), None)

    def _uplinks(self, names: Iterable[str], nic: RawLink) -> tuple[float, int] | None:
        """Return how many links most of some switches have up, and to how many switches, of those that have any.

        Of bundles as many links like a NIC's as make up their rate.
        """
        one = _rate(nic.fabric)[0]
        return commonest(
            (
                round(
                    sum(
                        link.count * (_rate(link.fabric)[0] / one if self.bundles else 1)
                        for link in own.values()
                    ),
                    6,
                ),
                len(own),
            )
            for name in names
            if (own := self.above.get(name))
        )

    def _filled(self, groups: Iterable[Sequence[str]], size: int, per_domain: int) -> list[list[str]] | None:
        """Return the hosts of each domain, groups of ``size`` hosts one after the other; empty names fill them up.

        A domain is not split between groups, and the last group need not be full.
        """
        domain_of = {host: label for label, hosts in self.domains.items() for host in hosts}
        groups = list(groups)
        if {len(group) for group in groups[:-1]} == {size} and len(groups[-1]) <= size:
            runs = [list(run) for _, run in groupby(chain.from_iterable(groups), domain_of.__getitem__)]
            if len(runs) == len(self.domains) and {len(run) for run in runs} == {per_domain}:
                return runs
        filled: list[list[str]] = []
        for number, group in enumerate(groups):
            labels = dict.fromkeys(domain_of[host] for host in group)
            own = [
                [*self.domains[label], *[""] * (per_domain - len(self.domains[label]))] for label in labels
            ]
            short = size - sum(map(len, own))
            if short and (number < len(groups) - 1 or short < 0):
                if short < 0 or short % per_domain:
                    return None
                own += [[""] * per_domain] * (short // per_domain)
            filled += own
        if sum(map(len, filled)) < len(self.gpus) or any(len(own) != per_domain for own in filled):
            return None
        return filled

    def planes(self) -> list[_Found]:
        """Return the graph with the switches of one plane each: parts that most GPUs reach and no link joins."""
        joined: UnionFind[str] = UnionFind(self.levels)
        for below, uppers in self.above.items():
            joined.union(below, *uppers)
        planes = []
        for group in joined.to_sets():
            nics = {
                gpu: own
                for gpu, links in self.nics.items()
                if (own := {leaf: link for leaf, link in links.items() if leaf in group})
            }
            if nics:
                levels = {name: kind for name, kind in self.levels.items() if name in group}
                above = {name: own for name, own in self.above.items() if name in group}
                planes.append(replace(self, nics=nics, levels=levels, above=above))
        gpus = sum(map(len, self.gpus.values()))
        return planes if all(2 * len(one.nics) > gpus for one in planes) else [self]

    def shape(self, unit: DomainSpec) -> _Shape | None:
        """Return the fabric, of several planes where all are alike."""
        found = [one.rails(unit) or one.tree(unit) for one in self.planes()]
        shapes = [one for one in found if one is not None]
        first = shapes[0] if shapes else None
        if first is None or first.out is None or len(shapes) < len(found) or len(shapes) == 1:
            return first if len(found) == 1 else None
        alike = all(
            one.out is not None
            and one.hosts == first.hosts
            and replace(one.out, fabric=first.out.fabric) == first.out
            and _rate(one.out.fabric) == _rate(first.out.fabric)
            for one in shapes
        )
        if not alike:
            return None
        links = len(shapes) * first.out.nic_links_per_gpu
        names = {
            long: f"f{n}{short[1:]}" for n, one in enumerate(shapes) for long, short in one.names.items()
        }
        return _Shape(replace(first.out, planes=len(shapes), nic_links_per_gpu=links), first.hosts, names)

    def rails(self, unit: DomainSpec) -> _Shape | None:
        """Return rails: in each pod one leaf a rail, every host on all of them, leaves on all spines."""
        nic = self._nic()
        rail = self._rail_of_leaves(unit.gpus_per_node)
        if nic is None or rail is None or "core" in self.levels.values():
            return None
        joined = self._pods()
        pods: dict[str, list[str]] = defaultdict(list)
        for host in chain.from_iterable(self.domains.values()):
            pods[joined[f"host {host}"]].append(host)
        size = commonest(map(len, pods.values())) or 0
        hosts = self._filled(pods.values(), size, unit.nodes)
        spines = [name for name, kind in self.levels.items() if kind == "spine"]
        up = self._uplinks(rail, nic)
        if hosts is None or up is None or not spines:
            return None
        numbers = {root: number for number, root in enumerate(pods)}
        names = {leaf: f"f.p{numbers[joined[f'leaf {leaf}']]}.l{number}" for leaf, number in rail.items()}
        names |= {spine: f"f.s{number}" for number, spine in enumerate(spines)}
        out = ScaleOutSpec(
            kind="rail",
            fabric=_as_read("rail", nic.fabric),
            nic_links_per_gpu=nic.count,
            nodes_per_pod=size,
            spines=len(spines),
            oversubscription=size * nic.count / up[0],
        )
        return _Shape(out, hosts, names) if len(set(names.values())) == len(names) else None

    def _pods(self) -> UnionFind[str]:
        """Return which hosts and leaves are of one pod; hosts on other leaves than any other are of that of most."""
        joined: UnionFind[str] = UnionFind()
        leaves: dict[str, list[str]] = defaultdict(list)
        for leaf, below in self.leaves.items():
            for host in below:
                leaves[host].append(leaf)
        often = Counter(map(tuple, leaves.values()))
        rare = [host for host, own in leaves.items() if often[tuple(own)] == 1 < max(often.values())]
        known = {leaf for host in leaves.keys() - set(rare) for leaf in leaves[host]}
        for host in leaves.keys() - set(rare):
            joined.union(f"host {host}", *(f"leaf {leaf}" for leaf in leaves[host]))
        for host in rare:
            pod = commonest(joined[f"leaf {leaf}"] for leaf in leaves[host] if leaf in known)
            joined.union(pod or f"leaf {leaves[host][0]}", f"host {host}")
        for leaf in self.leaves.keys() - known:
            joined.union(f"leaf {leaf}", f"host {self.leaves[leaf][0]}")
        return joined

    def _rail_of_leaves(self, per_node: int) -> dict[str, int] | None:
        """Return the rail of each leaf: the place in their hosts of most of its GPUs; None where there are none."""
        votes: dict[str, Counter[int]] = defaultdict(Counter)
        together = 0
        for members in self.gpus.values():
            own = [leaf for member in members for leaf in self.nics.get(member, ())]
            together += len(own) != len(set(own))
            for number, member in enumerate(members):
                votes_of = self.nics.get(member, ())
                for leaf in votes_of:
                    votes[leaf][number] += 1
        if per_node < 2 or not self.few(together * per_node):
            return None
        return {leaf: counts.most_common(1)[0][0] for leaf, counts in votes.items()}

    def tree(self, unit: DomainSpec) -> _Shape | None:
        """Return a leaf-spine of two levels, or a fat tree of three."""
        nic = self._nic()
        of_host = {
            host: commonest(leaf for member in members for leaf in self.nics.get(member, ()))
            for host, members in self.gpus.items()
        }
        on_leaf: dict[str, list[str]] = defaultdict(list)
        for host in chain.from_iterable(self.domains.values()):
            leaf = of_host[host]
            if leaf is None:
                return None
            on_leaf[leaf].append(host)
        size = commonest(map(len, on_leaf.values())) or 0
        up = self._uplinks(on_leaf, nic) if nic is not None else None
        if nic is None or up is None or not size:
            return None
        down = size * unit.gpus_per_node * nic.count
        base = ScaleOutSpec(
            "leaf-spine", _as_read("leaf-spine", nic.fabric), nic.count, size, up[1], down / up[0]
        )
        if "core" not in self.levels.values():
            hosts = self._filled(on_leaf.values(), size, unit.nodes)
            spines = dict.fromkeys(name for leaf in on_leaf for name in self.above.get(leaf, ()))
            names = {leaf: f"f.l{number}" for number, leaf in enumerate(on_leaf)}
            names |= {spine: f"f.s{number}" for number, spine in enumerate(spines)}
            return None if hosts is None else _Shape(replace(base, spines=len(spines)), hosts, names)
        return self._fat_tree(base, on_leaf, unit, nic)

    def _fat_tree(
        self, base: ScaleOutSpec, on_leaf: Mapping[str, list[str]], unit: DomainSpec, nic: RawLink
    ) -> _Shape | None:
        """Return a fat tree: leaves on the spines of their pod, the same spine of every pod on the same cores."""
        joined: UnionFind[str] = UnionFind()
        for leaf in on_leaf:
            joined.union(leaf, *self.above.get(leaf, ()))
        pods: dict[str, list[str]] = defaultdict(list)
        for leaf in on_leaf:
            pods[joined[leaf]].append(leaf)
        per_pod = commonest(map(len, pods.values())) or 0
        spines = {
            root: list(dict.fromkeys(spine for leaf in own for spine in self.above.get(leaf, ())))
            for root, own in pods.items()
        }
        up = self._uplinks(chain.from_iterable(spines.values()), nic)
        if up is None:
            return None
        # cores that a spine of one pod and one of another have in common make these the same spine
        groups: UnionFind[str] = UnionFind()
        for spine in chain.from_iterable(spines.values()):
            groups.union(spine, *self.above.get(spine, ()))
        roots = list(dict.fromkeys(groups[spine] for own in spines.values() for spine in own))
        number = {root: place for place, root in enumerate(roots)}
        cores: Counter[str] = Counter()
        names: dict[str, str] = {}
        for core in (name for name, kind in self.levels.items() if kind == "core"):
            group = groups[core]
            if group not in number:
                return None
            names[core] = f"f.c{number[group]}.{cores[group]}"
            cores[group] += 1
        for pod, (root, own) in enumerate(pods.items()):
            names |= {leaf: f"f.p{pod}.l{place}" for place, leaf in enumerate(own)}
            names |= {spine: f"f.p{pod}.s{number[groups[spine]]}" for spine in spines[root]}
        leaves = [
            on_leaf[leaf] if leaf else []
            for own in pods.values()
            for leaf in (*own, *[""] * (per_pod - len(own)))
        ]
        while leaves and not leaves[-1]:
            leaves.pop()
        filled = self._filled(leaves, base.nodes_per_pod, unit.nodes)
        if filled is None or len(set(names.values())) != len(names) or len(set(cores.values())) != 1:
            return None
        up_leaf = base.nodes_per_pod * unit.gpus_per_node * base.nic_links_per_gpu / base.oversubscription
        out = replace(
            base,
            kind="fat-tree",
            fabric=replace(base.fabric, name=base.fabric.name.replace("leaf-spine", "fat-tree")),
            nodes_per_pod=base.nodes_per_pod * per_pod,
            leaves_per_pod=per_pod,
            spines=len(roots),
            cores=max(cores.values()),
            core_oversubscription=per_pod * up_leaf / len(roots) / up[0],
        )
        return _Shape(out, filled, names)


def _rate(fabric: FabricSpec) -> tuple[float, float]:
    return fabric.link_bytes_per_s.value, fabric.latency_s.value


def _as_read(kind: str, nic: FabricSpec) -> FabricSpec:
    """Return a NIC as a cluster file describes it: by the kind of fabric and its rate."""
    figure = nic.link_bytes_per_s
    text = figure.text or format_quantity(figure.value, "byte/s", 12)
    return FabricSpec(f"{kind} {text}", "scale-out", replace(figure, text=text), nic.latency_s)


def _compared(
    spec: ClusterSpec,
    hosts: Sequence[Sequence[str]],
    found: _Found,
    unit: DomainSpec,
    switches: Mapping[str, str],
    parts: Parts,
) -> tuple[ClusterSpec, list[str]] | None:
    """Return a cluster with what lacks in the graph found as its faults, None where more than that differs.

    ``hosts`` are those of each of its domains, ``switches`` what those of the fabric are called in it.
    """
    order = [host or "(absent)" for own in hosts for host in own]
    names = {**switches, **_gpu_names(hosts, found, switches, spec)}
    cluster = build_cluster(spec)
    wiring = cluster.wiring
    have, strays = _renamed(found, names, _chip_names(hosts, found, unit), wiring)
    known = set(names.values())
    gone = [gpu.id for gpu in cluster.gpus if gpu.id not in known] + sorted(names[gpu] for gpu in found.odd)
    alike = _alike(found, wiring, have, strays)
    moved = None if strays and alike else _moved(wiring, have, strays)
    links = None if moved is None else _lacking(wiring, have, gone)
    few = links is not None and moved is not None and len(moved) + len(links) <= _MOST_LACKING * len(wiring.a)
    if links is None or moved is None or not few or len(gone) > _MOST_LACKING * spec.gpus:
        if alike:
            return spec, order
        if strays:
            kind = spec.scale_out.kind if spec.scale_out else spec.domains[0].structure
            ends = " to ".join(strays[0][0].between)
            parts.note(f"Written out link by link: {ends} is no link of a regular {kind}.")
        return None
    faults = [*(Fault(gpu=gpu) for gpu in gone), *links, *moved]
    if faults:
        spec = replace(spec, faults=tuple(faults))
        build_cluster(spec)
        lines = f"{len(faults)} {'lines' if len(faults) > 1 else 'line'} of `broken:`"
        parts.note(f"Regular but for {lines}: GPUs and links that lack, are slow or end elsewhere.")
        called = {short: long for long, short in names.items()}
        parts.anomalies += [_told(fault, called, found) for fault in faults[:_MOST_TOLD]]
        if len(faults) > _MOST_TOLD:
            parts.anomalies.append(f"{len(faults) - _MOST_TOLD} more lines of `broken:`.")
    return spec, order


def _renamed(
    found: _Found, names: Mapping[str, str], chips: Mapping[str, list[tuple[str, float]]], wiring: Wiring
) -> tuple[Floats, list[_Row]]:
    """Return ``[2, links]`` rate and latency found of each link of ``wiring``, NaN of none, and links it lacks."""
    rows = [(link, *part) for link in found.links for part in _split(link, names, chips)]
    known = [a in wiring.number and b in wiring.number for _, a, b, _ in rows]
    at = np.full(len(rows), -1)
    at[known] = wiring.find([(a, b) for (_, a, b, _), one in zip(rows, known, strict=True) if one])
    fits = at >= 0
    fits[fits] = np.bincount(at[fits], minlength=len(wiring.a))[at[fits]] == 1
    have = np.full((2, len(wiring.a)), np.nan)
    have[0, at[fits]] = [
        count * link.fabric.link_bytes_per_s.value
        for (link, _, _, count), one in zip(rows, fits, strict=True)
        if one
    ]
    have[1, at[fits]] = [
        link.fabric.latency_s.value for (link, *_), one in zip(rows, fits, strict=True) if one
    ]
    return have, [rows[row] for row in np.flatnonzero(~fits).tolist()]


def _moved(wiring: Wiring, have: Floats, strays: Sequence[_Row]) -> list[Fault] | None:
    """Return links that lack as cabled to where strays end, set in ``have``; None where a stray is none of them."""
    free: dict[tuple[str, str], list[int]] = defaultdict(list)
    for link in np.flatnonzero(np.isnan(have[0])).tolist() if strays else ():
        for end, other in ((wiring.a[link], wiring.b[link]), (wiring.b[link], wiring.a[link])):
            free[wiring.names[end], wiring.kinds[other]].append(link)
    faults: list[Fault] = []
    for stray, a, b, count in strays:
        rate, latency = count * stray.fabric.link_bytes_per_s.value, stray.fabric.latency_s.value
        for stays, to in ((a, b), (b, a)):
            kind = wiring.kinds[wiring.number[to]] if to in wiring.number else ""
            fits = [
                link
                for link in free[stays, kind] * (kind in SCALE_OUT_KINDS)
                if np.isnan(have[0, link]) and abs(rate / wiring.bytes_per_s[link] - 1) <= _SAME
            ]
            if fits:
                other = wiring.a[fits[0]] + wiring.b[fits[0]] - wiring.number[stays]
                have[:, fits[0]] = rate, latency
                faults.append(Fault(link=(stays, wiring.names[other]), factor=1.0, cabled_to=to))
                break
        else:
            return None
    return faults


def _lacking(wiring: Wiring, have: Floats, gone: Sequence[str]) -> list[Fault] | None:
    """Return the links that are missing or slow, but for those of GPUs that are gone; None where one is faster."""
    out = np.zeros(len(wiring.names), dtype=bool)
    out[[wiring.number[gpu] for gpu in gone]] = True
    stays = ~(out[wiring.a] | out[wiring.b])
    factor = have[0] / wiring.bytes_per_s
    other = abs(have[1] / wiring.latency_s - 1) > _SAME
    if (stays & ((factor > 1 + _SAME) | other)).any():
        return None
    return [
        Fault(
            link=(wiring.names[wiring.a[link]], wiring.names[wiring.b[link]]),
            factor=float(np.nan_to_num(factor[link])),
        )
        for link in np.flatnonzero(stays & ~(factor > 1 - _SAME)).tolist()
    ]


def _told(fault: Fault, called: Mapping[str, str], found: _Found) -> str:
    """Return a fault in the names of the files, where they have them."""
    if fault.gpu is not None:
        name = called.get(fault.gpu)
        what = "has no scale-up link" if name in found.odd else "is absent"
        return f"{name or 'a GPU'} {what}: {fault.gpu} is broken."
    a, b = fault.link or ("", "")
    ends = f"{called.get(a, a)} to {called.get(b, b)}"
    if fault.cabled_to is not None:
        to = called.get(fault.cabled_to, fault.cabled_to)
        return f"{ends}: cabled to {to} instead: [{a}, {b}] is cabled to {fault.cabled_to}."
    part = f"at {fault.factor:.3g} of the rate of the others" if fault.factor else "no link"
    return f"{ends}: {part}: [{a}, {b}] is broken."


def _gpu_names(
    hosts: Sequence[Sequence[str]], found: _Found, switches: Mapping[str, str], spec: ClusterSpec
) -> dict[str, str]:
    """Return what the GPUs are called in the short form: by their leaf's rail, else in order."""
    rail = spec.scale_out is not None and spec.scale_out.kind == "rail"
    names = {}
    for number, own in enumerate(hosts):
        for place, host in enumerate(own):
            members = found.gpus.get(host, [])
            at: dict[str, int] = {}
            if rail and len(members) < spec.domains[0].gpus_per_node:
                for member in members:
                    leaf = next(iter(found.nics.get(member, ())), "")
                    if leaf in switches:
                        at[member] = int(switches[leaf].rpartition(".l")[2])
            free = (p for p in range(spec.domains[0].gpus_per_node) if p not in at.values())
            for member in members:
                position = at[member] if member in at else next(free, -1)
                names[member] = f"d{number}.n{place}.g{position}"
    return names


def _chip_names(
    hosts: Sequence[Sequence[str]], found: _Found, unit: DomainSpec
) -> dict[str, list[tuple[str, float]]]:
    """Return the switch chips that each chip found is: one, or where one stands for all, all with their shares."""
    names: dict[str, list[tuple[str, float]]] = {}
    if not unit.switched:
        return names
    ranked = sorted(range(len(unit.links_per_switch)), key=lambda chip: -unit.links_per_switch[chip])
    total = sum(unit.links_per_switch)
    for number, own in enumerate(hosts):
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for member in (gpu for host in own for gpu in found.gpus.get(host, ())):
            for chip, link in found.up.get(member, {}).items():
                counts[chip][link.count] += 1
        if len(counts) == 1 and len(unit.links_per_switch) > 1:
            (chip,) = counts
            names[chip] = [
                (f"d{number}.s{i}", links / total) for i, links in enumerate(unit.links_per_switch)
            ]
            continue
        order = sorted(counts, key=lambda chip: -counts[chip].most_common(1)[0][0])
        for place, chip in zip_longest(ranked, order):
            if chip is not None:
                names[chip] = [(f"d{number}.s{len(ranked) if place is None else place}", 1.0)]
    return names


def _split(
    link: RawLink, names: Mapping[str, str], chips: Mapping[str, list[tuple[str, float]]]
) -> Iterator[tuple[str, str, float]]:
    """Yield what a link found is in the short form; a name that is not known stays."""
    a, b = link.between
    for one, part in chips.get(a, [(names.get(a, a), 1.0)]):
        for other, share in chips.get(b, [(names.get(b, b), 1.0)]):
            yield one, other, link.count * part * share


def _alike(found: _Found, wiring: Wiring, have: Floats, strays: Sequence[_Row]) -> bool:
    """Whether only links between switches differ, as many of each rate as are built: uplinks that do not divide."""
    above = wiring.is_kind(*SCALE_OUT_KINDS)
    below = ~(above[wiring.a] & above[wiring.b])
    built = np.stack([wiring.bytes_per_s, wiring.latency_s])
    if not (abs(have[:, below] / built[:, below] - 1) <= _SAME).all():
        return False
    if any(found.kinds[end] not in SCALE_OUT_KINDS for link, *_ in strays for end in link.between):
        return False
    links = (wiring.a, wiring.b, wiring.count, wiring.link_bytes_per_s)
    wanted = Counter(
        (frozenset((wiring.kinds[a], wiring.kinds[b])), count, rate)
        for a, b, count, rate in zip(*(part[~below].tolist() for part in links), strict=True)
    )
    seen = Counter(
        (frozenset(found.kinds[end] for end in link.between), link.count, _rate(link.fabric)[0])
        for link in found.links
        if found.levels.keys() >= set(link.between)
    )
    return wanted == seen
