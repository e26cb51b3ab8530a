"""Plans of whole requests: what one pool and two pools serve, and their engines under load."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import rackplan
from cost.queueing.load import LoadLimits, under_load
from cost.queueing.pools import pools_of
from cost.queueing.requests import made_requests
from cost.serving.lengths import Lengths
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving
from cost.serving.steady_state import busy_share
from cost.step.score import LayoutScorer
from placement.layouts.fitting import balanced_uses, stage_slots
from placement.layouts.shapes import Shape
from placement.plan import Plan
from placement.plans.reading import read_plan
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.under_load import lengths_of_plan, pools_of_plan
from topology.base.errors import InputError


def planned(model: str, cluster: str, **asked: object) -> Plan:
    return rackplan.plan(model, cluster, time_limit_s=0, **{"isl": 8192, **asked})


@pytest.fixture(scope="module")
def one_pool() -> Plan:
    return planned("qwen3-30b-a3b", "hgx-h100", isl=1024, tpot_ms=15)


@pytest.fixture(scope="module")
def two_pools() -> Plan:
    return planned("deepseek-v3", "hgx-h200@16")


@pytest.mark.parametrize(
    ("model", "cluster"), [("llama-3.1-8b", "hgx-h100"), ("qwen3-30b-a3b", "hgx-h100@16")]
)
def test_one_pool_costs_what_serving_says_where_experts_are_balanced(model: str, cluster: str) -> None:
    deployment = rackplan.make_deployment(model, cluster)
    serving = Serving.of(deployment, Lengths.of(4000, 500), imbalance=1.0, cut_experts=False)
    both, found = serving.both, serving.ways()[ONE_POOL]
    rows = np.flatnonzero((both.batch >= 1) & (both.batch % 1 == 0))
    for row in np.random.default_rng(0).choice(rows, 8).tolist():
        match, batch = found.row(row), int(both.batch[row])
        there, layout = both.deployment.with_batch(batch), both.layout_of(row)
        slots = stage_slots(there, Shape.of(layout), None)
        score = LayoutScorer(there, layout, balanced_uses(there, layout, slots)).at(batch)
        assert score.step_s == pytest.approx(both.step_s[row], rel=1e-12)
        assert score.tok_s_per_gpu == pytest.approx(match.output_tok_s_per_gpu, rel=1e-12)
        assert score.step_s + score.prefill_s == pytest.approx(match.ttft_s, rel=1e-12)
        # prompts are work too: decode alone serves more
        assert score.tok_s_per_gpu < score.tok_s_per_user * batch


def test_two_pools_that_are_cancelled_are_both_placed(two_pools: Plan) -> None:
    stages: list[str] = []

    def cancelled() -> bool:
        return "placing experts" in stages

    asked: dict[str, object] = {"isl": 8192, "osl": 1024, "cancel": cancelled, "time_limit_s": 60}
    found = rackplan.plan(
        "deepseek-v3", "hgx-h200@16", on_progress=lambda progress: stages.append(progress.stage), **asked
    )
    assert found.interrupted
    assert [pool.layout for pool in found.pools] == [pool.layout for pool in two_pools.pools]


def test_a_dense_plan_is_served_as_priced() -> None:
    plan = planned("llama-3.1-70b", "hgx-h100")
    found = plan.requests
    assert plan.beside == ()
    assert found.serving == ONE_POOL
    assert plan.totals is found.totals
    assert plan.totals.tok_s_per_gpu == pytest.approx(found.priced_tok_s_per_gpu[ONE_POOL])
    assert plan.totals.requests_per_s == pytest.approx(plan.totals.tok_s / 1024)
    assert plan.totals.phase == "both"
    assert not found.missed


def saved(plan: Plan, folder: Path) -> Path:
    path = folder / "plan.json"
    path.write_text(plan_to_json(plan_to_dict(plan)))
    return path


def test_a_plan_of_one_pool_is_read_scored_and_changed_as_any_other(one_pool: Plan, tmp_path: Path) -> None:
    path = saved(one_pool, tmp_path)
    read = read_plan(path)
    assert not read.differences
    assert read.deployment.workload == one_pool.deployment.workload
    assert read.deployment.workload.phase == "both"
    scored = rackplan.score(path)
    assert scored.score.step_s == pytest.approx(one_pool.score.step_s)
    assert scored.score.prefill_s == pytest.approx(one_pool.score.prefill_s)
    assert scored.totals.tok_s == pytest.approx(one_pool.totals.tok_s)
    assert scored.totals.requests_per_s == pytest.approx(one_pool.totals.requests_per_s)
    again = pickle.loads(pickle.dumps(one_pool))  # noqa: S301 - our own
    assert again.requests == one_pool.requests


def test_a_lost_gpu_costs_requests(one_pool: Plan) -> None:
    found = rackplan.replan(one_pool, lost=["d0.n0.g1"]).plan
    assert found.deployment.workload.phase == "both"
    assert found.requests is not None
    before, after = one_pool.totals.requests_per_s, found.totals.requests_per_s
    assert 0 < after < before


def test_two_pools_have_gpus_of_their_own_and_serve_what_the_slower_one_does(two_pools: Plan) -> None:
    found, (prefill,) = two_pools.requests, two_pools.beside
    assert found.serving == TWO_POOLS
    ids = [{gpu.id for gpu in plan.deployment.cluster.gpus} for plan in (two_pools, prefill)]
    assert not ids[0] & ids[1]
    assert {one.role: one.gpus for one in found.pools} == dict(
        zip(("decode", "prefill"), map(len, ids), strict=True)
    )
    prompts = found.pools[1]
    prefills = prompts.batch * len(ids[1]) / prompts.step_s
    stay_s = found.osl * two_pools.score.tpot_s + prompts.step_s
    busy = busy_share(prefills, stay_s, prompts.batch * prompts.gpus_per_worker)
    decodes = two_pools.score.tok_s_per_gpu * len(ids[0]) / found.osl
    assert found.totals.requests_per_s == pytest.approx(min(busy * prefills, decodes))
    assert found.totals.gpus == 16
    assert two_pools.totals is found.totals
    assert prefill.totals.phase == "prefill"
    assert 0.7 < found.totals.tok_s_per_gpu / found.priced_tok_s_per_gpu[TWO_POOLS] < 1.1


def test_a_default_that_nothing_keeps_gives_way_to_twice_the_fastest() -> None:
    found = planned("llama-3.1-70b", "hgx-h100", isl=65_536, osl=64).requests
    assert found.ttft_limit_s > 2
    assert "`ttft_ms` 2000 is out of reach (default): " in found.left_out[0]


# --- under load


def test_a_dense_plan_has_the_engines_of_the_sweep() -> None:
    dense = planned("llama-3.1-8b", "hgx-h100", isl=2000, osl=300)
    swept = rackplan.sweep("llama-3.1-8b", "hgx-h100", isl=2000, osl=300)
    assert swept.best.one_pool
    (made,), (priced,) = (
        one.pools
        for one in (pools_of_plan(dense, swept.serving.lengths), pools_of(swept.serving, swept.best))
    )
    assert (made.role, made.workers, made.gpus) == (priced.role, priced.workers, priced.gpus)
    assert made.room == pytest.approx(priced.room)
    assert made.table.decode_s == pytest.approx(priced.table.decode_s)
    assert np.array(made.table.prompt_s) == pytest.approx(np.array(priced.table.prompt_s))


def test_one_request_alone_takes_what_the_plan_says(two_pools: Plan) -> None:
    lengths = lengths_of_plan(two_pools)
    assert (lengths.isl, lengths.osl) == ((8192,), (1024,))
    pools = pools_of_plan(two_pools, lengths)
    assert [one.role for one in pools.pools] == ["prefill", "decode"]
    assert pools.gpus == 16
    found = under_load(pools, made_requests(lengths, 8, users=1), LoadLimits(None, None))
    alone_s = float(found.ttft_s.mean()) - pools.fixed_s
    assert alone_s < 1.05 * two_pools.requests.ttft_s  # whose prompts may share a step
    assert two_pools.deployment.workload.batch > 1
    assert float(found.tpot_s.mean()) < two_pools.requests.tpot_s


def test_prefill_alone_is_refused_and_decode_alone_is_one_pool() -> None:
    lengths = Lengths.of(2000, 300)
    with pytest.raises(InputError, match="for prefill only, but requests need both phases"):
        pools_of_plan(rackplan.plan("llama-3.1-8b", "hgx-h100", phase="prefill", time_limit_s=0), lengths)
    decode = rackplan.plan("llama-3.1-8b", "hgx-h100", phase="decode", time_limit_s=0)
    assert lengths_of_plan(decode) is None
    assert [one.role for one in pools_of_plan(decode, lengths).pools] == ["both"]
