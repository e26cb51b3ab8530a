"""Requests of a simulation: made by a rate and lengths, kept going by users, or recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.serving.lengths import Lengths

Array = NDArray[np.float64]
T = TypeVar("T")

ARRIVALS = ("poisson", "constant", "bursty")
BURSTY_SHAPE = 0.25
"""Shape of the gamma distribution of times between bursty arrivals: four times the variance of Poisson's."""
BLOCK_TOKENS = 512
"""Tokens of a block of Mooncake's traces and of AIPerf's."""
ENGINE_BLOCK = 16
"""Tokens of a block of vLLM's cache (its default block_size), by which conversations lose what has no room."""
LENGTH_KINDS = 6
"""Lengths that stand for those of a trace where layouts are priced."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order in which they are sent.

    Attributes
    ----------
    starts_s:
        When each is sent, rising; of ``users`` (0: nobody waits) only their first ones, then each when one ends.
    isl, osl, cached:
        Tokens of the prompt, of the answer, and of the prompt that a cache holds whatever was served before.
    segments, sizes:
        What each prompt and its answer are made of: runs of tokens that prompts share as a whole, by their number,
        and the tokens of each; empty: prompts share nothing.
    answers, block:
        How many of the last segments of each are its answer; tokens of a block of a cache.
    made:
        Whether they were made; else recorded.
    begun:
        Tokens of their answers that the first so many have already, each in an engine that decodes it; ``warm``: so
        many first ones fill the caches of conversations; ``tail``: so many last ones only keep up the load.
    after, delays_s:
        The request whose answer each waits for (-1: none) and how long after it, of conversations; empty: of none.
        ``starts_s`` of those that wait is then when they would be sent if answers took no time.
    left_out:
        Rows of a recording that were no requests: those that failed.
    """

    starts_s: Sequence[float]
    isl: Sequence[int]
    osl: Sequence[int]
    cached: Sequence[int]
    users: int = 0
    segments: Sequence[Sequence[int]] = ()
    sizes: Mapping[int, int] = field(default_factory=dict)
    answers: Sequence[int] = ()
    block: int = BLOCK_TOKENS
    made: bool = True
    begun: Sequence[int] = ()
    tail: int = 0
    warm: int = 0
    after: Sequence[int] = ()
    delays_s: Sequence[float] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.isl)

    def at_rate(self, requests_per_s: float) -> Requests:
        """Return the same requests at another mean rate: conversations begin at it, and keep their pauses."""
        scale = self.rate / requests_per_s
        if not self.after:
            return replace(self, starts_s=[at * scale for at in self.starts_s])
        pairs = zip(self.starts_s, self.after, strict=True)
        return self.begun_at([at * scale for at, before in pairs if before < 0])

    def begun_at(self, starts_s: Sequence[float]) -> Requests:
        """Return the same conversations, beginning at other times."""
        begins = iter(starts_s)
        at: list[float] = []
        for before, delay in zip(self.after, self.delays_s, strict=True):
            at.append(next(begins) if before < 0 else at[before] + delay)
        order = sorted(range(len(self)), key=at.__getitem__)
        place = {row: number for number, row in enumerate(order)} | {-1: -1}

        def sorted_(column: Sequence[T]) -> list[T]:
            return [column[row] for row in order] if column else []

        return replace(
            self,
            starts_s=sorted_(at),
            isl=sorted_(self.isl),
            osl=sorted_(self.osl),
            cached=sorted_(self.cached),
            segments=sorted_(self.segments),
            answers=sorted_(self.answers),
            after=[place[self.after[row]] for row in order],
            delays_s=sorted_(self.delays_s),
        )

    @property
    def rate(self) -> float:
        """Requests per second on average."""
        return (len(self) - 1) / max(self.starts_s[-1] - self.starts_s[0], 1e-12) if len(self) > 1 else 1.0

    @property
    def lengths(self) -> Lengths:
        """About the same lengths as a mix of :data:`LENGTH_KINDS`: equal numbers of requests by prompt, with means.

        What a cache of all that was seen before would hold is its part of the prompts.
        """
        rows = sorted(zip(self.isl, self.osl, strict=True))
        parts = [part for part in np.array_split(np.array(rows, dtype=np.float64), LENGTH_KINDS) if len(part)]
        means = [np.maximum(1, np.rint(part.mean(axis=0))).astype(int).tolist() for part in parts]
        seen: set[int] = set()
        hits = 0
        for segments, isl in zip(self.segments, self.isl, strict=False):
            hits += min(sum(map(self.sizes.__getitem__, takewhile(seen.__contains__, segments))), isl - 1)
            seen.update(segments)
        return Lengths(
            tuple(isl for isl, _ in means),
            tuple(osl for _, osl in means),
            tuple(len(part) / len(rows) for part in parts),
            prefix_hit=hits / sum(self.isl),
        )


def gaps(random: np.random.Generator, number: int, arrivals: str) -> Array:
    """Return times between arrivals with a mean of 1."""
    shape = {"poisson": 1.0, "bursty": BURSTY_SHAPE}.get(arrivals)
    return np.ones(number) if shape is None else random.gamma(shape, 1 / shape, number)


def spread(random: np.random.Generator, tokens: Array, cv: float) -> list[int]:
    """Return lengths with means of ``tokens``, log-normal with ``cv``, at least 1."""
    sigma = math.sqrt(math.log1p(cv * cv))
    factors = np.exp(sigma * random.standard_normal(len(tokens)) - sigma * sigma / 2) if sigma else 1.0
    return [int(length) for length in np.maximum(1.0, np.rint(tokens * factors)).tolist()]


def segmented(
    blocks: Sequence[Sequence[int]], prompts: Sequence[int], tokens: Mapping[int, int]
) -> tuple[list[list[int]], dict[int, int], list[int]]:
    """Return blocks of requests joined to segments: their numbers, the tokens of each, and how many are of answers.

    ``prompts``: blocks of each that are of its prompt; ``tokens`` of each block. Blocks that always follow each other
    are one segment, with the number of the last: a cache that drops ends of segments block by block keeps the same.
    """
    numbers = {name: number for number, name in enumerate(tokens)}
    lengths = np.array([len(row) for row in blocks], dtype=np.int64)
    flat = np.fromiter(map(numbers.__getitem__, chain.from_iterable(blocks)), np.int64, int(lengths.sum()))
    stops = np.cumsum(lengths)
    starts, last = stops - lengths, np.zeros(len(flat), dtype=bool)
    last[stops[lengths > 0] - 1] = True
    ends, forks, joins = (np.zeros(len(numbers) + 1, dtype=bool) for _ in range(3))
    inner = np.flatnonzero(~last)  # blocks that another one follows
    left, right = flat[inner], flat[inner + 1]
    beside = np.zeros(len(numbers), dtype=np.int64)
    for here, there, several in ((left, right, forks), (right, left, joins)):
        beside[here] = there  # one of them; where there are others, they differ from it
        several[here[beside[here] != there] + 1] = True
    joins[flat[starts[lengths > 0]] + 1] = True
    cuts = starts + np.maximum(np.asarray(prompts, dtype=np.int64), 1) - 1
    ends[flat[cuts[lengths > 0]] + 1] = True
    ends[flat[last] + 1] = True
    following = np.append(flat[1:], -1) + 1
    closes = last | ends[flat + 1] | forks[flat + 1] | joins[following]
    names, sizes_of = list(tokens), np.array([*tokens.values()], dtype=np.int64)
    at = np.flatnonzero(closes)
    totals = np.diff(np.cumsum(sizes_of[flat])[at], prepend=0)
    closing = [names[number] for number in flat[at].tolist()]
    sizes = dict(zip(closing, totals.tolist(), strict=True))
    low, high = np.searchsorted(at, starts), np.searchsorted(at, stops)
    inside = np.searchsorted(at, starts + np.asarray(prompts, dtype=np.int64))
    rows = [closing[begin:end] for begin, end in zip(low.tolist(), high.tolist(), strict=True)]
    return rows, sizes, (high - inside).tolist()


def made_requests(
    lengths: Lengths,
    number: int,
    *,
    requests_per_s: float = 1.0,
    users: int = 0,
    arrivals: str = ARRIVALS[0],
    cv: float = 0.0,
    seed: int = 0,
) -> Requests:
    """Return ``number`` requests of some lengths.

    Parameters
    ----------
    requests_per_s, arrivals:
        Mean rate, and one of :data:`ARRIVALS`.
    users:
        Instead of a rate: each sends a request, waits for its answer and sends the next.
    cv:
        Standard deviation over mean of the lengths of prompts and of answers, log-normal; 0: as ``lengths`` has them.
    """
    random = np.random.default_rng(seed)
    kind = random.choice(len(lengths.isl), number, p=np.array(lengths.share))
    between = gaps(random, number, arrivals)
    isl, osl = (
        spread(random, np.array(tokens, dtype=np.float64)[kind], cv) for tokens in (lengths.isl, lengths.osl)
    )
    cached = [min(math.floor(lengths.prefix_hit * tokens), tokens - 1) for tokens in isl]
    starts = np.zeros(min(users, number)) if users else np.cumsum(between) / requests_per_s
    return Requests(starts.tolist(), isl, osl, cached, users)
