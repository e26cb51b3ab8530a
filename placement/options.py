"""What a user may ask of a plan besides cluster, model and workload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from cost.dispatch import DispatchPolicy, require_policy
from cost.layout import Layout
from topology.errors import InputError

Spread = Literal["gpu", "node", "rack"]
SPREADS: tuple[Spread, ...] = get_args(Spread)
"""What may fail at once: a GPU, all GPUs of a node, all of a rack."""

Objective = Literal["mean", "worst"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
"""What counts over several loads: the mean, or the worst of them."""

AUTO: Literal["auto"] = "auto"

ALIKE = 0.10
"""The published ranges of kernel efficiency (:mod:`cost.machine`) are wider than that, so layouts that are
closer cannot be told apart."""


_Word = TypeVar("_Word", Spread, Objective)


def require_spread(spread: str) -> Spread:
    """Return ``spread`` if it is known; InputError if it is not."""
    return _known("spread", spread, SPREADS)


def require_objective(objective: str) -> Objective:
    """Return ``objective`` if it is known; InputError if it is not."""
    return _known("objective", objective, OBJECTIVES)


def _known(name: str, word: str, words: tuple[_Word, ...]) -> _Word:
    for known in words:
        if word == known:
            return known
    *others, last = words
    raise InputError(f"`{name}` {word}: expected {', '.join(others)} or {last}.")


@dataclass(frozen=True)
class PlanOptions:
    """Options of the planner.

    Attributes
    ----------
    redundant:
        Extra copies per layer above one of each expert; None for the fewest that make the slots divisible;
        ``auto`` for as many as give most throughput (:mod:`placement.redundancy`).
    tpot_s:
        Longest time per output token, in seconds; None for no limit.
    time_limit_s:
        Seconds of search for the experts' placement after the fast path; 0 for the reproducible fast path alone; None
        for as long as it is worth (:func:`placement.solve.worth_searching`).
    seed:
        Seed of synthetic loads and of the search.
    ep, tp, stages:
        GPUs that one layer's experts are spread over, tensor-parallel width and pipeline stages; None leaves
        them to the search.
    alike:
        Of layouts within this fraction of the fastest the simplest is taken; 0 takes the fastest.
    spread:
        Failure domain: the copies of an expert lie in different GPUs, nodes or racks.
    objective:
        Over several loads: the mean or the worst of the largest over mean GPU load.
    split:
        How the engine splits an expert's tokens over its copies (:data:`cost.dispatch.DISPATCH_POLICIES`).
    """

    redundant: int | Literal["auto"] | None = None
    tpot_s: float | None = None
    time_limit_s: float | None = None
    seed: int = 0
    ep: int | None = None
    tp: int | None = None
    stages: int | None = None
    alike: float = ALIKE
    spread: Spread = "gpu"
    objective: Objective = "mean"
    split: DispatchPolicy = "even"

    @property
    def copies(self) -> int | None:
        """Extra copies asked for; None where they are left to a rule."""
        return None if self.redundant == AUTO else self.redundant

    def admits(self, layout: Layout) -> bool:
        """Whether a layout is what was asked for."""
        asked = ((self.ep, layout.ep), (self.tp, layout.tp), (self.stages, layout.stages))
        return all(wanted is None or wanted == got for wanted, got in asked)

    def __post_init__(self) -> None:
        for name, count in (("`ep`", self.ep), ("`tp`", self.tp), ("`stages`", self.stages)):
            if count is not None and count < 1:
                raise InputError(f"{name} {count}: expected a whole number from 1 up.")
        if not 0 <= self.alike < 1:
            raise InputError(f"alike {self.alike:g}: expected a fraction from 0 up to 1.")
        if self.copies is not None and (not isinstance(self.copies, int) or self.copies < 0):
            raise InputError(
                f"`redundant` {self.redundant}: expected 0 or more copies above one of each expert, or auto."
            )
        require_spread(self.spread)
        require_objective(self.objective)
        require_policy(self.split)
        for name, value, least in (
            ("`tpot_ms`", self.tpot_s, math.ulp(0.0)),
            ("`time_limit`", self.time_limit_s, 0.0),
        ):
            if value is not None and (not math.isfinite(value) or value < least):
                wanted = "0 or more seconds" if least == 0.0 else "a number above 0"
                raise InputError(f"{name}: expected {wanted}, not {value:g}.")
        if self.seed < 0:
            raise InputError(f"`seed` {self.seed}: expected a whole number from 0 up.")
