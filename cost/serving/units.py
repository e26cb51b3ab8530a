"""1, 2, 4... units of a machine joined by their own fabric, priced: what they give in decode, pools or fleets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, best_at, sweep
from cost.serving.lengths import Lengths
from cost.serving.pools import RateMatch
from cost.serving.serving import TWO_POOLS, Serving
from cost.serving.supply import ENOUGH, Part, Pool, Served, Supply, merged
from cost.step.step import near_runs
from topology.base.errors import InfeasibleError, InputError, NoAnswerError
from topology.changes.repeat import alike, repeated
from topology.cluster import Cluster

MOST_JOINED_GPUS = 512
"""GPUs of the units that are priced as joined by their fabric, at most: wider replicas have not paid yet."""
_MOST_TRIED_GPUS = 4608
"""GPUs of as many units as are joined at most where a model fits no fewer."""
MOST_FLEET_GPUS = 300
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

        def swept(one: Deployment) -> Sweep:
            return sweep(one, redundant=redundant, imbalance=balance, speeds=speeds)

        return _decode_supply(
            _enough_units(units, deployment, swept, lambda one: one.shortage_bytes)
        ), unjoined
    # pools are shared by any number of domains that are alike; those of unlike ones stay inside what is swept
    shares = alike(unit.spec) and len(units) > 1
    widest = max(k for k, one in units.items() if k == 1 or len(one.gpus) <= MOST_JOINED_GPUS or k == 2)
    tried = {k: one for k, one in units.items() if not shares or k == 1 or k >= widest}

    def priced(one: Deployment) -> Serving:
        return Serving.of(
            one, lengths, ttft_s=ttft_s, speeds=speeds, redundant=redundant, imbalance=imbalance
        )

    found = _enough_units(
        tried, deployment, priced, lambda one: max(one.decode.shortage_bytes, one.prefill.shortage_bytes)
    )
    return _pooled_supply([k for k in units if k <= max(found)], found, shares, unit_domains(unit)), unjoined


def _decode_supply(sweeps: Mapping[int, Sweep]) -> Supply:
    """Decode alone: of units joined the best at a time per token."""

    def joined(tpot_s: float | None) -> dict[int, Served]:
        target = 0.0 if tpot_s is None else 1 / tpot_s
        best = {k: best_at(found, target) for k, found in sweeps.items()}
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
    own = {k: one for k, one in servings.items() if shared is None or k == 1}
    every = [*own.values(), *([] if shared is None else [shared])]

    def joined(tpot_s: float | None) -> dict[int, Served]:
        return {
            k: served_on(one, k, best) for k, one in own.items() if (best := one.best(tpot_s)) is not None
        }

    def whole(units: int, tpot_s: float | None) -> Served | None:
        # a domain alone has pools of its own, whose caches take the links inside it
        if shared is None or units * domains == 1:
            return None
        best = shared.bests(tpot_s, units * domains).get(TWO_POOLS)
        return None if best is None else served_on(shared, units, best)

    return Supply(
        joinable,
        _tpots(side for one in every for side in (one.decode, one.both) if side is not None),
        joined,
        whole,
        lambda: min(one.fastest_ttft_s for one in every),
    )


def served_on(serving: Serving, units: int, best: RateMatch) -> Served:
    """Return what one match gives on so many units joined."""
    return Served(
        units=units,
        tok_s=best.requests_per_s * best.osl,
        tok_s_per_user=best.tok_s_per_user,
        pools=merged(
            _pool(role, found, row, workers, None if role == "prefill" else best)
            for role, found, row, workers in serving.sides(best)
        ),
        joined=units,
        ttft_s=best.ttft_s,
        requests_per_s=best.requests_per_s,
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

    def whole(units: int, tpot_s: float | None) -> Served | None:
        rate, gpus = base.rate(units, tpot_s), units * len(unit.gpus)
        most, over = _FLEET_GAIN
        few = 0 < gpus <= MOST_FLEET_GPUS and tpot_s == limit_s
        if few and (
            part is None or 1 / min(most, 1 + over / gpus) <= base.part(part, units, tpot_s) < ENOUGH
        ):
            try:
                found = fleet(units)
            except (InfeasibleError, NoAnswerError):
                return base.as_one(units, tpot_s)
            if found.tok_s > rate:
                return found
        return base.as_one(units, tpot_s)

    return replace(base, whole=whole, _whole={})


def unit_domains(unit: Cluster) -> int:
    """Return the domains of a unit with a GPU that works."""
    return len({gpu.domain for gpu in unit.gpus})


def _pool(role: str, found: Sweep, row: int, workers: int, match: RateMatch | None = None) -> Pool:
    """Return a pool of a configuration at its batch, or as a match has it."""
    batch, step_s = float(found.batch[row]), float(found.step_s[row])
    if match is not None:
        batch, step_s = match.batch, found.deployment.workload.tokens_per_step / match.tok_s_per_user
    return Pool(
        role,
        found.worker_label(row),
        workers,
        int(found.gpus[row]),
        batch,
        step_s,
        near_runs(found.deployment, found.layout_of(row), batch),
        found.cache(row),
    )


def _tpots(sweeps: Iterable[Sweep]) -> NDArray[np.float64]:
    """Return the times per output token that are priced, shortest first."""
    return np.unique(np.concatenate([1 / found.tok_s_per_user for found in sweeps]))


def joined_units(unit: Cluster) -> tuple[dict[int, Cluster], str]:
    """Return 1, 2, 4... units joined, up to as many GPUs as pay, and why there are no more (empty: they pay not)."""
    found, count = {1: unit}, 2
    while count * len(unit.gpus) <= _MOST_TRIED_GPUS:
        try:
            found[count] = repeated(unit, count)
        except InputError as error:
            return found, str(error)
        count *= 2
    return found, ""


_Priced = TypeVar("_Priced")


def _enough_units(
    units: Mapping[int, Cluster],
    deployment: Deployment,
    price: Callable[[Deployment], _Priced],
    shortage_bytes: Callable[[_Priced], float],
) -> dict[int, _Priced]:
    """Price units joined, as many as pay; more only where the model does not fit fewer."""
    found: dict[int, _Priced] = {}
    refused: list[InputError] = []
    shortage = math.inf
    for count, cluster in units.items():
        if found and len(cluster.gpus) > MOST_JOINED_GPUS:
            break
        try:
            one = price(replace(deployment, cluster=cluster))
        except InputError as error:
            refused.append(error)
            continue
        lacks = shortage_bytes(one)
        if lacks:
            shortage = min(shortage, lacks)
        else:
            found[count] = one
    if found:
        return found
    if refused and shortage == math.inf:
        raise refused[0]
    raise InfeasibleError(
        f"HBM capacity binds: no layout of {deployment.model.name} on {max(units)} x {deployment.cluster.name} holds "
        f"a request; the nearest lacks {shortage / 1e9:.1f} GB per GPU."
    )
