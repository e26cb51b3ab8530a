"""``--set``: a figure of the user's on every command that takes a cluster, and in the plan that it makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import Result

DOUBLE = ("--set", "h100.hbm_bytes_per_s=2x")


@pytest.fixture
def plan(
    prepared: Callable[..., None], few_layers: Callable[[str, int], Path], tmp_path: Path
) -> Callable[..., Any]:
    """``plan(OPTION...)``: the plan file of a small model on one host."""

    def call(*args: str) -> Any:
        model = few_layers("mixtral-8x7b", 2)
        prepared(
            "plan",
            "--model",
            model,
            "--cluster",
            "hgx-h100",
            "--time-limit",
            0,
            "--batch",
            64,
            "-o",
            "p",
            *args,
        )
        return json.loads((tmp_path / "p" / "plan.json").read_text())

    return call


def test_a_plan_is_scored_with_another_figure(run: Callable[..., Result], plan: Callable[..., Any]) -> None:
    usual = plan()["score"]
    fast = run("score", "p/plan.json", *DOUBLE, "--json").data
    assert fast["step_s"] < usual["step_s"]
    assert [row["shown"] for row in fast["set"]] == ["6.7 TB/s"]
    levers = run("what-if", "p/plan.json", *DOUBLE, "--json").data
    assert levers["step_s"] == pytest.approx(fast["step_s"])
    small = run("score", "p/plan.json", "--set", "gpu.hbm_bytes=0.01x")
    assert small.code == 3
    assert "HBM capacity binds: batch 64 needs" in small.error_line
