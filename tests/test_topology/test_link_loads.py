"""Bytes inside and between domains, counted by hand: once a tier, however many links they cross."""

from __future__ import annotations

import pytest

from topology import resolve_cluster
from topology.routes.link_loads import link_loads
from topology.routes.traffic import pattern_traffic


@pytest.mark.parametrize(
    ("name", "inside", "outside"), [("hgx-h100", 1.0, 0.0), ("hgx-h100@16", 7 / 15, 8 / 15)]
)
def test_bytes_count_once_a_tier(name: str, inside: float, outside: float) -> None:
    cluster = resolve_cluster(name)
    gpus = len(cluster.gpus)
    loads = link_loads(cluster, pattern_traffic("all-to-all", gpus, 1e9), rail_local_forward=False)
    assert loads.scale_up_bytes == pytest.approx(gpus * 1e9 * inside)
    assert (loads.scale_out_bytes > 0) == (outside > 0)
