"""Plans of whole requests: one pool or several in a file, what they serve together, and no worse by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rackplan
from cost.serving.lengths import Lengths
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving
from cost.serving.steady_state import busy_share
from cost.step.score import LayoutScorer
from helpers import changed
from placement.budget import Budget
from placement.layouts.fitting import balanced_uses, stage_slots
from placement.layouts.shapes import Shape
from placement.pairing import Kind, Problem, build
from placement.plan import Plan
from placement.plans.reading import read_plan
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.pools import named_pools
from placement.pools import one_pool as alone_pool
from placement.under_load import lengths_of_plan, pools_of_plan
from test_placement.builders import joined
from topology.base.errors import InfeasibleError, InputError, RackplanError

MODEL = "mixtral-8x7b"


@cache
def unlike() -> Plan:
    """Pools of unlike replicas: a host of eight, one of seven and one of another chip."""
    cluster = joined("hgx-h100@16", "hgx-h200", broken=("d1.n0.g3",))
    return rackplan.plan(MODEL, cluster, isl=4000, osl=500, time_limit_s=0, tolerance=0)


@cache
def two_models() -> Plan:
    return rackplan.plan({MODEL: 0.25, "olmoe-1b-7b": 0.75}, "hgx-h100@16", isl=1000, osl=200, time_limit_s=0)


def saved(plan: Plan, folder: Path, where: tuple[Any, ...] = (), value: object = None) -> Path:
    data = json.loads(plan_to_json(plan_to_dict(plan)))
    path = folder / "plan.json"
    path.write_text(json.dumps(changed(data, *where, to=value) if where else data))
    return path


def one_pool() -> Plan:
    return planned("qwen3-30b-a3b", "hgx-h100", isl=1024, tpot_ms=15)


KEPT = ("role", "model", "layout", "stages", "experts", "replicas", "gpus", "workload", "request")


@pytest.mark.parametrize("made", [unlike, two_models, one_pool])
def test_a_file_reads_back_with_all_pools(made: Callable[[], Plan], tmp_path: Path) -> None:
    plan = made()
    read = read_plan(saved(plan, tmp_path))
    assert not read.differences
    assert [pool.layout for pool in read.pools] == [pool.layout for pool in plan.pools]
    assert read.totals.tok_s == pytest.approx(plan.totals.tok_s)
    assert read.requests.ttft_s == pytest.approx(plan.requests.ttft_s)
    assert (read.decision, read.requests.shares) == (plan.decision, plan.requests.shares)
    before, after = plan_to_dict(plan)["pools"], plan_to_dict(read)["pools"]
    assert [[pool[key] for key in KEPT] for pool in after] == [[pool[key] for key in KEPT] for pool in before]


def test_what_is_wrong_in_a_pool_is_named_with_the_pool(tmp_path: Path) -> None:
    for path, value, words in (
        ((0, "stages", 0, "last_layer"), 2, "stages: not as at the root"),
        ((1, "model"), "no-such-model", "model: 'no-such-model' is not in inputs"),
    ):
        with pytest.raises(InputError, match=rf"pools\[{path[0]}\]: {words}"):
            read_plan(saved(unlike(), tmp_path, ("pools", *path), value))
    edited = saved(unlike(), tmp_path, ("pools", 1, "score", "step_s"), 1e-9)
    assert "pools[1]: stored figures differ" in read_plan(edited).differences


def test_a_re_plan_is_of_one_pool_and_the_others_stay() -> None:
    plan = unlike()
    number = next(n for n, pool in enumerate(plan.pools) if len(pool.layout.replicas) > 1)
    lost = plan.pools[number].deployment.cluster.gpus[plan.pools[number].layout.gpus_in_use[0]].id
    found = rackplan.replan(plan, lost=[lost])
    assert found.lost_gpus == 1
    assert found.moved.role == plan.pools[number].role
    assert len(found.plan.pools) == len(plan.pools)
    assert found.plan.totals.tok_s <= plan.totals.tok_s
    for at, (before, after) in enumerate(zip(plan.pools, found.plan.pools, strict=True)):
        if at != number:
            assert after.layout == before.layout
    other = plan.deployment.cluster.gpus[plan.layout.gpus_in_use[0]].id
    with pytest.raises(InputError, match="one pool is re-planned at a time"):
        rackplan.replan(plan, lost=[lost, other])
    with pytest.raises(InputError, match="no such pool; it has 0 decode"):
        rackplan.replan(plan, pool=9)


def test_what_is_asked_of_one_pool() -> None:
    plan = unlike()
    assert alone_pool(plan, 1).role == named_pools(plan)[1].split()[0]
    assert rackplan.what_if(plan, pool=1).plan.layout == plan.pools[1].layout
    with pytest.raises(InputError, match="a simulation is of one model"):
        rackplan.simulate(two_models(), req_s=1)


def test_a_plan_of_unlike_pools_keeps_its_promise_in_the_simulator() -> None:
    plan = unlike()
    found = plan.requests
    in_flight = found.totals.requests_per_s * (found.tpot_s * found.osl + found.ttft_s)
    under = rackplan.simulate(plan, concurrency=max(1, round(in_flight))).found
    assert under.requests_per_s / found.totals.requests_per_s == pytest.approx(1, abs=0.07)


@cache
def planned(model: str, cluster: str, **asked: object) -> Plan:
    return rackplan.plan(model, cluster, time_limit_s=0, **asked)


@pytest.fixture(scope="module")
def two_pools() -> Plan:
    return planned("deepseek-v3", "hgx-h200@16", isl=8192)


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


def test_prefill_alone_is_refused_and_decode_alone_is_one_pool() -> None:
    lengths = Lengths.of(2000, 300)
    with pytest.raises(InputError, match="for prefill only, but requests need both phases"):
        pools_of_plan(rackplan.plan("llama-3.1-8b", "hgx-h100", phase="prefill", time_limit_s=0), lengths)
    decode = rackplan.plan("llama-3.1-8b", "hgx-h100", phase="decode", time_limit_s=0)
    assert lengths_of_plan(decode) is None
    assert [one.role for one in pools_of_plan(decode, lengths).pools] == ["both"]


LENGTHS = {"isl": 4000, "osl": 500}


@pytest.mark.parametrize("asked", [{"phase": "decode"}, LENGTHS], ids=["decode", "whole"])
def test_no_layout_set_by_hand_serves_more(asked: dict[str, object]) -> None:
    best = planned("deepseek-v3", "hgx-h200@40", **asked).totals.tok_s
    for hand in ({"ep": 8}, {"ep": 16}, {"ep": 32}, {"tp": 2}, {"stages": 2}, {"ep": 40, "redundant": 24}):
        try:
            other = planned("deepseek-v3", "hgx-h200@40", **asked, **hand)
        except InfeasibleError:
            continue
        assert other.totals.tok_s <= best * 1.02, hand


@pytest.mark.parametrize("asked", [{"phase": "decode"}, LENGTHS], ids=["decode", "whole"])
def test_more_gpus_give_no_less(asked: dict[str, object]) -> None:
    """Whole hosts and what is left over of a domain, within the tolerance for the simpler plan."""
    rates = [
        planned("gpt-oss-120b", f"gb200-nvl72@{gpus}", **asked).totals.tok_s for gpus in (8, 12, 24, 72, 76)
    ]
    for fewer, more in pairwise(rates):
        assert more >= fewer * 0.98


@pytest.mark.parametrize("broken", [(), ("d0.n0.g1",), ("d0.n0.g1", "d2.n0.g7")])
def test_domains_that_differ_are_all_used(broken: tuple[str, ...]) -> None:
    cluster = joined("hgx-h100@16", "hgx-h200", broken=broken)
    plan = rackplan.plan(MODEL, cluster, phase="decode", tolerance=0, time_limit_s=0)
    used = {gpu for pool in plan_to_dict(plan)["pools"] for stage in pool["stages"] for gpu in stage["gpus"]}
    assert {gpu[:2] for gpu in used} == {"d0", "d1", "d2"}
    # no less than the plans of its parts
    parts = ("hgx-h100@8", "hgx-h200@8")
    alone = [rackplan.plan(MODEL, part, phase="decode", time_limit_s=0).totals.tok_s for part in parts]
    whole_hosts = 2 - len({gpu.partition(".")[0] for gpu in broken if gpu.startswith("d0")})
    least = whole_hosts * alone[0] + (alone[1] if "d2.n0.g7" not in broken else 0.0)
    assert plan.totals.tok_s >= 0.98 * least


def test_no_other_numbers_of_the_chosen_workers_serve_more() -> None:
    """Brute force: prefill and decode workers of the layouts that were chosen, in every number of them."""
    plan = planned("deepseek-v3", "hgx-h200@32")
    decode, prefill = plan.pools
    sizes = [pool.layout.gpus_used // len(pool.layout.replicas) for pool in plan.pools]
    in_step, best = float(prefill.score.batch) * sizes[1], 0.0
    for decodes, prefills in product(range(1, 32), repeat=2):
        if decodes * sizes[0] + prefills * sizes[1] > 32:
            continue
        most = decodes * decode.score.tok_s_per_gpu_used * sizes[0] / 1024
        always = prefills * in_step / prefill.score.step_s
        stay_s = 1024 * decode.score.tpot_s + prefill.score.step_s
        best = max(best, min(most, always * float(busy_share(always, stay_s, in_step))))
    assert plan.totals.requests_per_s >= best * (1 - 1e-6)


def test_a_limit_on_the_first_token_holds_with_experts_placed() -> None:
    asked = {"cluster": joined("hgx-h100@16", "hgx-h200"), "loads": "zipf:1.5", "time_limit_s": 0, **LENGTHS}
    plan = rackplan.plan(MODEL, ttft_ms=600, **asked)
    assert plan.requests.ttft_s <= 0.6
    assert not plan.requests.missed
    with pytest.raises(RackplanError, match="ttft_ms"):
        rackplan.plan(MODEL, ttft_ms=1, **asked)


def test_goals_of_cost_are_per_token() -> None:
    cheap = planned(MODEL, "hgx-h100@16", goal="usd", **LENGTHS)
    most = planned(MODEL, "hgx-h100@16", **LENGTHS)
    used = (cheap.totals.used or cheap.totals).usd_per_million_tokens
    assert used <= (most.totals.used or most.totals).usd_per_million_tokens * 1.02


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_nothing_keeps_more_inside(data: st.DataObject) -> None:
    """Every way to put up to three kinds of workers into two or three domains."""
    number = st.integers(1, 3)
    kinds = [
        Kind(at, (data.draw(number),), data.draw(number), data.draw(st.integers(1, 9)), prefills=at > 0)
        for at in range(data.draw(st.integers(2, 3)))
    ]
    problem = Problem(kinds, data.draw(st.integers(2, 3)), data.draw(st.integers(3, 8)))
    best = None
    for counts in product(product(*(range(kind.count + 1) for kind in kinds)), repeat=problem.domains):
        fits = all(
            sum(kind.gpus * n for kind, n in zip(kinds, row, strict=True)) <= problem.size for row in counts
        )
        if fits and all(
            sum(column) == kind.count for kind, column in zip(kinds, zip(*counts, strict=True), strict=True)
        ):
            best = max(best or 0, sum(map(problem.kept, counts)))
    found = build(problem).solved(Budget(None), 0, None)
    assert (found is None) == (best is None)
    if found is not None:
        assert sum(map(problem.kept, found)) == best <= problem.bound


def test_caches_of_a_plan_stay_where_they_can() -> None:
    plan = rackplan.plan("deepseek-v3", "gb200-nvl72@144", time_limit_s=0)
    found = plan.requests
    assert found.inside_share == pytest.approx(1)
    assert "keep as many caches inside as there are" in found.pairing
    one_rack = rackplan.plan("deepseek-v3", "gb200-nvl72", time_limit_s=0).requests
    # the same workers in each rack: caches take the same links
    assert found.ttft_s == pytest.approx(one_rack.ttft_s)
