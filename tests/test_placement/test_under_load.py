"""A plan under load: its engines cost what its score says, read back too, and a phase alone is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rackplan
from cost.queueing.load import LoadLimits, under_load
from cost.queueing.pools import pools_of
from cost.queueing.requests import made_requests
from cost.serving.lengths import Lengths
from placement.plan import Plan
from placement.under_load import lengths_of_plan, pools_of_plan
from topology.base.errors import InputError


def planned(model: str, cluster: str, **asked: object) -> Plan:
    return rackplan.plan(model, cluster, time_limit_s=0, **asked)


@pytest.fixture(scope="module")
def dense() -> Plan:
    return planned("llama-3.1-8b", "hgx-h100", isl=2000, osl=300)


@pytest.fixture(scope="module")
def two_pools() -> Plan:
    return planned("qwen3-235b-a22b", "hgx-h200@16", isl=4096, osl=512)


def test_a_dense_plan_has_the_engines_of_the_sweep(dense: Plan) -> None:
    swept = rackplan.sweep("llama-3.1-8b", "hgx-h100", isl=2000, osl=300)
    assert swept.best is not None
    assert swept.best.one_pool
    (planned,), (priced,) = (
        one.pools
        for one in (pools_of_plan(dense, swept.serving.lengths), pools_of(swept.serving, swept.best))
    )
    assert (planned.role, planned.workers, planned.gpus) == (priced.role, priced.workers, priced.gpus)
    assert planned.room == pytest.approx(priced.room)
    assert planned.table.decode_s == pytest.approx(priced.table.decode_s)
    assert np.array(planned.table.prompt_s) == pytest.approx(np.array(priced.table.prompt_s))


def test_one_request_alone_takes_what_the_plan_says(two_pools: Plan) -> None:
    assert two_pools.requests is not None
    lengths = lengths_of_plan(two_pools)
    assert lengths is not None
    assert (lengths.isl, lengths.osl) == ((4096,), (512,))
    pools = pools_of_plan(two_pools, lengths)
    assert [one.role for one in pools.pools] == ["prefill", "decode"]
    assert pools.gpus == 16
    assert pools.transfers is not None
    found = under_load(pools, made_requests(lengths, 8, users=1), LoadLimits(None, None))
    alone_s = float(found.ttft_s.mean()) - pools.fixed_s
    assert alone_s < 1.05 * two_pools.requests.ttft_s  # whose prompts may share a step
    assert two_pools.deployment.workload.batch > 1
    assert float(found.tpot_s.mean()) < two_pools.requests.tpot_s


def test_lengths_follow_from_the_workloads_of_both_pools(two_pools: Plan) -> None:
    read = replace(two_pools, requests=None)
    assert lengths_of_plan(read) == lengths_of_plan(two_pools)


def test_prefill_alone_is_refused_and_decode_alone_is_one_pool() -> None:
    lengths = Lengths.of(2000, 300)
    with pytest.raises(InputError, match="for prefill only, but requests need both phases"):
        pools_of_plan(planned("llama-3.1-8b", "hgx-h100", phase="prefill"), lengths)
    decode = planned("llama-3.1-8b", "hgx-h100")
    assert lengths_of_plan(decode) is None
    assert [one.role for one in pools_of_plan(decode, lengths).pools] == ["both"]
