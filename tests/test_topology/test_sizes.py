"""What is too large to plan for is refused by one line that names the limit and what would fit."""

from __future__ import annotations

import math
from pathlib import Path
from unittest.mock import patch

import pytest

from cost.deployment import Deployment
from cost.loads import read_loads
from cost.resolve import resolve_model
from cost.workload import Workload
from placement.online.policies import DEFAULT, entries, work_of_a_window
from topology import resolve_cluster
from topology.errors import InputError
from topology.limits import DRAWN_PAIRS, GPUS
from topology.routes.traffic import pattern_traffic
from topology.sizes import (
    check_layer_experts,
    check_layer_gpus,
    check_load_numbers,
    check_plan_copies,
    check_planned_loads,
    check_replay,
)


def test_layers_times_gpus() -> None:
    check_layer_gpus(1000, 8_000, "m", "c")
    with pytest.raises(InputError, match=r"10,000 layers x 10,080 GPUs .* take at most 800 GPUs"):
        check_layer_gpus(10_000, 10_080, "m", "c")
    with patch("topology.sizes.LAYER_GPUS", 255), pytest.raises(InputError, match="at most 7 GPUs"):
        Deployment(resolve_cluster("hgx-h100"), resolve_model("mixtral-8x7b"), Workload())


def test_layers_times_experts_and_scenarios() -> None:
    check_layer_experts(160, 4096)
    with pytest.raises(InputError, match="at most 160 layers"):
        check_layer_experts(161, 4096)
    check_load_numbers(1000, 58, 256)
    with pytest.raises(InputError, match="give at most 1,010 scenarios"):
        check_load_numbers(1130, 58, 256)
    with pytest.raises(InputError, match="40,960,000 to place"):
        read_loads(["uniform"], moe_layers=range(10_000), layers=10_000, experts=4096, seed=0)
    with pytest.raises(InputError, match="5,000 scenarios x 58 MoE layers"):
        read_loads(["uniform"] * 5000, moe_layers=range(58), layers=61, experts=256, seed=0)
    check_planned_loads(538, 58, 256)
    with pytest.raises(InputError, match="give at most 538 scenarios, or as many `windows`"):
        check_planned_loads(539, 58, 256)
    check_planned_loads(2000, 8, 64)
    with pytest.raises(InputError, match="give at most 2,000 scenarios"):
        check_planned_loads(2001, 8, 64)


def test_windows_of_a_replay() -> None:
    every = entries(DEFAULT, steps_per_window=3000, windows=1000, planned=True)
    work = work_of_a_window(every, 58, 256)
    check_replay(248, work, len(every), 58, 256)
    with pytest.raises(InputError, match=r"1,000 windows .* by 8 policies .* take at most 248 `windows`"):
        check_replay(1000, work, len(every), 58, 256)
    one = entries(["rackplan:1%"], steps_per_window=3000, windows=1000, planned=True)
    check_replay(800, work_of_a_window(one, 58, 256), len(one), 58, 256)


def test_copies_of_a_plan() -> None:
    check_plan_copies(1400, 72, 58 * 288, "x")
    with pytest.raises(InputError, match=r"12,500 replicas x 14,848 .* at most 18,072 GPUs"):
        check_plan_copies(12_500, 8, 58 * 256, "x")


@pytest.mark.parametrize(
    "text",
    [
        f"domains: [{{part: hgx-h100, count: {GPUS // 8 + 1}}}]\nfabric: {{kind: rail, nic: 400 Gb/s}}",
        "domains: [{gpu: tpu-v5p, structure: torus, shape: [32, 32, 17], wrap: true, link: 100 GB/s}]",
        "nodes:\n" + "".join(f"- {{id: g{i}, kind: gpu, gpu: h100-sxm}}\n" for i in range(41)),
    ],
)
def test_clusters_of_too_many_gpus(text: str, tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_text(f"name: huge\n{text}\n")
    with patch("topology.sizes.LISTED_GPUS", 40), pytest.raises(InputError, match=r"at most [\d,]+ are supp"):
        resolve_cluster(str(path))


def test_a_name_with_too_many_gpus() -> None:
    with pytest.raises(InputError, match="at most 131,072 GPUs"):
        resolve_cluster("hgx-h100@131080")


def test_pairs_that_are_drawn_one_by_one() -> None:
    most = math.isqrt(DRAWN_PAIRS)
    assert pattern_traffic("random", most, 1e6).gpus == most
    with pytest.raises(
        InputError, match=r"20,001 GPUs are 400,040,001 pairs .* at most 20,000 GPUs, or lognormal:1"
    ):
        pattern_traffic("random", most + 1, 1e6)
