"""Fabrics between domains (rail, leaf-spine, fat-tree, dragonfly): what each must satisfy, and how it is cabled.

A leaf has the uplinks that its full set of hosts needs, over the oversubscription, whether or not it is full. Hosts
fill leaves, pods and groups in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, groupby
from typing import TYPE_CHECKING, NamedTuple

from topology.cluster import Gpu
from topology.errors import InputError
from topology.graph import edge_attributes, node_attributes
from topology.spec import ClusterSpec, ScaleOutSpec
from topology.structures import cable, check_even

if TYPE_CHECKING:
    import networkx as nx


LARGEST_FABRIC = 4_000_000  # switches, or links between the routers of all groups


class Fabric(NamedTuple):
    """How one kind is checked against a whole cluster (its specification, its fabric, place) and cabled.

    Cabling adds switches, the links of each GPU's NICs, and the links between switches.
    """

    check: Callable[[ClusterSpec, ScaleOutSpec, str], object]
    add: Callable[[nx.Graph[str], ClusterSpec, ScaleOutSpec, Sequence[Gpu]], None]


def check_scale_out(scale_out: ScaleOutSpec, where: str) -> ScaleOutSpec:
    """Return ``scale_out`` if it can be cabled.

    Raises
    ------
    InputError
        If its kind is not supported, or its oversubscription leaves no whole number of uplinks.
    """
    kind = scale_out.kind
    if kind == "raw":
        return scale_out
    if kind not in FABRICS:
        raise InputError(f"{where}: fabric kind {kind!r} is not known; {', '.join(FABRICS)} are.")
    if kind != "dragonfly" and scale_out.spines < 1:
        raise InputError(f"{where}: a {kind} fabric needs at least one spine.")
    if kind != "fat-tree" and (scale_out.cores or scale_out.core_oversubscription != 1):
        raise InputError(f"{where}: a {kind} fabric has no cores; only `fat-tree` has.")
    if scale_out.leaves_per_pod < 1 or scale_out.nodes_per_pod % scale_out.leaves_per_pod:
        raise InputError(
            f"{where}: {scale_out.nodes_per_pod} hosts of a pod do not fill {scale_out.leaves_per_pod} leaves evenly."
        )
    if kind == "rail":
        _check_reach(scale_out, uplinks_of_leaf(scale_out, where), where)
    return scale_out


def check_fabric(spec: ClusterSpec, where: str) -> None:
    """Check the fabric of a cluster against its hosts.

    Raises
    ------
    InputError
        If a leaf has no whole number of uplinks, or too few for all spines or groups, or there are too many switches.
    """
    out = spec.scale_out
    if out is None or out.kind not in FABRICS:
        return
    FABRICS[out.kind].check(spec, out, where)
    pods = -(-sum(domain.nodes for domain in spec.domains) // out.nodes_per_pod)
    # a dragonfly has most local links, a fat tree most spines and cores
    size = pods * out.leaves_per_pod**2 if out.kind == "dragonfly" else out.spines * (out.cores + pods)
    if size > LARGEST_FABRIC:
        raise InputError(
            f"{where}: some {size:,} switches or links between them; at most {LARGEST_FABRIC:,} are supported: check "
            "the sizes of its leaves, pods and groups."
        )


def largest_host(spec: ClusterSpec) -> int:
    """Return the GPUs of the largest host: what a leaf has ports for."""
    return max(domain.gpus_per_node for domain in spec.domains)


def uplinks_of_leaf(scale_out: ScaleOutSpec, where: str = "fabric", gpus_per_node: int = 1) -> int:
    """Return the uplinks of one leaf: the downlinks of a full set of hosts over the oversubscription.

    ``gpus_per_node`` is that of the largest host; a leaf of a rail fabric takes one GPU of each host.

    Raises
    ------
    InputError
        If that is not a whole number of at least one.
    """
    each = 1 if scale_out.kind == "rail" else gpus_per_node
    down = scale_out.nodes_per_leaf * each * scale_out.nic_links_per_gpu
    what = "a router" if scale_out.kind == "dragonfly" else "a leaf"
    return _uplinks(down, scale_out.oversubscription, what, where)


def uplinks_of_spine(scale_out: ScaleOutSpec, where: str = "fabric", gpus_per_node: int = 1) -> int:
    """Return the uplinks of one spine of a fat tree: its downlinks in a full pod over its oversubscription.

    Raises
    ------
    InputError
        If that is not a whole number of at least one.
    """
    uplinks = uplinks_of_leaf(scale_out, where, gpus_per_node)
    check_even(uplinks, scale_out.spines, "a leaf", "spines of a pod", where)
    down = scale_out.leaves_per_pod * uplinks // scale_out.spines
    up = _uplinks(down, scale_out.core_oversubscription, "a spine", where)
    if scale_out.cores:
        check_even(up, scale_out.cores, "a spine", "cores above it", where)
    return up


def _uplinks(down: int, oversubscription: float, what: str, where: str) -> int:
    """Return ``down`` over ``oversubscription`` if that is a whole number."""
    uplinks = down / oversubscription
    if uplinks < 1 - 1e-9 or abs(uplinks - round(uplinks)) > 1e-6 * uplinks:
        some = sorted({down, max(1, down // 2), max(1, down // 3), 1}, reverse=True)
        raise InputError(
            f"{where}: oversubscription {oversubscription:g} leaves {uplinks:g} uplinks for {down} downlinks of "
            f"{what}; it must be a whole number (for instance {', '.join(f'{down / n:g}' for n in some)} do)."
        )
    return round(uplinks)


def _check_reach(scale_out: ScaleOutSpec, uplinks: int, where: str) -> None:
    """Refuse leaves that cannot reach every spine: two of them might share none."""
    if uplinks < scale_out.spines:
        raise InputError(
            f"{where}: a leaf has {uplinks} uplinks, too few for one to each of {scale_out.spines} spines; use at "
            f"most `spines: {uplinks}`."
        )


def _hosts(gpus: Sequence[Gpu]) -> list[list[str]]:
    """Return the ids of the GPUs of each host, hosts in order."""
    return [[gpu.id for gpu in members] for _, members in groupby(gpus, key=lambda gpu: gpu.node)]


def pods_of(spec: ClusterSpec) -> list[list[int]]:
    """Return the pod of each host, ``[domain][host]``, pods numbered in order.

    In a rail fabric, a domain that does not fit in what is left of a pod begins the next one, so a rack is never
    split between two sets of leaves; a domain larger than a pod takes several. In the others, hosts fill leaves
    and pods in order. Without a fabric all hosts are in pod 0.
    """
    if spec.scale_out is None or spec.scale_out.kind == "raw":
        return [[0] * domain.nodes for domain in spec.domains]
    size = spec.scale_out.nodes_per_pod
    pods: list[list[int]] = []
    used = 0
    for domain in spec.domains:
        left = -used % size
        if spec.scale_out.kind == "rail" and domain.nodes > left:
            used += left
        pods.append([(used + host) // size for host in range(domain.nodes)])
        used += domain.nodes
    return pods


def leaves_and_pods(spec: ClusterSpec, gpus: Sequence[Gpu]) -> tuple[list[int], list[int]]:
    """Return the number of each GPU's leaf (rail: of its pod's set of leaves; dragonfly: router), and of its pod.

    Without a fabric, or with a raw one, each domain counts as a leaf and a pod of its own.
    """
    out = spec.scale_out
    if out is None or out.kind == "raw":
        own = [gpu.domain for gpu in gpus]
        return own, own
    pods, before, hosts = pods_of(spec), 0, dict[str, tuple[int, int]]()
    for index, domain in enumerate(pods):
        for host, pod in enumerate(domain):
            leaf = pod if out.kind == "rail" else (before + host) // out.nodes_per_leaf
            hosts[f"d{index}.n{host}"] = leaf, pod
        before += len(domain)
    places = [hosts[gpu.node] for gpu in gpus]
    return [leaf for leaf, _ in places], [pod for _, pod in places]


def _add_rails(graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]) -> None:
    """GPU i of every host on leaf i of its pod, leaves cabled evenly to spine planes.

    A pod is ``nodes_per_pod`` hosts that share one leaf per rail (32 hosts of an HGX scalable unit, one NVL72
    rack). A spine here is a *plane*: one switch where the cluster is one reference unit, and in larger clusters the
    spine and core switches of that plane together, taken as non-blocking above the leaves. So rates are right at
    any size, and the extra hop of a core tier is not counted.
    """
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    host_pods = (pod for domain in pods_of(spec) for pod in domain)
    leaves: dict[tuple[int, int], str] = {}
    downlinks: list[tuple[str, str]] = []
    for pod, (_, members) in zip(host_pods, groupby(gpus, key=lambda gpu: gpu.node), strict=True):
        for gpu in members:
            leaf = leaves.setdefault((pod, gpu.rail), f"f.p{pod}.l{gpu.rail}")
            downlinks.append((gpu.id, leaf))
    for (pod, rail), leaf in leaves.items():
        graph.add_node(leaf, **node_attributes("leaf", pod=pod, rail=rail))
    spines = _add_spine_planes(graph, scale_out)
    graph.add_edges_from((gpu_id, leaf, nic) for gpu_id, leaf in downlinks)
    uplinks = uplinks_of_leaf(scale_out)
    for number, leaf in enumerate(leaves.values()):
        cable(graph, scale_out.fabric, leaf, spines, uplinks, number)


def _add_spine_planes(graph: nx.Graph[str], scale_out: ScaleOutSpec) -> list[str]:
    spines = [f"f.s{plane}" for plane in range(scale_out.spines)]
    for plane, spine in enumerate(spines):
        graph.add_node(spine, **node_attributes("spine", plane=plane))
    return spines


def _check_leaf_spine(spec: ClusterSpec, scale_out: ScaleOutSpec, where: str) -> None:
    _check_reach(scale_out, uplinks_of_leaf(scale_out, where, largest_host(spec)), where)


def _add_leaf_spine(
    graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]
) -> None:
    """All GPUs of a host on one leaf, leaves cabled evenly to spine planes."""
    hosts = _hosts(gpus)
    size = scale_out.nodes_per_leaf
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    uplinks = uplinks_of_leaf(scale_out, gpus_per_node=largest_host(spec))
    spines = _add_spine_planes(graph, scale_out)
    for number in range(-(-len(hosts) // size)):
        leaf = f"f.l{number}"
        graph.add_node(leaf, **node_attributes("leaf", pod=number))
        members = hosts[number * size : (number + 1) * size]
        graph.add_edges_from((gpu_id, leaf, nic) for host in members for gpu_id in host)
        cable(graph, scale_out.fabric, leaf, spines, uplinks, number)


def _add_fat_tree(
    graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]
) -> None:
    """Hosts on leaves, leaves and spines in pods, pods joined by cores.

    Every leaf of a pod is cabled evenly to every spine of its pod; spine i of every pod is cabled evenly to the
    cores of group i and to no others (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008). Uplinks are those of a full
    pod.
    """
    hosts = _hosts(gpus)
    largest, size = largest_host(spec), scale_out.nodes_per_leaf
    leaves = -(-len(hosts) // size)
    pods = -(-leaves // scale_out.leaves_per_pod)
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    cores = [[f"f.c{group}.{core}" for core in range(scale_out.cores)] for group in range(scale_out.spines)]
    spines = [[f"f.p{pod}.s{spine}" for spine in range(scale_out.spines)] for pod in range(pods)]
    for group, members in enumerate(cores):
        graph.add_nodes_from(members, **node_attributes("core", plane=group))
    for pod, own in enumerate(spines):
        for plane, spine in enumerate(own):
            graph.add_node(spine, **node_attributes("spine", pod=pod, plane=plane))
    uplinks = uplinks_of_leaf(scale_out, gpus_per_node=largest)
    for number in range(leaves):
        pod, place = divmod(number, scale_out.leaves_per_pod)
        leaf = f"f.p{pod}.l{place}"
        graph.add_node(leaf, **node_attributes("leaf", pod=pod))
        below = hosts[number * size : (number + 1) * size]
        graph.add_edges_from((gpu_id, leaf, nic) for host in below for gpu_id in host)
        cable(graph, scale_out.fabric, leaf, spines[pod], uplinks, place)
    if scale_out.cores:
        core_links = uplinks_of_spine(scale_out, gpus_per_node=largest)
        for pod, own in enumerate(spines):
            for spine, above in zip(own, cores, strict=True):
                cable(graph, scale_out.fabric, spine, above, core_links, pod)


def _check_dragonfly(spec: ClusterSpec, scale_out: ScaleOutSpec, where: str) -> None:
    """Refuse a dragonfly with more groups than a group has global links for."""
    uplinks = uplinks_of_leaf(scale_out, where, largest_host(spec))
    hosts = sum(domain.nodes for domain in spec.domains)
    groups, ports = -(-hosts // scale_out.nodes_per_pod), scale_out.leaves_per_pod * uplinks
    if groups - 1 > ports:
        raise InputError(
            f"{where}: a dragonfly of {groups} groups needs {groups - 1} global links from each, and a group has "
            f"{ports}; use larger groups (`routers_per_group`) or less oversubscription."
        )


def _add_dragonfly(
    graph: nx.Graph[str], spec: ClusterSpec, scale_out: ScaleOutSpec, gpus: Sequence[Gpu]
) -> None:
    """Groups of routers, all routers of a group linked to each other, all groups linked evenly.

    Kim, Dally, Scott and Abts, ISCA 2008: p terminals, a routers a group, h global links a router; balanced where
    a = 2p = 2h. Here p is the NIC links of a router's hosts and h is p over the oversubscription.
    """
    hosts = _hosts(gpus)
    size, width = scale_out.nodes_per_leaf, scale_out.leaves_per_pod
    groups = -(-len(hosts) // scale_out.nodes_per_pod)
    nic = edge_attributes(scale_out.fabric, scale_out.nic_links_per_gpu)
    local = edge_attributes(scale_out.fabric, max(1, scale_out.local_links))
    for group in range(groups):
        routers = [f"f.g{group}.r{number}" for number in range(width)]
        graph.add_nodes_from(routers, **node_attributes("router", pod=group))
        graph.add_edges_from((a, b, local) for a, b in combinations(routers, 2))
    for number, host in enumerate(hosts):
        group, router = divmod(number // size, width)
        graph.add_edges_from((gpu_id, f"f.g{group}.r{router}", nic) for gpu_id in host)
    ports = width * uplinks_of_leaf(scale_out, gpus_per_node=largest_host(spec))
    for (a, b), count in _global_links(groups, width, ports).items():
        graph.add_edge(a, b, **edge_attributes(scale_out.fabric, count))


def links_between_groups(groups: int, ports: int) -> dict[tuple[int, int], int]:
    """Return the global links between each two groups of a dragonfly, ``ports`` global links a group.

    Each pair gets the whole links that all can have; what is left goes to groups near each other on a ring, two
    at a time, so that all groups keep the same number. :func:`check_fabric` sees to it that each pair gets one.
    """
    if groups == 1:
        return {}
    each, left = divmod(ports, groups - 1)
    links = {}
    for a, b in combinations(range(groups), 2):
        apart = min(b - a, groups - b + a)
        opposite = 2 * apart == groups
        extra = left % 2 == 1 if opposite else apart <= left // 2
        links[a, b] = each + extra
    return links


def _global_links(groups: int, width: int, ports: int) -> Counter[tuple[str, str]]:
    """Return the global links between routers: a group's links dealt to its routers in turn."""
    links = links_between_groups(groups, ports)
    dealt = [0] * groups
    found: Counter[tuple[str, str]] = Counter()
    order = sorted(links, key=lambda pair: (min(pair[1] - pair[0], groups - pair[1] + pair[0]), pair))
    for a, b in order:
        for _ in range(links[a, b]):
            found[f"f.g{a}.r{dealt[a] % width}", f"f.g{b}.r{dealt[b] % width}"] += 1
            dealt[a] += 1
            dealt[b] += 1
    return found


FABRICS = {
    "rail": Fabric(lambda _spec, _scale_out, _where: None, _add_rails),  # whatever its hosts
    "leaf-spine": Fabric(_check_leaf_spine, _add_leaf_spine),
    "fat-tree": Fabric(
        lambda spec, scale_out, where: uplinks_of_spine(scale_out, where, largest_host(spec)), _add_fat_tree
    ),
    "dragonfly": Fabric(_check_dragonfly, _add_dragonfly),
}
