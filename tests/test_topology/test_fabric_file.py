"""The fabric of a cluster file: what is given, what follows from the switch's ports, what is asked for."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_contract import validate_graph
from topology import InputError, build_cluster, load_domain
from topology.build import check_cluster
from topology.cluster import ClusterSpec
from topology.fabrics.fabric import ScaleOutSpec
from topology.files.fabric_file import read_fabric


def read(hosts: int, row: str | dict[str, object], part: str = "hgx-h100") -> ScaleOutSpec:
    """Read a fabric for so many hosts of a part."""
    import yaml

    data = yaml.safe_load(row) if isinstance(row, str) else row
    domain = load_domain(part)
    domains = (domain,) * hosts
    scale_out = read_fabric(data, [part] * hosts, domains, "mine.yaml: fabric")
    check_cluster(ClusterSpec("x", domains, scale_out), "mine.yaml")
    return scale_out


def test_rails_follow_the_part() -> None:
    rails = read(64, "{kind: rail, nic: 400 Gb/s, oversubscription: 2}")
    assert (rails.nodes_per_pod, rails.spines, rails.oversubscription) == (32, 4, 2)
    rails = read(4, "{kind: rail, nic: 400 Gb/s, oversubscription: [6]}", "gb200-nvl72")
    assert (rails.nodes_per_pod, rails.spines) == (18, 3)  # three uplinks reach three spines, not nine


def test_leaf_spine_from_the_ports_of_a_switch() -> None:
    # 64 ports of 400 Gb/s: 32 down are four hosts, 32 up; 16 leaves need 512 ports, eight spines of 64
    plain = read(64, "{kind: leaf-spine, nic: 400 Gb/s}")
    assert (plain.nodes_per_pod, plain.spines) == (4, 8)
    # 3:1: 48 down are six hosts, 16 up; 11 leaves x 16 / 64 = 2.75, so four spines of four links a leaf
    plain = read(64, "{kind: leaf-spine, nic: 400 Gb/s, oversubscription: 3}")
    assert (plain.nodes_per_pod, plain.spines) == (6, 4)


def test_fat_tree_from_the_ports_of_a_switch() -> None:
    # 512 hosts: leaves of four hosts, pods of 32 leaves under 32 spines, four pods; spine i has 32 uplinks
    # over the fewest cores of 64 ports: 4 x 32 / 64 = 2
    tree = read(512, "{kind: fat-tree, nic: 400 Gb/s}")
    assert (tree.nodes_per_leaf, tree.leaves_per_pod, tree.spines, tree.cores) == (4, 32, 32, 2)
    tree = read(512, "{kind: fat-tree, nic: 400 Gb/s, oversubscription: [1, 3]}")
    assert (tree.leaves_per_pod, tree.core_oversubscription, tree.total_oversubscription) == (48, 3, 3)
    assert tree.spine_uplinks(8) == 16
    assert read(4, "{kind: fat-tree, nic: 400 Gb/s}").cores == 0


def test_dragonfly_is_balanced_where_nothing_is_said() -> None:
    # 64 ports: p = 16 NIC links (two hosts), 32 routers, 16 global links a router: 16 + 31 + 16 = 63
    fly = read(200, "{kind: dragonfly, nic: 400 Gb/s}")
    assert (fly.nodes_per_leaf, fly.leaves_per_pod, fly.local_links) == (2, 32, 1)
    assert fly.uplinks(8) == 16


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{kind: mesh, nic: 400 Gb/s}", "not one of rail"),
        ("{kind: leaf-spine, nic: 400 Gb/s, radix: 8}", "cannot combine 8 links"),
        (
            "{kind: leaf-spine, nic: 400 Gb/s, nodes_per_leaf: 2, spines: 2, radix: 8}",
            "do not depend on it",
        ),
        ("{kind: leaf-spine, nic: 400 Gb/s, radix: 16}", "use `kind: fat-tree`"),
        ("{kind: rail, nic: 400 Gb/s, oversubscription: [1, 4]}", "has 2 entries"),
        ("{kind: fat-tree, nic: 400 Gb/s, spines: 5}", "evenly over 5"),
        ("{kind: rail, nic: 400 Gb/s, cores: 4}", "unknown key `cores`"),
        (
            "{kind: dragonfly, nic: 400 Gb/s, nodes_per_router: 1, routers_per_group: 9999}",
            "check the sizes of leaves",
        ),
    ],
)
def test_mistakes_in_a_fabric(row: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(256, row)
    assert any(part in str(caught.value) for part in words.split("|")), str(caught.value)
    assert "\n" not in str(caught.value)


KINDS = ["rail", "leaf-spine", "fat-tree", "dragonfly"]


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([1, 2, 3, 4, 7]),
    st.sampled_from([16, 36, 64, 144]),
    st.integers(2, 40),
    st.data(),
)
def test_every_fabric_that_is_read_joins_all(
    kind: str, over: int, radix: int, hosts: int, data: st.DataObject
) -> None:
    part = data.draw(st.sampled_from(["hgx-h100", "mi300x", "lecture-8"]))
    row: dict[str, object] = {"kind": kind, "nic": "400 Gb/s", "oversubscription": over}
    if kind != "rail":
        row["radix"] = radix
    try:
        scale_out = read(hosts, row, part)
        cluster = build_cluster(ClusterSpec("x", (load_domain(part),) * hosts, scale_out))
        graph = cluster.graph
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - some sizes cannot be cabled, and say so
        return
    validate_graph(graph)
    kinds = nx.get_node_attributes(graph, "kind")
    fabric = graph.edge_subgraph(
        [e for e in graph.edges if {"leaf", "spine", "core", "router"} & {kinds[n] for n in e}]
    )
    assert nx.is_connected(fabric)
    assert {gpu.id for gpu in cluster.gpus} <= set(fabric)
    if kind != "rail":  # a spine there is a plane, whatever its ports
        for node in fabric:
            if kinds[node] != "gpu":
                assert sum(fabric.edges[node, o]["count"] for o in fabric[node]) <= radix
