"""What the pools of a plan serve together, from their plans alone: one account of what is made and what is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from cost.money.bill import Totals
from cost.serving.cache_path import CachePath, kv_path, prompt_cache_bytes
from cost.serving.serving import ONE_POOL, TWO_POOLS
from cost.serving.steady_state import busy_share
from cost.serving.supply import Pool
from placement.plan import Asked, Plan, WholeRequests
from placement.scoring import step_held
from topology.base.errors import InputError
from topology.cluster import ClusterView

_EQUAL = 1e-9
"""Part of its rate by which a pool that is held back serves less."""


def with_pools(plans: Sequence[Plan], request: Asked | None) -> Plan:
    """Return pools as one plan, the first one's with the others beside it, and what they serve together.

    ``request``: None of a plan for one phase, which has one pool.
    """
    leading, *beside = plans
    if request is None:
        return leading
    return replace(leading, requests=served_together(plans, request), beside=tuple(beside))


def each_pool(plan: Plan, changed: Callable[[Plan], Plan]) -> Plan:
    """Return a plan with each of its pools ``changed``, and what they serve then."""
    alone = (replace(pool, requests=None, beside=()) for pool in plan.pools)
    return with_pools([changed(pool) for pool in alone], plan.requests)


def one_pool(plan: Plan, number: int) -> Plan:
    """Return the plan of one pool by itself; a plan that has one stays as it is.

    Raises
    ------
    InputError
        If there is none of this number.
    """
    if number >= len(plan.pools):
        names = ", ".join(f"{at} {name}" for at, name in enumerate(named_pools(plan)))
        raise InputError(f"the plan has no such pool; it has {names}.", field="pool", value=number)
    return replace(plan.pools[number], requests=None, beside=()) if plan.beside else plan


def named_pools(plan: Plan) -> list[str]:
    """Return the name of each pool: its role, with a number where several have it."""
    roles = [pool.role for pool in plan.pools]
    numbers = [roles[:at].count(role) for at, role in enumerate(roles)]
    return [
        f"{role} {at}" if roles.count(role) > 1 else role for role, at in zip(roles, numbers, strict=True)
    ]


def served_together(plans: Sequence[Plan], request: Asked) -> WholeRequests:
    """Return what pools serve together, of one model or several.

    A pool that decodes runs at the batch that its part of the rate holds (:func:`placement.scoring.step_held`).
    Pools that prefill, where they are the slower ones, are busy as often as requests come
    (:func:`cost.serving.steady_state.busy_share`); links may allow less.
    """
    models = {
        name: _Model.of([plan for plan in plans if plan.deployment.model.name == name], request.osl or 1)
        for name in dict.fromkeys(plan.deployment.model.name for plan in plans)
    }
    shares = request.shares or dict.fromkeys(models, 1.0)
    rate = min(models[name].per_s / share for name, share in shares.items())
    pools, tpots_s, ttfts_s, parts = [], [], [], []
    for plan in plans:
        work, layout = plan.deployment.workload, plan.layout
        name, batch, step_s = plan.deployment.model.name, float(plan.score.batch), plan.score.step_s
        model, osl = models[name], request.osl or 1
        first_s = model.first_token_s(plan)
        own_per_s = rate * shares[name] * model.part(plan)
        if work.decodes:
            if own_per_s < model.most_per_s[plan] * (1 - _EQUAL):
                step_s = step_held(plan, own_per_s, osl / work.tokens_per_step)
            tpots_s.append(step_s / work.tokens_per_step)
            stays_s = osl * tpots_s[-1] + (first_s or 0.0)
            batch = own_per_s * stays_s / layout.gpus_used  # Little's law
        ttfts_s += [] if first_s is None else [first_s]
        short, count = layout.short(moe=plan.deployment.model.moe is not None), len(layout.replicas)
        pools.append(
            Pool(work.phase, short, count, layout.gpus_used // count, batch, step_s, cache=plan.score.cache)
        )
        parts.append(shares[name] * model.part(plan))
    return WholeRequests(
        **{field.name: getattr(request, field.name) for field in fields(Asked)},
        serving=_serving(pools),
        pools=tuple(pools),
        parts=tuple(parts),
        tok_s_per_user=1 / max(tpots_s),
        tpot_s=max(tpots_s),
        ttft_s=max(ttfts_s, default=None),
        inside_share=min((model.inside for model in models.values() if model.path is not None), default=None),
        totals=_totals(plans, rate, request),
    )


@dataclass(frozen=True, eq=False)
class _Model:
    """The pools of one model.

    Attributes
    ----------
    most_per_s:
        Requests per second that each can serve.
    two_pools_per_s:
        What those serve together that have one phase each: the rate of the slower phase.
    path, inside:
        Of caches between them (None where none moves), and the part that can stay in a scale-up domain.
    """

    plans: Sequence[Plan]
    most_per_s: Mapping[Plan, float]
    two_pools_per_s: float
    path: CachePath | None
    inside: float = 0.0

    @classmethod
    def of(cls, plans: Sequence[Plan], osl: int) -> _Model:
        """Return them for answers of ``osl`` tokens."""
        phase = {role: [plan for plan in plans if plan.role == role] for role in _PHASES}
        most_per_s = {
            plan: plan.score.tok_s_per_gpu * len(plan.deployment.cluster.gpus) / osl
            for plan in (*phase["decode"], *phase["both"])
        }
        rate, path, inside = sum(most_per_s[plan] for plan in phase["decode"]), None, 0.0
        if phase["prefill"]:
            answer_s = osl * _mean([plan.score.tpot_s for plan in phase["decode"]], phase["decode"])
            most_per_s |= _prefilled_per_s(phase["prefill"], answer_s)
            prefilled = sum(most_per_s[plan] for plan in phase["prefill"])
            inside = _inside(phase["decode"], phase["prefill"], most_per_s)
            path = _path(phase["decode"][0], phase["prefill"][0], alone=inside >= 1 - _EQUAL)
            gpus = min(sum(plan.layout.gpus_used for plan in phase[role]) for role in ("decode", "prefill"))
            rate = min(rate, prefilled, gpus * path.bytes_per_s / _cache_bytes(phase["prefill"][0]))
        return cls(plans, most_per_s, rate, path, inside)

    @property
    def per_s(self) -> float:
        """Requests per second of all its pools."""
        return self.two_pools_per_s + self._of("both")

    def _of(self, role: str) -> float:
        return sum(per_s for plan, per_s in self.most_per_s.items() if plan.role == role)

    def part(self, plan: Plan) -> float:
        """Return the part of the model's requests that a pool serves, in proportion to what it can."""
        of_role = self._of("both") if plan.role == "both" else self.two_pools_per_s
        return of_role / self.per_s * self.most_per_s[plan] / self._of(plan.role)

    def first_token_s(self, plan: Plan) -> float | None:
        """Return the seconds to the first token of a pool without waiting; None of one that decodes."""
        if plan.role == "both":
            return plan.score.step_s + plan.score.prefill_s
        if plan.role == "decode" or self.path is None:
            return None
        layout, decoding = plan.layout, [pool for pool in self.plans if pool.role == "decode"]
        receivers = min(pool.layout.tp * pool.layout.stages for pool in decoding)
        prompts = float(plan.score.batch) * layout.tp
        moved, senders = _cache_bytes(plan), layout.tp * layout.stages
        transfer_s = max(self.path.seconds(prompts * moved, senders), self.path.seconds(moved, receivers))
        return plan.score.step_s + float(transfer_s)


_PHASES = ("decode", "prefill", "both")


def _inside(decoding: Sequence[Plan], prefilling: Sequence[Plan], most_per_s: Mapping[Plan, float]) -> float:
    """Return the part of the requests that what prefills in a domain can hand to what decodes there."""
    shares = []
    for plans in (decoding, prefilling):
        share: dict[int, float] = defaultdict(float)
        total = sum(most_per_s[plan] for plan in plans)
        for plan in plans:
            gpus = plan.layout.gpus_in_use
            for gpu in gpus:
                share[plan.deployment.cluster.gpus[gpu].domain] += most_per_s[plan] / total / len(gpus)
        shares.append(share)
    return sum(min(share, shares[1][domain]) for domain, share in shares[0].items())


def _path(decode: Plan, prefill: Plan, *, alone: bool) -> CachePath:
    """Return the path of caches: between domains, or inside one where all can stay in theirs."""
    cluster = decode.deployment.cluster.whole
    if alone:
        domain = decode.deployment.cluster.gpus[decode.layout.gpus_in_use[0]].domain
        cluster = ClusterView(cluster, [gpu.id for gpu in cluster.gpus if gpu.domain == domain])
    return kv_path(*(replace(plan.deployment, cluster=cluster) for plan in (decode, prefill)))


def _prefilled_per_s(plans: Sequence[Plan], answer_s: float) -> dict[Plan, float]:
    """Return prompts per second of each pool that prefills, as busy as all are where they are the slower phase."""
    always = {plan: float(plan.score.batch) * plan.layout.gpus_used / plan.score.step_s for plan in plans}
    stay_s = answer_s + _mean([plan.score.step_s for plan in plans], plans)
    in_step = _mean([always[plan] * plan.score.step_s / len(plan.layout.replicas) for plan in plans], plans)
    busy = float(busy_share(sum(always.values()), stay_s, in_step))
    return {plan: busy * rate for plan, rate in always.items()}


def _mean(values: Sequence[float], plans: Sequence[Plan]) -> float:
    """Return a mean over GPUs of pools."""
    return float(np.average(values, weights=[plan.layout.gpus_used for plan in plans]))


def _cache_bytes(plan: Plan) -> float:
    """Return the cache bytes of a prompt of a pool that prefills."""
    return prompt_cache_bytes(plan.deployment, plan.deployment.workload.context)


def _serving(pools: Sequence[Pool]) -> str:
    """Return how most GPUs serve: in one pool, in two, or decoding alone."""
    one_pool = sum(pool.gpus for pool in pools if pool.role == "both")
    if 2 * one_pool > sum(pool.gpus for pool in pools):
        return ONE_POOL
    return TWO_POOLS if any(pool.role == "prefill" for pool in pools) else f"{pools[0].role} alone"


def _totals(plans: Sequence[Plan], rate: float, request: Asked) -> Totals:
    """Return what all pools give and cost, idle GPUs of the cluster too."""
    deployment, osl = plans[0].deployment, request.osl or 1
    priced = replace(deployment, cluster=deployment.cluster.whole)
    idle = len(priced.cluster.gpus) - sum(plan.layout.gpus_used for plan in plans)
    busy = [plan.deployment.cluster.gpus[gpu].id for plan in plans for gpu in plan.layout.gpus_in_use]
    return priced.bill.totals(
        rate * osl,
        requests_per_s=rate if request.osl else None,
        gpus_idle=idle,
        phase="both" if request.osl else "decode",
        used=priced.prices.bill(priced.cluster, busy) if idle else None,
    )
