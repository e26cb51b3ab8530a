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


def test_json_is_the_score_of_the_plan(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    data, score = (
        run("score", "plan/plan.json", "--json").data,
        json.loads((tmp_path / "plan/plan.json").read_text())["score"],
    )
    for key in (
        "step_s",
        "lower_step_s",
        "tok_s_per_gpu",
        "tok_s_per_user",
        "bound_by",
        "limit_s",
        "evidence",
    ):
        assert data[key] == score[key]
    assert (data["batch"], data["balancedness"]) == (score["batch_per_gpu"], score["balancedness_mean"])


def test_several_plans_stand_side_by_side(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    assert run(*PLAN[:6], "other", "--model", "mixtral-8x7b", "--context", "2048").code == 0
    data = run("score", "plan", "other", "plan", "--json").data
    assert [row["plan"] for row in data["plans"]] == ["plan", "other", "plan (3)"]
    assert data["changed"][0] == {"plan": "other", "input": "context", "before": "4096", "after": "2048"}
    alone = run("score", "other", "--json").data
    assert data["plans"][1]["step_s"] == alone["step_s"]
    assert "plan (3)" not in {row["plan"] for row in data["changed"]}
    gone = run("diff", "plan", "other")
    assert (gone.code, gone.error_line) == (
        2,
        "rackplan: diff has another name; type: rackplan score plan other",
    )
    assert "nothere.json: cannot read it" in run("score", "plan", "nothere.json").error_line


def test_bad_plans_and_loads_are_bad_input(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "shape.npy", np.ones((31, 8)))
    (tmp_path / "half.json").write_text((tmp_path / "plan/plan.json").read_text()[:5000])
    (tmp_path / "no-plan.json").write_text("{}")
    for args, words in (
        (("score", "absent.json"), "absent.json"),
        (("score", "half.json"), "not valid JSON"),
        (("score", "plan/plan.json", "--loads", "shape.npy"), "shape.npy"),
        (("what-if", "no-plan.json"), "not a plan"),
    ):
        result = run(*args, "--json")
        assert result.code == 2
        assert words in result.error_line


def test_a_limit_that_is_exceeded_comes_first(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "skewed.npy", np.tile(np.array([[100.0] + [1.0] * 7]), (32, 1)))
    held = run("score", "plan", "--json").data
    assert (held["limit_s"], held["over_limit"]) == (0.05, None)
    found = run("score", "plan", "--loads", "skewed.npy", "--json").data
    assert found["over_limit"] == pytest.approx(found["step_s"] / 0.05 - 1)
    assert found["answer"][0].startswith(
        f"Misses its limit: {found['step_s'] * 1e3:.1f} ms per token, 50 ms by default ("
    )


def test_details_are_printed_and_add_levers(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    score = run("score", "plan", "--json").data
    found = run("score", "plan", "--details", "--json").data
    assert found.pop("levers")
    assert found == score
    short, text = run("score", "plan").out, run("score", "plan", "--details").out
    assert max(map(len, text.splitlines())) <= 100
    for words in ("Parts of the step", "Uses of HBM", "The weakest figures", "Assumptions"):
        assert words in text
        assert words not in short


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


@pytest.mark.usefixtures("few_requests")
def test_a_plan_for_decode_alone_is_simulated_with_the_usual_requests(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    result = run("simulate", "plan", "--req-s", "1", "--json")
    assert (result.data["isl"], result.data["osl"], result.data["serving"]) == (8192, 1024, "one pool")
    note = "one pool for requests of 8,192 + 1,024 tokens (default)"
    assert note in result.err
    assert any(note in line["text"] for line in result.data["notes"])
