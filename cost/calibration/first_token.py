"""What of the time to the first token no step accounts for, and how far off simulated times are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pydantic

from cost.calibration.serving import ANY_ENGINE
from cost.calibration.tables import CHECKED, Number, Positive, Text, load_table

PATH = Path(__file__).with_name("first_token.yaml")
PHASES = ("aggregated", "disaggregated")


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class FirstTokenCalibration:
    """Fit to the measured time to the first token (``benchmarks/calibration/fit_ttft.py``).

    Attributes
    ----------
    fit:
        Rows, and median errors of the simulation, corrected and not.
    fixed_s:
        Seconds of a request besides steps (network, tokenising, scheduling) by engine of one pool.
    two_pools_s:
        The same of two pools, whatever the engine.
    band:
        Factor either way that holds four of five measured times, by phase.
    """

    source: Text
    fit: Mapping[str, Number]
    fixed_s: Mapping[str, Positive]
    two_pools_s: Positive
    band: Mapping[str, Positive]

    def __post_init__(self) -> None:
        if ANY_ENGINE not in self.fixed_s:
            raise ValueError(f"fixed_s: {ANY_ENGINE} is missing.")
        if set(self.band) != set(PHASES):
            raise ValueError(f"band: expected {' and '.join(PHASES)}.")

    def seconds(self, engine: str, phase: str) -> float:
        """Return the seconds besides steps; of all engines together where one was not measured."""
        if phase == PHASES[1]:
            return self.two_pools_s
        return self.fixed_s.get(engine or ANY_ENGINE, self.fixed_s[ANY_ENGINE])


@cache
def first_token_calibration() -> FirstTokenCalibration:
    """Return the committed calibration."""
    return load_table(FirstTokenCalibration, PATH)
