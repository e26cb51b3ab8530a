"""Groups in groups without a switch: how many links there are, who has them, and how bytes go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pytest

from graph_contract import validate_graph
from helpers import domain_like, link_loads, per_edge
from topology import InputError, build_cluster, load_domain, resolve_cluster
from topology.cluster import ClusterSpec
from topology.exporters.cluster_yaml import cluster_to_yaml
from topology.routes import pattern_traffic
from topology.structures.nested import NestedDomain, links_to_others

if TYPE_CHECKING:
    from topology import Cluster


def nested(members: tuple[int, ...], links: tuple[int, ...], gpus: int, per_node: int = 1) -> NestedDomain:
    known = {"part": "custom", "nodes_per_rack": None, "members": members, "links_per_member": links}
    domain = domain_like(load_domain("hgx-h100"), "nested", gpus=gpus, gpus_per_node=per_node, **known)
    assert isinstance(domain, NestedDomain)
    return domain


def built(domain: NestedDomain) -> Cluster:
    return build_cluster(ClusterSpec("nested", (domain,), None))


def links_of_gpus(cluster: Cluster) -> Counter[int]:
    """How many GPUs have how many links."""
    graph = cluster.graph
    return Counter(sum(data["count"] for data in graph[gpu.id].values()) for gpu in cluster.gpus)


def _between_hosts(graph: nx.Graph[str]) -> list[tuple[str, str]]:
    return [(a, b) for a, b in graph.edges if graph.nodes[a]["node"] != graph.nodes[b]["node"]]


@pytest.mark.parametrize(
    ("size", "links", "counts"),
    [
        (4, 2, [0, 1, 0, 1]),  # a ring
        (8, 7, [0, 1, 1, 1, 1, 1, 1, 1]),
        (8, 11, [0, 2, 2, 1, 1, 1, 2, 2]),
        (4, 20, [0, 7, 6, 7]),
        (4, 4, [0, 1, 2, 1]),
        (2, 4, [0, 4]),
    ],
)
def test_links_over_go_to_the_next_ones_and_the_opposite(size: int, links: int, counts: list[int]) -> None:
    assert links_to_others(size, links).tolist() == counts


def test_rows_and_columns_of_a_cabinet() -> None:
    # Atlas 950: 8 x 8, each GPU with one link to each of 7 in its group and to its place in each of the 7 others
    cluster = built(nested((8, 8), (7, 56), 64, 8))
    graph = cluster.graph
    validate_graph(graph)
    assert (graph.number_of_edges(), links_of_gpus(cluster)) == (448, {14: 64})
    places = {
        tuple(sorted((graph.nodes[a]["rail"], graph.nodes[b]["rail"]))) for a, b in _between_hosts(graph)
    }
    assert places == {(place, place) for place in range(8)}
    assert nx.diameter(graph) == 2


def test_boardfly_is_as_google_says() -> None:
    # boards of four in a ring, eight boards with 11 of their 16 outer links, 36 groups with 40 of theirs
    cluster = built(nested((4, 8, 36), (2, 11, 40), 1152, 2))
    graph = cluster.graph
    validate_graph(graph)
    counts = Counter[str]()
    for a, b, data in graph.edges(data=True):
        one, two = (int(end.split(".n")[1].split(".")[0]) for end in (a, b))
        level = "board" if one // 2 == two // 2 else "group" if one // 16 == two // 16 else "pod"
        counts[level] += data["count"]
    # 288 boards of 4 links, 36 groups of 8 x 11 / 2, and 36 x 40 / 2 between them
    assert counts == {"board": 1152, "group": 1584, "pod": 720}
    assert links_of_gpus(cluster) == {6: 1152}
    assert nx.diameter(graph) == 7
    assert nx.diameter(built(nested((4, 8, 36), (2, 11, 40), 1024, 2)).graph) == 7


def test_uniform_traffic_on_a_cabinet_by_hand() -> None:
    # 9 GPUs in 3 x 3: 4 pairs of each take one hop, 4 take two over either corner. A GPU sends 8 x 1 bytes, in all
    # 4 + 2 x 4 = 12 hops over 4 links: 3 bytes a link
    cluster = built(nested((3, 3), (2, 6), 9))
    loads = per_edge(link_loads(cluster, pattern_traffic("all-to-all", 9, 8.0)))
    assert len(loads) == 36
    assert set(np.round(list(loads.values()), 9)) == {3.0}


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
        ((4, 4), (1, 3), 16, r"1 in level 1 of 4 members; use 2 to"),
        ((3, 3), (3, 6), 9, "leave one end over; use 2"),
        ((4, 4), (2, 3), 14, "use 12 or 16"),
        ((4, 4), (2, 3), 20, "use 16[.]"),
        ((4, 4), (2, 1025), 16, "1025 in level 2 of 4 members; use 2 to 1,024"),
        ((200, 200), (199, 199), 40_000, "at most 16,384"),
    ],
)
def test_what_cannot_be_linked_is_refused(
    members: tuple[int, ...], links: tuple[int, ...], gpus: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        nested(members, links, gpus)


def test_a_file_of_it_reads_back(tmp_path: Path) -> None:
    text = """
name: mine
domains:
  - {gpu: h100-sxm, structure: nested, members: [4, 8], links_per_member: [2, 11], gpus_per_node: 2, link: 25 GB/s,
     rate_checked: true}
"""
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    cluster = resolve_cluster(str(path))
    assert (len(cluster.gpus), cluster.graph.number_of_edges()) == (32, 8 * 4 + 44)
    path.write_text(cluster_to_yaml(cluster.spec), encoding="utf-8")
    assert resolve_cluster(str(path)).spec.domains == cluster.spec.domains
