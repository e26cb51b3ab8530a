"""``rackplan plan --isl --osl``: the answer in twelve lines, the files of one pool or two, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rackplan
from schema_check import require_schema

Run = Callable[..., Any]

ONE = ("plan", "--model", "qwen3-30b-a3b", "--cluster", "hgx-h100", "--time-limit", "0", "-o", "out")
TWO = ("plan", "--model", "deepseek-v3", "--cluster", "hgx-h200@16", "--time-limit", "0", "-o", "out")


def test_the_answer_is_twelve_lines(run: Run) -> None:
    lines = run(*ONE, "--isl", "8k").out.splitlines()
    assert lines[0] == "qwen3-30b-a3b on hgx-h100: requests of 8,192 + 1,024 tokens, one pool"
    labels = [line.split()[0] for line in lines[2:12] if not line.startswith(" ")]
    assert labels[:8] == [
        "Layout",
        "Throughput",
        "Speed",
        "Cost",
        "Power",
        "Limits",
        "Alternative",
        "Accuracy",
    ]
    text = " ".join(" ".join(lines).split())
    assert "requests/s on 8 GPUs" in text
    assert "met: 50 ms per token (default), 2 s to first token (default)" in text
    assert "decode only" not in text
    scored = run("score", "out").out.splitlines()
    assert scored[0] == lines[0]
    assert len(scored) <= 12


def test_one_pool_alone_says_so(run: Run) -> None:
    first = " ".join(run(*ONE).out.partition("=")[0].split())
    assert first == (
        "qwen3-30b-a3b on hgx-h100: decode only, at 4,096 tokens of context (for whole requests: --isl, --osl)"
    )
    prefill = run(*ONE, "--phase", "prefill").out
    assert "prefill only, prompts of 4,096 tokens" in prefill
    assert "Proof" in run(*ONE, "--details").out


def test_two_pools_are_two_plans_and_one_report(run: Run, tmp_path: Path) -> None:
    result = run(*TWO, "--isl", "8k", "--json")
    data = result.data
    require_schema("plan", data)
    assert data["files"]["prefill"] == "out/prefill/plan.json"
    assert [one["role"] for one in data["requests"]["pools"]] == ["prefill", "decode"]
    assert data["score"]["totals"] == data["requests"]["totals"]
    plans = [json.loads((tmp_path / name).read_text()) for name in ("out/plan.json", "out/prefill/plan.json")]
    for plan in plans:
        require_schema("plan.json", plan, file=True)
    assert [plan["inputs"]["workload"]["phase"] for plan in plans] == ["decode", "prefill"]
    page = (tmp_path / "out/report.html").read_text()
    assert "two pools: 8 GPUs prefill, 8 decode" in page
    for title in ("Prefill pool", "Prefill pool: Step", "Prefill pool: HBM"):
        assert re.search(rf'<details class="section"><summary><h2 [^>]*>{title}</h2>', page), title
    exported = run(
        "export", "out", "--to", "sglang", "--launch", "lws", "--prefill", "out/prefill", "-o", "e.json"
    )
    assert exported.code == 0
    # one pool in the same folder: the other plan would be of nothing
    assert run(*ONE, "--isl", "8k").code == 0
    assert not (tmp_path / "out/prefill/plan.json").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--isl", "5", "--context", "5"), "--context 5: --isl plans whole requests"),
        (("--osl", "5", "--phase", "prefill"), "--phase prefill: --osl plans whole requests"),
        (("--isl", "5", "--batch", "5"), "--batch 5: --isl plans whole requests"),
        (("--isl", "5", "--goal", "usd"), "--goal usd: --isl plans whole requests"),
        (("--isl", "5", "--redundant", "auto"), "--redundant auto: --isl plans whole requests"),
    ],
)
def test_what_has_no_use_is_refused(more: tuple[str, ...], why: str, run: Run, tmp_path: Path) -> None:
    result = run(*ONE, *more)
    assert result.code == 2
    assert why in result.error_line
    assert not (tmp_path / "out").exists()


def test_python_has_the_page_of_both(tmp_path: Path) -> None:
    plan = rackplan.plan("deepseek-v3", "hgx-h200@16", isl=8192, osl=1024, time_limit_s=0)
    assert plan.prefill is not None
    text = rackplan.write_report(plan, tmp_path / "both.html").read_text()
    assert "Prefill pool" in text
    assert repr(plan).count("two pools") == 1
