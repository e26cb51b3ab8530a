"""The part of prompts that caches hold when conversations are served as fast as the GPUs can."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost.memory.budget import Ranks
from cost.money.kv_memory import KvMemory
from cost.principles.tiers import HOST
from cost.queueing.cache import PrefixCache, Shelf
from cost.queueing.engine import BOTH, DECODE, PREFILL, Engine
from cost.queueing.pools import kv_tiers
from cost.queueing.requests import Requests
from cost.queueing.schedulers import Scheduler
from cost.queueing.sessions import MadeSessions, Sessions
from cost.queueing.simulation import LOADING, Outcome, Simulation
from cost.queueing.steps import StepTable
from cost.serving.keeping import Keeping
from cost.serving.lengths import Lengths
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving

Array = NDArray[np.float64]

HIT_STEPS = 10
"""Parts of the hits of a cache that forgets nothing at which loads are priced first."""
HIT_MARGIN = 0.02
"""Part of the prompts by which a replay may find fewer than were priced."""
MAX_ROUNDS = 3
"""Replays that correct what caches keep."""
GOING_ON = 200
"""Conversations going on at a time in replays that say what caches keep: so many that single ones do not count."""
ROOM_PARTS = (0.15, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1, 1.3, 1.8, 3.0)
"""Room of these caches over that of all conversations going on."""
UNLIMITED = Scheduler(mixes=True, tokens=10**12, sequences=10**12, reserved=0.0)
"""How an engine admits requests whose times are given."""
UNLIMITED_TOKENS = 1e15
"""Room of engines whose caches nobody asks about."""
HOST_BYTES = (0.0, 0.25e12, 0.5e12, 1e12, 2e12, 4e12)
"""Memory of a host that is tried: none to 4 TB, as two sockets of 32 modules of 128 GB hold."""
DRIVES = (1, 2, 4, 8)
"""Drives of a host that are tried."""


@dataclass(frozen=True)
class CachePoint:
    """What conversations cost with some memory for their caches.

    Attributes
    ----------
    lengths:
        With the hits that it reaches.
    requests_per_s:
        What the cluster serves.
    usd_per_million:
        USD for a million output tokens at that rate, the memory's too; None: no price, or loads exceed the limit on
        the first token.
    """

    memory: KvMemory
    lengths: Lengths
    requests_per_s: float
    usd_per_million: float | None


@dataclass(frozen=True, eq=False)
class Conversations:
    """Conversations on a cluster, served by requests of mean lengths as fast as its GPUs can.

    Attributes
    ----------
    served:
        Sweeps of requests of such lengths, limits on the first token included.
    tpot_s:
        Longest time per output token; None: no limit.
    cv:
        Spread of lengths.
    """

    sessions: Sessions
    served: Callable[[Lengths], Serving]
    tpot_s: float | None
    cv: float = 0.0
    _known: dict[float, Serving] = field(default_factory=dict)
    _settled: dict[KvMemory, Lengths] = field(default_factory=dict)

    def at(self, hit: float) -> Serving:
        """Return the ways of serving requests of mean lengths with so much of the prompts cached."""
        hit = round(hit, 6)
        if hit not in self._known:
            self._known[hit] = self.served(replace(self.sessions.lengths.alike, prefix_hit=hit))
        return self._known[hit]

    def best(self, hit: float, keeping: Keeping) -> RateMatch | None:
        """Return the way that serves most of those whose caches hold so much; None where none does."""
        serving = self.at(hit)
        for tpot_s in dict.fromkeys((self.tpot_s, None)):
            kept = [serving.kept(matches, keeping).best() for matches in serving.ways(tpot_s).values()]
            able = [match for match in kept if match is not None]
            if able:
                return max(able, key=lambda match: match.requests_per_s)
        return None

    @cached_property
    def keeping(self) -> Keeping:
        """What caches keep by their room for each conversation: replays by last use with many of them going on."""
        best = self.at(0.0).best(self.tpot_s) or self.at(0.0).best()
        lengths, pause_s = self.sessions.lengths, self.sessions.pause_s
        stay_s = best.ttft_s + best.osl / best.tok_s_per_user if best else 0.0
        at_once = GOING_ON if isinstance(self.sessions, MadeSessions) else self.sessions.at_once
        rate = at_once / (pause_s + stay_s) if pause_s + stay_s else 1.0
        requests = self.sessions.at(rate, stay_s, cv=self.cv)
        waits = any(before >= 0 for before in requests.after)
        longest = max(map(sum, zip(requests.isl, requests.osl, strict=True)))
        context = lengths.mean_isl + lengths.mean_osl
        unit = at_once * context if waits else float(sum(requests.sizes.values()))
        rooms = [max(unit * part, longest) for part in ROOM_PARTS]
        hits = [self._hits(requests, room, stay_s / (1 + lengths.mean_osl)) for room in rooms]
        tokens = np.array(rooms) / (at_once if waits else 1.0)
        return Keeping(tokens, np.maximum.accumulate(hits), pause_s if waits else None, KvMemory())

    def _hits(self, requests: Requests, room: float, step_s: float) -> float:
        cache = PrefixCache(requests.sizes, requests.block)
        outcome = Simulation([_timed(BOTH, room, step_s, cache)], requests).run()
        return sum(_tier_hits(outcome, requests))

    def settled(self, memory: KvMemory) -> Lengths:
        """Return the lengths of conversations with the hits at which the cluster serves most of them.

        A way of serving counts at a hit rate that its caches hold with as many conversations as it then serves: more
        hits let GPUs serve more of them, which share the caches. Of all rates the one is taken at which most requests
        are served; a replay there says what is found where, and corrects what caches were thought to keep.
        """
        if memory not in self._settled:
            self._settled[memory] = self._settle(memory)
        return self._settled[memory]

    def _settle(self, memory: KvMemory) -> Lengths:
        whole, keeping = self.sessions.lengths, replace(self.keeping, memory=memory)
        for _ in range(MAX_ROUNDS):
            hit = self._best_hit(keeping)
            best = self.best(hit, keeping)
            if best is None or not hit:
                return replace(whole, prefix_hit=0.0)
            reached = self.replay(self.at(hit), best, memory)
            if reached.prefix_hit >= hit - HIT_MARGIN:
                break
            keeping = keeping.measured(hit, reached.prefix_hit)
        return replace(reached, prefix_hit=min(hit, reached.prefix_hit), keeping=keeping)

    def _best_hit(self, keeping: Keeping) -> float:
        """Return the hits at which most requests are served: tried in steps, then finer beside the best."""
        whole = self.sessions.lengths.prefix_hit

        def rate(hit: float) -> float:
            best = self.best(hit, keeping)
            return 0.0 if best is None else best.requests_per_s

        hits = [whole * step / HIT_STEPS for step in range(HIT_STEPS + 1)]
        best = max(hits, key=rate)
        step = whole / HIT_STEPS
        for part in (0.5, 0.25):
            near = (best - part * step, best, best + part * step)
            best = max((hit for hit in near if 0 <= hit <= whole), key=rate)
        return best

    def replay(self, serving: Serving, row: RateMatch, memory: KvMemory) -> Lengths:
        """Return the lengths with what the cache of an engine holds of them where a match serves at its rate.

        One engine, to which its conversations stay, takes the match's own times; nothing queues.
        """
        role, swept, at, workers = serving.sides(row)[0]
        step_s = 1 / row.tok_s_per_user
        ranks = Ranks(*(int(getattr(swept, name)[at]) for name in Ranks._fields))
        gpus, context = int(swept.gpus[at]), serving.lengths.context
        tiers = kv_tiers(swept.deployment, memory, ranks, gpus, context)
        requests = self.sessions.at(row.requests_per_s / workers, row.ttft_s + row.osl * step_s, cv=self.cv)

        cache = PrefixCache(requests.sizes, requests.block, tiers, [Shelf(tier.tokens) for tier in tiers])
        room = swept.cache(at).tokens
        if role == BOTH:
            outcome = Simulation([_timed(BOTH, room, step_s, cache)], requests).run()
        else:
            decodes = _timed(DECODE, UNLIMITED_TOKENS, step_s, None)
            outcome = Simulation([_timed(PREFILL, room, row.prefill_s, cache)], requests, [decodes]).run()
        shares = _tier_hits(outcome, requests)
        names = ["hbm", *(tier.name for tier in tiers)]
        return replace(
            self.sessions.lengths,
            prefix_hit=sum(shares),
            tier_hits=tuple(zip(names, [*shares, *[0.0] * len(names)], strict=False)),
            load_s=float(outcome.waits_s[LOADING]),
        )

    def point(self, memory: KvMemory) -> CachePoint:
        """Return what they cost with some memory."""
        lengths = self.settled(memory)
        hit = min(self._known, key=lambda known: abs(known - lengths.prefix_hit))
        serving, keeping = self.at(hit), lengths.keeping or replace(self.keeping, memory=memory)
        best = self.best(hit, keeping)
        if best is None:
            return CachePoint(memory, lengths, 0.0, None)
        deployment, usd = serving.decode.deployment, None
        if serving.ttft_s is None or best.ttft_s + lengths.load_s <= serving.ttft_s:
            bill = replace(deployment.prices, memory=memory).bill(deployment.cluster)
            usd = bill.usd_per_million(best.requests_per_s * best.osl)
        return CachePoint(memory, lengths, best.requests_per_s, usd)

    def points(self, memory: KvMemory) -> list[CachePoint]:
        """Return what they cost without tiers and with ever more memory and drives, up to where more costs more.

        Memory alone first, then drives beside the cheapest of these and alone. ``memory``: whose figures count.
        """
        domain = self.at(0.0).decode.deployment.cluster.spec.domains[0]
        drive = memory.device(domain.gpu, "ssd").capacity_bytes.value

        def ladder(sizes: Iterable[dict[str, float]]) -> list[CachePoint]:
            rungs: list[CachePoint] = []
            for size in sizes:
                present = {place: amount for place, amount in size.items() if amount}
                rungs.append(self.point(replace(memory, sizes=present)))
                if len(rungs) > 1 and _usd(rungs[-1]) > _usd(rungs[-2]):
                    break
            return rungs

        points = ladder({HOST: size} for size in HOST_BYTES)
        best = cheapest(points).memory.sizes.get(HOST, 0.0)
        for host in sorted({0.0, best}):
            points += ladder({HOST: host, "ssd": count * drive} for count in DRIVES)
        return points


def _timed(role: str, room: float, step_s: float, cache: PrefixCache | None) -> Engine:
    """Return an engine each of whose steps takes so long, whatever is in it."""

    def steps(sequences: Array, *_: object) -> Array:
        return np.stack([np.full_like(sequences, step_s), np.zeros_like(sequences)])

    table = StepTable.of(steps, groups=1, max_sequences=2.0, context=1.0, decodes=role != PREFILL)
    return Engine(table, UNLIMITED, room, role, cache=cache)


def _tier_hits(outcome: Outcome, requests: Requests) -> list[float]:
    """Return the parts of the prompts that count which were found in HBM and in each tier."""
    return outcome.tier_hits(slice(requests.warm, len(requests) - requests.tail))


def cheapest(points: Sequence[CachePoint]) -> CachePoint:
    """Return the point of least cost, of equal ones that with least memory."""
    return min(points, key=lambda point: (_usd(point), sum(point.memory.sizes.values())))


def _usd(point: CachePoint) -> float:
    return math.inf if point.usd_per_million is None else point.usd_per_million
