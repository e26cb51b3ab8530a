"""Choose the replicas of a fleet with one model and successive goals, each within a slack of the previous one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from cost.serving.limits import LimitError
from placement.budget import Budget
from placement.fleet.model import COST_STEPS, Answer, FleetModel, Found, Problem, build, solve
from placement.fleet.options import BOTH, PREFILL, WORTH_S, FleetOptions, Traffic
from placement.fleet.pricing import Priced
from placement.fleet.shapes import DomainClass
from placement.options import Goal
from placement.plan import Proof
from topology.base.errors import NoAnswerError
from topology.base.units import plural

COST_SLACK = 1e-3
"""Of the cost of a token that a larger fleet may have more; and the relative
gap at which a later goal is reached."""
FIRST_GOAL_GAP = 1e-4
"""Relative gap at which the first goal is reached."""
_FIRST_GOAL_SHARE = 0.8
"""Of the work that is left, the part of the search for the first goal."""
_START_S, _LATER_GOAL_S, _JOINTS_S = 0.5, 4.0, 2.0
"""The solver's own seconds at most of a first look, for a later goal, and for the last."""
_COST_ROUNDING = 1e-5
"""Costs of a request this close are equal: it is what whole numbers lose."""
_PART_OF_GAIN = 0.5
"""Of what a search for less cost could still gain, the part that it may leave to the next one."""
_MAX_RATIOS = 12
"""Ratios of cost to requests that are tried at most; the search ends where one is no better than the last."""
_FEW_COLUMNS = 3
"""Columns of a pool on a kind of domain that a first answer is made of."""

_UNITS: Mapping[Goal, str] = {
    "throughput": "output tok/s",
    "gpus": "GPUs per output tok/s",
    "usd": "USD/h per output tok/s",
    "power": "W per output tok/s",
}


@dataclass(frozen=True, eq=False)
class Chosen:
    """The chosen fleet: problem, answer, and proven bound of the goal in ``unit``."""

    problem: Problem
    answer: Answer
    proof: Proof
    unit: str
    search: str


def choose(
    classes: Sequence[DomainClass],
    traffic: Traffic,
    priced: Sequence[Priced],
    options: FleetOptions,
    budget: Budget,
) -> Chosen:
    """Return the best replicas that were found in time.

    Goals come one after the other, and none takes from those before it. Throughput: most requests, fewest GPUs. Cost
    of a token: least for each, then most requests at :data:`COST_SLACK` more. At last fewest joints: a replica stays
    inside a domain where that is as good.

    Raises
    ------
    LimitError
        If the pools do not fit beside each other within the limits.
    NoAnswerError
        If the time is over before the first answer.
    """
    problem = _problem(classes, traffic, priced, options)
    search = _Search(build(problem), budget.search(WORTH_S), options.seed)
    built, tok_s = search.built, traffic.osl / problem.scale
    start = _first_answer(problem, budget.fixed(_START_S), options.seed)
    if options.goal == "throughput":
        # no hint: what it is near keeps the search from better ones (measured)
        reached = search.reach(-built.requests, part=_FIRST_GOAL_SHARE, gap=FIRST_GOAL_GAP)
        if search.best is None or start.requests > search.best.requests:
            search.best = start
            built.model.add(built.requests >= start.requests)
        bound = problem.steps if math.isnan(reached.bound) else -reached.bound
        if not search.best.requests:
            _refuse(problem, traffic, proven=bound < 1)
        proof = _proof(search.best.requests * tok_s, bound * tok_s, optimal=reached.optimal)
        search.reach(built.total(lambda column: column.shape.gpus), gap=COST_SLACK, most_s=_LATER_GOAL_S)
    else:
        cost = built.total(problem.cost_of)
        search.best = start if start.requests else None
        built.model.add(built.requests >= 1)
        if search.best is None:
            reached = search.reach(cost, part=_FIRST_GOAL_SHARE, gap=FIRST_GOAL_GAP, keep=False)
            if search.best is None:
                _refuse(problem, traffic, proven=reached.impossible)
        proof = _least_per_request(search, cost, tok_s)
    assert search.best is not None  # noqa: S101 - else it is refused
    if any(
        len(joined.shape.blocks) > 1
        for joined, count in zip(problem.columns, search.best.counts, strict=True)
        if count
    ):
        search.reach(built.total(lambda column: len(column.shape.blocks) - 1), most_s=_JOINTS_S)
    unit = _UNITS[options.goal]
    arcs = sum(map(len, built.arcs))
    counted = f"{len(classes)} class{'es' * (len(classes) > 1)} of domains"
    counts = f"{plural(len(problem.columns), 'column')}, {plural(arcs, 'arc')}, {counted}"
    return Chosen(problem, search.best, proof, unit, f"CP-SAT: {counts}, seed {options.seed}")


@dataclass(eq=False)
class _Search:
    """Goals that are reached one after the other on one model, each from the best answer so far."""

    built: FleetModel
    clock: Budget
    seed: int
    best: Answer | None = None

    def reach(
        self, goal: Any, *, part: float = 1.0, gap: float = 0.0, most_s: float = math.inf, keep: bool = True
    ) -> Found:
        """Make ``goal`` least, in a part of the work that is left; ``keep`` it so from now on."""
        self.built.model.minimize(goal)
        result = solve(
            self.built, self.clock.part(part), seed=self.seed, start=self.best, gap=gap, most_s=most_s
        )
        if result.answer is not None:
            self.best = result.answer
            if keep:
                self.built.model.add(goal <= round(result.value))
        return result


def _first_answer(problem: Problem, budget: Budget, seed: int) -> Answer:
    """Return what the same model makes of few columns: a uniform plan and what is left over, in no time.

    They are those of each pool and kind of domain that serve most at their cost, and the smallest.
    """
    columns, chosen = problem.columns, list[int]()
    pools: dict[object, list[int]] = {}
    for number, column in enumerate(columns):
        kinds = frozenset(block.kind for block in column.shape.blocks)
        pools.setdefault((column.model, column.role, column.group, kinds), []).append(number)
    for numbers in pools.values():
        numbers.sort(key=lambda n: -problem.rate(columns[n]) / problem.cost_of(columns[n]))
        smallest = min(numbers, key=lambda n: columns[n].shape.gpus)
        chosen += dict.fromkeys([*numbers[:_FEW_COLUMNS], smallest])
    built = build(replace(problem, columns=[columns[number] for number in chosen]))
    built.model.maximize(built.requests)
    best = solve(built, budget, seed=seed, gap=COST_SLACK).answer
    counts = {} if best is None else dict(zip(chosen, best.counts, strict=True))
    expanded = tuple(counts.get(number, 0) for number in range(len(columns)))
    if best is None:
        return Answer(expanded, tuple(() for _ in problem.classes), 0, expanded)
    return replace(best, counts=expanded, values=expanded)


def _least_per_request(search: _Search, cost: Any, tok_s: float) -> Proof:
    """Reach the least cost of a request (Dinkelbach 1967), then most requests within :data:`COST_SLACK` more.

    What would cost less at the last ratio is searched for until there is nothing.
    """
    built, problem = search.built, search.built.problem
    costs = [problem.cost_of(column) for column in problem.columns]

    def ratio() -> float:
        assert search.best is not None  # noqa: S101 - the search began with one
        return (
            sum(cost * count for cost, count in zip(costs, search.best.counts, strict=True))
            / search.best.requests
        )

    # each pool of its cheapest replicas, as many as are just enough: no whole numbers cost less
    least_of: dict[tuple[int, str], float] = defaultdict(lambda: math.inf)
    for column, cost_of in zip(problem.columns, costs, strict=True):
        key = column.model, column.role
        least_of[key] = min(least_of[key], cost_of / max(problem.rate(column), 1))
    models = {model for model, _ in problem.needs}
    bound = sum(
        min(least_of[model, BOTH], sum(least_of[key] for key in problem.needs if key[0] == model))
        for model in models
    )
    for _ in range(_MAX_RATIOS):
        least = ratio()
        # as near the bound as a larger fleet may be, long searches gain a millionth of the cost (measured)
        most_s = _START_S if least <= bound * (1 + COST_SLACK) else math.inf
        steps_of = _fine(problem, least)
        gain = steps_of * cost - math.floor(least * steps_of) * built.requests
        result = search.reach(gain, part=1 / 3, gap=_PART_OF_GAIN, most_s=most_s, keep=False)
        if ratio() >= least * (1 - _COST_ROUNDING):
            bound = least if result.optimal else min(bound, least)
            break
    if not search.clock.cut:
        ceiling, steps_of = ratio() * (1 + COST_SLACK), _fine(problem, ratio())
        built.model.add(steps_of * cost <= math.ceil(ceiling * steps_of) * built.requests)
        search.reach(-built.requests, gap=COST_SLACK, most_s=_LATER_GOAL_S)
        search.reach(cost, most_s=_START_S)
    steps = COST_STEPS * tok_s
    reached, bound = ratio() / steps, min(bound, ratio()) / steps
    return _proof(reached, bound, optimal=bound >= reached * (1 - _COST_ROUNDING))


def _fine(problem: Problem, ratio: float) -> int:
    """Whole steps to one of a cost of a request, as fine as 64 bits hold."""
    return max(1, min(10**5, math.floor(2**60 / (ratio * problem.steps))))


def _problem(
    classes: Sequence[DomainClass], traffic: Traffic, priced: Sequence[Priced], options: FleetOptions
) -> Problem:
    columns = [column for entry in priced for column in entry.columns]
    needs = {(model, phase): share for model, share in enumerate(traffic.shares) for phase in traffic.phases}
    gpus = sum(domains.count * domains.size for domains in classes)
    limit = min(
        gpus
        * max(
            column.requests_per_s / column.shape.gpus
            for column in columns
            if column.model == key[0] and key[1] in column.phases
        )
        / share
        for key, share in needs.items()
    )
    book = traffic.deployments[0][0].prices
    figure = {"usd": book.price, "power": book.power}.get(options.goal)
    cost = {domains.kind: figure(domains.spec.gpu).value if figure else 1.0 for domains in classes}
    return Problem(classes, columns, needs, cost, limit, options.most_layouts)


def _refuse(problem: Problem, traffic: Traffic, *, proven: bool) -> NoReturn:
    names = " and ".join(decode.model.name for decode, _ in traffic.deployments)
    word = "prefills and decodes" if len(traffic.phases) > 1 else "decodes"
    if not proven:
        raise NoAnswerError(f"no fleet that {word} {names} was found within the time limit; give more.")
    least = [
        f"{min(c.shape.gpus for c in problem.columns if c.model == key[0] and key[1] in c.phases)} GPUs "
        f"to {'prefill' if key[1] == PREFILL else 'decode'} {traffic.deployments[key[0]][0].model.name}"
        for key in problem.needs
    ]
    gpus = sum(domains.count * domains.size for domains in problem.classes)
    raise LimitError(
        traffic.first_to_go,
        f"{gpus} GPUs do not hold a replica of each kind beside the others{traffic.limits}: the least take "
        f"{', '.join(least)}; take more GPUs{', or looser limits' if traffic.limits else ''}.",
    )


def _proof(objective: float, bound: float, *, optimal: bool) -> Proof:
    """``bound`` is above a throughput, and below a cost."""
    gap = abs(bound - objective) / max(abs(bound), abs(objective), 1e-300)
    if optimal:
        bound, gap = objective, 0.0
    return Proof("OPTIMAL" if optimal else "FEASIBLE", objective, bound, gap)
