"""Measured frontiers: which runs are on them, what is derived, and what the model reaches beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost.validation.frontier import errors_of_frontiers, frontiers
from cost.validation.predict import predict_serving
from cost.validation.read import Point, Pool

RUN = Point(
    "run", "", "tpot_ms", 10.0, "aggregated", "hgx-h200", "llama-3.1-70b", weights="fp8", kv_dtype="bf16",
    pool=Pool(4, moe_tp=4), concurrency=16, isl=1024, osl=1024,
)  # fmt: skip
TWO_POOLS = replace(
    RUN, phase="disaggregated", model="deepseek-r1", cluster="hgx-b200", weights="", kv_dtype="fp8", gpus=24,
    concurrency=256, pool=Pool(1, 8, 8, workers=2), prefill_pool=Pool(1, 8, 8, workers=1),
)  # fmt: skip
KIND = "total"


def figures(point: Point, **measured: float) -> list[Point]:
    return [replace(point, quantity=name, measured=value) for name, value in measured.items()]


def test_the_throughput_of_a_run_follows_from_its_times() -> None:
    runs = [
        *figures(RUN, tpot_ms=10, ttft_ms=240),
        *figures(replace(RUN, id="total", concurrency=32, token_kind=KIND), tpot_ms=20, tok_s_per_gpu=800),
        *figures(replace(RUN, id="beaten", concurrency=8), tpot_ms=20, ttft_ms=240),
        *figures(replace(RUN, id="alone", concurrency=4), ttft_ms=240),
    ]
    (frontier,), left_out = frontiers(runs)
    assert (left_out, frontier.runs, frontier.most_gpus, frontier.chip) == (1, 3, 4, "h200-sxm")
    slow, fast = frontier.points
    assert (fast.id, fast.tok_s_per_user, fast.requests_per_gpu) == ("run", 100, 4)
    assert fast.tok_s_per_gpu == pytest.approx(16 / (0.240 + 1024 * 0.010) * 1024 / 4)
    assert (slow.id, slow.tok_s_per_user, slow.tok_s_per_gpu) == ("total", 50, 400)
    assert fast.measured_layout == "TP4 DP1 EP1 ETP4 x1, 16 requests"


@pytest.mark.parametrize("run", [RUN, TWO_POOLS])
def test_no_stated_layout_beats_the_chosen_one(run: Point) -> None:
    runs = [replace(run, id=str(n), concurrency=n) for n in (64, 128, 1024)]
    rows = [replace(row, quantity=name) for row in runs for name in ("tpot_ms", "tok_s_per_gpu")]
    told = predict_serving(rows)
    (frontier,), _ = frontiers([replace(a, measured=b.value or 0.0) for a, b in zip(rows, told, strict=True)])
    for row in frontier.points:
        assert min(row.at_load, row.at_speed) >= 0.98 * row.tok_s_per_gpu
    errors = errors_of_frontiers([frontier])
    assert (
        errors["all"]["at_speed"].rows_predicted
        == errors[frontier.chip]["at_load"].rows
        == len(frontier.points)
    )


def test_other_lengths_and_formats_are_other_frontiers_and_too_fast_has_no_layout() -> None:
    others = [replace(RUN, isl=2048), replace(RUN, weights="bf16"), replace(RUN, id="c", engine="vllm")]
    rows = [row for row in (RUN, *others) for row in figures(row, tpot_ms=0.1, ttft_ms=200)]
    frontier, _ = frontiers(rows)
    assert sorted(row.runs for row in frontier) == [1, 1, 2]
    assert (frontier[0].points[0].at_speed, frontier[0].points[0].chosen_layout) == (0, "")
    assert errors_of_frontiers(frontier)["all"]["at_speed"].bias == -1


def test_the_engine_is_chosen_among_those_that_ran_and_layouts_that_ran_are_told_apart() -> None:
    runs = [
        replace(RUN, id=engine, engine=engine, concurrency=n) for engine, n in (("vllm", 16), ("trtllm", 32))
    ]
    rows = [row for row in runs for row in figures(row, tpot_ms=12, ttft_ms=200)]
    (both,), _ = frontiers(rows)
    (alone,), _ = frontiers([row for row in rows if row.engine == "vllm"])
    (unnamed,), _ = frontiers(rows, engines=False)
    assert {row.id for row in both.points} == {row.id for row in unnamed.points} == {"trtllm"}
    assert min(both.points[0].at_load, unnamed.points[0].at_load) > 0
    (best,), (other,) = both.points, alone.points
    assert best.at_speed >= other.at_speed >= other.of_run > 0


def test_at_one_speed_no_more_requests_than_a_run_had_are_taken() -> None:
    slow = figures(RUN, tpot_ms=1000, ttft_ms=200)
    few, many = (
        frontiers([*slow, *figures(replace(RUN, id="most", concurrency=n), tpot_ms=2000, ttft_ms=200)])[0][0]
        for n in (16, 1024)
    )
    assert (few.most_requests, many.most_requests) == (16, 1024)
    assert few.points[-1].at_speed < 0.5 * many.points[-1].at_speed
