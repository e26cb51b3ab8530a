"""One engine: which requests are in its next step, how long that takes, and what it leaves."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cost.queueing.cache import PrefixCache
from cost.queueing.schedulers import Scheduler
from cost.queueing.steps import StepTable

BOTH, PREFILL, DECODE = "both", "prefill", "decode"


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way.

    Attributes
    ----------
    cached:
        Tokens that the next engine need not compute; ``found``: of its prompt, in HBM and in each tier of a cache.
    segments, answer:
        What the prompt and the answer are made of (:mod:`cost.queueing.cache`), and how many of the last are the
        answer's; the first ``pinned`` are in use in its engine.
    made, left:
        Tokens of its answer that exist, and of what is computed now that are not computed yet.
    turn:
        Times that it started or stopped decoding: an entry of a list with another number is out of date.
    entered_s:
        When it arrived at the engine.
    """

    number: int
    isl: int
    osl: int
    cached: int = 0
    segments: Sequence[int] = ()
    answer: int = 0
    found: tuple[int, ...] = ()
    pinned: int = 0
    made: int = 0
    left: float = 0.0
    span: float = 0.0
    group: int = 0
    joined: int = 0
    turn: int = 0
    entered_s: float = 0.0

    @property
    def held(self) -> int:
        """Tokens in the cache when it starts, or starts again."""
        return self.isl + self.made


@dataclass(eq=False, slots=True)
class Engine:
    """State of an engine; the loop of events (:mod:`cost.queueing.simulation`) calls ``begin`` and ``end`` in turn.

    Attributes
    ----------
    role:
        Both phases, or the one that it serves.
    room:
        Tokens that its KV cache holds.
    accept, queries:
        Tokens that a step of a sequence yields on average, and that it computes.
    factor:
        What measured steps took over the table's.
    cache:
        Of what later prompts may share; None: they share nothing.
    gpus:
        GPUs that it has.
    share, part:
        Of the requests that it serves; and those that it holds at a time over those of the one that holds most.
    load:
        Requests that it has, waiting ones included; ``running`` of them decode.
    blocked:
        Whether the cache has no room for the first of those that wait.
    count:
        Steps of decoding so far. A stretch of ``steps`` equal ones is one event, cut short by an arrival.
    context, used:
        Tokens in the cache of those that decode, and of all that started.
    busy_s:
        Seconds of steps; ``waited_s``: that requests waited for a place in one, in all, and ``blocked_s`` of these
        because the cache had no room; ``loading_s``: for what they found in slower memory.
    loading:
        Requests whose prefix is on its way to HBM, by when it is there; ``loads``: those times not yet asked for.
    """

    table: StepTable
    scheduler: Scheduler
    room: float
    role: str = BOTH
    accept: float = 1.0
    queries: float = 1.0
    factor: float = 1.0
    cache: PrefixCache | None = None
    gpus: int = 1
    share: float = 1.0
    part: float = 1.0
    load: int = 0
    running: int = 0
    count: int = 0
    steps: int = 0
    started_s: float = 0.0
    took_s: float = 0.0
    decoding: bool = False
    busy: bool = False
    blocked: bool = False
    version: int = 0
    context: float = 0.0
    used: float = 0.0
    busy_s: float = 0.0
    waited_s: float = 0.0
    blocked_s: float = 0.0
    loading_s: float = 0.0
    preempted: int = 0
    waiting: deque[Job] = field(default_factory=deque)
    prefilling: list[Job] = field(default_factory=list)
    finishing: list[tuple[int, int, int, Job]] = field(default_factory=list)
    joined: list[tuple[int, Job]] = field(default_factory=list)
    loading: list[tuple[float, int, Job]] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def fits(self, job: Job) -> bool:
        """Whether a request may start: there is a seat, and room in the cache."""
        seats = self.scheduler.sequences * self.table.groups
        started = self.running + len(self.prefilling) + len(self.loading)
        if started >= seats:
            return False
        reserved = 0.0 if self.role == PREFILL else self.scheduler.reserved * (job.osl - job.made)
        if not started or self.used + job.held + reserved <= self.room:
            return True
        shared = self.cache.matches(job.segments, job.held - 1).used if self.cache is not None else 0
        return self.used + job.held - shared + reserved <= self.room

    def cut_short(self, time_s: float) -> bool:
        """End the stretch at the next step, for a request that arrived; False where it is the next already."""
        if self.steps < 2:
            return False
        step_s = self.took_s / self.steps
        done = max(1, math.ceil((time_s - self.started_s) / step_s - 1e-9))
        if done >= self.steps:
            return False
        self.steps, self.took_s = done, step_s * done
        return True

    def begin(self, time_s: float) -> bool:
        """Fill the next step, or a stretch of them; False where there is nothing to do."""
        while self.loading and self.loading[0][0] <= time_s:
            self.prefilling.append(heapq.heappop(self.loading)[2])
        tokens, spans = self._take_prompts(time_s)
        if self.cache is not None:
            self.cache.trim(self.room - self.used)
        self.steps = 1
        if any(tokens):
            beside = self.running if self.scheduler.mixes else 0
            self.decoding = beside > 0
            added_s = self.table.prompts_of(tokens, spans, beside, others=self.running > 0)
            self.took_s = self.factor * added_s
            if beside:
                self.took_s += self.factor * self.table.decode(beside, self.context / beside)
        elif self.running:
            grown = self.running * self.accept
            while self.used + grown > self.room and self.running > 1:
                self._preempt(time_s)
                grown = self.running * self.accept
            while self.finishing[0][2] != self.finishing[0][3].turn:
                heapq.heappop(self.finishing)
            stretch = self.finishing[0][0] - self.count
            if self.running > 1:
                stretch = min(stretch, max(1, int((self.room - self.used) // grown)))
            middle = self.context + grown * (stretch - 1) / 2
            self.decoding, self.steps = True, stretch
            self.took_s = stretch * self.factor * self.table.decode(self.running, middle / self.running)
        else:
            self.busy = self.decoding = False
            return False
        self.busy, self.started_s = True, time_s
        self.blocked = bool(self.waiting) and (self.waiting[0].made > 0 or not self.fits(self.waiting[0]))
        self.version += 1
        return True

    def end(self) -> tuple[list[Job], list[Job]]:
        """Take the step's results: requests whose first token is there, and requests that are complete."""
        done: list[Job] = []
        self.busy_s += self.took_s
        if self.blocked:
            self.blocked_s += self.took_s * len(self.waiting)
        if self.decoding:
            self.count += self.steps
            grown = self.running * self.accept * self.steps
            self.context += grown
            self.used += grown
            while self.finishing and self.finishing[0][0] <= self.count:
                _, _, turn, job = heapq.heappop(self.finishing)
                if turn == job.turn:
                    self._leave(job, done=True)
                    done.append(job)
        started = [job for job in self.prefilling if job.left <= 0]
        if started:
            self.prefilling = [job for job in self.prefilling if job.left > 0]
        for job in started:
            if self.cache is not None:
                prompt = job.segments[job.pinned : len(job.segments) - job.answer]
                self.used -= self.cache.share(prompt)
                job.pinned += len(prompt)
            if not job.made:
                job.made = 1
                self.used += 1
            if job.made < job.osl and self.role != PREFILL:
                self._join(job)
                continue
            self._free(job, job.held)
            if job.made >= job.osl:
                done.append(job)
        return started, done

    def _take_prompts(self, time_s: float) -> tuple[list[float], list[float]]:
        """Return the prompt tokens of each group in the next step, and the sum of their spans, ``[groups]``."""
        if not self.prefilling and not self.waiting:
            return [], []
        groups = self.table.groups
        budget = float(self.scheduler.tokens)
        if self.scheduler.mixes:
            budget = max(1.0, budget - self.running * self.queries / groups)
        tokens, spans = [0.0] * groups, [0.0] * groups

        def take(job: Job) -> None:
            part = min(job.left, budget - tokens[job.group])
            if part > 0:
                job.left -= part
                tokens[job.group] += part
                spans[job.group] += part * job.span

        for job in self.prefilling:
            take(job)
        while self.waiting and self.fits(self.waiting[0]):
            group = 0 if groups == 1 else min(range(groups), key=tokens.__getitem__)
            if tokens[group] >= budget:
                break
            job = self.waiting.popleft()
            self.waited_s += time_s - job.entered_s
            job.group = group
            ready_s = self._admit(job, time_s)
            if job.cached >= job.held:  # its cache was sent here
                self._join(job)
                continue
            job.left, job.span = float(job.held - job.cached), float(job.held + job.cached)
            if ready_s > time_s:
                self.loading_s += ready_s - time_s
                heapq.heappush(self.loading, (ready_s, job.number, job))
                self.loads.append(ready_s)
                continue
            self.prefilling.append(job)
            take(job)
        return tokens, spans

    def _admit(self, job: Job, time_s: float) -> float:
        """Give a request its room, and what the cache has of its prompt; return when that is there."""
        self.used += job.held
        if self.cache is None or not job.segments or job.cached >= job.held:
            job.found = job.found or (0 if job.made else job.cached,)
            return time_s
        match = self.cache.matches(job.segments, job.held - 1)
        self.cache.pin(job.segments, match.whole)
        self.used -= match.used
        job.cached, job.pinned = match.tokens, match.whole
        if not job.made:
            job.found = (match.used + match.waiting[0], *match.waiting[1:])
        return self.cache.loaded_s(match.waiting, job.group, time_s)

    def _free(self, job: Job, held: float, *, done: bool = False) -> None:
        """Take back the room of a request; its cache is kept for later ones where it is worth it."""
        self.used -= held
        if self.cache is not None:
            pinned, rest = job.segments[: job.pinned], job.segments[job.pinned :]
            self.used += self.cache.tokens(pinned) - self.cache.release(pinned, rest if done else ())
            job.pinned = 0

    def _join(self, job: Job) -> None:
        job.joined = self.count
        self.running += 1
        self.context += job.held
        last_step = self.count + max(1, math.ceil((job.osl - job.made) / self.accept))
        job.turn += 1
        heapq.heappush(self.finishing, (last_step, job.number, job.turn, job))
        self.joined.append((job.turn, job))

    def _leave(self, job: Job, *, done: bool = False) -> None:
        held = job.held + (self.count - job.joined) * self.accept
        job.turn += 1
        self.running -= 1
        self.context -= held
        self._free(job, held, done=done)

    def _preempt(self, time_s: float) -> None:
        """Drop what the request that started last has in the cache; it starts again before all that wait."""
        turn, job = self.joined.pop()
        while turn != job.turn:
            turn, job = self.joined.pop()
        self._leave(job)
        job.made += int((self.count - job.joined) * self.accept)
        if self.role == DECODE:
            job.cached = 0
        job.entered_s = time_s
        self.waiting.appendleft(job)
        self.preempted += 1

    def matches(self, job: Job) -> int:
        """Tokens at the start of a prompt that the cache holds."""
        return 0 if self.cache is None else self.cache.matches(job.segments, job.held - 1).tokens
