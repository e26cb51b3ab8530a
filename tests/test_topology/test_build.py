"""Clusters as built: links counted by hand, the contract of the graph, and what holds for every shape and size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_contract import validate_graph
from helpers import domain_like, fabric_like, link_loads, nodes_of_kind, rate_to
from topology import ClusterSpec, InputError, build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.base.schema import changed
from topology.build import check_cluster
from topology.cluster import Cluster
from topology.fabrics.fabric import ScaleOutSpec
from topology.physical import physical_of_whole
from topology.routes import pattern_traffic
from topology.scale_out import leaves_and_pods
from topology.structures.nested import NestedDomain

# Tori, and groups in groups


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3))
def test_every_torus(sides: list[tuple[int, bool]]) -> None:
    shape, wrap = tuple(size for size, _ in sides), tuple(flag for _, flag in sides)
    sizes: dict[str, Any] = {"shape": shape, "wrap": wrap, "node_shape": (1,) * len(shape), "rack_shape": ()}
    domain = changed(load_domain("tpu-v5p"), "test", gpus=prod(shape), gpus_per_node=1, **sizes)
    graph = build_cluster(ClusterSpec("one", (domain,), None)).graph
    validate_graph(graph)
    assert len(graph) == prod(shape)
    assert nx.is_connected(graph)
    # each dimension is prod/size lines of size - 1 links, or rings of size links
    links = sum(
        prod(shape) // size * (0 if size == 1 else size if ring else size - 1) for size, ring in sides
    )
    assert sum(count for _, _, count in graph.edges(data="count")) == links
    degrees = Counter(sum(graph.edges[gpu, other]["count"] for other in graph[gpu]) for gpu in graph)
    assert max(degrees) == domain.links_per_gpu or any(size == 2 and not ring for size, ring in sides)
    if all(wrap):
        assert set(degrees) == {domain.links_per_gpu}
        assert {rate_to(graph, gpu, "gpu") for gpu in graph} <= {domain.scale_up_bytes_per_s}


def nested(members: tuple[int, ...], links: tuple[int, ...], gpus: int, per_node: int = 1) -> NestedDomain:
    known = {"part": "custom", "nodes_per_rack": None, "members": members, "links_per_member": links}
    domain = domain_like(load_domain("hgx-h100"), "nested", gpus=gpus, gpus_per_node=per_node, **known)
    assert isinstance(domain, NestedDomain)
    return domain


def built(domain: NestedDomain) -> Cluster:
    return build_cluster(ClusterSpec("nested", (domain,), None))


def test_boardfly_is_as_google_says() -> None:
    # boards of four in a ring, eight boards with 11 of their 16 outer links, 36 groups with 40 of theirs
    cluster = built(nested((4, 8, 36), (2, 11, 40), 1152, 2))
    graph = cluster.graph
    validate_graph(graph)
    counts = Counter[str]()
    for a, b, data in graph.edges(data=True):
        near, far = (int(end.split(".n")[1].split(".")[0]) for end in (a, b))
        level = "board" if near // 2 == far // 2 else "group" if near // 16 == far // 16 else "pod"
        counts[level] += data["count"]
    # 288 boards of 4 links, 36 groups of 8 x 11 / 2, and 36 x 40 / 2 between them
    assert counts == {"board": 1152, "group": 1584, "pod": 720}
    assert {degree for _, degree in graph.degree(weight="count")} == {6}
    assert nx.diameter(graph) == 7


def test_parts_are_whole_members() -> None:
    domain = nested((4, 8), (2, 11), 32, 2)
    ring, boards = domain.cut(2), domain.cut(12)
    assert (ring.links_per_gpu, boards.gpus, boards.gpus_per_node) == (1, 12, 2)
    # three boards with two links between each two, and a ring in each
    assert built(boards).graph.number_of_edges() == 3 * 4 + 3 * 2
    with pytest.raises(InputError, match="12 or 16"):
        domain.cut(14)


@pytest.mark.parametrize(
    ("members", "links", "gpus", "message"),
    [
        ((4,), (2, 3), 4, "1 levels and links_per_member 2"),
        ((1, 4), (1, 3), 4, "at least 2 are a group"),
        ((3, 3), (1, 6), 9, "use 2 to"),
        ((3, 3), (3, 6), 9, "leave one end over; use 2"),
        ((4, 4), (2, 3), 14, "use 12 or 16"),
        ((4, 4), (2, 1025), 16, "1025 in level 2 of 4 members; use 2 to 1,024"),
        ((200, 200), (199, 199), 40_000, "at most 16,384"),
    ],
)
def test_what_cannot_be_linked_is_refused(
    members: tuple[int, ...], links: tuple[int, ...], gpus: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        nested(members, links, gpus)


# Switches, and fabrics between domains


def test_two_tiers_by_hand() -> None:
    graph = resolve_cluster("cm384").graph
    chips = nodes_of_kind(graph, "switch")
    lower = [chip for chip in chips if graph.nodes[chip]["node"] is not None]
    upper = [chip for chip in chips if graph.nodes[chip]["node"] is None]
    assert (len(lower), len(upper)) == (336, 112)
    assert {rate_to(graph, gpu, "switch") for gpu in nodes_of_kind(graph, "gpu")} == {196e9}
    assert (
        {rate_to(graph, chip, "gpu") for chip in lower}
        == {rate_to(graph, chip, "switch") for chip in lower}
        == {448e9}
    )
    assert {graph.degree(chip) for chip in upper} == {48}
    assert all(graph.nodes[a]["plane"] == graph.nodes[b]["plane"] for a, b in graph.subgraph(chips).edges)


def with_fabric(hosts: int, scale_out: ScaleOutSpec, part: str = "hgx-h100") -> Cluster:
    spec = ClusterSpec("x", (load_domain(part),) * hosts, scale_out)
    return build_cluster(check_cluster(spec, "test"))


def fabric(kind: str, **sizes: float) -> ScaleOutSpec:
    return fabric_like(load_scale_out("hgx-h100"), kind, **{"oversubscription": 1.0, **sizes})


def test_fat_tree_by_hand() -> None:
    # 8 hosts, one a leaf, two leaves and four spines a pod, two cores above each spine
    sizes = {"nodes_per_pod": 2, "leaves_per_pod": 2, "spines": 4, "cores": 2, "core_oversubscription": 1.0}
    tree = fabric("fat-tree", oversubscription=2.0, **sizes)
    graph = with_fabric(8, tree).graph
    kinds = Counter(kind for _, kind in graph.nodes(data="kind"))
    assert kinds == {"gpu": 64, "switch": 32, "leaf": 8, "spine": 16, "core": 8}
    assert rate_to(graph, "f.p1.l0", "spine") == 4 * 50e9
    assert rate_to(graph, "f.p1.s3", "leaf") == rate_to(graph, "f.p1.s3", "core") == 2 * 50e9
    assert set(graph["f.p1.s3"]) == {"f.p1.l0", "f.p1.l1", "f.c3.0", "f.c3.1"}
    assert {graph.nodes[n]["pod"] for n in graph["f.c3.1"]} == {0, 1, 2, 3}


def test_dragonfly_by_hand() -> None:
    # three groups of four routers with one host each: 32 global links a group, 16 to each other group
    fly = fabric("dragonfly", nodes_per_pod=4, leaves_per_pod=4, local_links=3)
    graph = with_fabric(12, fly).graph
    routers = nodes_of_kind(graph, "router")
    assert len(routers) == 12
    pod = dict(graph.nodes(data="pod"))
    local, between, far = Counter[int](), Counter[frozenset[int]](), Counter[str]()
    for a, b, count in graph.subgraph(routers).edges(data="count"):
        if pod[a] == pod[b]:
            local[count] += 1
        else:
            between[frozenset((pod[a], pod[b]))] += count
            far.update({a: count, b: count})
    assert local == {3: 3 * 6}
    assert set(between.values()) == {16}
    assert set(far.values()) == {8}


@pytest.mark.parametrize("kind", ["rail", "leaf-spine", "fat-tree", "dragonfly"])
def test_leaves_are_those_that_gpus_are_cabled_to(kind: str) -> None:
    host, rack = load_domain("hgx-h100"), replace(load_domain("gb200-nvl72"), gpus=12)
    own = {"fat-tree": {"leaves_per_pod": 2, "spines": 1, "cores": 2}, "dragonfly": {"leaves_per_pod": 2}}
    out = fabric_like(load_scale_out("hgx-h100"), kind, nodes_per_pod=4, **own.get(kind, {"spines": 1}))
    cluster = build_cluster(ClusterSpec("x", (host, host, rack, host, rack), out))
    leaves, pods = leaves_and_pods(cluster.spec, cluster.gpus)
    cabled = [
        {end for end in cluster.graph[gpu.id] if cluster.graph.nodes[end]["kind"] in ("leaf", "router")}
        for gpu in cluster.gpus
    ]
    for i, j in combinations(range(len(leaves)), 2):
        if kind != "rail" or cluster.gpus[i].rail == cluster.gpus[j].rail:
            assert (leaves[i] == leaves[j]) == (cabled[i] == cabled[j])
    for pod, ends in zip(pods, cabled, strict=True):
        assert {cluster.graph.nodes[end]["pod"] for end in ends} == {pod}


# NICs with planes: as many networks side by side


FABRICS = {
    "rail": {"nodes_per_pod": 2, "spines": 2},
    "leaf-spine": {"nodes_per_leaf": 2, "spines": 2},
    "fat-tree": {"nodes_per_leaf": 1, "leaves_per_pod": 2, "spines": 2},
    "dragonfly": {"nodes_per_router": 1, "routers_per_group": 2},
}


def four_hosts(kind: str, **nics: object) -> Cluster:
    fabric = {"kind": kind, **FABRICS[kind], **nics}
    return resolve_cluster({"name": "twin", "domains": [{"part": "hgx-b300", "count": 4}], "fabric": fabric})


@pytest.mark.parametrize("kind", FABRICS)
def test_each_plane_is_the_fabric_with_a_part_of_the_nics(kind: str) -> None:
    both = four_hosts(kind, nic="400 Gb/s", nics_per_gpu=2, planes=2)
    single = four_hosts(kind, nic="400 Gb/s")
    gpus = {gpu.id for gpu in both.gpus}
    outer = [node for node, data in both.graph.nodes(data=True) if data["domain"] is None]
    parts = list(nx.connected_components(both.graph.subgraph(outer)))
    assert len(parts) == 2
    for number, part in enumerate(sorted(parts, key=min)):
        assert all(node.startswith(f"f{number}.") for node in part)
        plane = both.graph.subgraph(part | gpus)
        names = {node: f"f{node[2:]}" if node in part else node for node in plane}
        assert nx.utils.graphs_equal(nx.relabel_nodes(plane, names), single.graph.subgraph(names.values()))
    assert both.spec.scale_out is not None
    assert both.spec.scale_out.scale_out_bytes_per_s == 100e9
    # bytes go as over one network twice as fast
    fast = four_hosts(kind, nic="800 Gb/s")
    matrix = np.random.default_rng(1).random((32, 32)) * 1e6 * (1 - np.eye(32))
    for sent in (matrix, pattern_traffic("all-to-all", 32, 1e6)):
        assert link_loads(both, sent).transfer_s == pytest.approx(link_loads(fast, sent).transfer_s, rel=1e-9)
    # and all that is between hosts is there twice
    two, one = physical_of_whole(both), physical_of_whole(single)
    assert two.optical_links == 2 * one.optical_links
    assert two.switches == {kind: count * (1 + (kind != "switch")) for kind, count in one.switches.items()}
