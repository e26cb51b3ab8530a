"""Re-plans for engines that split by source or by an LP: judged under it, near its fresh plan, few moves, Ctrl-C."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.dispatch import DispatchPolicy, slot_shares
from placement.experts.problem import make_problem, spread_slots
from placement.experts.solve import solve
from placement.migrate import search
from placement.migrate.migration import KNEE, Migration, migrate
from placement.migrate.task import MigrationTask
from placement.verify import verify_experts

pytestmark = pytest.mark.wide


SPLITS: tuple[DispatchPolicy, ...] = ("source", "lp")


def drift(
    seed: int,
    split: DispatchPolicy,
    *,
    layers: int = 2,
    experts: int = 32,
    gpus: int = 8,
    redundant: int = 8,
    per_node: int = 2,
    spread: bool = False,
    scenarios: int = 1,
) -> MigrationTask:
    """What a fresh plan under the split runs, and other loads to come."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(gpus) // per_node
    before = rng.lognormal(0, 0.6, (layers, experts))
    after = before * rng.lognormal(0, 0.5, (scenarios, layers, experts))
    slots = spread_slots(experts, gpus, redundant)
    domains = nodes if spread else None
    ran, asked = (
        make_problem(loads, slots, None, domains, split=split, nodes=nodes) for loads in (before, after)
    )
    return MigrationTask(asked, solve(ran).assignment.slot_expert)


def recomputed(task: MigrationTask, slot_expert: np.ndarray) -> np.ndarray:
    """Largest over mean GPU load, ``[scenarios, layers]``, from the shares of the split alone."""
    assignment = task.problem.assignment(slot_expert)
    found = []
    for tokens in task.problem.loads:
        shares = slot_shares(assignment, task.problem.split, load=tokens, nodes=task.problem.nodes)
        busy = assignment.gpu_load(tokens, shares)
        found.append(busy.max(axis=1) / busy.mean(axis=1))
    return np.array(found)


def check(task: MigrationTask, found: Migration) -> np.ndarray:
    """The answer, after what must hold of any."""
    placed = found.placements[0]
    assert verify_experts(task.problem.assignment(placed.slot_expert), task.problem) == []
    assert found.moves == task.moves(placed.slot_expert).sum()
    after, start = (recomputed(task, rows).mean(axis=0) for rows in (placed.slot_expert, placed.start))
    assert (after <= start * (1 + 1e-6)).all()
    assert task.problem.evaluate(placed.slot_expert) == pytest.approx(after, rel=1e-6)
    moves = [point.moves for point in found.curve]
    assert moves == sorted(set(moves))
    return placed.slot_expert


@pytest.mark.parametrize("split", SPLITS)
def test_within_one_percent_of_what_a_plan_under_the_split_would_be(split: DispatchPolicy) -> None:
    task = drift(0, split)
    found = migrate([task])
    balance = (1 / recomputed(task, check(task, found))).mean()
    plan = (1 / recomputed(task, solve(task.problem).assignment.slot_expert)).mean()
    assert balance >= (1 - KNEE) * 0.999 * plan
    assert balance >= (1 - KNEE) * task.judged(found.placements[0].fresh)[1].mean() - 1e-12
    assert found.moves < task.moves(found.placements[0].fresh).sum()


@pytest.mark.usefixtures("short")
@settings(deadline=None, max_examples=2)
@given(
    seed=st.integers(0, 1000), most=st.integers(0, 30), split=st.sampled_from(SPLITS), spread=st.booleans()
)
def test_budgets_and_failure_domains_are_kept(
    seed: int, most: int, split: DispatchPolicy, *, spread: bool
) -> None:
    task = drift(seed, split, experts=16, gpus=6, redundant=8, spread=spread, scenarios=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_PASS", (20, 20))
        found = migrate([task], max_moves=most)
        again = migrate([task], max_moves=most)
    assert found.moves <= most
    assert task.problem.over_cap(check(task, found)).max() == 0
    assert np.array_equal(found.placements[0].slot_expert, again.placements[0].slot_expert)
