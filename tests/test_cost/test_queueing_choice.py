"""The way that keeps limits under load: no candidate serves more, and each is there once."""

from __future__ import annotations

import pytest

import rackplan
from cost.queueing.choice import best_under_load, candidates
from cost.queueing.load import NEAR, LoadLimits, most_requests, stream_of
from cost.queueing.pools import pools_of
from topology.base.errors import InfeasibleError


def test_no_candidate_serves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cost.queueing.load.FEWEST", 1_500)
    serving = rackplan.sweep("llama-3.1-70b", "hgx-h100", isl=2000, osl=300, ttft_ms=2000).serving
    limits = LoadLimits(2.0, 0.05)
    found = best_under_load(serving, limits, lambda pools: stream_of(pools, serving.lengths))
    assert found is not None
    assert found.requests_per_s is not None
    rows = candidates(serving, limits)
    assert len(rows) > 1
    assert len({(row.decode, row.prefill, row.prefill_workers, row.one_pool) for row in rows}) == len(rows)
    for row in rows:
        pools = pools_of(serving, row)
        try:
            most = most_requests(
                pools, stream_of(pools, serving.lengths), limits, row.requests_per_s / 2, seeds=1
            )
        except InfeasibleError:
            continue
        assert most.requests_per_s < found.requests_per_s * (1 + 4 * NEAR)  # tries differ in their streams
