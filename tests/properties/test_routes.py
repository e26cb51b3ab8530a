"""Routes and their loads: against every route written out one by one, closed forms by hand, traffic and its files."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import link_loads, per_edge, script
from topology import ClusterSpec, build_cluster, load_domain, resolve_cluster
from topology.base.errors import InputError, MissingFigureError
from topology.build import raw_cluster_spec
from topology.routes import (
    PATTERNS,
    Pairs,
    Router,
    Traffic,
    pattern_traffic,
    rank_matrix,
    read_traffic,
    uniform_bytes_per_s,
)
from topology.spec import Fault, RawLink, RawNode, RawTopology

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology import Cluster
    from topology.routes import LinkLoads


plain = script("tests/properties/route_paths.py", "route_paths")
small = script("tests/properties/route_clusters.py", "route_clusters")
SLOW = ("gb200-nvl72", "grid 4x4x4", "dragonfly", "fat-tree", "leaf-spine, 3 spines")


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


def check_some_and_all(cluster: Cluster, matrix: NDArray[np.float64], members: range) -> None:
    n = len(cluster.gpus)
    check(cluster, matrix, link_loads(cluster, matrix))
    traffic = pattern_traffic("all-to-all", n, 1e6 * (len(members) - 1), members)
    check(cluster, uniform(n, members), link_loads(cluster, traffic))


USUAL = ("the same, with faults", "leaf-spine 4:1", "tori 2x4 behind 4:1", "hosts that share NICs")
WIDE = [pytest.param(name, marks=pytest.mark.wide) for name in small.CLUSTERS if name not in USUAL]


@pytest.mark.parametrize("name", [*USUAL, *WIDE])
def test_loads_are_those_of_the_routes(name: str) -> None:
    cluster = small.CLUSTERS[name]()
    n = len(cluster.gpus)
    if name in SLOW:
        matrix = skewed(n, 3, 0.02)
        check(cluster, matrix, link_loads(cluster, matrix))
    else:
        check_some_and_all(cluster, skewed(n, 1, 0.1), range(1, n - 1))


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.3, 1.0]), st.booleans())
def test_random_graphs_and_planes_that_some_gpus_are_not_on(seed: int, filled: float, planes: bool) -> None:
    rng = random.Random(seed)
    cluster = (
        small.random_planes(seed)
        if planes
        else small.random_raw(seed, gpus=2 * rng.randint(2, 4), switches=rng.randint(3, 7))
    )
    n = len(cluster.gpus)
    check_some_and_all(cluster, skewed(n, seed, filled), range(n))


SHAPES = [(2,), (5,), (2, 2), (4, 3), (1, 6), (2, 3, 4), (2, 2, 2), (4, 1, 3)]


@settings(deadline=None, max_examples=8)
@given(st.sampled_from(SHAPES), st.data())
def test_tori_and_grids(shape: tuple[int, ...], data: st.DataObject) -> None:
    cluster = small.torus(*shape)
    domain = cluster.spec.domains[0]
    wrap = tuple(data.draw(st.booleans()) for _ in shape)
    cluster = build_cluster(ClusterSpec("t", (replace(domain, wrap=wrap),), None))
    if len(cluster.gpus) > 6 and data.draw(st.booleans()):
        cluster = with_faults(cluster, data.draw(st.integers(0, 10**6)))
    n = len(cluster.gpus)
    check_some_and_all(cluster, skewed(n, len(shape), 0.5), range(data.draw(st.integers(0, n - 2)), n))


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


@pytest.mark.parametrize("seed", range(4))
def test_meshes_with_faults(seed: int) -> None:
    cluster = with_faults(small.mesh(6), seed)
    assert cluster.graph.number_of_edges() < 15
    n = len(cluster.gpus)
    check_some_and_all(cluster, skewed(n, seed, 0.6), range(n))
    a, b = cluster.graph.graph["broken_links"][0]
    ids = [gpu.id for gpu in cluster.gpus]
    alone = np.zeros((n, n))
    alone[ids.index(a), ids.index(b)] = 1e6
    detour = link_loads(cluster, alone)
    check(cluster, alone, detour)
    assert "through other GPUs" in detour.notes[0]


# By hand


H100 = load_domain("hgx-h100").gpu
LINK = small.fabric("link", 10e9, 1e-6)


def test_incast_is_bound_by_the_one_that_hears_all() -> None:
    cluster = resolve_cluster("gb200-nvl72")
    loads = link_loads(cluster, pattern_traffic("incast", 72, 1e9))
    assert loads.bound_s == pytest.approx(71e9 / 900e9 + 1e-6)
    assert loads.bottleneck.ends == ("d0.s0", "d0.n0.g0")
    assert [group.count for group in loads.hottest(9)] == [18, 71 * 18]
    with pytest.raises(InputError, match=r"no link goes from d0\.n0\.g0 to d0\.n0\.g1"):
        loads.of("d0.n0.g0", "d0.n0.g1")


def test_bytes_of_two_domains_by_hand() -> None:
    loads = link_loads(resolve_cluster("gb200-nvl72@144"), pattern_traffic("all-to-all", 144, 143e6))
    # inside: 71 peers of the own rack, and three in four of those outside, to reach their rail
    assert loads.scale_up_bytes == pytest.approx(144 * (71e6 + 54e6))
    assert loads.scale_out_bytes == pytest.approx(144 * 72e6)
    assert loads.transfer_s == pytest.approx(72e6 / 50e9)


def test_effective_rates_of_an_all_to_all() -> None:
    assert uniform_bytes_per_s(resolve_cluster("hgx-h100"), range(8)) == pytest.approx(450e9)
    assert uniform_bytes_per_s(resolve_cluster("hgx-h100@16"), range(2, 7)) == pytest.approx(450e9)
    assert uniform_bytes_per_s(small.mesh(5), range(5)) == pytest.approx(400e9)
    assert uniform_bytes_per_s(small.mesh(5), [0, 3]) == pytest.approx(100e9)
    ring = uniform_bytes_per_s(small.torus(8), range(8))
    assert ring == pytest.approx(8 * 100e9 / 8 * 7 / 8)
    line = uniform_bytes_per_s(small.torus(8, wrap=False), range(8))
    assert line == pytest.approx(ring / 2)


def test_rates_of_all_domains_at_once_are_those_of_each() -> None:
    faults = (Fault(link=("d1.n0.g0", "d1.s1"), factor=0.5), Fault(link=("d2.n0.g3", "d2.s0")))
    cluster = build_cluster(replace(small.fabric_of("rail", 3).spec, faults=faults))
    router, groups = Router(cluster), (range(5), range(8, 14), range(16, 24), range(9, 16))
    for some in (groups[:1], groups[:2], groups[:3], (groups[0], groups[3])):
        alone = [uniform_bytes_per_s(cluster, group, router) for group in some]
        together = router.uniform_within_domains([gpu for group in some for gpu in group])
        assert together == pytest.approx(min(alone))
    assert router.uniform_within_domains([0, 8, 16]) == np.inf


def raw(nodes: dict[str, str], links: list[tuple[str, str, int]]) -> Cluster:
    """GPUs on a graph of their own; ``kind domain`` puts one into a domain."""
    made = []
    for name, what in nodes.items():
        kind, _, domain = what.partition(" ")
        made.append(RawNode(name, kind, domain or None, gpu=H100 if kind == "gpu" else None))
    cabled = [RawLink((a, b), LINK, count) for a, b, count in links]
    return build_cluster(raw_cluster_spec("raw", RawTopology(tuple(made), tuple(cabled))))


def two_leaves() -> Cluster:
    nodes = {**{f"g{i}": f"gpu g{i}" for i in range(4)}, "a": "leaf", "b": "leaf"}
    return raw(
        nodes, [("g0", "a", 1), ("g1", "b", 1), *((f"g{i}", leaf, 1) for i in (2, 3) for leaf in "ab")]
    )


def unpublished() -> Cluster:
    spec = small.mesh(3).spec
    rate = replace(LINK, link_bytes_per_s=replace(LINK.link_bytes_per_s, value=float("nan")))
    return build_cluster(replace(spec, domains=(replace(spec.domains[0], fabric=rate),)))


CUT_OFF = [("d0.n0.g2", f"d0.s{s}", 0.0) for s in range(4)]


@pytest.mark.parametrize(
    ("cluster", "good", "bad", "words"),
    [
        (
            small.faulty(small.fabric_of("rail", 2), *CUT_OFF),
            [(0, 1), (1, 9)],
            (0, 2),
            "g2 over the scale-up",
        ),
        (two_leaves(), [(0, 2), (2, 3)], (0, 1), "GPU g0 does not reach GPU g1 over the fabric between"),
        (unpublished(), [], (0, 1), "not published"),
    ],
)
def test_pairs_without_a_route_are_named(
    cluster: Cluster, good: list[tuple[int, int]], bad: tuple[int, int], words: str
) -> None:
    matrix = np.zeros((len(cluster.gpus),) * 2)
    for pair in good:
        matrix[pair] = 1e9
    assert not good or link_loads(cluster, matrix).total_bytes == 1e9 * len(good)
    matrix[bad] = 1.0
    with pytest.raises((InputError, MissingFigureError)) as caught:
        link_loads(cluster, matrix)
    assert words in str(caught.value)


def test_a_gpu_without_a_nic_hands_over_to_the_others_of_its_node() -> None:
    whole = resolve_cluster("hgx-h100@16")
    matrix = np.zeros((16, 16))
    matrix[1, 9] = 7e9  # from the GPU without a NIC
    matrix[12, 1] = 14e9  # to it
    cluster = small.faulty(whole, ("d0.n0.g1", "f.p0.l1", 0.0))
    others = [gpu for gpu in range(16) if gpu != 1]
    assert not link_loads(cluster, pattern_traffic("all-to-all", 16, 1e9, others)).notes
    loads = link_loads(cluster, matrix)
    out = sum(loads.of(f"d0.n0.g{gpu}", f"f.p0.l{gpu}") for gpu in range(8) if gpu != 1)
    back = sum(loads.of(f"f.p0.l{gpu}", f"d0.n0.g{gpu}") for gpu in range(8) if gpu != 1)
    assert (out, back) == (pytest.approx(7e9), pytest.approx(14e9))
    assert sum(loads.of("d0.n0.g1", f"d0.s{chip}") for chip in range(4)) == pytest.approx(7e9)
    assert any("1 GPU without a link out of its domain hands over" in note for note in loads.notes)


@pytest.mark.parametrize("name", ["hgx-h100@16", "gb200-nvl72@144", "tpu-v5p@4x4x4", "mi300x@16"])
def test_times_of_pairs_are_the_bounds_of_the_pair_alone(name: str) -> None:
    cluster = resolve_cluster(name)
    router, gpus = Router(cluster), len(cluster.gpus)
    matrix = rank_matrix(router, range(gpus), 64e6)
    for a, b in ((0, 1), (0, gpus - 1), (3, gpus // 2), (gpus - 2, 5)):
        pair = Pairs(np.array([a]), np.array([b]), np.array([64e6]))
        assert matrix.seconds[a, b] == pytest.approx(router.loads(Traffic("pair", gpus, pairs=pair)).bound_s)


def test_the_file_is_one_that_sglang_takes() -> None:
    router = Router(resolve_cluster("hgx-h100@16"))
    matrix = rank_matrix(router, range(16), 1e9)
    data = json.loads(matrix.file(".json", {"gpus": ["x"]}))
    costs = np.array(data["rank_cost_matrix"], dtype=float)  # as srt/eplb/topology.py of #37923 checks it
    assert (costs[~np.eye(16, dtype=bool)] > 0).all()
    assert (np.diag(costs) == 0).all()
    assert data["bytes_per_s"][0][0] is None
    assert costs[0, 8] > 5 * costs[0, 1]
    with pytest.raises(InputError, match="at most 2,048"):
        rank_matrix(router, [0] * 3000, 1.0)


# Traffic


def dense(traffic: Traffic) -> NDArray[np.float64]:
    matrix = np.zeros((traffic.gpus, traffic.gpus))
    for alike in traffic.alike():
        matrix[alike.senders] += alike.amounts
    np.fill_diagonal(matrix, 0.0)
    for sources, targets, amounts in traffic.blocks():
        np.add.at(matrix, (sources, targets), amounts)
    return matrix


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("members", [None, range(2, 7), [6, 1]])
def test_each_gpu_sends_what_it_was_given(pattern: str, members: range | list[int] | None) -> None:
    traffic = pattern_traffic(pattern, 8, 12.0, members)
    who = list(range(8) if members is None else members)
    rows = dense(traffic).sum(axis=1)
    sends = who[1:] if pattern == "incast" else who
    assert np.flatnonzero(rows).tolist() == sorted(sends)
    assert rows[sends] == pytest.approx(12.0)
    assert traffic.total_bytes == pytest.approx(12.0 * len(sends))
    assert traffic.senders == len(sends)
    others = np.setdiff1d(np.arange(8), who)
    assert not dense(traffic)[:, others].any()


@pytest.mark.parametrize("dtype", ["f8", "f2", "f4", "i8", "u4", ">f8"])
def test_files(tmp_path: Path, dtype: str) -> None:
    matrix = np.arange(16, dtype=dtype).reshape(4, 4)
    np.save(tmp_path / "t.npy", matrix)
    traffic = read_traffic(tmp_path / "t.npy", 4)
    want = matrix.astype(float)
    np.fill_diagonal(want, 0.0)
    assert (dense(traffic) == want).all()
    assert traffic.total_bytes == want.sum()
    assert traffic.name == "t.npy"


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            read_traffic(path, 4)
        assert "\n" not in str(caught.value)

    refused("does not exist")
    np.save(path, np.array([["a"] * 4] * 4))
    refused("not numbers")
    for shape in ((3, 3), (4,), (4, 4, 1), (0, 0)):
        np.save(path, np.ones(shape))
        refused(r"must be \(4, 4\)")
    for bad in (np.nan, np.inf, -1.0, 1e308, 5e-324):
        matrix = np.ones((4, 4))
        matrix[2, 3] = bad
        np.save(path, matrix)
        refused("bytes from GPU 2 to GPU 3 are")
    np.save(path, np.eye(4))
    refused("no bytes between different GPUs")


@pytest.mark.parametrize(
    ("pattern", "amount", "members", "message"),
    [
        ("all2all", 1.0, None, "did you mean all-to-all"),
        ("ring", float("nan"), None, "greater than zero"),
        ("ring", 1.0, [3, 8], "from 0 to 7"),
        ("ring", 1.0, [2, 2], "different"),
        ("ring", 1.0, None, "traffic for 8 GPUs does not fit"),
    ],
)
def test_patterns_that_are_refused(
    pattern: str, amount: float, members: list[int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Router(small.mesh(4)).loads(pattern_traffic(pattern, 8, amount, members))
