"""Our FlashLB and SwiftBalancer against figures of vllm-ascend's own code (182b75e) on the same windows."""

from __future__ import annotations

import numpy as np
import pytest

from placement.online.flashlb import FlashLB
from placement.online.policy import Group
from placement.online.swift import SwiftBalancer
from topology.errors import InputError

START = np.tile(np.arange(40, dtype=np.int32) % 32, (3, 1))
GROUP = Group(np.full(8, 5), 32, START, np.arange(8), np.zeros(8, int))


def windows():
    rng = np.random.default_rng(7)
    base = rng.lognormal(0, 0.8, (3, 32))
    return rng.poisson(1000 * base * rng.lognormal(0, 0.4, (8, 3, 32))).astype(float)


@pytest.mark.parametrize(
    ("make", "balance", "moves"),
    [
        (
            FlashLB,
            [0.79622, 0.67332, 0.78594, 0.77393, 0.75495, 0.65142, 0.78041],
            [74, 74, 73, 72, 73, 75, 72],
        ),
        (
            SwiftBalancer,
            [0.69876, 0.72607, 0.68615, 0.73434, 0.80159, 0.73485, 0.66968],
            [51, 29, 12, 15, 18, 18, 9],
        ),
    ],
)
def test_balance_and_moves_are_theirs(make, balance, moves):
    policy, placed, loads = make(GROUP), START, windows()
    for now, after, theirs, most in zip(loads[:-1], loads[1:], balance, moves, strict=True):
        policy.observe(now)
        new = policy.place(placed)
        assert abs(int(GROUP.task(placed).moves(new).sum()) - most) <= 2
        assert GROUP.problem(after).assignment(new).balancedness(after).mean() == pytest.approx(
            theirs, abs=3e-3
        )
        placed = new


def test_flashlb_goes_by_mean_and_spread_of_several_windows():
    policy, loads = FlashLB(GROUP), windows()
    for window in loads[:4]:
        policy.observe(window)
    new = policy.place(START)
    assert GROUP.task(START).moves(new).sum() == 76
    assert GROUP.problem(loads[4]).assignment(new).balancedness(loads[4]).mean() == pytest.approx(
        0.784478, abs=1e-5
    )


def test_flashlb_leaves_layers_that_are_as_good_as_promised():
    policy, loads = FlashLB(GROUP), windows()
    even = np.full((3, 32), 1000.0)
    policy.observe(loads[0])
    policy._promised[:] = 0.5
    placed = policy.place(START)
    assert (placed != START).any()
    policy.observe(even)
    policy._promised[:] = 0.1
    policy._level = 0.0
    assert policy.place(placed) is placed


@pytest.mark.parametrize("make", [FlashLB, SwiftBalancer])
def test_unequal_slots_are_refused(make):
    with pytest.raises(InputError, match="unequal"):
        make(Group(np.array([3, 2]), 4, START[:, :5] % 4, np.zeros(2, int), np.zeros(2, int)))


def test_flashlb_passes_over_copies_that_find_no_rank():
    start = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 0]], dtype=np.int32)  # one expert wants more copies than ranks
    policy = FlashLB(Group(np.full(3, 3), 4, start, np.zeros(3, int), np.zeros(3, int)))
    policy.observe(np.array([[100.0, 1, 1, 1]]))
    assert set(policy.place(start)[0].tolist()) == {0, 1, 2, 3}
