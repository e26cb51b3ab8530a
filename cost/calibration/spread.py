"""How far measured runs lie from corrected predictions: the spread of the process, as wide as runs held out need it.

``spread.yaml`` is written by ``python benchmarks/calibration SILICON.csv... --write``: of runs that the correction
did not see, the spread that holds four in five over the spread that the process claims.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic.dataclasses import dataclass

from cost.calibration.correction import Kind
from cost.calibration.serving import ANY_ENGINE
from cost.calibration.tables import CHECKED, Positive, Text, load_table

PATH = Path(__file__).with_name("spread.yaml")
SIGMAS_OF_80_PERCENT = 1.2816
"""Standard deviations of a normal distribution that hold 80 % of it."""


@dataclass(frozen=True, config=CHECKED)
class Spreads:
    """Factors on the spread of the process.

    Attributes
    ----------
    configurations:
        By engine (``any``: not named) and chip, of configurations that were held out.
    chip, model:
        Of a chip, and of a model, that nobody measured.
    """

    source: Text
    configurations: Mapping[str, Mapping[str, Positive]]
    chip: Positive
    model: Positive

    def factor(self, kind: Kind, *, model_seen: bool) -> float:
        """Return that of a question; ``model_seen``: whether runs of its model were measured."""
        chips = self.configurations.get(kind.engine or ANY_ENGINE, {})
        known = self.configurations[ANY_ENGINE]
        if kind.chip not in known:
            return self.chip
        return chips.get(kind.chip, max(known[kind.chip], *chips.values())) if model_seen else self.model


@cache
def spreads() -> Spreads:
    """Return the committed factors."""
    return load_table(Spreads, PATH)


def band_of(kind: Kind, variance: float, *, model_seen: bool) -> float:
    """Return the factor either way that holds four of five runs like a question.

    ``variance``: of their logarithms (:meth:`cost.calibration.correction.Runs.variance`).
    """
    return math.exp(
        SIGMAS_OF_80_PERCENT * spreads().factor(kind, model_seen=model_seen) * math.sqrt(variance)
    )
