"""Time to the first token: an unloaded prefill, an interval around it, and where waiting is most of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cost.calibration.serving import ANY_ENGINE
from cost.quantity import Quantity
from topology.base.reading import Fields, load_yaml
from topology.schema import Positive, Spec, spec, validated

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


@spec
class Loaded(Spec):
    """What load makes of an unloaded time: factors at ``knots`` requests per attention group.

    Attributes
    ----------
    fixed_s:
        Seconds besides prefill (network, tokenising, scheduling).
    knots:
        Requests per attention group, rising.
    low, middle, high:
        Measured over unloaded time at each knot: the tenth, the half and nine tenths of the rows are below. Between
        knots straight in logarithms of both, below the first as at the first, above the last as the last two say.
    """

    fixed_s: Positive
    knots: tuple[Positive, ...]
    low: tuple[Positive, ...]
    middle: tuple[Positive, ...]
    high: tuple[Positive, ...]

    def factor(self, name: str, requests: Quantity) -> NDArray[np.float64]:
        """Return ``low``, ``middle`` or ``high`` at ``requests`` per attention group."""
        knots, values = np.log(self.knots), np.log(getattr(self, name))
        at = np.log(np.maximum(np.asarray(requests, dtype=np.float64), self.knots[0]))
        slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
        beyond = np.maximum(0.0, at - knots[-1]) * slope
        found: NDArray[np.float64] = np.exp(np.interp(at, knots, values) + beyond)
        return found


@dataclass(frozen=True)
class FirstTokenCalibration:
    """Factors by engine of one pool for both phases, of two pools, and where a queue forms.

    ``queue`` holds, for one pool and for two, the factors of what Little's law gives below which a tenth and nine
    tenths of the rows are; ``fit`` the rows that all of it was fitted to, and the shares that the intervals hold.
    """

    source: str
    fit: Mapping[str, float]
    engines: Mapping[str, Loaded]
    two_pools: Loaded
    queue: Mapping[str, tuple[float, float]]

    def loaded(self, engine: str, phase: str) -> Loaded:
        """Return the factors of an engine, those of all engines together where it was not measured."""
        if phase == "disaggregated":
            return self.two_pools
        return self.engines.get(engine or ANY_ENGINE, self.engines[ANY_ENGINE])


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
    low, middle, high = (loaded.factor(name, each) for name in ("low", "middle", "high"))
    return FirstToken(
        unloaded,
        prefill,
        waiting,
        np.where(queued, queue_low * (unloaded + waiting), unloaded * low),
        np.where(queued, queue_high * (unloaded + waiting), unloaded * high),
        ~queued & ((middle > DOMINATES) | (low > 1)),
        queued,
    )


def read_first_token(data: object) -> FirstTokenCalibration:
    """Return the calibration that a file's contents hold.

    Raises
    ------
    InputError
        If something in it is missing, not known, or no rising interval.
    """
    file = Fields(data, "first_token")
    source, fit = file.text("source"), file.by_name("fit", Fields.number)
    knots = file.numbers("knots")
    if len(knots) < 2 or any(b <= a for a, b in pairwise(knots)):
        file.fail("knots", "expected two or more rising counts of requests.")
    found = file.parts("engines", lambda fields: _loaded(fields, knots))
    if ANY_ENGINE not in found:
        file.fail("engines", f"{ANY_ENGINE} is missing.")
    two_pools = file.part("two_pools", lambda fields: _loaded(fields, knots))
    queue = file.sub("queue")
    factors = {}
    for phase in ("aggregated", "disaggregated"):
        low, high = queue.numbers(phase, 2)
        if low > high:
            queue.fail(phase, "expected two factors that rise.")
        factors[phase] = (low, high)
    queue.done()
    file.done()
    return FirstTokenCalibration(source, fit, found, two_pools, factors)


def _loaded(fields: Fields, knots: tuple[float, ...]) -> Loaded:
    found = validated(
        Loaded, {**{key: fields.get(key) for key in fields.names()}, "knots": knots}, fields.where
    )
    low, middle, high = found.low, found.middle, found.high
    if {len(low), len(middle), len(high)} != {len(knots)}:
        fields.fail("low", f"low, middle and high need a factor for each of {len(knots)} knots.")
    for factors in zip(low, middle, high, strict=True):
        if list(factors) != sorted(factors):
            fields.fail("low", f"{', '.join(map(str, factors))} must rise from low to high.")
    return found


@cache
def first_token_calibration() -> FirstTokenCalibration:
    """Return the committed calibration (``benchmarks/calibration/fit_first_token.py``)."""
    return read_first_token(load_yaml(PATH, "first_token"))
