"""Time to the first token: an unloaded prefill, an interval around it, and where waiting is most of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pydantic
from numpy.typing import NDArray

from cost.calibration.serving import ANY_ENGINE
from cost.calibration.tables import CHECKED, Number, Positive, Text, load_table
from cost.quantity import Quantity

PATH = Path(__file__).with_name("first_token.yaml")
DOMINATES = 2.0
"""Waiting dominates where a first token takes this many times the unloaded time in the middle: more than half of it
is waiting. It does too where nine rows in ten take longer than unloaded, which is then outside its interval."""
CROWDED = (
    "waiting dominates: so many requests share an attention group that in the middle more than half of the time to "
    "a first token is waiting"
)
QUEUED = (
    "waiting dominates: more requests are in the system than it holds at a time, the rest wait for a place "
    "(Little's law)"
)


Factors = tuple[Positive, ...]


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class Loaded:
    """What load makes of an unloaded time: factors at the knots of the calibration.

    Attributes
    ----------
    fixed_s:
        Seconds besides prefill (network, tokenising, scheduling).
    low, middle, high:
        Measured over unloaded time at each knot: the tenth, the half and nine tenths of the rows are below.
    """

    fixed_s: Positive
    low: Factors
    middle: Factors
    high: Factors


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class FirstTokenCalibration:
    """Factors by engine of one pool for both phases, of two pools, and where a queue forms.

    ``knots`` are requests per attention group, rising. ``queue`` holds, for one pool and for two, the factors of what
    Little's law gives below which a tenth and nine tenths of the rows are; ``fit`` the rows that all of it was fitted
    to, and the shares that the intervals hold.
    """

    source: Text
    fit: Mapping[str, Number]
    knots: Factors
    engines: Mapping[str, Loaded]
    two_pools: Loaded
    queue: Mapping[str, tuple[Positive, Positive]]

    def __post_init__(self) -> None:
        knots = self.knots
        if len(knots) < 2 or any(after <= before for before, after in pairwise(knots)):
            raise ValueError("knots: expected two or more rising counts of requests.")
        if ANY_ENGINE not in self.engines:
            raise ValueError(f"engines: {ANY_ENGINE} is missing.")
        for one in (*self.engines.values(), self.two_pools):
            if not len(one.low) == len(one.middle) == len(one.high) == len(knots):
                raise ValueError(f"low, middle and high need a factor for each of {len(knots)} knots.")
            if any(
                not low <= middle <= high
                for low, middle, high in zip(one.low, one.middle, one.high, strict=True)
            ):
                raise ValueError("factors must rise from low to high at each knot.")
        if set(self.queue) != {"aggregated", "disaggregated"}:
            raise ValueError("queue: expected aggregated and disaggregated.")
        for phase, (low, high) in self.queue.items():
            if low > high:
                raise ValueError(f"queue: {phase}: expected two factors that rise.")

    def loaded(self, engine: str, phase: str) -> Loaded:
        """Return the factors of an engine, those of all engines together where it was not measured."""
        if phase == "disaggregated":
            return self.two_pools
        return self.engines.get(engine or ANY_ENGINE, self.engines[ANY_ENGINE])

    def factor(self, factors: Factors, requests: Quantity) -> NDArray[np.float64]:
        """Return ``factors`` of the knots at ``requests`` per attention group.

        Between knots straight in logarithms of both, below the first as at the first, above the last as the last two
        say.
        """
        knots, values = np.log(self.knots), np.log(factors)
        at = np.log(np.maximum(np.asarray(requests, dtype=np.float64), self.knots[0]))
        slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
        beyond = np.maximum(0.0, at - knots[-1]) * slope
        found: NDArray[np.float64] = np.exp(np.interp(at, knots, values) + beyond)
        return found


@dataclass(frozen=True, eq=False)
class FirstToken:
    """Time to the first token of requests in a system, one entry each.

    Attributes
    ----------
    unloaded_s:
        Seconds where nobody else is served: what is fixed, and ``prefill_s`` of the prompt alone.
    waiting_s:
        Seconds that a request waits for a place by Little's law.
    low_s, high_s:
        Interval that holds 80 % of the rows it was fitted to, waiting included.
    crowded, queued:
        Whether waiting dominates: because many requests share an attention group, or because more are in the system
        than it holds.
    """

    unloaded_s: NDArray[np.float64]
    prefill_s: NDArray[np.float64]
    waiting_s: NDArray[np.float64]
    low_s: NDArray[np.float64]
    high_s: NDArray[np.float64]
    crowded: NDArray[np.bool_]
    queued: NDArray[np.bool_]

    def reason(self, index: int) -> str:
        """Why one of them has no point value; empty where it has one."""
        return QUEUED if self.queued[index] else CROWDED if self.crowded[index] else ""


def first_token(
    prefill_s: Quantity,
    waiting_s: Quantity,
    requests: Quantity,
    *,
    engine: str,
    phase: str,
    calibration: FirstTokenCalibration | None = None,
) -> FirstToken:
    """Return the time to the first token.

    Parameters
    ----------
    prefill_s:
        Seconds of the prefill of one prompt alone.
    waiting_s:
        Seconds that a request waits for a place by Little's law.
    requests:
        Requests in the system per attention group (of the pool that decodes, where there are two).
    engine, phase:
        Name of a measured engine or "", and ``aggregated`` or ``disaggregated``.
    calibration:
        The committed one if None.
    """
    known = calibration or first_token_calibration()
    loaded = known.loaded(engine, phase)
    prefill, waiting, each = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (prefill_s, waiting_s, requests))
    )
    unloaded = loaded.fixed_s + prefill
    queued = waiting > unloaded * (DOMINATES - 1)
    queue_low, queue_high = known.queue[phase]
    low, middle, high = (known.factor(one, each) for one in (loaded.low, loaded.middle, loaded.high))
    return FirstToken(
        unloaded,
        prefill,
        waiting,
        np.where(queued, queue_low * (unloaded + waiting), unloaded * low),
        np.where(queued, queue_high * (unloaded + waiting), unloaded * high),
        ~queued & ((middle > DOMINATES) | (low > 1)),
        queued,
    )


@cache
def first_token_calibration() -> FirstTokenCalibration:
    """Return the committed calibration (``benchmarks/calibration/fit_ttft.py``)."""
    return load_table(FirstTokenCalibration, PATH)
