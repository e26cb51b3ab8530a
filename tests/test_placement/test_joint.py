"""The planning door: what is decided together is never behind what is fixed by hand, and more GPUs give no less."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product

import pytest

import rackplan
from cost.serving.steady_state import busy_share
from placement.plan import Plan
from test_placement.builders import joined
from topology import Cluster
from topology.base.errors import InfeasibleError, RackplanError

MODEL = "mixtral-8x7b"
LENGTHS = {"isl": 4000, "osl": 500}
CALL, CLOSED = "CP-SAT", "no call of CP-SAT"


@cache
def planned(model: str, cluster: str, **asked: object) -> Plan:
    return rackplan.plan(model, cluster, time_limit_s=0, **asked)


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


def test_which_runs_call_the_solver() -> None:
    """Where one layout a pool is within 2 % of the bound nothing is left to decide."""
    closed = planned("deepseek-v3", "gb200-nvl72", phase="decode").decision
    assert closed.search.startswith(CLOSED)
    assert closed.gap <= 0.02
    called = planned("kimi-k2", "gb200-nvl72@80", phase="decode")
    assert called.decision.search.startswith(CALL)
    assert len(called.pools) == 2
    assert called.decision.status == "OPTIMAL"
    kept = planned(MODEL, "hgx-h100", **LENGTHS).decision
    assert "one layout a pool" in kept.search or kept.search.startswith(CALL)
    assert planned(MODEL, "hgx-h100", ep=8, phase="decode").decision is None


def test_the_simpler_plan_is_kept_within_the_tolerance() -> None:
    free = planned("kimi-k2", "gb200-nvl72@80", **LENGTHS)
    simple = planned("kimi-k2", "gb200-nvl72@80", tolerance="90%", **LENGTHS)
    assert len(free.pools) > 2 >= len(simple.pools)
    assert free.totals.tok_s > simple.totals.tok_s * 1.02


def uneven(*, broken: tuple[str, ...] = ()) -> Cluster:
    return joined("hgx-h100@16", "hgx-h200", broken=broken)


@pytest.mark.parametrize("broken", [(), ("d0.n0.g1",), ("d0.n0.g1", "d2.n0.g7")])
def test_domains_that_differ_are_all_used(broken: tuple[str, ...]) -> None:
    plan = rackplan.plan(MODEL, uneven(broken=broken), phase="decode", tolerance=0, time_limit_s=0)
    chips = {
        pool.deployment.cluster.domain_of(gpu).gpu.name
        for pool in plan.pools
        for gpu in pool.layout.gpus_in_use
    }
    assert chips == {"h100-sxm", "h200-sxm"}
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


def test_several_models_have_their_shares() -> None:
    models = {MODEL: 0.25, "olmoe-1b-7b": 0.75}
    plan = rackplan.plan(models, "hgx-h100@16", isl=1000, osl=200, time_limit_s=0)
    assert plan.requests.shares == {MODEL: 0.25, "olmoe-1b-7b": 0.75}
    assert {pool.deployment.model.name for pool in plan.pools} == {MODEL, "olmoe-1b-7b"}
    assert sum(
        part
        for pool, part in zip(plan.requests.pools, plan.requests.parts, strict=True)
        if pool.role != "prefill"
    ) == pytest.approx(1)


def test_a_limit_on_the_first_token_holds_with_experts_placed() -> None:
    asked = {"ttft_ms": 600, "loads": "zipf:1.5", **LENGTHS}
    plan = rackplan.plan(MODEL, uneven(), time_limit_s=0, **asked)
    assert plan.requests.ttft_s <= 0.6
    assert not plan.requests.missed
    with pytest.raises(RackplanError, match="ttft_ms"):
        rackplan.plan(MODEL, uneven(), time_limit_s=0, **{**asked, "ttft_ms": 1})


def test_goals_of_cost_are_per_token() -> None:
    cheap = planned(MODEL, "hgx-h100@16", goal="usd", **LENGTHS)
    most = planned(MODEL, "hgx-h100@16", **LENGTHS)
    used = (cheap.totals.used or cheap.totals).usd_per_million_tokens
    assert used <= (most.totals.used or most.totals).usd_per_million_tokens * 1.02
