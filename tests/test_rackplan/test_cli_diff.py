"""``rackplan diff``: two plans side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

PLAN = ("plan", "--model", "olmoe-1b-7b", "--time-limit", "0", "--batch", "16")
A = (*PLAN, "--cluster", "hgx-h100", "--ep", "8", "--tp", "1", "--stages", "1", "-o", "a")
B = (*A[:-1], "b", "--loads", "zipf:1", "--context", "2048")


@pytest.fixture
def plans(prepared: Callable[..., None]) -> None:
    for words in (A, B):
        prepared(*words)


@pytest.mark.usefixtures("plans")
def test_a_plan_is_the_same_as_itself(run: Run) -> None:
    result = run("diff", "a/plan.json", "a/plan.json")
    assert (result.code, result.err) == (0, "")
    assert "the plans are identical" in result.out
    assert "Layout" not in result.out
    data = run("diff", "a/plan.json", "a/plan.json", "--json").data
    assert (data["same"], data["inputs"], data["moves"]["moves"]) == (True, {}, 0)
    assert data["findings"] == {"first": [], "second": []}


@pytest.mark.usefixtures("plans")
def test_what_differs_stands_side_by_side(run: Run) -> None:
    result = run("diff", "a/plan.json", "b/plan.json")
    assert result.code == 0
    for words in (
        "Inputs that differ",
        "zipf:1",
        "tok/s/GPU",
        "KV cache GB",
        "USD per million",
        "Moves",
        "Only in the",
    ):
        assert words in result.out
    data = run("diff", "a/plan.json", "b/plan.json", "--json").data
    scores = [run("score", f"{name}/plan.json", "--json").data for name in "ab"]
    assert {"context", "loads"} <= set(data["inputs"])
    assert "model" not in data["inputs"]
    assert data["inputs"]["context"] == {"first": 4096, "second": 2048, "same": False}
    assert data["layout"]["ep"] == {"first": 8, "second": 8, "same": True}
    for key in ("step_s", "tok_s_per_gpu", "tok_s_per_user"):
        assert [data["predictions"][key][which] for which in ("first", "second")] == [
            one[key] for one in scores
        ]
    assert data["predictions"]["terms_s"]["attention"]["first"] == scores[0]["terms_s"]["attention"]
    moves = data["moves"]
    assert moves["moves"] == sum(moves["by_layer"].values()) > 0
    assert moves["bytes"] == pytest.approx(sum(moves["bytes_from"].values()))
    assert moves["seconds"] > 0
    backwards = run("diff", "b/plan.json", "a/plan.json", "--json").data
    assert backwards["findings"] == {"first": data["findings"]["second"], "second": data["findings"]["first"]}
    assert backwards["moves"]["left"] == moves["moves"]


@pytest.mark.usefixtures("plans")
def test_a_missing_or_broken_plan_is_one_line(run: Run, tmp_path: Any) -> None:
    assert "nothere.json: cannot read it" in run("diff", "a/plan.json", "nothere.json").error_line
    (tmp_path / "bad.json").write_text("{}")
    assert "bad.json: not a plan" in run("diff", "bad.json", "a/plan.json").error_line
    assert "Missing argument" in run("diff", "a/plan.json").error_line
