"""``rackplan fleet``: pools, files, what other commands make of its plans, and Ctrl-C."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import Run

CLUSTER = """
name: two-prices
domains:
  - {part: hgx-h100, count: 2}
  - {part: hgx-h200, count: 1}
fabric: {kind: rail, nic: 400 Gb/s, oversubscription: 1}
broken: [{gpu: d0.n0.g3}]
"""


@pytest.fixture
def asked(few_layers: Callable[[str, int], Path], tmp_path: Path) -> tuple[object, ...]:
    """A small fleet, but for the lengths of its requests."""
    (tmp_path / "two-prices.yaml").write_text(CLUSTER)
    return "fleet", "--model", few_layers("mixtral-8x7b", 4), "--cluster", "two-prices.yaml", "-o", "out"


def test_pools_totals_idle_and_plans(run: Run, asked: tuple[object, ...], tmp_path: Path) -> None:
    done = run(*asked, "--isl", 1000, "--osl", 100, "--json")
    assert done.code == 0, done.err
    data = done.data
    written = json.loads((tmp_path / "out/fleet.json").read_text())
    assert {key: written[key] for key in data} == data
    assert all(len(row["sha256"]) == 64 for row in written["digests"])
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert f"{data['usd_per_million_tokens']:#.3g} USD per million output tokens" in text
    assert all(f"{pool['pool']}: " in text for pool in data["pools"])  # on the drawing
    used = [gpu for replica in data["replicas"] for gpu in replica["gpu_ids"]]
    idle = [gpu for row in data["idle"] for gpu in row["gpu_ids"]]
    assert len({*used, *idle}) == len(used) + len(idle)
    assert "d0.n0.g3" not in used + idle
    assert data["broken"] == ["d0.n0.g3"]
    assert (data["gpus"], data["gpus_working"], data["gpus_broken"]) == (23, 23, 1)
    assert data["tok_s"] == pytest.approx(100 * data["requests_per_s"])
    assert data["usd_per_hour"] == pytest.approx(15 * 1.3 + 8 * 1.6)
    assert data["proof"]["gap"] <= 0.01
    plan = f"out/{data['pools'][0]['plan']}"
    assert run("score", plan).code == 0
    assert run("draw", "two-prices.yaml", "--plan", plan, "-o", "x.svg").code == 0
    assert run("draw", "hgx-h100@16", "--plan", plan, "-o", "y.svg").code == 2
    stages = json.loads((tmp_path / plan).read_text())["stages"]
    assert [gpu for stage in stages for gpu in stage["gpus"]] == data["replicas"][0]["gpu_ids"]


def test_ctrl_c_while_replicas_are_planned(
    run: Run, asked: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placement.fleet.plans import Placing

    plan = Placing.plan

    def pressed(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return plan(*args)

    monkeypatch.setattr(Placing, "plan", pressed)
    done = run(*asked, "--isl", 512, "--osl", 128)
    assert done.code == 130
    assert "interrupted" in done.err
    made = json.loads((tmp_path / "out/fleet.json").read_text())
    first, *rest = made["pools"]
    assert first["plan"] is not None
    assert rest
    assert {pool["no_plan"] for pool in rest} == {"not planned: interrupted"}
    assert made["proof"]["interrupted"]
