"""Which workers share a domain: the model's constraints one by one, brute force, and whole plans."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rackplan
from placement.budget import Budget
from placement.pairing import (
    Kind,
    PairingModel,
    Problem,
    Side,
    build,
    fill_no_domain_over,
    keep_what_both_roles_do,
    order_equal_domains,
    paired,
    place_every_worker,
)
from topology import resolve_cluster

DECODE, PREFILL = Kind(0, (4,), 2, 100, prefills=False), Kind(1, (2,), 4, 50, prefills=True)


def empty(problem: Problem) -> PairingModel:
    from ortools.sat.python import cp_model

    built = PairingModel(problem, cp_model.CpModel())
    for _ in range(problem.domains):
        built.count.append([built.model.new_int_var(0, 9, "") for _ in problem.kinds])
        built.kept.append(built.model.new_int_var(0, 10**6, ""))
    return built


def feasible(built: PairingModel, counts: list[list[int]], kept: list[int] | None = None) -> bool:
    from ortools.sat.python import cp_model

    for row, known in zip(built.count, counts, strict=True):
        for variable, value in zip(row, known, strict=True):
            built.model.add(variable == value)
    for variable, value in zip(built.kept, kept or (), strict=False):
        built.model.add(variable == value)
    status = cp_model.CpSolver().solve(built.model)
    return status in {cp_model.OPTIMAL, cp_model.FEASIBLE}


@pytest.mark.parametrize(
    ("constraint", "counts", "kept", "able"),
    [
        (fill_no_domain_over, [[1, 2], [1, 2]], None, True),
        (fill_no_domain_over, [[2, 1], [0, 3]], None, False),
        (place_every_worker, [[2, 0], [0, 4]], None, True),
        (place_every_worker, [[1, 0], [0, 4]], None, False),
        (keep_what_both_roles_do, [[1, 2], [1, 2]], [100, 100], True),
        (keep_what_both_roles_do, [[1, 2], [1, 2]], [101, 0], False),
        (keep_what_both_roles_do, [[2, 0], [0, 4]], [1, 0], False),
        (order_equal_domains, [[2, 0], [0, 4]], None, True),
        (order_equal_domains, [[0, 4], [2, 0]], None, False),
    ],
)
def test_each_constraint(constraint, counts, kept, able) -> None:  # type: ignore[no-untyped-def]
    built = empty(Problem([DECODE, PREFILL], 2, 8))
    constraint(built)
    assert feasible(built, counts, kept) == able


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_nothing_keeps_more_inside(data: st.DataObject) -> None:
    """Every way to put up to three kinds of workers into two or three domains."""
    number = st.integers(1, 3)
    kinds = [
        Kind(at, (data.draw(number),), data.draw(number), data.draw(st.integers(1, 9)), prefills=at > 0)
        for at in range(data.draw(st.integers(2, 3)))
    ]
    problem = Problem(kinds, data.draw(st.integers(2, 3)), data.draw(st.integers(3, 8)))
    best = None
    for counts in product(product(*(range(kind.count + 1) for kind in kinds)), repeat=problem.domains):
        fits = all(
            sum(kind.gpus * n for kind, n in zip(kinds, row, strict=True)) <= problem.size for row in counts
        )
        if fits and all(
            sum(column) == kind.count for kind, column in zip(kinds, zip(*counts, strict=True), strict=True)
        ):
            best = max(best or 0, sum(map(problem.kept, counts)))
    found = build(problem).solved(Budget(None), 0, None)
    assert (found is None) == (best is None)
    if found is not None:
        assert sum(map(problem.kept, found)) == best <= problem.bound


def test_workers_change_places_among_domains_that_are_alike_alone() -> None:
    cluster = resolve_cluster("hgx-h100@24")
    decodes = tuple((tuple(range(first, first + 8)),) for first in (0, 8))
    prefills = tuple(((16 + gpu,),) for gpu in range(8))
    (left, right), words = paired(cluster, [Side(False, 1.0, decodes), Side(True, 0.25, prefills)])
    assert (left, right) == (decodes, prefills)  # each fills a domain: nothing can share one
    assert words.startswith("0.0%")
    halves = tuple((tuple(range(first, first + 4)),) for first in (0, 4, 8))
    (left, right), words = paired(cluster, [Side(False, 1.0, halves), Side(True, 0.5, prefills[:6])])
    assert words.startswith("100.0%")
    used = [gpu for worker in (*left, *right) for stage in worker for gpu in stage]
    assert len(used) == len(set(used)) == 18
    for worker in (*left, *right):
        assert len({cluster.gpus[gpu].domain for stage in worker for gpu in stage}) == 1


def test_caches_of_a_plan_stay_where_they_can() -> None:
    plan = rackplan.plan("deepseek-v3", "gb200-nvl72@144", time_limit_s=0)
    found = plan.requests
    assert found.inside_share == pytest.approx(1)
    assert "keep as many caches inside as there are" in found.pairing
    one_rack = rackplan.plan("deepseek-v3", "gb200-nvl72", time_limit_s=0).requests
    # the same workers in each rack: caches take the same links
    assert found.ttft_s == pytest.approx(one_rack.ttft_s)
