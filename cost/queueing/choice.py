"""The way of serving whole requests that keeps limits at most requests per second, waiting included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cost.queueing.load import NEAR, LoadLimits, most_requests, under_load
from cost.queueing.pools import EnginePools, pools_of
from cost.queueing.requests import Requests
from cost.queueing.simulation import ROUTERS
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving
from topology.base.errors import InfeasibleError

STRICTER = ((1.0, 1.0), (1.0, 0.5), (0.7, 1.0), (0.7, 0.5), (0.5, 0.5))
"""Parts of the limits per token and to the first one at which the best without waiting is a candidate: waiting and
batches that vary take the rest."""

Make = Callable[[float, int], Requests]


@dataclass(frozen=True, eq=False)
class Choice:
    """A way of serving whole requests.

    Attributes
    ----------
    pools, make:
        Its engines, and what makes requests for them by rate and seed.
    requests_per_s:
        The most that keep the limits, of one stream; None: none do.
    """

    row: RateMatch
    pools: EnginePools
    make: Make
    requests_per_s: float | None


def best_under_load(
    serving: Serving,
    limits: LoadLimits,
    make_for: Callable[[EnginePools], Make],
    router: str = ROUTERS[0],
    on_try: Callable[[float, bool], None] | None = None,
) -> Choice | None:
    """Return the candidate that keeps ``limits`` at most requests per second; None where no layout fits them.

    Where none keeps them at any rate, it is the one with most throughput without waiting.
    """
    best: Choice | None = None
    for row in candidates(serving, limits):
        pools = pools_of(serving, row)
        one = Choice(row, pools, make_for(pools), None)
        least = None if best is None or best.requests_per_s is None else best.requests_per_s * (1 + NEAR)
        if least is not None:
            tried = under_load(pools, one.make(least, 0), limits, router)
            if not tried.keeps or tried.grows:
                continue
        near = least or row.requests_per_s / 2
        try:
            found = most_requests(pools, one.make, limits, near, router, on_try, seeds=1)
        except InfeasibleError:
            best = best or one
            continue
        best = replace(one, requests_per_s=found.requests_per_s)
    return best


def candidates(serving: Serving, limits: LoadLimits) -> list[RateMatch]:
    """Return the best of each way within the limits and within :data:`STRICTER` ones, each once."""
    found: dict[object, RateMatch] = {}
    for token, first in STRICTER:
        tpot_s = None if limits.tpot_s is None else token * limits.tpot_s
        ttft_s = None if limits.ttft_s is None else first * limits.ttft_s
        for row in replace(serving, ttft_s=ttft_s, _known={}).bests(tpot_s).values():
            sides = serving.sides(row)
            key = tuple((role, int(side.layout[at]), workers) for role, side, at, workers in sides)
            found.setdefault(key, row)
    return list(found.values())
