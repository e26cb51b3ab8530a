"""A fast first answer: replica by replica, always for the pool that serves least, the one with most to each GPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from placement.fleet.blocks import Block
from placement.fleet.columns import Column
from placement.fleet.cpsat import Answer, Problem

_PRICES = 48
"""Steps of the price of one pool's tokens in the other's."""


@dataclass(eq=False)
class _Domain:
    """A domain that is filled: GPUs of its fast part that are left, and the blocks in it."""

    number: int
    kind: int
    left: int
    blocks: list[Block] = field(default_factory=list)


def first_answer(problem: Problem, *, cheapest: bool = False) -> Answer:
    """Return replicas that serve what they can; none where no pool finds room beside the others.

    ``cheapest``: those with most to their cost first, and no more of them than cost least for each request.

    Of each group of limits that the models' columns are in (:class:`placement.fleet.columns.Priced`) the best.
    Slow GPUs stay empty.
    """
    groups = sorted({column.group for column in problem.columns})
    tries = [_filled(problem, group, cheapest=cheapest) for group in groups]
    if not cheapest:
        tries += [answer for group in groups for answer in _by_patterns(problem, group)]
    if cheapest and any(answer.requests for answer in tries):
        return min(
            (answer for answer in tries if answer.requests),
            key=lambda answer: problem.cost_of_all(answer.counts) / answer.requests,
        )
    return max(tries, key=lambda answer: answer.requests)


def _filled(problem: Problem, group: int, *, cheapest: bool) -> Answer:
    domains = [
        [_Domain(one.number, one.kind, one.fast) for _ in range(one.domains)] for one in problem.classes
    ]
    every = [domain for row in domains for domain in row]
    first: dict[int, int] = {}
    for column in problem.columns:
        first[column.model] = min(column.group, first.get(column.model, column.group))
    has = {column.model for column in problem.columns if column.group == group}
    ranked = sorted(
        (
            (number, column)
            for number, column in enumerate(problem.columns)
            if column.group == (group if column.model in has else first[column.model])
        ),
        key=lambda pair: (
            -pair[1].requests_per_s / (problem.cost_of(pair[1]) if cheapest else pair[1].shape.gpus)
        ),
    )
    counts = [0] * len(problem.columns)
    served = dict.fromkeys(problem.needs, 0)
    cost, least, best = 0, math.inf, (tuple(counts), 0)
    while (chosen := _next(ranked, min(served, key=lambda key: served[key]), every)) is not None:
        number, column, places = chosen
        for block, domain in zip(column.shape.blocks, places, strict=True):
            domain.left -= block.size
            domain.blocks.append(block)
        counts[number] += 1
        served[column.model, column.role] += problem.rate(column)
        cost, requests = cost + problem.cost_of(column), min(served.values())
        if requests and (not cheapest or cost / requests <= least):
            least, best = cost / requests, (tuple(counts), requests)
    patterns = tuple(tuple(tuple(sorted(domain.blocks, reverse=True)) for domain in row) for row in domains)
    return Answer(best[0], patterns, best[1], float(best[1]), _bound(problem), optimal=False)


def _by_patterns(problem: Problem, group: int) -> Iterator[Answer]:
    """Yield fleets of two pools whose domains are cut in two ways: the best at two prices next to each other.

    Of a linear relaxation over whole domains those are the best. Domains of a class take the first way or the second.
    """
    keys = list(problem.needs)
    columns = [
        (number, one)
        for number, one in enumerate(problem.columns)
        if one.group == group and len(one.shape.blocks) == 1 and one.shape.blocks[0].slow < 0
    ]
    if len(keys) != 2 or len({column.model for column in problem.columns}) > 1:
        return
    ways = [_ways(problem, columns, {keys[0]: n, keys[1]: _PRICES - n}) for n in range(_PRICES + 1)]
    domains = [number for number, one in enumerate(problem.classes) for _ in range(one.domains)]
    for first, second in pairwise(ways):
        if first == second:
            continue
        served = dict.fromkeys(keys, 0)
        for number in domains:
            _count(problem, second[number], served, 1)
        best, many = min(served.values()), 0
        for index, number in enumerate(domains, 1):
            _count(problem, second[number], served, -1)
            _count(problem, first[number], served, 1)
            if min(served.values()) > best:
                best, many = min(served.values()), index
        taken = [(first if index < many else second)[number] for index, number in enumerate(domains)]
        counts = Counter(number for way in taken for number in way)
        cut = [
            tuple(sorted((problem.columns[n].shape.blocks[0] for n in way), reverse=True)) for way in taken
        ]
        patterns = tuple(
            tuple(way for way, of in zip(cut, domains, strict=True) if of == number)
            for number in range(len(problem.classes))
        )
        every = tuple(counts[number] for number in range(len(problem.columns)))
        yield Answer(every, patterns, best, float(best), _bound(problem), optimal=False)


def _count(problem: Problem, way: Sequence[int], served: dict[tuple[int, str], int], sign: int) -> None:
    for number in way:
        column = problem.columns[number]
        served[column.model, column.role] += sign * problem.rate(column)


def _ways(
    problem: Problem, columns: Sequence[tuple[int, Column]], price: Mapping[tuple[int, str], int]
) -> list[list[int]]:
    """Return the columns that fill a domain of each class with most, by what a request of each pool is worth."""
    found = []
    for one in problem.classes:
        worth = [0] * (one.fast + 1)
        last: list[int | None] = [None] * (one.fast + 1)
        for size in range(1, one.fast + 1):
            worth[size] = worth[size - 1]
            for number, column in columns:
                block = column.shape.blocks[0]
                if block.kind == one.kind and block.size <= size:
                    more = worth[size - block.size] + price[column.model, column.role] * problem.rate(column)
                    if more > worth[size]:
                        worth[size], last[size] = more, number
        way: list[int] = []
        left = one.fast
        while left:
            taken = last[left]
            if taken is not None:
                way.append(taken)
            left -= 1 if taken is None else problem.columns[taken].shape.blocks[0].size
        found.append(way)
    return found


def _bound(problem: Problem) -> float:
    """No fleet serves more: each pool of the replicas with most to each GPU, on as many GPUs as keep up."""
    best = [
        max(problem.rate(c) / c.shape.gpus for c in problem.columns if (c.model, c.role) == key)
        for key in problem.needs
    ]
    gpus = sum(one.domains * one.size for one in problem.classes)
    return min(float(problem.steps), math.ceil(gpus / sum(1 / rate for rate in best))) if all(best) else 0.0


def _next(
    ranked: Sequence[tuple[int, Column]], least: tuple[int, str], domains: Sequence[_Domain]
) -> tuple[int, Column, list[_Domain]] | None:
    """The first column of a model and role for which there is room, and where."""
    for number, column in ranked:
        if (column.model, column.role) == least:
            places = _places(column, domains)
            if places is not None:
                return number, column, places
    return None


def _places(column: Column, domains: Sequence[_Domain]) -> list[_Domain] | None:
    """Domains with room for each block, no two in one: of those the fullest; None where there are none."""
    found: dict[_Domain, None] = {}
    able = {block: iter(_fullest_first(block, domains)) for block in set(column.shape.blocks)}
    for block in column.shape.blocks:
        chosen = next((domain for domain in able[block] if domain not in found), None)
        if chosen is None:
            return None
        found[chosen] = None
    return list(found)


def _fullest_first(block: Block, domains: Sequence[_Domain]) -> list[_Domain]:
    """Domains with room for a block."""
    if block.slow >= 0:
        return []
    able = [domain for domain in domains if domain.kind == block.kind and domain.left >= block.size]
    return sorted(able, key=lambda domain: (domain.left, domain.number))


def thinned(problem: Problem, answer: Answer) -> Answer:
    """Leave out replicas without which as many requests are served, the largest first."""
    counts = list(answer.counts)
    served = dict.fromkeys(problem.needs, 0)
    for column, many in zip(problem.columns, counts, strict=True):
        served[column.model, column.role] += problem.rate(column) * many
    for number, column in sorted(enumerate(problem.columns), key=lambda pair: -problem.cost_of(pair[1])):
        rate, key = problem.rate(column), (column.model, column.role)
        more = counts[number] if rate == 0 else min(counts[number], (served[key] - answer.requests) // rate)
        if more > 0:
            counts[number] -= more
            served[key] -= more * rate
    return replace(answer, counts=tuple(counts))
