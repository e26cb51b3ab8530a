"""Loads that nobody measured: ``lognormal:SIGMA``, ``zipf:S`` and ``uniform``, drawn from a seed."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from topology.errors import InputError

# Above this, all tokens of a layer go to one expert whatever the seed: nothing is left to place.
MOST_SKEW = 10.0
_MEAN_TOKENS = 1000.0  # loads are counts on paper only: every result divides them by their mean

_GENERATOR = re.compile(r"(lognormal|zipf|uniform)(?::(.*))?", re.DOTALL)


def is_generator(text: str) -> bool:
    """Whether ``text`` names a generator (``lognormal:0.63``) and not a file."""
    return _GENERATOR.fullmatch(text) is not None


def synthetic_loads(text: str, *, layers: int, experts: int, seed: int, draw: int) -> NDArray[np.float64]:
    """Return ``[layers, experts]`` expected tokens, mean 1000 a layer, every entry positive.

    ``lognormal:SIGMA`` draws the logarithm of each load from a normal distribution with that deviation.
    ``zipf:S`` gives the r-th expert of a layer, in an order drawn by the seed, a load of ``r ** -S``.
    ``draw`` sets generators with the same seed apart.

    Raises
    ------
    InputError
        If the parameter is missing, not a number, negative or above :data:`MOST_SKEW`, or the seed negative.
    """
    match = _GENERATOR.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not a generator of loads: give lognormal:SIGMA, zipf:S or uniform.")
    if seed < 0:
        raise InputError(f"seed {seed} is negative: give 0 or more.")
    kind, parameter = match.groups()
    rng = np.random.default_rng([seed, draw])
    if kind == "uniform":
        if parameter is not None:
            raise InputError(f"{text}: uniform takes no parameter; give uniform alone.")
        weight = np.ones((layers, experts))
    elif kind == "lognormal":
        weight = np.exp(_skew(text, parameter) * rng.standard_normal((layers, experts)))
    else:
        ranks = np.tile(np.arange(1.0, experts + 1), (layers, 1))
        weight = rng.permuted(ranks, axis=1) ** -_skew(text, parameter)
    scaled: NDArray[np.float64] = weight / weight.mean(axis=1, keepdims=True) * _MEAN_TOKENS
    return scaled


def _skew(text: str, parameter: str | None) -> float:
    try:
        skew = float(parameter or "")
    except ValueError:
        skew = math.nan
    if not 0 <= skew <= MOST_SKEW:  # false for nan as well
        raise InputError(
            f"{text}: {parameter!r} must be a number from 0 to {MOST_SKEW:g}; for example lognormal:0.63."
        )
    return skew
