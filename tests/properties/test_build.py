"""Clusters as built: links counted by hand, the contract of the graph, and what holds for every shape and size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_contract import validate_graph
from helpers import domain_like, fabric_like, nodes_of_kind, rate_to
from topology import (
    ClusterSpec,
    DomainSpec,
    InputError,
    build_cluster,
    load_domain,
    load_scale_out,
    resolve_cluster,
)
from topology.base.schema import changed
from topology.build import check_cluster
from topology.fabrics.dragonfly import links_between_groups
from topology.fabrics.fabric import Hosts
from topology.fabrics.rail import RailFabric
from topology.scale_out import leaves_and_pods

if TYPE_CHECKING:
    from topology.cluster import Cluster
    from topology.fabrics.fabric import ScaleOutSpec


def torus(shape: tuple[int, ...], wrap: tuple[bool, ...], node: tuple[int, ...] | None = None) -> DomainSpec:
    block = node or (1,) * len(shape)
    return changed(
        load_domain("tpu-v5p"),
        "test",
        shape=shape,
        wrap=wrap,
        node_shape=block,
        rack_shape=(),
        gpus=prod(shape),
        gpus_per_node=prod(block),
    )


def alone(domain: DomainSpec) -> Cluster:
    return build_cluster(ClusterSpec("one", (domain,), None))


def test_torus_of_64_by_hand() -> None:
    cluster = resolve_cluster("tpu-v5p")
    graph = cluster.graph
    assert (len(graph), graph.number_of_edges()) == (64, 192)
    assert {degree for _, degree in graph.degree()} == {6}
    place = {gpu.id: graph.nodes[gpu.id]["coordinate"] for gpu in cluster.gpus}
    # host 0 is a 2 x 2 x 1 block, its GPUs with the last dimension fastest
    assert [place[f"d0.n0.g{g}"] for g in range(4)] == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    assert place["d0.n1.g0"] == (0, 0, 1)
    assert place["d0.n4.g0"] == (0, 2, 0)
    at = {coordinate: gpu for gpu, coordinate in place.items()}
    near = {place[other] for other in graph[at[0, 0, 0]]}
    assert near == {(1, 0, 0), (3, 0, 0), (0, 1, 0), (0, 3, 0), (0, 0, 1), (0, 0, 3)}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3))
def test_every_torus(sides: list[tuple[int, bool]]) -> None:
    shape, wrap = tuple(size for size, _ in sides), tuple(flag for _, flag in sides)
    domain = torus(shape, wrap)
    graph = alone(domain).graph
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


def test_leaf_spine_by_hand() -> None:
    # 5 hosts of 8, two on a leaf: three leaves; 16 downlinks, 4 uplinks at 4:1, over two spines; the last half full
    graph = with_fabric(5, fabric("leaf-spine", nodes_per_pod=2, spines=2, oversubscription=4.0)).graph
    assert len(nodes_of_kind(graph, "leaf")) == 3
    assert [graph.edges[leaf, "f.s0"]["count"] for leaf in nodes_of_kind(graph, "leaf")] == [2, 2, 1]
    assert rate_to(graph, "f.l0", "gpu") == 16 * 50e9
    assert rate_to(graph, "f.l2", "gpu") == 8 * 50e9
    assert rate_to(graph, "f.l2", "spine") == 2 * 50e9
    assert all(graph.has_edge(f"d1.n0.g{g}", "f.l0") for g in range(8))


def test_fat_tree_by_hand() -> None:
    # 8 hosts, one a leaf, two leaves and four spines a pod, two cores above each spine
    tree = fabric(
        "fat-tree",
        nodes_per_pod=2,
        leaves_per_pod=2,
        spines=4,
        cores=2,
        oversubscription=2.0,
        core_oversubscription=1.0,
    )
    graph = with_fabric(8, tree).graph
    assert Counter(data["kind"] for _, data in graph.nodes(data=True)) == {
        "gpu": 64,
        "switch": 32,
        "leaf": 8,
        "spine": 16,
        "core": 8,
    }
    assert rate_to(graph, "f.p1.l0", "spine") == 4 * 50e9
    assert rate_to(graph, "f.p1.s3", "leaf") == rate_to(graph, "f.p1.s3", "core") == 2 * 50e9
    assert set(graph["f.p1.s3"]) == {"f.p1.l0", "f.p1.l1", "f.c3.0", "f.c3.1"}
    assert {graph.nodes[n]["pod"] for n in graph["f.c3.1"]} == {0, 1, 2, 3}


def test_uplinks_are_those_that_the_hosts_need() -> None:
    # one host of 8 in the second pod of a fat tree: 4 uplinks of its leaf at 2:1, so one of each of 4 spines
    sizes = {"nodes_per_pod": 4, "leaves_per_pod": 2, "spines": 4, "cores": 2, "oversubscription": 2.0}
    graph = with_fabric(5, fabric("fat-tree", **sizes)).graph
    assert rate_to(graph, "f.p0.l0", "spine") == 8 * 50e9
    assert rate_to(graph, "f.p1.l0", "spine") == 4 * 50e9
    assert rate_to(graph, "f.p0.s0", "core") == 4 * 50e9
    assert rate_to(graph, "f.p1.s0", "core") == 2 * 50e9  # one link down, and one up to each of two cores
    # 32 NICs on eight rails: as many links go up
    graph = resolve_cluster("hgx-h100@32").graph
    assert sum(rate_to(graph, leaf, "spine") for leaf in nodes_of_kind(graph, "leaf")) == 32 * 50e9


def test_dragonfly_by_hand() -> None:
    # three groups of four routers with one host each: 32 global links a group, 16 to each other group
    fly = fabric("dragonfly", nodes_per_pod=4, leaves_per_pod=4, local_links=3)
    graph = with_fabric(12, fly).graph
    routers = nodes_of_kind(graph, "router")
    assert len(routers) == 12
    local = [
        graph.edges[e]["count"]
        for e in graph.subgraph(routers).edges
        if graph.nodes[e[0]]["pod"] == graph.nodes[e[1]]["pod"]
    ]
    assert (len(local), set(local)) == (3 * 6, {3})
    for router in routers:
        far = [o for o in graph[router] if graph.nodes[o]["pod"] not in (None, graph.nodes[router]["pod"])]
        assert sum(graph.edges[router, o]["count"] for o in far) == 8
    between = Counter(
        frozenset((graph.nodes[a]["pod"], graph.nodes[b]["pod"]))
        for a, b, count in graph.subgraph(routers).edges(data="count")
        for _ in range(count)
        if graph.nodes[a]["pod"] != graph.nodes[b]["pod"]
    )
    assert set(between.values()) == {16}


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 20), st.integers(1, 40))
def test_groups_are_linked_evenly(groups: int, ports: int) -> None:
    links = links_between_groups(groups, ports + groups - 1)
    assert min(links.values()) >= 1
    assert max(links.values()) - min(links.values()) <= 1
    used = Counter(group for pair, count in links.items() for group in pair for _ in range(count))
    assert len(set(used.values())) == 1
    # one port may stay free where an odd number of groups has an odd number of links left
    assert 0 <= ports + groups - 1 - used[0] <= (groups % 2 and (ports % (groups - 1)) % 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": (4, 4, 5)}, "80 places"),
        ({"wrap": (True,)}, "wrap has 1 entries"),
        ({"node_shape": (4, 1, 1), "shape": (2, 4, 8)}, "must divide"),
        ({"links_per_neighbour": 0}, "links_per_neighbour"),
        ({"structure": "mesh", "links_per_neighbour": 0}, "links_per_neighbour"),
        ({"structure": "switch"}, "links_per_switch"),
    ],
)
def test_domains_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        domain_like(load_domain("tpu-v5p"), **{"structure": "torus", **changes})


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (
            {"kind": "fat-tree", "nodes_per_pod": 2, "leaves_per_pod": 2, "spines": 3, "cores": 3},
            "evenly over 3 spines",
        ),
        (
            {"kind": "rail", "nodes_per_pod": 18, "spines": 9, "oversubscription": 6.0},
            "too few for one to each of 9",
        ),
        ({"kind": "leaf-spine", "nodes_per_pod": 1, "spines": 2, "oversubscription": 3.0}, "2.66667 uplinks"),
    ],
)
def test_fabrics_that_cannot_be(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        with_fabric(8, fabric(**sizes))


def test_hosts_of_a_pod_share_their_leaves() -> None:
    graph = resolve_cluster("hgx-h100@264").graph
    assert len(nodes_of_kind(graph, "leaf")) == 2 * 8
    assert graph.has_edge("d31.n0.g3", "f.p0.l3")
    assert graph.has_edge("d32.n0.g3", "f.p1.l3")
    assert graph.degree("f.p0.l3") == 32 + 4
    # Where one host is there a leaf has one uplink to each spine, not the 32 of a full pod.
    assert rate_to(graph, "f.p0.l3", "spine") == 32 * 50e9
    assert rate_to(graph, "f.p1.l3", "spine") == 4 * 50e9
    assert rate_to(graph, "f.p1.l3", "gpu") == 50e9


def test_racks_are_not_split_between_pods() -> None:
    rack, scale_out = load_domain("gb200-nvl72"), load_scale_out("gb200-nvl72")
    some = replace(rack, gpus=44)  # 11 hosts: a second one does not fit in a pod of 18
    small = replace(rack, gpus=12)  # 3 hosts fit behind them
    spec = ClusterSpec("x", (some, some, small, rack), scale_out)
    assert isinstance(scale_out, RailFabric)
    assert scale_out.pods(Hosts(spec.domains)).tolist() == [0] * 11 + [1] * 11 + [1] * 3 + [2] * 18
    large = ClusterSpec("y", (load_domain("hgx-h100"), load_domain("rubin-576")), scale_out)
    assert scale_out.pods(Hosts(large.domains)).tolist()[1:] == [1 + host // 18 for host in range(144)]


def test_odd_uplinks_are_spread_evenly() -> None:
    spec = resolve_cluster("hgx-h100@256").spec
    assert spec.scale_out is not None
    graph = build_cluster(replace(spec, scale_out=replace(spec.scale_out, spines=3))).graph
    per_leaf = [sorted(graph.edges["f.p0.l0", f"f.s{s}"]["count"] for s in range(3))]
    assert per_leaf == [[10, 11, 11]]
    totals = [rate_to(graph, f"f.s{s}", "leaf") / 50e9 for s in range(3)]
    assert sum(totals) == 8 * 32
    assert max(totals) - min(totals) <= 1


@pytest.mark.parametrize("kind", ["rail", "leaf-spine", "fat-tree", "dragonfly"])
def test_leaves_are_those_that_gpus_are_cabled_to(kind: str) -> None:
    host, rack = load_domain("hgx-h100"), replace(load_domain("gb200-nvl72"), gpus=12)
    fabric = load_scale_out("hgx-h100")
    own = {"fat-tree": {"leaves_per_pod": 2, "spines": 1, "cores": 2}, "dragonfly": {"leaves_per_pod": 2}}
    out = fabric_like(fabric, kind, nodes_per_pod=4, **own.get(kind, {"spines": 1}))
    cluster = build_cluster(ClusterSpec("x", (host, host, rack, host, rack), out))
    leaves, pods = leaves_and_pods(cluster.spec, cluster.gpus)
    cabled = [
        {end for end in cluster.graph[gpu.id] if cluster.graph.nodes[end]["kind"] in ("leaf", "router")}
        for gpu in cluster.gpus
    ]
    for i, j in combinations(range(len(leaves)), 2):
        if kind != "rail" or cluster.gpus[i].rail == cluster.gpus[j].rail:
            assert (leaves[i] == leaves[j]) == (cabled[i] == cabled[j])
    one = {gpu.id: pod for gpu, pod in zip(cluster.gpus, pods, strict=True)}
    for gpu, ends in zip(cluster.gpus, cabled, strict=True):
        assert {cluster.graph.nodes[end]["pod"] for end in ends} == {one[gpu.id]}
