"""``rackplan fleet``: pools, files, what other commands make of its plans, and what is refused."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CLUSTER = """
name: two-prices
domains:
  - {part: hgx-h100, count: 2}
  - {part: hgx-h200, count: 1}
fabric: {kind: rail, nic: 400 Gb/s, oversubscription: 1}
broken: [{gpu: d0.n0.g3}]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "two-prices.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def mixtral(few_layers: Callable[[str, int], Path]) -> Path:
    return few_layers("mixtral-8x7b", 4)


def test_pools_totals_idle_and_plans(run: Run, cluster: Path, mixtral: Path) -> None:
    done = run(
        "fleet", "--model", mixtral, "--cluster", cluster, "--isl", 1000, "--osl", 100, "-o", "out", "--json"
    )
    assert done.code == 0, done.err
    data = done.data
    written = json.loads((cluster.parent / "out/fleet.json").read_text())
    assert {key: written[key] for key in data} == data
    text = (cluster.parent / "out/report.html").read_text(encoding="utf-8")
    assert f"{data['usd_per_million_tokens']:#.3g} USD per million output tokens" in text
    for pool in data["pools"]:
        assert f"{pool['pool']}: " in text  # on the drawing
    assert "command" not in data
    assert all(len(row["sha256"]) == 64 for row in written["digests"])
    used = [gpu for replica in data["replicas"] for gpu in replica["gpu_ids"]]
    idle = [gpu for row in data["idle"] for gpu in row["gpu_ids"]]
    assert len(set(used)) == len(used)
    assert not set(used) & set(idle)
    assert "d0.n0.g3" not in used + idle
    assert data["broken"] == ["d0.n0.g3"]
    assert (data["gpus"], data["gpus_working"], data["gpus_broken"]) == (23, 23, 1)
    assert data["input_tok_s"] == pytest.approx(1000 * data["requests_per_s"])
    assert data["tok_s"] == pytest.approx(100 * data["requests_per_s"])
    assert (data["gpus_used"], data["gpus_idle"]) == (len(used), len(idle))
    assert data["usd_per_hour"] == pytest.approx(15 * 1.3 + 8 * 1.6)
    assert data["usd_per_million_tokens"] == pytest.approx(data["usd_per_hour"] / 3600 / data["tok_s"] * 1e6)
    assert data["proof"]["status"] in {"OPTIMAL", "FEASIBLE"}
    assert data["proof"]["gap"] <= 0.01
    for role in ("decode", "prefill"):
        mine = [pool for pool in data["pools"] if pool["role"] in {role, "both"}]
        assert sum(pool["requests_share"] for pool in mine) == pytest.approx(1)
    pool, replica = data["pools"][0], data["replicas"][0]
    plan = f"out/{pool['plan']}"
    assert run("score", plan).code == 0
    assert run("draw", cluster, "--plan", plan, "-o", "x.svg").code == 0
    assert run("draw", "hgx-h100@16", "--plan", plan, "-o", "y.svg").code == 2
    stages = json.loads((cluster.parent / plan).read_text())["stages"]
    assert [gpu for stage in stages for gpu in stage["gpus"]] == replica["gpu_ids"]


@pytest.mark.wide
def test_two_models_by_share(
    run: Run, cluster: Path, mixtral: Path, few_layers: Callable[[str, int], Path]
) -> None:
    models = ("--model", f"{mixtral}:0.7", "--model", f"{few_layers('qwen3-235b-a22b', 4)}:0.3")
    data = run("fleet", *models, "--cluster", cluster, "--time-limit", 1, "--json").data
    assert [row["requests_share"] for row in data["models"]] == [0.7, 0.3]
    assert sum(pool["requests_share"] for pool in data["pools"]) == pytest.approx(1)


def test_ctrl_c_while_replicas_are_planned(
    run: Run, cluster: Path, mixtral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placement.fleet.plans import Placing

    plan = Placing.plan

    def pressed(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return plan(*args)

    monkeypatch.setattr(Placing, "plan", pressed)
    asked = ("fleet", "--model", mixtral, "--cluster", cluster, "--isl", 512, "--osl", 128, "-o", "out")
    done = run(*asked)
    assert done.code == 130
    assert "interrupted" in done.err
    made = json.loads((cluster.parent / "out/fleet.json").read_text())
    first, *rest = made["pools"]
    assert first["plan"] is not None
    assert rest
    assert {pool["no_plan"] for pool in rest} == {"not planned: interrupted"}
    assert made["proof"]["interrupted"]
