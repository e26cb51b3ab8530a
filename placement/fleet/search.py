"""Choose the replicas of a fleet by its goal: the set partitioning, solved as often as the goal needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cost.money.prices import PriceBook
from cost.serving.limits import LimitError
from placement.budget import Budget
from placement.fleet.blocks import DomainClass
from placement.fleet.columns import PREFILL, Column, Priced, Traffic
from placement.fleet.cpsat import COST_STEPS, Answer, Master, Problem, build, hint, solve
from placement.fleet.greedy import first_answer, thinned
from placement.fleet.options import WORTH_S, FleetOptions, Goal
from placement.plan import Proof
from topology.base.errors import InfeasibleError, NoAnswerError, input_name
from topology.base.units import plural
from topology.spec import GpuSpec

_SLACK = 1e-3
"""Of the cost of a token that a larger fleet may have more, where no number of tokens is asked for."""
_ROUNDS = 12
_START_S, _TIDY_S, _JOINTS_S = 0.5, 4.0, 2.0
"""The solver's own seconds at most of a first look, to take GPUs out that serve nothing, and to keep replicas inside
domains."""
_MAIN = 0.8
"""Of the work that is left, the part of the search for what is asked; the rest is for that."""
_CLOSE = 1e-4
"""Relative gap at which a search ends."""
_FINE = 10**5

_UNITS: Mapping[Goal, tuple[str, str]] = {
    "throughput": ("output tok/s", ""),
    "gpus": ("GPUs", "GPUs per output tok/s"),
    "usd": ("USD/h", "USD/h per output tok/s"),
    "power": ("W", "W per output tok/s"),
}


@dataclass(frozen=True, eq=False)
class Chosen:
    """What was chosen: the problem, the answer, and what is proven of the goal, in ``unit``."""

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

    Raises
    ------
    LimitError
        If the pools do not fit beside each other within the limits.
    InfeasibleError
        If they do not reach the tokens asked for.
    NoAnswerError
        If the time is over before the first answer.
    """
    problem = _problem(classes, traffic, priced, options)
    clock = budget.search(WORTH_S)
    master = build(problem)
    tok_s, peak = traffic.osl / problem.scale, options.peak_tok_s
    most = first_answer(problem, cheapest=options.wanted != "throughput" and peak is None)
    short = most.requests * tok_s < peak if peak is not None else most.requests <= 0
    if options.wanted == "throughput" or short:
        most = _most_requests(master, most, clock, options, None if peak is None else peak / tok_s)
    if most.requests <= 0:
        _refuse_none(problem, traffic, most)
    if peak is not None and most.requests * tok_s < peak * (1 - 1e-6):
        reach, bound = most.requests * tok_s, most.bound * tok_s
        asked = f"{input_name('tok_s')} {options.tok_s:,.0f}" + (
            f" at {input_name('utilization')} {options.utilization:g}, {peak:,.0f} at peak,"
            if options.utilization < 1
            else ""
        )
        if bound >= peak and not most.optimal:
            raise NoAnswerError(
                f"{asked}: not reached in the time there was; the best found serves {reach:,.0f} output tok/s and "
                f"nothing serves more than {bound:,.0f}; give {input_name('time_limit_s')} more seconds."
            )
        looser = ", or looser limits" if traffic.limits else ""
        raise InfeasibleError(
            f"{asked} is out of reach: the GPUs there are serve {math.floor(reach):,} output tok/s at most"
            f"{traffic.limits} ({reach / peak:.1%}); take more GPUs{looser}."
        )
    goal = options.wanted
    if goal == "throughput":
        answer = _fewest_gpus(master, most, clock, options.seed)
        proof = _proof(most.requests * tok_s, most.bound * tok_s, optimal=most.optimal)
    elif peak is not None:
        answer, proof = _least_cost(master, most, math.ceil(peak * (1 - 1e-6) / tok_s), clock, options.seed)
    else:
        answer, proof = _least_per_token(master, most, tok_s, clock, options.seed)
    unit = _UNITS[goal][0 if goal == "throughput" or peak is not None else 1]
    arcs = sum(map(len, master.arcs))
    counted = f"{len(classes)} class{'es' * (len(classes) > 1)} of domains"
    counts = f"{plural(len(problem.columns), 'column')}, {plural(arcs, 'arc')}, {counted}"
    search = f"CP-SAT: {counts}, seed {options.seed}"
    return Chosen(problem, answer, proof, unit, search)


def _problem(
    classes: Sequence[DomainClass], traffic: Traffic, priced: Sequence[Priced], options: FleetOptions
) -> Problem:
    columns = [column for one in priced for column in one.columns]
    needs = {(model, role): share for model, share in enumerate(traffic.shares) for role in traffic.roles}
    gpus = sum(one.domains * one.size for one in classes)
    most = min(
        gpus
        * max(
            column.requests_per_s / column.shape.gpus
            for column in columns
            if (column.model, column.role) == key
        )
        / share
        for key, share in needs.items()
    )
    figure = _costs(options.wanted, traffic.deployments[0][0].prices)
    return Problem(classes, columns, needs, {one.kind: figure(one.spec.gpu) for one in classes}, most)


def _costs(goal: Goal, book: PriceBook) -> Callable[[GpuSpec], float]:
    if goal == "usd":
        return lambda gpu: book.price(gpu).value
    if goal == "power":
        return lambda gpu: book.power(gpu).value
    return lambda _: 1.0


def _refuse_none(problem: Problem, traffic: Traffic, most: Answer) -> None:
    names = " and ".join(decode.model.name for decode, _ in traffic.deployments)
    word = "prefills and decodes" if len(traffic.roles) > 1 else "decodes"
    if most.bound >= 1:
        raise NoAnswerError(f"no fleet that {word} {names} was found in the time there was; give more.")
    least = [
        f"{min(one.shape.gpus for one in problem.columns if (one.model, one.role) == key)} GPUs "
        f"to {'prefill' if key[1] == PREFILL else 'decode'} {traffic.deployments[key[0]][0].model.name}"
        for key in problem.needs
    ]
    gpus = sum(one.domains * one.size for one in problem.classes)
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


def _most_requests(
    master: Master, first: Answer, clock: Budget, options: FleetOptions, enough: float | None
) -> Answer:
    """As many requests as can be served; where that is not the goal, ``enough`` of them (None: any at all)."""
    master.model.maximize(master.requests)
    # no hint: what it is near keeps the search from better ones (measured)
    if options.wanted == "throughput":
        least, part = math.inf if enough is None else math.ceil(enough), clock.part(_MAIN)
    else:
        least, part = 1 if enough is None else math.ceil(enough), clock.part(0.5)
    found = solve(master, part, seed=options.seed, gap=_CLOSE, enough=least)
    if found.answer is not None and found.answer.requests >= first.requests:
        return found.answer
    return replace(first, bound=min(first.bound, found.bound))  # that may be no number: the first one stays


def _fewest_gpus(master: Master, most: Answer, budget: Budget, seed: int) -> Answer:
    """As many requests, on as few GPUs as they take: the rest is idle, and not busy for nothing."""
    most = thinned(master.problem, most)
    if budget.cut:
        return most
    master.model.add(master.requests >= most.requests)
    master.model.minimize(master.gpus)
    hint(master, most)
    fewest = solve(master, budget.part(1.0), seed=seed, gap=_SLACK, most=_TIDY_S).answer or most
    gpus = sum(one.shape.gpus * many for one, many in _taken(master, fewest))
    return _fewest_joints(master, fewest, master.gpus <= gpus, budget, seed)


def _taken(master: Master, answer: Answer) -> list[tuple[Column, int]]:
    """The columns of an answer, and how many replicas of each."""
    return [(one, many) for one, many in zip(master.problem.columns, answer.counts, strict=True) if many]


def _fewest_joints(master: Master, best: Answer, as_good: Any, budget: Budget, seed: int) -> Answer:
    """Of answers that are as good and serve as much one whose replicas go from domain to domain least."""
    if budget.cut or not any(len(one.shape.blocks) > 1 for one, _ in _taken(master, best)):
        return best
    master.model.add(as_good)
    master.model.add(master.requests >= best.requests)
    master.model.minimize(master.joints)
    hint(master, best)
    return solve(master, budget.part(1.0), seed=seed, most=_JOINTS_S).answer or best


def _least_cost(
    master: Master, most: Answer, requests: int, budget: Budget, seed: int
) -> tuple[Answer, Proof]:
    """As many requests as are asked for at the least cost."""
    master.model.add(master.requests >= requests)
    master.model.minimize(master.cost)
    cheap = thinned(master.problem, replace(most, requests=requests))
    hint(master, cheap)
    searched = solve(master, budget.part(_MAIN), seed=seed, gap=_CLOSE)
    found = searched.answer
    cost = master.problem.cost_of_all(cheap.counts)
    if found is None or found.value > cost:
        bound = 0.0 if math.isnan(searched.bound) else searched.bound
        return cheap, _proof(cost / COST_STEPS, bound / COST_STEPS, optimal=False)
    proof = _proof(found.value / COST_STEPS, found.bound / COST_STEPS, optimal=found.optimal)
    found = replace(found, requests=requests)
    return _fewest_joints(master, found, master.cost <= round(found.value), budget, seed), proof


def _least_per_token(
    master: Master, most: Answer, tok_s: float, budget: Budget, seed: int
) -> tuple[Answer, Proof]:
    """The least cost of a token (Dinkelbach 1967): what would cost less at the last ratio, until there is nothing."""
    problem = master.problem

    def cost(answer: Answer) -> int:
        return problem.cost_of_all(answer.counts)

    # each pool of its cheapest replicas, as many as are just enough: no whole numbers cost less
    bound = sum(
        min(problem.cost_of(c) / max(problem.rate(c), 1) for c in problem.columns if (c.model, c.role) == key)
        for key in problem.needs
    )
    best, proven = thinned(problem, most), False
    for number in range(_ROUNDS):
        price = cost(best) / best.requests
        master.model.maximize(math.floor(price * _FINE) * master.requests - _FINE * master.cost)
        hint(master, best)
        # as near the bound as a larger fleet may be, long searches gain a millionth of the cost (measured)
        most_s = _START_S if number == 0 or price <= bound * (1 + _SLACK) else math.inf
        found = solve(master, budget.part(1 / 3), seed=seed, most=most_s).answer
        if found is None:
            break
        if found.requests <= 0 or cost(found) / found.requests >= price * (1 - 1e-5):
            proven = found.optimal
            break
        best = found
    least = cost(best) / best.requests
    if not budget.cut:
        # of fleets as cheap the largest
        master.model.add(_FINE * master.cost <= math.ceil(least * (1 + _SLACK) * _FINE) * master.requests)
        master.model.maximize(master.requests)
        hint(master, best)
        best = solve(master, budget.part(1.0), seed=seed, gap=_SLACK, most=_TIDY_S).answer or best
        best = _fewest_joints(master, best, master.cost <= cost(best), budget, seed)
    steps = COST_STEPS * tok_s
    reached, bound = cost(best) / best.requests, least if proven else min(bound, least)
    # as near as the other goals are solved to
    return best, _proof(reached / steps, bound / steps, optimal=bound >= reached * (1 - _CLOSE))
