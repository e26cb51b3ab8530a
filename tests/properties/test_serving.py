"""Served requests in steady state: Little's law, limits of both pools, closed forms of simple engines."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.workload import CHUNK_TOKENS, StepShape
from cost.quantity import Quantity
from cost.serving.steady_state import (
    Requests,
    aggregated,
    disaggregated,
    prefill_rate,
)


def flat(seconds):
    """An engine whose steps all take as long."""
    return lambda shape: np.full(np.broadcast(shape.sequences, shape.prompt_tokens).shape, seconds)


def linear(fixed, per_sequence, per_prompt_token):
    """An engine whose steps grow with what they hold."""

    def step(shape):
        held = per_sequence * shape.sequences + per_prompt_token * shape.prompt_tokens
        return fixed + held * shape.tp

    return step


def asked(isl=1000.0, osl=200.0, concurrency=64.0, **more):
    return Requests(np.array([isl]), np.array([osl]), np.array([concurrency]), **more)


def pool(tp=1, groups=8):
    sizes = {"tp": tp, "attention_dp": groups, "ep": tp * groups}
    return StepShape(**{name: np.array([float(size)]) for name, size in sizes.items()})


def of(served):
    return {name: float(np.squeeze(value)) for name, value in vars(served).items()}


def mixing(whole):
    """A stepper that prices the part of a chunk of prompts that a step has, as the cost model does."""

    def step(shape: StepShape) -> Quantity:
        if not shape.mixes:
            return whole(shape)
        alone_s = whole(replace(shape, prompt_tokens=0.0))
        between = shape.others * (1 - 0.5 / np.asarray(shape.rounds))
        part = np.where(np.asarray(shape.waits) > 0, between, 1.0)
        return alone_s + shape.prompt_share * part * (whole(shape) - alone_s)

    return step


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3])
@pytest.mark.parametrize("room", [100.0, 2.0])
def test_one_engine_of_flat_steps_by_hand(room, factor):
    """64 requests in an engine of 8 GPUs with room for 8 or 2 on each; 200 steps of 10 ms, prompts add nothing."""
    options = {"workers": 1.0, "max_batch": room, "factor": factor}
    outcome = of(aggregated(mixing(flat(0.01)), pool(), asked(), **options))
    held = min(64, 8 * room)
    stay_s = 200 * 0.01 * factor
    assert outcome["batch"] == held / 8
    assert outcome["tpot_s"] == outcome["step_s"] == pytest.approx(0.01 * factor)
    assert outcome["requests_per_s"] == pytest.approx(held / stay_s)
    assert outcome["waiting_s"] == pytest.approx((64 / held - 1) * stay_s, abs=1e-9)  # Little's law


@pytest.mark.parametrize(("concurrency", "rounds"), [(64.0, np.inf), (64.0, 10.0), (8.0, 2.0), (1.0, np.inf)])
def test_rate_times_work_is_the_time_there_is(concurrency, rounds):
    # 200 steps of 10 ms, and 1,000 tokens of a prompt at 1 us a token and GPU, in each of 8 groups
    engine, options = mixing(linear(0.01, 0.0, 1e-6)), {"workers": 1.0, "max_batch": 100.0, "rounds": rounds}
    outcome = of(aggregated(engine, pool(), asked(concurrency=concurrency), **options))
    prompt_s = 1000 * 1e-6 / 8
    work_s = 200 * 0.01 + concurrency * prompt_s
    assert outcome["requests_per_s"] * work_s == pytest.approx(concurrency)
    # its own prompt, and those of the first round that it waits for
    first_s = prompt_s * (1 + 0.5 / rounds * (concurrency - 1))
    assert outcome["prefill_s"] == pytest.approx(first_s)
    assert 200 * outcome["tpot_s"] == pytest.approx(work_s - first_s)


ENGINES = st.tuples(st.floats(1e-3, 0.1), st.floats(0, 1e-3), st.floats(1e-8, 1e-5))
ASKED = st.tuples(st.floats(10, 1e5), st.floats(2, 5000), st.sampled_from([1.0, 4.0, 17.0, 512.0, 5000.0]))
POOLS = st.sampled_from([(1, 1), (1, 8), (8, 1), (4, 2)])


@settings(max_examples=30)
@given(
    engine=ENGINES,
    what=ASKED,
    split=POOLS,
    workers=st.integers(1, 8),
    max_batch=st.floats(0.1, 500),
)
def test_mixed_engines_keep_littles_law(engine, what, split, workers, max_batch):
    requests, where = asked(*what), pool(*split)
    outcome = of(
        aggregated(mixing(linear(*engine)), where, requests, workers=float(workers), max_batch=max_batch)
    )
    waiting_s = outcome.pop("waiting_s")
    assert waiting_s >= 0
    assert min(outcome.values()) > 0
    residence_s = what[1] * outcome["tpot_s"] + outcome["prefill_s"] + waiting_s
    assert outcome["requests_per_s"] * residence_s == pytest.approx(what[2]), "everybody is served or waits"
    gpus = split[0] * split[1]
    assert outcome["batch"] <= max(max_batch, 1 / gpus) * (1 + 1e-12)


def split_served(engine, prefill, what, split, *, workers=1.0, prefill_workers=1.0, max_batch=1e6):
    """What two pools of the same layout serve, and the requests per second that prefill could."""
    requests, where = asked(*what), pool(*split)
    sides = (linear(*engine), where, linear(*prefill), where, requests)
    numbers = {"workers": workers, "prefill_workers": prefill_workers, "max_batch": max_batch, "factor": 1.0}
    rate = prefill_workers * float(np.squeeze(prefill_rate(linear(*prefill), where, requests)))
    return of(disaggregated(*sides, **numbers)), rate


@settings(max_examples=30)
@given(
    engine=ENGINES,
    prefill=ENGINES,
    what=ASKED,
    split=POOLS,
    numbers=st.tuples(st.integers(1, 8), st.integers(1, 8), st.floats(1, 500)),
)
def test_pools_keep_littles_law_and_their_limits(engine, prefill, what, split, numbers):
    workers, prefill_workers, max_batch = map(float, numbers)
    options = {"workers": workers, "prefill_workers": prefill_workers, "max_batch": max_batch}
    outcome, rate = split_served(engine, prefill, what, split, **options)
    waiting_s = outcome.pop("waiting_s")
    assert waiting_s >= 0
    assert min(outcome.values()) > 0
    assert outcome["requests_per_s"] <= rate * (1 + 1e-9)
    gpus = split[0] * split[1]
    assert outcome["batch"] <= max(max_batch, 1 / gpus) * (1 + 1e-9)
    decoding_s = what[1] * outcome["tpot_s"]
    assert outcome["requests_per_s"] * decoding_s <= workers * gpus * outcome["batch"] * (1 + 1e-9)
    in_system = outcome["requests_per_s"] * (waiting_s + outcome["prefill_s"] + decoding_s)
    assert in_system >= what[2] * (1 - 1e-9)
    if waiting_s > 1e-6 * decoding_s:
        assert in_system == pytest.approx(what[2]), "who waits is counted once"


@pytest.mark.parametrize("prefill_workers", [1, 2])
def test_a_slow_prefill_pool_binds(prefill_workers):
    # a step of 1 s finishes 8.192 prompts of 1,000 tokens in each of 8 groups; decode holds what arrives meanwhile
    engines = (0.01, 0.0, 0.0), (1.0, 0.0, 0.0)
    outcome, rate = split_served(*engines, (1000.0, 200.0, 5000.0), (1, 8), prefill_workers=prefill_workers)
    assert rate == pytest.approx(prefill_workers * 8 * CHUNK_TOKENS / 1000)
    assert outcome["requests_per_s"] == pytest.approx(rate, rel=0.01)
    assert outcome["batch"] == pytest.approx(rate * 200 * 0.01 / 8, rel=0.01)
    # 1 s of its own, and 0.1 of all prompts in flight before it
    assert outcome["prefill_s"] == pytest.approx(1 + 0.1 * 5000 / rate)
    assert outcome["waiting_s"] == pytest.approx(5000 / rate - 2.0 - outcome["prefill_s"], rel=0.01)
