"""Engines under load: prefixes, preemption, transfers, routers, tables, traces and what is refused."""

import json

import numpy as np
import pytest

from cost.queueing.engine import DECODE, PREFILL, Engine
from cost.queueing.load import LoadLimits, UnderLoad, in_engines, most_requests, stream_of, under_load
from cost.queueing.pools import EnginePool, EnginePools
from cost.queueing.requests import Requests, made_requests
from cost.queueing.schedulers import SCHEDULERS, Scheduler
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
    found = table()
    for sequences in (1.0, 3.0, 40.0):
        for context in (500.0, 4000.0):
            expected = step(np.array([sequences]), np.zeros(1), 0.0, context)[0, 0]
            assert found.decode(sequences, context) == pytest.approx(expected)
    for tokens in PRICED_TOKENS:
        for cached in (0.0, CACHED_TOKENS / 2, 2 * CACHED_TOKENS):
            whole = step(np.zeros(1), np.array([tokens]), cached, 1000.0)[0, 0]
            assert found.prompts(tokens, tokens + 2 * cached, tokens, 0) == pytest.approx(whole)
            beside = whole - 0.002  # the step is there already
            assert found.prompts(tokens, tokens + 2 * cached, tokens, 64) == pytest.approx(beside)


def test_experts_compute_the_tokens_of_all_groups():
    found = table(groups=4)
    one, all_four = found.prompts(2048, 2048, 512, 0), found.prompts(2048, 2048, 2048, 0)
    assert all_four - one == pytest.approx(5e-5 * (2048 - 512))


def served(asked, *engines, **more):
    return Simulation(engines, asked, **more).run()


def test_equal_blocks_at_the_start_are_computed_once():
    blocks = [(1, 2, 3), (1, 2, 4), (1, 5, 3), (1, 2, 4)]
    asked = Requests([0.0, 9.0, 18.0, 27.0], [1500] * 4, [4] * 4, [0] * 4, blocks=blocks)
    found = served(asked, Engine(table(), PLAIN, 1e6, block=512))
    assert found.cached.tolist() == [0, 1024, 512, 1499]
    assert np.argsort(found.first_s - found.arrival_s).tolist() == [3, 1, 2, 0]


def test_a_full_cache_drops_the_oldest_blocks():
    blocks = [(n,) for n in (1, 2, 3, 1, 3)]
    asked = Requests([9.0 * n for n in range(5)], [512] * 5, [2] * 5, [0] * 5, blocks=blocks)
    found = served(asked, Engine(table(), PLAIN, 1100.0, block=512))
    assert found.cached.tolist() == [0, 0, 0, 0, 511]


def test_a_router_of_prefixes_finds_the_engine_that_has_one():
    blocks = [(1, 2), (7, 8), (1, 2), (7, 8), (7, 8), (1, 2)]
    asked = Requests([9.0 * n for n in range(6)], [1024] * 6, [2] * 6, [0] * 6, blocks=blocks)
    hits = {
        router: served(asked, *(Engine(table(), PLAIN, 3000.0, block=512) for _ in range(2)), router=router)
        .cached.astype(bool)
        .sum()
        for router in ("prefix", "round")
    }
    assert hits == {"prefix": 4, "round": 2}


def test_what_finds_no_room_is_computed_again():
    asked = Requests([0.0] * 3, [300] * 3, [200] * 3, [0] * 3, 3)
    engine = Engine(table(), PLAIN, 1100.0)
    found = served(asked, engine)
    assert found.preempted
    assert found.cache_wait_s > 0
    alone = served(asked, Engine(table(), PLAIN, 1e6))
    assert found.done_s.max() > alone.done_s.max()
    careful = Scheduler(mixes=True, tokens=2048, sequences=64, reserved=1.0)
    assert not served(asked, Engine(table(), careful, 1100.0)).preempted


def two_pools(bytes_per_s, users, senders=1, room=1e6):
    links = Transfers(0.01, bytes_per_s, lambda tokens: 1e6 * tokens)
    first = [Engine(table(decodes=False), PLAIN, np.inf, PREFILL, gpus=2) for _ in range(senders)]
    asked = Requests([0.0] * users, [512] * users, [3] * users, [0] * users, users)
    return Simulation(first, asked, [Engine(table(), PLAIN, room, DECODE)], links).run()


def test_a_cache_takes_the_narrower_side_of_its_links():
    found = two_pools(1e9, 1)
    assert (found.done_s - found.first_s)[0] == pytest.approx(
        0.01 + 0.512 + 2 * (0.002 + 1e-3 * (1 + 513.5 / 1e4))
    )
    assert found.waits_s["transfer"] == pytest.approx(0, abs=1e-9)


def test_caches_that_arrive_at_one_engine_share_its_links():
    found = two_pools(1e9, 2, senders=2)  # both prefill at once, each sends at half of the rate
    assert found.waits_s["transfer"] == pytest.approx(0.512)
    crowded = two_pools(1e9, 2, senders=2, room=1027.0)  # one of them starts again
    assert crowded.preempted
    assert crowded.done_s.max() > found.done_s.max()


@pytest.mark.parametrize("engine", [*SCHEDULERS])
def test_prompts_delay_others_unless_they_go_first(engine):
    scheduler = SCHEDULERS[engine]
    asked = Requests([0.0, 0.05], [100, 6000], [400, 1], [0, 0])
    found = served(asked, Engine(table(), scheduler, 1e6))
    stall = (found.done_s - found.first_s)[0] - 399 * (0.002 + 1e-3 * (1 + 300 / 1e4))
    assert stall == pytest.approx(0.5, abs=0.3)  # one step of 6,000 tokens


def pools(workers):
    return EnginePools((EnginePool("both", table(), PLAIN, workers, 8, 1e6),), None, 0.0)


def test_the_most_requests_are_just_within_the_limits():
    lengths, limits = Lengths.of(500, 20), LoadLimits(0.5, 0.02)

    def make(rate, seed):
        return made_requests(lengths, 1500, requests_per_s=rate, seed=seed)

    one, two = (most_requests(pools(count), make, limits, near) for count, near in ((1, 30.0), (2, 3.0)))
    assert one.low <= one.requests_per_s <= one.high
    assert 1.8 * one.requests_per_s < two.requests_per_s < 4 * one.requests_per_s
    at, beyond = (
        UnderLoad(pools(1).simulate(make(rate, 0)), limits, np.ones(1500, dtype=bool))
        for rate in (0.8 * one.low, 1.3 * one.high)
    )
    assert at.keeps
    assert not beyond.keeps
    assert at.goodput_per_s == pytest.approx(0.8 * one.low, rel=0.1)


@pytest.mark.parametrize("rate", [4.0, 20.0])
def test_streams_start_with_engines_as_full_as_they_stay(rate):
    def light(sequences, tokens, cached, context):
        return np.stack(
            [0.002 + 2e-5 * sequences + 5e-5 * tokens, 0.0 * tokens]
        )  # prompts take most of the time

    eight = StepTable.of(light, groups=8, max_sequences=256, context=1000.0)
    seats = Scheduler(mixes=True, tokens=2048, sequences=256, reserved=0.0)
    one = EnginePools((EnginePool("both", eight, seats, 1, 8, 1e8),), None, 0.0)
    lengths = Lengths.of(1000, 2000)
    found = under_load(one, stream_of(one, lengths)(rate, 0), LoadLimits(None, None))
    assert in_engines(one, lengths, rate) == pytest.approx(rate * found.e2e_s.mean(), rel=0.1)
    assert found.requests_per_s == pytest.approx(rate, rel=0.05)


def test_a_limit_that_single_requests_miss_is_named():
    with pytest.raises(InfeasibleError, match=r"no rate meets 5 ms to the first token .* take 5"):
        most_requests(
            pools(1),
            lambda rate, seed: made_requests(Lengths.of(500, 20), 200, requests_per_s=rate, seed=seed),
            LoadLimits(0.005, None),
            1.0,
        )


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


def test_traces_of_json_lines_and_of_csv_are_alike(tmp_path):
    rows = [
        {"timestamp": 1000, "input_length": 900, "output_length": 5, "hash_ids": [4, 9]},
        {"timestamp": 3000, "input_length": 30, "output_length": 7, "hash_ids": [4]},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.csv").write_text(
        'timestamp,input_length,output_length,hash_ids\n1000,900,5,"[4, 9]"\n3000,30,7,[4]\n'
    )
    for name in ("a.jsonl", "a.csv"):
        found = read_trace(tmp_path / name, speed=2.0)
        assert found.starts_s == [0.0, 1.0]
        assert (found.isl, found.osl) == ([900, 30], [5, 7])
        assert [list(one) for one in found.blocks] == [[4, 9], [4]]


@pytest.mark.parametrize(
    "text",
    [
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2025-01-01 10:00:00.1+00:00,900,5\n"
            "2025-01-01 10:00:02.100000+00:00,30,7\n"
        ),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,900,5\n"
            "2023-11-16 18:17:05.9799600,30,7\n"
        ),
        (
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            "5.0,ChatGPT,900,5,905,Conversation log\n7.0,GPT-4,30,7,37,API log\n"
        ),
    ],
    ids=["azure 2024", "azure 2023", "burstgpt"],
)
def test_public_traces_are_read_with_their_own_columns(tmp_path, text):
    (tmp_path / "trace.csv").write_text(text)
    found = read_trace(tmp_path / "trace.csv")
    assert found.starts_s == pytest.approx([0.0, 2.0])
    assert (found.isl, found.osl) == ([900, 30], [5, 7])


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
    found = read_trace(path)
    assert found.starts_s == pytest.approx([0.0, 2.0, 3.0])
    assert (found.isl, found.osl, found.left_out) == ([550] * 3, [9] * 3, 1)
    path.write_text(json.dumps(record(0, ok=False)))
    with pytest.raises(InputError, match="has no requests; 1 failed"):
        read_trace(path)


def test_failed_requests_of_burstgpt_are_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("Timestamp,Request tokens,Response tokens\n5,9,7\n6,9,0\n7,9,7\n")
    found = read_trace(tmp_path / "t.csv")
    assert (len(found), found.left_out) == (2, 1)


def test_seconds_and_short_blocks_of_bailian(tmp_path):
    rows = [{"chat_id": 1, "timestamp": 61.5, "input_length": 521, "output_length": 9, "hash_ids": [7, 8]}]
    rows.append({**rows[0], "chat_id": 2, "parent_chat_id": 1, "timestamp": 63.0})
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_trace(tmp_path / "t.jsonl")
    assert (found.starts_s, found.block) == ([0.0, 1.5], 16)
    assert found.lengths.prefix_hit == pytest.approx(32 / (2 * 521))


TURNS = [
    {"session_id": "a", "timestamp": 0, "input_length": 1100, "output_length": 100},
    {"session_id": "a", "delay": 2000, "input_length": 50, "output_length": 100},
    {"session_id": "b", "timestamp": 1000, "input_length": 700, "output_length": 10},
    {"session_id": "a", "delay": 500, "input_length": 60, "output_length": 10},
]


def test_prompts_of_a_conversation_begin_with_what_was_said(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, TURNS)))
    found = read_trace(tmp_path / "t.jsonl")
    assert (found.isl, found.osl) == ([1100, 700, 1250, 1410], [100, 10, 100, 10])
    assert (found.after, found.delays_s) == ([-1, -1, 0, 2], [0, 0, 2.0, 0.5])
    first, other, second, third = found.blocks
    assert second == third == first
    assert len(first) == 2
    assert not set(first) & set(other)
    assert found.at_rate(2 * found.rate).delays_s == pytest.approx([0, 0, 1.0, 0.25])
    turns = [
        {key: row[key] for key in row if key != "session_id"} for row in TURNS if row["session_id"] == "a"
    ]
    (tmp_path / "t.jsonl").write_text(json.dumps({"session_id": "a", "turns": turns}))
    assert read_trace(tmp_path / "t.jsonl").isl == [1100, 1250, 1410]


def test_a_turn_waits_for_the_answer_before_it(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, TURNS)))
    asked = read_trace(tmp_path / "t.jsonl")
    outcome = Simulation([Engine(table(), PLAIN, 100_000.0, block=asked.block)], asked).run()
    for number, (before, delay) in enumerate(zip(asked.after, asked.delays_s, strict=True)):
        expected = outcome.done_s[before] + delay if before >= 0 else asked.starts_s[number]
        assert outcome.arrival_s[number] == pytest.approx(expected)
    assert outcome.cached.tolist() == [0, 0, 1024, 1024]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"session_id": "z", "delay": 5, "input_length": 9, "output_length": 9}, "timestamp is missing"),
        ({"session_id": "a", "delay": -5, "input_length": 9, "output_length": 9}, "delay is -5"),
        ({"session_id": "a", "input_length": 10**9, "output_length": 9}, "has grown to 1,000,001,420 tokens"),
        ({"session_id": "a", "turns": [7]}, "turn 1: is 7; expected an object"),
        ({"timestamp": 10**400, "input_length": 9, "output_length": 9}, "timestamp is 1000"),
    ],
)
def test_turns_that_cannot_be_are_refused_with_their_place(tmp_path, row, says):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, [*TURNS, row])))
    with pytest.raises(InputError, match=f"line 5.*{says}"):
        read_trace(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([1732800000, 1732800001, 1732800003], "is in seconds since 1970, and such a trace has milliseconds"),
        ([1732800000000000, 1732800000400000], "is in microseconds since 1970"),
        ([0.0, 0.5, 1.0, 1.5], "2,000 requests/s, unusual of a trace; the timestamp must be in milliseconds"),
        ([7, 7, 7], "all 3 requests have the timestamp 7"),
    ],
)
def test_times_in_another_unit_are_refused(tmp_path, times, says):
    rows = "".join(f"{at},9,9\n" for at in times)
    (tmp_path / "trace.csv").write_text("timestamp,input_length,output_length\n" + rows)
    with pytest.raises(InputError, match=says):
        read_trace(tmp_path / "trace.csv")


def test_milliseconds_since_1970_are_milliseconds(tmp_path):
    (tmp_path / "trace.csv").write_text(
        "timestamp,input_length,output_length\n1732800000000,9,9\n1732800001000,9,9\n"
    )
    assert read_trace(tmp_path / "trace.csv").starts_s == [0.0, 1.0]


def test_a_trace_of_other_columns_is_refused_with_those_that_are_read(tmp_path):
    (tmp_path / "trace.csv").write_text("time,prompt,answer\n1,2,3\n")
    with pytest.raises(InputError, match=r"has 'time', .*ContextTokens.*Request tokens"):
        read_trace(tmp_path / "trace.csv")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"timestamp": 5, "input_length": 9, "output_length": 9}', "line 2: timestamp 5 is before 10"),
        ('{"timestamp": 20, "input_length": -9, "output_length": 9}', "line 2: input_length is -9"),
        ('{"timestamp": 20, "input_length": 9}', "line 2: output_length is missing"),
        ('{"timestamp": NaN, "input_length": 9, "output_length": 9}', "line 2"),
        ('{"timestamp": 20, "input_length": 9, "output_length": 0}', "line 2: output_length is 0"),
        ('{"timestamp": 20, "input_length": 9, "output_length": 9, "hash_ids": "x"}', "line 2: hash_ids"),
        ("[1, 2]", "line 2: expected an object"),
        ("{", "line 2"),
    ],
)
def test_a_bad_trace_is_refused_with_its_place(tmp_path, line, says):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 10, "input_length": 9, "output_length": 9}\n' + line)
    with pytest.raises(InputError, match=says):
        read_trace(path)


def test_a_request_that_fits_no_cache_is_refused():
    with pytest.raises(InputError, match="a request of 1,100 tokens does not fit the KV cache"):
        served(Requests([0.0], [1000], [100], [0]), Engine(table(), PLAIN, 1024.0))
