"""The engine against every route written out one by one, on each structure and fabric."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import link_loads, per_edge, script
from topology import ClusterSpec, build_cluster
from topology.routes import pattern_traffic, traffic_matrix
from topology.spec import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology import Cluster
    from topology.routes import LinkLoads


plain = script("tests/properties/route_paths.py", "route_paths")
small = script("tests/properties/route_clusters.py", "route_clusters")
SLOW = (
    "gb200-nvl72",
    "torus 4x4x4",
    "grid 4x4x4",
    "dragonfly",
    "fat-tree",
    "leaf-spine, 3 spines",
)


def expected(cluster: Cluster, matrix: NDArray[np.float64]) -> dict[str, Any]:
    """Loads, tiers and latency by adding up the routes of each pair."""
    paths = plain.Paths(cluster)
    graph = cluster.graph
    loads: dict[tuple[str, str], float] = defaultdict(float)
    tiers: dict[tuple[str, str, bool], float] = defaultdict(float)
    latency = 0.0
    for i, j in zip(*np.nonzero(matrix), strict=True):
        if i == j:
            continue
        shares = 0.0
        for share, nodes in paths.of(cluster.gpus[i].id, cluster.gpus[j].id):
            shares += share
            seen = set()
            for a, b in pairwise(nodes):
                loads[a, b] += share * matrix[i, j]
                inside = {graph.nodes[end]["domain"] for end in (a, b)}  # handed over in both domains: twice
                seen.add((tier(graph, a, b), inside.pop() if len(inside) == 1 else None))
            for name, _ in seen:
                tiers[name] += share * matrix[i, j]
            latency = max(latency, sum(graph.edges[step]["latency_s"] for step in pairwise(nodes)))
        assert shares == pytest.approx(1.0)
    return {"loads": loads, "tiers": tiers, "latency": latency}


def tier(graph: Any, a: str, b: str) -> str:
    """The name of a link's tier, spelt out again."""
    fabric = graph.edges[a, b]["fabric"]
    kinds = {graph.nodes[a]["kind"], graph.nodes[b]["kind"]}
    for kind in ("core", "spine", "leaf"):
        if kind in kinds:
            return f"{fabric} {kind}"
    if kinds == {"router"}:
        same = graph.nodes[a]["pod"] == graph.nodes[b]["pod"]
        return f"{fabric} group" if same else f"{fabric} global"
    return f"{fabric} router" if "router" in kinds else fabric


def check(cluster: Cluster, matrix: NDArray[np.float64], found: LinkLoads) -> None:
    want = expected(cluster, matrix)
    scale = matrix.sum()
    edges = per_edge(found)
    assert set(want["loads"]) <= set(edges)
    for ends, load_bytes in edges.items():
        assert load_bytes == pytest.approx(want["loads"].get(ends, 0.0), abs=1e-9 * scale), ends
    for name, load_of_tier in found.tiers.items():
        assert load_of_tier.bytes == pytest.approx(want["tiers"].get(name, 0.0), abs=1e-9 * scale), name
    assert found.latency_s == pytest.approx(want["latency"], rel=1e-9)
    rates = {
        ends: cluster.graph.edges[ends]["bytes_per_s"] for ends, amount in want["loads"].items() if amount > 0
    }
    slowest = max(want["loads"][ends] / rate for ends, rate in rates.items())
    assert found.bound_s == pytest.approx(slowest + want["latency"], rel=1e-9)


def skewed(gpus: int, seed: int, filled: float) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    matrix = rng.pareto(1.5, (gpus, gpus)) * (rng.random((gpus, gpus)) < filled)
    np.fill_diagonal(matrix, 0.0)
    matrix[0, 1] += 1.0
    return matrix * 1e6


def uniform(gpus: int, members: range) -> NDArray[np.float64]:
    matrix = np.zeros((gpus, gpus))
    matrix[np.ix_(members, members)] = 1e6
    np.fill_diagonal(matrix, 0.0)
    return matrix


USUAL = (
    "the same, with faults",
    "leaf-spine 4:1",
    "tori 2x4 behind 4:1",
    "hosts that share NICs",
)
QUICK = [name for name in small.CLUSTERS if name not in SLOW]


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.wide) for name in QUICK]
)
def test_loads_are_those_of_the_routes(name: str) -> None:
    cluster = small.CLUSTERS[name]()
    n = len(cluster.gpus)
    matrix = skewed(n, 1, 0.1)
    check(cluster, matrix, link_loads(cluster, matrix))
    members = range(1, n - 1)
    traffic = pattern_traffic("all-to-all", n, 1e6 * (len(members) - 1), members)
    check(cluster, uniform(n, members), link_loads(cluster, traffic))


@pytest.mark.wide
@pytest.mark.parametrize("name", SLOW)
def test_loads_of_larger_clusters_are_those_of_the_routes(name: str) -> None:
    cluster = small.CLUSTERS[name]()
    matrix = skewed(len(cluster.gpus), 3, 0.02)
    check(cluster, matrix, link_loads(cluster, matrix))


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0]))
def test_random_graphs(seed: int, filled: float) -> None:
    rng = random.Random(seed)
    cluster = small.random_raw(seed, gpus=2 * rng.randint(2, 4), switches=rng.randint(3, 7))
    n = len(cluster.gpus)
    matrix = skewed(n, seed, filled)
    check(cluster, matrix, link_loads(cluster, matrix))
    check(cluster, uniform(n, range(n)), link_loads(cluster, pattern_traffic("all-to-all", n, 1e6 * (n - 1))))


@settings(deadline=None, max_examples=9)
@given(st.integers(0, 10**6))
def test_planes_that_some_gpus_are_not_on(seed: int) -> None:
    cluster = small.random_planes(seed)
    n = len(cluster.gpus)
    matrix = skewed(n, seed, 0.3)
    check(cluster, matrix, link_loads(cluster, matrix))
    check(cluster, uniform(n, range(n)), link_loads(cluster, pattern_traffic("all-to-all", n, 1e6 * (n - 1))))


SHAPES = [(2,), (5,), (2, 2), (4, 3), (1, 6), (2, 3, 4), (2, 2, 2), (4, 1, 3)]


@settings(deadline=None, max_examples=8)
@given(st.sampled_from(SHAPES), st.data())
def test_tori_and_grids(shape: tuple[int, ...], data: st.DataObject) -> None:
    cluster = small.torus(*shape)
    domain = cluster.spec.domains[0]
    wrap = tuple(data.draw(st.booleans()) for _ in shape)
    spec = ClusterSpec("t", (replace(domain, wrap=wrap),), None)
    cluster = build_cluster(spec)
    n = len(cluster.gpus)
    if n > 6 and data.draw(st.booleans()):
        cluster = with_faults(cluster, data.draw(st.integers(0, 10**6)))
        n = len(cluster.gpus)
    matrix = skewed(n, data.draw(st.integers(0, 99)), 0.5)
    check(cluster, matrix, link_loads(cluster, matrix))
    members = range(data.draw(st.integers(0, n - 2)), n)
    traffic = pattern_traffic("all-to-all", n, 1e6 * (len(members) - 1), members)
    check(cluster, uniform(n, members), link_loads(cluster, traffic))


def with_faults(cluster: Cluster, seed: int) -> Cluster:
    """The same with a GPU and a link out of service, where that leaves it in one piece."""
    rng = random.Random(seed)
    edges = sorted(tuple(sorted(edge)) for edge in cluster.graph.edges)
    gone = rng.choice(cluster.gpus).id
    link = rng.choice([edge for edge in edges if gone not in edge])
    slow = rng.choice([edge for edge in edges if gone not in edge and edge != link])
    faults = (Fault(gpu=gone), Fault(link=link), Fault(link=slow, factor=0.5))
    try:
        return build_cluster(replace(cluster.spec, faults=faults))
    except Exception:  # noqa: BLE001 - islands: nothing to route between
        return cluster


@pytest.mark.parametrize("seed", range(6))
def test_meshes_with_faults(seed: int) -> None:
    cluster = with_faults(small.mesh(6), seed)
    assert cluster.graph.number_of_edges() < 15
    n = len(cluster.gpus)
    matrix = skewed(n, seed, 0.6)
    found = link_loads(cluster, matrix)
    check(cluster, matrix, found)
    check(cluster, uniform(n, range(n)), link_loads(cluster, pattern_traffic("all-to-all", n, 1e6 * (n - 1))))
    a, b = cluster.graph.graph["broken_links"][0]
    ids = [gpu.id for gpu in cluster.gpus]
    one = np.zeros((n, n))
    one[ids.index(a), ids.index(b)] = 1e6
    detour = link_loads(cluster, one)
    check(cluster, one, detour)
    assert "through other GPUs" in detour.notes[0]


def test_a_matrix_of_some_gpus_is_theirs() -> None:
    cluster = small.CLUSTERS["hgx-h100@32, rails, pods of 2"]()
    part = skewed(6, 7, 1.0)
    members = [3, 9, 30, 4, 17, 22]
    whole = np.zeros((32, 32))
    whole[np.ix_(members, members)] = part
    check(cluster, whole, link_loads(cluster, traffic_matrix(part, 32, members)))
