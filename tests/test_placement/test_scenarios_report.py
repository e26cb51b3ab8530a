"""Each scenario in-sample and left out: the table that users trust."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placement.cross_validation import scenario_report
from placement.problem import make_problem
from placement.solve import solve

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "expert_loads"


def test_left_out_is_planned_without_the_scenario() -> None:
    tokens = np.random.default_rng(0).lognormal(0, 1, (3, 4, 24))
    problem = make_problem(tokens, np.full(6, 5))
    plan = solve(problem)
    report = scenario_report(problem, plan.assignment, ["a", "b", "c"])
    others = solve(make_problem(tokens[[0, 2]], np.full(6, 5)))
    row = report.rows[1]
    assert row.name == "b"
    assert row.in_sample == pytest.approx(plan.assignment.balancedness(tokens[1]).mean())
    assert row.worst_layer == pytest.approx(plan.assignment.balancedness(tokens[1]).min())
    assert row.left_out == pytest.approx(others.assignment.balancedness(tokens[1]).mean())
    assert report.left_out == pytest.approx(np.mean([row.left_out for row in report.rows]))
    assert report.left_out < report.in_sample
    lines = report.lines()
    assert len(lines) == 5
    assert lines[2].split() == ["b", f"{row.in_sample:.3f}", f"{row.left_out:.3f}", f"{row.worst_layer:.3f}"]


def test_a_single_scenario_has_none_to_leave_out() -> None:
    tokens = np.random.default_rng(0).lognormal(0, 1, (1, 4, 24))
    problem = make_problem(tokens, np.full(6, 5))
    plan = solve(problem)
    report = scenario_report(problem, plan.assignment, ["only"])
    assert report.left_out is None
    assert len(report.lines()) == 2


@pytest.mark.skipif(not REAL.is_dir(), reason="no published workloads beside the repository")
@pytest.mark.parametrize(("gpus", "slots", "seen", "unseen"), [(72, 4, 0.95, 0.89), (32, 9, 0.98, 0.95)])
def test_real_workloads_not_seen(gpus: int, slots: int, seen: float, unseen: float) -> None:
    tokens = np.stack([np.load(path) for path in sorted(REAL.glob("*.npy"))])[:, ::24]
    problem = make_problem(tokens, np.full(gpus, slots))
    plan = solve(problem, eplb_groups=8)
    report = scenario_report(problem, plan.assignment, [str(i) for i in range(8)])
    assert report.in_sample > seen
    assert report.left_out is not None
    assert report.left_out > unseen
