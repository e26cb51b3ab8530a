"""Rate matching against every number of workers of every pair, and its limits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, sweep
from cost.resolve import resolve_model
from cost.serving import packing
from cost.serving.cache_path import CachePath, kv_path, prompt_cache_bytes
from cost.serving.lengths import serving_workloads
from cost.serving.pools import RateMatch, RateMatches, match_rates
from cost.serving.steady_state import busy_share
from topology import Evidence, Figure, InputError, resolve_cluster

ISL, OSL = 2000, 300


@cache
def pools(
    decode_cluster: str,
    prefill_cluster: str = "",
    model: str = "mixtral-8x7b",
    *,
    any_shape: bool = False,
) -> tuple[Sweep, Sweep]:
    """Sweeps of both phases; one cluster for both unless a second one is named."""
    what = resolve_model(model)
    first = resolve_cluster(decode_cluster)
    second = resolve_cluster(prefill_cluster) if prefill_cluster else first
    decode, prefill = serving_workloads(Workload(), ISL, OSL)
    sides = ((first, decode), (second, prefill))
    one, other = (sweep(Deployment(where, what, work, any_shape=any_shape)) for where, work in sides)
    return one, other


@cache
def packs(groups: tuple[tuple[int, int], ...], domains: int, size: int) -> bool:
    """Whether so many groups of so many GPUs find room: all ways to share them out over the domains."""
    small: list[tuple[int, int]] = []
    for group, count in groups:
        if group > size:
            domains -= group // size * count
        else:
            small.append((group, count))
    states = {tuple(0 for _ in small)}
    for _ in range(domains):
        states = {
            tuple(min(a + b, count) for a, b, (_, count) in zip(state, more, small, strict=True))
            for state in states
            for more in product(*(range(size // group + 1) for group, _ in small))
            if sum(n * group for n, (group, _) in zip(more, small, strict=True)) <= size
        }
    return domains >= 0 and tuple(count for _, count in small) in states


def rates(found: Sweep, index: int) -> float:
    """Sequences per second of one worker."""
    return float(found.batch[index] * found.gpus[index] / found.step_s[index])


def pool_rates(decode: Sweep, prefill: Sweep, row: RateMatch) -> tuple[float, float]:
    """Requests per second of each pool of a match, always busy."""
    return (
        rates(decode, row.decode) / OSL * row.decode_workers,
        rates(prefill, row.prefill) * row.prefill_workers,
    )


def served(decode: Sweep, prefill: Sweep, row: RateMatch) -> float:
    """Requests per second of both pools together, prefill as busy as it is."""
    decodes, prefills = pool_rates(decode, prefill, row)
    stay_s = OSL * decode.step_s[row.decode] + prefill.step_s[row.prefill]
    in_step = prefill.batch[row.prefill] * prefill.gpus[row.prefill]
    return min(decodes, prefills * float(busy_share(prefills, stay_s, in_step)))


def ttft(decode: Sweep, prefill: Sweep, index: int, other: int) -> float:
    """Seconds to the first token of one pair: the prefill step, then all its prompts over the slower side's links."""
    path = kv_path(decode.deployment, prefill.deployment)
    cache = prompt_cache_bytes(prefill.deployment, ISL)
    sent = prefill.batch[other] * prefill.tp[other] * cache / (prefill.tp[other] * prefill.stages[other])
    received = cache / (decode.tp[index] * decode.stages[index])
    return float(prefill.step_s[other] + path.latency_s + max(sent, received) / path.bytes_per_s)


def brute(decode: Sweep, prefill: Sweep, index: int, ttft_s: float, domains: int, size: int) -> float:
    """Most requests per second with one decode configuration, by trying every partner and every number of each."""
    best = 0.0
    rate_d = rates(decode, index) / OSL
    group_d = int(decode.gpus[index] // decode.stages[index])
    for other in range(len(prefill)):
        if ttft(decode, prefill, index, other) > ttft_s:
            continue
        rate_p = rates(prefill, int(other))
        stay_s = OSL * decode.step_s[index] + prefill.step_s[other]
        in_step = prefill.batch[other] * prefill.gpus[other]
        group_p = int(prefill.gpus[other] // prefill.stages[other])
        left = domains * size
        for x_d in range(1, left // int(decode.gpus[index]) + 1):
            for x_p in range(1, (left - x_d * int(decode.gpus[index])) // int(prefill.gpus[other]) + 1):
                served = min(x_d * rate_d, x_p * rate_p * float(busy_share(x_p * rate_p, stay_s, in_step)))
                groups = (
                    (group_d, x_d * int(decode.stages[index])),
                    (group_p, x_p * int(prefill.stages[other])),
                )
                if served > best and packs(groups, domains, size):
                    best = served
    return best


@pytest.mark.parametrize("ttft_s", [math.inf, 0.5])
def test_as_many_requests_as_brute_force_finds(ttft_s: float) -> None:
    decode, prefill = pools("hgx-h100@16")
    found = match_rates(decode, prefill, osl=OSL, ttft_s=ttft_s)
    matches = {row.decode: row for row in map(found.row, range(len(found)))}
    for index in range(0, len(decode), max(1, len(decode) // 25)):
        best = brute(decode, prefill, index, ttft_s, domains=2, size=8)
        most = matches[index].requests_per_s if index in matches else 0.0
        assert most == pytest.approx(best), index
    assert matches


@pytest.mark.parametrize("cluster", ["hgx-h100@16", "gb200-nvl72@16"])
def test_pairs_in_blocks_are_the_same(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, prefill = pools(cluster)
    found = match_rates(decode, prefill, osl=OSL)
    monkeypatch.setattr(packing, "_PAIR_BLOCK", 300)
    again = match_rates(decode, prefill, osl=OSL)
    for name, values in vars(found).items():
        if isinstance(values, np.ndarray):
            assert values.tobytes() == getattr(again, name).tobytes()


def test_pools_match_and_keep_their_limits() -> None:
    decode, prefill = pools("gb200-nvl72", model="deepseek-v3")
    found = match_rates(decode, prefill, osl=OSL, ttft_s=2.0, tpot_s=0.04)
    assert len(found) > 100
    for row in (found.row(i) for i in range(0, len(found), 37)):
        decodes, prefills = pool_rates(decode, prefill, row)
        most = min(decodes, prefills)
        assert 0.5 * most < row.requests_per_s == pytest.approx(served(decode, prefill, row))
        # one worker fewer of either would serve less
        fewer = replace(row, prefill_workers=row.prefill_workers - 1)
        assert row.prefill_workers == 1 or served(decode, prefill, fewer) < row.requests_per_s
        assert decodes * (row.decode_workers - 1) / row.decode_workers < most
        used = row.decode_workers * decode.gpus[row.decode] + row.prefill_workers * prefill.gpus[row.prefill]
        assert row.gpus_used == used <= row.gpus == 72
        assert row.prefill_s == prefill.step_s[row.prefill]
        assert row.ttft_s == pytest.approx(row.prefill_s + row.transfer_s)
        assert row.ttft_s == pytest.approx(ttft(decode, prefill, row.decode, row.prefill))
        assert row.ttft_s <= 2.0
        assert row.prefill_gpus + row.decode_gpus == used
        assert row.tok_s_per_user >= 25
        assert row.output_tok_s_per_gpu == pytest.approx(row.requests_per_s * OSL / 72)
        assert row.total_tok_s_per_gpu == pytest.approx(row.requests_per_s * (OSL + ISL) / 72)
        assert row.output_tok_s_per_gpu_used == pytest.approx(row.requests_per_s * OSL / used)


def best_rate(found: RateMatches) -> float:
    best = found.best()
    return 0.0 if best is None else best.output_tok_s_per_gpu


def test_limits_cost_throughput_and_the_frontier_holds_the_best() -> None:
    decode, prefill = pools("gb200-nvl72", model="deepseek-v3", any_shape=True)
    free = match_rates(decode, prefill, osl=OSL)
    tight = match_rates(decode, prefill, osl=OSL, ttft_s=0.2)
    fast = match_rates(decode, prefill, osl=OSL, ttft_s=0.2, tpot_s=0.02)
    assert best_rate(free) > best_rate(tight) > best_rate(fast) > 0
    edge = free.frontier()
    assert free.output_tok_s_per_gpu[edge[0]] == best_rate(free)
    assert (np.diff(free.tok_s_per_user[edge]) > 0).all()
    assert len(match_rates(decode, prefill, osl=OSL, ttft_s=1e-6)) == 0
    assert match_rates(decode, prefill, osl=OSL, tpot_s=1e-6).best() is None


def test_prefill_is_as_busy_as_requests_come() -> None:
    decode, prefill = pools("hgx-h100@16")
    found = match_rates(decode, prefill, osl=OSL)
    rows = list(map(found.row, range(0, len(found), 17)))
    assert [row.requests_per_s for row in rows] == pytest.approx(
        [served(decode, prefill, row) for row in rows]
    )
    narrow = [row for row in rows if min(pool_rates(decode, prefill, row)) > row.requests_per_s * (1 + 1e-9)]
    assert 0 < len(narrow) < len(rows)
    # the more are in flight, the less it waits; one at a time, half of the time or more
    share = busy_share(10.0, np.array([0.1, 1.0, 10.0, 1000.0]), 1.0)
    assert share == pytest.approx([0.5858, 0.8173, 0.9340, 0.9930], abs=1e-4)


def test_two_clusters_have_their_own_gpus() -> None:
    decode, prefill = pools("gb200-nvl72@8", "hgx-h100@16")
    found = match_rates(decode, prefill, osl=OSL)
    best = found.best()
    assert best is not None
    assert best.gpus == 24
    assert best.decode_workers * decode.gpus[best.decode] <= 8
    assert best.prefill_workers * prefill.gpus[best.prefill] <= 16
    # with prefill elsewhere every decode worker may run, and where it is fast enough all of them do
    for row in (found.row(i) for i in range(0, len(found), 101)):
        room = 8 // int(decode.gpus[row.decode])
        one_more = rates(decode, row.decode) / OSL * (row.decode_workers + 1)
        most = max(rates(prefill, i) * (16 // int(prefill.gpus[i])) for i in range(len(prefill)))
        assert row.decode_workers == room or one_more > most * (1 - 1e-9)


def test_workloads_of_a_request_mix() -> None:
    decode, prefill = serving_workloads(
        Workload(draft_tokens=1, accept_length=1.5, kv_dtype="fp8"), 4000, 1000
    )
    assert (decode.phase, decode.context, decode.draft_tokens, decode.kv_dtype) == ("decode", 4500, 1, "fp8")
    assert (prefill.phase, prefill.context, prefill.draft_tokens, prefill.kv_dtype) == (
        "prefill",
        4000,
        0,
        "fp8",
    )


def test_what_is_refused() -> None:
    decode, prefill = pools("hgx-h100@16")
    with pytest.raises(InputError, match="in that order"):
        match_rates(prefill, decode, osl=OSL)
    with pytest.raises(InputError, match="`osl` 0"):
        match_rates(decode, prefill, osl=0)
    with pytest.raises(InputError, match="`isl` 0"):
        serving_workloads(Workload(), 0, 5)


def test_gpus_left_over_take_nothing_from_whole_domains() -> None:
    whole, more = (match_rates(*pools(f"gb200-nvl72@{gpus}"), osl=OSL) for gpus in (72, 76))
    assert (whole.gpus, more.gpus) == (72, 76)
    assert best_rate(more) * 76 >= best_rate(whole) * 72 * (1 - 1e-9) > 0


def path_of(bytes_per_s: float, latency_s: float = 0.0) -> CachePath:
    return CachePath("test", bytes_per_s, latency_s, Figure(1.0, "1", Evidence.USER, "test"))


def test_the_links_bound_what_pools_hand_over() -> None:
    decode, prefill = pools("hgx-h100@16")
    cache = prompt_cache_bytes(prefill.deployment, ISL)
    # so slow that links alone decide: a decode worker of g GPUs takes in g * R / B prompts per second
    slow = match_rates(decode, prefill, osl=OSL, path=path_of(1e6))
    row = slow.best()
    assert row is not None
    assert row.requests_per_s == pytest.approx(row.decode_gpus * 1e6 / cache)
    assert row.prefill_gpus * 1e6 / cache >= row.requests_per_s * (1 - 1e-9)
    rates_of = [
        best_rate(match_rates(decode, prefill, osl=OSL, ttft_s=0.5, path=path_of(rate)))
        for rate in (1e6, 1e8, 1e10, 1e12)
    ]
    assert rates_of == sorted(rates_of), "a faster link is never slower"
    assert rates_of[0] == 0 < rates_of[-1]
    late = match_rates(decode, prefill, osl=OSL, path=path_of(1e12, latency_s=0.25))
    assert (late.prefill_s + late.transfer_s).min() > 0.25
    assert late.fastest_ttft_s == pytest.approx(prefill.step_s.min() + 0.25, rel=0.01)
