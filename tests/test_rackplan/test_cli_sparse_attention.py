"""``--sparse-attention``: the what-if through every command, said as one, kept in the plan file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

WHERE = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100")
LONG = ("--context", 65_536)
PLAN = ("plan", *WHERE, *LONG, "--batch", 8, "--time-limit", 0, "-o", "plan")


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_plan_keeps_it_and_scores_the_same(run: Run, tmp_path: Path) -> None:
    dense = run(*PLAN, "--json").data["score"]
    text = flat(run(*PLAN, "--sparse-attention", "sqrt").out)
    assert "attention as if sparse (what-if, nobody measured it): a query reads 256 of 65,536 cached" in text
    assert "fewer than dense attention from 2 tokens on; all stay cached" in text
    assert "What if attention as if sparse" in text
    assert "caches take longer to read than weights from" in text
    assert "attention is a what-if" in text
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert written["inputs"]["workload"]["sparse_attention"] == "sqrt"
    assert written["score"]["what_if"] == "sparse_attention sqrt"
    assert written["score"]["evidence"] == "assumed"
    assert "as if sparse (what-if" in (tmp_path / "plan/report.html").read_text()
    assert run("score", "plan/plan.json", "--json").data == written["score"]
    assert written["score"]["step_s"] < dense["step_s"]
    assert written["score"]["hbm_bytes"]["kv_cache"] == dense["hbm_bytes"]["kv_cache"]
    assert written["score"]["max_batch_per_gpu"] == dense["max_batch_per_gpu"]
    assert "what_if" not in dense


def test_score_and_explain_suppose_it_of_a_dense_plan(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    before = (tmp_path / "plan/plan.json").read_bytes()
    own = run("score", "plan/plan.json", "--json").data
    steps = [own["step_s"]]
    for rule in ("16384", "4096", "sqrt"):
        scored = run("score", "plan/plan.json", "--sparse-attention", rule, "--json").data
        assert scored["what_if"] == f"sparse_attention {rule}"
        steps.append(scored["step_s"])
        explained = run("explain", "plan/plan.json", "--sparse-attention", rule, "--json").data
        assert explained["score"] == scored
        assert f"A what-if: sparse attention {rule}." in explained["verdict"]
        assert f"sparse_attention {rule}" in explained["weakest"]["figures"]
        assert any("attention as if sparse" in text.lower() for text in explained["assumptions"])
    assert steps == sorted(steps, reverse=True)
    assert (
        run("score", "plan/plan.json", "--sparse-attention", "65536", "--json").data["step_s"]
        == own["step_s"]
    )
    assert (tmp_path / "plan/plan.json").read_bytes() == before


def test_sweeps_and_comparisons_say_it(run: Run) -> None:
    sweep = ("sweep", *WHERE, *LONG)
    dense, sparse = run(*sweep, "--json").data, run(*sweep, "--sparse-attention", "2048", "--json").data
    assert sparse["what_if"] == "sparse_attention 2048"
    assert "what_if" not in dense
    assert max(r["tok_s_per_gpu"] for r in sparse["pareto"]) > max(
        r["tok_s_per_gpu"] for r in dense["pareto"]
    )
    text = flat(run(*sweep, "--sparse-attention", "2048").out)
    assert "(at most 2,048), fewer than dense attention from 2,049 tokens on" in text
    assert "at no context" in text or "caches take longer to read than weights from" in text
    compare = (
        "compare",
        "hgx-h100",
        "hgx-h200",
        "--model",
        "llama-3.1-8b",
        *LONG,
        "--sparse-attention",
        "sqrt",
    )
    assert run(*compare, "--json").data["what_if"] == "sparse_attention sqrt"
    assert "attention as if sparse (what-if" in flat(run(*compare).out)


def test_a_new_plan_from_it_supposes_it_too(run: Run, tmp_path: Path) -> None:
    plan = ("plan", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--batch", 8, "--time-limit", 0)
    assert run(*plan, "--sparse-attention", "sqrt", "-o", "plan").code == 0
    text = run("replan", "plan/plan.json", "--loads", "zipf:0.5", "--time-limit", 0, "-o", "new").out
    assert "What if attention as if sparse" in flat(text)
    written = json.loads((tmp_path / "new/plan.json").read_text())
    assert written["score"]["what_if"] == "sparse_attention sqrt"


def test_prefill_computes_less(run: Run) -> None:
    sweep = ("sweep", *WHERE, *LONG, "--phase", "prefill")
    dense, sparse = run(*sweep, "--json").data, run(*sweep, "--sparse-attention", "sqrt", "--json").data
    fastest = [max(row["tok_s_per_gpu"] for row in data["pareto"]) for data in (dense, sparse)]
    assert fastest[1] > fastest[0]


@pytest.mark.parametrize("rule", ["0", "half", "-5", "1.5", "sqrt2"])
@pytest.mark.parametrize(
    "command", [PLAN, ("sweep", *WHERE), ("compare", "hgx-h100", "--model", "llama-3.1-8b")]
)
def test_no_rule_is_bad_input(run: Run, command: tuple[object, ...], rule: str) -> None:
    result = run(*command, f"--sparse-attention={rule}")
    assert result.code == 2
    assert f"--sparse-attention {rule}: expected sqrt or a whole number of tokens" in result.error_line


def test_a_plan_file_with_another_word_is_refused(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    path = tmp_path / "plan/plan.json"
    data = json.loads(path.read_text())
    data["inputs"]["workload"]["sparse_attention"] = "half"
    path.write_text(json.dumps(data))
    result = run("score", path)
    assert result.code == 2
    assert "--sparse-attention half" in result.error_line
    del data["inputs"]["workload"]["sparse_attention"]  # as written before
    path.write_text(json.dumps(data))
    assert run("score", path).code == 0
