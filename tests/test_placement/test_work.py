"""A search is a function of the work that was counted: clocks, cores and Ctrl-C decide where it ends, and no more."""

from __future__ import annotations

import math
import signal
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import cpsat
from placement import solve as solve_module
from placement import stop as stop_module
from placement import work as work_module
from placement.migrate import search
from placement.migrate.migration import migrate
from placement.migrate.task import migration_task
from placement.options import PlanOptions
from placement.problem import Problem, make_problem
from placement.solve import solve
from placement.budget import Budget
from placement.work import FAST, USUAL, Work, horizon_of, repeat_words, schedule_within
from topology import interrupts
from topology.errors import InputError

RNG = np.random.default_rng(3)
WIDE = make_problem(RNG.lognormal(0, 1.0, (5, 12)), np.full(8, 2))
SEVERAL = make_problem(RNG.lognormal(0, 0.8, (2, 3, 16)), np.full(6, 4))
SMALL = make_problem(RNG.lognormal(0, 0.8, (2, 2, 9)), np.full(4, 3))
PROBLEMS = pytest.mark.parametrize("problem", [WIDE, SEVERAL, SMALL], ids=["wide", "several", "small"])


def ticking(monkeypatch: pytest.MonkeyPatch, seed: int, fast: float = 0.04) -> None:
    """Let the clock go on by chance at each look, now and then by much: another machine, or load on this one."""
    rng, now = np.random.default_rng(seed), [0.0]

    def look() -> float:
        now[0] += float(rng.exponential(fast * (20 if rng.random() < 0.1 else 1)))
        return now[0]

    monkeypatch.setattr(work_module.time, "monotonic", look)


def found(problem: Problem, budget: Budget) -> tuple[object, ...]:
    result = solve(problem, budget, seed=1)
    return result.assignment.slot_expert.tobytes(), result.log, result.objective


@PROBLEMS
def test_a_timed_run_is_repeated_by_its_work(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        ticking(patch, 1)
        budget = Budget(0.3)
        first = found(problem, budget)
    assert budget.work.timed
    assert budget.number > 0
    monkeypatch.setattr(solve_module, "cores", lambda: 5)
    monkeypatch.setattr(cpsat, "cores", lambda: 1)
    again = Budget(None, work=budget.number)
    assert found(problem, again) == first
    assert again.number == budget.number


@PROBLEMS
def test_what_ctrl_c_ended_is_repeated(problem: Problem) -> None:
    left = count(8, -1)
    budget = Budget(None, cancel=lambda: next(left) <= 0)
    first = found(problem, budget)
    assert budget.interrupted
    assert budget.work.cut
    again = Budget(None, work=budget.number)
    assert found(problem, again) == first
    assert not again.interrupted
    assert "exactly with" in repeat_words(budget.number, interrupted=True)


@pytest.mark.parametrize("split", ["even", pytest.param("source", marks=pytest.mark.wide)])
def test_re_plans_are_repeated(split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_PASS", (30, 30))
    monkeypatch.setattr(search, "_CHAINS", 2)
    before = make_problem(RNG.lognormal(0, 0.8, (2, 16)), np.full(8, 3), split=split)  # type: ignore[arg-type]
    task = migration_task(
        make_problem(RNG.lognormal(0, 0.8, (2, 16)), np.full(8, 3), split=split),  # type: ignore[arg-type]
        solve(before).assignment.slot_expert,
    )

    def moved(budget: Budget) -> tuple[object, ...]:
        made = migrate([task], budget=budget)
        return made.placements[0].slot_expert.tobytes(), made.log, made.curve

    with monkeypatch.context() as patch:
        ticking(patch, 7)
        budget = Budget(0.6)
        first = moved(budget)
    assert moved(Budget(0.0, work=budget.number)) == first
    whole = moved(Budget(0.0))
    assert whole == moved(Budget(0.0, work=0))


@settings(deadline=None, max_examples=60)
@given(st.floats(1, 1e9))
def test_schedules(units: float) -> None:
    schedule = schedule_within(units)
    assert 1 <= schedule < FAST
    assert horizon_of(schedule) <= units * 1.02
    assert schedule in {1, FAST - 1} or horizon_of(schedule + 1) > units * 0.999


def test_numbers() -> None:
    assert Work(0.0).number == 0
    assert Work(None, 0).fast
    usual = Work(None)
    usual.begin(1.0)
    usual.spend(7.2)
    assert (usual.done, usual.units, usual.number) == (8, 7, 9000 + USUAL)
    assert repeat_words(usual.number) == ""
    by_hand = Work(None, 5_000_000)  # five seconds' worth, laid out for as much
    assert not by_hand.over
    assert by_hand.horizon == pytest.approx(5000, rel=0.04)


def test_a_schedule_is_known_when_it_was_known() -> None:
    timed = Work(2.0)
    timed.begin(1.0)
    assert timed.horizon == math.inf
    timed.spend(50)
    again = Work(None, timed.number + 10_000)
    again.begin(1.0)
    assert again.horizon == math.inf
    again.spend(50)
    assert again.horizon == timed.horizon < math.inf
    told = Work(None, 7_000_000)
    told.begin(1.0)
    told.spend(50)
    assert Work(None, told.number).horizon == told.horizon


@pytest.mark.parametrize("work", [-1, 1.5, True])
def test_work_that_cannot_be(work: int) -> None:
    with pytest.raises(InputError, match="expected a whole number from 0 up"):
        PlanOptions(work=work)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_what_there_is() -> None:
    budget = Budget(5.0)
    with budget.keeping():
        with budget:
            press()
            pytest.fail("a block that catches it goes on")
        assert budget.interrupted
    budget = Budget(5.0)
    with budget.keeping():
        with budget.part(0.5).stepwise():
            press()
            assert not budget.interrupted  # the step is not counted yet
            budget.spend(3)
            assert budget.interrupted
        with pytest.raises(KeyboardInterrupt):
            press()  # a second one
    budget = Budget(5.0)
    with budget.keeping(), budget.stepwise():
        pass
    with budget.keeping():
        press()
        assert budget.work.over
    with pytest.raises(KeyboardInterrupt):
        press()


def test_ctrl_c_that_a_module_lost_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "CAME", [signal.SIGINT])
    monkeypatch.setattr(stop_module, "CAME", [signal.SIGINT])
    budget = Budget(5.0)
    with budget.keeping():
        assert budget.interrupted
