"""``rackplan plan --isl --osl``: the answer, the files of one pool or two, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rackplan

Run = Callable[..., Any]

ONE = ("plan", "--model", "qwen3-30b-a3b", "--cluster", "hgx-h100", "--time-limit", "0", "-o", "out")
TWO = ("plan", "--model", "deepseek-v3", "--cluster", "hgx-h200@16", "--time-limit", "0", "-o", "out")


def test_the_answer_is_short(run: Run) -> None:
    data = run(*ONE, "--isl", "8k", "--json").data
    assert (data["serving"], data["isl"], data["osl"], data["phase"]) == ("one pool", 8192, 1024, "both")
    assert (data["tpot_limit_s"], data["ttft_limit_s"]) == (0.05, 2.0)
    assert {row["serving"] for row in data["ways"]} == {"one pool", "two pools"}
    assert data["requests_per_s"] > 0
    assert len(run("score", "out").out.splitlines()) <= 40


def test_two_pools_are_two_plans_and_one_report(run: Run, tmp_path: Path) -> None:
    result = run(*TWO, "--isl", "8k", "--json")
    data = result.data
    assert "out/prefill/plan.json" in {row["file"] for row in data["files"]}
    assert [row["role"] for row in data["pools"]] == ["prefill", "decode"]
    assert {row["pool"] for row in data["step"]} == {"prefill", "decode"}
    assert len({gpu for row in data["replicas"] for gpu in row["gpu_ids"]}) == 16
    plans = [json.loads((tmp_path / name).read_text()) for name in ("out/plan.json", "out/prefill/plan.json")]
    assert [plan["inputs"]["workload"]["phase"] for plan in plans] == ["decode", "prefill"]
    page = (tmp_path / "out/report.html").read_text()
    assert "two pools: 8 GPUs prefill, 8 GPUs decode" in page
    assert "Step of prefill" in page
    exported = run(
        "export", "out", "--to", "sglang", "--launch", "lws", "--prefill", "out/prefill", "-o", "e.json"
    )
    assert exported.code == 0
    # one pool in the same folder: the other plan would be of nothing
    assert run(*ONE, "--isl", "8k").code == 0
    assert not (tmp_path / "out/prefill/plan.json").exists()


def test_python_has_the_page_of_both(tmp_path: Path) -> None:
    plan = rackplan.plan("deepseek-v3", "hgx-h200@16", isl=8192, osl=1024, time_limit_s=0)
    assert plan.prefill is not None
    text = rackplan.write_report(plan, tmp_path / "both.html").read_text()
    assert "Step of prefill" in text
    assert repr(plan).count("two pools") == 1
