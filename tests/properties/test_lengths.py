"""Mixes of requests: what their mean is, how they are read, and the pools that serve them."""

from __future__ import annotations

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
from cost.serving.cache_path import kv_path
from cost.serving.lengths import MAX_PROMPTS, Lengths, read_lengths, serving_workloads
from cost.serving.pools import FirstToken, match_rates
from topology import InputError, resolve_cluster

MIX = Lengths((4000, 500, 1000), (100, 400, 200), (0.2, 0.5, 0.3))


def written(folder: Path, text: str) -> Path:
    path = folder / "mix.csv"
    path.write_text(text, encoding="utf-8")
    return path


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
    found = match_rates(decode, longest, osl=lengths.mean_osl, ttft_s=ttft_s, shorter=shorter).best()
    return 0.0 if found is None else found.requests_per_s


def test_means_are_over_requests_and_over_the_tokens_made() -> None:
    assert (MIX.mean_isl, MIX.mean_osl) == (1350, 280)
    made = 0.2 * 100 * 4050 + 0.5 * 400 * 700 + 0.3 * 200 * 1100
    assert MIX.context == round(made / 280)
    assert MIX.prompts() == [(4000, 0.2), (1000, 0.3), (500, 0.5)]


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_one_kind_is_the_pair(isl: int, osl: int) -> None:
    decode, [(share, prefill)] = Lengths.of(isl, osl).workloads(Workload())
    assert (decode, prefill) == serving_workloads(Workload(), isl, osl)
    assert share == 1


@given(
    st.lists(
        st.tuples(st.integers(1, 10**5), st.integers(1, 10**4), st.integers(1, 50)), min_size=1, max_size=30
    )
)
def test_many_lengths_are_merged_and_keep_their_tokens(rows: list[tuple[int, int, int]]) -> None:
    total = sum(share for *_, share in rows)
    mix = Lengths(
        tuple(isl for isl, *_ in rows),
        tuple(osl for _, osl, _ in rows),
        tuple(share / total for *_, share in rows),
    )
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


@pytest.mark.wide
@pytest.mark.parametrize("ttft_s", [None, 0.5])
def test_a_worker_takes_all_lengths_one_after_the_other(ttft_s: float | None) -> None:
    """Brute force over layouts: the best batch of each length, and every number of workers on two domains."""
    lengths = Lengths((4000, 500), (100, 400), (0.4, 0.6))
    decode, prefill = swept(lengths)
    path = kv_path(decode.deployment, decode.deployment)
    caches = [FirstToken.of(decode, found, path) for _, found in prefill]
    cache_bytes = sum(share * first.cache_bytes for (share, _), first in zip(prefill, caches, strict=True))
    rows = [i for i in range(len(decode)) if decode.stages[i] == 1 and decode.gpus[i] == 8][::20]
    for row in rows:
        rate_d = decode.batch[row] * 8 / decode.step_s[row] / lengths.mean_osl
        rate_d = min(rate_d, 8 * path.bytes_per_s / cache_bytes)
        best_of: list[dict[tuple[int, ...], float]] = []
        for (_, found), first in zip(prefill, caches, strict=True):
            of: dict[tuple[int, ...], float] = {}
            for i in range(len(found)):
                if first.seconds(i, first.receive_s[row]) > (ttft_s or 1e9):
                    continue
                key = tuple(int(getattr(found, name)[i]) for name in ("gpus", "stages", "tp", "ep", "moe_tp"))
                rate = found.batch[i] * found.gpus[i] / found.step_s[i]
                rate = min(rate, found.gpus[i] * path.bytes_per_s / first.cache_bytes)
                of[key] = max(of.get(key, 0.0), float(rate))
            best_of.append(of)
        most = 0.0
        for key in best_of[0].keys() & best_of[1].keys():
            rate_p = 1 / sum(share / of[key] for (share, _), of in zip(prefill, best_of, strict=True))
            gpus = key[0]
            for x_d, x_p in product((1, 2), range(1, 17)):
                if x_d * 8 + -(-x_p * gpus // 8) * 8 <= 16 and gpus <= 8:
                    most = max(most, min(x_d * rate_d, x_p * rate_p))
        found = match_rates(
            decode.rows([row]),
            prefill[0][1],
            osl=lengths.mean_osl,
            ttft_s=ttft_s,
            shorter=prefill[1:],
        )
        served = found.requests_per_s.max(initial=0.0)
        assert 0.85 * most <= served <= most * (1 + 1e-9)  # prefill is as busy as requests come


def test_the_limit_holds_for_the_longest() -> None:
    short, mixed = Lengths.of(500, 400), Lengths((8000, 500), (400, 400), (0.01, 0.99))
    limit = 0.05
    assert best(short, limit) > 0
    assert best(mixed, limit) == 0
    assert best(mixed, 10.0) > 0


def test_a_file_is_read(tmp_path: Path) -> None:
    read = read_lengths(written(tmp_path, "osl,isl,share\n100,4000,0.2\n400,500,0.8\n"))
    assert read == Lengths((4000, 500), (100, 400), (0.2, 0.8))
    near = read_lengths(written(tmp_path, "isl,osl,share\n10,20,0.333\n20,20,0.333\n30,20,0.333\n"))
    assert sum(near.share) == pytest.approx(1)
    assert "add up to 0.999 and were normalized" in near.note


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no header"),
        ("isl,osl\n1,2\n", "column share is missing"),
        ("isl,osl,share,extra\n1,2,1,3\n", "unknown column 'extra'"),
        ("isl,osl,share,isl\n1,2,1,1\n", "duplicate column 'isl'"),
        ("isl,osl,share\n", "no rows"),
        ("isl,osl,share\n1,2,0.5\n1,2\n", "row 3: 2 cells"),
        ("isl,osl,share\n1,2,0.5\n0,2,0.5\n", "row 3, column isl"),
        ("isl,osl,share\n1,2.5,1\n", "row 2, column osl"),
        ("isl,osl,share\n1,2,-1\n", "row 2, column share"),
        ("isl,osl,share\n1,2,30\n3,4,70\n", "add up to 100, expected 1"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        read_lengths(written(tmp_path, text))
    assert words in str(refused.value), str(refused.value)


def test_lengths_are_checked() -> None:
    with pytest.raises(InputError, match="equally many prompts"):
        Lengths((1, 2), (1,), (1.0,))
    with pytest.raises(InputError, match=r"add up to 0\.5"):
        Lengths((1,), (1,), (0.5,))
    with pytest.raises(InputError, match="`isl` 0"):
        Lengths.of(0, 5)
