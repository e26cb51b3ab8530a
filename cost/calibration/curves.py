"""Coefficients as curves over the figure that they derate: what a kernel reaches never falls where a peak rises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def fraction_at(points: Sequence[tuple[float, float]], peak: float) -> float:
    """Return the fraction of ``peak`` that kernels reach.

    Parameters
    ----------
    points:
        ``(peak, fraction)`` of measured chips, peaks rising.

    Notes
    -----
    The rate ``peak * fraction`` is interpolated, linear in the logarithms of both; outside, the fraction of the
    nearest chip holds. Rates of ``points`` that do not fall give a rate that does not fall.
    """
    return math.exp(_between([(p, math.log(p * f)) for p, f in points], peak)) / min(
        max(peak, points[0][0]), points[-1][0]
    )


def value_at(points: Sequence[tuple[float, float]], figure: float) -> float:
    """Return a value interpolated between ``(figure, value)`` of measured chips, linear in both logarithms."""
    return math.exp(_between([(x, math.log(y)) for x, y in points], figure))


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate over the logarithm of the first coordinate; constant outside."""
    if at <= points[0][0]:
        return points[0][1]
    for (low, first), (high, second) in pairwise(points):
        if at <= high:
            share = math.log(at / low) / math.log(high / low)
            return first + share * (second - first)
    return points[-1][1]
