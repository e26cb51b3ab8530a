"""``rackplan score``: the same figures as the plan's own, others under other loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

PLAN = ("plan", "--cluster", "hgx-h100", "--time-limit", "0", "-o", "plan", "--model")


@pytest.mark.parametrize("model", ["mixtral-8x7b", "llama-3.1-8b"])
def test_json_is_the_score_of_the_plan(run: Run, prepared: Run, tmp_path: Path, model: str) -> None:
    prepared(*PLAN, model)
    result = run("score", "plan/plan.json", "--json")
    assert (result.code, result.err) == (0, "")
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert result.data == written["score"]


def test_bad_plans_and_loads_are_bad_input(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "shape.npy", np.ones((31, 8)))
    (tmp_path / "half.json").write_text((tmp_path / "plan/plan.json").read_text()[:5000])
    for args, words in (
        (("absent.json",), "absent.json"),
        (("half.json",), "not valid JSON"),
        (("plan/plan.json", "--loads", "shape.npy"), "shape.npy"),
    ):
        result = run("score", *args, "--json")
        assert result.code == 2
        assert words in result.error_line


def test_a_limit_that_is_exceeded_comes_first(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "skewed.npy", np.tile(np.array([[100.0] + [1.0] * 7]), (32, 1)))
    held = run("score", "plan", "--json").data
    assert (held["limit_s"], held["over_limit"]) == (0.05, None)
    assert "limit:" not in run("score", "plan").out
    found = run("score", "plan", "--loads", "skewed.npy", "--json").data
    assert found["over_limit"] == pytest.approx(found["step_s"] / 0.05 - 1)
    first = run("score", "plan", "--loads", "skewed.npy").out.splitlines()[0]
    assert first == (
        f"Misses its limit: {found['step_s'] * 1e3:.1f} ms per token, 50 ms by default "
        f"({found['over_limit'] * 100:.3g}% over)"
    )


def test_details_add_up_to_the_score(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    score = run("score", "plan", "--json").data
    found = run("score", "plan", "--details", "--json").data
    details = found.pop("details")
    assert found == score
    assert details["longest_wait_ms"] == pytest.approx(2000 * score["step_s"])
    assert sum(row["seconds"] for row in details["terms"]) == pytest.approx(score["step_s"])
    assert sum(row["share"] for row in details["limits"]) == pytest.approx(1.0)
    assert details["limits"][0]["resource"] == score["bound_by"]
    assert details["step_over_lower"] == pytest.approx(score["step_s"] / score["lower_step_s"])
    assert details["identities"]["two_domains_s"] > details["identities"]["one_domain_s"]
    assert [tier["name"] for tier in details["identities"]["tiers"]] == ["hbm", "ddr5", "flash", "disk"]
    memory = details["memory"]
    assert {part["use"]: part["bytes"] for part in memory["parts"]} == score["hbm_bytes"]
    assert memory["left_bytes"] == score["hbm_bytes"]["free"] >= 0
    for row in details["terms"]:
        assert row["limits_s"] == score["parts_s"][row["term"]]
        assert sum(row["limits_s"].values()) == pytest.approx(row["seconds"])
        assert row["bound_by"][0] == max(row["limits_s"], key=row["limits_s"].get)
    assert details["weakest"]["kind"] == score["evidence"]
    assert all(figure["source"] for figure in details["figures"])
    assert set(details["measured"]) == {"factor", "runs"}
    assert details["levers"]
    text = run("score", "plan", "--details").out
    assert max(map(len, text.splitlines())) <= 100
    for words in ("Parts of the step", "HBM of the fullest GPU", "Weakest evidence", "Assumptions:"):
        assert words in text


@pytest.mark.parametrize(
    "args",
    [
        ("score", "edited.json"),
        ("diff", "plan", "edited.json"),
        ("what-if", "edited.json"),
        ("simulate", "edited.json", "--req-s", "1", "--isl", "200", "--osl", "20"),
        ("draw", "hgx-h100", "--plan", "edited.json", "-o", "plan.svg"),
        ("export", "edited.json", "--to", "sglang"),
        ("traffic", "edited.json"),
    ],
    ids=lambda args: args[0],
)
def test_an_edited_plan_is_the_first_thing_said(
    run: Run, prepared: Run, tmp_path: Path, args: tuple[str, ...]
) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    data = json.loads((tmp_path / "plan/plan.json").read_text())
    data["score"]["step_s"] = 1e-5
    (tmp_path / "edited.json").write_text(json.dumps(data))
    result = run(*args)
    assert result.code == 0
    first = result.err.splitlines()[0]
    assert first.startswith(
        "rackplan: note: edited.json: stored figures differ from those computed again: score.step_s"
    )
    assert "1e-05 (computed 0.0" in first


def test_a_plan_for_decode_alone_is_simulated_with_the_usual_requests(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    result = run("simulate", "plan", "--req-s", "1", "--json")
    assert (result.data["isl"], result.data["osl"], result.data["serving"]) == (8192, 1024, "one pool")
    note = "one pool for requests of 8,192 + 1,024 tokens (default)"
    assert note in result.err
    assert any(note in line["text"] for line in result.data["notes"])
