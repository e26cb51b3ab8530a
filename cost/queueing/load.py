"""Latencies under load, and the largest load within the limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost.queueing.engine import BOTH
from cost.queueing.pools import EnginePool, EnginePools
from cost.queueing.requests import Requests, made_requests
from cost.queueing.sessions import Sessions
from cost.queueing.simulation import ROUTERS, Outcome
from cost.serving.lengths import Lengths
from topology.base.errors import InfeasibleError

Array = NDArray[np.float64]
PERCENTILES = (50, 90, 99)
NEGLIGIBLE_WAIT = 0.05
"""Part of the time to the first token up to which waiting is not worth a word."""
WARM_UP = 0.1
"""Part of made requests that come before those that count; engines start with what they hold at the rate. A trace
counts from its first one, from empty engines on."""
MIN_REQUESTS, MAX_REQUESTS = 3_000, 12_000
"""Requests simulated at a rate: twice as many as are in the engines, but between these."""
ROUNDS_COUNTED, MIN_ROUNDS = 10, 5
"""Requests simulated for each user where :data:`MAX_REQUESTS` allows it, and at least; the first and last do not
count."""
TAIL_SHARE = 0.4
"""Part of them, at most, that only keeps up the load for those before."""
GROWTH_RATIO, MIN_SPAN_RATIO = 2.0, 4.0
"""A queue grows where first tokens of the last quarter take so many times as long as those of the first, or requests
arrive for less than so many times as long as a first token takes, or less than :data:`SERVED_SHARE` of them end."""
SERVED_SHARE = 0.85
RATE_TOLERANCE = 0.02
"""How near the largest rate is found, and how far the first and the last try may be apart (doublings)."""
DOUBLINGS = 20
FIXED_POINT_ROUNDS = 40
"""Steps of the fixed point between requests in an engine and the time of its steps."""
SEEDS = 3
"""Streams of requests whose largest rates give the interval."""


@dataclass(frozen=True)
class LoadLimits:
    """Longest times that 99 of 100 requests may see: to the first token, and per token after it; None: no limit."""

    ttft_s: float | None
    tpot_s: float | None


@dataclass(frozen=True, eq=False)
class UnderLoad:
    """What a simulation came to.

    Attributes
    ----------
    counted:
        Requests that count, ``[requests]``.
    """

    outcome: Outcome
    limits: LoadLimits
    counted: NDArray[np.bool_]

    @cached_property
    def ttft_s(self) -> Array:
        """Seconds to the first token, ``[counted]``; :attr:`tpot_s` of each token after it, :attr:`e2e_s` in all."""
        return (self.outcome.first_s - self.outcome.arrival_s)[self.counted]

    @cached_property
    def tpot_s(self) -> Array:
        """Seconds of each token after the first; 0 for answers of one token."""
        outcome = self.outcome
        later = np.maximum(outcome.osl - 1, 1)
        return ((outcome.done_s - outcome.first_s) / later)[self.counted]

    @cached_property
    def e2e_s(self) -> Array:
        """Seconds from sending a request to its last token."""
        return (self.outcome.done_s - self.outcome.arrival_s)[self.counted]

    @cached_property
    def good(self) -> NDArray[np.bool_]:
        """Whether each kept both limits."""
        good = np.ones(len(self.ttft_s), dtype=bool)
        for seconds, limit in self._limited:
            good &= seconds <= limit
        return good

    @property
    def keeps(self) -> bool:
        """Whether the 99th percentiles keep both limits."""
        return all(bool(np.percentile(seconds, 99) <= limit) for seconds, limit in self._limited)

    @property
    def _limited(self) -> list[tuple[Array, float]]:
        """Times that have a limit, with it and what rounding may add."""
        pairs = ((self.ttft_s, self.limits.ttft_s), (self.tpot_s, self.limits.tpot_s))
        return [(seconds, limit * (1 + 1e-9)) for seconds, limit in pairs if limit is not None]

    @property
    def grows(self) -> bool:
        """Whether the queue grows for as long as requests arrive: a few of them may keep any limit."""
        quarter, (start, end) = max(1, len(self.ttft_s) // 4), self._window
        longer = self.ttft_s[-quarter:].mean() > GROWTH_RATIO * self.ttft_s[:quarter].mean()
        fewer = self.requests_per_s < SERVED_SHARE * len(self.ttft_s) / (end - start)
        return bool(longer or fewer or end - start < MIN_SPAN_RATIO * self.ttft_s.mean())

    @cached_property
    def _window(self) -> tuple[float, float]:
        arrival = self.outcome.arrival_s[self.counted]
        start, end = float(arrival.min()), float(arrival.max())
        return (start, end) if end > start else (start, float(self.outcome.done_s.max()))

    @cached_property
    def _within(self) -> NDArray[np.bool_]:
        """Requests that end while those that count arrive, ``[requests]``."""
        start, end = self._window
        return (self.outcome.done_s > start) & (self.outcome.done_s <= end)

    def per_s(self, counts: Array | NDArray[np.int64]) -> float:
        """Return what ends in a second, of so much of each request, ``[requests]``."""
        start, end = self._window
        return float(counts[self._within].sum() / (end - start))

    @property
    def requests_per_s(self) -> float:
        """Requests served per second."""
        return self.per_s(np.ones(len(self.outcome.done_s)))

    @property
    def output_tok_s(self) -> float:
        """Output tokens per second."""
        return self.per_s(self.outcome.osl)

    @property
    def goodput_per_s(self) -> float:
        """Requests per second that kept both limits."""
        return self.requests_per_s * float(self.good.mean())

    @property
    def prefix_hit(self) -> float:
        """Part of all prompt tokens that was found in a cache."""
        return math.fsum(self.outcome.tier_hits(self.counted))

    @property
    def queue(self) -> str:
        """Where requests wait most: prefill, transfer, decode or cache room; empty where they hardly wait."""
        waits = dict(self.outcome.waits_s)
        if sum(waits.values()) < NEGLIGIBLE_WAIT * float(self.ttft_s.mean()):
            return ""
        if 2 * self.outcome.cache_wait_s > sum(waits.values()):
            return "cache room"
        return max(waits, key=lambda name: waits[name])


def under_load(
    pools: EnginePools, requests: Requests, limits: LoadLimits, router: str = ROUTERS[0]
) -> UnderLoad:
    """Return the latencies of ``requests``.

    Raises
    ------
    InputError
        If there are none, or one fits no engine's cache.
    """
    outcome = pools.simulate(requests, router)
    begun, total = len(requests.begun), len(requests)
    start = begun + max(requests.warm, int(WARM_UP * (total - begun))) if requests.made else 0
    at = np.arange(total)
    return UnderLoad(outcome, limits, (at >= start) & (at < total - requests.tail))


@dataclass(frozen=True)
class MostRequests:
    """The most requests per second that keep the limits, and the least and most of several streams.

    ``bounded`` is false where a recorded stream is so short that it keeps them at any rate.
    """

    requests_per_s: float
    low: float
    high: float
    bounded: bool = True


def most_requests(
    pools: EnginePools,
    make: Callable[[float, int], Requests],
    limits: LoadLimits,
    near: float,
    router: str = ROUTERS[0],
    on_try: Callable[[float, bool], None] | None = None,
    seeds: int = SEEDS,
) -> MostRequests:
    """Return the largest rate at which 99 of 100 requests keep the limits, by bisection.

    Parameters
    ----------
    make:
        Makes a stream of requests by its rate and a seed.
    near:
        Requests per second to start from.
    on_try:
        Hears of each rate that was tried, and whether it kept the limits.
    seeds:
        Streams that give the interval.

    Raises
    ------
    InfeasibleError
        If even a request at a time does not keep them.
    """

    def keeps(rate: float, seed: int) -> bool:
        requests = make(rate, seed)
        tried = under_load(pools, requests, limits, router)
        rates = tried.keeps and not (requests.made and tried.grows)
        if on_try is not None:
            on_try(rate, rates)
        return rates

    def largest(low: float, high: float, seed: int) -> float:
        while high > low * (1 + RATE_TOLERANCE):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if keeps(middle, seed) else (low, middle)
        return low

    low = high = near
    if keeps(near, 0):
        for _ in range(DOUBLINGS):
            low, high = high, 2 * high
            if not keeps(high, 0):
                break
        else:
            return MostRequests(high, high, high, bounded=False)
    else:
        for _ in range(DOUBLINGS):
            low, high = low / 2, low
            if keeps(low, 0):
                break
        else:
            raise InfeasibleError(_out_of_reach(under_load(pools, make(low, 0), limits, router)))
    rates = [largest(low, high, 0)]
    for seed in range(1, seeds):
        low, high = rates[0] * 0.8, rates[0] * 1.25
        rates.append(largest(low, high, seed) if keeps(low, seed) else low)
    return MostRequests(float(np.median(rates)), min(rates), max(rates))


def _out_of_reach(alone: UnderLoad) -> str:
    """Return which limit even single requests miss."""
    limits = alone.limits
    for name, seconds, limit in (
        ("to the first token", alone.ttft_s, limits.ttft_s),
        ("per token", alone.tpot_s, limits.tpot_s),
    ):
        least = float(np.percentile(seconds, 99))
        if limit is not None and least > limit:
            return (
                f"no rate meets {limit * 1e3:,.4g} ms {name} at the 99th percentile: even single requests "
                f"take {least * 1e3:,.4g} ms; relax the limit, or use more GPUs per replica."
            )
    return "no rate meets the limits."


def stream_of(
    pools: EnginePools, lengths: Lengths, *, cv: float = 0.0, arrivals: str = "poisson", seed: int = 0
) -> Callable[[float, int], Requests]:
    """Return what makes requests of some lengths by rate and seed, enough for steady percentiles.

    The engines start with as many requests as they hold at that rate, each somewhere in its answer: with none, a
    stream shorter than an answer would never fill them.
    """

    def make(rate: float, run_seed: int) -> Requests:
        held = in_engines(pools, lengths, rate)
        number = round(min(MAX_REQUESTS, max(MIN_REQUESTS, 2 * held)))
        begun = round(held)
        new = made_requests(
            lengths, begun + number, requests_per_s=rate, cv=cv, arrivals=arrivals, seed=seed + run_seed
        )
        made_tokens = _begun(new, begun, [seed, run_seed])
        starts = [0.0] * begun + [at - new.starts_s[begun] for at in new.starts_s[begun:]]
        return replace(new, starts_s=starts, begun=made_tokens, tail=round(min(TAIL_SHARE * number, held)))

    return make


def conversations_on(
    pools: EnginePools, sessions: Sessions, *, cv: float = 0.0, arrivals: str = "poisson", seed: int = 0
) -> Callable[[float, int], Requests]:
    """Return what makes conversations by the rate of their requests and seed, enough for steady percentiles."""
    lengths = sessions.lengths

    def make(rate: float, run_seed: int) -> Requests:
        stay_s = in_engines(pools, lengths, rate) / rate
        return sessions.at(rate, stay_s, cv=cv, arrivals=arrivals, seed=seed + run_seed)

    return make


def closed_loop(
    pools: EnginePools, lengths: Lengths, users: int, *, cv: float = 0.0, seed: int = 0
) -> Requests:
    """Return requests of ``users`` that each send the next when one is answered, enough for steady percentiles.

    As many of the first ones as the engines hold start somewhere in their answers, and the last ones only keep up the
    load for those before: users who all start at once would go on in step.
    """
    number = max(MIN_REQUESTS, min(MAX_REQUESTS, ROUNDS_COUNTED * users), MIN_ROUNDS * users)
    new = made_requests(lengths, number, users=users, cv=cv, seed=seed)
    seats = sum(pool.workers * _seats(pool, lengths) for pool in pools.decoding)
    begun = _begun(new, int(min(users, seats)), [seed, users])
    return replace(new, begun=begun, tail=users)


def _begun(requests: Requests, number: int, seeds: list[int]) -> list[int]:
    """Tokens that the first so many have of their answers, each somewhere in its own."""
    random = np.random.default_rng(seeds)
    return [int(random.integers(1, max(2, osl))) for osl in requests.osl[:number]]


def _seats(pool: EnginePool, lengths: Lengths) -> float:
    """Requests that an engine holds at most."""
    held = float(pool.scheduler.held(lengths.mean_isl, lengths.mean_osl))
    return min(pool.scheduler.sequences * pool.table.groups, pool.room / held)


def in_engines(pools: EnginePools, lengths: Lengths, requests_per_s: float) -> float:
    """Return about how many requests decode at a rate, at most what the engines hold.

    Little's law: the rate times the seconds of an answer, whose steps take the longer the more there are. Where one
    pool serves both phases, all wait in each step for the attention group with most tokens of prompts.
    """
    total_share = sum(pool.share for pool in pools.decoding)
    return sum(
        pool.workers * _in_engine(pool, lengths, requests_per_s * pool.each / total_share)
        for pool in pools.decoding
    )


def _in_engine(pool: EnginePool, lengths: Lengths, rate: float) -> float:
    """Return about how many requests decode in an engine of a pool at its own rate."""
    context, steps = lengths.mean_isl + lengths.mean_osl / 2, lengths.mean_osl / pool.accept
    table, tokens = pool.table, lengths.mean_isl * (1 - lengths.prefix_hit)
    seats = _seats(pool, lengths)
    budget = float(pool.scheduler.tokens)
    chunk = min(tokens, budget)
    arriving, held, mean_chunk = rate * tokens / chunk, 0.0, chunk / table.groups
    for _ in range(FIXED_POINT_ROUNDS):
        step_s = pool.factor * table.decode(max(held, 1.0), context)
        if pool.role == BOTH:
            # a step has prompts if one arrived in the step before, which is longer if it had some
            busiest = min(max(chunk, mean_chunk), budget)
            added_s = pool.factor * table.prompts(busiest, lengths.mean_isl, min(mean_chunk, busiest), held)
            no_chance, some_chance = math.exp(-arriving * step_s), math.exp(-arriving * (step_s + added_s))
            share = (1 - no_chance) / (1 - no_chance + some_chance)
            step_s += share * added_s
            mean_chunk = chunk * arriving * step_s / share / table.groups
        held = min(seats, rate * steps * step_s)
    return held
