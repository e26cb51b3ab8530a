"""Pools of engines to simulate: of what was chosen to serve whole requests, or of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cost.calibration.first_token import first_token_calibration
from cost.calibration.serving import require_engine
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import NO_CHUNK, Workload
from cost.memory.budget import Ranks
from cost.memory.stages import NO_CACHE, CacheRoom
from cost.money.kv_memory import KvMemory
from cost.queueing.cache import KvTier, PrefixCache, Shelf
from cost.queueing.engine import DECODE, PREFILL, Engine
from cost.queueing.requests import Requests
from cost.queueing.schedulers import Scheduler, scheduler_of
from cost.queueing.simulation import Outcome, Simulation, Transfers
from cost.queueing.steps import Seconds, StepTable
from cost.serving.cache_path import OUT_REACH, kv_path, prompt_cache_bytes, token_cache_bytes
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving
from cost.serving.token_prices import Terms, terms_of
from cost.terms.experts import EXPERTS
from topology.base.errors import InputError

Array = NDArray[np.float64]
Price = Callable[[Workload, Array], Array]
"""Seconds of steps of a workload at batches (sequences per GPU), ``[2, batches]``: all, and those of experts."""
MAX_PRICED_SEQUENCES = 512.0
"""Sequences of an attention group up to which steps are priced: beyond, they go on in a straight line."""


@dataclass(frozen=True, eq=False)
class EnginePool:
    """Engines of one kind.

    Attributes
    ----------
    workers, gpus:
        How many there are, and GPUs of each.
    room:
        Tokens that the KV cache of one holds.
    cache:
        The same with its interval; of measured runs none.
    share, held:
        Part of the requests that it serves, in the phases that are its own; requests that it is to hold at a time,
        for a router to fill unlike pools evenly.
    accept, queries, factor:
        As of :class:`cost.queueing.engine.Engine`.
    tiers:
        Of the caches of those that prefill, the fastest first.
    """

    role: str
    table: StepTable
    scheduler: Scheduler
    workers: int
    gpus: int
    room: float
    accept: float = 1.0
    queries: float = 1.0
    factor: float = 1.0
    cache: CacheRoom = NO_CACHE
    share: float = 1.0
    held: float = 1.0
    tiers: tuple[KvTier, ...] = ()

    @classmethod
    def of(  # noqa: PLR0913 - each is a figure of its own
        cls,
        role: str,
        seconds: Seconds,
        scheduler: Scheduler,
        *,
        groups: int,
        workers: int,
        gpus: int,
        room: float,
        max_sequences: float,
        context: float,
        accept: float,
        queries: float,
        stages: int = 1,
        factor: float = 1.0,
        cache: CacheRoom = NO_CACHE,
        tiers: tuple[KvTier, ...] = (),
    ) -> EnginePool:
        """Return ``workers`` engines of ``groups`` attention groups whose steps cost what ``seconds`` says.

        Parameters
        ----------
        room, accept, queries, cache, tiers:
            As of an engine; one that prefills alone has no use for ``accept`` and ``queries``.
        max_sequences, context:
            Sequences of a group up to which steps are priced; about how many tokens the cache of one holds.
        """
        decodes = role != PREFILL
        max_sequences = min(MAX_PRICED_SEQUENCES, max(2.0, max_sequences))
        table = StepTable.of(
            seconds,
            groups=groups,
            max_sequences=max_sequences,
            context=context,
            stages=stages,
            decodes=decodes,
        )
        return cls(
            role,
            table,
            scheduler,
            workers,
            gpus,
            room,
            accept if decodes else 1.0,
            queries if decodes else 1.0,
            factor,
            cache,
            tiers=tiers,
        )

    @property
    def each(self) -> float:
        """Part of the requests that an engine serves."""
        return self.share / self.workers

    def engines(self, requests: Requests, peak: float, shared: Mapping[str, Shelf]) -> list[Engine]:
        """Return them, idle.

        ``peak``: requests that the largest engine behind their router is to hold; ``shared``: tiers of all of them.
        """

        def cache() -> PrefixCache | None:
            if not requests.segments or self.role == DECODE:
                return None
            shelves = [shared.get(tier.name) or Shelf(tier.tokens) for tier in self.tiers]
            return PrefixCache(requests.sizes, requests.block, self.tiers, shelves)

        return [
            Engine(
                self.table,
                self.scheduler,
                self.room,
                self.role,
                self.accept,
                self.queries,
                self.factor,
                cache(),
                self.gpus,
                self.each,
                self.held / self.workers / peak,
            )
            for _ in range(self.workers)
        ]


@dataclass(frozen=True, eq=False)
class EnginePools:
    """Pools for both phases, or of prefill and of decode with the links between them.

    ``fixed_s``: seconds of a request outside of them (network, tokenising).
    """

    pools: tuple[EnginePool, ...]
    transfers: Transfers | None
    fixed_s: float

    @property
    def gpus(self) -> int:
        """GPUs of all engines."""
        return sum(pool.workers * pool.gpus for pool in self.pools)

    def simulate(self, requests: Requests, router: str = "least") -> Outcome:
        """Simulate ``requests``.

        Raises
        ------
        InputError
            If there are none, or one fits no engine's cache.
        """
        shared = {
            tier.name: Shelf(tier.tokens, shared=True)
            for pool in self.pools
            for tier in pool.tiers
            if tier.shared
        }
        prefillers, decoders = (
            [
                engine
                for pool in side
                for engine in pool.engines(
                    requests, max(neighbour.held / neighbour.workers for neighbour in side), shared
                )
            ]
            for side in (
                [pool for pool in self.pools if pool.role != DECODE],
                [pool for pool in self.pools if pool.role == DECODE],
            )
        )
        return Simulation(prefillers, requests, decoders, self.transfers, router, self.fixed_s).run()

    def admitting(self, sequences: int) -> EnginePools:
        """Return the same engines with so many sequences of an attention group at a time, at most."""

        def with_seats(pool: EnginePool) -> EnginePool:
            seats = min(sequences, pool.scheduler.sequences)
            return replace(pool, scheduler=replace(pool.scheduler, sequences=seats))

        return replace(self, pools=tuple(map(with_seats, self.pools)))

    @property
    def decoding(self) -> list[EnginePool]:
        """The pools that decode."""
        return [pool for pool in self.pools if pool.role != PREFILL]


def pools_of(serving: Serving, row: RateMatch) -> EnginePools:
    """Return the engines of one match of a sweep of whole requests (:meth:`cost.serving.serving.Serving.sides`)."""
    context = serving.lengths.context
    pools = []
    for role, swept, at, workers in serving.sides(row):
        terms = terms_of(swept, at)

        def price(work: Workload, batch: Array, terms: Terms = terms) -> Array:
            terms_s = terms(work, batch)
            return np.stack([sum(terms_s.values()), terms_s.get(EXPERTS.name, np.zeros(len(batch)))])

        gpus = int(swept.gpus[at])
        held, ranks = swept.cache(at), Ranks(*(int(getattr(swept, name)[at]) for name in Ranks._fields))
        pools.append(
            engine_pool(swept.deployment, price, role, ranks, gpus, workers, cache=held, context=context)
        )
    return joined(pools, serving.decode.deployment, serving.prefill.deployment)


def kv_tiers(
    deployment: Deployment, memory: KvMemory, ranks: Ranks, gpus: int, context: float
) -> tuple[KvTier, ...]:
    """Return the tiers below HBM of an engine of ``gpus`` GPUs, for caches of about ``context`` tokens.

    A request's cache lies on the GPUs of an attention group in each stage, which load equal parts of it side by side.

    Raises
    ------
    MissingFigureError
        If the rate of a link has not been published.
    """
    cluster = deployment.cluster
    if not memory.sizes:
        return ()
    domain, all_gpus = cluster.spec.domains[0], len(cluster.gpus)
    rates = deployment.rates(StageSpec(tuple(range(all_gpus)), range(0)))
    token_bytes = token_cache_bytes(deployment, context)
    if "pool" in memory.sizes and rates.out_bytes_per_s <= 0:
        raise InputError(f"{cluster.name} has no scale-out fabric to a pool.", field="kv_tier", value="pool")

    def tier(place: str) -> KvTier:
        far = place == "pool"
        pace = memory.bytes_per_s(domain, place, all_gpus, OUT_REACH.value * rates.out_bytes_per_s)
        device = memory.device(domain.gpu, place)
        return KvTier(
            place,
            memory.size(domain, place, all_gpus if far else gpus, all_gpus) / token_bytes,
            token_bytes / (pace * ranks.tp * ranks.stages),
            (device.latency_s.value if device.latency_s else 0.0) + (rates.out_latency_s if far else 0.0),
            shared=far,
        )

    return tuple(map(tier, memory.sizes))


def joined(pools: Sequence[EnginePool], decode: Deployment, prefill: Deployment) -> EnginePools:
    """Return pools with the links between them, where some prefill for others."""
    apart = any(pool.role == PREFILL for pool in pools)
    phase = "disaggregated" if apart else "aggregated"
    fixed_s = first_token_calibration().seconds(require_engine(decode.engine), phase)
    transfers = None
    if apart:
        path = kv_path(decode, prefill)
        moved = cache(lambda tokens: prompt_cache_bytes(decode, tokens))
        transfers = Transfers(path.latency_s, path.bytes_per_s, moved)
    return EnginePools(tuple(pools), transfers, fixed_s)


def engine_pool(
    deployment: Deployment,
    price: Price,
    role: str,
    ranks: Ranks,
    gpus: int,
    workers: int,
    *,
    cache: CacheRoom,
    context: float,
) -> EnginePool:
    """Return ``workers`` engines of ``gpus`` GPUs whose steps cost what ``price`` says.

    ``cache``: what the KV cache of one holds; ``context``: about how many a sequence has.
    """
    work, tp = deployment.workload, ranks.tp
    groups = gpus // tp
    # an attention group of each stage has a part of those that the engine runs
    sequences = max(1, deployment.most_sequences // ranks.stages)
    return EnginePool.of(
        role,
        priced_steps(price, work, tp=tp),
        replace(scheduler_of(require_engine(deployment.engine)), sequences=sequences),
        groups=groups,
        workers=workers,
        gpus=gpus,
        room=cache.tokens,
        max_sequences=cache.tokens / context / groups,
        context=context,
        accept=work.accept_length,
        queries=work.tokens_per_pass,
        stages=ranks.stages,
        cache=cache,
        tiers=() if role == DECODE else kv_tiers(deployment, deployment.prices.memory, ranks, gpus, context),
    )


def priced_steps(price: Price, workload: Workload, *, tp: int) -> Seconds:
    """Return what prices steps of so much in each attention group (:data:`cost.queueing.steps.Seconds`).

    All groups have as many: a step takes as long where some have fewer.
    """
    if workload.phase == "both":
        decode = replace(workload, prompt_chunk=NO_CHUNK)
    else:
        decode = replace(workload, phase="decode", prefix_hit=0.0)
    alone = replace(workload, phase="prefill", draft_tokens=0, accept_length=1.0, prompt=0.0, answer=0.0)

    def seconds(sequences: Array, tokens: Array, cached: float, context: float) -> Array:
        if not tokens.any():
            return price(replace(decode, context=round(context)), sequences / tp)
        prices = []
        for count, new in zip(sequences.tolist(), tokens.tolist(), strict=True):
            prompt, hit = new + cached, cached / (new + cached)
            if count:
                work = replace(
                    workload,
                    phase="both",
                    context=round(context),
                    prompt=prompt,
                    answer=1.0,
                    prefix_hit=hit,
                    prompt_chunk=new,
                )
                prices.append(price(work, np.array([count / tp])))
            else:
                work = replace(alone, context=round(prompt), prefix_hit=hit)
                prices.append(price(work, np.array([1.0 / tp])))
        return np.concatenate(prices, axis=1)

    return seconds
