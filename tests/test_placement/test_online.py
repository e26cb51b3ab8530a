"""The balancer that engines call: budgets, determinism, odd input, and that it is not below the static plan."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.loads import ExpertLoads
from placement.arrays import Experts, Floats
from placement.experts.problem import Problem, make_problem
from placement.experts.solve import solve
from placement.migrate.moved import expert_bytes
from placement.migrate.task import MigrationTask
from placement.online import votes
from placement.online.balancer import replan, start
from placement.online.memory import Memory
from placement.online.setting import plan_setting
from placement.online.state import OnlineOptions, OnlineState
from placement.options import PlanOptions
from placement.planner import make_plan
from test_placement.builders import deployed
from topology.base.errors import InputError

LAYERS, EXPERTS, GPUS, EACH = 4, 16, 8, 3
SLOTS = np.full(GPUS, EACH)
LINEAR = np.tile(np.arange(GPUS * EACH) % EXPERTS, (LAYERS, 1)).astype(np.int32)


def workloads(count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.lognormal(sigma=0.7, size=(count, LAYERS, EXPERTS))


def blended(known: Floats, windows: int, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.ones(len(known)), size=2)
    along = np.linspace(0, 1, windows)[:, None]
    mixed = np.einsum("ws,sle->wle", (1 - along) * share[0] + along * share[1], known)
    return rng.poisson(3000 * mixed).astype(np.float64)


def robust(loads: Floats) -> Experts:
    return solve(Problem(votes.workloads(votes.relative(loads)), SLOTS)).assignment.slot_expert


@cache
def stored_and_static(seed: int = 0) -> tuple[Floats, Experts]:
    known = workloads(3, seed)
    return known, robust(known)


def moved(old: Experts, new: Experts) -> int:
    task = MigrationTask(make_problem(np.ones((LAYERS, EXPERTS)), SLOTS), old)
    return int(task.moves(new).sum())


def balance(window: Floats, placement: Experts) -> float:
    problem = make_problem(window, SLOTS)
    return float(problem.assignment(placement).balancedness(window).mean())


def mean_and_worst(windows: Floats, placements: list[Experts]) -> tuple[float, float]:
    values = [balance(window, placement) for window, placement in zip(windows[1:], placements, strict=True)]
    return float(np.mean(values)), float(np.min(values))


def played(state: OnlineState, windows: Floats, old: Experts) -> tuple[list[Experts], list[int]]:
    placements, moves = [], []
    for window in windows[:-1]:
        decision = replan(state, window, old)
        assert decision.moves == moved(old, decision.slot_expert)
        state, old = decision.state, decision.slot_expert
        placements.append(old)
        moves.append(decision.moves)
    return placements, moves


@pytest.mark.parametrize("budget", [0, 0.05, 0.2, None])
def test_not_below_the_static_plan_and_within_the_budget(budget: float | None) -> None:
    ahead = []
    for seed in range(3):
        known, static = stored_and_static(seed)
        windows = blended(workloads(4, seed), 12, seed)  # one of the workloads is not known
        state = start(EXPERTS, SLOTS, stored=known, static=static, options=OnlineOptions(budget=budget))
        placements, moves = played(state, windows, static)
        assert budget is None or max(moves) <= budget * static.size
        ahead.append(np.subtract(mean_and_worst(windows, placements), mean_and_worst(windows, [static] * 11)))
    assert (np.mean(ahead, axis=0) >= 0).all()


def test_moves_stop_where_they_cost_more_than_they_gain() -> None:
    windows = blended(workloads(3), 2)
    moves = []
    for price in (1e-5, 1e-2, 5e-2, 10.0):
        found = replan(start(EXPERTS, SLOTS, options=OnlineOptions(price=price)), windows[0], LINEAR)
        moves.append(found.moves)
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > moves[-1] == 0


def test_a_layer_without_tokens_stays() -> None:
    known = workloads(2)
    window = blended(known, 2)[0]
    window[1] = 0
    for stored in (known, None):
        state = start(EXPERTS, SLOTS, stored=stored, options=OnlineOptions(budget=1.0))
        new = replan(state, window, LINEAR).slot_expert
        assert (new[1] == LINEAR[1]).all()
        assert (new[0] != LINEAR[0]).any()
    nothing = replan(state, np.zeros((LAYERS, EXPERTS)), LINEAR)
    assert nothing.moves == 0
    assert (nothing.slot_expert == LINEAR).all()


@pytest.mark.parametrize("budget", [0, 0.05, None])
def test_what_must_be_restored_is_counted_beside_the_budget(budget: float | None) -> None:
    old = LINEAR.copy()
    old[0, [2, 9, 20]] = -1  # experts 9 and 4 (slots 9 and 20) have another copy, as has 2
    old[1] = 0  # fifteen experts have no copy
    old[2] = np.repeat(np.arange(GPUS), EACH)  # each three times on one GPU: eight have none
    old[3, 8:16] = -1  # experts 8 to 15 have no copy
    forced = 3 + 15 + 8 + 8
    state = start(EXPERTS, SLOTS, options=OnlineOptions(budget=budget))
    found = replan(state, blended(workloads(2), 2)[0], old)
    assert all(set(row) == set(range(EXPERTS)) for row in found.slot_expert)
    assert found.restored == forced
    assert found.why.startswith(f"copies restored in addition to the budget: {forced}")
    if budget is not None:
        assert forced <= moved(old, found.slot_expert) <= forced + budget * old.size


def test_what_cannot_be_used_is_refused() -> None:
    state, window = start(EXPERTS, SLOTS, layers=LAYERS), np.ones((LAYERS, EXPERTS))
    for value in (np.nan, np.inf, -1):
        broken = window.copy()
        broken[2, 3] = value
        with pytest.raises(InputError, match=r"at \[2, 3\]"):
            replan(state, broken, LINEAR)
    for loads, old, words in (
        (np.ones((LAYERS, EXPERTS + 1)), LINEAR, "shape"),
        (window, LINEAR[:, 1:], "shape"),
        (window, np.where(LINEAR == 15, 16, LINEAR), "expert 16"),
    ):
        with pytest.raises(InputError, match=words):
            replan(state, loads, old)
    with pytest.raises(InputError, match="budget"):
        OnlineOptions(budget=5)
    with pytest.raises(InputError, match="slots for"):
        start(EXPERTS, 1, GPUS)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    gpus=st.integers(2, 6),
    each=st.integers(2, 4),
    most=st.integers(0, 12),
    scenarios=st.integers(1, 3),
)
def test_a_re_plan_keeps_its_budget_and_every_expert(
    seed: int, gpus: int, each: int, most: int, scenarios: int
) -> None:
    rng = np.random.default_rng(seed)
    slots = each + (rng.random(gpus) < 0.3)
    experts = int(rng.integers(each + 1, int(slots.sum()) + 1))
    old = np.stack([rng.permutation(np.arange(int(slots.sum())) % experts) for _ in range(2)]).astype(
        np.int32
    )
    loads = rng.lognormal(size=(scenarios, 2, experts))
    problem = Problem(loads, slots.astype(np.int64))
    options = OnlineOptions(budget=most / old.size)
    new = replan(start(experts, slots, stored=loads[1:], options=options), loads[0], old).slot_expert
    assert int(MigrationTask(problem, old).moves(new).sum()) <= most
    assert all(set(row) == set(range(experts)) for row in new)
    doubles = old.size - problem.on_gpus(old).sum()
    assert new.size - problem.on_gpus(new).sum() <= doubles
    if most == 0:
        assert (new == old).all()


def test_a_swap_of_two_experts_by_hand() -> None:
    """Two copies travel from GPU to GPU over links of 450 GB/s, both ways at once."""
    tokens = np.random.default_rng(0).lognormal(4, 0.5, (1, 2, 8))
    deployment = deployed("mixtral-8x7b", "hgx-h100", 2, batch=8)
    options = PlanOptions(time_limit_s=0.0, ep=8, redundant=0)
    plan = make_plan(deployment, ExpertLoads(tokens, ("drawn",), synthetic=False), options)
    setting = plan_setting(plan, 100)
    old = setting.groups[0].start
    new = old.copy()
    new[1, [0, 5]] = old[1, [5, 0]]
    moves = setting.costs.moves([old], [new])
    size = expert_bytes(plan)[1]
    assert size == 3 * 4096 * 14336 * 2
    assert (moves.copies, moves.bytes) == (2, 2 * size)
    assert moves.seconds == pytest.approx(size / 450e9, rel=0.01)
    assert setting.costs.moves([old], [old]).seconds == 0


def remembered(windows: Floats, most: int = 8) -> Memory:
    last = np.zeros(windows.shape[1:])
    memory = Memory.empty(*last.shape)
    for window in windows:
        memory, last = memory.with_window(window, last, most), window
    return memory


def test_the_surprise_of_a_window_by_hand() -> None:
    """The first window has no tokens in the second layer: the mean of the first two is 2, 2 and 2, 0."""
    first, second, third = np.array([[[1.0, 3], [0, 0]], [[3, 1], [2, 0]], [[2, 2], [0, 2]]])
    assert remembered(np.array([first, second])).surprise == pytest.approx(0.5)
    # mean squares: (1 + 1 + 4 + 4) / 4 from the last window, (4 + 4) / 4 from the mean
    surprise = remembered(np.array([first, second, third])).surprise
    assert surprise == pytest.approx(0.5 + 0.35 * (2.5 / (2 * 2.0) - 0.5))
