"""Traffic and its loads: patterns and files, closed forms by hand, and who cannot be reached."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import link_loads, script
from topology import build_cluster, load_domain, resolve_cluster
from topology.base.errors import InfeasibleError, InputError, MissingFigureError
from topology.build import lay_cluster, raw_cluster_spec
from topology.cluster import Cluster
from topology.routes import (
    PATTERNS,
    Router,
    Traffic,
    pattern_traffic,
    read_traffic,
    traffic_matrix,
    uniform_bytes_per_s,
)
from topology.spec import Fault, RawLink, RawNode, RawTopology

small = script("tests/properties/route_clusters.py", "route_clusters")
H100 = load_domain("hgx-h100").gpu
LINK = small.fabric("link", 10e9, 1e-6)


def raw(nodes: dict[str, str], links: list[tuple[str, str, int]]) -> Cluster:
    """GPUs on a graph of their own; ``kind domain`` puts one into a domain."""
    made = []
    for name, what in nodes.items():
        kind, _, domain = what.partition(" ")
        made.append(RawNode(name, kind, domain or None, gpu=H100 if kind == "gpu" else None))
    cabled = [RawLink((a, b), LINK, count) for a, b, count in links]
    return build_cluster(raw_cluster_spec("raw", RawTopology(tuple(made), tuple(cabled))))


@cache
def made(name: str) -> Cluster:
    return small.CLUSTERS[name]()


def test_incast_is_bound_by_the_one_that_hears_all() -> None:
    cluster = resolve_cluster("gb200-nvl72")
    loads = link_loads(cluster, pattern_traffic("incast", 72, 1e9))
    assert loads.bound_s == pytest.approx(71e9 / 900e9 + 1e-6)
    assert loads.bottleneck.ends == ("d0.s0", "d0.n0.g0")
    assert [group.count for group in loads.hottest(9)] == [18, 71 * 18]
    with pytest.raises(InputError, match=r"no link goes from d0\.n0\.g0 to d0\.n0\.g1"):
        loads.of("d0.n0.g0", "d0.n0.g1")


def test_bytes_of_two_domains_by_hand() -> None:
    """Half of an all-to-all leaves its rack, less the GPU itself: 72 of 143 peers are in the other."""
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
        each = [uniform_bytes_per_s(cluster, group, router) for group in some]
        together = router.uniform_within_domains([gpu for group in some for gpu in group])
        assert together == pytest.approx(min(each))
    assert router.uniform_within_domains([0, 8, 16]) == np.inf


def test_a_raw_ring_of_gpus_forwards_and_says_so() -> None:
    ring = raw({f"g{i}": "gpu" for i in range(4)}, [(f"g{i}", f"g{(i + 1) % 4}", 1) for i in range(4)])
    matrix = np.zeros((4, 4))
    matrix[0, 1], matrix[0, 2] = 3e9, 2e9
    loads = link_loads(ring, matrix)
    assert loads.of("g0", "g1") == pytest.approx(4e9)
    assert loads.of("g3", "g2") == pytest.approx(1e9)
    assert any("forward" in note for note in loads.notes)
    assert link_loads(ring, matrix * (matrix == 3e9)).notes == ()


def test_pairs_without_a_scale_up_route_take_the_fabric_in_a_raw_graph() -> None:
    nodes = {"a": "gpu d", "b": "gpu d", "c": "gpu d", "s": "switch", "leaf": "leaf"}
    links = [("a", "s", 2), ("b", "s", 2), ("a", "leaf", 1), ("b", "leaf", 1), ("c", "leaf", 1)]
    cluster = raw(nodes, links)
    matrix = np.zeros((3, 3))
    matrix[0, 1], matrix[0, 2] = 4e9, 1e9
    loads = link_loads(cluster, matrix)
    assert loads.of("a", "s") == pytest.approx(4e9)
    assert loads.of("leaf", "c") == pytest.approx(1e9)
    assert loads.of("leaf", "b") == 0
    assert any("outside it" in note for note in loads.notes)


def test_a_pair_without_a_route_is_named() -> None:
    spec = small.fabric_of("rail", 2).spec
    cut = tuple(Fault(link=("d0.n0.g2", f"d0.s{s}")) for s in range(4))
    cluster = build_cluster(replace(spec, faults=cut))
    matrix = np.zeros((16, 16))
    matrix[0, 1] = matrix[1, 9] = 1e9
    assert link_loads(cluster, matrix).total_bytes == 2e9
    matrix[0, 2] = 1.0
    with pytest.raises(InputError, match=r"GPU d0\.n0\.g0 does not reach GPU d0\.n0\.g2 over the scale-up"):
        link_loads(cluster, matrix)


def test_two_gpus_without_a_plane_in_common_are_named() -> None:
    nodes = {**{f"g{i}": f"gpu g{i}" for i in range(4)}, "a": "leaf", "b": "leaf"}
    links = [("g0", "a", 1), ("g1", "b", 1), *((f"g{i}", leaf, 1) for i in (2, 3) for leaf in "ab")]
    cluster = raw(nodes, links)
    matrix = np.zeros((4, 4))
    matrix[0, 2] = matrix[2, 3] = 1e9
    loads = link_loads(cluster, matrix)
    assert [loads.of(*ends) for ends in (("g0", "a"), ("g2", "a"), ("g2", "b"))] == [1e9, 5e8, 5e8]
    matrix[0, 1] = 1.0
    with pytest.raises(InputError, match="GPU g0 does not reach GPU g1 over the fabric between"):
        link_loads(cluster, matrix)


def test_a_rate_that_nobody_published_has_no_time() -> None:
    unknown = replace(LINK, link_bytes_per_s=replace(LINK.link_bytes_per_s, value=float("nan")))
    spec = small.mesh(3).spec
    cluster = build_cluster(replace(spec, domains=(replace(spec.domains[0], fabric=unknown),)))
    with pytest.raises(MissingFigureError, match="not published"):
        link_loads(cluster, np.ones((3, 3)))


def test_traffic_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match="traffic for 4 GPUs does not fit"):
        Router(made("full mesh of 8")).loads(pattern_traffic("ring", 4, 1.0))


def test_domains_that_the_fabric_does_not_join_are_named() -> None:
    spec = small.fabric_of("leaf-spine", 4, nodes_per_pod=2, spines=2).spec
    cut = tuple(Fault(link=("f.l1", f"f.s{s}"), factor=0.0) for s in range(2))
    whole = build_cluster(spec)
    cut_links = partial(lay_cluster, replace(spec, faults=cut), whole.gpus)
    cluster = replace(whole, lay=cut_links)  # not checked for islands
    matrix = np.zeros((32, 32))
    matrix[0, 8] = matrix[24, 16] = 1e9
    assert link_loads(cluster, matrix).bound_s > 0
    matrix[5, 30] = 1.0
    with pytest.raises(InputError, match=r"GPU d0\.n0\.g5 does not reach GPU d3\.n0\.g6 over the fabric"):
        link_loads(cluster, matrix)


def without_nics(*gpus: int) -> Cluster:
    """Two hosts; GPUs of the first have lost their NIC."""
    cut = tuple(Fault(link=(f"d0.n0.g{gpu}", f"f.p0.l{gpu}")) for gpu in gpus)
    return build_cluster(replace(resolve_cluster("hgx-h100@16").spec, faults=cut))


def test_a_gpu_without_a_nic_hands_over_to_the_others_of_its_node() -> None:
    matrix = np.zeros((16, 16))
    matrix[1, 9] = 7e9  # from the GPU without a NIC
    matrix[12, 1] = 14e9  # to it
    loads = link_loads(without_nics(1), matrix)
    out = sum(loads.of(f"d0.n0.g{gpu}", f"f.p0.l{gpu}") for gpu in range(8) if gpu != 1)
    back = sum(loads.of(f"f.p0.l{gpu}", f"d0.n0.g{gpu}") for gpu in range(8) if gpu != 1)
    assert (out, back) == (pytest.approx(7e9), pytest.approx(14e9))
    assert sum(loads.of("d0.n0.g1", f"d0.s{chip}") for chip in range(4)) == pytest.approx(7e9)
    assert any("1 GPU without a link out of its domain hands over" in note for note in loads.notes)
    with pytest.raises(InfeasibleError, match="disconnect GPUs"):
        without_nics(*range(8))


def dense(traffic: Traffic) -> NDArray[np.float64]:
    matrix = np.zeros((traffic.gpus, traffic.gpus))
    for alike in traffic.alike():
        matrix[alike.senders] += alike.amounts
    np.fill_diagonal(matrix, 0.0)
    for sources, targets, amounts in traffic.blocks():
        np.add.at(matrix, (sources, targets), amounts)
    return matrix


def test_patterns_by_hand() -> None:
    ring = dense(pattern_traffic("ring", 4, 5.0))
    assert np.argwhere(ring).tolist() == [[0, 1], [1, 2], [2, 3], [3, 0]]
    incast = dense(pattern_traffic("incast", 4, 5.0))
    assert np.argwhere(incast).tolist() == [[1, 0], [2, 0], [3, 0]]
    half = dense(pattern_traffic("permutation", 6, 5.0))
    assert np.argwhere(half).tolist() == [[0, 3], [1, 4], [2, 5], [3, 0], [4, 1], [5, 2]]
    everyone = dense(pattern_traffic("all-to-all", 5, 8.0))
    assert (everyone == 2.0 * (1 - np.eye(5))).all()


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


@pytest.mark.wide
def test_a_large_matrix_comes_in_blocks() -> None:
    matrix = np.random.default_rng(0).random((3000, 3000))
    blocks = list(traffic_matrix(matrix, 3000).blocks())
    assert len(blocks) > 1
    found = np.zeros_like(matrix)
    for sources, targets, amounts in blocks:
        found[sources, targets] = amounts
    np.fill_diagonal(matrix, 0.0)
    assert (found == matrix).all()


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
    path.write_bytes(b"")
    refused("not a complete .npy file")
    with path.open("wb") as file:
        np.savez(file, a=np.ones((4, 4)))
    refused("zip archive")
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
        ("all-to-all", 1e308, None, "at most 1e+30"),
        ("ring", 1.0, [3, 8], "from 0 to 7"),
        ("ring", 1.0, [2, 2], "different"),
    ],
)
def test_patterns_that_are_refused(
    pattern: str, amount: float, members: list[int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pattern_traffic(pattern, 8, amount, members)
