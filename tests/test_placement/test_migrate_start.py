"""Where a migration begins and how it moves: fewest moves that restore, the best permutation, few buffers."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.experts.pack import EMPTY
from placement.experts.problem import Problem, make_problem
from placement.migrate.start import kept_copies, relabel, restore
from placement.migrate.steps import Step, in_order, transfers
from placement.migrate.task import MigrationTask
from placement.verify import verify_experts
from topology import resolve_cluster


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), gpus=st.integers(2, 5), each=st.integers(2, 4), empty=st.booleans())
def test_every_expert_is_back_after_one_move_each(seed: int, gpus: int, each: int, empty: bool) -> None:
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(each, gpus * each + 1))
    loads = rng.random((2, experts)) + 0.01
    old = np.array(
        [np.concatenate([rng.permutation(experts)[:each] for _ in range(gpus)]) for _ in range(2)],
        dtype=np.int32,
    )
    if empty:
        old[:, rng.integers(gpus * each)] = EMPTY
    task = MigrationTask(make_problem(loads, np.full(gpus, each)), old)
    restored = restore(task)
    assert verify_experts(task.problem.assignment(restored), task.problem) == []
    lost = (~task.held.any(axis=1)).sum(axis=1)
    vacant = (old == EMPTY).sum(axis=1)
    assert (task.moves(restored) == np.maximum(lost, vacant)).all()


def test_of_the_slots_that_may_go_the_one_that_balances_best_does() -> None:
    # expert 3 is lost; either copy of 0 may go, and GPU 1 has less to do
    loads = np.array([[2.0, 5.0, 1.0, 3.0]])
    old = np.array([[0, 1, 0, 2]], dtype=np.int32)
    restored = restore(MigrationTask(make_problem(loads, [2, 2]), old))
    assert restored.tolist() == [[0, 1, 3, 2]]
    assert pytest.approx(5.0 + 2.0) == loads[0, restored[0, :2]].sum()


def random_task(
    rng: np.random.Generator,
    slots: list[int],
    *,
    experts: int = 7,
    layers: int = 3,
    speed: list[float] | None = None,
    spread: list[int] | None = None,
) -> tuple[MigrationTask, np.ndarray]:
    """A task whose old placement is random, and a random target."""
    problem = Problem(
        np.ones((layers, experts)),
        np.array(slots),
        None if speed is None else np.array(speed),
        None if spread is None else np.array(spread),
    )

    def rows() -> np.ndarray:
        each = [np.concatenate([rng.permutation(experts)[:n] for n in slots]) for _ in range(layers)]
        return np.array(each, dtype=np.int32)

    return MigrationTask(problem, rows()), rows()


def groups(task: MigrationTask, row: np.ndarray) -> list[list[int]]:
    """The experts of each GPU."""
    return [sorted(row[task.problem.slot_gpu == gpu].tolist()) for gpu in range(task.problem.gpus)]


def fewest_moves(task: MigrationTask, target: np.ndarray, layer: int) -> int:
    """The fewest moves over all permutations that keep kinds of GPUs and whole domains together."""
    problem = task.problem
    kept = kept_copies(task, target)[layer]
    domain = problem.failure_domain
    several = np.bincount(domain).max() > 1
    best = 0
    for order in permutations(range(problem.gpus)):
        to = np.array(order)
        if (problem.slots_per_gpu[to] != problem.slots_per_gpu).any() or (
            problem.speed[to] != problem.speed
        ).any():
            continue
        if several and len(set(zip(domain.tolist(), domain[to].tolist(), strict=True))) != domain.max() + 1:
            continue
        best = max(best, int(kept[np.arange(problem.gpus), to].sum()))
    return problem.slots - best


@pytest.mark.parametrize(
    ("slots", "speed", "spread"),
    [
        ([2, 2, 2, 2, 2], None, None),
        ([3, 2, 2, 3, 2], None, None),
        ([2, 2, 2, 2], [1.0, 2.0, 1.0, 2.0], None),
        ([2, 2, 2, 2, 2, 2], None, [0, 0, 1, 1, 2, 2]),
        ([2, 3, 3, 2, 2, 3], None, [0, 0, 1, 1, 1, 1]),
        ([2, 0, 2, 3], None, None),
    ],
)
def test_as_good_as_the_best_permutation(
    slots: list[int], speed: list[float] | None, spread: list[int] | None
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(4):
        task, target = random_task(rng, slots, speed=speed, spread=spread)
        moved = relabel(task, target)
        for layer in range(task.problem.layers):
            assert int(task.moves(moved)[layer]) == fewest_moves(task, target, layer)
            assert sorted(map(tuple, groups(task, moved[layer]))) == sorted(
                map(tuple, groups(task, target[layer]))
            )


# --- steps


def test_a_chain_needs_no_buffer_and_an_exchange_needs_one() -> None:
    chain = [Step(0, 0, 0, 1, 0, 1), Step(0, 1, 0, 2, 1, 2)]
    for steps in (chain, chain[::-1]):
        ordered = in_order(steps)
        assert [step.gpu for step in ordered] == [0, 1]
        assert not any(step.buffer for step in ordered)
    swap = in_order([Step(0, 0, 0, 1, 0, 1), Step(0, 1, 0, 0, 1, 0)])
    assert [step.buffer for step in swap] == [True, False]


CLUSTER = resolve_cluster("hgx-h100@16")


def test_seconds_are_bytes_over_the_busiest_link() -> None:
    one = transfers(CLUSTER, [Step(0, 0, 0, 9, None, 1)], {0: 45e9, 1: 45e9})
    assert one.seconds == pytest.approx(45e9 / 450e9, rel=1e-3)  # NVLink 4: 450 GB/s per direction
    assert one.bytes_by_distance == {"node": 45e9, "domain": 0.0, "rack": 0.0, "across": 0.0, "storage": 0.0}
    two = transfers(CLUSTER, [Step(0, 0, 0, 9, None, 1), Step(1, 0, 0, 9, None, 2)], {0: 45e9, 1: 45e9})
    assert two.seconds == pytest.approx(2 * 45e9 / 450e9, rel=1e-3)  # both arrive at one GPU


def test_between_domains_the_scale_out_link_is_the_slow_one() -> None:
    found = transfers(CLUSTER, [Step(0, 0, 0, 9, None, 8)], {0: 5e9})
    assert found.seconds == pytest.approx(5e9 / 50e9, rel=1e-2)  # 400 Gb/s
    assert found.bytes_by_distance["node"] == found.bytes_by_distance["domain"] == 0.0
