"""The CP-SAT model of a few GPUs: each constraint both ways, and the whole against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from ortools.sat.python import cp_model

from placement import cpsat
from placement.cpsat import SubModel, SubPacking

ON = np.array([[1, 1], [1, 0], [1, 0], [0, 1], [0, 1]], dtype=bool)
SUB = SubPacking(ON, np.array([5, 4, 3, 2, 1]))
BEST = np.array([[1, 1], [1, 0], [0, 1], [0, 1], [1, 0]], dtype=bool)


def solver_of_tests() -> cp_model.CpSolver:
    """Return a solver that leaves Ctrl-C to Python: its own handler stays for good."""
    solver = cp_model.CpSolver()
    solver.parameters.catch_sigint_signal = False
    return solver


def status(built: SubModel, on: np.ndarray) -> str:
    """Feasible or not, with every variable fixed."""
    for row, values in zip(built.x, on, strict=True):
        for variable, value in zip(row, values, strict=True):
            built.model.add(variable == int(value))
    solver = solver_of_tests()
    solver.parameters.num_workers = 1
    return str(solver.status_name(solver.solve(built.model)))


def changed(expert: int, gpu: int) -> np.ndarray:
    on = ON.copy()
    on[expert, gpu] = not on[expert, gpu]
    return on


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (cpsat.place_every_copy, BEST, changed(1, 0)),
        (cpsat.place_every_copy, ON, changed(1, 1)),
        (cpsat.fill_slots, ON, changed(3, 0)),
        (cpsat.bound_peak_by_loads, BEST, np.ones_like(ON)),
        (cpsat.fix_heaviest, ON, changed(0, 1)),
    ],
)
def test_a_constraint_alone(constraint: object, good: np.ndarray, bad: np.ndarray) -> None:
    for on, wanted in ((good, "OPTIMAL"), (bad, "INFEASIBLE")):
        built = cpsat.variables(SUB)
        constraint(built, SUB)  # type: ignore[operator]
        assert status(built, on) == wanted


def test_a_domain_holds_each_expert_once() -> None:
    """Three GPUs, two of them in one domain; outside the model the other one's domain holds expert 2."""
    on = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1]], dtype=bool)
    barred = np.zeros_like(on)
    barred[2, 2] = True
    sub = SubPacking(on, np.array([4, 3, 2, 1]), domain=np.array([0, 0, 1]), barred=barred)
    for packing, wanted in (
        (on, "OPTIMAL"),
        (on[[3, 1, 2, 0]], "OPTIMAL"),
        (
            np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=bool),
            "INFEASIBLE",
        ),  # 0 twice in domain 0
        (np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=bool), "INFEASIBLE"),  # 2 is there
    ):
        built = cpsat.variables(sub)
        cpsat.keep_apart(built, sub)
        assert status(built, packing) == wanted
    assert not sub.alike


@pytest.mark.parametrize("seed", range(8))
def test_speeds_and_domains_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    on = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1], [0, 1, 0]], dtype=bool)
    load = np.rint(rng.integers(100, 900, (5, 1)) / rng.uniform(0.5, 1.5, 3)).astype(np.int64)
    sub = SubPacking(on, load, domain=np.array([0, 1, 1]) if seed % 2 else None)
    best = sub.peak
    for bits in product((False, True), repeat=on.size):
        packing = np.array(bits).reshape(on.shape)
        same = (packing.sum(axis=1) == sub.copies).all() and (packing.sum(axis=0) == sub.slots).all()
        if same and (sub.domain is None or packing[:, 1:].sum(axis=1).max() <= 1):
            best = min(best, sub.peak_of(packing))
    if sub.domain is not None:
        assert on[:, 1:].sum(axis=1).max() == 2  # the start is illegal here, so that a packing is found
    found, _ = cpsat.repack(sub, limit=20.0, seed=0)
    assert (sub.peak if found is None else sub.peak_of(found)) == best


def test_no_gpu_can_hold_two_copies_of_an_expert() -> None:
    """Three copies on two GPUs: there is no such packing, since a variable is an expert on a GPU."""
    built = cpsat.variables(SUB)
    built.model.add(sum(built.x[0]) == 3)
    assert solver_of_tests().solve(built.model) == cp_model.INFEASIBLE


def test_heaviest_is_free_where_slots_differ() -> None:
    on = np.array([[1, 0], [0, 1], [0, 1]], dtype=bool)
    built = cpsat.variables(SubPacking(on, np.array([5, 3, 3])))
    cpsat.fix_heaviest(built, SubPacking(on, np.array([5, 3, 3])))
    assert status(built, np.array([[0, 1], [1, 0], [1, 0]], dtype=bool)) == "OPTIMAL"


def test_the_hint_is_complete_and_feasible() -> None:
    built = cpsat.build(SUB)
    assert len(built.model.proto.solution_hint.vars) == ON.size + 1
    solver = solver_of_tests()
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(built.model) == cp_model.OPTIMAL
    assert solver.objective_value == SUB.peak


@pytest.mark.parametrize("seed", range(12))
def test_the_whole_model_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gpus = 2 + seed % 2
    on = rng.random((5, gpus)) < 0.5
    on[:, 0] |= ~on.any(axis=1)
    load = rng.integers(1, 40, 5)
    sub = SubPacking(on, load)
    best = min(
        int((load @ packing).max())
        for bits in product((False, True), repeat=on.size)
        if ((packing := np.array(bits).reshape(on.shape)).sum(axis=1) == sub.copies).all()
        and (packing.sum(axis=0) == sub.slots).all()
    )
    found, _ = cpsat.repack(sub, limit=20.0, seed=0)
    if found is None:
        assert sub.peak == best
    else:
        assert int((load @ found).max()) == best < sub.peak
        assert (found.sum(axis=1) == sub.copies).all()
        assert (found.sum(axis=0) == sub.slots).all()


def test_nothing_below_the_target_is_sought() -> None:
    assert SubPacking(ON, SUB.load, target=11).floor == 11
    assert SubPacking(ON, SUB.load, target=99).floor == SUB.peak
    assert SUB.floor == 10
