"""The time to the first token: what its calibration file must be, and measured runs simulated as they ran."""

from dataclasses import replace

import pytest

from cost.calibration.correction import PHYSICS, shipped_correction
from cost.calibration.first_token import first_token_calibration, shipped_waits
from cost.validation.predict import predict
from cost.validation.read import Point, Pool
from cost.validation.under_load import with_first_tokens

ROW = Point(
    id="a",
    source="test",
    quantity="ttft_ms",
    measured=900.0,
    phase="aggregated",
    cluster="hgx-h200",
    model="qwen3-235b-a22b",
    pool=Pool(tp=8, ep=8),
    concurrency=16,
    isl=4000,
    osl=400,
    engine="vllm",
)


def seconds(*rows, physics=True):
    told = with_first_tokens(rows, predict(rows, shipped_correction()), physics=physics)
    return [prediction.value for prediction in told]


def test_a_request_alone_waits_for_its_prompt_and_what_is_fixed():
    short, long = seconds(replace(ROW, concurrency=1, isl=1), replace(ROW, concurrency=1, isl=8000))
    fixed_ms = 1e3 * first_token_calibration().seconds("vllm", "aggregated")
    assert fixed_ms < short < fixed_ms + 60
    assert long > short + 100


def test_more_in_flight_wait_longer():
    told = seconds(*(replace(ROW, concurrency=users) for users in (1, 8, 64, 256)))
    assert told == sorted(told)
    assert told[-1] > 3 * told[0]


def test_more_engines_and_engines_that_prefill_alone_wait_less():
    prediction, two = seconds(
        replace(ROW, concurrency=128), replace(ROW, concurrency=128, pool=replace(ROW.pool, workers=2))
    )
    assert two < prediction
    few, many = (
        replace(ROW, phase="disaggregated", concurrency=128, prefill_pool=replace(ROW.pool, workers=count))
        for count in (1, 4)
    )
    few_ms, many_ms = seconds(few, many)
    assert many_ms < few_ms


def test_tensorrt_llm_waits_for_other_attention_groups_to_have_prompts():
    groups = replace(ROW, engine="trtllm", pool=Pool(attention_dp=8, ep=8))
    waiting, others = seconds(groups, replace(groups, engine="vllm"))
    (step_ms,) = (prediction.value for prediction in predict([replace(groups, quantity="tpot_ms")], PHYSICS))
    assert 30 * step_ms < waiting - others < 70 * step_ms
    whole, alike = seconds(replace(ROW, engine="trtllm"), ROW)
    assert abs(whole - alike) < 10 * step_ms


def test_users_in_step_wait_for_each_other_in_a_pool_that_prefills():
    few, many = (
        replace(ROW, phase="disaggregated", concurrency=users, prefill_pool=ROW.pool) for users in (64, 512)
    )
    spread, together = (
        seconds(replace(few, in_step=spread), replace(many, in_step=spread)) for spread in (True, False)
    )
    # half of the prompts are before it in the first of ten rounds, and a tenth of them in each
    assert together[1] - spread[1] > 5 * (together[0] - spread[0]) > 0


def test_runs_near_correct_it_and_an_interval_is_around_it():
    (bare,) = seconds(ROW)
    (told,) = with_first_tokens([ROW], predict([ROW], shipped_correction()))
    assert told.value != pytest.approx(bare, rel=1e-3)
    assert told.value / told.low == pytest.approx(told.high / told.value)
    assert len(shipped_waits().kinds) == len(shipped_correction().runs.kinds)
    open_row = replace(ROW, pool=Pool(best=True), gpus=8)
    (told,) = with_first_tokens([open_row], predict([open_row], shipped_correction()))
    assert (told.value, bool(told.reason)) == (None, True), "a layout left open is not simulated"
