"""Engines under load: prefixes, preemption, transfers, routers, traces, and the way that keeps limits."""

from __future__ import annotations

import json

import numpy as np
import pytest

import rackplan
from cost.queueing.cache import PrefixCache
from cost.queueing.choice import best_under_load, candidates
from cost.queueing.engine import DECODE, PREFILL, Engine
from cost.queueing.load import (
    RATE_TOLERANCE,
    LoadLimits,
    UnderLoad,
    in_engines,
    most_requests,
    stream_of,
    under_load,
)
from cost.queueing.pools import EnginePool, EnginePools, pools_of
from cost.queueing.requests import Requests, made_requests
from cost.queueing.schedulers import Scheduler
from cost.queueing.simulation import Simulation, Transfers
from cost.queueing.steps import CACHED_TOKENS, PRICED_TOKENS, StepTable
from cost.queueing.traces import read_trace
from cost.serving.lengths import Lengths
from topology.base.errors import InfeasibleError, InputError

PLAIN = Scheduler(mixes=True, tokens=2048, sequences=64, reserved=0.0)


def step(sequences, tokens, cached, context):
    """2 ms, 1 ms a sequence, 0.1 ms a prompt token and what it attends to, half of it of experts."""
    own = 0.002 + 1e-3 * sequences * (1 + context / 1e4) + 5e-5 * tokens * (1 + (tokens + 2 * cached) / 1e4)
    experts = 5e-5 * tokens
    return np.stack([own + experts, experts])


def table(groups=1, decodes=True):
    return StepTable.of(step, groups=groups, max_sequences=64, context=1000.0, decodes=decodes)


def test_a_table_reads_what_was_priced():
    priced = table()
    for sequences in (1.0, 3.0, 40.0):
        for context in (500.0, 4000.0):
            expected = step(np.array([sequences]), np.zeros(1), 0.0, context)[0, 0]
            assert priced.decode(sequences, context) == pytest.approx(expected)
    for tokens in PRICED_TOKENS:
        for cached in (0.0, CACHED_TOKENS / 2, 2 * CACHED_TOKENS):
            whole = step(np.zeros(1), np.array([tokens]), cached, 1000.0)[0, 0]
            assert priced.prompts(tokens, tokens + 2 * cached, tokens, 0) == pytest.approx(whole)
            beside = whole - 0.002  # the step is there already
            assert priced.prompts(tokens, tokens + 2 * cached, tokens, 64) == pytest.approx(beside)
    wide = table(groups=4)  # experts compute the tokens of all groups
    own, of_all = wide.prompts(2048, 2048, 512, 0), wide.prompts(2048, 2048, 2048, 0)
    assert of_all - own == pytest.approx(5e-5 * (2048 - 512))


def served(asked, *engines, **more):
    return Simulation(engines, asked, **more).run()


BLOCKS = dict.fromkeys(range(1, 10), 512)


def keeping(room, **more):
    """An engine whose cache keeps prompts of :data:`BLOCKS`."""
    return Engine(table(), PLAIN, room, cache=PrefixCache(BLOCKS, 512, **more))


def test_equal_blocks_at_the_start_are_computed_once():
    blocks = [(1, 2, 3), (1, 2, 4), (1, 5, 3), (1, 2, 4)]
    asked = Requests([0.0, 9.0, 18.0, 27.0], [1500] * 4, [4] * 4, [0] * 4, segments=blocks, sizes=BLOCKS)
    outcome = served(asked, keeping(1e6))
    assert outcome.cached.tolist() == [0, 1024, 512, 1499]
    assert np.argsort(outcome.first_s - outcome.arrival_s).tolist() == [3, 1, 2, 0]
    blocks = [(n,) for n in (1, 2, 3, 1, 3)]
    asked = Requests([9.0 * n for n in range(5)], [512] * 5, [2] * 5, [0] * 5, segments=blocks, sizes=BLOCKS)
    full = served(asked, keeping(1100.0))
    assert full.cached.tolist() == [0, 0, 0, 0, 511], "a full cache drops the oldest"
    with pytest.raises(InputError, match="a request of 1,100 tokens does not fit the KV cache"):
        served(Requests([0.0], [1000], [100], [0]), Engine(table(), PLAIN, 1024.0))


def test_a_router_of_prefixes_finds_the_engine_that_has_one():
    blocks = [(1, 2), (7, 8), (1, 2), (7, 8), (7, 8), (1, 2)]
    asked = Requests([9.0 * n for n in range(6)], [1024] * 6, [2] * 6, [0] * 6, segments=blocks, sizes=BLOCKS)
    hits = {
        router: served(asked, *(keeping(3000.0) for _ in range(2)), router=router).cached.astype(bool).sum()
        for router in ("prefix", "round")
    }
    assert hits == {"prefix": 4, "round": 2}


def test_what_finds_no_room_is_computed_again():
    asked = Requests([0.0] * 3, [300] * 3, [200] * 3, [0] * 3, 3)
    engine = Engine(table(), PLAIN, 1100.0)
    outcome = served(asked, engine)
    assert outcome.preempted
    assert outcome.cache_wait_s > 0
    alone = served(asked, Engine(table(), PLAIN, 1e6))
    assert outcome.done_s.max() > alone.done_s.max()
    careful = Scheduler(mixes=True, tokens=2048, sequences=64, reserved=1.0)
    assert not served(asked, Engine(table(), careful, 1100.0)).preempted


def two_pools(bytes_per_s, users, senders=1, room=1e6):
    links = Transfers(0.01, bytes_per_s, lambda tokens: 1e6 * tokens)
    first = [Engine(table(decodes=False), PLAIN, 1e9, PREFILL, gpus=2) for _ in range(senders)]
    asked = Requests([0.0] * users, [512] * users, [3] * users, [0] * users, users)
    return Simulation(first, asked, [Engine(table(), PLAIN, room, DECODE)], links).run()


def test_caches_that_arrive_at_one_engine_share_its_links():
    alone = two_pools(1e9, 1)
    sent_s = 0.01 + 0.512 + 2 * (0.002 + 1e-3 * (1 + 513.5 / 1e4))
    assert (alone.done_s - alone.first_s)[0] == pytest.approx(sent_s)
    outcome = two_pools(1e9, 2, senders=2)  # both prefill at once, each sends at half of the rate
    assert outcome.waits_s["transfer"] == pytest.approx(0.512)
    crowded = two_pools(1e9, 2, senders=2, room=1027.0)  # one of them starts again
    assert crowded.preempted
    assert crowded.done_s.max() > outcome.done_s.max()


def pools(workers):
    return EnginePools((EnginePool("both", table(), PLAIN, workers, 8, 1e6),), None, 0.0)


def test_the_most_requests_are_just_within_the_limits():
    lengths, limits = Lengths.of(500, 20), LoadLimits(0.5, 0.02)

    def make(rate, seed):
        return made_requests(lengths, 1500, requests_per_s=rate, seed=seed)

    single, double = (
        most_requests(pools(count), make, limits, near) for count, near in ((1, 30.0), (2, 3.0))
    )
    assert single.low <= single.requests_per_s <= single.high
    assert 1.8 * single.requests_per_s < double.requests_per_s < 4 * single.requests_per_s
    at, beyond = (
        UnderLoad(pools(1).simulate(make(rate, 0)), limits, np.ones(1500, dtype=bool))
        for rate in (0.8 * single.low, 1.3 * single.high)
    )
    assert at.keeps
    assert not beyond.keeps
    assert at.goodput_per_s == pytest.approx(0.8 * single.low, rel=0.1)
    with pytest.raises(InfeasibleError, match=r"no rate meets 5 ms to the first token .* take 5"):
        most_requests(pools(1), make, LoadLimits(0.005, None), 1.0)


@pytest.mark.parametrize("rate", [4.0, 20.0])
def test_streams_start_with_engines_as_full_as_they_stay(rate):
    def light(sequences, tokens, cached, context):
        return np.stack(
            [0.002 + 2e-5 * sequences + 5e-5 * tokens, 0.0 * tokens]
        )  # prompts take most of the time

    eight = StepTable.of(light, groups=8, max_sequences=256, context=1000.0)
    seats = Scheduler(mixes=True, tokens=2048, sequences=256, reserved=0.0)
    engine = EnginePools((EnginePool("both", eight, seats, 1, 8, 1e8),), None, 0.0)
    lengths = Lengths.of(1000, 2000)
    outcome = under_load(engine, stream_of(engine, lengths)(rate, 0), LoadLimits(None, None))
    assert in_engines(engine, lengths, rate) == pytest.approx(rate * outcome.e2e_s.mean(), rel=0.1)
    assert outcome.requests_per_s == pytest.approx(rate, rel=0.05)


def test_lengths_and_arrivals_are_as_asked():
    asked = made_requests(Lengths.of(1000, 100), 20_000, requests_per_s=4.0, cv=0.5, seed=3)
    isl, gaps = np.array(asked.isl), np.diff(asked.starts_s)
    assert isl.mean() == pytest.approx(1000, rel=0.02)
    assert isl.std() / isl.mean() == pytest.approx(0.5, rel=0.05)
    assert gaps.mean() == pytest.approx(0.25, rel=0.03)
    spread = {
        arrivals: np.std(np.diff(made_requests(Lengths.of(9, 9), 9000, arrivals=arrivals).starts_s))
        for arrivals in ("poisson", "constant", "bursty")
    }
    assert spread["poisson"] == pytest.approx(1, rel=0.05)
    assert spread["constant"] == pytest.approx(0, abs=1e-9)
    assert spread["bursty"] == pytest.approx(2, rel=0.1)


def mooncake_line(timestamp, isl, osl, **more):
    row = {"timestamp": timestamp, "input_length": isl, "output_length": osl, **more}
    return json.dumps(row | {"hash_ids": [4, 9][: 1 + isl // 512]}) + "\n"


AZURE, BURSTGPT = "TIMESTAMP,ContextTokens,GeneratedTokens\n", "Timestamp,Request tokens,Response tokens\n"
MOONCAKE = "timestamp,input_length,output_length,hash_ids\n"


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        (AZURE + "2025-01-01 10:00:00.1+00:00,900,5\n2025-01-01 10:00:02.100000+00:00,30,7\n", 0),
        (AZURE + "2023-11-16 18:17:03.9799600,900,5\n2023-11-16 18:17:05.9799600,30,7\n", 0),
        (BURSTGPT + "5,900,5\n6,9,0\n7,30,7\n", 1),
        (MOONCAKE + '1732800000000,900,5,"[4, 9]"\n1732800002000,30,7,[4]\n', 0),
        (mooncake_line(61.5, 900, 5, chat_id=1) + mooncake_line(63.5, 30, 7, chat_id=2), 0),
        (mooncake_line(1000, 900, 5) + mooncake_line(3000, 30, 7), 0),
    ],
    ids=["azure 2024", "azure 2023", "burstgpt", "csv", "bailian", "mooncake"],
)
def test_public_traces_are_read_with_their_own_columns(tmp_path, text, left_out):
    path = tmp_path / ("trace.jsonl" if text.startswith("{") else "trace.csv")
    path.write_text(text)
    trace = read_trace(path)
    assert trace.starts_s == pytest.approx([0.0, 2.0])
    assert (trace.isl, trace.osl, trace.left_out) == ([900, 30], [5, 7], left_out)
    assert read_trace(path, speed=2.0).starts_s == pytest.approx([0.0, 1.0])
    if "[4" in text:
        assert trace.segments == [[4, 9], [4]]
        assert trace.block == set(trace.sizes.values()).pop() == (16 if "chat_id" in text else 512)


def record(at_ns, *, ok=True):
    """A row of AIPerf's profile_export.jsonl."""
    lengths = {"input_sequence_length": {"value": 550}, "output_sequence_length": {"value": 9}}
    return {
        "metadata": {"request_start_ns": 1759813207532900363 + at_ns, "turn_index": 0},
        "metrics": lengths if ok else {"error_isl": {"value": 550}},
        "error": None if ok else {"code": 499},
    }


def test_records_of_a_benchmark_are_sorted_and_failures_left_out(tmp_path):
    path = tmp_path / "profile_export.jsonl"
    rows = [record(2 * 10**9), record(0), record(10**9, ok=False), record(3 * 10**9)]
    path.write_text("\n".join(map(json.dumps, rows)))
    trace = read_trace(path)
    assert trace.starts_s == pytest.approx([0.0, 2.0, 3.0])
    assert (trace.isl, trace.osl, trace.left_out) == ([550] * 3, [9] * 3, 1)
    path.write_text(json.dumps(record(0, ok=False)))
    with pytest.raises(InputError, match="has no requests; 1 failed"):
        read_trace(path)


TURNS = [
    {"session_id": "a", "timestamp": 0, "input_length": 1100, "output_length": 100},
    {"session_id": "a", "delay": 2000, "input_length": 50, "output_length": 100},
    {"session_id": "b", "timestamp": 1000, "input_length": 700, "output_length": 10},
    {"session_id": "a", "delay": 500, "input_length": 60, "output_length": 10},
]


def test_prompts_of_a_conversation_begin_with_what_was_said(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, TURNS)))
    trace = read_trace(tmp_path / "t.jsonl")
    assert (trace.isl, trace.osl) == ([1100, 700, 1250, 1410], [100, 10, 100, 10])
    assert (trace.after, trace.delays_s) == ([-1, -1, 0, 2], [0, 0, 2.0, 0.5])
    first, other, second, third = trace.segments
    assert (third[:4], second[:2]) == (second, first)
    assert [trace.sizes[segment] for segment in third] == [1100, 100, 50, 100, 60, 10]
    assert not set(third) & set(other)
    faster = trace.at_rate(2 * trace.rate)
    assert faster.starts_s == pytest.approx([0, 0.5, 2.0, 2.5]), "conversations begin sooner, pauses stay"
    turns = [
        {key: row[key] for key in row if key != "session_id"} for row in TURNS if row["session_id"] == "a"
    ]
    (tmp_path / "t.jsonl").write_text(json.dumps({"session_id": "a", "turns": turns}))
    assert read_trace(tmp_path / "t.jsonl").isl == [1100, 1250, 1410]


def test_a_turn_waits_for_the_answer_before_it(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, TURNS)))
    asked = read_trace(tmp_path / "t.jsonl")
    outcome = Simulation(
        [Engine(table(), PLAIN, 1e5, cache=PrefixCache(asked.sizes, asked.block))], asked
    ).run()
    for number, (before, delay) in enumerate(zip(asked.after, asked.delays_s, strict=True)):
        expected = outcome.done_s[before] + delay if before >= 0 else asked.starts_s[number]
        assert outcome.arrival_s[number] == pytest.approx(expected)
    assert outcome.cached.tolist() == [0, 0, 1200, 1350]


def test_times_in_another_unit_and_other_columns_are_refused(tmp_path):
    path, header = tmp_path / "trace.csv", "timestamp,input_length,output_length\n"
    for times, words in (
        ([1732800000, 1732800001, 1732800003], "is in seconds since 1970"),
        ([0.0, 0.5, 1.0, 1.5], "2,000 requests/s, unusual of a trace"),
        ([7, 7, 7], "all 3 requests have the timestamp 7"),
    ):
        path.write_text(header + "".join(f"{at},9,9\n" for at in times))
        with pytest.raises(InputError, match=words):
            read_trace(path)
    path.write_text("time,prompt,answer\n1,2,3\n")
    with pytest.raises(InputError, match=r"has 'time', .*ContextTokens.*Request tokens"):
        read_trace(path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"timestamp": 5, "input_length": 9, "output_length": 9}', "line 2: timestamp 5 is before 10"),
        ('{"timestamp": 20, "input_length": -9, "output_length": 9}', "line 2: input_length is -9"),
        ('{"timestamp": 20, "input_length": 9}', "line 2: output_length is missing"),
        ('{"timestamp": 20, "input_length": 9, "output_length": 0}', "line 2: output_length is 0"),
        ("[1, 2]", "line 2: expected an object"),
        ('{"timestamp": 20, "input_length": 9, "output_length": 9, "hash_ids": "x"}', "line 2: hash_ids"),
        ('{"session_id": "z", "delay": 5, "input_length": 9, "output_length": 9}', "timestamp is missing"),
        ('{"session_id": "a", "turns": [7]}', "turn 1: is 7; expected an object"),
    ],
)
def test_a_bad_trace_is_refused_with_its_place(tmp_path, line, words):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 10, "input_length": 9, "output_length": 9}\n' + line)
    with pytest.raises(InputError, match=words):
        read_trace(path)


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
            served = most_requests(pools, stream, limits, start, seeds=1)
        except InfeasibleError:
            continue
        assert served.requests_per_s < best.requests_per_s * (
            1 + 4 * RATE_TOLERANCE
        )  # tries differ in their streams
