"""The cheapest tier for a cached context, by time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.lecture import RECOMPUTE, hbm_tier, tier_spans
from cost.prices import CacheTier, cache_tier, cache_tier_names, gpu_price
from topology import Evidence, Figure, InputError, MissingFigureError, load_gpu

GPU = load_gpu("gb200")
CATALOG = [hbm_tier(GPU, gpu_price(GPU, "rental")), *map(cache_tier, cache_tier_names())]
RECOMPUTE_USD = (
    2e11 / 5e15 * 3.30 / 3600 / 2000
)  # 100 B active parameters in FP8 on it, 2 kB of cache a token


def tier(name: str, *, hold: float, retrieve: float) -> CacheTier:
    """A tier of ``hold`` USD per byte and second and ``retrieve`` USD per byte: 1 USD/s for the device."""
    figures = (1 / hold, 1 / retrieve, 3600.0)
    units = ("byte", "byte/s", "USD/h")
    made = [Figure(value, unit, Evidence.ASSUMED, "test") for value, unit in zip(figures, units, strict=True)]
    return CacheTier(name, name, *made)


def test_drain_times_of_the_catalog() -> None:
    drains = {one.name: one.drain_s for one in CATALOG}
    assert drains == pytest.approx(
        {"hbm": 24.8e-3, "ddr5": 64 * 2**30 / 51.2e9, "flash": 15.36e12 / 13e9, "disk": 24e12 / 285e6},
        rel=2e-3,
    )
    assert hbm_tier(load_gpu("lecture"), gpu_price(GPU, "owner")).drain_s == pytest.approx(0.020)


def test_every_figure_says_where_it_is_from() -> None:
    for one in CATALOG:
        for figure in (one.capacity_bytes, one.bytes_per_s, one.usd_per_h):
            assert figure.source
            assert figure.text
    assert cache_tier("disk").usd_per_h.kind is Evidence.ASSUMED


def test_holding_for_the_drain_time_costs_as_much_as_retrieving() -> None:
    disk = cache_tier("disk")
    assert disk.hold_usd_per_byte_s * disk.drain_s == pytest.approx(disk.retrieve_usd_per_byte)
    assert disk.usd_per_byte(disk.drain_s) == pytest.approx(2 * disk.retrieve_usd_per_byte)


def test_five_minutes_are_for_flash_and_an_hour_for_disk() -> None:
    spans = tier_spans(CATALOG, recompute_usd_per_byte=RECOMPUTE_USD)
    assert [span.name for span in spans] == ["hbm", "ddr5", "flash", "disk", RECOMPUTE]
    for seconds, span in zip((0.001, 1.0, 300.0, 3600.0, 1e9), spans, strict=True):
        price = {one.name: one.usd_per_byte(seconds) for one in CATALOG} | {RECOMPUTE: RECOMPUTE_USD}
        assert min(price, key=lambda name: price[name]) == span.name
    # each tier's span holds a time of about its drain time: HBM 20 ms, disk a day
    assert spans[0].to_s == pytest.approx(CATALOG[0].drain_s, rel=0.1)
    assert spans[3].from_s < CATALOG[3].drain_s < spans[3].to_s


def test_spans_by_hand() -> None:
    tiers = [
        tier("fast", hold=4.0, retrieve=1.0),
        tier("slow", hold=1.0, retrieve=7.0),
        tier("bad", hold=4.0, retrieve=6.0),
    ]
    # 1 + 4t = 7 + t at 2 s; 7 + t = 20 at 13 s
    spans = tier_spans(tiers, recompute_usd_per_byte=20.0)
    assert [(span.name, span.from_s, span.to_s) for span in spans] == [
        ("fast", 0.0, pytest.approx(2.0)),
        ("slow", pytest.approx(2.0), pytest.approx(13.0)),
        (RECOMPUTE, pytest.approx(13.0), math.inf),
    ]
    assert [span.name for span in tier_spans(tiers, recompute_usd_per_byte=0.5)] == [RECOMPUTE]
    assert [span.name for span in tier_spans(tiers, recompute_usd_per_byte=math.inf)] == ["fast", "slow"]


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=6),
    st.floats(1e-3, 1e5),
    st.floats(0, 1e5),
)
@settings(deadline=None, max_examples=80)
def test_spans_agree_with_the_cheapest_at_every_time(
    costs: list[tuple[float, float]], recompute: float, seconds: float
) -> None:
    tiers = [tier(f"t{k}", hold=hold, retrieve=retrieve) for k, (hold, retrieve) in enumerate(costs)]
    spans = tier_spans(tiers, recompute_usd_per_byte=recompute)
    assert [span.from_s for span in spans] == [0.0, *(span.to_s for span in spans[:-1])]
    assert spans[-1].to_s == math.inf
    here = next(span for span in spans if span.from_s <= seconds < span.to_s)
    price = {one.name: one.usd_per_byte(seconds) for one in tiers} | {RECOMPUTE: recompute}
    assert price[here.name] == pytest.approx(min(price.values()), rel=1e-6)


def test_a_figure_can_be_edited() -> None:
    flash = cache_tier("flash")
    free = replace(flash, usd_per_h=Figure(1e-6, "USD/h", Evidence.USER, "mine"))
    assert free.drain_s == flash.drain_s
    names = [
        span.name
        for span in tier_spans([*CATALOG[:2], free, CATALOG[3]], recompute_usd_per_byte=RECOMPUTE_USD)
    ]
    assert names[:2] == ["hbm", "flash"]


def test_refusals() -> None:
    with pytest.raises(InputError, match=r'unknown cache tier "disc"; did you mean disk'):
        cache_tier("disc")
    with pytest.raises(InputError, match="at least one tier"):
        tier_spans([], recompute_usd_per_byte=1.0)
    with pytest.raises(InputError, match="recompute_usd_per_byte"):
        tier_spans(CATALOG, recompute_usd_per_byte=math.nan)
    with pytest.raises(MissingFigureError, match="rubin-ultra"):
        hbm_tier(load_gpu("rubin-ultra"), gpu_price(GPU, "owner"))
