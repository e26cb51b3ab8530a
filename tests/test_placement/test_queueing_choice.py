"""Sizes, sweeps and comparisons that keep limits at the 99th percentile under load."""

import pytest

import rackplan
from cost.queueing.choice import best_under_load
from cost.queueing.load import LoadLimits, stream_of, under_load

ASKED = {"model": "llama-3.1-70b", "isl": 2000, "osl": 200}


@pytest.mark.wide
def test_a_fleet_under_load_is_larger_than_one_on_average_and_keeps_its_limits():
    asked = {**ASKED, "cluster": "hgx-h200", "req_s": 20, "ttft_ms": 2000}
    found = rackplan.size(**asked, ttft_p99_ms=1500)
    average = rackplan.size(**asked)
    assert found.on_average == average.gpus <= found.gpus
    assert found.served.requests_per_s >= 20
    looser = rackplan.size(**asked, ttft_p99_ms=6000)
    assert looser.gpus <= found.gpus


def test_the_best_under_load_keeps_the_limits_at_its_rate_alone():
    swept = rackplan.sweep("llama-3.1-8b", "hgx-h200", isl=500, osl=20, ttft_p99_ms=1500)
    limits = LoadLimits(1.5, swept.tpot_s)
    best = best_under_load(swept.serving, limits)
    assert swept.best.requests_per_s == best.requests_per_s
    make = stream_of(best.pools, swept.serving.lengths)
    at, beyond = (
        under_load(best.pools, make(best.requests_per_s * factor, 0), limits) for factor in (0.999, 1.5)
    )
    assert at.keeps
    assert not beyond.keeps or beyond.grows


@pytest.mark.wide
def test_a_comparison_says_what_each_serves_under_load():
    found = rackplan.compare(["hgx-h100", "hgx-h200"], "llama-3.1-70b", isl=2000, osl=200, ttft_p99_ms=1500)
    slower, faster = (row.loaded_requests_per_s for row in found.rows)
    assert 0 < slower < faster
