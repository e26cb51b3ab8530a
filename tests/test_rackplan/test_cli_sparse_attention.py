"""``--sparse-attention``: the what-if through every command, said as one, kept in the plan file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

WHERE = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100")
LONG = ("--context", 65_536)
PLAN = ("plan", *WHERE, *LONG, "--batch", 8, "--time-limit", 0, "-o", "plan")


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_plan_keeps_it_and_scores_the_same(run: Run, tmp_path: Path) -> None:
    dense = run(*PLAN, "--json").data
    text = flat(run(*PLAN, "--sparse-attention", "sqrt", "--details").out)
    assert "sparse attention (what-if, not measured): a query reads 256 of 65,536 cached" in text
    assert "fewer than dense attention from 2 tokens of context; all tokens stay cached" in text
    assert "what-if, neither trained nor measured" in (tmp_path / "plan/report.html").read_text()
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert written["inputs"]["workload"]["sparse_attention"] == "sqrt"
    assert written["score"]["what_if"] == "sparse_attention sqrt"
    assert written["score"]["evidence"] == "assumed"
    assert "sparse attention (what-if" in (tmp_path / "plan/report.html").read_text()
    scored = run("score", "plan/plan.json", "--json").data
    assert (scored["step_s"], scored["what_if"]) == (written["score"]["step_s"], "sparse_attention sqrt")
    assert "reading caches takes longer than reading weights above" in scored["setup"]["supposed"]
    assert written["score"]["step_s"] < dense["step_s"]
    cache = next(row["bytes"] for row in dense["memory"] if row["use"] == "KV cache")
    assert written["score"]["hbm_bytes"]["kv_cache"] == cache
    # another width may be chosen, whose groups hold other parts of a sequence per GPU
    assert abs(written["score"]["max_batch_per_gpu"] - dense["max_batch"]) < 1
    assert dense["what_if"] == ""
