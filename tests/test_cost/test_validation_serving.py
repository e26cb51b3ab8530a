"""Measured points of served models: groups and times, choices where a row leaves them, frontiers and first tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cost.calibration.correction import PHYSICS, shipped_correction
from cost.calibration.first_token import first_token_calibration, shipped_waits
from cost.calibration.serving import calibrated
from cost.inputs.deployment import Deployment
from cost.inputs.workload import CHUNK_TOKENS, Workload
from cost.layouts import sweep
from cost.memory.batches import most_that_fit
from cost.resolve import resolve_model
from cost.validation.frontier import errors_of_frontiers, frontiers
from cost.validation.predict import (
    choice,
    group_points,
    group_times,
    legal_pools,
    predict,
    predict_serving,
    room_of,
)
from cost.validation.read import Point, Pool
from cost.validation.under_load import with_first_tokens
from topology.files.resolve import resolve_cluster

WIDE = Pool(attention_dp=8, ep=8)
DECODE = Point(
    *("a", "test", "tpot_ms", 10.0, "decode", "hgx-h100", "deepseek-v3"), pool=WIDE, batch=32, context=2000
)
SERVED = replace(
    DECODE, phase="aggregated", cluster="hgx-h200", batch=0.0, context=0.0, concurrency=64, isl=1000, osl=200
)
SPLIT = replace(SERVED, phase="disaggregated", prefill_pool=replace(WIDE, workers=2))
PREFILL = replace(DECODE, phase="prefill", quantity="tok_s_per_gpu", batch=0.0)


def group_of(*points):
    groups, refused = group_points(points)
    assert refused == {}
    (group,) = groups
    return group


class Flat:
    """A step of the pool that decodes takes 10 ms whatever it holds; the shapes are kept."""

    def __init__(self):
        self.shapes = []

    def __call__(self, shape):
        self.shapes.append(shape)
        return np.full(np.broadcast(shape.sequences, shape.prompt_tokens, shape.tp).shape, 0.01)


def timed(*points):
    """The times of points whose steps are flat, and the shapes that were asked for."""
    group, step = group_of(*points), Flat()
    return group_times(group, calibrated(group.gpu), step), step.shapes


# --- groups


def test_links_and_domains_of_the_row_replace_those_of_the_cluster():
    plain = group_of(DECODE)
    changed = group_of(replace(DECODE, up_bytes_per_s=1e11, out_bytes_per_s=2e10, gpus_per_domain=4))
    assert plain.rates.up_bytes_per_s == plain.rates.alltoall_bytes_per_s == pytest.approx(450e9)
    assert (changed.rates.up_bytes_per_s, changed.rates.alltoall_bytes_per_s) == (1e11, 1e11)
    assert changed.rates.out_bytes_per_s == 2e10
    assert (plain.pool.domain_gpus[0], changed.pool.domain_gpus[0]) == (8, 4)


def test_every_point_is_in_one_group_or_refused():
    changes = ({}, {"cluster": "hgx-h1000"}, {"kernel": "DeepEP LL"}, {"overlap": True}, {"batch": 64})
    points = [replace(DECODE, **change) for change in changes]
    groups, refused = group_points([*points, replace(SERVED, quantity="ttft_ms"), SPLIT])
    assert list(refused) == [1]
    assert "hgx-h1000" in refused[1].reason
    assert sorted(int(i) for group in groups for i in group.index) == [0, 2, 3, 4, 5, 6]
    assert sorted(len(group.index) for group in groups) == [1, 1, 1, 1, 2]  # batches share a group


# --- times


def test_decode_takes_the_batch_or_what_requests_make_of_it():
    stated = replace(DECODE, draft_tokens=1, accept_length=1.6)
    asked = replace(stated, batch=0.0, concurrency=480, pool=replace(WIDE, workers=3))
    times, (shape,) = timed(stated, asked)
    assert shape.sequences.tolist() == [32, 20]
    assert shape.queries.tolist() == [2, 2]
    assert shape.context.tolist() == [2000, 2000]
    assert times.tpot_s == pytest.approx(0.01 / 1.6)
    assert times.tokens_per_s == pytest.approx([8 * 32 * 160, 24 * 20 * 160])


def test_prefill_takes_the_tokens_stated_or_a_chunk_or_the_prompt():
    tp = replace(PREFILL, pool=Pool(tp=4, moe_tp=4), context=0.0, isl=1000)
    points = [
        replace(PREFILL, tokens=16_384, isl=4096),
        replace(PREFILL, context=0.0, isl=4096),
        replace(PREFILL, context=0.0, isl=30_000),
        tp,
    ]
    times, (shape,) = timed(*points)
    assert shape.prompt_tokens.tolist() == [16_384, CHUNK_TOKENS, 30_000, CHUNK_TOKENS / 4]
    assert shape.prompt_length.tolist() == [4096, 4096, 30_000, 1000]
    assert not np.any(shape.sequences)
    assert times.input_per_s == pytest.approx(np.array([8, 8, 8, 4]) * shape.prompt_tokens * 100)
    assert np.isnan(times.tpot_s).all()


@pytest.mark.parametrize("point", [SERVED, SPLIT], ids=["one pool", "two pools"])
def test_no_more_is_held_than_fits(point):
    crowd = replace(point, concurrency=10**6, prefill_pool=None)
    group = group_of(crowd)
    _, shapes = timed(crowd)
    room = room_of(group, replace(group.pool, context=group.requests.context))
    room_for = np.asarray(most_that_fit(room, group.pool.tp))
    assert room_for[0] >= 1
    assert shapes[-1 if point is SPLIT else 0].sequences[0] == pytest.approx(room_for[0], rel=1e-6)


# --- predictions


def test_milliseconds_and_what_counts_as_a_token():
    (tpot,) = predict_serving([replace(SPLIT, gpus=10)])
    rates = {
        kind: predict_serving([replace(SPLIT, quantity="tok_s_per_gpu", token_kind=kind, gpus=10)])[0].value
        for kind in ("output", "input", "total")
    }
    assert rates["input"] / rates["output"] == pytest.approx(1000 / 200)
    assert rates["total"] == pytest.approx(rates["input"] + rates["output"])
    prompts = replace(PREFILL, tokens=16_384, isl=4096, cache_hit=0.75)
    computed, counted = predict_serving(
        [replace(prompts, token_kind=kind) for kind in ("input", "input_cached")]
    )
    assert counted.value == pytest.approx(4 * computed.value)
    hit = replace(SPLIT, quantity="tok_s_per_gpu", gpus=10, cache_hit=0.75)
    computed, counted = predict_serving([replace(hit, token_kind=kind) for kind in ("input", "input_cached")])
    assert counted.value == pytest.approx(4 * computed.value)
    # Little's law: no more than all requests decode at a time
    assert rates["output"] * 10 * tpot.value / 1e3 < 64


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_stages_are_priced_as_in_a_sweep(stages):
    point = replace(
        DECODE, model="llama-3.1-8b", pool=Pool(stages=stages), batch=16, quantity="tok_s_per_gpu"
    )
    (prediction,) = predict_serving([point])
    where = Deployment(resolve_cluster("hgx-h100"), resolve_model("llama-3.1-8b"), Workload(context=2000))
    swept = sweep(replace(where, any_shape=True, correction=PHYSICS))
    alike = (swept.stages == stages) & (swept.tp == 1) & (swept.attention_dp == 1) & (swept.batch == 16)
    assert prediction.value == pytest.approx(swept.tok_s_per_gpu_used[alike].item(), rel=2e-3)


OPEN = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0, workers=0, best=True)
OPEN_DECODE = replace(DECODE, quantity="tok_s_per_gpu", cluster="hgx-h200", pool=OPEN, gpus=16)
OPEN_SERVED = replace(SERVED, quantity="tok_s_per_gpu", pool=OPEN, gpus=16)
OPEN_SPLIT = replace(OPEN_SERVED, phase="disaggregated", cluster="gb200-nvl72", prefill_pool=OPEN, gpus=32)


def chosen(point):
    return choice(point)[0]


def value(point, quantity="tok_s_per_gpu"):
    (prediction,) = predict_serving([replace(point, quantity=quantity)])
    return prediction.value


def test_legal_pools_of_two_nodes_by_hand():
    pools = legal_pools(OPEN_DECODE, OPEN, 16)
    wide = [pool for pool in pools if pool.gpus_per_worker == 16]
    # over two nodes: tensor parallelism inside one or over both, experts uncut
    assert [(pool.tp, pool.ep, pool.moe_tp) for pool in wide] == [(tp, 16, 1) for tp in (1, 2, 4, 8, 16)]
    assert {pool.gpus_per_worker for pool in pools} == {1, 2, 4, 8, 16}
    assert all(pool.gpus == 16 for pool in pools)
    assert all(pool.tp * pool.attention_dp == pool.ep * pool.moe_tp for pool in pools)
    kept = legal_pools(OPEN_DECODE, replace(OPEN, ep=8, moe_tp=1), 16)
    assert {(pool.tp, pool.attention_dp, pool.workers) for pool in kept} == {
        (tp, 8 // tp, 2) for tp in (1, 2, 4, 8)
    }
    assert legal_pools(OPEN_DECODE, replace(OPEN, ep=5), 16) == []
    dense = legal_pools(replace(OPEN_DECODE, model="llama-3.1-70b"), OPEN, 8)
    assert {(pool.tp, pool.moe_tp, pool.workers) for pool in dense} == {
        (tp, tp, 8 // tp) for tp in (1, 2, 4, 8)
    }


@pytest.mark.parametrize("point", [OPEN_DECODE, OPEN_SERVED], ids=["decode", "both phases"])
def test_the_best_layout_is_the_best_of_all(point):
    pools = legal_pools(OPEN_DECODE, OPEN, 16)
    rates = [value(replace(point, pool=pool)) for pool in pools if pool.gpus_per_worker >= 8]
    best, text = choice(point)
    assert value(best) == pytest.approx(max(rates))
    assert best.pool.gpus == 16
    assert f"EP{best.pool.ep}" in text


def test_the_largest_batch_is_what_memory_holds():
    point = replace(OPEN_DECODE, pool=Pool(attention_dp=16, ep=16), batch=math.inf)
    largest, text = choice(point)
    (group,), _ = group_points([replace(point, batch=1.0)])
    room = room_of(group, group.pool)
    assert largest.batch == math.floor(np.squeeze(np.asarray(room)))
    assert text == f"{largest.batch:g} sequences per GPU, the most that fit"


@pytest.mark.parametrize("pool", [OPEN, Pool(attention_dp=16, ep=16)])
def test_the_limit_is_kept_and_used_up(pool):
    free = chosen(replace(OPEN_DECODE, pool=pool, batch=math.inf))
    limit = value(free, "tpot_ms") / 2
    point = chosen(replace(OPEN_DECODE, pool=pool, batch=math.inf, tpot_limit_ms=limit))
    assert 0.8 * limit <= value(point, "tpot_ms") <= limit
    assert value(point) < value(free)


def test_both_pools_share_the_gpus_of_the_row():
    both = chosen(OPEN_SPLIT)
    assert both.pool.gpus + both.prefill_pool.gpus <= 32
    assert min(both.pool.workers, both.prefill_pool.workers) >= 1
    stated = chosen(replace(OPEN_SPLIT, pool=Pool(attention_dp=16, ep=16)))
    assert (stated.prefill_pool.gpus, stated.pool) == (16, Pool(attention_dp=16, ep=16))


def test_the_measured_figure_plays_no_part():
    assert chosen(OPEN_SERVED).pool == chosen(replace(OPEN_SERVED, measured=1e6)).pool
    nearest, text = choice(replace(OPEN_DECODE, batch=math.inf, tpot_limit_ms=0.001))
    assert "no configuration meets 0.001 ms per token" in text
    assert nearest.batch <= 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pool": replace(OPEN, ep=5)}, "no legal layout has the widths given"),
        ({"batch": 1e6}, "fits model and batch"),
        ({"batch": 0.0}, "neither batch_per_gpu nor concurrency"),
    ],
)
def test_why_nothing_could_be_chosen(change, says):
    (prediction,) = predict([replace(OPEN_DECODE, **change)])
    assert prediction.value is None
    assert says in prediction.reason


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
    (unnamed,), _ = frontiers([replace(run, engine="vllm") for run in runs], engines=False)
    assert [point.id for point in unnamed.points] == [point.id for point in frontier.points]


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


ROW = replace(
    SERVED, quantity="ttft_ms", model="qwen3-235b-a22b", pool=Pool(tp=8, ep=8), concurrency=16, isl=4000, osl=400,
    engine="vllm",
)  # fmt: skip


def seconds(*rows, physics=True):
    told = with_first_tokens(rows, predict(rows, shipped_correction()), physics=physics)
    return [prediction.value for prediction in told]


def test_a_request_alone_waits_for_its_prompt_and_what_is_fixed():
    short, long = seconds(replace(ROW, concurrency=1, isl=1), replace(ROW, concurrency=1, isl=8000))
    fixed_ms = 1e3 * first_token_calibration().seconds("vllm", "aggregated")
    groups = replace(ROW, engine="trtllm", pool=Pool(attention_dp=8, ep=8))  # waits for the others' prompts
    waiting, others = seconds(groups, replace(groups, engine="vllm"))
    (step_ms,) = (prediction.value for prediction in predict([replace(groups, quantity="tpot_ms")], PHYSICS))
    assert 30 * step_ms < waiting - others < 70 * step_ms
    assert fixed_ms < short < fixed_ms + 60
    assert long > short + 100


def test_more_engines_and_engines_that_prefill_alone_wait_less():
    prediction, double = seconds(
        replace(ROW, concurrency=128), replace(ROW, concurrency=128, pool=replace(ROW.pool, workers=2))
    )
    assert double < prediction
    few, many = (
        replace(ROW, phase="disaggregated", concurrency=128, prefill_pool=replace(ROW.pool, workers=count))
        for count in (1, 4)
    )
    few_ms, many_ms = seconds(few, many)
    assert many_ms < few_ms


def test_runs_near_correct_it_and_an_interval_is_around_it():
    (bare,) = seconds(ROW)
    (told,) = with_first_tokens([ROW], predict([ROW], shipped_correction()))
    assert told.value != pytest.approx(bare, rel=1e-3)
    assert told.value / told.low == pytest.approx(told.high / told.value)
    assert len(shipped_waits().kinds) == len(shipped_correction().runs.kinds)
    open_row = replace(ROW, pool=Pool(best=True), gpus=8)
    (told,) = with_first_tokens([open_row], predict([open_row], shipped_correction()))
    assert (told.value, bool(told.reason)) == (None, True), "a layout left open is not simulated"
