"""Whole placements and their steps: status, promises, odd shapes, real loads, Ctrl-C; legal and never worse."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import budget as budget_module
from placement.budget import Budget, evenly
from placement.experts.counts import least_peak, replicate
from placement.experts.local_search import exchange_down, swap_down
from placement.experts.matching import matched
from placement.experts.pack import pack
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.result import ExpertResult
from placement.experts.soft_max import anneal
from placement.experts.solve import solve
from placement.options import Objective
from placement.verify import verify_experts
from tiny_cases import unlike_gpus
from topology.base.errors import InputError

REAL = sorted((Path(__file__).parents[3] / "shared" / "data" / "expert_loads").glob("*.npy"))


def place(problem: Problem, time_limit_s: float = 0.0, **options: object) -> ExpertResult:
    wanted = {"seed": 0, "eplb_groups": None, "nodes": 1} | options
    budget = Budget(time_limit_s, wanted.pop("on_progress", None))  # type: ignore[arg-type]
    result = solve(problem, budget, **wanted)  # type: ignore[arg-type]
    assert verify_experts(result.assignment, problem) == []
    assert result.max_load == pytest.approx(1 / result.assignment.balancedness(problem.mean))
    assert (result.bound <= result.max_load).all()
    return result


def skewed(layers: int = 4, experts: int = 32, gpus: int = 8, redundant: int | None = None) -> Problem:
    loads = np.random.default_rng(7).lognormal(0, 0.7, (layers, experts))
    return make_problem(loads, spread_slots(experts, gpus, redundant))


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (make_problem([[1.0, 2.0, 0.0, 3.0]], [2, 2, 1]), "OPTIMAL"),  # a dead expert: all ways are tried
        (make_problem([[0.0, 0.0, 1.0, 0.0]], [2, 2, 2]), "OPTIMAL"),  # all load on one: a copy on each GPU
        (make_problem(np.ones((3, 6)), [6]), "OPTIMAL"),  # one GPU
        (make_problem(np.arange(1.0, 7.0)[None], np.full(9, 1)), "OPTIMAL"),  # more GPUs than experts
        (skewed(experts=31, gpus=5, redundant=0), "FEASIBLE"),  # does not divide
        (skewed(layers=1), "FEASIBLE"),
        (make_problem(np.ones((2, 1)), [1, 1, 1]), "OPTIMAL"),  # one expert everywhere
    ],
)
def test_odd_shapes(problem: Problem, status: str) -> None:
    assert place(problem).status == status


def test_ctrl_c_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = skewed(layers=6, experts=36, gpus=9, redundant=0)
    calls = []

    def stop_at_the_third(*state: float) -> None:
        calls.append(state)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(budget_module, "EVERY_S", 0.0)
    result = place(problem, time_limit_s=60.0, on_progress=stop_at_the_third)
    assert result.interrupted
    assert len(calls) == 3
    assert result.objective == pytest.approx(calls[-1][2])
    assert any("stopped early" in line for line in result.log)


@pytest.mark.skipif(not REAL, reason="the reference loads are not beside the repository")
def test_real_loads_beat_eplb_in_every_layer() -> None:
    means = []
    for path in REAL:
        problem = make_problem(np.load(path), spread_slots(256, 72, 32))
        result = place(problem, eplb_groups=8)
        for name in ("eplb_global", "eplb_hierarchical"):
            rival = result.baselines[name].assignment
            assert (result.max_load <= problem.evaluate(rival)).all()
        means.append((1 / result.max_load).mean())
    assert np.mean(means) >= 0.995


@pytest.mark.wide
@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10**6))
def test_a_layer_is_placed_as_if_it_were_alone(seed: int) -> None:
    """In any order, among any others, whatever slots and speeds: engines call with some layers."""
    rng = np.random.default_rng(seed)
    gpus, experts, layers = int(rng.integers(2, 14)), int(rng.integers(4, 36)), int(rng.integers(2, 5))
    slots = np.full(gpus, -(-experts // gpus) + int(rng.integers(0, 3)))
    if seed % 3 == 0:
        slots += rng.integers(0, 2, gpus)
    slots = np.minimum(slots, experts)
    speed = rng.choice([0.8, 1.0, 1.3], gpus) if seed % 4 == 0 else None
    loads = rng.lognormal(0, rng.uniform(0.1, 2.0, (layers, 1)), (layers, experts))
    whole = solve(make_problem(loads, slots, speed), eplb_groups=1)
    some = rng.permutation(layers)[: int(rng.integers(1, layers + 1))]
    part = solve(make_problem(loads[some], slots, speed), eplb_groups=1)
    assert part.assignment.slot_expert.tobytes() == whole.assignment.slot_expert[some].tobytes()
    assert part.bound.tobytes() == whole.bound[some].tobytes()


_BYTES = """
import hashlib, numpy as np
from placement.experts.problem import make_problem, spread_slots
from placement.experts.solve import solve
digest, rng = hashlib.sha256(), np.random.default_rng(0)
kinds = ((24, 8, None, None), (48, 8, None, None), (24, 8, 4, None), (24, 8, None, 1.3))
for gpus, redundant, domains, speed in kinds:
    spread = None if domains is None else np.arange(gpus) // domains
    fast = None if speed is None else np.where(np.arange(gpus) % 2, 1.0, speed)
    loads = np.round(rng.lognormal(6, 1, (6, 88)))
    found = solve(make_problem(loads, spread_slots(88, gpus, redundant), fast, spread), eplb_groups=8)
    digest.update(found.assignment.slot_expert.tobytes() + found.bound.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.wide
def test_the_same_bytes_on_any_machine() -> None:
    """Whatever the hash seed, the threads, BLAS and what the CPU can do: every rank of an engine places alone."""
    kinds = (
        {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"},
        {
            "PYTHONHASHSEED": "2",
            "OMP_NUM_THREADS": "2",
            "OPENBLAS_CORETYPE": "Nehalem",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        },
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", _BYTES], env=os.environ | kind, capture_output=True, text=True, check=True
        ).stdout
        for kind in kinds
    }
    assert len(found) == 1


def test_a_rare_workload_is_heard_beside_many_alike() -> None:
    gains = []
    for seed in range(1, 9):
        rng = np.random.default_rng(seed)
        common, rare = rng.lognormal(0, 0.8, (2, 3, 56))
        tokens = np.stack([common * rng.lognormal(0, 0.02, common.shape) for _ in range(9)] + [rare])
        grouped = make_problem(tokens, np.full(16, 4))
        shared, plain = (
            solve(replace(grouped, grouped=votes)).assignment.balancedness(rare).mean()
            for votes in (True, False)
        )
        gains.append(shared - plain)
    assert min(gains) > 0
    assert np.mean(gains) > 0.01


def one_by_one(problem: Problem, load: np.ndarray) -> list[int]:
    copies = np.ones(load.size, dtype=np.int64)
    for _ in range(problem.slots - load.size):
        copies[np.argmax(np.where(copies < problem.most_copies, load / copies, -1.0))] += 1
    return copies.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("gpus", "redundant"), [(8, 8), (40, 208), (300, 268), (600, 568)])
@pytest.mark.parametrize("falling", [True, False])
def test_greedy_counts_give_one_copy_after_the_other(gpus: int, redundant: int, falling: bool) -> None:
    """Given by sorting where loads fall; else, of many spare copies, most are given at once."""
    loads = np.random.default_rng(redundant).lognormal(0, 1.2, (4, 32))
    loads[3, 5:] = 0.0
    loads[2] = np.round(loads[2] + 0.5)  # ties
    if falling:
        loads = -np.sort(-loads, axis=1)
    problem = make_problem(loads, spread_slots(32, gpus, redundant))
    for row, load in zip(replicate(problem), problem.mean, strict=True):
        assert row.tolist() == one_by_one(problem, load)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_copies_are_packed_exchanged_and_matched_legally_and_no_step_is_worse(seed: int) -> None:
    """Few, many, unequal slots; fast and slow GPUs."""
    rng = np.random.default_rng(seed)
    gpus, experts = int(rng.integers(2, 9)), int(rng.integers(3, 14))
    slots = np.minimum(rng.integers(0, 5, gpus), experts)
    slots[0] = experts
    speed = rng.choice([0.7, 1.0, 1.5], gpus) if seed % 3 == 0 else None
    problem = make_problem(rng.lognormal(0, 1.5, (3, experts)), slots, speed)
    copies, enough = replicate(problem), np.ones(3)
    packed = pack(problem, copies)
    if speed is None:
        assert (least_peak(problem, copies) <= problem.evaluate(packed) * (1 + 1e-9)).all()
    exchanged = exchange_down(problem, packed, enough)
    assert problem.legal(exchanged).all()
    assert (problem.evaluate(exchanged) <= problem.evaluate(packed) * (1 + 1e-9)).all()
    together = matched(problem, copies, enough, 4)
    assert problem.legal(together).all()
    assert (problem.assignment(together).copies == copies).all()
    alone = matched(problem.rows(np.array([1])), copies[[1]], enough[:1], 4)
    assert (alone == together[1]).all()


def test_two_slots_per_gpu_gain_much() -> None:
    """Zipf loads, 576 slots on 288 GPUs: 1.14 with greedy counts, 1.035 by the search."""
    problem = make_problem(1 / np.arange(1.0, 257)[None], spread_slots(256, 288, 320))
    greedy = replicate(problem)
    before = problem.evaluate(swap_down(problem, pack(problem, greedy)))[0]
    assert before > 1.13
    assert solve(problem).max_load[0] < 1.035


@pytest.mark.parametrize(
    ("loads", "words"),
    [
        ([[1.0, np.nan]], "row 0, expert 1: nan"),
        ([[1.0, 2.0], [-3.0, 1.0]], "row 1, expert 0: -3.0"),
        ([[1.0, 2.0], [0.0, 0.0]], "row 1: all zero"),
        ([1.0, 2.0], "shape"),
    ],
)
def test_loads_that_cannot_be(loads: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_problem(loads, [1, 1])  # type: ignore[arg-type]


def test_rows_are_scaled_to_mean_one_even_near_overflow() -> None:
    problem = make_problem([[1e308, 1e308, 0.0, 1e308], [1e-300, 3e-300, 0.0, 0.0]], [2, 2])
    assert problem.mean.mean(axis=1) == pytest.approx([1.0, 1.0])
    assert problem.mean[1].tolist() == pytest.approx([1.0, 3.0, 0.0, 0.0])


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("fast", [1.0, 1.7])
def test_legal_no_worse_and_the_same_every_time(objective: Objective, fast: float) -> None:
    problem, start = unlike_gpus(objective, fast=fast)
    first, second = start.copy(), start.copy()
    better = anneal(problem, first, rounds=evenly(20))
    anneal(problem, second, rounds=evenly(20))
    assert better > 0
    np.testing.assert_array_equal(first, second)
    assert verify_experts(problem.assignment(first), problem.average) == []
    assert problem.evaluate(first).mean() < problem.evaluate(start).mean()
    np.testing.assert_array_equal(problem.assignment(first).copies, problem.assignment(start).copies)
