"""Requests of a simulation: made by a rate and lengths, kept going by users, or recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from cost.serving.lengths import Lengths

Array = NDArray[np.float64]

ARRIVALS = ("poisson", "constant", "bursty")
BURSTY_SHAPE = 0.25
"""Shape of the gamma distribution of times between bursty arrivals: four times the variance of Poisson's."""
BLOCK_TOKENS = 512
"""Tokens of a block of Mooncake's traces and of AIPerf's, and of prompts of conversations."""
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
    blocks:
        Identities of the blocks of ``block`` tokens of each prompt; empty: prompts share nothing.
    made:
        Whether they were made; else recorded.
    begun:
        Tokens of their answers that the first so many have already, each in an engine that decodes it; ``tail``: the
        last so many keep up the load for those before.
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
    blocks: Sequence[Sequence[int]] = ()
    block: int = BLOCK_TOKENS
    made: bool = True
    begun: Sequence[int] = ()
    tail: int = 0
    after: Sequence[int] = ()
    delays_s: Sequence[float] = ()
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.isl)

    def at_rate(self, requests_per_s: float) -> Requests:
        """Return the same requests, sent at another mean rate."""
        scale = self.rate / requests_per_s
        starts, delays = ([at * scale for at in times] for times in (self.starts_s, self.delays_s))
        return replace(self, starts_s=starts, delays_s=delays)

    @property
    def rate(self) -> float:
        """Requests per second on average."""
        return (len(self) - 1) / max(self.starts_s[-1] - self.starts_s[0], 1e-12) if len(self) > 1 else 1.0

    @property
    def lengths(self) -> Lengths:
        """About the same lengths as a mix of :data:`LENGTH_KINDS`: equal numbers of requests by prompt, with means.

        What a cache of all blocks seen before would hold is its part of the prompts.
        """
        rows = sorted(zip(self.isl, self.osl, strict=True))
        parts = [part for part in np.array_split(np.array(rows, dtype=np.float64), LENGTH_KINDS) if len(part)]
        means = [np.maximum(1, np.rint(part.mean(axis=0))).astype(int).tolist() for part in parts]
        cached_blocks: set[int] = set()
        hits = 0
        for blocks, isl in zip(self.blocks, self.isl, strict=False):
            known = sum(1 for _ in takewhile(cached_blocks.__contains__, blocks))
            hits += min(known * self.block, isl - 1)
            cached_blocks.update(blocks)
        return Lengths(
            tuple(isl for isl, _ in means),
            tuple(osl for _, osl in means),
            tuple(len(part) / len(rows) for part in parts),
            prefix_hit=hits / sum(self.isl),
        )


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
    shape = {"poisson": 1.0, "bursty": BURSTY_SHAPE}.get(arrivals)
    gaps = np.ones(number) if shape is None else random.gamma(shape, 1 / shape, number)
    sigma = math.sqrt(math.log1p(cv * cv))

    def drawn(tokens: Sequence[int]) -> Array:
        spread = np.exp(sigma * random.standard_normal(number) - sigma * sigma / 2) if sigma else 1.0
        return np.maximum(1.0, np.rint(np.array(tokens, dtype=np.float64)[kind] * spread))

    isl, osl = drawn(lengths.isl), drawn(lengths.osl)
    cached = np.minimum(np.floor(lengths.prefix_hit * isl), isl - 1)
    starts = np.zeros(min(users, number)) if users else np.cumsum(gaps) / requests_per_s

    def as_counts(tokens: Array) -> list[int]:
        return [int(count) for count in tokens.tolist()]

    return Requests(starts.tolist(), as_counts(isl), as_counts(osl), as_counts(cached), users)
