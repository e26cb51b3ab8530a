"""The set partitioning of a fleet in CP-SAT: how many replicas of each column, on domains that are counted.

Blocks are packed into the domains of a class by arcs: a domain is a path from 0 on, an arc a block, its flow the
domains that have a block there (Valério de Carvalho 1999, Annals of Operations Research 86).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.fleet.blocks import Block, DomainClass
from placement.fleet.columns import Column

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STEPS, STEPS_PER_GPU = 10**6, 2000
"""Whole steps to the most requests per second that any fleet could serve, at least, and for each GPU. Ten times as
many leave twice the gap in the same time."""
FEW = 2
"""Domains of a class up to which blocks are counted in each, and not by where they lie."""
COST_STEPS = 10**4
"""Whole steps to one unit of a cost."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What is asked.

    Attributes
    ----------
    columns:
        Of all models and roles; ``needs[(model, role)]`` is the share of the requests that those must serve.
    cost:
        Of a GPU of each kind of domain, by the goal: 1, USD per hour, or watts.
    most:
        Requests per second that no fleet can serve more than.
    """

    classes: Sequence[DomainClass]
    columns: Sequence[Column]
    needs: Mapping[tuple[int, str], float]
    cost: Mapping[int, float]
    most: float

    @property
    def scale(self) -> float:
        """Steps of a request per second."""
        return self.steps / self.most

    @property
    def steps(self) -> int:
        """Whole steps to ``most``."""
        return max(STEPS, STEPS_PER_GPU * sum(one.domains * one.size for one in self.classes))

    def rate(self, column: Column) -> int:
        """Requests per second of the whole traffic that ``column`` keeps up with, in steps, rounded down."""
        return math.floor(column.requests_per_s / self.needs[column.model, column.role] * self.scale)

    def cost_of(self, column: Column) -> int:
        """What the GPUs of ``column`` cost, in steps."""
        return sum(round(self.cost[block.kind] * COST_STEPS) * block.size for block in column.shape.blocks)

    def cost_of_all(self, counts: Sequence[int]) -> int:
        """What so many replicas of each column cost, in steps."""
        return sum(self.cost_of(one) * many for one, many in zip(self.columns, counts, strict=True) if many)


Pattern = tuple[Block, ...]
"""Blocks of one domain, in order of its GPUs."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Replicas of each column, how the domains of each class are cut, and what is proven.

    ``value`` and ``bound`` are of the objective that was asked for last, in its steps.
    """

    counts: tuple[int, ...]
    patterns: tuple[tuple[Pattern, ...], ...]
    requests: int
    value: float
    bound: float
    optimal: bool


@dataclass(eq=False)
class Master:
    """The model and its variables."""

    problem: Problem
    model: cp_model.CpModel
    count: list[Any]
    arcs: list[dict[tuple[int, int], Any]]
    requests: Any
    chosen: dict[tuple[int, int], Any] = field(default_factory=dict)

    @property
    def cost(self) -> Any:
        """What all replicas cost."""
        problem = self.problem
        return sum(
            problem.cost_of(column) * count for column, count in zip(problem.columns, self.count, strict=True)
        )

    @property
    def gpus(self) -> Any:
        """GPUs of all replicas."""
        return sum(
            column.shape.gpus * count for column, count in zip(self.problem.columns, self.count, strict=True)
        )

    @property
    def joints(self) -> Any:
        """Blocks of all replicas but one of each: how often a replica goes from one domain to another."""
        return sum(
            (len(column.shape.blocks) - 1) * count
            for column, count in zip(self.problem.columns, self.count, strict=True)
        )


def build(problem: Problem) -> Master:
    """Return the model of ``problem`` with its constraints, without an objective."""
    master = _variables(problem)
    _pack(master)
    _take_blocks(master)
    _serve(master)
    return master


def _variables(problem: Problem) -> Master:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    count = []
    for number, column in enumerate(problem.columns):
        most = min(
            sum(
                one.domains * (one.size // block.size)
                for one in problem.classes
                if one.kind == block.kind and one.size >= block.size and block.slow in (-1, one.number)
            )
            // many
            for block, many in column.blocks.items()
        )
        count.append(model.new_int_var(0, most, f"replicas{number}"))
    return Master(problem, model, count, [], model.new_int_var(0, problem.steps, "requests"))


def _pack(master: Master) -> None:
    """Let the blocks of a domain lie one after the other: what ends at a place goes on from there, or stays idle."""
    problem, model = master.problem, master.model
    wanted = {block for column in problem.columns for block in column.blocks}
    for one in problem.classes:
        sizes = sorted({block.size for block in wanted if block.kind == one.kind}, reverse=True)
        arcs: dict[tuple[int, int], Any] = {}
        if one.domains <= FEW and one.fast == one.size:
            master.arcs.append(_in_each(model, one, [size for size in sizes if size <= one.size]))
            continue
        # where all GPUs are alike blocks come largest first: the same set of them is one path
        longest = {0: one.size}
        for start in range(one.size):
            if start not in longest:
                continue
            for size in sizes:
                end = start + size
                fits = end <= one.size and (size <= longest[start] or one.fast < one.size)
                if fits and one.block(start, size) in wanted:
                    arcs[start, size] = model.new_int_var(0, one.domains, f"d{one.number}_{start}_{size}")
                    longest[end] = max(longest.get(end, 0), size)
            if one.fast < one.size and start + 1 < one.size:
                # a GPU may be left out before the slow ones
                arcs[start, 0] = model.new_int_var(0, one.domains, f"d{one.number}_{start}_left")
                longest.setdefault(start + 1, one.size)
        for place in longest:
            out = [flow for (start, _), flow in arcs.items() if start == place]
            into = [flow for (start, size), flow in arcs.items() if start + (size or 1) == place]
            if out:
                model.add(sum(out) <= (one.domains if place == 0 else sum(into)))
        master.arcs.append(arcs)


def _in_each(model: cp_model.CpModel, one: DomainClass, sizes: Sequence[int]) -> dict[tuple[int, int], Any]:
    """Count the blocks of each size in each of a few domains: wherever they lie, they fit if they are few enough.

    The keys are ``(-1 - domain, size)``.
    """
    counts = {}
    for domain in range(one.domains):
        for size in sizes:
            most = one.size // size
            counts[-1 - domain, size] = model.new_int_var(0, most, f"d{one.number}_{domain}_{size}")
        model.add(sum(size * counts[-1 - domain, size] for size in sizes) <= one.size)
    return counts


def _take_blocks(master: Master) -> None:
    """Let replicas take no more of a block than the domains are cut into."""
    problem = master.problem
    cut: dict[Block, list[Any]] = {}
    for one, arcs in zip(problem.classes, master.arcs, strict=True):
        for (start, size), flow in arcs.items():
            if size:
                cut.setdefault(one.block(max(start, 0), size), []).append(flow)
    taken: dict[Block, list[Any]] = {}
    for column, count in zip(problem.columns, master.count, strict=True):
        for block, many in column.blocks.items():
            taken.setdefault(block, []).append(many * count)
    for block, terms in taken.items():
        master.model.add(sum(terms) <= sum(cut.get(block, [])))


def _serve(master: Master) -> None:
    """Let every pool keep up with its share of the requests.

    All replicas of a model are of one group: its caches then arrive in time wherever they go. Requests are counted by
    group, so that no relaxation pairs the pools of one with those of another.
    """
    problem, model = master.problem, master.model
    for number in {model for model, _ in problem.needs}:
        groups = sorted({column.group for column in problem.columns if column.model == number})
        shares = dict.fromkeys(groups, master.requests)
        if len(groups) > 1:
            for group in groups:
                shares[group] = model.new_int_var(0, problem.steps, f"requests{number}_{group}")
                chosen = model.new_bool_var(f"limits{number}_{group}")
                master.chosen[number, group] = chosen
                model.add(shares[group] <= problem.steps * chosen)
            model.add(sum(shares.values()) == master.requests)
            model.add_exactly_one(master.chosen[number, group] for group in groups)
        for role, (group, share) in product(
            [role for one, role in problem.needs if one == number], shares.items()
        ):
            rates = []
            for column, count in zip(problem.columns, master.count, strict=True):
                if (column.model, column.role, column.group) == (number, role, group):
                    rates.append(problem.rate(column) * count)
                    if len(groups) > 1:
                        model.add(count == 0).only_enforce_if(~master.chosen[number, group])
            model.add(sum(rates) >= share)


@dataclass(frozen=True)
class Found:
    """The best answer of a search, None where it found none, and what no answer is better than."""

    answer: Answer | None
    bound: float


def solve(
    master: Master,
    budget: Budget,
    *,
    seed: int,
    gap: float = 0.0,
    most: float = math.inf,
    enough: float = math.inf,
) -> Found:
    """Search within the work that is left, and within ``most`` of the solver's own seconds.

    It is over at a relative ``gap``, and at the first answer whose objective is ``enough``.
    """
    from ortools.sat.python import cp_model

    class StopAtEnough(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if self.objective_value >= enough:
                self.stop_search()

    if not budget.goes_on():
        return Found(None, math.nan)
    # all of the linear relaxation: without it the search is 9 % from the bound after 20 s (measured)
    solver, status = solve_within(
        master.model, budget, seed=seed, most_s=most, gap=gap, linear=2, callback=StopAtEnough()
    )
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return Found(None, solver.best_objective_bound)
    value, bound = solver.objective_value, solver.best_objective_bound
    flows = [{arc: solver.value(one) for arc, one in arcs.items()} for arcs in master.arcs]
    answer = Answer(
        counts=tuple(map(solver.value, master.count)),
        patterns=tuple(
            _paths(one, {arc: many for arc, many in flow.items() if many})
            for one, flow in zip(master.problem.classes, flows, strict=True)
        ),
        requests=solver.value(master.requests),
        value=value,
        bound=bound,
        optimal=status == cp_model.OPTIMAL and math.isclose(value, bound, rel_tol=1e-9, abs_tol=0.5),
    )
    return Found(answer, bound)


def _paths(one: DomainClass, flow: dict[tuple[int, int], int]) -> tuple[Pattern, ...]:
    """Follow the flow: the blocks of each domain, none of them where it stays empty."""
    if any(start < 0 for start, _ in flow):
        return tuple(
            tuple(
                one.block(0, size)
                for (start, size), many in sorted(flow.items(), key=lambda arc: -arc[0][1])
                if start == -1 - domain
                for _ in range(many)
            )
            for domain in range(one.domains)
        )
    found: list[Pattern] = []
    for _ in range(one.domains):
        place, blocks = 0, []
        while step := next(((start, size) for start, size in flow if start == place), None):
            flow[step] -= 1
            if not flow[step]:
                del flow[step]
            if step[1]:
                blocks.append(one.block(*step))
            place += step[1] or 1
        found.append(tuple(blocks))
    return tuple(found)


def hint(master: Master, answer: Answer) -> None:
    """Start the next search from ``answer``."""
    master.model.clear_hints()  # type: ignore[no-untyped-call]
    for count, many in zip(master.count, answer.counts, strict=True):
        master.model.add_hint(count, many)
    for one, arcs, patterns in zip(master.problem.classes, master.arcs, answer.patterns, strict=True):
        flow: dict[tuple[int, int], int] = dict.fromkeys(arcs, 0)
        by_domain = any(start < 0 for start, _ in arcs)
        for domain, pattern in enumerate(patterns):
            place = 0
            if by_domain:
                for block in pattern:
                    flow[-1 - domain, block.size] += 1
                continue
            for block in pattern:
                while (place, block.size) not in flow or one.block(place, block.size) != block:
                    flow[place, 0] += 1
                    place += 1
                flow[place, block.size] += 1
                place += block.size
        for arc, many in flow.items():
            master.model.add_hint(arcs[arc], many)
    master.model.add_hint(master.requests, answer.requests)
