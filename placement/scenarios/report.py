"""How a placement fares in each scenario, and in one that it was planned without: what users can trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from placement.figures import Fraction
from placement.problem import ExpertProblem
from placement.scenarios.place import place_over_scenarios
from placement.scenarios.problem import Objective, ScenarioProblem


@dataclass(frozen=True)
class ScenarioRow:
    """One scenario: balancedness (mean over largest GPU load), averaged over layers.

    ``in_sample`` is of the placement itself, ``left_out`` of one planned the fast way on the other scenarios
    (None where there is no other), ``worst_layer`` the smallest in-sample one of a layer.
    """

    name: str
    in_sample: Fraction
    left_out: Fraction | None
    worst_layer: Fraction


@dataclass(frozen=True)
class ScenarioReport:
    """The rows of all scenarios, in the order given, and their means."""

    objective: Objective
    rows: tuple[ScenarioRow, ...]

    @property
    def in_sample(self) -> float:
        """Mean over scenarios of balancedness under the placement."""
        return float(np.mean([row.in_sample for row in self.rows]))

    @property
    def left_out(self) -> float | None:
        """Mean over scenarios of balancedness when planned without the scenario; None for a single one."""
        values = [row.left_out for row in self.rows if row.left_out is not None]
        return float(np.mean(values)) if values else None

    def lines(self) -> list[str]:
        """Return the table of the summary: a head, a line a scenario, the mean."""
        width = max(len("scenario"), *(len(row.name) for row in self.rows))
        lines = [f"{'scenario':{width + 2}}in-sample  left out  worst layer"]
        lines += [
            _line(row.name, width, row.in_sample, row.left_out) + f"{row.worst_layer:13.3f}"
            for row in self.rows
        ]
        if len(self.rows) > 1:
            lines.append(_line("mean", width, self.in_sample, self.left_out))
        return lines


def scenario_report(problem: ScenarioProblem, assignment: Assignment, names: Sequence[str]) -> ScenarioReport:
    """Return how ``assignment`` fares in each scenario of ``problem``, and how one made without it would.

    The latter is planned on the fast path, once a scenario. ``names`` has one entry a scenario.
    """
    rows = []
    for index, (name, part) in enumerate(zip(names, problem.parts, strict=True)):
        layers = _balancedness(part, assignment)
        left_out = None
        if len(problem.parts) > 1:
            others = place_over_scenarios(
                problem.without(index), time_limit_s=0, seed=0, eplb_groups=None, nodes=1
            )
            left_out = float(_balancedness(part, others.assignment).mean())
        rows.append(ScenarioRow(name, float(layers.mean()), left_out, float(layers.min())))
    return ScenarioReport(problem.objective, tuple(rows))


def _balancedness(part: ExpertProblem, assignment: Assignment) -> NDArray[np.float64]:
    balance: NDArray[np.float64] = 1.0 / part.max_load(assignment)
    return balance


def _line(name: str, width: int, in_sample: float, left_out: float | None) -> str:
    left = "-" if left_out is None else f"{left_out:.3f}"
    return f"{name:{width + 2}}{in_sample:9.3f}{left:>10}"
