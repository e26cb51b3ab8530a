"""What no placement is below: domains per token, from the tokens that any two experts have in common."""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats
from placement.traffic.tokens import Tokens

_PRICES = np.linspace(0.0, 1.0, 9)  # of load, in tokens in common per choice, tried for the limit of loads


def least_domains(
    tokens: Tokens, most_slots: int, load: Floats | None = None, most_load: float = np.inf
) -> float:
    """Return a lower bound of the mean number of domains that tokens reach, each with ``most_slots`` at most.

    A token of ``r`` experts in a domain counts ``1 / r`` for each of them there. Over the tokens of expert e these
    ``r`` add up to ``load[e]`` and those in common with its company, at most the ``most_slots - 1`` experts that have
    most in common with it; and as ``1 / r`` is convex, they count least where ``r`` is as even as can be.

    Parameters
    ----------
    load, most_load:
        Without spare copies, the company is limited by its load as well: ``load`` ``[experts]`` in a domain adds up
        to ``most_load`` at most.
    """
    own = tokens.load
    both = tokens.together.copy()
    np.fill_diagonal(both, -np.inf)
    size = min(max(most_slots, 1), tokens.experts) - 1
    company = _largest(both, size)
    if load is not None and np.isfinite(most_load):
        room = np.maximum(most_load - load, 0.0)
        scale = float(own.sum()) / float(load.sum())
        for price in _PRICES[1:] * scale:
            worth = _largest(np.maximum(both - price * load, 0.0), size) + price * room
            company = np.minimum(company, worth)
    used = own > 0
    each = np.minimum(1 + company[used] / own[used], tokens.k)
    whole = np.floor(each)
    value = 1 / whole + (each - whole) * (1 / (whole + 1) - 1 / whole)
    bound = float((own[used] * value).sum()) / len(tokens)
    return max(1.0, float(np.ceil(tokens.chosen.sum(axis=1) / max(most_slots, 1)).mean()), bound)


def _largest(value: Floats, number: int) -> Floats:
    """Return the sum of the ``number`` largest of each row."""
    if number < 1:
        return np.zeros(len(value))
    if number < value.shape[1]:
        value = np.sort(np.partition(value, -number, axis=1)[:, -number:], axis=1)  # summed in one order
    total: Floats = np.maximum(value, 0.0).sum(axis=1)
    return total
