"""The short form of what is regular: equal domains and a fabric of one kind, instead of every node and link.

A short form is only given where its graph is the one that was found, but for the names of hosts and switches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from topology.build import build_cluster, check_cluster
from topology.catalog import systems_of
from topology.errors import InputError
from topology.fabric_file import stand_in_latency
from topology.fabrics import check_scale_out
from topology.importers.assemble import Assembled
from topology.importers.found import FabricFound, NodeFound, Nodes
from topology.importers.parts import Parts, missing
from topology.spec import ClusterSpec, DomainSpec, FabricSpec, ScaleOutSpec
from topology.structures import check_domain
from topology.units import format_quantity


def regular_node(name: str, node: NodeFound, parts: Parts) -> ClusterSpec | None:
    """Return one host as one domain: every GPU alike on every switch chip, or a full mesh."""
    domain = _domain_of_node(node, parts)
    return None if domain is None else ClusterSpec(name, (domain,), None)


def unswitched(
    name: str, fabric: FabricFound, nodes: Nodes, groups: Mapping[str, Sequence[str]], parts: Parts
) -> ClusterSpec:
    """Return hosts that no file puts on switches, in the fabric of the system that the user named.

    Raises
    ------
    InputError
        If no system was named: then nothing says how its domains are cabled.
    """
    domains = []
    for hosts in groups.values():
        domain = _domain(nodes[hosts[0]], parts)
        if domain is None or any(nodes[host] is not nodes[hosts[0]] for host in hosts):
            raise InputError(
                f"{fabric.place}: names no switches, and its hosts differ; add the fabric's file."
            )
        domains.append(replace(domain, gpus=domain.gpus_per_node * len(hosts)))
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
            design = replace(
                design, fabric=_as_read(design.kind, nic), nic_links_per_gpu=parts.nics_per_gpu()
            )
        if parts.options.oversubscription is not None:
            design = replace(
                design, oversubscription=parts.oversubscription(), fabric=_as_read(design.kind, nic)
            )
    return check_cluster(ClusterSpec(name, tuple(domains), design), fabric.place)


def regular_fabric(
    name: str, fabric: FabricFound, nodes: Nodes, assembled: Assembled, parts: Parts
) -> tuple[ClusterSpec, list[str]] | None:
    """Return the short form and its hosts in order, None where the fabric is not regular."""
    hosts = list(nodes.values())
    if not hosts or any(node is not hosts[0] for node in hosts):
        return None
    domain = _domain(hosts[0], parts)
    sizes = {len(members) for members in assembled.domains.values()}
    if domain is None or len(sizes) != 1:
        return None
    domain = replace(domain, gpus=domain.gpus_per_node * sizes.pop())
    shape = _rail(fabric, assembled, parts) if fabric.switch_rails else _tree(fabric, assembled, domain)
    if shape is None:
        return None
    order, out = shape
    try:
        check_domain(domain, fabric.place)
        check_scale_out(out, fabric.place)
        spec = check_cluster(ClusterSpec(name, (domain,) * len(assembled.domains), out), fabric.place)
    except InputError:
        return None
    return (spec, order) if _same_graph(spec, assembled) else None


def _domain(node: NodeFound | None, parts: Parts) -> DomainSpec | None:
    """Return the domain that a host is in, or a part of: of its dump, else of the system."""
    if node is not None and node.gpus:
        return _domain_of_node(node, parts)
    system = parts.need_system()
    count = node.devices if node is not None else parts.gpus_per_node()
    return system if system.structure in ("switch", "mesh") and count == system.gpus_per_node else None


def _domain_of_node(node: NodeFound, parts: Parts) -> DomainSpec | None:
    """Return the domain of a dump whose GPUs are all linked alike, None where they are not."""
    count = len(node.gpus)
    if count < 2 or not node.links:
        return None
    system = parts.system
    if node.chips:
        per_chip: dict[str, set[int]] = defaultdict(set)
        for gpu, chip, links in node.links:
            per_chip[chip if gpu in node.gpus else gpu].add(links)
        if len(node.links) != count * len(node.chips) or any(len(links) != 1 for links in per_chip.values()):
            return None
        chips = tuple(links.pop() for links in per_chip.values())
        if system is not None and system.structure == "switch" and sum(chips) == system.links_per_gpu:
            if node.hidden or sorted(chips) == sorted(system.links_per_switch):
                chips = system.links_per_switch
        elif node.hidden:
            return None
        return _as_part(parts, count, "switch", chips)
    pairs = {frozenset((a, b)): links for a, b, links in node.links}
    if len(pairs) != count * (count - 1) // 2 or len(set(pairs.values())) != 1:
        return None
    return _as_part(parts, count, "mesh", links_per_neighbour=next(iter(pairs.values())))


_SAME = attrgetter("structure", "links_per_switch", "links_per_neighbour", "fabric.link_bytes_per_s")


def _as_part(
    parts: Parts,
    gpus: int,
    structure: str,
    links_per_switch: tuple[int, ...] = (),
    links_per_neighbour: int = 0,
) -> DomainSpec:
    """Return the named system where the dump is exactly its host, else a domain as a cluster file describes it."""
    fabric, system = parts.scale_up, parts.system
    domain = DomainSpec(
        part="custom",
        title=f"domain of {gpus} {parts.gpu.title}",
        status="user",
        gpu=parts.gpu,
        gpus=gpus,
        gpus_per_node=gpus,
        structure=structure,
        fabric=replace(fabric, name=f"scale-up {format_quantity(fabric.link_bytes_per_s.value, 'byte/s')}"),
        links_per_switch=links_per_switch,
        nodes_per_rack=1,
        links_per_neighbour=links_per_neighbour,
    )
    if system is None or parts.named_system is None or system.gpus_per_node != gpus:
        return domain
    return replace(system, gpus=gpus) if _SAME(system) == _SAME(domain) else domain


def _rail(fabric: FabricFound, assembled: Assembled, parts: Parts) -> tuple[list[str], ScaleOutSpec] | None:
    """Return rails: in each pod one leaf a rail, every host on all of them, leaves evenly on all spines.

    That links are as many and as fast as in such a fabric is seen when its graph is compared.
    """
    size = set(Counter(fabric.pods.values()).values())
    spines = sum(level == 2 for level in fabric.switches.values())
    count = fabric.trunks[0].count if fabric.trunks else None
    rate = fabric.ports[0].rate
    if len(size) != 1 or not spines or rate is None or count is None:
        return None
    number = {node.id: node.rail for node in assembled.raw.nodes if node.kind == "gpu"}
    pairs = [link.between for link in assembled.raw.links if link.between[1] in fabric.switch_rails]
    if any(a in number and number[a] != fabric.switch_rails[leaf] for a, leaf in pairs):
        return None
    per_pod = size.pop()
    place = {pod: number for number, pod in enumerate(dict.fromkeys(fabric.pods.values()))}
    by_pod = sorted(assembled.domains.values(), key=lambda hosts: place.get(fabric.pods.get(hosts[0], ""), 0))
    order = [host for hosts in by_pod for host in hosts]
    return order, ScaleOutSpec(
        kind="rail",
        fabric=_as_read("rail", parts.nic(rate)),
        nic_links_per_gpu=1,
        nodes_per_pod=per_pod,
        spines=spines,
        oversubscription=per_pod / (count * spines),
    )


def _tree(
    fabric: FabricFound, assembled: Assembled, domain: DomainSpec
) -> tuple[list[str], ScaleOutSpec] | None:
    """Return a leaf-spine of two levels, or a fat tree of three with one spine a pod and one core."""
    levels = fabric.switches
    parents: dict[str, list[str]] = defaultdict(list)
    for trunk in fabric.trunks:
        lower, upper = sorted(trunk.ends, key=levels.__getitem__)
        parents[lower].append(upper)
    on_leaf: dict[str, list[str]] = defaultdict(list)
    for port in fabric.ports:
        on_leaf[port.switch].append(port.host)
    leaves = [name for name, level in levels.items() if level == 1]
    per_leaf = {len(on_leaf[name]) for name in leaves}
    if any(port.nic for port in fabric.ports) or len(per_leaf) != 1:
        return None
    nic = next((link for link in assembled.raw.links if link.between[1] in levels), None)
    up = sum(link.count for link in assembled.raw.links if link.between[0] == leaves[0])
    if nic is None or up == 0:
        return None
    hosts = per_leaf.pop()
    down = hosts * domain.gpus_per_node * nic.count
    base = ScaleOutSpec("leaf-spine", _as_read("leaf-spine", nic.fabric), nic.count, hosts, 1, down / up)
    top = max(levels.values())
    if top == 2 and all(set(parents[leaf]) == set(parents[leaves[0]]) for leaf in leaves):
        out = replace(base, spines=len(parents[leaves[0]]))
        return _order(leaves, on_leaf, assembled), out
    if top != 3 or any(len(above) != 1 for above in parents.values()):
        return None
    pods: dict[str, list[str]] = defaultdict(list)
    for leaf in leaves:
        pods[parents[leaf][0]].append(leaf)
    per_pod = len(next(iter(pods.values())))
    if any(len(pod) != per_pod for pod in pods.values()):
        return None
    out = replace(
        base,
        kind="fat-tree",
        fabric=_as_read("fat-tree", nic.fabric),
        nodes_per_pod=hosts * per_pod,
        leaves_per_pod=per_pod,
        cores=1,
    )
    return _order([leaf for pod in pods.values() for leaf in pod], on_leaf, assembled), out


def _order(leaves: Sequence[str], on_leaf: Mapping[str, list[str]], assembled: Assembled) -> list[str]:
    """Return hosts leaf by leaf, the hosts of a domain together."""
    domain_of = {host: label for label, hosts in assembled.domains.items() for host in hosts}
    order: dict[str, None] = {}
    for leaf in leaves:
        for host in on_leaf[leaf]:
            order.update(dict.fromkeys(assembled.domains[domain_of[host]]))
    return list(order)


def _as_read(kind: str, nic: FabricSpec) -> FabricSpec:
    """Return a NIC as a cluster file describes it: by the kind of fabric and its rate."""
    figure = nic.link_bytes_per_s
    text = figure.text or format_quantity(figure.value, "byte/s", 12)
    return FabricSpec(
        f"{kind} {text}", "scale-out", replace(figure, text=text), stand_in_latency(scale_up=False)
    )


def _same_graph(spec: ClusterSpec, assembled: Assembled) -> bool:
    """Whether the short form has as many nodes of each kind, and links of each rate between kinds, as was found."""
    graph = build_cluster(spec).graph
    kinds: dict[str, str] = {node: data["kind"] for node, data in graph.nodes(data=True)}
    built: Counter[tuple[str, str, int, float]] = Counter()
    for a, b, data in graph.edges(data=True):
        low, high = sorted((kinds[a], kinds[b]))
        built[low, high, data["count"], data["link_bytes_per_s"]] += 1
    found_kinds = {node.id: node.kind for node in assembled.raw.nodes}
    found: Counter[tuple[str, str, int, float]] = Counter()
    for link in assembled.raw.links:
        low, high = sorted(found_kinds[end] for end in link.between)
        found[low, high, link.count, link.fabric.link_bytes_per_s.value] += 1
    return built == found and Counter(kinds.values()) == Counter(found_kinds.values())
