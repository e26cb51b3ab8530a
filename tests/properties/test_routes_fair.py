"""Max-min fair sharing: against progressive filling one flow at a time, and what must hold of any traffic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from helpers import link_loads
from tests.properties.test_routes import SLOW, small
from topology import resolve_cluster
from topology.base.errors import InputError
from topology.routes import (
    Pairs,
    Router,
    check_pairs,
    fair_s,
    fair_sharing,
    pattern_traffic,
    traffic_matrix,
)
from topology.routes.fair_sharing import Flows, last_end_s, route_flows
from topology.routes.traffic import Traffic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology import Cluster


def popular(n: int, spread: float = 0.63, members: range | None = None) -> Traffic:
    """Return 1e9 bytes of each GPU of ``members`` to all of them, alike from each: some are popular."""
    who = np.arange(n)[members.start : members.stop] if members else np.arange(n)
    parts = np.random.default_rng(0).lognormal(0, spread, len(who))
    return Traffic("popular", n, row=1e9 * parts / parts.sum(), members=who)


def filled(weights: NDArray[np.float64], capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise all rates together; those on a full link stay: the definition, in plain loops."""
    links, flows = weights.shape
    rates, free = np.zeros(flows), set(range(flows))
    while free:
        grows = [sum(weights[e, f] for f in free) for e in range(links)]
        room = [capacity[e] - sum(weights[e, f] * rates[f] for f in range(flows)) for e in range(links)]
        step = min(room[e] / grows[e] for e in range(links) if grows[e] > 0)
        for flow in free:
            rates[flow] += step
        full = [e for e in range(links) if grows[e] > 0 and room[e] - step * grows[e] <= 1e-9 * capacity[e]]
        free -= {flow for flow in free if any(weights[e, flow] > 0 for e in full)}
    return rates


def last_end(weights: NDArray[np.float64], capacity: NDArray[np.float64], left: NDArray[np.float64]) -> float:
    """Fill, go on to the next end, and fill again."""
    now = 0.0
    while len(left):
        rates = filled(weights, capacity)
        step = min(left / rates)
        now, left = now + step, left - step * rates
        stays = left > 1e-9
        weights, left = weights[:, stays], left[stays]
    return now


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9), st.booleans())
def test_the_last_end_is_that_of_progressive_filling(seed: int, links: int, count: int, even: bool) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.random((links, count)) * (rng.random((links, count)) < 0.5)
    weights[rng.integers(links, size=count), np.arange(count)] = 1.0  # each takes some link whole
    capacity = rng.choice([1.0, 2.0, 5.0], links)
    amounts = np.ones(count) if even else rng.uniform(0.2, 2.0, count)
    flows = Flows(csr_array(weights), capacity, amounts)
    found = last_end_s(flows)
    assert found == pytest.approx(last_end(weights, capacity, amounts), rel=5e-3)
    assert found >= flows.busiest_s * (1 - 1e-9)
    assert last_end_s(replace(flows, amounts=np.zeros(count))) == 0.0


@pytest.mark.parametrize("name", [name for name in small.CLUSTERS if name not in SLOW])
def test_shares_and_routes_are_the_loads(name: str) -> None:
    cluster = small.CLUSTERS[name]()
    n = len(cluster.gpus)
    rng = np.random.default_rng(1)
    matrix = rng.random((n, n)) * (rng.random((n, n)) < 0.3)
    np.fill_diagonal(matrix, 0.0)
    matrix[0, 1] = 1.0
    router = Router(cluster)
    sources, targets = np.nonzero(matrix)
    amounts = matrix[sources, targets]
    loads = router.loads(traffic_matrix(matrix, n)).load_bytes
    shares = router.shares(sources, targets)
    assert shares @ amounts == pytest.approx(loads, rel=1e-9, abs=1e-9)
    pairs = Pairs(sources, targets, amounts)
    found = route_flows(router, pairs, 10**6)
    assert found is not None
    routes, of_pair = found
    assert np.bincount(of_pair, routes.amounts) == pytest.approx(amounts)
    assert routes.amounts.sum() == pytest.approx(amounts.sum())
    assert routes.weights @ routes.amounts == pytest.approx(loads, rel=1e-9, abs=1e-9)
    assert route_flows(router, pairs, len(amounts) - 1) is None


@pytest.mark.parametrize("name", [name for name in small.CLUSTERS if name not in SLOW])
def test_alike_senders_load_links_as_their_pairs(name: str) -> None:
    cluster = small.CLUSTERS[name]()
    n, router = len(cluster.gpus), Router(cluster)
    for traffic in (popular(n), popular(n, 1.5, range(1, n - 1)), pattern_traffic("all-to-all", n, 1e9)):
        found = router.loads(traffic)
        matrix = np.zeros((n, n))
        for alike in traffic.alike():
            matrix[alike.senders] += alike.amounts
        pairs = router.loads(traffic_matrix(matrix, n))
        assert found.load_bytes == pytest.approx(pairs.load_bytes, rel=1e-9, abs=1.0)
        assert found.tier_bytes == pytest.approx(pairs.tier_bytes)
        assert (found.latency_s, found.senders) == (pytest.approx(pairs.latency_s), pairs.senders)
        assert found.total_bytes == pytest.approx(pairs.total_bytes)


def gap(cluster: Cluster, pattern: str) -> float:
    n = len(cluster.gpus)
    found = fair_s(Router(cluster), popular(n) if pattern == "popular" else pattern_traffic(pattern, n, 1e9))
    assert found.fair
    return found.completion_s / found.bound_s - 1


NAMES = st.sampled_from(["planes with faults", "random raw graph 1", "random raw graph 2", "full mesh of 8"])


@settings(deadline=None, max_examples=8)
@given(NAMES, st.integers(0, 10**6))
def test_fair_is_never_below_the_bound_and_names_do_not_matter(name: str, seed: int) -> None:
    cluster = small.CLUSTERS[name]()
    n = len(cluster.gpus)
    rng = np.random.default_rng(seed)
    matrix = rng.random((n, n)) ** 3 * (rng.random((n, n)) < 0.5) * 1e9
    matrix[0, -1] += 1.0
    router = Router(cluster)
    found = fair_s(router, traffic_matrix(matrix, n))
    assert found.completion_s >= found.bound_s
    assert found.bound_s == link_loads(cluster, matrix).bound_s
    order = rng.permutation(n)
    again = fair_s(router, traffic_matrix(matrix[np.ix_(order, order)], n, members=order.tolist()))
    assert again.completion_s == pytest.approx(found.completion_s, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["leaf-spine 4:1", "tori 4x4 behind 4:1", "rails, NICs and uplinks lost or slow"]
)
@pytest.mark.parametrize("pattern", ["all-to-all", "popular"])
def test_classes_of_alike_senders_give_the_time_of_all_pairs(
    name: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = small.CLUSTERS[name]()
    n = len(cluster.gpus)
    traffic = popular(n) if pattern == "popular" else pattern_traffic(pattern, n, 1e9)
    monkeypatch.setattr(fair_sharing, "_MIN_SYMMETRY_GPUS", 1000)
    every = fair_s(Router(cluster), traffic)
    monkeypatch.setattr(fair_sharing, "FEW_CLASSES", 10)
    few = fair_s(Router(cluster), traffic)
    assert few.classes < every.classes / 2
    assert few.completion_s == pytest.approx(every.completion_s, rel=2e-3)


@pytest.mark.parametrize("name", ["rail", "grid"])
def test_a_large_all_to_all_by_symmetry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = resolve_cluster("hgx-h100@128") if name == "rail" else small.CLUSTERS["grid 4x4x4"]()
    traffic = pattern_traffic("all-to-all", len(cluster.gpus), 1e9)
    few = fair_s(Router(cluster), traffic)
    monkeypatch.setattr(fair_sharing, "_MIN_SYMMETRY_GPUS", 1000)
    every = fair_s(Router(cluster), traffic)
    assert few.completion_s == pytest.approx(every.completion_s, rel=1e-6)
    # routes of a grid are not as alike as its links
    assert few.classes < 10 if name == "rail" else few.classes > 50


def test_routes_that_are_unlike_go_at_rates_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # 16 uplinks over 3 spines: the way over 6 of them is not as full as those over 5
    assert gap(small.CLUSTERS["tori 2x4 behind 4:1"](), "popular") > 0.03
    spines = small.CLUSTERS["leaf-spine, 3 spines"]()
    assert gap(spines, "permutation") == pytest.approx(1.0667 / 1.0 - 1, abs=0.01)
    monkeypatch.setattr(fair_sharing, "MOST_ROUTES", 10)
    assert gap(spines, "permutation") == pytest.approx(0.0, abs=1e-6)


def test_what_is_too_much_is_said() -> None:
    cluster = resolve_cluster("hgx-h100")
    uneven = traffic_matrix(np.random.default_rng(0).random((8, 8)), 8)
    bound = fair_s(Router(cluster), uneven, most_classes=55)
    assert not bound.fair
    assert bound.completion_s == bound.bound_s
    assert bound.classes == 56
    with pytest.raises(InputError, match="exceed the limit of 40,000,000"):
        check_pairs(popular(10_000))
    told: list[float] = []
    fair_s(Router(cluster), popular(8), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    assert math.isfinite(told[0])
