"""``rackplan diff``: two plans side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cost.resolve import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

PLAN = ("plan", "--model", "olmoe-1b-7b", "--time-limit", "0", "--batch", "16")
A = (*PLAN, "--cluster", "hgx-h100", "--ep", "8", "--tp", "1", "--stages", "1", "-o", "a")
B = (*A[:-1], "b", "--loads", "zipf:1", "--context", "2048")
OTHER = (
    "plan",
    "--model",
    "qwen3-8b",
    "--time-limit",
    "0",
    "--cluster",
    "hgx-h200",
    "--phase",
    "prefill",
    "-o",
    "c",
)


@pytest.fixture
def plans(prepared: Callable[..., None]) -> None:
    for words in (A, B, OTHER):
        prepared(*words)


@pytest.mark.usefixtures("plans")
def test_a_plan_is_the_same_as_itself(run: Run) -> None:
    result = run("diff", "a/plan.json", "a/plan.json")
    assert (result.code, result.err) == (0, "")
    assert "the plans are the same" in result.out
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
        "Only of the",
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
def test_plans_of_unlike_models_and_clusters_show_what_can_be_compared(run: Run) -> None:
    result = run("diff", "a/plan.json", "c/plan.json")
    assert result.code == 0
    assert "not counted: the models differ: olmoe-1b-7b and qwen3-8b" in " ".join(result.out.split())
    data = run("diff", "a/plan.json", "c/plan.json", "--json").data
    assert data["moves"] is None
    assert data["moves_missing"].startswith("the models differ")
    assert data["predictions"]["tokens"] == {"first": "output", "second": "input", "same": False}
    rates = [line.split() for line in result.out.splitlines() if line.startswith("  tok/s/GPU ")]
    assert len(rates[0]) == 3, "input tokens are not compared with output tokens"


@pytest.mark.usefixtures("plans")
def test_prices_may_be_of_either(run: Run) -> None:
    words = ("diff", "a/plan.json", "c/plan.json", "--json", "--price")
    data = run(*words, "h200-sxm=80").data
    assert data["cost"]["usd_per_hour"]["second"] == 640
    assert run("diff", "a/plan.json", "c/plan.json", "--price", "b300=2").code == 2


@pytest.mark.usefixtures("plans")
def test_a_missing_or_broken_plan_is_one_line(run: Run, tmp_path: Any) -> None:
    assert "nothere.json: cannot read it" in run("diff", "a/plan.json", "nothere.json").error_line
    (tmp_path / "bad.json").write_text("{}")
    assert "bad.json: not a plan" in run("diff", "bad.json", "a/plan.json").error_line
    assert "Missing argument" in run("diff", "a/plan.json").error_line


@pytest.mark.usefixtures("plans")
def test_inputs_that_are_too_long_to_show_are_told_by_a_digest(run: Run, prepared: Any) -> None:
    prepared(*A[:-1], "d", "--set", "h100.fp4_flop_per_s=1e15", "--loads", "lognormal:0.63", "--seed", "1")
    found = run("diff", "a/plan.json", "d/plan.json", "--json").data["inputs"]
    assert found["h100-sxm.fp4_flop_per_s"]["first"] is None
    assert "cluster_digest" not in found, "the figure says it"


@pytest.mark.usefixtures("plans")
def test_a_limit_beside_none_is_a_difference(run: Run, prepared: Any) -> None:
    words = ("plan", "--model", "olmoe-1b-7b", "--time-limit", "0", "--cluster", "hgx-h100", "--ep", "8")
    prepared(*words, "--tpot-ms", "none", "-o", "f")
    prepared(*words, "--tpot-ms", "40", "-o", "g")
    found = run("diff", "f/plan.json", "g/plan.json", "--json").data["inputs"]
    assert found["tpot_s"] == {"first": "none", "second": 0.04, "same": False}


@pytest.mark.wide
@pytest.mark.usefixtures("plans")
def test_what_is_broken_is_named(run: Run, prepared: Any) -> None:
    prepared("replan", "a/plan.json", "--lost", "d0.n0.g3", "--time-limit", "0", "-o", "e")
    found = run("diff", "a/plan.json", "e/plan.json", "--json").data["inputs"]
    assert found["broken"] == {"first": None, "second": "d0.n0.g3", "same": False}
    assert "cluster_digest" not in found


def test_configs_of_one_name_differ_in_keys(run: Run, tmp_path: Any) -> None:
    for folder, experts in (("x", 64), ("y", 32)):
        config = {**resolve_model("olmoe-1b-7b").config, "num_hidden_layers": 2, "num_experts": experts}
        (tmp_path / folder / "m").mkdir(parents=True)
        (tmp_path / folder / "m" / "config.json").write_text(json.dumps(config))
        words = ("--cluster", "hgx-h100", "--ep", "8", "--batch", "4", "--time-limit", "0")
        assert run("plan", "--model", f"{folder}/m", *words, "-o", f"{folder}/p").code == 0
    found = run("diff", "x/p/plan.json", "y/p/plan.json", "--json").data
    assert found["inputs"]["config.num_experts"] == {"first": 64, "second": 32, "same": False}
    assert "config.num_hidden_layers" not in found["inputs"]
    assert "other experts" in found["moves_missing"]
