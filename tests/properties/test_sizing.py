"""Sizes against brute force and against the sweep and the matched pools of the same hardware."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cost.serving.units
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths, serving_workloads
from cost.serving.pools import match_rates
from cost.serving.sizing import BUDGETS, Demand, Size, size
from cost.serving.supply import Pool, Served, Supply, Table
from cost.serving.units import layout_supply
from topology import InfeasibleError, resolve_cluster

TPOT = 0.02
JOINED = 16


@pytest.fixture(autouse=True)
def few_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small clusters are enough here."""
    monkeypatch.setattr(cost.serving.units, "MAX_JOINED_GPUS", JOINED)
    monkeypatch.setattr(cost.serving.units, "_MAX_TRIED_GPUS", 4 * JOINED)


@cache
def deployment(cluster: str = "hgx-h100", model: str = "mixtral-8x7b") -> Deployment:
    """What is sized where a test does not say."""
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload())


@cache
def sized(tok_s: float, **asked: float) -> Size:
    return size(deployment(), Demand(tok_s=tok_s, **{"tpot_s": TPOT, **asked}))


@given(
    st.lists(st.floats(1, 100), min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_units_are_joined_as_pays_most(rates: list[float], units: int) -> None:
    joined = {2**k: 2**k * rate for k, rate in enumerate(rates)}
    table = Table.of(joined)
    best = max(
        math.fsum(count * joined[k] for k, count in zip(joined, counts, strict=True))
        for counts in product(*(range(units // k + 1) for k in joined))
        if sum(k * count for k, count in zip(joined, counts, strict=True)) <= units
    )
    assert table.rate(units) == pytest.approx(best)
    parts = table.parts(units)
    assert sum(k * count for k, count in parts.items()) <= units
    assert math.fsum(joined[k] * count for k, count in parts.items()) == pytest.approx(table.rate(units))


def test_the_fewest_are_enough_and_one_fewer_is_not() -> None:
    sized_for_it = sized(1e6)
    assert sized_for_it.served.tok_s >= 1e6
    assert sized_for_it.served.tok_s_per_user >= 1 / TPOT
    below, tenth = sized_for_it.fewer
    assert (below.units, tenth.units) == (
        sized_for_it.served.units - 1,
        math.floor(0.9 * sized_for_it.served.units),
    )
    assert tenth.tok_s <= below.tok_s < 1e6
    longer = size(deployment(), Demand(tok_s=1e6, tpot_s=below.tpot_s))
    assert longer.served.units <= below.units


def test_utilization_and_spares_are_paid_for() -> None:
    plain, bought = sized(1e6), sized(1e6, utilization=0.5, spares=3)
    assert bought.peak_tok_s == 2e6
    assert bought.domains == bought.serving_domains + 3
    assert bought.served.units == sized(2e6).served.units
    assert bought.racks.count == -(-bought.domains // 4)  # four hosts a rack
    assert bought.bill.gpus == bought.gpus
    assert bought.bill.usd_per_hour / bought.gpus == pytest.approx(plain.bill.usd_per_hour / plain.gpus)
    assert bought.bill.power_w / bought.gpus == pytest.approx(plain.bill.power_w / plain.gpus)


CHAT = Lengths.of(2000, 300)


@cache
def priced(limits: tuple[float, ...]) -> tuple[Supply, str]:
    return layout_supply(deployment(), CHAT, limits, 2.0, None, None)


@pytest.mark.parametrize(
    ("currency", "amount", "utilization", "spares", "think_s"),
    [
        ("users", 1935.0, 1.0, 0, 0.0),  # 15 units of two pools serve more users than 16 of one
        pytest.param("req_s", 40.0, 0.8, 1, 0.0, marks=pytest.mark.wide),
    ],
)
def test_what_a_demand_takes_buys_it_again(currency, amount, utilization, spares, think_s):
    asked = {"utilization": utilization, "spares": spares, "tpot_s": TPOT, "ttft_s": 2.0, "think_s": think_s}

    def sized_for(**given: float) -> Size:
        demand = Demand(**given, **asked)
        with patch("cost.serving.sizing.layout_supply", lambda *_, **__: priced(tuple(demand.limits))):
            return size(deployment(), demand, lengths=CHAT)

    sized_for_it = sized_for(**{currency: amount})
    units, served = sized_for_it.served.units, sized_for_it.served
    assert sized_for_it.demand.part(served) >= 1 - 1e-9
    assert sized_for_it.tok_s <= utilization * served.tok_s * (1 + 1e-9)
    for budget in BUDGETS:
        cost = sized_for_it.cost_of(budget, units)
        bought = sized_for(**{budget: cost})
        assert (bought.served, bought.gpus) == (served, sized_for_it.gpus)
        assert bought.tok_s == pytest.approx(utilization * served.tok_s)
        if units > 1:
            assert sized_for(**{budget: cost * (1 - 1e-9)}).served.units == units - 1
    assert sized_for(req_s=served.requests_per_s * utilization).served.units == units
    assert sized_for(tok_s=served.tok_s * utilization).served.units == units
    for_users = sized_for(users=sized_for_it.demand.users_of(served) * utilization).served.units
    assert (
        for_users == units if currency == "users" else for_users <= units
    )  # fewer may serve as many, slower


def test_the_fastest_under_a_price_costs_it_and_any_faster_more() -> None:
    demand = Demand(gpus=16, usd_m=0.5, ttft_s=2.0)
    sized_for_it = size(deployment(), demand, lengths=CHAT)
    assert sized_for_it.usd_per_million <= 0.5
    for faster in (0.99, 0.5):
        tighter = replace(demand, usd_m=None, tpot_s=sized_for_it.demand.tpot_s * faster)
        assert size(deployment(), tighter, lengths=CHAT).usd_per_million > 0.5
    with pytest.raises(InfeasibleError, match=r"`usd_m` 0.0001 is out of reach .* cost .* USD or more"):
        size(deployment(), replace(demand, usd_m=1e-4), lengths=CHAT)


def test_pools_of_all_units_are_those_of_their_match() -> None:
    isl, osl = 8000, 300
    sized_for_it = size(
        deployment(), Demand(tok_s=2e5, tpot_s=TPOT, ttft_s=2.0), lengths=Lengths.of(isl, osl)
    )
    units = sized_for_it.served.units
    assert units > 1
    decoding, prefilling = serving_workloads(Workload(), isl, osl)
    widest = resolve_cluster(f"hgx-h100@{JOINED}")
    decode = sweep(Deployment(widest, deployment().model, decoding), imbalance=None, speeds=[1 / TPOT])
    prefill = sweep(Deployment(widest, deployment().model, prefilling), imbalance=None)

    def rate(domains: int) -> float:
        best = match_rates(decode, prefill, osl=osl, ttft_s=2.0, tpot_s=TPOT, domains=domains).best()
        return 0.0 if best is None else best.requests_per_s * osl

    assert rate(units) >= 2e5 > rate(units - 1)
    # of equals at the full batch another may be taken, whose prefill waits a little longer
    assert sized_for_it.served.tok_s == pytest.approx(rate(units), rel=1e-4)
    assert sized_for_it.served.ttft_s <= 2.0
    assert {pool.role for pool in sized_for_it.served.pools} == {"prefill", "decode"}
    assert sized_for_it.served.gpus_used <= sized_for_it.serving_gpus


def test_what_nothing_keeps_says_the_best() -> None:
    with pytest.raises(InfeasibleError, match=r"`gpus` 7 is too low: the smallest unit .* takes 8 GPUs"):
        size(deployment(), Demand(gpus=7, tpot_s=TPOT))
    with pytest.raises(InfeasibleError, match=r"`tpot_ms` 0.01 is out of reach .* fastest layout takes"):
        size(deployment(), Demand(tok_s=1e6, tpot_s=1e-5))
    with pytest.raises(InfeasibleError, match=r"`ttft_ms` 0.1 is out of reach .* fastest prefill"):
        size(deployment(), Demand(tok_s=1e6, ttft_s=1e-4), lengths=Lengths.of(2000, 300))
    huge = replace(deployment(), workload=Workload(context=10**9))
    with pytest.raises(InfeasibleError, match="HBM capacity binds"):
        size(huge, Demand(tok_s=1e6))


def test_all_units_as_one_are_taken_where_that_is_more() -> None:
    single = Served(1, 1.0, 50.0, (Pool("decode", "EP8 TP1 PP1", 1, 8, 16.0, 0.02),))
    whole = replace(single, units=3, tok_s=5.0, joined=3)
    supply = Supply(
        [1], np.array([0.02]), lambda _: {1: single}, lambda units, _: whole if units == 3 else None
    )
    assert [supply.rate(units, None) for units in (2, 3, 4)] == [2.0, 5.0, 4.0]
    assert supply.served(3, None) is whole
    assert supply.served(4, None).pools[0].workers == 4
