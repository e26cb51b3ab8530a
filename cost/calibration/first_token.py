"""What of the time to the first token no step accounts for, and how far off simulated times are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pydantic

from cost.calibration.correction import PHASES, Array, Kind, Part, Runs, runs_of, shipped_lines
from cost.calibration.serving import ANY_ENGINE
from cost.calibration.tables import CHECKED, Number, Positive, Text, load_table

PATH = Path(__file__).with_name("first_token.yaml")
WAIT_PARTS = (
    Part(
        0.2,
        ("model", "engine", "chip"),
        {"requests": 2.0, "width": 1.0, "tp": 1.0, "context": 0.8, "queries": 1.0},
        {"format": 0.5, "phase": 0.4},
    ),
    Part(0.12, ("model", "chip"), {"requests": 2.0, "width": 1.5}, {"format": 0.3, "phase": 0.5}),
    Part(
        0.12, ("model", "engine", "architecture"), {"requests": 2.0, "day": 1.0}, {"format": 0.5, "chip": 0.5}
    ),
    Part(0.3, ("engine", "phase"), {"requests": 1.5, "context": 0.5, "width": 1.0, "tp": 1.0}),
)
"""Parts of the process (:mod:`cost.calibration.correction`) of what first tokens took over the simulation, which is
further off; the last part is what it gets wrong of an engine whatever the model."""
WAIT_NOISE, WAIT_MOST = 0.4, 2.5
"""Its noise, and the largest logarithm that is learned from and that is said."""
TWO_POOLS_WAIT = 0.5
"""Part of it that counts of two pools: held out, all of it is further off than none, as runs do not say which prefill
workers ran and how prompts were batched."""


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
def shipped_waits() -> Runs:
    """Return the measured runs for what their first tokens took over the simulation."""
    lines = shipped_lines()
    return replace(
        runs_of(lines, WAIT_PARTS), weights=np.array([line.wait for line in lines]), noise=WAIT_NOISE
    )


def wait_logs(waits: Runs, kind: Kind, features: Array) -> Array:
    """Return the logarithm of what first tokens took over the simulation, by the runs ``waits``, ``[questions]``."""
    part = TWO_POOLS_WAIT if kind.phase == PHASES[1] else 1.0
    logs: Array = part * np.clip(waits.mean(kind, features), -WAIT_MOST, WAIT_MOST)
    return logs


@cache
def first_token_calibration() -> FirstTokenCalibration:
    """Return the committed calibration."""
    return load_table(FirstTokenCalibration, PATH)
