"""The set partitioning of a fleet in CP-SAT: how many replicas of each column, on domains that are counted.

Blocks are packed into the domains of a class by arcs: a domain is a path from 0 on, an arc a block, its flow the
domains that have a block there (Valério de Carvalho 1999, Annals of Operations Research 86).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.fleet.options import BOTH
from placement.fleet.pricing import Column
from placement.fleet.shapes import Block, DomainClass

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STEPS, STEPS_PER_GPU = 10**6, 2000
"""Whole steps to the most requests per second that any fleet could serve, at least, and for each GPU. Ten times as
many leave twice the gap in the same time."""
MAX_COUNTED_SINGLY = 2
"""Domains of a class up to which blocks are counted in each, and not by where they lie."""
COST_STEPS = 10**4
"""Whole steps to one unit of a cost."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What is asked.

    Attributes
    ----------
    columns:
        Of all models and roles; ``needs[(model, phase)]`` is the share of the requests that is of a model.
    cost:
        Of a GPU of each kind of domain, by the goal: 1, USD per hour, or watts.
    most:
        Requests per second that no fleet can serve more than.
    most_layouts:
        Different layouts of a model in a role on one kind of GPU at most; None: as many as there are.
    """

    classes: Sequence[DomainClass]
    columns: Sequence[Column]
    needs: Mapping[tuple[int, str], float]
    cost: Mapping[int, float]
    most: float
    most_layouts: int | None = None

    @property
    def scale(self) -> float:
        """Steps of a request per second."""
        return self.steps / self.most

    @property
    def steps(self) -> int:
        """Whole steps to ``most``."""
        return max(STEPS, STEPS_PER_GPU * sum(domains.count * domains.size for domains in self.classes))

    def rate(self, column: Column) -> int:
        """Requests per second of the whole traffic that ``column`` keeps up with, in steps, rounded down."""
        return math.floor(column.requests_per_s / self.needs[column.model, column.phases[0]] * self.scale)

    def cost_of(self, column: Column) -> int:
        """What the GPUs of ``column`` cost, in steps."""
        return sum(round(self.cost[block.kind] * COST_STEPS) * block.size for block in column.shape.blocks)


Pattern = tuple[Block, ...]
"""Blocks of one domain, in order of its GPUs."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Replicas of each column, how the domains of each class are cut, and the requests that they serve, in steps.

    ``values`` are those of all variables of the model.
    """

    counts: tuple[int, ...]
    patterns: tuple[tuple[Pattern, ...], ...]
    requests: int
    values: tuple[int, ...]


@dataclass(eq=False)
class FleetModel:
    """The model and its variables: replicas of each column, arcs of each class, requests per second in steps."""

    problem: Problem
    model: cp_model.CpModel
    count: list[Any]
    arcs: list[dict[tuple[int, int], Any]]
    requests: Any

    def total(self, figure: Callable[[Column], int]) -> Any:
        """The sum of a figure over all replicas."""
        return sum(
            figure(column) * count for column, count in zip(self.problem.columns, self.count, strict=True)
        )


def build(problem: Problem) -> FleetModel:
    """Return the model of ``problem`` with its constraints, without an objective."""
    built = _variables(problem)
    _pack(built)
    _take_blocks(built)
    _serve(built)
    _keep_few_layouts(built)
    return built


def _variables(problem: Problem) -> FleetModel:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    count = []
    for number, column in enumerate(problem.columns):
        limit = min(
            sum(
                domains.count * (domains.size // block.size)
                for domains in problem.classes
                if domains.kind == block.kind
                and domains.size >= block.size
                and block.slow in (-1, domains.number)
            )
            // needed
            for block, needed in column.blocks.items()
        )
        count.append(model.new_int_var(0, limit, f"replicas{number}"))
    return FleetModel(problem, model, count, [], model.new_int_var(0, problem.steps, "requests"))


def _pack(built: FleetModel) -> None:
    """Let the blocks of a domain lie one after the other: what ends at a place goes on from there, or stays idle."""
    problem, model = built.problem, built.model
    taken = {block for column in problem.columns for block in column.blocks}
    for domains in problem.classes:
        sizes = sorted({block.size for block in taken if block.kind == domains.kind}, reverse=True)
        arcs: dict[tuple[int, int], Any] = {}
        if domains.count <= MAX_COUNTED_SINGLY and domains.fast == domains.size:
            built.arcs.append(_in_each(model, domains, [size for size in sizes if size <= domains.size]))
            continue
        # where all GPUs are alike blocks come largest first: the same set of them is one path
        longest = {0: domains.size}
        for start in range(domains.size):
            if start not in longest:
                continue
            for size in sizes:
                end = start + size
                fits = end <= domains.size and (size <= longest[start] or domains.fast < domains.size)
                if fits and domains.block(start, size) in taken:
                    arcs[start, size] = model.new_int_var(
                        0, domains.count, f"d{domains.number}_{start}_{size}"
                    )
                    longest[end] = max(longest.get(end, 0), size)
            if domains.fast < domains.size and start + 1 < domains.size:
                # a GPU may be left out before the slow ones
                arcs[start, 0] = model.new_int_var(0, domains.count, f"d{domains.number}_{start}_left")
                longest.setdefault(start + 1, domains.size)
        for place in longest:
            out = [flow for (start, _), flow in arcs.items() if start == place]
            into = [flow for (start, size), flow in arcs.items() if start + (size or 1) == place]
            if out:
                model.add(sum(out) <= (domains.count if place == 0 else sum(into)))
        built.arcs.append(arcs)


def _in_each(
    model: cp_model.CpModel, domains: DomainClass, sizes: Sequence[int]
) -> dict[tuple[int, int], Any]:
    """Count the blocks of each size in each of a few domains: wherever they lie, they fit if they are few enough.

    The keys are ``(-1 - domain, size)``.
    """
    counts = {}
    for domain in range(domains.count):
        for size in sizes:
            limit = domains.size // size
            counts[-1 - domain, size] = model.new_int_var(0, limit, f"d{domains.number}_{domain}_{size}")
        model.add(sum(size * counts[-1 - domain, size] for size in sizes) <= domains.size)
    return counts


def _take_blocks(built: FleetModel) -> None:
    """Let replicas take no more of a block than the domains are cut into."""
    problem = built.problem
    cut: dict[Block, list[Any]] = {}
    for domains, arcs in zip(problem.classes, built.arcs, strict=True):
        for (start, size), flow in arcs.items():
            if size:
                cut.setdefault(domains.block(max(start, 0), size), []).append(flow)
    needs: dict[Block, list[Any]] = {}
    for column, count in zip(problem.columns, built.count, strict=True):
        for block, needed in column.blocks.items():
            needs.setdefault(block, []).append(needed * count)
    for block, terms in needs.items():
        built.model.add(sum(terms) <= sum(cut.get(block, [])))


def _serve(built: FleetModel) -> None:
    """Let every pool keep up with its share of the requests.

    All replicas of one phase of a model are of one group: its caches then arrive in time wherever they go. Requests
    are counted by group, so that no relaxation pairs the pools of one with those of another; what replicas of both
    phases serve comes on top.
    """
    problem, model = built.problem, built.model
    for number in {model for model, _ in problem.needs}:
        counted = [
            (column, count)
            for column, count in zip(problem.columns, built.count, strict=True)
            if column.model == number
        ]
        one_pool = [problem.rate(column) * count for column, count in counted if column.role == BOTH]
        groups = sorted({column.group for column, _ in counted if column.role != BOTH})
        shares, chosen_of = dict.fromkeys(groups, built.requests), dict[int, Any]()
        if len(groups) > 1 or one_pool:
            for group in groups:
                shares[group] = model.new_int_var(0, problem.steps, f"requests{number}_{group}")
            model.add(sum(shares.values()) + sum(one_pool) >= built.requests)
        if len(groups) > 1:
            for group in groups:
                chosen = model.new_bool_var(f"limits{number}_{group}")
                chosen_of[group] = chosen
                model.add(shares[group] <= problem.steps * chosen)
            model.add_exactly_one(chosen_of.values())
        for role, (group, share) in product(
            [role for index, role in problem.needs if index == number], shares.items()
        ):
            rates = []
            for column, count in counted:
                if (column.role, column.group) == (role, group):
                    rates.append(problem.rate(column) * count)
                    if len(groups) > 1:
                        model.add(count == 0).only_enforce_if(~chosen_of[group])
            model.add(sum(rates) >= share)


def _keep_few_layouts(built: FleetModel) -> None:
    """Let each model have few layouts in a role on GPUs of one name; one that joins several names counts on each."""
    problem, model = built.problem, built.model
    if problem.most_layouts is None:
        return
    names = {allowed.kind: allowed.spec.gpu.name for allowed in problem.classes}
    counts: dict[tuple[int, str, frozenset[str], tuple[int, ...], tuple[int, int, int]], list[Any]] = {}
    for column, count in zip(problem.columns, built.count, strict=True):
        on = frozenset(names[block.kind] for block in column.shape.blocks)
        counts.setdefault((column.model, column.role, on, column.shape.sizes, column.cut), []).append(count)
    used: dict[tuple[object, ...], list[Any]] = {}
    for number, ((index, role, on, *_), variables) in enumerate(counts.items()):
        allowed = model.new_bool_var(f"layout{number}")
        for count in variables:
            model.add(count == 0).only_enforce_if(~allowed)
        for name in on:
            used.setdefault((index, role, name), []).append(allowed)
    for layouts in used.values():
        if len(layouts) > problem.most_layouts:
            model.add(sum(layouts) <= problem.most_layouts)


@dataclass(frozen=True)
class Found:
    """What a search found: the best answer, None where it found none, its objective, and what none is better than.

    ``optimal``: the answer is the best. ``impossible``: it is proven that there is none.
    """

    answer: Answer | None = None
    value: float = math.nan
    bound: float = math.nan
    optimal: bool = False
    impossible: bool = False


def solve(
    built: FleetModel,
    budget: Budget,
    *,
    seed: int,
    start: Answer | None = None,
    gap: float = 0.0,
    most_s: float = math.inf,
) -> Found:
    """Search within the work that is left and ``most_s`` of the solver's own seconds, or to a relative ``gap``."""
    from ortools.sat.python import cp_model

    if not budget.goes_on():
        return Found()
    built.model.clear_hints()  # type: ignore[no-untyped-call]
    for index, known in enumerate(() if start is None else start.values):
        built.model.add_hint(built.model.get_int_var_from_proto_index(index), known)
    # all of the linear relaxation: without it the search is 9 % from the bound after 20 s (measured)
    solver, status = solve_within(built.model, budget, seed=seed, most_s=most_s, gap=gap, linear=2)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return Found(bound=solver.best_objective_bound, impossible=status == cp_model.INFEASIBLE)
    value, bound = solver.objective_value, solver.best_objective_bound
    answer = Answer(
        counts=tuple(map(solver.value, built.count)),
        patterns=tuple(
            _paths(domains, {arc: flowing for arc, flow in arcs.items() if (flowing := solver.value(flow))})
            for domains, arcs in zip(built.problem.classes, built.arcs, strict=True)
        ),
        requests=solver.value(built.requests),
        values=tuple(solver.response_proto.solution),
    )
    optimal = status == cp_model.OPTIMAL and math.isclose(value, bound, rel_tol=1e-9, abs_tol=0.5)
    return Found(answer, value, bound, optimal)


def _paths(domains: DomainClass, flow: dict[tuple[int, int], int]) -> tuple[Pattern, ...]:
    """Follow the flow: the blocks of each domain, none of them where it stays empty."""
    if any(start < 0 for start, _ in flow):
        return tuple(
            tuple(
                domains.block(0, size)
                for (start, size), count in sorted(flow.items(), key=lambda arc: -arc[0][1])
                if start == -1 - domain
                for _ in range(count)
            )
            for domain in range(domains.count)
        )
    patterns: list[Pattern] = []
    for _ in range(domains.count):
        place, blocks = 0, []
        while step := next(((start, size) for start, size in flow if start == place), None):
            flow[step] -= 1
            if not flow[step]:
                del flow[step]
            if step[1]:
                blocks.append(domains.block(*step))
            place += step[1] or 1
        patterns.append(tuple(blocks))
    return tuple(patterns)
