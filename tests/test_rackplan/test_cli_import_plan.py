"""``rackplan import-plan``: the same plan comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers import PLAN, Run

ASK = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--batch", "4")


@pytest.mark.wide
def test_an_exported_plan_comes_back_the_same(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "--batch", "4", "--redundant", "8", "--tp", "1")
    assert run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json").code == 0
    result = run("import-plan", "x.json", "--from", "sglang", *ASK, "-o", "back")
    assert (result.code, result.err) == (0, "")
    names = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert names == ["plan.json", "report.html", "topology.svg"]
    ours, back = (json.loads((tmp_path / name / "plan.json").read_text()) for name in ("plan", "back"))
    for key in ("experts", "stages", "layout", "score", "baselines", "failures"):
        assert back[key] == ours[key], key
    for key in ("objective", "bound", "status"):
        assert back["proof"][key] == pytest.approx(ours["proof"][key])
    assert "imported from" in back["proof"]["log"][0]
