"""1, 2, 4... units of a machine joined by their own fabric, priced: what they give in decode, pools or fleets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, best_at, sweep
from cost.serving.cache_path import CachePath, kv_path
from cost.serving.lengths import Lengths
from cost.serving.pools import RateMatches, match_rates
from cost.serving.supply import ENOUGH, Pool, Served, Supply, merged
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
    *,
    alone: bool = False,
) -> tuple[Supply, str]:
    """Sweep 1, 2, 4... units: what they give with one layout a pool, and why they are not joined (empty: they are).

    ``alone``: one unit only. At the times per token ``tpots`` each layout has its exact batch.
    """
    unit = deployment.cluster
    units, unjoined = ({1: unit}, "") if alone else _joined(unit)
    speeds = [1 / tpot_s for tpot_s in tpots]
    if lengths is None:
        balance = 1.0 if imbalance is None else imbalance
        return _decode_supply(_sweeps(units, deployment, redundant, balance, speeds)), unjoined
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
        k: _Pair(
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
    return _pooled_supply([k for k in units if k <= max(pairs)], pairs, shares, unit_domains(unit)), unjoined


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


def _pooled_supply(joinable: Sequence[int], pairs: Mapping[int, _Pair], shares: bool, domains: int) -> Supply:
    """Prefill and decode, the better of two: pools inside 1, 2, 4... units, or pools that all units share.

    Parameters
    ----------
    pairs:
        By units joined; where units share pools (``shares``) those have replicas as on the most of them joined.
    domains:
        Domains of a unit.
    """
    shared = pairs[max(pairs)] if shares else None
    own = {k: pair for k, pair in pairs.items() if shared is None or k == 1}
    every = [*own.values(), *([] if shared is None else [shared])]

    def joined(tpot_s: float | None) -> dict[int, Served]:
        found = {k: pair.served(k, None, tpot_s) for k, pair in own.items()}
        return {k: one for k, one in found.items() if one is not None}

    def whole(units: int, tpot_s: float | None) -> Served | None:
        # a domain alone has pools of its own, whose caches take the links inside it
        if shared is None or units * domains == 1:
            return None
        return shared.served(units, units * domains, tpot_s)

    return Supply(
        joinable,
        _tpots(pair.decode for pair in every),
        joined,
        whole,
        lambda: min(pair.fastest_ttft_s for pair in every),
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


def with_fleets(base: Supply, fleet: FleetOn, unit: Cluster, tok_s: float, limit_s: float | None) -> Supply:
    """Return ``base``, or a fleet of different shapes on all units where that alone reaches ``tok_s``.

    A fleet takes time: it is made for few units, at the limit asked for (``limit_s``), where one shape is nearly
    enough.
    """

    def whole(units: int, tpot_s: float | None) -> Served | None:
        rate, gpus = base.rate(units, tpot_s), units * len(unit.gpus)
        most, over = _FLEET_GAIN
        few = 0 < gpus <= MOST_FLEET_GPUS and tpot_s == limit_s
        if few and rate < tok_s * ENOUGH and tok_s <= rate * min(most, 1 + over / gpus):
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


@dataclass(frozen=True, eq=False)
class _Pair:
    """Sweeps of decode and of prefill whose pools share domains, and the way of the caches between them."""

    decode: Sweep
    prefill: Sequence[tuple[float, Sweep]]
    """Of each length of prompts its share and its sweep, the longest first."""
    osl: float
    ttft_s: float | None
    path: CachePath
    _rows: dict[float | None, Sweep] = field(default_factory=dict)

    def served(self, units: int, domains: int | None, tpot_s: float | None) -> Served | None:
        """Return what the pools with most throughput on so many domains (None: those of the sweeps) give."""
        match = self._matched(domains, self.ttft_s, tpot_s).best()
        if match is None:
            return None
        return Served(
            units=units,
            tok_s=match.requests_per_s * self.osl,
            tok_s_per_user=match.tok_s_per_user,
            pools=merged(
                (
                    _pool("prefill", self.prefill[0][1], match.prefill, match.prefill_workers),
                    _pool("decode", self._best_rows(tpot_s), match.decode, match.decode_workers),
                )
            ),
            joined=units,
            ttft_s=match.ttft_s,
            requests_per_s=match.requests_per_s,
        )

    @property
    def fastest_ttft_s(self) -> float:
        """Shortest time to the first token, limits or not."""
        return self._matched(None, None, None).fastest_ttft_s

    def _matched(self, domains: int | None, ttft_s: float | None, tpot_s: float | None) -> RateMatches:
        return match_rates(
            self._best_rows(tpot_s),
            self.prefill[0][1],
            osl=self.osl,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            path=self.path,
            domains=domains,
            shorter=self.prefill[1:],
        )

    def _best_rows(self, tpot_s: float | None) -> Sweep:
        """Of the decode configurations within the limit the best of each shape: a match knows no more of them."""
        if tpot_s not in self._rows:
            found = self.decode
            fast = np.flatnonzero(found.tok_s_per_user >= (0.0 if tpot_s is None else 1 / tpot_s))
            rate = found.tok_s[fast] / found.replicas[fast]
            shapes = np.stack([found.tp[fast], found.stages[fast], found.gpus[fast]])
            order = np.lexsort((-found.tok_s_per_user[fast], -rate, *shapes))
            first = np.any(np.diff(shapes[:, order], axis=1, prepend=0), axis=0)
            self._rows[tpot_s] = found.rows(fast[order[first]])
        return self._rows[tpot_s]


def _pool(role: str, found: Sweep, row: int, replicas: int) -> Pool:
    return Pool(
        role=role,
        layout=found.label(row).rpartition(" ")[0],
        replicas=replicas,
        gpus=int(found.gpus[row]),
        batch=float(found.batch[row]),
        step_s=float(found.step_s[row]),
    )


def _tpots(sweeps: Iterable[Sweep]) -> NDArray[np.float64]:
    """Return the times per output token that are priced, shortest first."""
    return np.unique(np.concatenate([1 / found.tok_s_per_user for found in sweeps]))


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
