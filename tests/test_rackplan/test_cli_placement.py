"""``rackplan plan``: options of the experts' placement, from the command line to summary, report and plan file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import PLAN, Run, plan_of
from placement.plans.reading import read_plan

WIDE = (*PLAN, "--cluster", "gb200-nvl72@8", "--batch", 8, "--ep", 8, "--tp", 1)
TWO_HOSTS = """
name: two hosts
domains:
  - {gpu: h100-sxm, gpus: 2, gpus_per_node: 2, structure: switch, links_per_switch: [5, 5, 4, 4],
     link: 25 GB/s, count: 2}
fabric: {kind: rail, nic: 400 Gb/s}
"""


def written(folder: Path) -> Any:
    return json.loads((folder / "plan/plan.json").read_text())


@pytest.mark.wide
def test_spread_over_nodes(run: Run, tmp_path: Path) -> None:
    result = run(*WIDE, "--redundant", 8, "--spread", "node", "--json")
    assert result.code == 0
    assert result.data["setup"]["constraints"].startswith("copies in different nodes")
    assert result.data["risk"][0]["experts_at_risk"] == 0
    (entry,) = read_plan(tmp_path / "plan/plan.json").experts
    assert entry is not None
    node = entry.slot_gpu // 4
    for row in entry.slot_expert:
        assert len({*zip(row.tolist(), node.tolist(), strict=True)}) == len(row)


@pytest.mark.wide
@pytest.mark.parametrize("split", ["source", "lp", "rank"])
def test_split(run: Run, tmp_path: Path, split: str) -> None:
    assert run(*WIDE, "--redundant", 8, "--split", split, "--loads", "zipf:1").code == 0
    data = written(tmp_path)
    assert data["request"]["split"] == split
    assert data["proof"]["of"].endswith(f"split {split}")
    scored = run("score", "plan/plan.json", "--json").data
    assert scored["balancedness"] == pytest.approx(data["score"]["balancedness_mean"], rel=1e-6)


def test_redundant_auto(run: Run, tmp_path: Path) -> None:
    result = run(*WIDE, "--redundant", "auto", "--loads", "zipf:1", "--details")
    assert result.code == 0
    assert "chosen" in result.out
    data = written(tmp_path)
    curve = data["redundancy"]
    assert data["request"]["redundant"] == curve["chosen"]
    (entry,) = read_plan(tmp_path / "plan/plan.json").experts
    assert entry is not None
    assert entry.slots - 8 == curve["chosen"]
    assert "Number of copies" in (tmp_path / "plan/report.html").read_text()


@pytest.mark.wide
def test_a_plan_says_where_its_tokens_go_and_score_finds_the_same(
    run: Run, few_layers: Callable[[str, int], Path], tmp_path: Path
) -> None:
    """A trace of experts that go in pairs 0 and 4, 1 and 5, ... on two hosts of two GPUs."""
    (tmp_path / "two.yaml").write_text(TWO_HOSTS)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 8, (600, 2))
    other = np.where(rng.random((600, 2)) < 0.8, (first + 4) % 8, (first + 1) % 8)
    np.save(tmp_path / "pairs.npy", np.stack([first, other], axis=2).astype(np.int16))
    asked = plan_of(few_layers("mixtral-8x7b", 2), "two.yaml", "prefill")
    layout = ("--context", 1024, "--batch", 1, "--ep", 4, "--tp", 1, "--stages", 1)
    assert run(*asked, *layout, "--routing", "pairs.npy").code == 0
    plan = written(tmp_path)
    rows = {row["placement"]: row for row in plan["by_traffic"]["rows"]}
    assert rows[plan["by_traffic"]["chosen"]]["step_s"] <= rows["balance"]["step_s"]
    assert plan["by_traffic"]["traces"] == plan["score"]["traffic"]["routing"] == ["pairs.npy"]
    assert "pairs.npy" in plan["inputs"]["sha256"]
    scored = run("score", "plan/plan.json", "--routing", "pairs.npy", "--json").data
    assert {row["layer"] for row in scored["token_traffic"] if row["routing"] == "as traced"} >= {0, 1}
    blind = run("score", "plan/plan.json", "--details")
    assert "this score takes experts as chosen independently" in " ".join(blind.out.split())
