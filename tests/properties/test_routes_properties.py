"""What must hold of any loads: conservation, monotony, symmetry, scale; and closed forms by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import domain_like, fabric_like, link_loads
from topology import ClusterSpec, build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.build import lay_cluster, raw_cluster_spec
from topology.cluster import Cluster
from topology.routes import Router, pattern_traffic, uniform_bytes_per_s
from topology.spec import FabricSpec, Fault, RawLink, RawNode, RawTopology

if TYPE_CHECKING:
    from numpy.typing import NDArray

H100 = load_domain("hgx-h100")
LINK = FabricSpec(
    "link",
    "link",
    Figure(10e9, "byte/s", Evidence.USER, "test"),
    Figure(1e-6, "s", Evidence.USER, "test"),
)


def hosts(kind: str, count: int, **rest: Any) -> Cluster:
    scale_out = fabric_like(load_scale_out("hgx-h100"), kind, **rest)
    return build_cluster(ClusterSpec(kind, (H100,) * count, scale_out))


def torus(shape: tuple[int, ...], *, wrap: bool = True) -> Cluster:
    n = int(np.prod(shape))
    domain = domain_like(
        H100,
        "torus",
        gpus=n,
        gpus_per_node=1,
        fabric=LINK,
        shape=shape,
        wrap=(wrap,) * len(shape),
        links_per_neighbour=1,
        node_shape=(1,) * len(shape),
    )
    return build_cluster(ClusterSpec("torus", (domain,), None))


def mesh(n: int) -> Cluster:
    domain = domain_like(
        H100,
        "mesh",
        gpus=n,
        gpus_per_node=n,
        fabric=LINK,
        links_per_neighbour=1,
    )
    return build_cluster(ClusterSpec("mesh", (domain,), None))


def raw(nodes: dict[str, str], links: list[tuple[str, str, int]]) -> Cluster:
    made = [RawNode(name, kind, gpu=H100.gpu if kind == "gpu" else None) for name, kind in nodes.items()]
    cabled = [RawLink((a, b), LINK, count) for a, b, count in links]
    return build_cluster(raw_cluster_spec("raw", RawTopology(tuple(made), tuple(cabled))))


CLUSTERS = {
    "rail": lambda: hosts("rail", 3, nodes_per_pod=2, spines=2),
    "leaf-spine": lambda: hosts("leaf-spine", 4, nodes_per_pod=2, spines=2, oversubscription=4.0),
    "fat-tree": lambda: hosts("fat-tree", 4, nodes_per_pod=2, leaves_per_pod=2, spines=2, cores=2),
    "torus": lambda: torus((4, 3, 2)),
    "mesh": lambda: mesh(5),
    "nvl72": lambda: resolve_cluster("gb200-nvl72@80"),
}


@cache
def made(name: str) -> Cluster:
    return CLUSTERS[name]()


def matrices(n: int) -> st.SearchStrategy[NDArray[np.float64]]:
    def make(seed: int, filled: float) -> NDArray[np.float64]:
        rng = np.random.default_rng(seed)
        matrix = rng.random((n, n)) * (rng.random((n, n)) < filled)
        matrix[0, n - 1] += 0.5
        np.fill_diagonal(matrix, 0.0)
        return matrix * 1e9

    return st.builds(make, st.integers(0, 10**6), st.sampled_from([0.02, 0.3, 1.0]))


names = st.sampled_from(sorted(CLUSTERS))


@settings(deadline=None, max_examples=8)
@given(names, st.data())
def test_a_faster_link_is_never_slower(name: str, data: st.DataObject) -> None:
    cluster = made(name)
    matrix = data.draw(matrices(len(cluster.gpus)))
    before = link_loads(cluster, matrix)
    wiring = cluster.wiring
    some = data.draw(st.lists(st.integers(0, len(wiring.fabric) - 1), min_size=1, max_size=9, unique=True))
    rates = [one.link_bytes_per_s for one in wiring.fabrics]
    doubled = [replace(rate, value=2 * rate.value) for rate in rates]
    fabrics = [replace(one, link_bytes_per_s=rate) for one, rate in zip(wiring.fabrics, doubled, strict=True)]
    which = wiring.fabric.copy()
    which[some] += len(fabrics)
    faster = replace(wiring, fabrics=(*wiring.fabrics, *fabrics), fabric=which)
    after = link_loads(replace(cluster, lay=lambda: faster), matrix)
    np.testing.assert_allclose(after.load_bytes, before.load_bytes)
    assert after.bound_s <= before.bound_s


def test_h100_uses_all_its_links_equally() -> None:
    cluster = resolve_cluster("hgx-h100")
    loads = link_loads(cluster, pattern_traffic("permutation", 8, 18e9))
    assert loads.of("d0.n0.g0", "d0.s0") == pytest.approx(5e9)
    assert loads.of("d0.s3", "d0.n0.g4") == pytest.approx(4e9)
    assert loads.bound_s == pytest.approx(18e9 / 450e9 + 2 * 0.5e-6)
    with pytest.raises(InputError, match=r"no link goes from d0\.n0\.g0 to d0\.n0\.g1"):
        loads.of("d0.n0.g0", "d0.n0.g1")


def test_incast_is_bound_by_the_one_that_hears_all() -> None:
    cluster = resolve_cluster("gb200-nvl72")
    loads = link_loads(cluster, pattern_traffic("incast", 72, 1e9))
    assert loads.bound_s == pytest.approx(71e9 / 900e9 + 1e-6)
    assert loads.bottleneck.ends == ("d0.s0", "d0.n0.g0")
    assert [group.count for group in loads.hottest(9)] == [18, 71 * 18]


def test_bytes_of_two_domains_by_hand() -> None:
    """Half of an all-to-all leaves its rack, less the GPU itself: 72 of 143 peers are in the other."""
    cluster = resolve_cluster("gb200-nvl72@144")
    loads = link_loads(cluster, pattern_traffic("all-to-all", 144, 143e6))
    assert loads.tiers["ib-ndr400 leaf"].bytes == pytest.approx(144 * 72e6)
    # the others: 71 peers of the own rack, and three in four of those outside, to reach their rail
    assert loads.tiers["nvlink5"].bytes == pytest.approx(144 * (71e6 + 54e6))
    assert loads.transfer_s == pytest.approx(72e6 / 50e9)
    assert loads.scale_up_bytes / loads.scale_out_bytes == pytest.approx(125 / 72)


@pytest.mark.parametrize("shape", [(8, 4), (4, 4, 4), (6, 2), (16, 2, 2)])
def test_uniform_traffic_on_a_torus_takes_an_eighth_of_its_longest_ring(shape: tuple[int, ...]) -> None:
    n, k = int(np.prod(shape)), max(shape)
    per_pair = 1e6
    for wrap, slower in ((True, 1), (False, 2)):
        loads = link_loads(torus(shape, wrap=wrap), pattern_traffic("all-to-all", n, per_pair * (n - 1)))
        assert loads.transfer_s == pytest.approx(slower * k / 8 * per_pair * n / 10e9)
        hops = sum(size // 2 if wrap else size - 1 for size in shape)
        assert loads.latency_s == pytest.approx(hops * 1e-6)


def test_effective_rates_of_an_all_to_all() -> None:
    assert uniform_bytes_per_s(resolve_cluster("hgx-h100"), range(8)) == pytest.approx(450e9)
    assert uniform_bytes_per_s(resolve_cluster("hgx-h100@16"), range(2, 7)) == pytest.approx(450e9)
    assert uniform_bytes_per_s(mesh(5), range(5)) == pytest.approx(40e9)
    assert uniform_bytes_per_s(mesh(5), [0, 3]) == pytest.approx(10e9)
    ring = uniform_bytes_per_s(torus((8,)), range(8))
    assert ring == pytest.approx(8 * 10e9 / 8 * 7 / 8)
    line = uniform_bytes_per_s(torus((8,), wrap=False), range(8))
    assert line == pytest.approx(ring / 2)


def test_rates_of_all_domains_at_once_are_those_of_each() -> None:
    faults = (Fault(link=("d1.n0.g0", "d1.s1"), factor=0.5), Fault(link=("d2.n0.g3", "d2.s0")))
    cluster = build_cluster(replace(hosts("rail", 3).spec, faults=faults))
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
    nodes = {"a": "gpu", "b": "gpu", "c": "gpu", "s": "switch", "leaf": "leaf"}
    links = [("a", "s", 2), ("b", "s", 2), ("a", "leaf", 1), ("b", "leaf", 1), ("c", "leaf", 1)]
    made = [
        RawNode(name, kind, "d" if kind == "gpu" else None, gpu=H100.gpu if kind == "gpu" else None)
        for name, kind in nodes.items()
    ]
    cabled = tuple(RawLink((a, b), LINK, count) for a, b, count in links)
    cluster = build_cluster(raw_cluster_spec("raw", RawTopology(tuple(made), cabled)))
    matrix = np.zeros((3, 3))
    matrix[0, 1], matrix[0, 2] = 4e9, 1e9
    loads = link_loads(cluster, matrix)
    assert loads.of("a", "s") == pytest.approx(4e9)
    assert loads.of("leaf", "c") == pytest.approx(1e9)
    assert loads.of("leaf", "b") == 0
    assert any("outside it" in note for note in loads.notes)


def test_a_pair_without_a_route_is_named() -> None:
    spec = hosts("rail", 2).spec
    cut = tuple(Fault(link=("d0.n0.g2", f"d0.s{s}")) for s in range(4))
    cluster = build_cluster(replace(spec, faults=cut))
    matrix = np.zeros((16, 16))
    matrix[0, 1] = matrix[1, 9] = 1e9
    assert link_loads(cluster, matrix).total_bytes == 2e9
    matrix[0, 2] = 1.0
    with pytest.raises(InputError, match=r"GPU d0\.n0\.g0 does not reach GPU d0\.n0\.g2 over the scale-up"):
        link_loads(cluster, matrix)


def test_two_gpus_without_a_plane_in_common_are_named() -> None:
    nodes = {**{f"g{i}": "gpu" for i in range(4)}, "a": "leaf", "b": "leaf"}
    links = [("g0", "a", 1), ("g1", "b", 1), *((f"g{i}", leaf, 1) for i in (2, 3) for leaf in "ab")]
    made = [
        RawNode(name, kind, name if kind == "gpu" else None, gpu=H100.gpu if kind == "gpu" else None)
        for name, kind in nodes.items()
    ]
    cabled = tuple(RawLink((a, b), LINK, count) for a, b, count in links)
    cluster = build_cluster(raw_cluster_spec("raw", RawTopology(tuple(made), cabled)))
    matrix = np.zeros((4, 4))
    matrix[0, 2] = matrix[2, 3] = 1e9
    loads = link_loads(cluster, matrix)
    assert [loads.of(*ends) for ends in (("g0", "a"), ("g2", "a"), ("g2", "b"))] == [1e9, 5e8, 5e8]
    matrix[0, 1] = 1.0
    with pytest.raises(InputError, match="GPU g0 does not reach GPU g1 over the fabric between"):
        link_loads(cluster, matrix)


def test_a_rate_that_nobody_published_has_no_time() -> None:
    unknown = replace(LINK, link_bytes_per_s=replace(LINK.link_bytes_per_s, value=float("nan")))
    spec = mesh(3).spec
    cluster = build_cluster(replace(spec, domains=(replace(spec.domains[0], fabric=unknown),)))
    with pytest.raises(MissingFigureError, match="not published"):
        link_loads(cluster, np.ones((3, 3)))


def test_traffic_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match="traffic for 4 GPUs does not fit"):
        Router(made("mesh")).loads(pattern_traffic("ring", 4, 1.0))


def test_domains_that_the_fabric_does_not_join_are_named() -> None:
    spec = hosts("leaf-spine", 4, nodes_per_pod=2, spines=2).spec
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
