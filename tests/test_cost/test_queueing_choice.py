"""The way that keeps limits under load: no candidate serves more, and sizes and comparisons keep them too."""

from __future__ import annotations

import pytest

import rackplan
from cost.queueing.choice import best_under_load, candidates
from cost.queueing.load import RATE_TOLERANCE, LoadLimits, most_requests, stream_of, under_load
from cost.queueing.pools import pools_of
from topology.base.errors import InfeasibleError


def test_no_candidate_serves_more_and_the_best_keeps_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cost.queueing.load.MIN_REQUESTS", 1_500)
    swept = rackplan.sweep("llama-3.1-8b", "hgx-h200", isl=500, osl=20, ttft_p99_ms=1500)
    serving, limits = swept.serving, LoadLimits(1.5, swept.tpot_s)
    best = best_under_load(serving, limits, lambda pools: stream_of(pools, serving.lengths))
    assert swept.best.requests_per_s == best.requests_per_s
    make = stream_of(best.pools, serving.lengths)
    at, beyond = (
        under_load(best.pools, make(best.requests_per_s * factor, 0), limits) for factor in (0.999, 1.5)
    )
    assert at.keeps
    assert not beyond.keeps or beyond.grows
    rows = candidates(serving, limits)
    assert len(rows) > 1
    assert len({(row.decode, row.prefill, row.prefill_workers, row.one_pool) for row in rows}) == len(rows)
    for row in rows:
        pools = pools_of(serving, row)
        stream, start = stream_of(pools, serving.lengths), row.requests_per_s / 2
        try:
            most = most_requests(pools, stream, limits, start, seeds=1)
        except InfeasibleError:
            continue
        assert most.requests_per_s < best.requests_per_s * (
            1 + 4 * RATE_TOLERANCE
        )  # tries differ in their streams


ASKED = {"model": "llama-3.1-70b", "isl": 2000, "osl": 200}


@pytest.mark.wide
def test_a_fleet_under_load_is_larger_than_one_on_average_and_keeps_its_limits() -> None:
    asked = {**ASKED, "cluster": "hgx-h200", "req_s": 20, "ttft_ms": 2000}
    found = rackplan.size(**asked, ttft_p99_ms=1500)
    average = rackplan.size(**asked)
    assert found.on_average == average.gpus <= found.gpus
    assert found.served.requests_per_s >= 20
    looser = rackplan.size(**asked, ttft_p99_ms=6000)
    assert looser.gpus <= found.gpus


@pytest.mark.wide
def test_a_comparison_says_what_each_serves_under_load() -> None:
    found = rackplan.compare(["hgx-h100", "hgx-h200"], **ASKED, ttft_p99_ms=1500)
    slower, faster = (row.loaded_requests_per_s for row in found.rows)
    assert 0 < slower < faster
