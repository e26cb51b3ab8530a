"""A placement of experts and its quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from cost.experts.assignment import Assignment
from placement.arrays import Experts, Floats
from placement.experts.baselines import Baseline
from placement.experts.bounds import lower_bound
from placement.experts.problem import Problem, proven
from placement.verify import verify_experts


@dataclass(frozen=True, eq=False)
class ExpertResult:
    """A placement of experts and its quality; all loads are multiples of the mean GPU load.

    Attributes
    ----------
    problem:
        What it is judged by.
    assignment:
        The placement, legal by :func:`placement.verify.verify_experts`.
    interrupted:
        Whether Ctrl-C ended the search.
    log:
        What ran, in words.
    baselines:
        The rivals by name, each with an assignment or the reason why it does not apply.
    search:
        How long the search was and why, in words; empty where the time was asked for.
    exact:
        ``[layers]``: what CP-SAT has proven that none can be below; None where it did not run.
    """

    problem: Problem
    assignment: Assignment
    interrupted: bool
    log: tuple[str, ...]
    baselines: Mapping[str, Baseline]
    search: str = ""
    exact: Floats | None = field(default=None, repr=False)

    @cached_property
    def max_load(self) -> Floats:
        """The largest GPU load, ``[layers]``: recomputed from the assignment on first use."""
        return self.problem.evaluate(self.assignment)

    @cached_property
    def bound(self) -> Floats:
        """Lower bound for all placements, ``[layers]``, proven on first use."""
        bound = lower_bound(self.problem, self.max_load) if self.exact is None else self.exact
        return np.minimum(bound, self.max_load)  # a bound above the answer is rounding

    def under(self, problem: Problem) -> ExpertResult:
        """Return the same placement judged by another problem."""
        return replace(self, problem=problem, exact=None)

    @property
    def status(self) -> Literal["OPTIMAL", "FEASIBLE"]:
        """``OPTIMAL`` only where the recomputed objective equals the bound, else ``FEASIBLE``."""
        return "OPTIMAL" if proven(self.max_load, self.bound).all() else "FEASIBLE"

    @property
    def objective(self) -> float:
        """Mean over layers of largest over mean GPU load."""
        return float(self.max_load.mean())

    @property
    def objective_bound(self) -> float:
        """Mean over layers of the bound."""
        return float(self.bound.mean())

    @property
    def gap(self) -> float:
        """Maximum remaining improvement of the objective: ``(objective - bound) / objective``."""
        return 1.0 - self.objective_bound / self.objective


def checked_result(
    problem: Problem,
    slot_expert: Experts,
    log: tuple[str, ...],
    baselines: Mapping[str, Baseline],
    *,
    interrupted: bool,
    search: str = "",
    exact: Floats | None = None,
) -> ExpertResult:
    """Return ``slot_expert`` ``[layers, slots]`` as a result, judged by ``problem`` from the placement alone.

    Raises
    ------
    AssertionError
        If it is not legal, which is a defect.
    """
    assignment = problem.assignment(slot_expert)
    if not problem.legal(assignment.slot_expert).all():
        wrong = verify_experts(assignment, problem) or ["copies share a failure domain"]
        raise AssertionError(f"the placement is not legal, a defect in rackplan: {wrong[0]}")
    return ExpertResult(problem, assignment, interrupted, log, baselines, search, exact)
