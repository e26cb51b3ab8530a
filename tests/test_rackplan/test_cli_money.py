"""Dollars, megawatts and totals of the cluster, as the commands say them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

PLAN = ("plan", "--cluster", "hgx-h100@16", "--model", "mixtral-8x7b", "--time-limit", "0", "-o", "plan")
YOURS = ("--price", "h100=2.5", "--power", "h100-sxm=1.5kW", "--price-basis", "owner")


def test_a_plan_keeps_prices(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, *YOURS)
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    asked = {"basis": "owner", "prices": {"h100-sxm": 2.5}, "powers": {"h100-sxm": 1500.0}}
    assert written["inputs"]["prices"] == asked
    score = written["score"]
    totals = score["totals"]
    assert totals["tok_s"] == pytest.approx(16 * score["tok_s_per_gpu"])
    assert totals["usd_per_hour"] == 40
    assert totals["usd_per_year"] == 40 * 8760
    assert totals["usd_per_million_tokens"] == pytest.approx(1e6 * 40 / 3600 / totals["tok_s"])
    assert totals["tok_s_per_mw"] == pytest.approx(totals["tok_s"] / 0.024)
    assert (totals["price_basis"], totals["price_kind"], totals["power_kind"]) == ("owner", "user", "user")
    assert (totals["phase"], totals["requests_per_s"], totals["missing"]) == ("decode", None, [])
    assert run("score", "plan/plan.json", "--json").data["totals"] == totals
    assert run("explain", "plan/plan.json", "--json").data["score"]["totals"] == totals
    said = " ".join(run("score", "plan/plan.json").out.split())
    assert "40.00 USD/h for 16 GPUs (basis owner; h100-sxm 2.5 USD/h, user)" in said
    other = run("score", "plan/plan.json", "--price", "h100=5", "--json").data["totals"]
    assert (other["usd_per_hour"], other["power_w"], other["price_basis"]) == (80, 24000, "owner")
    page = (tmp_path / "plan/report.html").read_text()
    assert "What it costs" in page
    assert "USD per million output tokens, basis owner" in page


def test_a_plan_of_before_prices_is_at_the_usual_ones(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, *YOURS)
    path = tmp_path / "plan/plan.json"
    data = json.loads(path.read_text())
    del data["inputs"]["prices"]
    del data["score"]["totals"]
    path.write_text(json.dumps(data))
    totals = run("score", "plan/plan.json", "--json").data["totals"]
    assert (totals["price_basis"], totals["usd_per_hour"]) == ("rental", pytest.approx(16 * 1.30))
    data["inputs"]["prices"] = {"basis": "rental", "prices": {"h100-sxm": -1.0}}
    path.write_text(json.dumps(data))
    result = run("score", "plan/plan.json")
    assert result.code == 2
    assert "--price h100-sxm -1: expected a number above 0" in result.error_line


@pytest.mark.wide
def test_idle_gpus_are_paid_for_and_those_in_use_said_beside(run: Run) -> None:
    asked = (*PLAN, "--goal", "gpus", *YOURS)
    totals = run(*asked, "--json").data["score"]["totals"]
    used = totals["used"]
    assert (totals["gpus"], totals["usd_per_hour"], used["gpus"]) == (16, 40, 16 - totals["gpus_idle"])
    assert used["usd_per_hour"] == used["gpus"] * 2.5
    assert used["usd_per_million_tokens"] == pytest.approx(
        1e6 * used["usd_per_hour"] / 3600 / totals["tok_s"]
    )
    said = " ".join(run(*asked).out.split())
    assert f"for 16 GPUs, {totals['gpus_idle']} idle ones too" in said
    assert f"of the {used['gpus']} in use alone" in said


def test_prefill_counts_input_tokens(run: Run) -> None:
    totals = run(*PLAN, "--phase", "prefill", "--json").data["score"]["totals"]
    assert (totals["tokens"], totals["phase"]) == ("input", "prefill")


def test_what_has_no_figure_says_so(run: Run) -> None:
    asked = ("plan", "--cluster", "lecture-8", "--model", "llama-3.1-8b", "--time-limit", "0", "-o", "plan")
    said = " ".join(run(*asked).out.split())
    assert "Cost unknown at the rental basis: no price of lecture" in said
    assert "give yours with --price lecture" in said
    assert "Power unknown: no all-in power of lecture" in said


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--price", "gb200=3"), "no GPU here is called 'gb200'; "),
        (("--power", "h100=nan"), "expected a number above 0"),
        (("--price-basis", "spot"), "--price-basis 'spot': expected owner, neocloud, rental or list"),
    ],
)
def test_what_cannot_be_used_is_refused(run: Run, given: tuple[str, ...], says: str) -> None:
    result = run(*PLAN, *given)
    assert result.code == 2
    assert says in result.error_line


def test_a_sweep_has_dollars_and_megawatts_at_every_point(run: Run, tmp_path: Path) -> None:
    asked = ("sweep", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--tok-s-user", "25,5000", *YOURS)
    data = run(*asked, "-o", "all.csv", "--json").data
    for point in (*data["pareto"], data["iso"][0]):
        assert point["usd_per_million_tokens"] == pytest.approx(1e6 * 8 * 2.5 / 3600 / point["tok_s"])
        assert point["tok_s_per_mw"] == pytest.approx(point["tok_s"] / 0.012)
    assert data["totals"]["tok_s"] == data["pareto"][0]["tok_s"]
    assert data["iso"][1] == {"target_tok_s_per_user": 5000, "tok_s_per_gpu": None}
    head, first = (tmp_path / "all.csv").read_text().splitlines()[:2]
    row = dict(zip(head.split(","), first.split(","), strict=True))
    assert float(row["usd_per_million_tokens"]) == pytest.approx(
        1e6 * 2.5 / 3600 / float(row["tok_s_per_gpu"])
    )
    text = run(*asked).out
    assert "$/Mtok" in text
    assert "USD per million output tokens (decode alone); 20.00 USD/h for 8 GPUs" in " ".join(text.split())


@pytest.mark.wide
def test_matched_pools_pay_for_both(run: Run) -> None:
    asked = ("sweep", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--isl", "512", "--osl", "64")
    one = run(*asked, *YOURS, "--json").data["rate_matching"]["best"]
    totals = one["totals"]
    assert (totals["gpus"], totals["gpus_idle"], totals["phase"]) == (8, 8 - one["gpus_used"], "both")
    assert totals["requests_per_s"] == one["requests_per_s"]
    assert totals["tok_s"] == pytest.approx(one["requests_per_s"] * 64)
    assert totals["usd_per_hour"] == 20
    two = run(*asked, "--prefill-cluster", "hgx-h200", "--price", "h200=3", "--price", "h100=2.5", "--json")
    totals = two.data["rate_matching"]["best"]["totals"]
    assert (totals["gpus"], totals["usd_per_hour"]) == (16, 44)
    assert [part["name"] for part in totals["parts"]] == ["h100-sxm", "h200-sxm"]


@pytest.mark.wide
def test_a_comparison_has_a_bill_for_each_cluster(run: Run, tmp_path: Path) -> None:
    asked = ("compare", "hgx-h100", "lecture-8", "--model", "mixtral-8x7b", "--tok-s-user", "25,5000")
    rows = run(*asked, "--price", "h100=2.5", "-o", "out", "--json").data["rows"]
    first = rows[0]["totals"]
    assert first["usd_per_hour"] == 20
    assert first["tok_s"] == pytest.approx(8 * rows[0]["tok_s_per_gpu"])
    assert first["usd_per_million_tokens"] == pytest.approx(1e6 * 20 / 3600 / first["tok_s"])
    # nobody is that fast: the bill stands, and there is no token to divide it by
    assert (rows[1]["totals"]["usd_per_million_tokens"], rows[1]["totals"]["usd_per_hour"]) == (None, 20)
    assert rows[2]["totals"]["usd_per_hour"] is None
    assert len(rows[2]["totals"]["missing"]) == 2
    assert "What it costs" in (tmp_path / "out/report.html").read_text()
    assert "20.00 USD/h" not in run(*asked).out


def test_the_catalog_shows_what_bills_count(run: Run) -> None:
    billed = run("catalog", "gb200", "--json").data["billed"]
    assert (billed["rental_usd_per_h"]["value"], billed["all_in_power_w"]["value"]) == (3.3, 2100)
    assert "rental_usd_per_h" in run("catalog", "gb200").out
    assert "billed" not in run("catalog", "h20-sxm", "--json").data
