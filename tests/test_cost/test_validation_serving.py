"""Measured points of served models: how rows become groups, and what each phase makes of its steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost.calibration.correction import PHYSICS
from cost.calibration.serving import calibrated
from cost.inputs.deployment import Deployment
from cost.inputs.workload import CHUNK_TOKENS, Workload
from cost.layouts import sweep
from cost.memory.batches import most_that_fit
from cost.resolve import resolve_model
from cost.validation.predict import (
    group_points,
    group_times,
    predict_serving,
    room_of,
)
from cost.validation.read import Point, Pool
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
    most = np.asarray(most_that_fit(room, group.pool.tp))
    assert most[0] >= 1
    assert shapes[-1 if point is SPLIT else 0].sequences[0] == pytest.approx(most[0], rel=1e-6)


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
    found = sweep(replace(where, any_shape=True, correction=PHYSICS))
    alike = (found.stages == stages) & (found.tp == 1) & (found.attention_dp == 1) & (found.batch == 16)
    assert prediction.value == pytest.approx(found.tok_s_per_gpu_used[alike].item(), rel=2e-3)
