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
SESSION_ROUTER = "prefix"
"""That of conversations where nobody says."""
LOADING, TRANSFER = "loading", "transfer"
TIMELINE_POINTS = 500
"""Points of the timeline."""
PREFIX_LOAD_RATIO = 1.5
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
    isl, osl, cached_in:
        Tokens of its prompt, of its answer, and of the prompt that were found in HBM and in each tier below it,
        ``[requests, 1 + tiers]``.
    waits_s:
        Mean seconds of a request that it waits for its prefill to start, for what it found below HBM, for links that
        others use, and for a place in the pool that decodes; ``cache_wait_s``: of these, because a KV cache had no
        room.
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
    cached_in: NDArray[np.int64]
    waits_s: dict[str, float]
    cache_wait_s: float
    use: dict[str, float]
    preempted: int
    timeline: NDArray[np.float64]

    @property
    def cached(self) -> NDArray[np.int64]:
        """Tokens of each prompt that were found anywhere, ``[requests]``."""
        return np.asarray(self.cached_in.sum(axis=1))

    def tier_hits(self, counted: NDArray[np.bool_] | slice) -> list[float]:
        """Return the parts of the prompts of some requests that were found in HBM and in each tier below it."""
        hits = self.cached_in[counted].sum(axis=0) / self.isl[counted].sum()
        return [float(hit) for hit in hits]


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
        holds most of the prompt.
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
        requests, total = self.requests, len(self.requests)
        self._require_room()
        made_of = zip(range(total), requests.isl, requests.osl, requests.cached, strict=True)
        self._jobs = [Job(*columns) for columns in made_of]
        for job, segments, answer in zip(
            self._jobs, requests.segments, requests.answers or [0] * total, strict=False
        ):
            job.segments, job.answer = segments, answer
        self._arrival, self._first, self._done = [0.0] * total, [0.0] * total, [0.0] * total
        self._events: list[tuple[float, int, Callable[[float, Any], None], Any]] = []
        self._tickets, self._turn = count(), 0
        self._shares = dict.fromkeys((engine.role for engine in self.engines), 0.0)
        for engine in self.engines:
            self._shares[engine.role] += engine.share
        self._sent = dict.fromkeys(self._shares, 0)
        self._moving: list[_Transfer] = []
        self._moves, self._moved_s, self._moving_wait_s = 0, 0.0, 0.0
        self._timeline: list[tuple[float, int, int]] = []
        decoding = [*self.decoders, *(engine for engine in self.engines if engine.role != PREFILL)]
        for job, tokens in zip(self._jobs, requests.begun, strict=False):
            job.made = tokens
            self._enter_computed(min(decoding, key=_load), job, 0.0)
        self._later: dict[int, list[int]] = defaultdict(list)
        for number, predecessor in enumerate(requests.after):
            self._later[predecessor].append(number)
        begun = len(requests.begun)
        self._unsent = iter(self._later.pop(-1) if requests.after else range(begun, total))
        for _ in range(min(requests.users, total) - begun if requests.users else 1):
            self._send_next()
        events = self._events
        while events:
            time_s, _, happens, subject = heapq.heappop(events)
            happens(time_s, subject)
        return self._outcome()

    def _outcome(self) -> Outcome:
        jobs, total = self._jobs, len(self._jobs)
        arrival, done = np.array(self._arrival), np.array(self._done)
        span = max(float(done.max() - arrival.min()), 1e-12)
        engines = [*self.engines, *self.decoders]
        pools = {
            role: [engine for engine in engines if engine.role == role] for role in (PREFILL, DECODE, BOTH)
        }
        widest = max(len(job.found) for job in jobs)
        return Outcome(
            arrival,
            np.array(self._first),
            done,
            np.array([job.isl for job in jobs]),
            np.array([job.osl for job in jobs]),
            np.array([job.found + (0,) * (widest - len(job.found)) for job in jobs]),
            {
                PREFILL: sum(engine.waited_s for engine in self.engines) / total,
                LOADING: sum(engine.loading_s for engine in self.engines) / total,
                TRANSFER: self._moving_wait_s / total,
                DECODE: sum(engine.waited_s for engine in self.decoders) / total,
            },
            sum(engine.blocked_s for engine in engines) / total,
            {
                role: sum(engine.busy_s for engine in pool) / span / len(pool)
                for role, pool in pools.items()
                if pool
            },
            sum(engine.preempted for engine in engines),
            np.array(self._timeline, dtype=np.float64).reshape(-1, 3),
        )

    def _require_room(self) -> None:
        requests = self.requests
        if not len(requests):
            raise InputError("there are no requests to simulate.")
        longest = max(map(sum, zip(requests.isl, requests.osl, strict=True)))
        room = min(engine.room for engine in (*self.engines, *self.decoders))
        if longest > room:
            raise InputError(
                f"a request of {longest:,} tokens does not fit the KV cache of an engine, {room:,.0f} tokens; "
                "use shorter requests or larger engines."
            )

    def _at(self, when: float, happens: Callable[[float, Any], None], subject: object) -> None:
        heapq.heappush(self._events, (when, next(self._tickets), happens, subject))

    def _send_next(self, time_s: float | None = None) -> None:
        """Send the next request that waits for no answer, at its own time or now."""
        number = next(self._unsent, None)
        if number is not None:
            self._send(self.requests.starts_s[number] if time_s is None else time_s, number)

    def _send(self, time_s: float, number: int) -> None:
        """Send a request; it arrives when what is fixed is over."""
        self._arrival[number] = time_s
        self._at(time_s + self.fixed_s, self._arrive, self._jobs[number])

    def _arrive(self, time_s: float, job: Job) -> None:
        requests = self.requests
        if not requests.users and not (requests.after and requests.after[job.number] >= 0):
            self._send_next()
        if job.number % max(1, len(requests) // TIMELINE_POINTS) == 0:
            engines = [*self.engines, *self.decoders]
            waiting = sum(len(engine.waiting) for engine in engines)
            self._timeline.append((time_s, waiting, sum(engine.load for engine in engines) - waiting))
        self._enter(self._engine_for(job), job, time_s)

    def _engine_for(self, job: Job) -> Engine:
        """Return where a request goes: to each role as much as it can serve, there by the router.

        An engine of both phases holds requests for long, one that prefills for a moment: their loads do not compare.
        """
        role = min(self._sent, key=lambda role: self._sent[role] / self._shares[role])
        self._sent[role] += 1
        engines = (
            [engine for engine in self.engines if engine.role == role]
            if len(self._sent) > 1
            else self.engines
        )
        if self.router == "round":
            self._turn += 1
            return engines[(self._turn - 1) % len(engines)]
        least = min(engines, key=_load)
        if self.router == "prefix" and job.segments:
            best = max(engines, key=lambda engine: (engine.matches(job), -_load(engine)))
            if _load(best) <= PREFIX_LOAD_RATIO * _load(least) + 1:
                return best
        return least

    def _enter(self, engine: Engine, job: Job, time_s: float) -> None:
        engine.load += 1
        job.entered_s = time_s
        engine.waiting.append(job)
        if not engine.busy or engine.fits(engine.waiting[0]):
            self._wake(time_s, engine)

    def _wake(self, time_s: float, engine: Engine) -> None:
        """Let an engine see at the next step that there is more to do."""
        if not engine.busy:
            self._begin(engine, time_s)
        elif engine.cut_short(time_s):
            engine.version += 1
            self._at(engine.started_s + engine.took_s, self._step, (engine, engine.version))

    def _begin(self, engine: Engine, time_s: float) -> None:
        if engine.begin(time_s):
            self._at(time_s + engine.took_s, self._step, (engine, engine.version))
        while engine.loads:
            self._at(engine.loads.pop(), self._wake, engine)

    def _step(self, time_s: float, of: tuple[Engine, int]) -> None:
        engine, version = of
        if engine.version != version:
            return  # the stretch was cut short
        started, done = engine.end()
        for job in started:
            if not self._first[job.number]:
                self._first[job.number] = time_s
            if engine.role == PREFILL:
                engine.load -= 1
                if job.made < job.osl:
                    self._start_transfer(time_s, job, engine)
        for job in done:
            engine.load -= engine.role != PREFILL
            self._done[job.number] = time_s
            followers = self._later.get(job.number, ())
            if self.requests.users and not followers:
                self._send_next(time_s)
            for number in followers:
                self._at(time_s + self.requests.delays_s[number], self._send, number)
        self._begin(engine, time_s)

    def _start_transfer(self, time_s: float, job: Job, sender: Engine) -> None:
        engine = min(self.decoders, key=_load)
        engine.load += 1  # it counts from now on, so that the next one goes elsewhere
        if self.transfers is None:
            self._received(time_s, _Transfer(job, sender, engine, 0.0))
            return
        transfer = _Transfer(job, sender, engine, self.transfers.cache_bytes(job.isl))
        self._moving_wait_s -= self.transfers.alone_s(transfer.left, min(sender.gpus, engine.gpus))
        self._share(time_s)
        self._moving.append(transfer)
        self._moving_wait_s -= time_s
        self._next_transfer(time_s)

    def _share(self, time_s: float) -> None:
        """Let what is on its way move on until ``time_s``."""
        for transfer in self._moving:
            transfer.left -= transfer.bytes_per_s * (time_s - self._moved_s)
        self._moved_s = time_s

    def _next_transfer(self, time_s: float) -> None:
        """Share the links anew, and say when the next transfer is complete."""
        links = self.transfers
        if links is None or not self._moving:
            return
        sent = Counter(transfer.sender for transfer in self._moving)
        received = Counter(transfer.receiver for transfer in self._moving)
        for transfer in self._moving:
            transfer.bytes_per_s = links.bytes_per_s * min(
                transfer.sender.gpus / sent[transfer.sender],
                transfer.receiver.gpus / received[transfer.receiver],
            )
        self._moves += 1
        soonest = min(max(0.0, transfer.left) / transfer.bytes_per_s for transfer in self._moving)
        self._at(time_s + soonest, self._moved, self._moves)

    def _moved(self, time_s: float, version: int) -> None:
        if version != self._moves:
            return  # the links were shared anew since
        self._share(time_s)
        complete = [transfer for transfer in self._moving if transfer.left <= 1e-6 * transfer.bytes_per_s]
        self._moving = [transfer for transfer in self._moving if transfer not in complete]
        latency_s = self.transfers.latency_s if self.transfers else 0.0
        for transfer in complete:
            self._moving_wait_s += time_s + latency_s
            self._at(time_s + latency_s, self._received, transfer)
        self._next_transfer(time_s)

    def _received(self, time_s: float, transfer: _Transfer) -> None:
        transfer.receiver.load -= 1
        self._enter_computed(transfer.receiver, transfer.job, time_s)

    def _enter_computed(self, engine: Engine, job: Job, time_s: float) -> None:
        """As :meth:`_enter`, with a cache of all that the request has so far."""
        job.cached = job.held
        self._enter(engine, job, time_s)


def _load(engine: Engine) -> float:
    """Return the requests of an engine for what it is to hold."""
    return engine.load / engine.part
