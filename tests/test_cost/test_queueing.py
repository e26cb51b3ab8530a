"""Engines under load: prefixes, preemption, transfers, routers, tables, traces and what is refused."""

import json

import numpy as np
import pytest

from cost.queueing.engine import DECODE, PREFILL, Engine
from cost.queueing.load import LoadLimits, UnderLoad, in_engines, most_requests, stream_of, under_load
from cost.queueing.pools import EnginePool, EnginePools
from cost.queueing.requests import Requests, made_requests, read_trace
from cost.queueing.schedulers import SCHEDULERS, Scheduler
from cost.queueing.simulation import Simulation, Transfers
from cost.queueing.steps import CACHED, TOKENS, StepTable
from cost.serving.lengths import Lengths
from topology.base.errors import InfeasibleError, InputError

PLAIN = Scheduler(mixes=True, tokens=2048, sequences=64, reserved=0.0)


def step(sequences, tokens, cached, context):
    """2 ms, 1 ms a sequence, 0.1 ms a prompt token and what it attends to, half of it of experts."""
    own = 0.002 + 1e-3 * sequences * (1 + context / 1e4) + 5e-5 * tokens * (1 + (tokens + 2 * cached) / 1e4)
    experts = 5e-5 * tokens
    return np.stack([own + experts, experts])


def table(groups=1, decodes=True):
    return StepTable.of(step, groups=groups, most=64, context=1000.0, decodes=decodes)


def test_a_table_reads_what_was_priced():
    found = table()
    for sequences in (1.0, 3.0, 40.0):
        for context in (500.0, 4000.0):
            expected = step(np.array([sequences]), np.zeros(1), 0.0, context)[0, 0]
            assert found.decode(sequences, context) == pytest.approx(expected)
    for tokens in TOKENS:
        for cached in (0.0, CACHED / 2, 2 * CACHED):
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

    eight = StepTable.of(light, groups=8, most=256, context=1000.0)
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
