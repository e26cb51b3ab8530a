"""``rackplan size``: its figures add up, clusters stand side by side, and defaults give way."""

from __future__ import annotations

import math

import pytest

from helpers import Run

SMALL = ("size", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")
DECODE = (*SMALL, "--context", "4096")

pytestmark = pytest.mark.usefixtures("few_joined")


def test_the_data_add_up(run: Run) -> None:
    data = run(*SMALL, "--tok-s", "1M", "--utilization", "0.5", "--spares", "2", "--json").data
    assert data["peak_tok_s"] == 2e6
    assert (data["tpot_limit_s"], data["default_limits"]) == (0.05, ["tpot_s", "ttft_s"])
    *fewer, this, larger = data["levels"]
    assert [level["level"] for level in data["levels"]] == [*["smaller"] * len(fewer), "this", "larger"]
    assert this["tok_s"] == data["tok_s"] >= 2e6 > fewer[-1]["tok_s"]
    assert larger["gpus"] > data["gpus"] == this["gpus"] == 8 * data["domains"]
    assert data["domains"] == data["units"] + 2 == fewer[-1]["domains"] + 1
    assert data["racks"] == math.ceil(data["domains"] / 4)
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / (8 * data["units"]))
    assert data["usd_per_million_tokens"] == pytest.approx(data["usd_per_hour"] / 3600)
    assert data["usd_per_million_tokens_full"] < data["usd_per_million_tokens"] / 2 * 1.2
    assert (fewer[-1]["enough_at_tpot_s"] or math.inf) > 0.05
    assert fewer[-1]["requests_per_s"] == pytest.approx(fewer[-1]["tok_s"] / 1024)
    for pool in data["pools"]:
        assert pool["gpus"] == pool["workers"] * pool["gpus_per_worker"]
    assert sum(pool["gpus"] for pool in data["pools"]) == data["serving_gpus"] - data["gpus_idle"]
    in_decode = len(data["pools"]) > 1  # of two pools those that decode are users
    stay_s = (not in_decode) * data["ttft_s"] + 1024 / data["tok_s_per_user"]
    assert data["users"] == pytest.approx(data["requests_per_s"] * stay_s, rel=0.2 if in_decode else 1e-6)


@pytest.mark.usefixtures("no_speed_of_levels")
def test_pools_of_both_phases(run: Run) -> None:
    asked = ("--tok-s", "100k", "--isl", "8000", "--osl", "300", "--tpot-ms", "20")
    data = run(*SMALL, *asked, "--json").data
    pools = {pool["role"]: pool for pool in data["pools"]}
    assert (data["serving"], set(pools)) == ("two pools", {"prefill", "decode"})
    assert pools["prefill"]["tok_s"] == pytest.approx(data["requests_per_s"] * 8000)
    assert data["ttft_s"] <= data["ttft_limit_s"] == 2.0
    assert run(*SMALL, *asked, "--ttft-ms", "none", "--json").data["ttft_limit_s"] is None


@pytest.mark.usefixtures("no_speed_of_levels")
def test_measured_runs_of_each_pool_are_told(run: Run) -> None:
    asked = (*DECODE, "--model", "llama-3.1-70b", "--tok-s", "100k", "--json")
    (pool,), (bare,) = run(*asked).data["pools"], run(*asked, "--physics").data["pools"]
    assert pool["measured_factor"] != 1
    assert (bare["measured_factor"], bare["measured_runs"]) == (1, 0)


def test_several_clusters_are_side_by_side_with_those_that_cannot(run: Run) -> None:
    asked = (*DECODE, "--cluster", "hgx-h200@4096", "--usd-h", "50")
    data = run(*asked, "--json").data
    first, second = data["clusters"]
    alone = run(*DECODE, "--usd-h", "50", "--json").data
    assert alone["clusters"] == [first]
    assert first == {key: alone[key] for key in first} == {key: data[key] for key in first}
    assert second["gpus"] is None
    assert "--usd-h 50 is too low" in second["reason"]
    assert second["reason"] in [note["text"] for note in data["notes"]]
    none = run(*asked, "--usd-h", "1")
    assert (none.code, none.out) == (3, "")


def test_the_root_is_the_cheapest_or_what_a_budget_serves_most_with(run: Run) -> None:
    asked = (*DECODE, "--cluster", "gb200-nvl72")
    data = run(*asked, "--mw", "0.32", "--json").data
    few, most = data["clusters"]
    assert few["tok_s"] < most["tok_s"] == data["tok_s"]
    assert few["gpus"] > most["gpus"]
    assert data["answer"][0].startswith(
        "gb200-nvl72 serves the most of 2 clusters: 144 GPUs (2 x gb200-nvl72)"
    )
    fleets = run(*asked, "--tok-s", "100k", "--json").data
    prices = [fleet["usd_per_million_tokens"] for fleet in fleets["clusters"]]
    assert fleets["usd_per_million_tokens"] == min(prices)


def test_a_default_that_nothing_keeps_gives_way_and_a_limit_asked_for_does_not(run: Run) -> None:
    slow = (*DECODE, "--model", "llama-3.1-405b", "--tok-s", "1k", "--set", "h100-sxm.hbm_bytes_per_s=0.1x")
    out = " ".join(run(*slow).out.split())
    assert "Warning A default limit is left out: " in out
    assert "--tpot-ms 50 is out of reach" in out
    refused = run(*slow, "--tpot-ms", "50")
    assert refused.code == 3
    assert "--tpot-ms 50 is out of reach" in refused.error_line
