"""One number, or an array of them: formulas are written once for one configuration and for thousands."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topology.base.errors import InputError

Quantity: TypeAlias = float | NDArray[np.float64]


MAX_CONTEXT_TOKENS = 1_000_000_000
"""Tokens of context that anybody may ask for."""


def positive(value: Quantity) -> bool:
    """Return whether any of it is above 0."""
    return bool((value > 0).any()) if isinstance(value, np.ndarray) else value > 0


def at_most(value: Quantity, limit: float) -> Quantity:
    """Return ``value``, or ``limit`` where that is smaller."""
    if isinstance(value, np.ndarray):
        return np.minimum(value, limit)
    return min(value, limit)


def span(context: Quantity, window: int | None) -> Quantity:
    """Return the cached tokens that one decoded token attends to; ``window`` caps ``context``."""
    return context if window is None else at_most(context, float(window))


def mean_prompt_span(context: Quantity, window: int | None) -> Quantity:
    """Tokens attended to, averaged over the tokens of a prompt of ``context`` tokens (causal: half of it).

    With a window ``w < context`` the first ``w`` tokens see ``w / 2`` on average and the rest see ``w``.
    """
    if window is None:
        return context / 2
    reach = at_most(context, float(window))
    return reach - reach * reach / (2 * (context + (context == 0)))  # an empty prompt sees nothing


def require_number(
    label: str, value: ArrayLike, *, above: float = -math.inf, least: float = -math.inf, kind: str = "number"
) -> None:
    """Reject a figure, or an array with one, that is not finite or not above ``above`` or at least ``least``.

    Raises
    ------
    InputError
        If one is; the message says what it is and what was expected.
    """
    values = np.asarray(value, dtype=np.float64)
    invalid = values[~(np.isfinite(values) & (values > above) & (values >= least))]
    if invalid.size:
        limit = f"above {above:g}" if above > -math.inf else f"of at least {least:g}"
        raise InputError(f"{label} {invalid.flat[0]:g}: expected a {kind} {limit}.")
