"""The matrix of times between ranks: every route of a pair listed, one by one, on tiny fabrics."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest

from topology import resolve_cluster
from topology.base.errors import InputError
from topology.cluster import Cluster
from topology.routes import Pairs, Router, Traffic, rank_matrix

RAW = """
name: tiny
nodes:
  - {id: a, kind: gpu, domain: d0, node: h0, gpu: h100-sxm}
  - {id: b, kind: gpu, domain: d1, node: h1, gpu: h100-sxm}
  - {id: c, kind: gpu, domain: d2, node: h2, gpu: h100-sxm}
  - {id: l0, kind: leaf}
  - {id: l1, kind: leaf}
  - {id: s0, kind: spine}
  - {id: s1, kind: spine}
links:
  - {between: [a, l0], rate: 50 GB/s, latency: 1 us}
  - {between: [b, l0], rate: 25 GB/s, latency: 1 us}
  - {between: [c, l1], rate: 50 GB/s, latency: 1 us}
  - {between: [l0, s0], rate: 10 GB/s, latency: 2 us}
  - {between: [l0, s1], rate: 30 GB/s, latency: 3 us}
  - {between: [l1, s0], rate: 20 GB/s, latency: 2 us}
  - {between: [l1, s1], rate: 30 GB/s, latency: 2 us}
"""


def listed(cluster: Cluster, a: str, b: str, amount: float) -> tuple[float, float]:
    """Seconds and bytes/s by listing all paths of fewest hops; each hop shares evenly over the links onwards."""
    graph = cluster.graph
    onwards: dict[str, set[str]] = {}
    paths = list(nx.all_shortest_paths(graph, a, b))
    for one, then in (hop for path in paths for hop in pairwise(path)):
        onwards.setdefault(one, set()).add(then)
    load: dict[tuple[str, str], float] = {}
    for path in paths:
        part = float(np.prod([1 / len(onwards[one]) for one in path[:-1]]))
        for hop in pairwise(path):
            load[hop] = load.get(hop, 0.0) + part
    rate = min(graph.edges[hop]["bytes_per_s"] / part for hop, part in load.items())
    latency = sum(graph.edges[hop]["latency_s"] * part for hop, part in load.items())
    return amount / rate + latency, rate


def test_each_pair_as_its_routes_listed_one_by_one(tmp_path: Any) -> None:
    (tmp_path / "tiny.yaml").write_text(RAW)
    cluster = resolve_cluster(str(tmp_path / "tiny.yaml"))
    order = [2, 0, 1]
    found = rank_matrix(Router(cluster), order, 1e9)
    for i, a in enumerate(order):
        for j, b in enumerate(order):
            if i != j:
                wanted = listed(cluster, cluster.gpus[a].id, cluster.gpus[b].id, 1e9)
                assert (found.seconds[i, j], found.bytes_per_s[i, j]) == pytest.approx(wanted)
    assert found.bytes_per_s[0, 1] == pytest.approx(20e9)  # half of it over the uplink of 10 GB/s
    assert (np.diag(found.seconds) == 0).all()


@pytest.mark.parametrize("name", ["hgx-h100@16", "gb200-nvl72@144", "tpu-v5p@4x4x4", "mi300x@16"])
def test_it_is_the_bound_of_the_pair_alone(name: str) -> None:
    cluster = resolve_cluster(name)
    router, gpus = Router(cluster), len(cluster.gpus)
    found = rank_matrix(router, range(gpus), 64e6)
    for a, b in ((0, 1), (0, gpus - 1), (3, gpus // 2), (gpus - 2, 5)):
        pair = Pairs(np.array([a]), np.array([b]), np.array([64e6]))
        assert found.seconds[a, b] == pytest.approx(router.loads(Traffic("pair", gpus, pairs=pair)).bound_s)


def test_the_file_is_one_that_sglang_takes() -> None:
    router = Router(resolve_cluster("hgx-h100@16"))
    found = rank_matrix(router, range(16), 1e9)
    data = json.loads(found.file(".json", {"gpus": ["x"]}))
    costs = np.array(data["rank_cost_matrix"], dtype=float)  # as srt/eplb/topology.py of #37923 checks it
    assert costs.shape == (16, 16)
    assert np.isfinite(costs).all()
    assert (costs >= 0).all()
    assert (np.diag(costs) == 0).all()
    assert data["bytes_per_s"][0][0] is None
    assert costs[0, 8] > 5 * costs[0, 1]
    with pytest.raises(InputError, match="at most 2,048"):
        rank_matrix(router, [0] * 3000, 1.0)
