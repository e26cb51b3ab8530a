"""The loop of events: requests arrive, engines take step after step, caches move from pool to pool."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.queueing.engine import BOTH, DECODE, PREFILL, Engine, Job
from cost.queueing.requests import Requests
from topology.base.errors import InputError

ROUTERS = ("least", "round", "prefix")
TRANSFER = "transfer"
SAMPLES = 500
"""Points of the timeline."""
MOST_AHEAD = 1.5
"""Requests of the engine with the longest common prefix over those of the one with fewest, above which the latter
takes a request in place of it: a prefix saves a prefill, a queue costs several."""


@dataclass(frozen=True, eq=False)
class Transfers:
    """Caches on their way between pools: each worker's links are shared evenly by what it sends, or receives.

    Attributes
    ----------
    latency_s, bytes_per_s:
        Of one GPU; those of an engine move a cache side by side.
    cache_bytes:
        Cache of a prompt by its tokens.
    """

    latency_s: float
    bytes_per_s: float
    cache_bytes: Callable[[int], float]

    def alone_s(self, moved: float, gpus: int) -> float:
        """Return the seconds of a cache that shares no link, over the smaller engine's GPUs."""
        return self.latency_s + moved / (self.bytes_per_s * gpus)


@dataclass(eq=False)
class _Transfer:
    job: Job
    sender: Engine
    receiver: Engine
    left: float
    bytes_per_s: float = 0.0


@dataclass(frozen=True, eq=False)
class Outcome:
    """What happened to each request, ``[requests]``, and to each pool.

    Attributes
    ----------
    arrival_s, first_s, done_s:
        When it was sent, when its first and when its last token was there.
    isl, osl, cached:
        Tokens of its prompt, of its answer, and of the prompt that were found in a cache.
    waits_s:
        Mean seconds of a request that it waits for its prefill to start, for links that others use, and for a place
        in the pool that decodes; ``cache_wait_s``: of these, because a KV cache had no room.
    use:
        Part of the time that the engines of each pool are in a step, by role.
    preempted:
        Times that a request had to be computed again.
    timeline:
        ``[samples, 3]``: seconds, requests that wait, requests that are in an engine's steps.
    """

    arrival_s: NDArray[np.float64]
    first_s: NDArray[np.float64]
    done_s: NDArray[np.float64]
    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    cached: NDArray[np.int64]
    waits_s: dict[str, float]
    cache_wait_s: float
    use: dict[str, float]
    preempted: int
    timeline: NDArray[np.float64]


@dataclass(eq=False)
class Simulation:
    """Requests on engines that serve both phases, or on some that prefill and some that decode, or on all of these.

    Attributes
    ----------
    engines:
        Those that requests arrive at; of those that prefill alone ``decoders`` receive the caches by ``transfers``
        (None: at once).
    router:
        One of :data:`ROUTERS`: the engine with fewest requests for what it is to hold, each in turn, or the one that
        holds most of the prompt's blocks.
    fixed_s:
        Seconds of each request outside the engines, before it arrives: network, tokenising.
    """

    engines: Sequence[Engine]
    requests: Requests
    decoders: Sequence[Engine] = ()
    transfers: Transfers | None = None
    router: str = "least"
    fixed_s: float = 0.0

    def run(self) -> Outcome:
        """Simulate all requests.

        Raises
        ------
        InputError
            If there are none, or one fits no engine's cache.
        """
        asked, total = self.requests, len(self.requests)
        self._require_room()
        blocks: Sequence[Sequence[int]] = asked.blocks or [()] * total
        made_of = zip(range(total), asked.isl, asked.osl, asked.cached, blocks, strict=True)
        self._jobs = [Job(*columns) for columns in made_of]
        self._arrival, self._first, self._done = [0.0] * total, [0.0] * total, [0.0] * total
        self._events: list[tuple[float, int, Callable[[float, Any], None], Any]] = []
        self._tickets, self._turn = count(), 0
        self._shares = dict.fromkeys((one.role for one in self.engines), 0.0)
        for one in self.engines:
            self._shares[one.role] += one.share
        self._sent = dict.fromkeys(self._shares, 0)
        self._moving: list[_Transfer] = []
        self._moves, self._moved_s, self._moving_wait_s = 0, 0.0, 0.0
        self._timeline: list[tuple[float, int, int]] = []
        decoding = [*self.decoders, *(one for one in self.engines if one.role != PREFILL)]
        for job, made in zip(self._jobs, asked.begun, strict=False):
            job.made = made
            self._enter_computed(min(decoding, key=_load), job, 0.0)
        self._later: dict[int, list[int]] = defaultdict(list)
        for number, before in enumerate(asked.after):
            self._later[before].append(number)
        begun = len(asked.begun)
        self._unsent = iter(self._later.pop(-1) if asked.after else range(begun, total))
        for _ in range(min(asked.users, total) - begun if asked.users else 1):
            self._send_next()
        events = self._events
        while events:
            now, _, happens, what = heapq.heappop(events)
            happens(now, what)
        return self._outcome()

    def _outcome(self) -> Outcome:
        jobs, total = self._jobs, len(self._jobs)
        arrival, done = np.array(self._arrival), np.array(self._done)
        span = max(float(done.max() - arrival.min()), 1e-12)
        every = [*self.engines, *self.decoders]
        pools = {role: [one for one in every if one.role == role] for role in (PREFILL, DECODE, BOTH)}
        return Outcome(
            arrival,
            np.array(self._first),
            done,
            np.array([job.isl for job in jobs]),
            np.array([job.osl for job in jobs]),
            np.array([job.found for job in jobs]),
            {
                PREFILL: sum(one.waited_s for one in self.engines) / total,
                TRANSFER: self._moving_wait_s / total,
                DECODE: sum(one.waited_s for one in self.decoders) / total,
            },
            sum(one.blocked_s for one in every) / total,
            {
                role: sum(one.busy_s for one in pool) / span / len(pool)
                for role, pool in pools.items()
                if pool
            },
            sum(one.preempted for one in every),
            np.array(self._timeline, dtype=np.float64).reshape(-1, 3),
        )

    def _require_room(self) -> None:
        asked = self.requests
        if not len(asked):
            raise InputError("there are no requests to simulate.")
        most = max(map(sum, zip(asked.isl, asked.osl, strict=True)))
        room = min(one.room for one in (*self.engines, *self.decoders))
        if most > room:
            raise InputError(
                f"a request of {most:,} tokens does not fit the KV cache of an engine, {room:,.0f} tokens; "
                "use shorter requests or larger engines."
            )

    def _at(self, when: float, happens: Callable[[float, Any], None], what: object) -> None:
        heapq.heappush(self._events, (when, next(self._tickets), happens, what))

    def _send_next(self, now: float | None = None) -> None:
        """Send the next request that waits for no answer, at its own time or now."""
        number = next(self._unsent, None)
        if number is not None:
            self._send(self.requests.starts_s[number] if now is None else now, number)

    def _send(self, now: float, number: int) -> None:
        """Send a request; it arrives when what is fixed is over."""
        self._arrival[number] = now
        self._at(now + self.fixed_s, self._arrive, self._jobs[number])

    def _arrive(self, now: float, job: Job) -> None:
        asked = self.requests
        if not asked.users and not (asked.after and asked.after[job.number] >= 0):
            self._send_next()
        if job.number % max(1, len(asked) // SAMPLES) == 0:
            every = [*self.engines, *self.decoders]
            waiting = sum(len(one.waiting) for one in every)
            self._timeline.append((now, waiting, sum(one.load for one in every) - waiting))
        self._enter(self._engine_for(job), job, now)

    def _engine_for(self, job: Job) -> Engine:
        """Return where a request goes: to each role as much as it can serve, there by the router.

        An engine of both phases holds requests for long, one that prefills for a moment: their loads do not compare.
        """
        role = min(self._sent, key=lambda role: self._sent[role] / self._shares[role])
        self._sent[role] += 1
        engines = [one for one in self.engines if one.role == role] if len(self._sent) > 1 else self.engines
        if self.router == "round":
            self._turn += 1
            return engines[(self._turn - 1) % len(engines)]
        least = min(engines, key=_load)
        if self.router == "prefix" and job.blocks:
            best = max(engines, key=lambda one: (one.matches(job), -_load(one)))
            if _load(best) <= MOST_AHEAD * _load(least) + 1:
                return best
        return least

    def _enter(self, engine: Engine, job: Job, now: float) -> None:
        engine.load += 1
        job.entered_s = now
        engine.waiting.append(job)
        if not engine.busy:
            self._begin(engine, now)
        elif engine.fits(engine.waiting[0]) and engine.cut_short(now):
            engine.version += 1
            self._at(engine.started_s + engine.took_s, self._step, (engine, engine.version))

    def _begin(self, engine: Engine, now: float) -> None:
        if engine.begin(now):
            self._at(now + engine.took_s, self._step, (engine, engine.version))

    def _step(self, now: float, of: tuple[Engine, int]) -> None:
        engine, version = of
        if engine.version != version:
            return  # the stretch was cut short
        first, done = engine.end()
        for job in first:
            if not self._first[job.number]:
                self._first[job.number] = now
            if engine.role == PREFILL:
                engine.load -= 1
                if job.made < job.osl:
                    self._start_transfer(now, job, engine)
        for job in done:
            engine.load -= engine.role != PREFILL
            self._done[job.number] = now
            if self.requests.users:
                self._send_next(now)
            for number in self._later.get(job.number, ()):
                self._at(now + self.requests.delays_s[number], self._send, number)
        self._begin(engine, now)

    def _start_transfer(self, now: float, job: Job, sender: Engine) -> None:
        engine = min(self.decoders, key=_load)
        engine.load += 1  # it counts from now on, so that the next one goes elsewhere
        if self.transfers is None:
            self._received(now, _Transfer(job, sender, engine, 0.0))
            return
        what = _Transfer(job, sender, engine, self.transfers.cache_bytes(job.isl))
        self._moving_wait_s -= self.transfers.alone_s(what.left, min(sender.gpus, engine.gpus))
        self._share(now)
        self._moving.append(what)
        self._moving_wait_s -= now
        self._next_transfer(now)

    def _share(self, now: float) -> None:
        """Let what is on its way move on until ``now``."""
        for one in self._moving:
            one.left -= one.bytes_per_s * (now - self._moved_s)
        self._moved_s = now

    def _next_transfer(self, now: float) -> None:
        """Share the links anew, and say when the next transfer is complete."""
        links = self.transfers
        if links is None or not self._moving:
            return
        sent = Counter(one.sender for one in self._moving)
        received = Counter(one.receiver for one in self._moving)
        for one in self._moving:
            one.bytes_per_s = links.bytes_per_s * min(
                one.sender.gpus / sent[one.sender], one.receiver.gpus / received[one.receiver]
            )
        self._moves += 1
        soonest = min(max(0.0, one.left) / one.bytes_per_s for one in self._moving)
        self._at(now + soonest, self._moved, self._moves)

    def _moved(self, now: float, version: int) -> None:
        if version != self._moves:
            return  # the links were shared anew since
        self._share(now)
        there = [one for one in self._moving if one.left <= 1e-6 * one.bytes_per_s]
        self._moving = [one for one in self._moving if one not in there]
        latency_s = self.transfers.latency_s if self.transfers else 0.0
        for one in there:
            self._moving_wait_s += now + latency_s
            self._at(now + latency_s, self._received, one)
        self._next_transfer(now)

    def _received(self, now: float, what: _Transfer) -> None:
        what.receiver.load -= 1
        self._enter_computed(what.receiver, what.job, now)

    def _enter_computed(self, engine: Engine, job: Job, now: float) -> None:
        """As :meth:`_enter`, with a cache of all that the request has so far."""
        job.cached = job.held
        self._enter(engine, job, now)


def _load(engine: Engine) -> float:
    """Return the requests of an engine for what it is to hold."""
    return engine.load / engine.part
