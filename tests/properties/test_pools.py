"""Pools of prefill and decode matched, against every number of workers of every pair; mixes of lengths; limits."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, sweep
from cost.resolve import resolve_model
from cost.serving.cache_path import CachePath, kv_path, prompt_cache_bytes
from cost.serving.lengths import MAX_PROMPTS, Lengths, read_lengths, serving_workloads
from cost.serving.pools import RateMatch, RateMatches, match_rates
from cost.serving.steady_state import busy_share
from topology import Evidence, Figure, InputError, resolve_cluster

ISL, OSL = 2000, 300


@cache
def pools(
    cluster: str, prefill_cluster: str = "", model: str = "mixtral-8x7b", *, any_shape: bool = False
) -> tuple[Sweep, Sweep]:
    """Sweeps of both phases; one cluster for both unless a second one is named."""
    what, work = resolve_model(model), serving_workloads(Workload(), ISL, OSL)
    first = resolve_cluster(cluster)
    where = first, resolve_cluster(prefill_cluster) if prefill_cluster else first
    decode, prefill = (
        sweep(Deployment(place, what, phase, any_shape=any_shape))
        for place, phase in zip(where, work, strict=True)
    )
    return decode, prefill


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


def rates(matched: Sweep, index: int) -> float:
    """Sequences per second of one worker."""
    return float(matched.batch[index] * matched.gpus[index] / matched.step_s[index])


def pool_rates(
    decode: Sweep, prefill: Sweep, pair: tuple[int, int], workers: tuple[int, int]
) -> tuple[float, float]:
    """Requests per second of each pool, always busy."""
    return rates(decode, pair[0]) / OSL * workers[0], rates(prefill, pair[1]) * workers[1]


def served(decode: Sweep, prefill: Sweep, pair: tuple[int, int], workers: tuple[int, int]) -> float:
    """Requests per second of both pools together, prefill as busy as it is."""
    decodes, prefills = pool_rates(decode, prefill, pair, workers)
    stay_s = OSL * decode.step_s[pair[0]] + prefill.step_s[pair[1]]
    in_step = prefill.batch[pair[1]] * prefill.gpus[pair[1]]
    return min(decodes, prefills * float(busy_share(prefills, stay_s, in_step)))


def of_match(row: RateMatch) -> tuple[tuple[int, int], tuple[int, int]]:
    return (row.decode, row.prefill), (row.decode_workers, row.prefill_workers)


def ttft(decode: Sweep, prefill: Sweep, index: int, other: int) -> float:
    """Seconds to the first token of one pair: the prefill step, then all its prompts over the slower side's links."""
    path = kv_path(decode.deployment, prefill.deployment)
    cache = prompt_cache_bytes(prefill.deployment, ISL)
    sent = prefill.batch[other] * prefill.tp[other] * cache / (prefill.tp[other] * prefill.stages[other])
    received = cache / (decode.tp[index] * decode.stages[index])
    return float(prefill.step_s[other] + path.latency_s + max(sent, received) / path.bytes_per_s)


def brute(decode: Sweep, prefill: Sweep, index: int, ttft_s: float, domains: int, size: int) -> float:
    """Most requests per second with one decode configuration, by trying every partner and every number of each."""
    best, gpus = 0.0, int(decode.gpus[index])
    for other in range(len(prefill)):
        if ttft(decode, prefill, index, other) > ttft_s:
            continue
        stages = int(decode.stages[index]), int(prefill.stages[other])
        groups = gpus // stages[0], int(prefill.gpus[other]) // stages[1]
        for decoding in range(1, domains * size // gpus + 1):
            for prefilling in range(1, (domains * size - decoding * gpus) // int(prefill.gpus[other]) + 1):
                rate = served(decode, prefill, (index, other), (decoding, prefilling))
                numbers = decoding * stages[0], prefilling * stages[1]
                if rate > best and packs(tuple(zip(groups, numbers, strict=True)), domains, size):
                    best = rate
    return best


@pytest.mark.parametrize("ttft_s", [math.inf, 0.5])
def test_as_many_requests_as_brute_force_finds(ttft_s: float) -> None:
    decode, prefill = pools("hgx-h100@16")
    matched = match_rates(decode, prefill, osl=OSL, ttft_s=ttft_s)
    matches = {row.decode: row for row in map(matched.row, range(len(matched)))}
    for index in range(0, len(decode), max(1, len(decode) // 25)):
        best = brute(decode, prefill, index, ttft_s, domains=2, size=8)
        highest = matches[index].requests_per_s if index in matches else 0.0
        assert highest == pytest.approx(best), index
    assert matches


def test_pools_match_and_keep_their_limits() -> None:
    decode, prefill = pools("gb200-nvl72", model="deepseek-v3")
    matched = match_rates(decode, prefill, osl=OSL, ttft_s=2.0, tpot_s=0.04)
    assert len(matched) > 100
    for row in (matched.row(i) for i in range(0, len(matched), 37)):
        pair, workers = of_match(row)
        decodes, prefills = pool_rates(decode, prefill, pair, workers)
        highest = min(decodes, prefills)
        assert 0.5 * highest < row.requests_per_s == pytest.approx(served(decode, prefill, pair, workers))
        # one worker fewer of either would serve less
        fewer = workers[0], workers[1] - 1
        assert fewer[1] == 0 or served(decode, prefill, pair, fewer) < row.requests_per_s
        assert decodes * (row.decode_workers - 1) / row.decode_workers < highest
        used = row.decode_workers * decode.gpus[row.decode] + row.prefill_workers * prefill.gpus[row.prefill]
        assert row.gpus_used == used <= row.gpus == 72
        assert row.ttft_s == pytest.approx(ttft(decode, prefill, row.decode, row.prefill))
        assert row.ttft_s <= 2.0
        assert row.tok_s_per_user >= 25
        assert row.output_tok_s_per_gpu == pytest.approx(row.requests_per_s * OSL / 72)
        assert row.output_tok_s_per_gpu_used == pytest.approx(row.requests_per_s * OSL / used)


def best_rate(matched: RateMatches) -> float:
    best = matched.best()
    return 0.0 if best is None else best.output_tok_s_per_gpu


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


@cache
def swept(lengths: Lengths) -> tuple[Sweep, list[tuple[float, Sweep]]]:
    """Sweeps of decode and of prefill at each length."""
    cluster, model = resolve_cluster("hgx-h100@16"), resolve_model("mixtral-8x7b")
    decode, prompts = lengths.workloads(Workload())
    return sweep(Deployment(cluster, model, decode)), [
        (share, sweep(Deployment(cluster, model, workload))) for share, workload in prompts
    ]


def best(lengths: Lengths, ttft_s: float | None = None) -> float:
    decode, ((_, longest), *shorter) = swept(lengths)
    matched = match_rates(decode, longest, osl=lengths.mean_osl, ttft_s=ttft_s, shorter=shorter).best()
    return 0.0 if matched is None else matched.requests_per_s


ROWS = st.tuples(st.integers(1, 10**5), st.integers(1, 10**4), st.integers(1, 50))


@given(st.lists(ROWS, min_size=1, max_size=30))
def test_many_lengths_are_merged_and_keep_their_tokens(rows: list[tuple[int, int, int]]) -> None:
    prompt, answer, weight = zip(*rows, strict=True)
    mix = Lengths(prompt, answer, tuple(part / sum(weight) for part in weight))
    prompts = mix.prompts()
    assert len(prompts) <= MAX_PROMPTS
    assert prompts[0][0] == max(mix.isl)
    assert sum(share for _, share in prompts) == pytest.approx(1)
    # rounded up, never down
    merged = sum(isl * share for isl, share in prompts)
    assert mix.mean_isl - 1e-6 <= merged <= mix.mean_isl + 1
    assert prompts == sorted(prompts, reverse=True)


def test_a_row_split_in_two_changes_nothing() -> None:
    whole = Lengths((4000, 500), (100, 400), (0.4, 0.6))
    split = Lengths((4000, 500, 4000, 500), (100, 400, 100, 400), (0.1, 0.2, 0.3, 0.4))
    assert split.context == whole.context
    assert best(split) == pytest.approx(best(whole))
    alone, twice = Lengths.of(2000, 300), Lengths((2000, 2000), (300, 300), (0.5, 0.5))
    assert best(twice) == pytest.approx(best(alone))


def test_the_limit_holds_for_the_longest() -> None:
    short, mixed = Lengths.of(500, 400), Lengths((8000, 500), (400, 400), (0.01, 0.99))
    limit = 0.05
    assert best(short, limit) > 0
    assert best(mixed, limit) == 0
    assert best(mixed, 10.0) > 0


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mix.csv"
    path.write_text("osl,isl,share\n100,4000,0.2\n400,500,0.8\n")
    assert read_lengths(path) == Lengths((4000, 500), (100, 400), (0.2, 0.8))
    path.write_text("isl,osl,share\n10,20,0.333\n20,20,0.333\n30,20,0.333\n")
    near = read_lengths(path)
    assert sum(near.share) == pytest.approx(1)
    assert "add up to 0.999 and were normalized" in near.note


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("isl,osl,share\n1,2,0.5\n1,2\n", "row 3: 2 cells"),
        ("isl,osl,share\n1,2,0.5\n0,2,0.5\n", "row 3, column isl"),
        ("isl,osl,share\n1,2,30\n3,4,70\n", "add up to 100, expected 1"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mix.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_lengths(path)
