"""Whole placements: status, promises, odd shapes, real loads, time limit and Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import budget as budget_module
from placement.budget import Budget
from placement.experts.bounds import lower_bound
from placement.experts.counts import replicate
from placement.experts.pack import pack
from placement.experts.problem import Problem, keep_better, make_problem, spread_slots
from placement.experts.result import ExpertResult
from placement.experts.solve import search, solve
from placement.verify import verify_experts

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
        (
            make_problem([[1.0, 2.0, 0.0, 3.0]], [2, 2, 1]),
            "OPTIMAL",
        ),  # a dead expert; all placements are tried
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


def test_more_gpus_than_copies_is_proven_with_one_slot_each() -> None:
    loads = np.random.default_rng(0).lognormal(0, 1, (58, 256)) * 1e18
    result = place(make_problem(loads, spread_slots(256, 320, 32)))
    assert result.status == "OPTIMAL"
    assert result.gap == pytest.approx(0.0, abs=1e-9)
    assert any("provably optimal" in line for line in result.log)
    assert result.baselines["eplb_global"].assignment is None


def test_the_time_limit_holds() -> None:
    start = time.monotonic()
    place(skewed(layers=40, experts=128, gpus=32), time_limit_s=1.0)
    assert time.monotonic() - start < 6


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


@pytest.mark.wide
@pytest.mark.parametrize("layers", [6, 2])
def test_a_search_within_a_limit_improves_every_wide_layer(layers: int) -> None:
    loads = np.random.default_rng(0).dirichlet(np.full(64, 0.3), size=6)[:layers]
    problem = make_problem(loads, spread_slots(64, 64, 64))
    rows = pack(problem, replicate(problem))
    budget = Budget(1.5)
    found, log = search(problem, rows, lower_bound(problem), budget, seed=3)
    assert problem.legal(found).all()
    assert not budget.interrupted
    assert (problem.evaluate(found) < 0.95 * problem.evaluate(rows)).all()
    assert any("other copy counts" in line for line in log)


def test_only_what_is_better_is_kept() -> None:
    problem = Problem(np.array([[2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]), np.array([2, 2]))
    rows = np.array([[0, 1, 2, 0], [0, 1, 0, 2]], dtype=np.int32)
    others = np.array([[0, 1, 1, 2], [0, 1, 1, 2]], dtype=np.int32)
    before = rows.copy()
    assert keep_better(problem, rows, np.array([0, 1]), others) == 0  # 2.5 of 2 against 2 of 2
    assert (rows == before).all()
    assert keep_better(problem, others, np.array([1]), before[1:]) == 1
    assert others.tolist() == [[0, 1, 1, 2], [0, 1, 0, 2]]


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
