"""Choose replicas of any shapes for a whole cluster: price possible ones, choose, assign GPUs, re-price, verify."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from cost.serving.limits import LimitError, left_out_words, relax_default_limits, rounded_up
from placement.budget import Budget
from placement.fleet.assign import Replica, assign
from placement.fleet.options import BOTH, DECODE, PREFILL, FleetOptions, Traffic
from placement.fleet.pricing import Column, Priced, Reached, price, reprice, step_at, sweep_shapes
from placement.fleet.search import Chosen, choose
from placement.fleet.shapes import DomainClass, domain_classes, shapes_of
from placement.plan import Proof
from placement.progress import Say, silent
from topology.base.errors import InfeasibleError, input_name
from topology.cluster import Cluster

_EQUAL = 1e-6
"""Part by which rates and times that are the same may differ: sums are rounded in other orders."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Replicas of one kind: a model in a role, of one layout at one batch.

    Attributes
    ----------
    model, role:
        Index of the model, and what the pool does.
    column:
        One replica, with the figures of its true GPUs.
    replicas:
        Where each lies.
    share, step_s:
        Of the requests, in each phase that the pool serves; seconds of a step at the batch that those hold.
    """

    model: int
    role: str
    column: Column
    replicas: tuple[Replica, ...]
    share: float = 0.0
    step_s: float = 0.0

    @property
    def requests_per_s(self) -> float:
        """Maximum rate of the pool, after derating."""
        return self.column.requests_per_s * len(self.replicas)

    @property
    def tok_s(self) -> float:
        """Output tokens per second (prefill: input) of all replicas."""
        return self.column.tok_s * len(self.replicas)

    @property
    def gpus(self) -> int:
        """GPUs of all its replicas."""
        return self.column.shape.gpus * len(self.replicas)


@dataclass(frozen=True)
class Idle:
    """Working GPUs that are in no replica, and why."""

    gpus: tuple[int, ...]
    reason: str


@dataclass(frozen=True, eq=False)
class Fleet:
    """The whole answer.

    Attributes
    ----------
    requests_per_s:
        Of all models together that every pool keeps up with.
    proof:
        Of the goal, in ``unit``: status, objective, what nothing can beat, and the gap.
    """

    cluster: Cluster
    traffic: Traffic
    options: FleetOptions
    pools: tuple[Pool, ...]
    idle: tuple[Idle, ...]
    requests_per_s: float
    proof: Proof
    unit: str
    search: str
    interrupted: bool = False
    notes: tuple[str, ...] = field(default=())

    def batch(self, pool: Pool) -> float:
        """Return the sequences per GPU that a pool holds on average, by Little's law; of prefill those of a step."""
        traffic = self.traffic
        if pool.role == PREFILL or not traffic.isl:
            return pool.column.batch
        stay_s = (
            traffic.osl * pool.step_s / traffic.deployment(pool.model, pool.role).workload.tokens_per_step
        )
        if pool.role == BOTH:
            stay_s += pool.step_s + pool.column.besides_s
        return self.requests_per_s * pool.share * stay_s / pool.gpus

    @property
    def tok_s(self) -> float:
        """Output tokens per second of all models together."""
        return self.requests_per_s * self.traffic.osl

    @property
    def gpus_used(self) -> int:
        """GPUs in some replica."""
        return sum(pool.gpus for pool in self.pools)

    def used(self) -> list[int]:
        """GPUs in some replica, by number."""
        return [gpu for pool in self.pools for replica in pool.replicas for gpu in replica.gpus]


def make_fleet(
    cluster: Cluster,
    traffic: Traffic,
    options: FleetOptions,
    *,
    on_stage: Say | None = None,
    budget: Budget | None = None,
    reached: Reached | None = None,
) -> Fleet:
    """Return a verified fleet, experts taken as balanced; ``budget``: of the search.

    ``reached``: what part of their price plans of replicas reached, by their kind.

    Raises
    ------
    InfeasibleError
        If a model fits nowhere, or a service level cannot be held: with the limit that binds and the best that is
        reachable.
    """
    say = on_stage or silent
    budget = budget or Budget(None)
    say("enumerating replica shapes")
    classes = domain_classes(cluster)
    layers = max(len(decode.model.layers) for decode, _ in traffic.deployments)
    any_shape = any(decode.any_shape for decode, _ in traffic.deployments)
    enumerated = shapes_of(cluster, classes, most_stages=layers, any_shape=any_shape)
    shapes = list(dict.fromkeys([*enumerated, *sweep_shapes(cluster, classes, traffic)]))

    def found(traffic: Traffic) -> tuple[Traffic, Chosen]:
        priced = []
        for model, (decode, _) in enumerate(traffic.deployments):
            which = f"{model + 1} of {len(traffic.shares)}"
            say(f"pricing {len(shapes)} shapes of replicas for {decode.model.name}, {which}")
            priced.append(price(classes, shapes, traffic, model, reached))
        _require_columns(cluster, traffic, priced)
        columns = sum(len(entry.columns) for entry in priced)
        say(f"choosing among {columns} replicas of different shapes")
        held.enter_context(budget.keeping())  # a first answer takes no time
        return traffic, choose(classes, traffic, priced, options, budget)

    with ExitStack() as held:
        (served_in, chosen), left_out = relax_default_limits(found, traffic, traffic.usual)
        pools = _pools(cluster, served_in, chosen, classes, reached)
    say("verifying the fleet")
    requests_per_s = served(pools, traffic)
    fleet = Fleet(
        cluster=cluster,
        traffic=served_in,
        options=options,
        pools=tuple(
            replace(pool, step_s=_step_s(pool, requests_per_s * pool.share, served_in))
            for pool in _shared(pools, traffic)
        ),
        idle=_idle(classes, pools, chosen, options),
        requests_per_s=requests_per_s,
        proof=_recomputed(chosen, requests_per_s, served_in, options),
        unit=chosen.unit,
        search=chosen.search,
        notes=left_out_words(left_out),
        interrupted=budget.interrupted,
    )
    violations = verify_fleet(fleet)
    if violations:
        raise AssertionError(f"an illegal fleet was made, please report it: {violations[0]}")
    return fleet


def _recomputed(chosen: Chosen, requests_per_s: float, traffic: Traffic, options: FleetOptions) -> Proof:
    """Return the proof of a throughput with what replicas really serve: the search counts in steps, rounded down.

    Where they serve less than was counted, since they cost more where they really are, nothing is proven optimal.
    """
    proof, tok_s = chosen.proof, requests_per_s * traffic.osl
    if options.goal != "throughput":
        return proof
    optimal = proof.status == "OPTIMAL" and tok_s >= proof.objective * (1 - _EQUAL)
    bound = tok_s if optimal else max(proof.bound, tok_s)
    return Proof("OPTIMAL" if optimal else "FEASIBLE", tok_s, bound, 1 - tok_s / bound)


def _require_columns(cluster: Cluster, traffic: Traffic, priced: Sequence[Priced]) -> None:
    """Reject a model that fits nowhere, or that keeps its limits nowhere, with the best that is reachable."""
    for (decode, _), entry in zip(traffic.deployments, priced, strict=True):
        name = decode.model.name
        for role, sweep in entry.sweeps.items():
            if not len(sweep) and (BOTH not in entry.sweeps or role == PREFILL):  # one pool prefills too
                raise InfeasibleError(
                    f"HBM capacity binds: no layout of {name} on {cluster.name} holds a sequence of "
                    f"{sweep.deployment.workload.context:,} tokens to {role}; the nearest lacks "
                    f"{sweep.shortage_bytes / 1e9:.1f} GB per GPU."
                )
        if traffic.tpot_s is not None and entry.fastest_tpot_s > traffic.tpot_s:
            raise LimitError(
                "tpot_s",
                f"{input_name('tpot_ms')} {traffic.tpot_s * 1e3:g}: no replica of {name} on {cluster.name} "
                f"is that fast; the fastest takes {rounded_up(entry.fastest_tpot_s * 1e3)} ms a token.",
            )
        if traffic.ttft_s is not None and entry.fastest_ttft_s > traffic.ttft_s:
            raise LimitError(
                "ttft_s",
                f"{input_name('ttft_ms')} {traffic.ttft_s * 1e3:g}: no replica of {name} on {cluster.name} prefills "
                f"{traffic.isl:,} tokens and transfers their cache that fast; the fastest takes "
                f"{rounded_up(entry.fastest_ttft_s * 1e3)} ms.",
            )
        if not entry.columns:
            problem = "meet both the time per token and the time to first token"
            if traffic.ttft_s is None:
                problem = "meet the time per token with placed experts"
            raise LimitError(
                traffic.first_to_go,
                f"no replicas of {name} on {cluster.name} {problem}; give a longer "
                f"{input_name('ttft_ms')} or {input_name('tpot_ms')}.",
            )


def _pools(
    cluster: Cluster,
    traffic: Traffic,
    chosen: Chosen,
    classes: Sequence[DomainClass],
    reached: Reached | None,
) -> list[Pool]:
    """Put what was chosen on GPUs, price it there, and gather what is alike."""
    replicas = assign(classes, chosen.problem.columns, chosen.answer, [gpu.domain for gpu in cluster.gpus])
    gathered: dict[tuple[int, str, object], list[Replica]] = {}
    for replica in replicas:
        column = replica.column
        key = column.model, column.role, (column.shape, replica.alike(cluster))
        gathered.setdefault(key, []).append(replica)
    kinds = list(gathered.values())
    figures = reprice(traffic, [(group[0].column, group[0].stages) for group in kinds], reached)
    pools: dict[tuple[object, ...], Pool] = {}
    for group, column in zip(kinds, figures, strict=True):
        same = (
            column.model,
            column.role,
            column.shape,
            column.batch,
            column.cut,
            round(math.log(column.step_s), 9),
        )
        previous = pools.get(same)
        all_of = (*(previous.replicas if previous else ()), *group)
        pools[same] = Pool(column.model, column.role, column, all_of)
    order = {BOTH: 0, PREFILL: 1, DECODE: 2}
    return sorted(pools.values(), key=lambda pool: (pool.model, order[pool.role], -pool.gpus))


def served(pools: Sequence[Pool], traffic: Traffic) -> float:
    """Requests per second that every role of every model keeps up with."""
    totals = _role_totals(pools)
    return min(
        (totals[model, BOTH] + _by_two_pools(totals, traffic, model)) / share
        for model, share in enumerate(traffic.shares)
    )


def _by_two_pools(totals: Mapping[tuple[int, str], float], traffic: Traffic, model: int) -> float:
    """Requests per second of a model whose phases different replicas serve, the slower phase's."""
    return min(totals[model, phase] for phase in traffic.phases)


def _role_totals(pools: Sequence[Pool]) -> dict[tuple[int, str], float]:
    """Requests per second of all pools of a model and role."""
    totals: dict[tuple[int, str], float] = defaultdict(float)
    for pool in pools:
        totals[pool.model, pool.role] += pool.requests_per_s
    return totals


def _shared(pools: Sequence[Pool], traffic: Traffic) -> tuple[Pool, ...]:
    """Give each pool its share of the traffic, in proportion to what it serves; those of both phases first."""
    totals = _role_totals(pools)

    def part(pool: Pool) -> float:
        by_two, by_one = _by_two_pools(totals, traffic, pool.model), totals[pool.model, BOTH]
        of_role = (by_one if pool.role == BOTH else by_two) / (by_one + by_two)
        return of_role * pool.requests_per_s / totals[pool.model, pool.role]

    return tuple(replace(pool, share=traffic.shares[pool.model] * part(pool)) for pool in pools)


def _step_s(pool: Pool, requests_per_s: float, traffic: Traffic) -> float:
    """Return the seconds of a step of a pool that serves so many requests per second, all it can or fewer."""
    column = pool.column
    if pool.role == PREFILL or not traffic.isl or requests_per_s >= pool.requests_per_s * (1 - _EQUAL):
        return column.step_s
    return step_at(traffic, column, pool.replicas[0].stages, requests_per_s / len(pool.replicas))


def _idle(
    classes: Sequence[DomainClass], pools: Sequence[Pool], chosen: Chosen, options: FleetOptions
) -> tuple[Idle, ...]:
    """Return GPUs that work and are in no replica, by the reason."""
    used = {gpu for pool in pools for replica in pool.replicas for gpu in replica.gpus}
    by_reason: dict[str, list[int]] = {}
    least: dict[int, int] = {}
    for column in chosen.problem.columns:
        if len(column.shape.blocks) == 1:
            block = column.shape.blocks[0]
            least[block.kind] = min(block.size, least.get(block.kind, block.size))
    held = {block.kind for column in chosen.problem.columns for block in column.shape.blocks}

    def why(domains: DomainClass, free: int) -> str:
        name, takes = domains.spec.gpu.name, least.get(domains.kind)
        if domains.kind not in held:
            return f"no layout on {name} meets the service level"
        if takes is None and free < domains.size:
            return f"no replica fits on {free} GPUs of a domain of {name}: the smallest one spans several domains"
        if takes is not None and free < takes:
            s = "s" * (free > 1)
            return f"no legal layout for {free} GPU{s} left of a domain of {name}: the least takes {takes}"
        if options.goal == "throughput":
            kind = "replica that spans domains" if takes is None else "replica"
            late = ", since the other pools could not keep up" * (len(chosen.problem.needs) > 1)
            return f"another {kind} would not serve more{late}"
        return f"a token costs more on them ({options.goal})"

    for domains in classes:
        for gpus in domains.gpus:
            free = [gpu for gpu in gpus if gpu not in used]
            if free:
                by_reason.setdefault(why(domains, len(free)), []).extend(free)
    return tuple(Idle(tuple(sorted(gpus)), reason) for reason, gpus in by_reason.items())


def verify_fleet(fleet: Fleet) -> list[str]:
    """Return every way in which a fleet is illegal, in words; empty if it is legal.

    The rules: every GPU that works is in one replica or idle, and never in two; every pool of every model holds its
    limits and serves its share of the requests.
    """
    used, violations = fleet.used(), []
    idle = [gpu for entry in fleet.idle for gpu in entry.gpus]
    twice = [gpu for gpu, count in Counter([*used, *idle]).items() if count > 1]
    total = len(fleet.cluster.gpus)
    violations += [f"GPU {fleet.cluster.gpus[gpu].id} is in two places" for gpu in twice]
    if sorted([*used, *idle]) != list(range(total)):
        violations.append(f"{len(used)} GPUs in use and {len(idle)} idle, of {total} working ones")
    traffic = fleet.traffic
    for pool in fleet.pools:
        workload = traffic.deployment(pool.model, pool.role).workload
        if workload.decodes and traffic.tpot_s is not None:
            tpot_s = pool.column.step_s / workload.tokens_per_step
            if tpot_s > traffic.tpot_s * (1 + _EQUAL):
                violations.append(f"a pool takes {tpot_s * 1e3:.3f} ms a token")
        if pool.column.step_s > pool.column.limit_s * (1 + _EQUAL):
            violations.append(f"a {pool.role} pool takes {pool.column.step_s * 1e3:.3f} ms a step")
        for replica in pool.replicas:
            if len(set(replica.gpus)) != pool.column.shape.gpus:
                violations.append("a replica does not have the GPUs of its shape")
    if served(fleet.pools, traffic) < fleet.requests_per_s * (1 - _EQUAL):
        violations.append("a pool serves less than its share")
    return violations
