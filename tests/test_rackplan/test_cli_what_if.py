"""``rackplan what-if`` and the levers that ``explain`` ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Result


@pytest.fixture
def planned(prepared: Callable[..., None], few_layers: Callable[[str, int], Path]) -> None:
    """A plan in ``p`` of a small model on one host."""
    model = few_layers("mixtral-8x7b", 2)
    prepared("plan", "--model", model, "--cluster", "hgx-h100", "--tpot-ms", 4, "--time-limit", 0, "-o", "p")


@pytest.mark.usefixtures("planned")
def test_the_table_says_what_is_held_and_what_each_lever_brings(run: Callable[..., Result]) -> None:
    said = run("what-if", "p/plan.json").out
    assert "at most 4 ms a token, what the plan is for" in said
    for words in (
        "HBM bandwidth x2",
        "6.7 TB/s",
        "half the context",
        "weights fp8 from bf16",
        "EP width, next down",
    ):
        assert words in said
    assert "bandwidth +10% and scale-out bandwidth x2: the cluster is one domain" in said
    assert "batch x2, same batch and same layout: " in said
    assert "nan" not in said


@pytest.mark.usefixtures("planned")
def test_the_data_have_every_lever_with_its_reasons(run: Callable[..., Result]) -> None:
    data = run("what-if", "p/plan.json", "--json").data
    assert data["held"]["tpot_s"] == 0.004
    assert {one["kind"] for one in data["levers"]} == {"hardware", "workload", "precision", "layout"}
    ways = ("batch_kept", "layout_kept", "layout_free")
    for one in data["levers"]:
        assert set(one["reasons"]) == {way for way in ways if one[way] is None}
    double = next(one for one in data["levers"] if (one["lever"], one["change"]) == ("HBM bandwidth", "x2"))
    plan = data["plan"]["tok_s_per_gpu"]
    assert double["layout_kept"]["gain"] == pytest.approx(double["layout_kept"]["tok_s_per_gpu"] / plan - 1)
    assert data["unchanged"]["layout_kept"]["gain"] == pytest.approx(0)


@pytest.mark.wide
@pytest.mark.usefixtures("planned")
def test_a_lever_is_what_set_would_say(
    run: Callable[..., Result], few_layers: Callable[[str, int], Path]
) -> None:
    data = run("what-if", "p/plan.json", "--json").data
    double = next(one for one in data["levers"] if (one["lever"], one["change"]) == ("HBM bandwidth", "x2"))
    asked = (
        "--model",
        few_layers("mixtral-8x7b", 2),
        "--cluster",
        "hgx-h100",
        "--set",
        "gpu.hbm_bytes_per_s=2x",
    )
    made = run("plan", *asked, "--tpot-ms", 4, "--time-limit", 0, "-o", "fast", "--json").data
    assert double["layout_free"]["tok_s_per_gpu"] >= made["score"]["tok_s_per_gpu"] * (1 - 1e-6)


@pytest.mark.wide
@pytest.mark.usefixtures("planned")
def test_explain_ends_with_the_three_largest_of_the_same(run: Callable[..., Result]) -> None:
    said = " ".join(run("explain", "p/plan.json").out.split())
    assert said.endswith("`rackplan what-if` has all of them.")
    assert "The largest levers, layout kept, tok/s/GPU (at most 4 ms a token, what the plan is for): " in said
    three = run("explain", "p/plan.json", "--json").data["levers"]
    assert len(three) == 3
    rows = run("what-if", "p/plan.json", "--json").data["levers"]
    best: dict[str, float] = {}
    for one in rows:
        if one["kind"] != "layout" and one["layout_kept"] is not None:
            best.setdefault(one["lever"], one["layout_kept"]["gain"])
    assert [one["layout_kept"]["gain"] for one in three] == sorted(best.values(), reverse=True)[:3]


def test_a_file_that_is_no_plan_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert run("what-if", "x.json").code == 2
    assert "not a plan" in run("what-if", "x.json").error_line


@pytest.mark.wide
def test_what_is_longer_than_the_model_was_made_for_is_noted(
    run: Callable[..., Result], prepared: Callable[..., None]
) -> None:
    words = ("--model", "olmoe-1b-7b", "--cluster", "hgx-h100", "--time-limit", 0, "--ep", 8, "--batch", 9)
    prepared("plan", *words, "--context", 4000, "-o", "q")
    said = " ".join(run("what-if", "q/plan.json").out.split())
    assert "context x2: sequences of 8,000 tokens are longer than the 4,096" in said
    rows = run("what-if", "q/plan.json", "--json").data["levers"]
    assert {row["change"] for row in rows if "note" in row} == {"+10%", "x2"}
