"""Requests in flight are their rate times their time, within 2 %, wherever an answer has all three (Little's law)."""

from __future__ import annotations

import numpy as np
import pytest

import rackplan
from helpers import Run

NARROW = "gpt-oss-20b", "hgx-b200@4"
"""Prefill is the narrow place."""
CELLS = [
    NARROW,
    ("llama-3.1-70b", "hgx-h100"),
    *(
        pytest.param(*cell, marks=pytest.mark.wide)
        for cell in (
            ("deepseek-v4-pro", "gb300-nvl72"),
            ("deepseek-r1", "hgx-h200@64"),
        )
    ),
]
OSL = 1024


def stay_s(speed: float, ttft_s: float | None, *, one_pool: bool) -> float:
    return OSL / speed + (ttft_s or 0.0) * one_pool


@pytest.mark.usefixtures("few_joined", "no_speed_of_levels")
@pytest.mark.parametrize(("model", "cluster"), CELLS)
def test_requests_in_flight_are_rate_times_time(run: Run, model: str, cluster: str) -> None:
    near = pytest.approx(1, abs=0.02)
    named = ("--model", model, "--cluster", cluster, "--json")
    matched = run("sweep", *named).data
    for row in (*matched["ways"], *(row for row in matched["speeds"] if row["layout"]), *matched["frontier"]):
        asked = row["requests_per_s"] * stay_s(
            row["tok_s_per_user"], row["ttft_s"], one_pool=row["serving"] == "one pool"
        )
        assert row["batch"] * row["decode_gpus"] / asked == near
        assert row["in_flight"] / asked == near
    plan = run("plan", *named, "--time-limit", 0, "-o", "plan").data
    for pool in plan["pools"]:
        if pool["role"] != "prefill":
            held, first_s = pool["batch"] * pool["gpus"], 0.0
            if pool["role"] == "both":
                first_s = plan["ttft_s"]
            assert held / (pool["tok_s"] * (pool["step_s"] + first_s / OSL)) == near
    size = run("size", *named, "--req-s", 100).data
    held = sum(
        pool["batch"] * pool["gpus_per_worker"] * pool["workers"]
        for pool in size["pools"]
        if pool["role"] != "prefill"
    )
    one_pool = size["serving"] == "one pool"
    asked = size["requests_per_s"] * stay_s(size["tok_s_per_user"], size["ttft_s"], one_pool=one_pool)
    assert held / asked == near
    (row,) = run("compare", cluster, "--model", model, "--json").data["rows"]
    assert row["reached_tok_s_per_user"] / matched["tok_s_per_user"] == near
    assert row["batch"] / matched["batch"] == near


def test_steps_are_of_the_batch_that_the_rate_holds() -> None:
    found = rackplan.sweep(*NARROW)
    decode, row = found.serving.decode, found.serving.bests(found.tpot_s)["two pools"]
    assert row.step_batch < decode.batch[row.decode]
    assert row.batch == pytest.approx(row.step_batch)
    run = decode.run([row.decode], np.array([row.step_batch]), np.array([row.batch]))
    assert run.tok_s_per_user == pytest.approx(row.tok_s_per_user)
    slower = found.serving.at_rate(row, row.requests_per_s / 2)
    assert slower.in_flight < row.in_flight / 2
    same = found.serving.at_rate(row, row.requests_per_s)
    assert (same.tok_s_per_user, same.batch) == pytest.approx((row.tok_s_per_user, row.batch))
