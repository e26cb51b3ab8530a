"""``rackplan replan``: its files, a lost GPU, and what Ctrl-C keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers import Run, plan_of
from placement.plans.reading import read_plan

REPLAN = ("replan", "old/plan.json", "--time-limit", "0", "-o", "next")


@pytest.fixture
def here(prepared: Run, few_layers: Callable[[str, int], Path], tmp_path: Path, short: None) -> Path:
    """A plan, and other loads beside it; a short search."""
    model = few_layers("mixtral-8x7b", 3)
    prepared(*plan_of(model, to="old"), "--redundant", "16", "--batch", "8")
    np.save(tmp_path / "new.npy", np.random.default_rng(1).lognormal(4, 0.7, (3, 8)))
    return tmp_path


@pytest.mark.wide
def test_files_and_json(run: Run, here: Path) -> None:
    result = run(*REPLAN, "--loads", "new.npy", "--json")
    assert (result.code, result.err) == (0, "")
    files = sorted(path.name for path in (here / "next").iterdir())
    assert files == ["moves.json", "plan.json", "report.html", "topology.svg"]
    assert '"name":"this re-plan"' in (here / "next/report.html").read_text().replace('": "', '":"')
    moves = json.loads((here / "next/moves.json").read_text())
    totals = moves["totals"]
    assert totals["moves"] == len(moves["moves"]) == result.data["moves"] > 0
    assert totals["bytes"] == pytest.approx(sum(step["bytes"] for step in moves["moves"]))
    plan = read_plan(here / "next/plan.json")
    assert not plan.differences
    assert np.mean(list(plan.balancedness.values())) == pytest.approx(totals["balancedness"]["after"])
    step, row = moves["moves"][0], plan.experts[0]
    assert row is not None
    assert set(step) == {"layer", "gpu", "slot", "expert", "replaces", "from", "bytes", "buffer"}
    gpu = [gpu.id for gpu in plan.deployment.cluster.gpus].index(step["gpu"])
    assert row.slot_expert[step["layer"], 3 * gpu + step["slot"]] == step["expert"]


def test_a_lost_gpu(run: Run, here: Path) -> None:
    result = run(*REPLAN, "--lost", "d0.n0.g2", "--json")
    assert result.code == 0
    assert result.data["moves"] == result.data["needed_moves"]
    assert len(read_plan(here / "next/plan.json").deployment.cluster.gpus) == 7


def test_ctrl_c_writes_the_best_so_far(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from placement.progress import Progress
    from rackplan.progress import Reporter

    def stop(self: Reporter, progress: Progress) -> None:
        if progress.total:
            raise KeyboardInterrupt

    monkeypatch.setattr(Reporter, "hear", stop)
    result = run(*REPLAN, "--loads", "new.npy", "--time-limit", "600")
    assert result.code == 130
    assert "interrupted; wrote the best re-plan so far" in result.err
    assert json.loads((here / "next/plan.json").read_text())["proof"]["interrupted"] is True
    assert (here / "next/moves.json").exists()
