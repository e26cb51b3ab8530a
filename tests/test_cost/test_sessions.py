"""Conversations and the caches of their prompts: known answers, and block by block simulations beside them."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import pytest

from cost.memory.budget import Ranks
from cost.money.kv_memory import KvMemory
from cost.queueing.cache import KvTier, PrefixCache, Shelf
from cost.queueing.engine import Engine
from cost.queueing.pools import kv_tiers
from cost.queueing.requests import Requests, segmented
from cost.queueing.schedulers import Scheduler
from cost.queueing.sessions import MadeSessions, sessions_of
from cost.queueing.simulation import Simulation
from cost.queueing.steps import StepTable
from cost.queueing.traces import read_trace
from rackplan.inputs import cluster_of, deployment_of
from rackplan.requests import SweepRequest
from topology.base.errors import InputError

PLAIN = Scheduler(mixes=True, tokens=10**6, sequences=64, reserved=0.0)
BLOCK = 16


def step(sequences, tokens, cached, context):
    """1 ms, and 1 us a prompt token."""
    seconds = 1e-3 + 1e-6 * tokens + 0 * sequences
    return np.stack([seconds, np.zeros_like(seconds)])


def engine(room, sizes, tiers=(), block=BLOCK):
    table = StepTable.of(step, groups=1, max_sequences=64, context=1000.0, decodes=True)
    shelves = [Shelf(tier.tokens) for tier in tiers]
    return Engine(table, PLAIN, room, cache=PrefixCache(sizes, block, tiers, shelves))


def one_by_one(blocks, room, tiers=()):
    """Requests that come alone, each an answer of one token, on one engine; tokens found, ``[requests, places]``."""
    segments, sizes, answers = segmented(
        blocks, [len(row) for row in blocks], dict.fromkeys((block for row in blocks for block in row), BLOCK)
    )
    isl = [BLOCK * len(row) for row in blocks]
    asked = Requests(
        [60.0 * number for number in range(len(isl))], isl, [1] * len(isl), [0] * len(isl),
        segments=segments, sizes=sizes, answers=answers, block=BLOCK,
    )  # fmt: skip
    return Simulation([engine(room, sizes, tiers)], asked).run()


def block_by_block(blocks, room):
    """The same, ``[requests]``, from blocks in one list by last use that holds ``room`` tokens."""
    kept: OrderedDict[int, None] = OrderedDict()
    found = []
    for row in blocks:
        hits = 0
        for block in row:
            if block not in kept:
                break
            hits += BLOCK
        found.append(min(hits, len(row) * BLOCK - 1))
        for block in row:
            kept.pop(block, None)
        while len(kept) * BLOCK > room - len(row) * BLOCK:
            kept.popitem(last=False)
        kept.update(dict.fromkeys(reversed(row)))
    return found


def trees(seed, number=150):
    """Prompts that begin like earlier ones and go on with blocks of their own."""
    random, rows, fresh = np.random.default_rng(seed), [[0, 1]], 2
    for _ in range(number):
        start = rows[random.integers(0, len(rows))]
        more = int(random.integers(0, 6))
        kept = random.integers(max(1, len(start) - 4), len(start) + 1)
        rows.append([*start[:kept], *range(fresh, fresh + more)][:60])
        fresh += more
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_hits_are_those_of_blocks_in_one_list_by_last_use_whatever_the_tiers(seed):
    blocks, room = trees(seed), BLOCK * 200
    expected = block_by_block(blocks, room)
    assert one_by_one(blocks, room).cached_in[:, 0].tolist() == expected
    split = [KvTier("host", BLOCK * 50, 0.0, 0.0), KvTier("ssd", BLOCK * 80, 0.0, 0.0)]
    parts = one_by_one(blocks, BLOCK * 70, split).cached_in
    assert parts.sum(axis=1).tolist() == expected
    assert (parts.sum(axis=0) > 0).all()


ROUND = [[session * 100 + block for block in range(10)] for session in range(8)]
"""Eight conversations of ten blocks, each of which comes again after the seven others."""


@pytest.mark.parametrize(
    ("tier_blocks", "hit"), [(0, 0.0), (75, 1.0), (35, 0.0)], ids=["nothing fits", "all fits", "half fits"]
)
def test_known_hits_of_conversations_in_turn(tier_blocks, hit):
    # what comes in turn is dropped just before it is wanted again, unless all of it fits: half is as good as nothing
    tiers = [KvTier("host", BLOCK * tier_blocks, 0.0, 0.0)] if tier_blocks else []
    outcome = one_by_one(ROUND * 3, BLOCK * 12, tiers)
    later = outcome.cached[len(ROUND) :].sum() / (outcome.isl[len(ROUND) :] - 1).sum()
    assert later == pytest.approx(hit)


def test_half_of_the_conversations_fit_where_half_of_them_come_again():
    # four come again at once, four only after the cache has dropped them
    often, seldom = ROUND[:4], ROUND[4:]
    blocks = [
        *often,
        *often,
        *seldom,
        *[[1000 + n for n in range(k * 90, k * 90 + 90)] for k in range(1)],
        *seldom,
    ]
    outcome = one_by_one(blocks, BLOCK * 95)
    assert outcome.cached[:4].sum() == 0
    assert outcome.cached[4:8].tolist() == [BLOCK * 10 - 1] * 4
    assert outcome.cached[-4:].sum() == 0


def test_loads_take_the_time_of_their_links_one_after_another():
    slow = KvTier("host", 1e6, 1e-3, 0.05)  # 1 ms a token and 50 ms before the first
    sizes = {1: 160, 2: 160, 3: 320}
    asked = Requests(
        [0.0, 50.0, 100.0, 200.0, 200.0], [160, 160, 320, 160, 160], [1] * 5, [0] * 5,
        segments=[(1,), (2,), (3,), (1,), (2,)], sizes=sizes, answers=[0] * 5, block=BLOCK,
    )  # fmt: skip
    outcome = Simulation([engine(330.0, sizes, [slow])], asked).run()
    assert outcome.cached_in.tolist() == [[0, 0], [0, 0], [0, 0], [0, 159], [0, 159]]
    taken = (outcome.first_s - outcome.arrival_s)[3:]
    assert taken == pytest.approx([0.159 + 0.05, 0.159 + 0.159 + 0.05], abs=2.5e-3)


def test_prompts_that_run_together_hold_what_they_share_once():
    sizes = {1: 800, 2: 80, 3: 80}
    asked = Requests(
        [0.0, 1.0, 1.0], [800, 880, 880], [400, 400, 400], [0] * 3,
        segments=[(1,), (1, 2), (1, 3)], sizes=sizes, answers=[0] * 3, block=BLOCK,
    )  # fmt: skip
    outcome = Simulation([engine(800 + 3 * 480, sizes)], asked).run()
    assert outcome.cached.tolist() == [0, 800, 800]
    assert outcome.cache_wait_s == 0
    assert not outcome.preempted
    kept = engine(5_000.0, sizes)
    Simulation([kept], asked).run()
    assert (kept.used, kept.cache.users) == (0, {})
    assert kept.cache.hbm.tokens == 800 + 80 + 80


MADE = MadeSessions(turns=5, isl=1000, osl=100, new=200, system=500, think_s=30.0, tool_s=2.0, tools=1)


def test_made_conversations_grow_by_what_is_said():
    assert MADE.prompts == [1500, 1800, 2100, 2400, 2700]
    assert MadeSessions(turns=3, isl=900, osl=100, new=0.5).prompts == [900, 2000, 4200]
    asked = MADE.at(2.0, 5.0, seed=3)
    assert asked.rate == pytest.approx(2.0, rel=0.06)
    for number, before in enumerate(asked.after):
        if before >= 0:
            assert asked.segments[number][: len(asked.segments[before])] == asked.segments[before]
            assert asked.isl[number] == asked.isl[before] + 100 + 200
    pauses = [delay for delay, before in zip(asked.delays_s, asked.after, strict=True) if before >= 0]
    assert np.mean(pauses) == pytest.approx(MADE.pause_s, rel=0.1) == pytest.approx(16.0, rel=0.1)
    assert MADE.lengths.prefix_hit == pytest.approx(1 - (1000 + 4 * 200) / sum(MADE.prompts), abs=0.01)


def test_closed_turns_wait_for_answers_and_open_ones_do_not():
    closed = sessions_of("turns=4,isl=100,osl=1000,new=10,think=1s")
    opened = sessions_of("turns=4,isl=100,osl=1000,new=10,think=1s,open")
    for sessions, least in ((closed, 1.0), (opened, 0.0)):
        asked = sessions.at(1.0, 2.0, arrivals="constant", sessions=5)
        outcome = Simulation([engine(1e6, asked.sizes)], asked).run()
        gaps = [
            outcome.arrival_s[number] - outcome.done_s[before]
            for number, before in enumerate(closed.at(1.0, 2.0, arrivals="constant", sessions=5).after)
            if before >= 0
        ]
        assert min(gaps) == pytest.approx(1.0) if least else min(gaps) < 1.0
    users = closed.of_users(7, arrivals="constant")
    outcome = Simulation([engine(1e6, users.sizes)], users).run()
    events = sorted([(at, 1) for at in outcome.arrival_s] + [(at, -1) for at in outcome.done_s])
    assert max(np.cumsum([step for _, step in events])) <= 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("turns=8,isl=4k", "osl is missing"),
        ("turns=0,isl=4k,osl=9", "expected 1 or more"),
        ("turns=2,isl=4k,osl=9,new=1,think=-3", "expected 0 seconds or more"),
        ("turns=8,isl=4k,osl=1", "new is missing"),
        ("turns=8,isl=4k,osl=9,new=120%", "a share of the prompt"),
        ("turns=8,isl=4k,osl=9,new=5,pause=3", "'pause' is none"),
        ("turns=2,turns=3", "there twice"),
        ("turns=8,isl=4k,osl=9,new=5,open=1", "takes no value"),
        ("turns=900,isl=4k,osl=9,new=90%", "the most that are simulated"),
        ("nothing.jsonl", "nothing.jsonl"),
    ],
)
def test_what_is_no_conversation_is_refused(text, words):
    with pytest.raises(InputError, match=words):
        sessions_of(text)


AGENT = {
    "id": "a", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
    "requests": [
        {"t": 0.0, "type": "s", "model": "m", "in": 130, "out": 30, "hash_ids": [1, 2, 3], "api_time": 4.0},
        {"t": 5.0, "type": "subagent", "agent_id": "b", "requests": [
            {"t": 5.5, "type": "n", "model": "m", "in": 64, "out": 10, "hash_ids": [9], "api_time": 1.0},
            {"t": 7.0, "type": "n", "model": "m", "in": 128, "out": 10, "hash_ids": [9, 10], "api_time": 1.0},
        ]},
        {"t": 10.0, "type": "s", "model": "m", "in": 256, "out": 20, "hash_ids": [1, 2, 4, 5], "api_time": 2.0},
    ],
}  # fmt: skip


def test_conversations_of_agents_are_read_with_those_that_they_start(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(AGENT, indent=1))
    (tmp_path / "two.json").write_text(json.dumps(AGENT))
    trace = read_trace(tmp_path / "one.json", timed=False)
    assert (trace.isl, trace.osl) == ([130, 64, 128, 256], [30, 10, 10, 20])
    assert (trace.after, trace.delays_s) == ([-1, 0, 1, 0], [0.0, 1.5, 0.5, 6.0])
    assert [trace.sizes[segment] for segment in trace.segments[3]] == [128, 128]
    assert trace.segments[0][0] == trace.segments[3][0] != trace.segments[1][0]
    both = sessions_of(str(tmp_path))
    assert len(both.requests) == 8
    names = [set(segments) for segments in both.requests.segments]
    assert not names[0] & names[1], "numbers of blocks are of their own file"
    rate = both.at(2.0, 1.0, arrivals="constant")
    assert [at for at, before in zip(rate.starts_s, rate.after, strict=True) if before < 0] == [2.0, 4.0]


def test_tiers_are_as_large_and_fast_as_their_links_counted_by_hand():
    token = 2 * 80 * 8 * 128 * 2  # keys and values of 80 layers, 8 heads of 128, BF16
    for cluster, memory, (tp, stages), gpus, size, rate in (
        ("hgx-h100", {"host": 1e12}, (8, 1), 8, 1e12, 8 * 63e9),
        ("hgx-h100", {"host": 1e12}, (2, 2), 4, 0.5e12, 4 * 63e9),
        ("gb200-nvl72", {"host": 1e12}, (4, 1), 4, 1e12, 4 * 225e9),
        ("hgx-h100", {"ssd": 2 * 15.36e12}, (8, 1), 8, 2 * 15.36e12, 2 * 13e9),
        ("hgx-h100@64", {"pool": 1e16}, (8, 1), 8, 1e16, 8 * 0.475 * 50e9),
    ):
        deployment = deployment_of(
            SweepRequest("llama-3.1-70b", cluster), "llama-3.1-70b", cluster_of(cluster)
        )
        tier = kv_tiers(
            deployment, KvMemory(memory), Ranks(tp, 1, gpus // tp // stages, stages), gpus, 4096.0
        )[0]
        assert tier.tokens * token == pytest.approx(size)
        assert token / tier.seconds_per_token == pytest.approx(rate)
