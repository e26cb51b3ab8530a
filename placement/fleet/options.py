"""What is asked of a fleet besides its cluster and traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from topology.base.errors import InputError, input_name

Goal = Literal["throughput", "gpus", "usd", "power"]
GOALS: tuple[Goal, ...] = get_args(Goal)
"""Most tokens; or fewest GPUs, least USD or least watts: at the speed asked for, else for each token."""

WORTH_S = 16.0
"""The solver's own seconds at most where nobody says: about 25 of a core."""


def require_goal(goal: str) -> Goal:
    """Return ``goal`` if it is known; InputError if it is not."""
    for known in GOALS:
        if goal.strip().lower() == known:
            return known
    raise InputError(f"expected {', '.join(GOALS[:-1])} or {GOALS[-1]}.", field="goal", value=goal)


@dataclass(frozen=True)
class FleetOptions:
    """Options of a fleet.

    Attributes
    ----------
    goal:
        What is best; None: fewest GPUs where ``tok_s`` is asked for, else most throughput.
    tok_s:
        Output tokens per second that must be served; None: as many as there are.
    utilization:
        Of what the fleet can serve, the part that ``tok_s`` is: mean over peak, above 0 and at most 1.
    spares:
        Whole domains kept out for failures.
    time_limit_s:
        Seconds of search; None: :data:`WORTH_S`.
    seed:
        Of the search.
    """

    goal: Goal | None = None
    tok_s: float | None = None
    utilization: float = 1.0
    spares: int = 0
    time_limit_s: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.goal is not None:
            require_goal(self.goal)
        if self.tok_s is not None and not (math.isfinite(self.tok_s) and self.tok_s > 0):
            raise InputError(
                "expected output tokens per second above 0.", field="tok_s", value=f"{self.tok_s:g}"
            )
        if not 0 < self.utilization <= 1:
            raise InputError(
                "expected the mean over the peak, above 0 and at most 1.",
                field="utilization",
                value=f"{self.utilization:g}",
            )
        if self.utilization < 1 and self.tok_s is None:
            raise InputError(
                f"only with {input_name('tok_s')}, the mean that is served.", field="utilization"
            )
        if self.spares < 0:
            raise InputError("expected 0 or more domains.", field="spares", value=self.spares)
        if self.seed < 0:
            raise InputError("expected a whole number from 0 up.", field="seed", value=self.seed)
        if self.time_limit_s is not None and not (math.isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise InputError(f"expected seconds above 0, not {self.time_limit_s:g}.", field="time_limit_s")

    @property
    def wanted(self) -> Goal:
        """The goal, by default that of what is asked for."""
        return self.goal or ("throughput" if self.tok_s is None else "gpus")

    @property
    def peak_tok_s(self) -> float | None:
        """Output tokens per second that the fleet must be able to serve."""
        return None if self.tok_s is None else self.tok_s / self.utilization
