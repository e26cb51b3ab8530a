"""A start from mean-field annealing: each expert is spread over the parts with a chance that hardens as it cools."""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.traffic.tokens import Partition

_HOT, _COLD = 1.2, 0.07  # first and last temperature, in that at which parts begin to differ
_NOISE = 0.05  # of the chances, relative: without it equal parts would stay equal
_KEPT = 0.3  # of the last chances in each step
_ROOM = 0.6  # of the slack: what is rounded later needs some
_DENSE = 64  # experts up to which all eigenvalues are found as fast as two
_GRID = 2.0**24  # chances are cut to that, so that the last bit of a machine's exponential decides nothing
_SURE = 1e-3  # no chance counts as more than 1 - that: the logarithm stays finite


def mean_field(task: Partition, rng: np.random.Generator, *, steps: int, inner: int, melting: float) -> Ints:
    """Return a part for each expert, ``[experts]``, of exact sizes; loads are near their limits, not always below.

    With ``x[e, d]`` the chance that expert e lies in part d, independent of others, a token reaches d with chance
    ``1 - product over its experts of (1 - x[e, d])``. Each of ``steps`` temperatures sets ``x`` to the Boltzmann
    weights of the gradient, times a price for each part's slots and one for its load, found by ``inner`` rounds of
    scaling. Work: ``steps`` products of a sparse matrix, tokens x k x parts. ``melting`` is :func:`melting_heat`.
    """
    from scipy.optimize import linear_sum_assignment

    tokens, size, parts = task.tokens, task.size.astype(np.float64), task.parts
    table, by_expert = tokens.table, tokens.by_expert
    average = tokens.load.sum() / tokens.experts  # tokens of an average expert
    load = task.load.mean(axis=0) / average
    fair = task.limit / average
    slack = fair.sum() / float(load.sum()) - 1
    goal = fair * (1 + _ROOM * slack) / (1 + slack) if slack > 0 else fair  # nearer to what is even
    noise = _NOISE * rng.standard_normal((tokens.experts, parts))
    chance = size * np.exp(noise)
    chance /= chance.sum(axis=1, keepdims=True)
    slot_price, load_price = np.zeros(parts), np.zeros(parts)
    weight = chance
    for heat in np.geomspace(_HOT * melting, _COLD * melting, steps):
        log_missed = np.log1p(-np.minimum(chance, 1 - _SURE))
        missed = np.exp(table @ log_missed)
        gradient = (by_expert @ missed) / (np.exp(log_missed) * average)
        for _ in range(inner):
            score = (slot_price + load[:, None] * load_price - gradient) / heat + noise
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            weight /= weight.sum(axis=1, keepdims=True)
            filled = np.maximum(weight.sum(axis=0), 1e-9)
            slot_price += heat * np.clip(np.log(np.maximum(size, 1e-9) / filled), -1.0, 1.0)
            busy = (weight * load[:, None]).sum(axis=0)
            spread = (weight * (load * load)[:, None]).sum(axis=0) - busy * busy / filled
            load_price -= heat * np.clip((busy - goal) / np.maximum(spread, 1e-2), -1.0, 1.0)
            np.minimum(load_price, 0.0, out=load_price)
        chance = np.round((_KEPT * chance + (1 - _KEPT) * weight) * _GRID) / _GRID
    column = np.repeat(np.arange(parts), task.size)
    expert, slot = linear_sum_assignment(np.round(-chance[:, column] * _GRID))
    part = np.empty(tokens.experts, dtype=np.int64)
    part[expert] = column[slot]
    return part


def melting_heat(task: Partition) -> float:
    """Return the temperature below which even chances no longer last, in tokens of an average expert.

    A small change of the chances ``x`` of a part comes back times ``x (1 - x)^(k - 2) w / heat``, with w an
    eigenvalue of the tokens that each two experts have in common; that of loads, the first, is held by prices.
    """
    tokens = task.tokens
    both = tokens.together.copy()
    np.fill_diagonal(both, 0.0)
    second = _second(both, tokens.load)
    share = 1.0 / task.parts
    melting = share * (1 - share) ** max(tokens.k - 2, 0) * second * tokens.experts / tokens.load.sum()
    return float(f"{max(melting, 1e-3):.3g}")  # no last bits


def _second(both: Floats, start: Floats) -> float:
    """Return the second largest eigenvalue of a symmetric matrix; few steps suffice for the digits that are kept."""
    from scipy.sparse.linalg import ArpackError, eigsh

    if len(both) < 2 or not both.any():
        return 0.0
    if len(both) > _DENSE:
        try:
            return float(eigsh(both, k=2, which="LA", v0=start, tol=1e-5, return_eigenvectors=False).min())
        except ArpackError:
            pass  # the dense solver takes longer and always ends
    return float(np.linalg.eigvalsh(both)[-2])
