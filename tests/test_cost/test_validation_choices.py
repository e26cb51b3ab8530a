"""What the model chooses where a row leaves it: against every candidate priced as if it were stated."""

import math
from dataclasses import replace

import numpy as np
import pytest

from cost.validation.predict import choices, group_points, legal_pools, predict, predict_serving, room_of
from cost.validation.read import Point, Pool

OPEN = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0, workers=0, best=True)
DECODE = Point(
    *("a", "test", "tok_s_per_gpu", 1.0, "decode", "hgx-h200", "deepseek-v3"),
    pool=OPEN,
    gpus=16,
    batch=32,
    context=2000,
)
SERVED = replace(DECODE, phase="aggregated", batch=0.0, context=0.0, concurrency=64, isl=1000, osl=200)
SPLIT = replace(SERVED, phase="disaggregated", cluster="gb200-nvl72", prefill_pool=OPEN, gpus=32)


def chosen(point):
    (choice,) = choices([point])
    return choice


def value(point, quantity="tok_s_per_gpu"):
    (prediction,) = predict_serving([replace(point, quantity=quantity)])
    return prediction.value


def test_legal_pools_of_two_nodes_by_hand():
    pools = legal_pools(DECODE, OPEN, 16)
    wide = [pool for pool in pools if pool.gpus_per_worker == 16]
    # over two nodes: tensor parallelism inside one or over both, experts uncut
    assert [(pool.tp, pool.ep, pool.moe_tp) for pool in wide] == [(tp, 16, 1) for tp in (1, 2, 4, 8, 16)]
    assert {pool.gpus_per_worker for pool in pools} == {1, 2, 4, 8, 16}
    assert all(pool.gpus == 16 for pool in pools)
    assert all(pool.tp * pool.attention_dp == pool.ep * pool.moe_tp for pool in pools)
    kept = legal_pools(DECODE, replace(OPEN, ep=8, moe_tp=1), 16)
    assert {(pool.tp, pool.attention_dp, pool.workers) for pool in kept} == {
        (tp, 8 // tp, 2) for tp in (1, 2, 4, 8)
    }
    assert legal_pools(DECODE, replace(OPEN, ep=5), 16) == []
    dense = legal_pools(replace(DECODE, model="llama-3.1-70b"), OPEN, 8)
    assert {(pool.tp, pool.moe_tp, pool.workers) for pool in dense} == {
        (tp, tp, 8 // tp) for tp in (1, 2, 4, 8)
    }


@pytest.mark.parametrize("point", [DECODE, SERVED], ids=["decode", "both phases"])
def test_the_best_layout_is_the_best_of_all(point):
    pools = legal_pools(DECODE, OPEN, 16)
    rates = [value(replace(point, pool=pool)) for pool in pools if pool.gpus_per_worker >= 8]
    choice = chosen(point)
    assert value(choice.point) == pytest.approx(max(rates))
    assert choice.point.pool.gpus == 16
    assert f"EP{choice.point.pool.ep}" in choice.text


def test_the_largest_batch_is_what_memory_holds():
    point = replace(DECODE, pool=Pool(attention_dp=16, ep=16), batch=math.inf)
    choice = chosen(point)
    (group,), _ = group_points([replace(point, batch=1.0)])
    room = room_of(group, group.pool)
    assert choice.point.batch == math.floor(np.squeeze(np.asarray(room)))
    assert choice.text == f"{choice.point.batch:g} sequences per GPU, the most that fit"


@pytest.mark.parametrize("pool", [OPEN, Pool(attention_dp=16, ep=16)])
def test_the_limit_is_kept_and_used_up(pool):
    free = chosen(replace(DECODE, pool=pool, batch=math.inf))
    limit = value(free.point, "tpot_ms") / 2
    point = chosen(replace(DECODE, pool=pool, batch=math.inf, tpot_limit_ms=limit)).point
    assert 0.8 * limit <= value(point, "tpot_ms") <= limit
    assert value(point) < value(free.point)


def test_both_pools_share_the_gpus_of_the_row():
    both = chosen(SPLIT).point
    assert both.pool.gpus + both.prefill_pool.gpus <= 32
    assert min(both.pool.workers, both.prefill_pool.workers) >= 1
    split = chosen(replace(SPLIT, prefill_gpus=8)).point
    assert (split.prefill_pool.gpus, split.pool.gpus) == (8, 24)
    stated = chosen(replace(SPLIT, pool=Pool(attention_dp=16, ep=16))).point
    assert (stated.prefill_pool.gpus, stated.pool) == (16, Pool(attention_dp=16, ep=16))


def test_gpus_that_nobody_states_are_no_more_than_the_pools_need():
    crowd = chosen(replace(SPLIT, gpus=0, concurrency=2000)).point
    few = replace(crowd.prefill_pool, workers=max(1, crowd.prefill_pool.workers // 2))
    assert value(replace(crowd, prefill_pool=few), "tok_s_per_gpu") <= value(crowd) * 1.05


def test_the_measured_figure_plays_no_part():
    first, second = choices([SERVED, replace(SERVED, measured=1e6)])
    assert first.point.pool == second.point.pool
    nearest = chosen(replace(DECODE, batch=math.inf, tpot_limit_ms=0.001))
    assert "no configuration meets 0.001 ms per token" in nearest.text
    assert nearest.point.batch <= 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pool": replace(OPEN, ep=5)}, "no legal layout has the widths given"),
        ({"batch": 1e6}, "fits model and batch"),
        ({"cluster": "L40S"}, "not in the catalog"),
        ({"batch": 0.0}, "neither batch_per_gpu nor concurrency"),
    ],
)
def test_why_nothing_could_be_chosen(change, says):
    (prediction,) = predict([replace(DECODE, **change)])
    assert prediction.value is None
    assert says in prediction.reason
