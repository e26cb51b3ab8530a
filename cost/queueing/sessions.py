"""Conversations as a workload: made from turns and times between them, or recorded."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from cost.quantity import MAX_CONTEXT_TOKENS
from cost.queueing.requests import ENGINE_BLOCK, Requests, gaps, spread
from cost.queueing.traces import read_trace
from cost.serving.lengths import Lengths
from topology.base.errors import InputError, input_name
from topology.base.reading import nearest
from topology.base.units import parse_length, parse_quantity, plain_number

COUNTED, MAX_COUNTED = 2_000, 12_000
"""Turns of made conversations that count at least, and at most; between these two for each conversation going on."""
WARM_CYCLES, COUNTED_CYCLES = 2, 2
"""Turns of each conversation before those that count, in the first of which no cache has it, and that count."""
LENGTHS_OF = 400
"""Turns, about, of which the lengths are taken."""
TAIL_SHARE = 0.05
"""Part of the turns, the last ones, during which conversations end that no new ones replace."""


@dataclass(frozen=True)
class MadeSessions:
    """Conversations of equal turns.

    Attributes
    ----------
    turns:
        Requests of a conversation.
    system:
        Tokens that all conversations begin with; ``isl`` more in the first prompt, and ``osl`` in each answer.
    new:
        Tokens that each later prompt adds to all that was said, or below 1 the share of the prompt that they are.
    think_s, tool_s, tools:
        Mean seconds between an answer and the next turn: of a user, and of a tool; ``tools`` of these follow each
        turn of a user.
    open:
        Whether turns come at their times even if the answer before is not there yet.
    """

    turns: int
    isl: int
    osl: int
    new: float = 0.0
    system: int = 0
    think_s: float = 0.0
    tool_s: float = 0.0
    tools: int = 0
    open: bool = False

    def __post_init__(self) -> None:
        if len(self.prompts) < self.turns:
            raise InputError(
                f"turn {len(self.prompts) + 1} of {self.turns} has more than {MAX_CONTEXT_TOKENS:,} tokens, the most "
                "that are simulated: take fewer turns, or let each add less.",
                field="sessions",
            )

    @cached_property
    def prompts(self) -> list[int]:
        """Tokens of each turn's prompt with all that was said before, ``[turns]``: as many as can be simulated."""
        prompts: list[int] = []
        prompt = self.system + self.isl
        while len(prompts) < self.turns and prompt + self.osl <= MAX_CONTEXT_TOKENS:
            prompts.append(prompt)
            context = prompt + self.osl
            prompt = context + self._added(context)
        return prompts

    def _added(self, context: int) -> int:
        """Return the tokens that a prompt adds to the context before it."""
        return max(1, round(self.new if self.new >= 1 else context * self.new / (1 - self.new)))

    def _before_s(self, turn: int) -> float:
        """Return the mean seconds between an answer and a turn, counted from 0."""
        return self.tool_s if turn % (self.tools + 1) else self.think_s

    @property
    def pause_s(self) -> float:
        """Mean seconds between an answer and the next turn."""
        return math.fsum(map(self._before_s, range(1, self.turns))) / max(1, self.turns - 1)

    @cached_property
    def lengths(self) -> Lengths:
        """Lengths of all turns, with the hits of a cache that forgets nothing."""
        return self.at(1.0, 0.0, sessions=2 + LENGTHS_OF // self.turns, arrivals="constant").lengths

    def at(
        self,
        requests_per_s: float,
        stay_s: float,
        *,
        cv: float = 0.0,
        arrivals: str = "poisson",
        seed: int = 0,
        sessions: int | None = None,
    ) -> Requests:
        """Return conversations that begin at a rate which makes so many requests per second.

        ``stay_s``: about how long an engine has a request. Those that would be going on when the first begins are in
        it, each at a turn of its own that no cache has yet.

        Parameters
        ----------
        cv, arrivals:
            Spread of the new tokens of each turn and of the answers; how starts and pauses are spread, as of
            :func:`cost.queueing.requests.made_requests`.
        sessions:
            So many, from the first turn on and all of them; None: as many as steady percentiles need.
        """
        random = np.random.default_rng(seed)
        if sessions is not None:
            starts = np.cumsum(gaps(random, sessions, arrivals)) * self.turns / requests_per_s
            return self._requests(random, starts.tolist(), [0] * sessions, cv, arrivals)
        cycle_s = self.pause_s * (self.turns - 1) / self.turns + stay_s
        old = max(1, round(requests_per_s * cycle_s))
        counted = min(MAX_COUNTED, max(COUNTED, COUNTED_CYCLES * old))
        total = WARM_CYCLES * old + counted / (1 - TAIL_SHARE)
        end_s, new = total / requests_per_s, max(1, round(total / self.turns))
        starts = np.cumsum(gaps(random, new + 1, arrivals))
        first = np.sort(random.uniform(0, cycle_s, old))
        made = self._requests(
            random,
            [*first.tolist(), *(starts[:-1] * end_s / starts[-1]).tolist()],
            [*random.permutation(np.arange(old) % self.turns).tolist(), *[0] * new],
            cv,
            arrivals,
            end_s,
        )
        warm = int(np.searchsorted(made.starts_s, WARM_CYCLES * cycle_s))
        return replace(made, warm=min(warm, len(made) // 2), tail=round(TAIL_SHARE * len(made)))

    def of_users(self, users: int, *, cv: float = 0.0, arrivals: str = "poisson", seed: int = 0) -> Requests:
        """Return conversations of ``users`` who each have one at a time, the first ones at any turn of theirs.

        Raises
        ------
        InputError
            If turns are open: no user is waiting.
        """
        if self.open:
            raise InputError(
                f"open turns wait for nobody; give {input_name('req_s')} instead.",
                field="concurrency",
                value=users,
            )
        random = np.random.default_rng(seed)
        total = round(WARM_CYCLES * users + max(COUNTED, min(MAX_COUNTED, COUNTED_CYCLES * users)))
        more = math.ceil(total / self.turns)
        first = random.uniform(0, max(self.pause_s, 1e-9), users)
        made = self._requests(
            random,
            [*first.tolist(), *[math.inf] * more],
            [*random.integers(0, self.turns, users).tolist(), *[0] * more],
            cv,
            arrivals,
        )
        return replace(made, users=users, warm=WARM_CYCLES * users, tail=users)

    def _requests(
        self,
        random: np.random.Generator,
        starts_s: list[float],
        first_turns: list[int],
        cv: float,
        arrivals: str,
        end_s: float = math.inf,
    ) -> Requests:
        """Return conversations that begin at times, each at a turn, in the order of turns up to ``end_s``."""
        numbers = count(1)
        sizes = {0: self.system} if self.system else {}

        def turns(session: int) -> Iterator[tuple[float, int, list[int], int, float]]:
            at, context, segments = starts_s[session], self.system, [0] * bool(self.system)
            skipped = first_turns[session]
            for turn in range(self.turns):
                means = [self.isl if turn == 0 else self._added(context), self.osl]
                added, answer = spread(random, np.array(means, dtype=np.float64), cv)
                pause_s = 0.0
                if turn > skipped:
                    times = "constant" if arrivals == "constant" else "poisson"
                    pause_s = self._before_s(turn) * float(gaps(random, 1, times)[0])
                    at += pause_s
                for tokens in (added, answer):
                    segments = [*segments, next(numbers)]
                    sizes[segments[-1]] = tokens
                context += added + answer
                if turn >= skipped:
                    yield at, context - answer, segments, answer, pause_s

        streams = {session: turns(session) for session in range(len(starts_s))}
        queue = [(at, session) for session, at in enumerate(starts_s)]
        heapq.heapify(queue)
        rows: list[tuple[float, int, list[int], int, float, int]] = []
        last: dict[int, int] = {}
        waiting: dict[int, tuple[float, int, list[int], int, float]] = {}
        while queue and (queue[0][0] <= end_s or not rows):
            _, session = heapq.heappop(queue)
            row = waiting.pop(session, None) or next(streams[session])
            rows.append((*row, -1 if self.open else last.get(session, -1)))
            last[session] = len(rows) - 1
            following = next(streams[session], None)
            if following is not None:
                waiting[session] = following
                heapq.heappush(queue, (following[0], session))
        at, isl, segments, osl, pauses, after = zip(*rows, strict=True)
        finite = [0.0 if math.isinf(start) else start for start in at]
        return Requests(
            finite,
            list(isl),
            list(osl),
            [0] * len(rows),
            segments=list(segments),
            sizes=sizes,
            answers=[1] * len(rows),
            block=ENGINE_BLOCK,
            after=list(after),
            delays_s=list(pauses),
        )


@dataclass(frozen=True, eq=False)
class RecordedSessions:
    """Conversations of a file, with its own pauses."""

    requests: Requests

    @cached_property
    def lengths(self) -> Lengths:
        """Lengths of all turns, with the hits of a cache that forgets nothing."""
        return self.requests.lengths

    @property
    def pause_s(self) -> float:
        """Mean seconds between an answer and the next turn."""
        pauses = [
            delay
            for delay, before in zip(self.requests.delays_s, self.requests.after, strict=True)
            if before >= 0
        ]
        return math.fsum(pauses) / max(1, len(pauses))

    @property
    def at_once(self) -> float:
        """Conversations going on at a time where a quarter of them is."""
        return max(1.0, sum(before < 0 for before in self.requests.after or [-1]) / 4)

    def at(
        self,
        requests_per_s: float,
        stay_s: float,  # noqa: ARG002 - recorded ones begin with empty caches
        *,
        cv: float = 0.0,  # noqa: ARG002 - lengths are recorded
        arrivals: str = "poisson",
        seed: int = 0,
    ) -> Requests:
        """Return them with starts that make so many requests per second; turns without answers to wait for too."""
        requests = self.requests
        if not requests.after:
            return requests.at_rate(requests_per_s)
        random = np.random.default_rng(seed)
        sessions = sum(before < 0 for before in requests.after)
        begins = np.cumsum(gaps(random, sessions, arrivals)) * len(requests) / sessions / requests_per_s
        return requests.begun_at(begins.tolist())

    def of_users(self, users: int, *, cv: float = 0.0, arrivals: str = "poisson", seed: int = 0) -> Requests:  # noqa: ARG002
        """Return them in order, ``users`` at a time."""
        return replace(self.requests, users=users)


Sessions = MadeSessions | RecordedSessions


def sessions_of(text: str) -> Sessions:
    """Read conversations: a file or folder of them, or words like :data:`SPELLING`.

    Raises
    ------
    InputError
        If a file cannot be read, or what is given is none.
    """
    if Path(text).exists() or "=" not in text:
        return RecordedSessions(read_trace(text, timed=False))
    return _parsed(text)


def _parsed(text: str) -> MadeSessions:
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        where = f"{input_name('sessions')} {part.strip()}"
        field, read = _FIELDS.get(name, ("", _nothing))
        if not field:
            raise InputError(f"{where}: {name!r} is none; {nearest(name, _FIELDS)}")
        if field in values:
            raise InputError(f"{where}: {name} is there twice.")
        values[field] = read(value, where)
    needed = ["turns", "isl", "osl", *["new"] * (values.get("turns", 1) > 1)]
    missing = [name for name in needed if not values.get(name)]
    if missing:
        raise InputError(
            f"{input_name('sessions')} {text}: {missing[0]} is missing, as in {SPELLING}; or there is no such file."
        )
    return MadeSessions(**values)


def _length(text: str, where: str) -> int:
    length = parse_length(text, where)
    if not length:
        raise InputError(f"{where}: expected 1 or more.")
    return length


def _seconds(text: str, where: str) -> float:
    number = plain_number(text)
    if number is not None and number < 0:
        raise InputError(f"{where}: expected 0 seconds or more.")
    return parse_quantity(text, "s", where) if number is None else number


def _new(text: str, where: str) -> float:
    if not text.endswith("%"):
        return _length(text, where)
    share = (plain_number(text[:-1]) or 0.0) / 100
    if not 0 < share < 1:
        raise InputError(f"{where}: expected a share of the prompt above 0% and below 100%.")
    return share


def _nothing(text: str, where: str) -> bool:
    if text:
        raise InputError(f"{where}: it takes no value.")
    return True


SPELLING = "turns=8,isl=4k,new=500,osl=300,think=30s"
_FIELDS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "turns": ("turns", _length),
    "system": ("system", parse_length),
    "isl": ("isl", _length),
    "new": ("new", _new),
    "osl": ("osl", _length),
    "think": ("think_s", _seconds),
    "tool": ("tool_s", _seconds),
    "tools": ("tools", parse_length),
    "open": ("open", _nothing),
}
