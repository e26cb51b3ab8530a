"""What a user may ask of a plan besides cluster, model and workload."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topology.errors import InputError

__all__ = ["PlanOptions"]


@dataclass(frozen=True)
class PlanOptions:
    """Options of the planner.

    Attributes
    ----------
    redundant:
        Extra copies per layer above one of each expert; None for the fewest that make the slots divisible.
    tpot_s:
        Longest time per output token, in seconds; None for no limit.
    time_limit_s:
        Seconds for CP-SAT to improve the experts' placement; 0 for the reproducible fast path alone.
    seed:
        Seed of synthetic loads and of the search.
    """

    redundant: int | None = None
    tpot_s: float | None = None
    time_limit_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.redundant is not None and self.redundant < 0:
            raise InputError(
                f"--redundant {self.redundant}: expected 0 or more copies above one of each expert."
            )
        for name, value, least in (
            ("--tpot-ms", self.tpot_s, math.ulp(0.0)),
            ("--time-limit", self.time_limit_s, 0.0),
        ):
            if value is not None and (not math.isfinite(value) or value < least):
                wanted = "0 or more seconds" if least == 0.0 else "a number above 0"
                raise InputError(f"{name}: expected {wanted}, not {value:g}.")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: expected a whole number from 0 up.")
