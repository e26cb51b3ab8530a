"""The graph: links and rates by hand, partial domains, pods, and the contract of attributes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_contract import validate_graph
from helpers import fabric_like, nodes_of_kind, rate_to
from topology import (
    ClusterSpec,
    InputError,
    build_cluster,
    load_domain,
    load_scale_out,
    resolve_cluster,
)
from topology.fabrics.fabric import Hosts
from topology.fabrics.rail import RailFabric
from topology.scale_out import leaves_and_pods


def test_hosts_of_a_pod_share_their_leaves() -> None:
    graph = resolve_cluster("hgx-h100@264").graph
    assert len(nodes_of_kind(graph, "leaf")) == 2 * 8
    assert graph.has_edge("d31.n0.g3", "f.p0.l3")
    assert graph.has_edge("d32.n0.g3", "f.p1.l3")
    assert graph.degree("f.p0.l3") == 32 + 4
    # A leaf has the uplinks of its full pod even where one host is there.
    assert rate_to(graph, "f.p1.l3", "spine") == 32 * 50e9
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


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from(["hgx-h100", "gb200-nvl72", "vr-nvl72", "lecture-8"]),
    st.integers(1, 60),
    st.sampled_from([1.0, 2.0, 3.0]),
)
def test_every_graph_keeps_the_contract(name: str, hosts: int, oversubscription: float) -> None:
    domain = load_domain(name)
    spec = resolve_cluster(f"{name}@{hosts * domain.gpus_per_node}").spec
    scale_out = load_scale_out(name)
    if scale_out.nodes_per_pod * scale_out.nic_links_per_gpu % oversubscription:
        return
    try:
        scale_out = replace(scale_out, oversubscription=oversubscription)
    except InputError:  # a leaf has fewer uplinks than there are spines
        return
    cluster = build_cluster(replace(spec, scale_out=scale_out))
    graph = cluster.graph
    validate_graph(graph)
    assert {g.id for g in cluster.gpus} == set(nodes_of_kind(graph, "gpu"))
    for gpu in cluster.gpus:
        assert rate_to(graph, gpu.id, "switch") == domain.scale_up_bytes_per_s
    assert len(nodes_of_kind(graph, "switch")) == len(spec.domains) * len(domain.links_per_switch)
    if len(spec.domains) == 1:
        assert not nodes_of_kind(graph, "leaf")
        return
    assert nx.is_connected(graph)
    up = scale_out.nodes_per_pod * scale_out.scale_out_bytes_per_s / oversubscription
    for leaf in nodes_of_kind(graph, "leaf"):
        assert rate_to(graph, leaf, "spine") == pytest.approx(up)
    assert sum(rate_to(graph, leaf, "gpu") for leaf in nodes_of_kind(graph, "leaf")) == pytest.approx(
        len(cluster.gpus) * scale_out.scale_out_bytes_per_s
    )


def test_odd_uplinks_are_spread_evenly() -> None:
    spec = resolve_cluster("hgx-h100@128").spec
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
