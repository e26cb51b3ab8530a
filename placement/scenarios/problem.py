"""The placement problem over several scenarios: their loads, the slots, and what counts over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from cost.assignment import Assignment
from placement.arrays import Bools, Floats, Index, Ints
from placement.bounds import largest_copy, lower_bound
from placement.problem import ExpertProblem, expert_problem
from topology.errors import InputError

Objective = Literal["mean", "worst"]


@dataclass(frozen=True, eq=False)
class ScenarioProblem:
    """Experts of some layers under several loads, to be placed once.

    Attributes
    ----------
    parts:
        The problem of each scenario, each layer of each with mean load 1; all with the same slots, speeds and
        failure domains.
    objective:
        What is kept small in each layer: ``mean`` or ``worst`` over scenarios of the largest GPU load over the
        mean one.
    """

    parts: tuple[ExpertProblem, ...]
    objective: Objective

    @cached_property
    def loads(self) -> Floats:
        """Loads of all scenarios, float64 ``[scenarios, layers, experts]``, mean 1 over experts."""
        return np.stack([part.loads for part in self.parts])

    @cached_property
    def average(self) -> ExpertProblem:
        """The problem of the mean load over scenarios."""
        return self._with(self.loads.mean(axis=0))

    @cached_property
    def highest(self) -> ExpertProblem:
        """The problem of each expert's largest load in any scenario; its rows have no mean of 1."""
        return self._with(self.loads.max(axis=0))

    @property
    def single(self) -> bool:
        """Whether all scenarios have the same loads."""
        return all(np.array_equal(part.loads, self.parts[0].loads) for part in self.parts)

    def sorted(self) -> ScenarioProblem:
        """Return the same with the scenarios in an order that does not depend on the one they came in."""
        return self._of(sorted(self.parts, key=lambda part: part.loads.tobytes()))

    def towards(self, objective: Objective) -> ScenarioProblem:
        """Return the same for another objective."""
        return self if objective == self.objective else ScenarioProblem(self.parts, objective)

    def without(self, scenario: int) -> ScenarioProblem:
        """Return the same without one of the scenarios."""
        return self._of([*self.parts[:scenario], *self.parts[scenario + 1 :]])

    def without_spread(self) -> ScenarioProblem:
        """Return the same with each GPU a failure domain of its own."""
        return self._of([replace(part, spread=None) for part in self.parts])

    def rows(self, which: Index | Bools) -> ScenarioProblem:
        """Return the same problem for some of the layers."""
        return self._of([part.rows(which) for part in self.parts])

    def max_load(self, assignment: Assignment) -> Floats:
        """Largest over mean GPU load, mean or worst over scenarios, ``[layers]``, from the assignment alone."""
        each = np.stack([part.max_load(assignment) for part in self.parts])
        return self._over(each)

    def lower_bound(self) -> Floats:
        """What no placement can be below, ``[layers]``.

        The scenarios' own bounds, averaged, or the worst of them. The mean over scenarios is also at least the
        largest load under their mean, and the worst at least the mean. One set of counts serves all scenarios:
        the worst is at least the largest copy under each expert's highest load.
        """
        own = self._over(np.stack([lower_bound(part) for part in self.parts]))
        bound = np.maximum(own, lower_bound(self.average))
        if self.objective == "worst":
            above_mean = self.highest.loads.mean(axis=1)
            bound = np.maximum(bound, largest_copy(self.highest) * above_mean)
        return bound

    def _of(self, parts: Sequence[ExpertProblem]) -> ScenarioProblem:
        return ScenarioProblem(tuple(parts), self.objective)

    def _over(self, each: Floats) -> Floats:
        over: Floats = each.mean(axis=0) if self.objective == "mean" else each.max(axis=0)
        return over

    def _with(self, loads: Floats) -> ExpertProblem:
        first = self.parts[0]
        return ExpertProblem(loads, first.slots_per_gpu, first.gpu_speed, first.spread)


def scenario_problem(
    tokens: ArrayLike,
    slots_per_gpu: ArrayLike,
    *,
    speed: Floats | None = None,
    spread: Ints | None = None,
    objective: Objective = "mean",
) -> ScenarioProblem:
    """Check ``tokens`` ``[scenarios, layers, experts]`` and divide each layer of each scenario by its mean.

    Raises
    ------
    InputError
        As :class:`placement.problem.ExpertProblem`, or if there is no scenario or no such objective.
    """
    raw = np.asarray(tokens, dtype=np.float64)
    if raw.ndim != 3 or 0 in raw.shape:
        raise InputError(
            f"loads of scenarios have shape {list(raw.shape)}: give [scenarios, layers, experts], none of them 0."
        )
    if objective not in ("mean", "worst"):
        raise InputError(f"`objective` {objective}: expected mean or worst.")
    parts = [expert_problem(scenario, slots_per_gpu, speed, spread) for scenario in raw]
    return ScenarioProblem(tuple(parts), objective)
