"""Exponential and logarithm by additions, multiplications and divisions alone: the same bytes on every machine.

NumPy takes its own from the machine's vector units, and the last bit differs between them; ranks of an engine that
each work out a placement must agree on every bit. These operations are exact to the last bit by IEEE 754.
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats

_SQUARINGS = 10
_TERMS = 12  # of the logarithm's series, for arguments of at most a third: 1e-13


def power_of_e(exponent: Floats) -> Floats:
    """Return e to the power of ``exponent``, always positive.

    Four terms of the series for ``exponent / 1024``, squared ten times: relative error below 1e-6 for exponents up
    to 30 in size.
    """
    part: Floats = exponent * 0.5**_SQUARINGS
    power: Floats = part * (1 / 24) + 1 / 6
    for coefficient in (0.5, 1.0, 1.0):
        np.multiply(power, part, out=power)
        np.add(power, coefficient, out=power)
    for _ in range(_SQUARINGS):
        np.multiply(power, power, out=power)
    return power


def logarithm(value: Floats) -> Floats:
    """Return the natural logarithm of positive ``value``, error below 1e-12."""
    fraction, exponent = np.frexp(value)  # fraction in [1/2, 1)
    ratio: Floats = (fraction - 1.0) / (fraction + 1.0)
    square = ratio * ratio
    series = np.zeros_like(ratio)
    for odd in range(2 * _TERMS - 1, 0, -2):
        series = series * square + 1.0 / odd
    result: Floats = 2.0 * ratio * series + exponent * 0.6931471805599453
    return result
