"""1, 2, 4... units of a machine joined by their own fabric: swept, and what that lets any number of them give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cost.cache_path import kv_path
from cost.deployment import Deployment
from cost.layouts import Sweep, sweep
from cost.lengths import Lengths
from cost.supply import DecodeSupply, Pair, PooledSupply, Supply
from topology.base.errors import InfeasibleError, InputError
from topology.cluster import Cluster
from topology.repeat import alike, repeated

MOST_JOINED_GPUS = 512
"""GPUs of the units that are priced as joined by their fabric, at most: wider replicas have not paid yet."""
_MOST_TRIED_GPUS = 4608
"""GPUs of as many units as are joined at most where a model fits no fewer."""


def supply_of(
    deployment: Deployment,
    lengths: Lengths | None,
    tpots: Sequence[float],
    ttft_s: float | None,
    redundant: int | None,
    imbalance: float | None,
) -> tuple[Supply, str]:
    """Sweep 1, 2, 4... units: what they give, and why they are not joined (empty: they are).

    At the times per token ``tpots`` each layout has its exact batch.
    """
    unit = deployment.cluster
    units, unjoined = _joined(unit)
    speeds = [1 / tpot_s for tpot_s in tpots]
    if lengths is None:
        balance = 1.0 if imbalance is None else imbalance
        decode = _sweeps(units, deployment, redundant, balance, speeds)
        return DecodeSupply(decode), unjoined
    # pools are shared by any number of domains that are alike; those of unlike ones stay inside what is swept
    shares = alike(unit.spec) and len(units) > 1
    widest = max(k for k, one in units.items() if k == 1 or len(one.gpus) <= MOST_JOINED_GPUS or k == 2)
    tried = {k: one for k, one in units.items() if not shares or k == 1 or k >= widest}
    decoding, prompts = lengths.workloads(deployment.workload)
    decode = _sweeps(tried, replace(deployment, workload=decoding), redundant, imbalance, speeds)
    prefill = [
        (share, _sweeps(tried, replace(deployment, workload=workload), redundant, imbalance))
        for share, workload in prompts
    ]
    both = decode.keys() & set.intersection(*(set(found) for _, found in prefill))
    pairs = {
        k: Pair(
            decode[k],
            [(share, found[k]) for share, found in prefill],
            lengths.mean_osl,
            ttft_s,
            kv_path(decode[k].deployment, prefill[0][1][k].deployment),
        )
        for k in sorted(both)
    }
    if not pairs:
        raise InfeasibleError(f"no number of {unit.name} joined runs both phases of {deployment.model.name}.")
    joinable = [k for k in units if k <= max(pairs)]
    if not shares:
        supply = PooledSupply(joinable, pairs, None, unit_domains(unit))
    else:
        own = {k: pair for k, pair in pairs.items() if k == 1}
        supply = PooledSupply(joinable, own, pairs[max(pairs)], unit_domains(unit))
    return supply, unjoined


def _joined(unit: Cluster) -> tuple[dict[int, Cluster], str]:
    """Return 1, 2, 4... units joined, up to as many GPUs as pay, and why there are no more (empty: they pay not)."""
    found, count = {1: unit}, 2
    while count * len(unit.gpus) <= _MOST_TRIED_GPUS:
        try:
            found[count] = repeated(unit, count)
        except InputError as error:
            return found, str(error)
        count *= 2
    return found, ""


def _sweeps(
    units: Mapping[int, Cluster],
    deployment: Deployment,
    redundant: int | None,
    imbalance: float | None,
    speeds: Sequence[float] = (),
) -> dict[int, Sweep]:
    """Sweep units joined, as many as pay; more only where the model does not fit fewer."""
    found: dict[int, Sweep] = {}
    refused: InputError | None = None
    shortage = math.inf
    for count, cluster in units.items():
        if found and len(cluster.gpus) > MOST_JOINED_GPUS:
            break
        try:
            one = sweep(
                replace(deployment, cluster=cluster), redundant=redundant, imbalance=imbalance, speeds=speeds
            )
        except InputError as error:
            refused = refused or error
            continue
        if len(one):
            found[count] = one
        else:
            shortage = min(shortage, one.shortage_bytes)
    if found:
        return found
    if refused is not None and shortage == math.inf:
        raise refused
    most = max(units)
    raise InfeasibleError(
        f"HBM capacity binds: no layout of {deployment.model.name} on {most} x {deployment.cluster.name} holds a "
        f"sequence of {deployment.workload.context:,} tokens; the nearest lacks {shortage / 1e9:.1f} GB per GPU."
    )


def unit_domains(unit: Cluster) -> int:
    """Return the domains of a unit with a GPU that works."""
    return len({gpu.domain for gpu in unit.gpus})
