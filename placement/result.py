"""A placement of experts and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cost.assignment import Assignment
from placement.arrays import Floats
from placement.baselines import Baseline


@dataclass(frozen=True, eq=False)
class ExpertResult:
    """A placement of experts and how good it is; all loads are multiples of the mean GPU load.

    Attributes
    ----------
    assignment:
        The placement, legal by :func:`placement.verify.verify_experts`.
    status:
        ``OPTIMAL`` only where the recomputed objective equals the bound, else ``FEASIBLE``.
    max_load, bound:
        ``[layers]``: the largest GPU load, recomputed from the assignment, and what none can be below.
    interrupted:
        Whether Ctrl-C ended the search.
    log:
        What ran, in words.
    baselines:
        The rivals by name, each with an assignment or the reason why it does not apply.
    """

    assignment: Assignment
    status: Literal["OPTIMAL", "FEASIBLE"]
    max_load: Floats
    bound: Floats
    interrupted: bool
    log: tuple[str, ...]
    baselines: Mapping[str, Baseline]

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
        """How much of the objective may still be saved at most: ``(objective - bound) / objective``."""
        return 1.0 - self.objective_bound / self.objective
