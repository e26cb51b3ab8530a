"""The set partitioning against every choice there is, on a few GPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.budget import Budget
from placement.fleet.assign import assign
from placement.fleet.model import Answer, Problem, build, solve
from placement.fleet.options import BOTH, DECODE, PREFILL
from placement.fleet.pricing import Column, drop_dominated
from placement.fleet.shapes import Block, DomainClass, even
from topology import resolve_cluster

SPEC = resolve_cluster("hgx-h100").spec.domains[0]
NEEDED = (DECODE, PREFILL)
NEEDS = {(0, role): 1.0 for role in NEEDED}


def classes(*sizes: tuple[int, int], slow: int = 0) -> list[DomainClass]:
    """Classes of one kind: GPUs of a domain and how many domains; ``slow`` GPUs of the first class."""
    made, first = [], 0
    for number, (size, count) in enumerate(sizes):
        gpus = tuple(tuple(range(first + d * size, first + (d + 1) * size)) for d in range(count))
        made.append(DomainClass(0, number, SPEC, gpus, size - slow * (number == 0)))
        first += size * count
    return made


def column(role: str, rate: float, *sizes: int, slow: int = -1, group: int = 0) -> Column:
    """A replica on blocks of these sizes."""
    shape = even(tuple(Block(0, size, slow) for size in sizes), 1)
    return Column(0, role, shape, group, rate, rate, 1, 1.0, 1.0, 1.0)


@cache
def fits(blocks: tuple[int, ...], domains: tuple[int, ...]) -> bool:
    """Whether blocks find room in the domains: every place of each."""
    if not blocks:
        return True
    rooms = {room: index for index, room in enumerate(domains) if room >= blocks[0]}
    return any(
        fits(blocks[1:], (*domains[:at], room - blocks[0], *domains[at + 1 :])) for room, at in rooms.items()
    )


def most_by_hand(columns: list[Column], domains: tuple[int, ...], most_layouts: int | None = None) -> float:
    """The most requests per second of any counts."""
    total = sum(domains)
    best = 0.0
    for counts in product(*(range(total // layout.shape.gpus + 1) for layout in columns)):
        layouts = Counter(layout.role for layout, n in zip(columns, counts, strict=True) if n)
        if most_layouts is not None and max(layouts.values(), default=0) > most_layouts:
            continue
        blocks = [b.size for layout, n in zip(columns, counts, strict=True) for b in layout.shape.blocks * n]
        if sum(blocks) <= total and fits(tuple(sorted(blocks, reverse=True)), domains):
            used = list(zip(columns, counts, strict=True))
            of_role = [sum(of.requests_per_s * n for of, n in used if role in of.phases) for role in NEEDED]
            best = max(best, min(of_role))
    return best


def solved(
    columns: list[Column], of: list[DomainClass], most_layouts: int | None = None
) -> tuple[Problem, Answer]:
    gpus = sum(len(members.gpus) * members.size for members in of)
    rates_of = [(layout.phases, layout.requests_per_s / layout.shape.gpus) for layout in columns]
    most = gpus * min(
        max(rate for phases, rate in rates_of if wanted in phases) for wanted in (DECODE, PREFILL)
    )
    problem = Problem(of, columns, NEEDS, {0: 1.0}, most, most_layouts)
    master = build(problem)
    master.model.maximize(master.requests)
    solution = solve(master, Budget(20.0), seed=0)
    assert solution.optimal
    assert solution.answer is not None
    assert solution.value == solution.bound == solution.answer.requests
    return problem, solution.answer


rates = st.floats(1.0, 100.0)
BLOCKS = st.sampled_from([(1,), (2,), (3,), (4,), (3, 3), (4, 4)])


@settings(max_examples=8)
@given(data=st.data())
def test_the_best_of_all_counts(data: st.DataObject) -> None:
    columns = [
        column(role, data.draw(rates), *sizes)
        for role in (DECODE, PREFILL)
        for sizes in data.draw(st.lists(BLOCKS, min_size=1, max_size=2, unique=True))
    ]
    # few domains of a class are packed one by one, more by arcs
    domains = data.draw(st.sampled_from([(4, 4, 3), (3, 3, 3, 2)]))
    of = classes(*Counter(domains).items())
    problem, answer = solved(columns, of)
    assert answer.requests / problem.scale == pytest.approx(most_by_hand(columns, domains), rel=3e-4)
    kept = [
        layout
        for role in (DECODE, PREFILL)
        for layout in drop_dominated([c for c in columns if c.role == role])
    ]
    again, fewer = solved(kept, of)
    assert fewer.requests / again.scale == pytest.approx(answer.requests / problem.scale, rel=3e-4)


def test_many_domains_of_a_class_are_filled() -> None:
    """A block of two GPUs beside one of one in each of forty domains of three."""
    problem, answer = solved([column(DECODE, 1.0, 2), column(PREFILL, 1.0, 1)], classes((3, 40)))
    assert answer.requests / problem.scale == pytest.approx(40.0, rel=3e-4)


def test_slow_gpus_come_last_and_cost_what_they_cost() -> None:
    columns = [column(DECODE, 10.0, 2), column(DECODE, 5.0, 2, slow=0), column(PREFILL, 100.0, 1)]
    of = classes((5, 1), slow=1)
    problem, answer = solved(columns, of)
    assert answer.requests / problem.scale == pytest.approx(15.0, rel=3e-4)
    (slow,) = [
        layout for layout in assign(of, columns, answer, [0] * 5) if layout.column.shape.blocks[0].slow == 0
    ]
    assert 4 in slow.gpus


@settings(max_examples=16)
@given(
    rates_of=st.lists(rates, min_size=5, max_size=5),
    last=st.sampled_from([((PREFILL, 1), (PREFILL, 2)), ((BOTH, 2), (BOTH, 3))]),
    most=st.sampled_from([1, 2, None]),
)
def test_few_layouts_of_a_pool_and_replicas_of_both_phases_beside_pools_of_one(rates_of, last, most):
    sizes = ((DECODE, 1), (DECODE, 3), (PREFILL, 2), *last)
    columns = [column(role, rate, size) for (role, size), rate in zip(sizes, rates_of, strict=True)]
    problem, answer = solved(columns, classes((4, 1), (3, 1)), most)
    best = most_by_hand(columns, (4, 3), most)
    assert answer.requests / problem.scale == pytest.approx(best, rel=3e-4)


def test_a_layout_on_each_kind_of_gpu_and_one_that_joins_both() -> None:
    other = replace(classes((4, 1))[0], kind=1, number=1, spec=resolve_cluster("hgx-h200").spec.domains[0])
    of = [*classes((4, 1)), replace(other, gpus=((4, 5, 6, 7),))]
    there = Column(0, DECODE, even((Block(1, 4),), 1), 0, 5.0, 5.0, 1, 1.0, 1.0, 1.0)
    both = Column(0, DECODE, even((Block(0, 2), Block(1, 2)), 1), 0, 20.0, 20.0, 1, 1.0, 1.0, 1.0)
    prefill = column(PREFILL, 1000.0, 1)
    for columns, best in (
        ([column(DECODE, 4.0, 2), there], 9.0),
        ([column(DECODE, 4.0, 1), there, both], 20.0),
    ):
        problem = Problem(of, [*columns, prefill], NEEDS, {0: 1.0, 1: 1.0}, 100.0, 1)
        built = build(problem)
        built.model.maximize(built.requests)
        solution = solve(built, Budget(20.0), seed=0)
        assert solution.value / problem.scale == pytest.approx(best, rel=3e-4)


def test_replicas_of_both_phases_come_on_top_of_one_group() -> None:
    pools = [(DECODE, 9.0, 0), (PREFILL, 3.0, 0), (DECODE, 4.0, 1), (PREFILL, 8.0, 1)]
    columns = [column(role, rate, 2, group=group) for role, rate, group in pools]
    problem, answer = solved([*columns, column(BOTH, 1.5, 1, group=-1)], classes((5, 1)))
    assert answer.requests / problem.scale == pytest.approx(7.5, rel=3e-4)
    assert answer.counts[-1] == 5
    problem, answer = solved([*columns, column(BOTH, 0.5, 1, group=-1)], classes((5, 1)))
    assert answer.requests / problem.scale == pytest.approx(4.5, rel=3e-4)
