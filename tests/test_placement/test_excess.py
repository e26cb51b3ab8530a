"""Steps of the annealing: what they cost, what they keep, and that the state is what the table says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placement.experts.excess import _ROOM, ExcessAnnealing
from placement.experts.problem import make_problem, spread_slots
from placement.experts.solve import solve
from placement.migrate.task import MigrationTask


def task_of(kind: str) -> MigrationTask:
    """Three layers whose loads changed, on GPUs of the kind named."""
    rng = np.random.default_rng(len(kind))
    slots = np.array([5, 5, 0, 3, 5, 4, 5, 5]) if kind == "unequal" else spread_slots(24, 8, 8)
    speed = np.linspace(0.8, 1.2, 8) if kind == "speeds" else None
    spread = np.arange(8) // 2 if kind == "domains" else None
    scenarios = 3 if kind == "scenarios" else 1
    loads = rng.lognormal(0, 0.6, (scenarios, 3, 24))
    problem = make_problem(loads, slots, speed, spread)
    before = problem.loads.mean(axis=0) * rng.lognormal(0, 0.5, (3, 24))
    old = solve(replace(problem, loads=before[None])).assignment.slot_expert
    return MigrationTask(problem, old)


@pytest.mark.parametrize("kind", ["equal", "unequal", "speeds", "domains", "scenarios"])
def test_no_step_without_heat_makes_a_layer_dearer_or_illegal(kind: str) -> None:
    task = task_of(kind)
    target = np.full((task.problem.scenarios, 3), 1.03)
    annealing = ExcessAnnealing(task.problem, task.old, target, np.random.default_rng(0), task.old)
    price = 300.0
    cost = annealing.cost(price)
    for turn in range(20):
        annealing.swap(price, 0.0)
        annealing.exchange(price, 0.0, 16)
        annealing.cycle(price, 0.8, exchange=turn % 2 == 0)
        now = annealing.cost(price)
        assert (now <= cost + 1e-3).all()
        cost = now
    placed = annealing.slot_expert
    assert not task.problem.over_cap(placed).any()
    assert (task.problem.assignment(placed).copies > 0).all()
    assert annealing.new.sum() == task.moves(placed).sum() > 0
    loads = np.stack([task.problem.assignment(placed).gpu_load(load) for load in task.problem.loads])
    over = loads / task.problem.speed * (task.problem.gpus / task.problem.experts) - 1.03
    over = over[:, :, task.problem.slots_per_gpu > 0]
    energy = price * np.maximum(over, 0) - _ROOM * np.minimum(over, 0) ** 2
    assert cost == pytest.approx(energy.sum(axis=(0, 2)) + task.moves(placed), rel=1e-4, abs=1e-3)
    assert annealing.over.reshape(over.shape) == pytest.approx(over, abs=1e-5)
