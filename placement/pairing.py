"""Which workers that prefill share a scale-up domain with which that decode, so that caches stay on its links.

The workers and their numbers are decided before: here they change places among domains that are alike, which costs
nothing. What prefills in a domain hands its caches to what decodes there as far as both keep up; the rest crosses the
scale-out network. The most that can stay is a small integer program: workers of each kind in each domain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cost.inputs.machine import unlike_gpus
from placement.budget import Budget
from placement.cp_solver import solve_within
from topology.cluster import Cluster

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Stages = tuple[tuple[int, ...], ...]
"""The GPUs of each stage of a worker."""
STEPS = 10**4
"""Whole steps to the requests per second of all workers of a role."""
_WORK_S = 1.0


@dataclass(frozen=True, eq=False)
class Side:
    """Workers of a pool: whether they prefill, requests per second of each, and where they are."""

    prefills: bool
    per_s: float
    workers: tuple[Stages, ...]


@dataclass(frozen=True, eq=False)
class Kind:
    """Workers of a side that take equally many GPUs: GPUs of each stage, how many, and what each serves, in steps."""

    side: int
    sizes: tuple[int, ...]
    count: int
    per_s: int
    prefills: bool

    @property
    def gpus(self) -> int:
        """GPUs of one."""
        return sum(self.sizes)


Counts = tuple[tuple[int, ...], ...]
"""Workers of each kind in each domain, ``[domains][kinds]``."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Kinds of workers to put into domains of ``size`` GPUs each."""

    kinds: Sequence[Kind]
    domains: int
    size: int

    def kept(self, counts: Sequence[int]) -> int:
        """Return the requests whose caches stay in a domain with so many workers of each kind, in steps."""
        rates = [0, 0]
        for kind, count in zip(self.kinds, counts, strict=True):
            rates[kind.prefills] += kind.per_s * count
        return min(rates)

    @property
    def bound(self) -> int:
        """What nothing can be above: all requests of the role that serves fewer."""
        return self.kept([kind.count for kind in self.kinds])


def paired(
    cluster: Cluster, sides: Sequence[Side], budget: Budget | None = None, *, seed: int = 0
) -> tuple[list[tuple[Stages, ...]], str]:
    """Return the workers of each side where most caches stay inside domains, and in words how good that is.

    Empty where there is nothing to decide: no two domains are alike, or none holds workers of both roles.
    """
    places = [list(side.workers) for side in sides]
    inside, bound, searches = 0, 0, list[str]()
    for domains in _alike(cluster, sides):
        movable = [
            (number, at, worker)
            for number, side in enumerate(sides)
            for at, worker in enumerate(side.workers)
            if cluster.gpus[worker[0][0]].domain in domains
        ]
        problem = _problem(sides, [(number, worker) for number, _, worker in movable], domains)
        if not problem.bound:
            continue
        counts, search = _decided(problem, budget or Budget(None), seed)
        if counts is None:
            continue
        inside += sum(map(problem.kept, counts))
        bound += problem.bound
        held = _placed(problem, counts, list(domains.values()))
        for number, at, worker in movable:
            sizes = tuple(map(len, worker))
            places[number][at] = held[number, sizes].pop(0)
        searches.append(search)
    summary = f"{inside / bound:.1%} of the caches that could stay in their domains do; " if bound else ""
    return [tuple(workers) for workers in places], summary + "; ".join(dict.fromkeys(searches))


def _alike(cluster: Cluster, sides: Sequence[Side]) -> Iterator[dict[int, list[int]]]:
    """Yield sets of domains that are alike, with the GPUs of each, and that hold whole workers alone."""
    gpus: dict[int, list[int]] = defaultdict(list)
    for index, gpu in enumerate(cluster.gpus):
        gpus[gpu.domain].append(index)
    odd = {cluster.gpus[gpu].domain for gpu in unlike_gpus(cluster)}
    for side in sides:
        for worker in side.workers:
            touched = {cluster.gpus[gpu].domain for stage in worker for gpu in stage}
            odd |= touched if len(touched) > 1 else set()
    alike: dict[object, dict[int, list[int]]] = defaultdict(dict)
    for domain, members in gpus.items():
        if domain not in odd and cluster.spec.domains[domain].switched:
            where = tuple(cluster.gpus[gpu].id.partition(".")[2] for gpu in members)
            alike[cluster.domain_kind[domain], where][domain] = members
    yield from (domains for domains in alike.values() if len(domains) > 1)


def _problem(
    sides: Sequence[Side], workers: Sequence[tuple[int, Stages]], domains: Mapping[int, Sequence[int]]
) -> Problem:
    """Return the workers by kind; the rates of both roles in the same steps."""
    counted = Counter((number, tuple(map(len, worker))) for number, worker in workers)
    fastest = max((sides[number].per_s * count for (number, _), count in counted.items()), default=1.0)
    kinds = [
        Kind(number, sizes, count, round(sides[number].per_s / fastest * STEPS), sides[number].prefills)
        for (number, sizes), count in counted.items()
    ]
    return Problem(kinds, len(domains), len(next(iter(domains.values()))))


def _decided(problem: Problem, budget: Budget, seed: int) -> tuple[Counts | None, str]:
    """Return workers of each kind in each domain: spread evenly, or by CP-SAT where that is not proven best.

    None where the budget is over before either fits; they lie in these domains already.
    """
    counts = _spread(problem)
    if counts is not None and sum(map(problem.kept, counts)) >= problem.bound:
        return counts, "no call of CP-SAT: workers spread evenly keep as many caches inside as there are"
    built = build(problem)
    solved = built.solved(budget, seed, counts)
    words = f"CP-SAT: {len(problem.kinds)} kinds of workers on {problem.domains} domains, seed {seed}"
    return solved or counts, words


def _spread(problem: Problem) -> Counts | None:
    """Return workers that decode spread evenly, what prefills where most is missing; None where some do not fit."""
    room = [problem.size] * problem.domains
    rates = [[0, 0] for _ in room]
    counts = [[0] * len(problem.kinds) for _ in room]
    order = sorted(
        range(len(problem.kinds)), key=lambda at: (problem.kinds[at].prefills, -problem.kinds[at].gpus)
    )
    for at in order:
        kind = problem.kinds[at]
        for _ in range(kind.count):
            able = [domain for domain, free in enumerate(room) if free >= kind.gpus]
            if not able:
                return None
            domain = min(
                able,
                key=lambda domain: rates[domain][1] - rates[domain][0] if kind.prefills else rates[domain][0],
            )
            room[domain] -= kind.gpus
            rates[domain][kind.prefills] += kind.per_s
            counts[domain][at] += 1
    return tuple(map(tuple, counts))


@dataclass(eq=False)
class PairingModel:
    """The model and its variables: workers of each kind in each domain, and the requests that stay in each."""

    problem: Problem
    model: cp_model.CpModel
    count: list[list[Any]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def solved(self, budget: Budget, seed: int, start: Counts | None) -> Counts | None:
        """Return the best counts that are found within the budget, from ``start`` on."""
        from ortools.sat.python import cp_model

        for row, known in zip(self.count, start or (), strict=False):
            for variable, value in zip(row, known, strict=True):
                self.model.add_hint(variable, value)
        solver, status = solve_within(self.model, budget.fixed(_WORK_S), seed=seed, linear=2)
        if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            return None
        return tuple(tuple(map(solver.value, row)) for row in self.count)


def build(problem: Problem) -> PairingModel:
    """Return the model that keeps most requests inside domains."""
    from ortools.sat.python import cp_model

    built = PairingModel(problem, cp_model.CpModel())
    for domain in range(problem.domains):
        built.count.append(
            [
                built.model.new_int_var(0, kind.count, f"n{domain}.{at}")
                for at, kind in enumerate(problem.kinds)
            ]
        )
        built.kept.append(built.model.new_int_var(0, problem.bound, f"k{domain}"))
    fill_no_domain_over(built)
    place_every_worker(built)
    keep_what_both_roles_do(built)
    order_equal_domains(built)
    built.model.maximize(sum(built.kept))
    return built


def fill_no_domain_over(built: PairingModel) -> None:
    """GPUs of the workers in a domain are at most those that it has."""
    for row in built.count:
        used = sum(kind.gpus * count for kind, count in zip(built.problem.kinds, row, strict=True))
        built.model.add(used <= built.problem.size)


def place_every_worker(built: PairingModel) -> None:
    """Every worker is in one domain."""
    for kind, column in zip(built.problem.kinds, zip(*built.count, strict=True), strict=True):
        built.model.add(sum(column) == kind.count)


def keep_what_both_roles_do(built: PairingModel) -> None:
    """No more requests stay in a domain than are prefilled there, or decoded."""
    for row, inside in zip(built.count, built.kept, strict=True):
        for prefills in (False, True):
            rate = sum(
                kind.per_s * count
                for kind, count in zip(built.problem.kinds, row, strict=True)
                if kind.prefills == prefills
            )
            built.model.add(inside <= rate)


def order_equal_domains(built: PairingModel) -> None:
    """Domains are alike: a later one has no more workers of the first kind."""
    for earlier, later in zip(built.count, built.count[1:], strict=False):
        built.model.add(earlier[0] >= later[0])


def _placed(
    problem: Problem, counts: Counts, domains: Sequence[Sequence[int]]
) -> dict[tuple[int, tuple[int, ...]], list[Stages]]:
    """Return the GPUs of the workers of each side and size: those that decode from the start of a domain on."""
    held: dict[tuple[int, tuple[int, ...]], list[Stages]] = defaultdict(list)
    order = sorted(range(len(problem.kinds)), key=lambda at: -problem.kinds[at].gpus)
    for row, gpus in zip(counts, domains, strict=True):
        start, end = 0, len(gpus)
        for at in order:
            kind = problem.kinds[at]
            for _ in range(row[at]):
                if kind.prefills:
                    end -= kind.gpus
                    start_of = end
                else:
                    start_of, start = start, start + kind.gpus
                stages = []
                for size in kind.sizes:
                    stages.append(tuple(gpus[start_of : start_of + size]))
                    start_of += size
                held[kind.side, kind.sizes].append(tuple(stages))
    return {key: sorted(workers) for key, workers in held.items()}
