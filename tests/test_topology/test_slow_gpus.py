"""GPUs that work at a part of their rates: read, written, kept in the graph, and slower in every score."""

from __future__ import annotations

from pathlib import Path

import pytest

from cost.inputs.machine import stage_rates
from graph_contract import validate_graph
from topology import resolve_cluster

TEXT = """
name: warm
domains: [{part: hgx-h100, count: 2}]
fabric: {kind: rail, nic: 400 Gb/s}
broken: [{gpu: d0.n0.g3, factor: 0.7}, {gpu: d1.n0.g0}]
"""


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_throttled_gpu_is_there_and_slow(tmp_path: Path) -> None:
    cluster = resolve_cluster(written(tmp_path / "warm.yaml", TEXT))
    assert len(cluster.gpus) == 15
    assert cluster.spec.slow_gpus == {"d0.n0.g3": 0.7}
    assert not cluster.spec.reshaped  # behind switches nobody sends through the one that is gone
    validate_graph(cluster.graph)
    assert "d0.n0.g3" in cluster.graph
    assert cluster.graph.graph["broken_gpus"] == ("d1.n0.g0",)
    whole, slow = stage_rates(cluster, [0], ["bf16"]), stage_rates(cluster, range(8), ["bf16"])
    assert slow.flop_per_s["bf16"] == pytest.approx(0.7 * whole.flop_per_s["bf16"])
    assert slow.hbm_bytes_per_s == pytest.approx(0.7 * whole.hbm_bytes_per_s)
    assert slow.up_bytes_per_s == whole.up_bytes_per_s
    assert stage_rates(cluster, range(8, 15), ["bf16"]).flop_per_s == whole.flop_per_s
