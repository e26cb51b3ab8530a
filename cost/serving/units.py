"""1, 2, 4... units of a machine joined by their own fabric, priced: what they give in decode, pools or fleets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, best_at, sweep
from cost.serving.lengths import Lengths
from cost.serving.pools import RateMatch
from cost.serving.serving import TWO_POOLS, Serving
from cost.serving.supply import FULL_PART, Part, Pool, Served, Supply, merged
from cost.serving.token_prices import token_shares
from cost.step.step import near_runs
from topology.base.errors import InfeasibleError, InputError, NoAnswerError
from topology.changes.repeat import alike, repeated
from topology.cluster import Cluster

MAX_JOINED_GPUS = 512
"""GPUs of the units that are priced as joined by their fabric, at most: wider replicas have not paid yet."""
_MAX_TRIED_GPUS = 4608
"""GPUs of as many units as are joined at most where a model fits no fewer."""
MAX_FLEET_GPUS = 300
"""GPUs on which a fleet of different shapes is made, at most: on more it gains next to nothing."""
_FLEET_GAIN = 1.25, 20.0
"""Times the tokens of one shape that a fleet may give: at most the first, and 1 more than the second over the GPUs.
More was not seen: 1.11 on 72 and 144, 1.03 on 288."""

FleetOn = Callable[[int], Served]
"""Makes one fleet on all of so many units joined; raises InfeasibleError or NoAnswerError where there is none."""


def layout_supply(
    deployment: Deployment,
    lengths: Lengths | None,
    tpots: Sequence[float],
    ttft_s: float | None,
    redundant: int | None,
    imbalance: float | None,
) -> tuple[Supply, str]:
    """Sweep 1, 2, 4... units: what they give with one layout a pool, and why they are not joined (empty: they are).

    At the times per token ``tpots`` each layout has its exact batch.
    """
    unit = deployment.cluster
    units, unjoined = joined_units(unit)
    speeds = [1 / tpot_s for tpot_s in tpots]
    if lengths is None:
        balance = 1.0 if imbalance is None else imbalance

        def swept(priced_units: Deployment) -> Sweep:
            return sweep(priced_units, redundant=redundant, imbalance=balance, speeds=speeds)

        return _decode_supply(
            _enough_units(units, deployment, swept, lambda priced_units: priced_units.shortage_bytes)
        ), unjoined
    # pools are shared by any number of domains that are alike; those of unlike ones stay inside what is swept
    shares = alike(unit.spec) and len(units) > 1
    widest = max(
        k
        for k, priced_units in units.items()
        if k == 1 or len(priced_units.gpus) <= MAX_JOINED_GPUS or k == 2
    )
    tried = {k: priced_units for k, priced_units in units.items() if not shares or k == 1 or k >= widest}

    def priced(priced_units: Deployment) -> Serving:
        return Serving.of(
            priced_units, lengths, ttft_s=ttft_s, speeds=speeds, redundant=redundant, imbalance=imbalance
        )

    servings = _enough_units(
        tried,
        deployment,
        priced,
        lambda priced_units: max(priced_units.decode.shortage_bytes, priced_units.prefill.shortage_bytes),
    )
    return _pooled_supply(
        [k for k in units if k <= max(servings)], servings, shares, unit_domains(unit)
    ), unjoined


def _decode_supply(sweeps: Mapping[int, Sweep]) -> Supply:
    """Decode alone: of units joined the best at a time per token."""

    def joined(tpot_s: float | None) -> dict[int, Served]:
        target = 0.0 if tpot_s is None else 1 / tpot_s
        best = {k: best_at(swept, target) for k, swept in sweeps.items()}
        return {
            k: Served(
                units=k,
                tok_s=float(sweeps[k].tok_s[row]),
                tok_s_per_user=float(sweeps[k].tok_s_per_user[row]),
                pools=(_pool("decode", sweeps[k], row, int(sweeps[k].replicas[row])),),
                joined=k,
            )
            for k, row in best.items()
            if row is not None
        }

    return Supply(list(sweeps), _tpots(sweeps.values()), joined)


def _pooled_supply(
    joinable: Sequence[int], servings: Mapping[int, Serving], shares: bool, domains: int
) -> Supply:
    """Whole requests, the best of three: one pool or two inside 1, 2, 4... units, or two that all units share.

    Parameters
    ----------
    servings:
        By units joined; where units share pools (``shares``) those have replicas as on the most of them joined.
    domains:
        Domains of a unit.
    """
    shared = servings[max(servings)] if shares else None
    unshared = {k: serving for k, serving in servings.items() if shared is None or k == 1}
    servings_tried = [*unshared.values(), *([] if shared is None else [shared])]

    def joined(tpot_s: float | None) -> dict[int, Served]:
        return {
            k: served_on(serving, k, best)
            for k, serving in unshared.items()
            if (best := serving.best(tpot_s)) is not None
        }

    def shared_pools(units: int, tpot_s: float | None) -> Served | None:
        # a domain alone has pools of its own, whose caches take the links inside it
        if shared is None or units * domains == 1:
            return None
        best = shared.bests(tpot_s, units * domains).get(TWO_POOLS)
        return None if best is None else served_on(shared, units, best)

    return Supply(
        joinable,
        _tpots(
            side for serving in servings_tried for side in (serving.decode, serving.both) if side is not None
        ),
        joined,
        shared_pools,
        lambda: min(serving.fastest_ttft_s for serving in servings_tried),
    )


def served_on(serving: Serving, units: int, best: RateMatch) -> Served:
    """Return what one match gives on so many units joined."""
    return Served(
        units=units,
        tok_s=best.requests_per_s * best.osl,
        tok_s_per_user=best.tok_s_per_user,
        pools=merged(
            _pool(role, swept, row, workers, None if role == "prefill" else best)
            for role, swept, row, workers in serving.sides(best)
        ),
        joined=units,
        ttft_s=best.ttft_s,
        requests_per_s=best.requests_per_s,
        shares=partial(token_shares, serving, best),
    )


def fleet_supply(unit: Cluster, fleet: FleetOn) -> Supply:
    """Fleets of different shapes, each on one unit, or on two where the model does not fit one."""

    def joined(_tpot_s: float | None) -> dict[int, Served]:  # a fleet is of one limit
        refused: InfeasibleError | NoAnswerError | None = None
        # a raw graph, or one without a fabric, is not joined to another
        for units in (1,) if unit.spec.raw is not None or unit.spec.scale_out is None else (1, 2):
            try:
                return {units: fleet(units)}
            except (InfeasibleError, NoAnswerError) as error:
                refused = error
        assert refused is not None  # noqa: S101 - one was tried
        raise refused

    return Supply((1,), np.zeros(0), joined)


def with_fleets(
    base: Supply, fleet: FleetOn, unit: Cluster, part: Part | None, limit_s: float | None
) -> Supply:
    """Return ``base``, or a fleet of different shapes on all units where that alone serves a demand, or may be best.

    A fleet takes time: it is made for few units, at the limit asked for (``limit_s``), where one shape is nearly
    enough (``part``; None: no demand, wherever a fleet gives more).
    """

    def fleet_or_shape(units: int, tpot_s: float | None) -> Served | None:
        rate, gpus = base.rate(units, tpot_s), units * len(unit.gpus)
        max_gain, over = _FLEET_GAIN
        feasible = 0 < gpus <= MAX_FLEET_GPUS and tpot_s == limit_s
        if feasible and (
            part is None or 1 / min(max_gain, 1 + over / gpus) <= base.part(part, units, tpot_s) < FULL_PART
        ):
            try:
                served = fleet(units)
            except (InfeasibleError, NoAnswerError):
                return base.as_one(units, tpot_s)
            if served.tok_s > rate:
                return served
        return base.as_one(units, tpot_s)

    return replace(base, whole=fleet_or_shape, _whole={})


def unit_domains(unit: Cluster) -> int:
    """Return the domains of a unit with a GPU that works."""
    return len({gpu.domain for gpu in unit.gpus})


def _pool(role: str, swept: Sweep, row: int, workers: int, match: RateMatch | None = None) -> Pool:
    """Return a pool of a configuration at its batch, or as a match has it."""
    batch, step_s = float(swept.batch[row]), float(swept.step_s[row])
    if match is not None:
        batch, step_s = match.batch, swept.deployment.workload.tokens_per_step / match.tok_s_per_user
    return Pool(
        role,
        swept.worker_label(row),
        workers,
        int(swept.gpus[row]),
        batch,
        step_s,
        near_runs(swept.deployment, swept.layout_of(row), batch),
        swept.cache(row),
    )


def _tpots(sweeps: Iterable[Sweep]) -> NDArray[np.float64]:
    """Return the times per output token that are priced, shortest first."""
    return np.unique(np.concatenate([1 / swept.tok_s_per_user for swept in sweeps]))


def joined_units(unit: Cluster) -> tuple[dict[int, Cluster], str]:
    """Return 1, 2, 4... units joined, up to as many GPUs as pay, and why there are no more (empty: they pay not)."""
    units, count = {1: unit}, 2
    while count * len(unit.gpus) <= _MAX_TRIED_GPUS:
        try:
            units[count] = repeated(unit, count)
        except InputError as error:
            return units, str(error)
        count *= 2
    return units, ""


_Priced = TypeVar("_Priced")


def _enough_units(
    units: Mapping[int, Cluster],
    deployment: Deployment,
    price: Callable[[Deployment], _Priced],
    shortage_bytes: Callable[[_Priced], float],
) -> dict[int, _Priced]:
    """Price units joined, as many as pay; more only where the model does not fit fewer."""
    priced: dict[int, _Priced] = {}
    refused: list[InputError] = []
    shortage = math.inf
    for count, cluster in units.items():
        if priced and len(cluster.gpus) > MAX_JOINED_GPUS:
            break
        try:
            answer = price(replace(deployment, cluster=cluster))
        except InputError as error:
            refused.append(error)
            continue
        lacks = shortage_bytes(answer)
        if lacks:
            shortage = min(shortage, lacks)
        else:
            priced[count] = answer
    if priced:
        return priced
    if refused and shortage == math.inf:
        raise refused[0]
    raise InfeasibleError(
        f"HBM capacity binds: no layout of {deployment.model.name} on {max(units)} x {deployment.cluster.name} holds "
        f"a request; the nearest lacks {shortage / 1e9:.1f} GB per GPU."
    )
