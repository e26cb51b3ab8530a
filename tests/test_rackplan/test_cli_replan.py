"""``rackplan replan``: what it prints and writes, and what it refuses without writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placement.plans.reading import read_plan

Run = Callable[..., Any]

PLAN = ("--cluster", "hgx-h100", "--redundant", "16", "--batch", "8")
LAYERS = 3
FAST = ("--time-limit", "0")


@pytest.fixture
def model(few_layers: Callable[[str, int], Path]) -> Path:
    return few_layers("mixtral-8x7b", LAYERS)


@pytest.fixture
def planned(prepared: Run, model: Path, tmp_path: Path, short: None) -> Path:
    """A plan, and other loads beside it; a short search."""
    prepared("plan", "--model", model, *PLAN, *FAST, "-o", "old")
    np.save(tmp_path / "new.npy", np.random.default_rng(1).lognormal(4, 0.7, (LAYERS, 8)))
    return tmp_path


@pytest.mark.wide
def test_files_and_json(run: Run, planned: Path) -> None:
    result = run("replan", "old/plan.json", "--loads", "new.npy", *FAST, "-o", "next", "--json")
    assert (result.code, result.err) == (0, "")
    files = sorted(path.name for path in (planned / "next").iterdir())
    assert files == ["moves.json", "plan.json", "report.html", "topology.svg"]
    report = (planned / "next/report.html").read_text()
    assert "Re-plan" in report
    assert '"name":"this re-plan"' in report.replace('": "', '":"')
    moves = json.loads((planned / "next/moves.json").read_text())
    totals = moves["totals"]
    assert totals["moves"] == len(moves["moves"]) == result.data["moves"] > 0
    assert totals["bytes"] == pytest.approx(sum(step["bytes"] for step in moves["moves"]))
    assert totals["balancedness"]["before"] < totals["balancedness"]["after"]
    assert totals["front"][0]["moves"] == 0
    plan = read_plan(planned / "next/plan.json")
    assert not plan.differences
    assert np.mean(list(plan.balancedness.values())) == pytest.approx(totals["balancedness"]["after"])
    step = moves["moves"][0]
    row = plan.experts[0]
    assert row is not None
    assert set(step) == {"layer", "gpu", "slot", "expert", "replaces", "from", "bytes", "buffer"}
    gpu = [gpu.id for gpu in plan.deployment.cluster.gpus].index(step["gpu"])
    assert row.slot_expert[step["layer"], 3 * gpu + step["slot"]] == step["expert"]


def test_a_lost_gpu(run: Run, planned: Path) -> None:
    result = run("replan", "old/plan.json", "--lost", "d0.n0.g2", *FAST, "-o", "next", "--json")
    assert result.code == 0
    assert result.data["moves"] == result.data["needed_moves"]
    assert len(read_plan(planned / "next/plan.json").deployment.cluster.gpus) == 7


def test_ctrl_c_writes_the_best_so_far(run: Run, planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from placement.progress import Progress
    from rackplan.progress import Reporter

    def stop(self: Reporter, progress: Progress) -> None:
        if progress.total:
            raise KeyboardInterrupt

    monkeypatch.setattr(Reporter, "hear", stop)
    command = ("replan", "old/plan.json", "--loads", "new.npy", "--time-limit", "600")
    result = run(*command, "-o", "next")
    assert result.code == 130
    assert "interrupted; wrote the best re-plan so far" in result.err
    data = json.loads((planned / "next/plan.json").read_text())
    assert data["proof"]["interrupted"] is True
    assert (planned / "next/moves.json").exists()
