"""The matrix of times between ranks: by hand, and as the bound of each pair alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from topology import resolve_cluster
from topology.base.errors import InputError
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


def test_a_pair_alone_by_hand(tmp_path: Any) -> None:
    (tmp_path / "tiny.yaml").write_text(RAW)
    cluster = resolve_cluster(str(tmp_path / "tiny.yaml"))
    found = rank_matrix(Router(cluster), [2, 0, 1], 1e9)
    # half over each spine, the slow uplink of 10 GB/s: 20 GB/s from c to a; b has 25 GB/s below it
    assert found.bytes_per_s == pytest.approx(
        np.array([[np.inf, 20e9, 20e9], [20e9, np.inf, 25e9], [20e9, 25e9, np.inf]])
    )
    # hops of the GPUs 1 us each, of the way through either spine 4 and 5 us, half of the bytes each
    latency_s = np.array([[0, 6.5, 6.5], [6.5, 0, 2], [6.5, 2, 0]]) * 1e-6
    assert found.seconds == pytest.approx(1e9 / found.bytes_per_s + latency_s)


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
