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
    data = run("score", "plan/plan.json", "--json").data
    for key in (
        "tok_s",
        "usd_per_hour",
        "usd_per_million_tokens",
        "tok_s_per_mw",
        "price_basis",
        "requests_per_s",
    ):
        assert data[key] == totals[key]
    assert (data["price_evidence"], data["bill"][0]["each_usd_per_hour"]) == ("user", 2.5)
    other = run("score", "plan/plan.json", "--price", "h100=5", "--json").data
    assert (other["usd_per_hour"], other["power_w"], other["price_basis"]) == (80, 24000, "owner")
