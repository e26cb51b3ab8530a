"""Conversations through every command: one hit rate, prices that add up, memory that pays, layouts of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import rackplan
from helpers import Run
from topology.base.errors import InfeasibleError, InputError

MODEL, CLUSTER = "qwen3-30b-a3b", "hgx-h100@4"
SESSIONS = "turns=10,isl=6k,new=1k,osl=200,think=20s"
pytestmark = pytest.mark.usefixtures("few_joined", "no_speed_of_levels", "few_requests")


@pytest.fixture(scope="module", autouse=True)
def few_turns() -> Iterator[None]:
    """Let replays be of a few hundred turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cost.queueing.sessions.COUNTED", 600)
        patch.setattr("cost.queueing.conversations.GOING_ON", 60)
        yield


@pytest.fixture(scope="module")
def size(few_turns: None) -> rackplan.Size:
    sized = rackplan.size(MODEL, CLUSTER, gpus=4, sessions=SESSIONS, kv_tier=["host=100GB"])
    assert isinstance(sized, rackplan.Size)
    return sized


def test_commands_agree_on_the_hits_and_a_simulation_reaches_them(size: rackplan.Size) -> None:
    assert size.lengths is not None
    hit = size.lengths.prefix_hit
    assert 0.2 < hit < 0.93
    assert sum(share for _, share in size.lengths.tier_hits) >= hit - 1e-9
    more = {"sessions": SESSIONS, "kv_tier": ["host=100GB"]}
    swept = rackplan.sweep(MODEL, CLUSTER, **more)
    compared = rackplan.compare([CLUSTER], MODEL, **more).rows[0]
    plan = rackplan.plan(MODEL, CLUSTER, time_limit_s=0, **more)
    assert swept.serving.lengths.prefix_hit == compared.lengths.prefix_hit == hit
    assert plan.deployment.workload.prefix_hit == pytest.approx(hit)
    assert plan.deployment.prices.memory.sizes == {"host": 1e11}
    rate = swept.best.requests_per_s
    assert compared.requests_per_s == pytest.approx(rate)
    near = rackplan.simulate(plan, sessions=SESSIONS, req_s=0.8 * rate, ttft_p99_ms="none", tpot_ms="none")
    assert near.found.prefix_hit >= hit - 0.03, "fewer conversations than fit"


def test_prices_of_tokens_add_up_to_the_bill(size: rackplan.Size) -> None:
    lengths, prices, bill = size.lengths, size.token_prices, size.bill
    assert bill.memory_usd_per_hour == pytest.approx(1e11 / 2**36 * 0.0368)  # one host
    requests = 3600 * size.tok_s / lengths.mean_osl / 1e6
    cached = lengths.mean_isl * lengths.prefix_hit
    usd = (
        (lengths.mean_isl - cached) * prices.input + cached * prices.cached + lengths.mean_osl * prices.output
    )
    assert requests * usd == pytest.approx(bill.usd_per_hour)
    assert prices.cached < prices.input < prices.output


def test_more_memory_never_holds_less_and_the_cheapest_is_taken() -> None:
    size = rackplan.size(MODEL, CLUSTER, gpus=4, sessions=SESSIONS, kv_tier="auto")
    alone = [point for point in size.caches if "ssd" not in point.memory.sizes]
    hits = [point.lengths.prefix_hit for point in alone]
    assert hits == sorted(hits)
    assert hits[0] < hits[-1] == pytest.approx(size.lengths.prefix_hit, abs=0.02)
    usd = [point.usd_per_million for point in size.caches if point.usd_per_million is not None]
    chosen = next(point for point in size.caches if point.memory == size.deployment.prices.memory)
    assert chosen.usd_per_million == min(usd) < alone[0].usd_per_million


def test_a_layout_of_ones_own_is_simulated_and_routers_do_not_change_layouts(run: Run) -> None:
    on = ("simulate", "--model", "qwen3-235b-a22b", "--cluster", "hgx-h200", "--isl", "2k", "--osl", "200")
    rate = ("--req-s", "2", "--json")
    chosen = [run(*on, *rate, "--router", name).data["pools"] for name in ("least", "round", "prefix")]
    assert chosen[0] == chosen[1] == chosen[2]
    own = run(*on, *rate, "--tp", "4", "--stages", "1", "--batch", "0.5").data
    assert own["serving"] == "one pool"
    assert "TP4 PP1" in own["pools"][0]["layout"]
    refused = run(*on, *rate, "--tp", "3")
    assert refused.code == 3
    assert "--tp 3: no such layout" in refused.err
    assert "TP4" in refused.err


def test_a_file_of_conversations_is_a_load(tmp_path: Path) -> None:
    turns = [{"timestamp": 0, "input_length": 900, "output_length": 40}]
    turns += [{"delay": 1500, "input_length": 100, "output_length": 40}] * 4
    rows = [{"session_id": str(number), "turns": [dict(turn) for turn in turns]} for number in range(30)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    on = {"model": MODEL, "cluster": CLUSTER, "sessions": str(path)}
    with pytest.raises(InputError, match="all its conversations begin at once"):
        rackplan.simulate(**on)
    prompts = [900 + 140 * turn for turn in range(5)]
    one_pool = rackplan.simulate(**on, concurrency=3, tp=1)
    assert one_pool.found.prefix_hit == pytest.approx(
        sum(prompt - 100 for prompt in prompts[1:]) / sum(prompts)
    )
    sized = rackplan.size(MODEL, CLUSTER, req_s=5, sessions=str(path))
    assert sized.lengths.prefix_hit == pytest.approx(one_pool.found.prefix_hit, abs=0.03)
    with pytest.raises(InputError, match="no prompt begins like another"):
        rackplan.size(MODEL, CLUSTER, req_s=5, kv_tier=["host=1TB"])
    with pytest.raises(InputError, match="tpu-v5e: the catalog has no rate of its link"):
        rackplan.sweep(MODEL, "tpu-v5e@4x4", sessions=SESSIONS, kv_tier=["host=1TB"])
    with pytest.raises(InfeasibleError, match="ttft"):
        rackplan.size(MODEL, CLUSTER, req_s=5, sessions=SESSIONS, kv_tier=["host=1TB"], ttft_ms=1)
