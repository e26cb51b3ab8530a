"""From what was found and what the user named to a raw graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

from networkx.utils import UnionFind

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.base.units import format_quantity, plural
from topology.build import GPUS
from topology.catalog import systems_of
from topology.graph import INSIDE_KINDS, SCALE_UP_KINDS
from topology.importers.found import (
    FabricFound,
    GraphFound,
    NodeFound,
    Nodes,
    TrunkFound,
    commonest,
    switch_kind,
)
from topology.importers.hosts import Draft, add_domain, gpu_count, links_of_gpus
from topology.importers.merge import domains_of
from topology.importers.nics import add_nics, check_nics
from topology.importers.parts import Parts, ask_all
from topology.spec import FabricSpec, RawNode, RawTopology


@dataclass(frozen=True)
class Assembled:
    """A raw graph and the hosts of each domain."""

    raw: RawTopology
    domains: dict[str, list[str]]


def assemble_node(node: NodeFound, parts: Parts) -> Assembled:
    """Return the graph of one host, or of as much of a domain as one host shows."""
    ask_all(
        node.place,
        lambda: parts.gpu,
        *([] if node.link_kind == "pcie" and node.gpus else [lambda: parts.scale_up]),
    )
    draft = Draft()
    host = node.hosts[0] if node.hosts else "node0"
    node = linked_as(node, parts)
    _check_count(node, host, parts)
    add_domain(draft, host, {host: node}, parts)
    system, gpus = parts.system, gpu_count(node, parts)
    rack_scale = system is not None and system.gpus > system.gpus_per_node
    if system is not None and rack_scale and system.gpus > gpus and node.hidden:
        parts.anomalies.append(
            f"{node.place}: {gpus} GPUs of a domain that in {system.part} has {system.gpus}: the other hosts are not "
            "in this file; add a Slurm block file or the fabric's."
        )
    elif node.beyond and system is None:
        parts.anomalies.append(
            f"{node.place}: its links go to switches that may join other hosts, which this file does not show."
        )
    if not node.gpus:
        parts.anomalies.append(
            f"{node.place}: 0 GPUs, {node.devices} PCI devices taken as GPUs; their links are the catalog's."
        )
    if node.nics:
        parts.take(
            f"{plural(len(node.nics), 'NIC port')} without a cable in this file: left out; add the fabric's file "
            "(Slurm topology, ibnetdiscover, ...) to join them."
        )
    return Assembled(draft.topology(), {host: [host]})


def assemble_fabric(fabric: FabricFound, nodes: Nodes, parts: Parts) -> Assembled:
    """Return the graph of a fabric and the hosts on it; where no file names switches, of the hosts alone."""
    _ask(fabric, nodes, parts)
    gpus = sum(gpu_count(node, parts) for node in nodes.values())
    if gpus > GPUS:
        raise InputError(
            f"{fabric.place}: {plural(len(nodes), 'host')} with {gpus:,} GPUs; at most {GPUS:,} are "
            "imported. Name those that have GPUs with option `hosts`, or write the cluster as a YAML of parts."
        )
    dumps = {id(node): linked_as(node, parts) for node in nodes.values() if node is not None}
    nodes = {host: node and dumps[id(node)] for host, node in nodes.items()}
    for host, node in nodes.items():
        if node is not None:
            _check_count(node, host, parts)
    check_nics(fabric, nodes, parts)
    domains = domains_of(fabric, nodes, parts)
    draft = Draft()
    for label, hosts in domains.items():
        add_domain(draft, label, {host: nodes[host] for host in hosts}, parts)
    for name, level in fabric.switches.items():
        draft.node(RawNode(name, switch_kind(level), rail=fabric.switch_rails.get(name)))
    _put_in_racks(draft, parts)
    add_nics(draft, fabric, nodes, parts)
    _add_trunks(draft, fabric, parts)
    _join_tops(draft, fabric, parts)
    return Assembled(draft.topology(), domains)


def linked_as(node: NodeFound, parts: Parts) -> NodeFound:
    """Return a host with the links that its GPUs can have: equal bundles to all peers may be all that they have.

    Raises
    ------
    InputError
        If its GPUs have other links than those that the user named.
    """
    per = links_of_gpus(node)
    peers = [link for link in node.links if link[0] in per and link[1] in per]
    if node.hidden and not node.beyond and node.kind == "topo-m":
        every = parts.system.links_per_gpu if parts.system else 0
        bundle, others = max(per.values()), len(per) - 1
        if set(per.values()) == {bundle} and bundle != every == bundle * others:
            links = tuple((a, b, bundle) for a, b in combinations(node.gpus, 2))
            return replace(node, chips=(), links=links, hidden=False)
    parts.check_links(node.place, list(per.values()), kind=node.link_kind, to_peers=bool(peers))
    return node


def _put_in_racks(draft: Draft, parts: Parts) -> None:
    """Give hosts that share a domain the racks that the catalog's system of these GPUs has, in their order."""
    system = parts.system
    if system is None or system.gpus == system.gpus_per_node:
        return
    per_rack = system.gpus_per_node * system.nodes_per_rack
    by_host: dict[str, dict[str, list[RawNode]]] = defaultdict(lambda: defaultdict(list))
    for node in draft.nodes.values():
        if node.kind == "gpu" and node.rack is None and node.domain is not None and node.node is not None:
            by_host[node.domain][node.node].append(node)
    placed = False
    for domain, hosts in by_host.items():
        before = 0
        for members in hosts.values() if len(hosts) > 1 else ():
            rack = f"{domain}.r{before // per_rack}"
            draft.nodes.update({node.id: replace(node, rack=rack) for node in members})
            before += len(members)
            placed = True
    if placed:
        parts.take(f"Racks: {per_rack} GPUs of one domain in each: catalog system {system.part}.")


def _check_count(node: NodeFound, host: str, parts: Parts) -> None:
    """Refuse a dump with another number of GPUs than the user says."""
    wanted, has = parts.options.gpus_per_node, gpu_count(node, parts)
    if wanted is not None and has != wanted:
        raise InputError(f"{node.place}: {host} has {has} GPUs, but option `gpus_per_node` says {wanted}.")


def _ask(fabric: FabricFound, nodes: Nodes, parts: Parts) -> None:
    """Ask for everything that is missing, in one line."""
    needs: list[Callable[[], object]] = [lambda: parts.gpu]
    bare = any(node is None for node in nodes.values())
    if bare:
        needs += [parts.gpus_per_node, *([parts.need_system] if parts.options.gpu else [])]
    if parts.options.gpu and not all(
        node is not None and node.link_kind == "pcie" for node in nodes.values()
    ):
        needs.append(lambda: parts.scale_up)
    if parts.options.gpu and not bare:
        needs.append(lambda: domains_of(fabric, nodes, parts))
    own_rates = all(node is not None and any(nic.rate for nic in node.nics) for node in nodes.values())
    if any(port.rate is None for port in fabric.ports) and not own_rates:
        needs.append(parts.nic)
    if any(trunk.count is None for trunk in fabric.trunks):
        needs.append(parts.oversubscription)
    if tops := _tops(fabric):
        needs.append(lambda: parts.join_leaves(len(tops)))
    ask_all(fabric.place, *needs)


def _add_trunks(draft: Draft, fabric: FabricFound, parts: Parts) -> None:
    """Add links between switches: as counted, else as many as the rate below them asks for."""
    for trunk in fabric.trunks:
        if trunk.count is not None and trunk.rate is not None:
            draft.link(*trunk.ends, parts.out_fabric(trunk.rate), trunk.count)
    if rest := [trunk for trunk in fabric.trunks if trunk.count is None]:
        _sized_trunks(draft, fabric, rest, parts)


def _sized_trunks(draft: Draft, fabric: FabricFound, trunks: list[TrunkFound], parts: Parts) -> None:
    """Size uplinks from the rate below a switch: over the oversubscription at leaves, in full above them."""
    ratio = parts.oversubscription()
    down: dict[str, float] = defaultdict(float)
    one: dict[str, FabricSpec] = {}
    for link in draft.topology().links:
        for end in link.between:
            if end in fabric.switches:
                down[end] += link.count * link.fabric.link_bytes_per_s.value
                one[end] = link.fabric
    above: dict[str, list[TrunkFound]] = defaultdict(list)
    for trunk in trunks:
        lower, upper = trunk.ends
        above[lower if fabric.switches[lower] <= fabric.switches[upper] else upper].append(trunk)
    for name in sorted(above, key=lambda switch: fabric.switches[switch]):
        own = above[name]
        rate = down[name] / (ratio if fabric.switches[name] == 1 else 1.0)
        if rate <= 0:
            continue
        share = rate / len(own)
        for trunk in own:
            upper = trunk.ends[1] if trunk.ends[0] == name else trunk.ends[0]
            fabric_one, count = _links_of(share, one.get(name), parts)
            draft.link(name, upper, fabric_one, count)
            down[upper] += share
            one.setdefault(upper, fabric_one)


def _join_tops(draft: Draft, fabric: FabricFound, parts: Parts) -> None:
    """Put one switch over those that nothing joins, as the user says."""
    tops = _tops(fabric)
    if not tops:
        return
    rate = parts.join_leaves(len(tops))
    root = "root"
    while root in draft.nodes:
        root += "+"
    draft.node(RawNode(root, switch_kind(1 + max(fabric.switches[name] for name in tops))))
    below = {link.between[1]: link.fabric for link in draft.topology().links}
    for name in tops:
        own = below.get(name)
        count = rate.value / own.link_bytes_per_s.value if own else 0.0
        if own is not None and round(count) >= 1 and abs(count - round(count)) < 1e-6:
            draft.link(name, root, own, round(count))
        else:
            draft.link(name, root, parts.out_fabric(rate))


def _tops(fabric: FabricFound) -> list[str]:
    """Return the highest switches of a fabric that falls apart, none of one that hangs together."""
    joined: UnionFind[str] = UnionFind()
    for port in fabric.ports:
        joined.union(f"host {port.host}", f"switch {port.switch}")
    for trunk in fabric.trunks:
        joined.union(*(f"switch {end}" for end in trunk.ends))
    below = {joined[f"host {port.host}"] for port in fabric.ports}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in fabric.switches:
        if (group := joined[f"switch {name}"]) in below:
            groups[group].append(name)
    highest = {group: max(fabric.switches[name] for name in own) for group, own in groups.items()}
    tops = [name for group, own in groups.items() for name in own if fabric.switches[name] == highest[group]]
    return tops if len(groups) > 1 else []


def _links_of(rate: float, below: FabricSpec | None, parts: Parts) -> tuple[FabricSpec, int]:
    """Return links of ``rate`` in all: whole links like those below, else one."""
    if below is not None:
        count = rate / below.link_bytes_per_s.value
        if round(count) >= 1 and abs(count - round(count)) < 1e-6:
            return below, round(count)
    text = format_quantity(rate, "byte/s", 12)
    figure = Figure(rate, "byte/s", Evidence.DERIVED, "downlinks over the oversubscription", text)
    return parts.out_fabric(figure), 1


def assemble_graph(graph: GraphFound, parts: Parts) -> Assembled:
    """Return the graph of a file that has every node and link but what the GPUs are.

    A link between GPUs and switch chips that runs at the catalog's rate for them is the catalog's.
    """
    ask_all(graph.place, lambda: parts.gpu)
    kinds = {node.id: node.kind for node in graph.nodes}
    own = {one.fabric.link_bytes_per_s.value: one.fabric for one in systems_of(parts.gpu.name)}
    draft = Draft()
    domains: dict[str, dict[str, None]] = defaultdict(dict)
    per: Counter[str] = Counter()
    for node in graph.nodes:
        draft.node(replace(node, gpu=parts.gpu) if node.kind == "gpu" else node)
        if node.kind == "gpu" and node.domain is not None and node.node is not None:
            domains[node.domain][node.node] = None
    for a, b, count, rate in graph.links:
        ends = {kinds[a], kinds[b]}
        scale_up = ends <= set(SCALE_UP_KINDS)
        if scale_up and rate.value in own:
            fabric = own[rate.value]
        elif scale_up or ends & set(INSIDE_KINDS):
            fabric = parts.inner_fabric("scale-up" if scale_up else "pcie", rate, scale_up=scale_up)
        else:
            fabric = parts.out_fabric(rate)
        draft.link(a, b, fabric, count)
        per.update({end: count * rate.value for end in (a, b) if scale_up and kinds[end] == "gpu"})
    usual = commonest(per.values())
    parts.check_links(graph.place, [1] if usual else [], bytes_per_s=usual or 0.0)
    _put_in_racks(draft, parts)
    return Assembled(draft.topology(), {label: list(hosts) for label, hosts in domains.items()})
