"""``rackplan score``: the same figures as the plan's own, others under other loads, figures, prices and what-ifs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import PLAN, Run, error_of, plan_of


@pytest.fixture
def plan(prepared: Run, tmp_path: Path) -> Any:
    """The content of a plan file in the folder ``plan``."""
    prepared(*PLAN)
    return json.loads((tmp_path / "plan/plan.json").read_text())


def test_several_plans_stand_side_by_side(run: Run, plan: Any) -> None:
    assert run(*PLAN[:-1], "other", "--context", "2048").code == 0
    data = run("score", "plan", "other", "plan", "--json").data
    assert [row["plan"] for row in data["plans"]] == ["plan", "other", "plan (3)"]
    assert data["changed"][0] == {"plan": "other", "input": "context", "before": "4096", "after": "2048"}
    alone = run("score", "other", "--json").data
    assert data["plans"][1]["step_s"] == alone["step_s"]
    assert "plan (3)" not in {row["plan"] for row in data["changed"]}


def test_a_limit_that_is_exceeded_comes_first(run: Run, plan: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "skewed.npy", np.tile(np.array([[7.0] + [1.0] * 7]), (32, 1)))
    held = run("score", "plan", "--json").data
    assert (held["limit_s"], held["over_limit"]) == (0.05, None)
    found = run("score", "plan", "--loads", "skewed.npy", "--set", "gpu.hbm_bytes_per_s=0.9x", "--json").data
    assert found["over_limit"] == pytest.approx(found["step_s"] / 0.05 - 1)
    assert found["answer"][0].startswith(
        f"Misses its limit: {found['step_s'] * 1e3:.1f} ms per token, 50 ms by default ("
    )


def test_loads_that_cannot_be_are_refused(run: Run, plan: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "all.npy", np.tile(np.array([[100.0] + [1.0] * 7]), (32, 1)))
    done = run("score", "plan", "--loads", "all.npy")
    assert done.code == 2
    said = " ".join(done.err.split())
    assert "all.npy: scenario 0, layer 0, expert 0 has 93.5% of the choices, but each token chooses 2" in said
    assert "none can have more than 1/2 = 50.0%" in said


def test_details_are_printed_and_add_levers(run: Run, plan: Any) -> None:
    score = run("score", "plan", "--json").data
    found = run("score", "plan", "--details", "--json").data
    assert found.pop("levers")
    assert found == score
    assert "HBM per GPU weights" not in run("score", "plan").out
    assert "HBM per GPU weights" in run("score", "plan", "--details").out


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize(
    "args",
    [
        ("score", "edited.json"),
        ("what-if", "edited.json"),
        ("simulate", "edited.json", "--req-s", "1", "--isl", "200", "--osl", "20"),
        ("draw", "hgx-h100", "--plan", "edited.json", "-o", "plan.svg"),
        ("export", "edited.json", "--to", "sglang"),
        ("traffic", "edited.json"),
    ],
    ids=lambda args: args[0],
)
def test_an_edited_plan_is_the_first_thing_said(
    run: Run, plan: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    plan["score"]["step_s"] = 1e-5
    (tmp_path / "edited.json").write_text(json.dumps(plan))
    result = run(*args)
    assert result.code == 0
    first = result.err.splitlines()[0]
    assert first.startswith(
        "rackplan: note: edited.json: stored figures differ from those computed again: score.step_s"
    )
    assert "1e-05 (computed 0.0" in first


@pytest.mark.usefixtures("few_requests")
def test_a_plan_for_decode_alone_is_simulated_with_the_usual_requests(run: Run, plan: Any) -> None:
    result = run("simulate", "plan", "--req-s", "1", "--json")
    assert (result.data["isl"], result.data["osl"], result.data["serving"]) == (8192, 1024, "one pool")
    note = "one pool for requests of 8,192 + 1,024 tokens (default)"
    assert note in result.err
    assert any(note in line["text"] for line in result.data["notes"])


def test_a_plan_is_scored_with_another_figure(run: Run, plan: Any) -> None:
    double = ("--set", "h100.hbm_bytes_per_s=2x")
    fast = run("score", "plan", *double, "--json").data
    assert fast["step_s"] < plan["score"]["step_s"]
    assert [row["shown"] for row in fast["set"]] == ["6.7 TB/s"]
    assert run("what-if", "plan", *double, "--json").data["step_s"] == pytest.approx(fast["step_s"])


def test_prices_are_kept_and_may_be_others_later(run: Run, tmp_path: Path) -> None:
    yours = ("--price", "h100=2.5", "--power", "h100-sxm=1.5kW", "--price-basis", "owner")
    assert run(*PLAN, *yours).code == 0
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    asked = {"basis": "owner", "prices": {"h100-sxm": 2.5}, "powers": {"h100-sxm": 1500.0}}
    assert written["inputs"]["prices"] == asked
    data = run("score", "plan", "--json").data
    assert (data["usd_per_hour"], data["power_w"], data["price_basis"]) == (20, 12000, "owner")
    assert (data["price_evidence"], data["bill"][0]["each_usd_per_hour"]) == ("user", 2.5)
    other = run("score", "plan", "--price", "h100=5", "--json").data
    assert (other["usd_per_hour"], other["power_w"], other["price_basis"]) == (40, 12000, "owner")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--price", "h100=2500"), "too large for the price of one GPU-hour"),
        (("--price", "h100=0.0025"), "too small for the price of one GPU-hour"),
        (("--power", "h100=10200"), "is it that of the whole host?"),
        (("--power", "h100=0.7"), "too small for the power of one GPU"),
    ],
)
def test_a_price_or_power_of_another_unit_is_refused(run: Run, option: tuple[str, str], words: str) -> None:
    done = run(*PLAN, *option)
    assert done.code == 2
    assert words in " ".join(done.err.split())


def test_sparse_attention_is_kept_and_said_to_be_a_what_if(run: Run, tmp_path: Path) -> None:
    asked = ("--context", 65_536, "--batch", 4, "--sparse-attention", "sqrt")
    text = " ".join(run(*plan_of("llama-3.1-8b"), *asked, "--details").out.split())
    assert "sparse attention (what-if, not measured): a query reads 256 of 65,536 cached" in text
    assert "what-if, neither trained nor measured" in (tmp_path / "plan/report.html").read_text()
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert written["inputs"]["workload"]["sparse_attention"] == "sqrt"
    assert written["score"]["evidence"] == "assumed"
    scored = run("score", "plan", "--json").data
    assert (scored["step_s"], scored["what_if"]) == (written["score"]["step_s"], "sparse_attention sqrt")
    assert "reading caches takes longer than reading weights above" in scored["setup"]["supposed"]


def test_an_unmeasured_chip_names_its_stand_in_and_a_band(run: Run, tmp_path: Path) -> None:
    """Every output says so, and how far off this chip's figures are."""
    cluster, dense = ("--cluster", "tpu-v7@2x2x2"), ("--model", "llama-3.1-8b")
    words = re.compile(r"are within 1\.[3-9]\dx of the prediction; no run on tpu-v7 was measured")
    said = [" ".join(run(*plan_of("llama-3.1-8b", cluster[1]), "--details").out.split())]
    assert (
        "tpu-v7 has no measurements, so a related chip stands in: kernel efficiency is fitted to" in said[0]
    )
    said += [" ".join(run("compare", cluster[1], "hgx-h100", *dense).out.split())]
    assert all(words.search(text) for text in said)
    found = json.loads((tmp_path / "plan/plan.json").read_text())["score"]["calibration"]
    assert (found["chip"], found["stand_in_for"]) == (error_of("tpu-v7").chip, "tpu-v7")
