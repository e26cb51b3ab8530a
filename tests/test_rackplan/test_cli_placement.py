"""``rackplan plan``: options of the experts' placement, from the command line to summary, report and plan file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placement.plans.reading import read_plan

Run = Callable[..., Any]

PLAN = ("plan", "--model", "mixtral-8x7b", "--cluster", "gb200-nvl72@8", "--batch", 8, "--time-limit", 0)
WIDE = (*PLAN, "--ep", 8, "--tp", 1, "-o", "plan")


def written(folder: Path) -> Any:
    return json.loads((folder / "plan/plan.json").read_text())


def narrow(text: str) -> str:
    assert max(len(line) for line in text.splitlines()) <= 100
    return text


@pytest.mark.wide
def test_spread_over_nodes(run: Run, tmp_path: Path) -> None:
    result = run(*WIDE, "--redundant", 8, "--spread", "node", "--details")
    assert "without spread" in result.out
    assert result.code == 0
    data = run(*WIDE, "--redundant", 8, "--spread", "node", "--json").data
    assert data["setup"]["constraints"].startswith("copies in different nodes")
    assert data["risk"][0]["experts_at_risk"] == 0
    plan = read_plan(tmp_path / "plan/plan.json")
    (entry,) = plan.experts
    assert entry is not None
    node = entry.slot_gpu // 4
    for row in entry.slot_expert:
        assert len({*zip(row.tolist(), node.tolist(), strict=True)}) == len(row)
    assert run("plan", *PLAN[1:], "-o", "none", "--spread", "node", "--redundant", 0).code == 0


@pytest.mark.wide
@pytest.mark.parametrize("split", ["source", "lp", "rank"])
def test_split(run: Run, tmp_path: Path, split: str) -> None:
    result = run(*WIDE, "--redundant", 8, "--split", split, "--loads", "zipf:1", "--details")
    assert result.code == 0
    data = written(tmp_path)
    assert data["request"]["split"] == split
    assert data["proof"]["of"].endswith(f"split {split}")
    scored = run("score", "plan/plan.json", "--json").data
    assert scored["balancedness"] == pytest.approx(data["score"]["balancedness_mean"], rel=1e-6)
    # under other loads too, the engine splits as the plan says
    other = run("score", "plan/plan.json", "--loads", "zipf:1.2", "--json").data
    assert other["balancedness"] < 1


def test_redundant_auto(run: Run, tmp_path: Path) -> None:
    result = run(*WIDE, "--redundant", "auto", "--loads", "zipf:1", "--details")
    assert result.code == 0
    assert "chosen" in narrow(result.out)
    data = written(tmp_path)
    curve = data["redundancy"]
    assert data["request"]["redundant"] == curve["chosen"]
    (entry,) = read_plan(tmp_path / "plan/plan.json").experts
    assert entry is not None
    assert entry.slots - 8 == curve["chosen"]
    assert "Number of copies" in (tmp_path / "plan/report.html").read_text()
    dense = run(
        "plan", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--redundant", "auto", "-o", "dense"
    )
    assert dense.code == 2
    assert "--redundant auto" in dense.error_line
