"""The way of serving whole requests that keeps limits at most requests per second, waiting included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cost.inputs.deployment import Deployment
from cost.queueing.load import RATE_TOLERANCE, LoadLimits, most_requests, stream_of, under_load
from cost.queueing.pools import EnginePools, pools_of
from cost.queueing.requests import Requests
from cost.queueing.simulation import ROUTERS
from cost.serving.lengths import Lengths
from cost.serving.limits import rounded_up
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving
from cost.serving.supply import Served, Supply
from cost.serving.units import MAX_JOINED_GPUS, joined_units, served_on
from topology.base.errors import InfeasibleError, InputError, input_name

STRICTER_LIMITS = ((1.0, 1.0), (1.0, 0.5), (0.7, 1.0), (0.7, 0.5), (0.5, 0.5))
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
    make_for: Callable[[EnginePools], Make] | None = None,
    router: str = ROUTERS[0],
    on_try: Callable[[float, bool], None] | None = None,
) -> Choice | None:
    """Return the candidate that keeps ``limits`` at most requests per second; None where no layout fits them.

    ``make_for``: what makes the requests for engines; None: of the lengths that are served, at random times.

    Where none keeps them at any rate, it is the one with most throughput without waiting.
    """
    make_for = make_for or (lambda pools: stream_of(pools, serving.lengths))
    best: Choice | None = None
    for row in candidates(serving, limits):
        pools = pools_of(serving, row)
        choice = Choice(row, pools, make_for(pools), None)
        least = (
            None
            if best is None or best.requests_per_s is None
            else best.requests_per_s * (1 + RATE_TOLERANCE)
        )
        if least is not None:
            tried = under_load(pools, choice.make(least, 0), limits, router)
            if not tried.keeps or tried.grows:
                continue
        near = least or row.requests_per_s / 2
        try:
            highest = most_requests(pools, choice.make, limits, near, router, on_try, seeds=1)
        except InfeasibleError:
            best = best or choice
            continue
        best = replace(choice, requests_per_s=highest.requests_per_s)
    return best


def match_under_load(serving: Serving, limits: LoadLimits) -> RateMatch:
    """Return the match that keeps ``limits`` at most requests per second, at that rate.

    Raises
    ------
    InfeasibleError
        If none keeps them at any: the best that can be reached.
    """
    best = best_under_load(serving, limits)
    if best is None or best.requests_per_s is None:
        raise out_of_reach(serving, limits)
    return serving.at_rate(best.row, best.requests_per_s)


def candidates(serving: Serving, limits: LoadLimits) -> list[RateMatch]:
    """Return the best of each way within the limits and within :data:`STRICTER_LIMITS` ones, each once.

    Besides, of each way, what makes the first token soonest without waiting: it has most time to wait.
    """
    rows: list[RateMatch] = []
    for token, first_token in STRICTER_LIMITS:
        tpot_s = None if limits.tpot_s is None else token * limits.tpot_s
        ttft_s = None if limits.ttft_s is None else first_token * limits.ttft_s
        rows += replace(serving, ttft_s=ttft_s, _known={}).bests(tpot_s).values()
    for matches in replace(serving, ttft_s=limits.ttft_s, _known={}).ways(limits.tpot_s).values():
        if len(matches):
            rows.append(matches.row(int(np.argmin(matches.prefill_s + matches.transfer_s))))
    matches_by_layout: dict[object, RateMatch] = {}
    for row in rows:
        sides = serving.sides(row)
        key = tuple((role, int(side.layout[at]), workers) for role, side, at, workers in sides)
        matches_by_layout.setdefault(key, row)
    return list(matches_by_layout.values())


def loaded_supply(
    deployment: Deployment, lengths: Lengths, ttft_s: float | None, limits: LoadLimits
) -> Supply:
    """Return what units of a machine serve while 99 % of requests meet ``limits``, each unit separately.

    Units are joined only where the model, or the limits, need more than one. ``ttft_s``: longest time to the first
    token without waiting.
    """

    def joined(_tpot_s: float | None) -> dict[int, Served]:  # of one limit
        refused: Exception = InfeasibleError(
            f"{deployment.model.name} does not fit {deployment.cluster.name}."
        )
        for units, cluster in joined_units(deployment.cluster)[0].items():
            if units > 1 and len(cluster.gpus) > MAX_JOINED_GPUS:
                break
            try:
                serving = Serving.of(
                    replace(deployment, cluster=cluster),
                    lengths,
                    ttft_s=ttft_s,
                    speeds=[] if limits.tpot_s is None else [1 / limits.tpot_s],
                )
                return {units: served_on(serving, units, match_under_load(serving, limits))}
            except (InputError, InfeasibleError) as error:
                refused = error
        raise refused

    return Supply((1,), np.zeros(0), joined)


def out_of_reach(serving: Serving, limits: LoadLimits) -> InfeasibleError:
    """Return which limit no layout keeps even without waiting, or that none keeps them under any load."""
    where = serving.decode.deployment.cluster.name
    speeds = [matches.tok_s_per_user.max() for matches in serving.ways().values() if len(matches)]
    name, limit_s, least_s = "ttft_p99_ms", limits.ttft_s, serving.fastest_ttft_s
    if speeds and limits.tpot_s is not None and limits.tpot_s < 1 / float(max(speeds)):
        name, limit_s, least_s = "tpot_ms", limits.tpot_s, 1 / float(max(speeds))
    token = "an output token" if name == "tpot_ms" else "the first token"
    alone = f"{token} takes {rounded_up(least_s * 1e3)} ms at best, queueing excluded"
    return InfeasibleError(
        f"{input_name(name)} {(limit_s or 0.0) * 1e3:g} is out of reach on {where} at the 99th percentile: "
        f"{alone}; relax the limit, or use faster or more GPUs."
    )
