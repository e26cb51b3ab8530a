"""How skewed a recording is, and how far it drifts from window to window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FAR_BELOW = 1e-200


@dataclass(frozen=True)
class Drift:
    """Mean over layers of the distance between two windows, of what chance alone gives, and of the correlation."""

    distance: float
    by_chance: float
    correlation: float | None


@dataclass(frozen=True, eq=False)
class LoadStatistics:
    """Skew of each row that has tokens, over all windows together, and drift between them.

    ``rows`` are the rows with tokens; ``max_over_mean`` and ``variation`` (standard deviation / mean over the
    experts) have one entry for each of them; ``over_mean`` is ``[rows, experts]``, each row with mean 1.
    ``consecutive`` averages the drift between neighbouring windows; both drifts are None with a single window.
    """

    rows: tuple[int, ...]
    over_mean: NDArray[np.float64]
    max_over_mean: NDArray[np.float64]
    variation: NDArray[np.float64]
    consecutive: Drift | None
    first_to_last: Drift | None


def load_statistics(tokens: NDArray[np.float64]) -> LoadStatistics:
    """Return the statistics of ``tokens [windows, rows, experts]``, which hold at least one token."""
    rows = np.flatnonzero(tokens.any(axis=(0, 2)))
    largest = tokens[:, rows].max(axis=(0, 2))
    # sums of loads near 1e308 overflow; a row far below the largest one has a scale of its own, or it would vanish
    scale = np.where(largest < largest.max() * _FAR_BELOW, largest, largest.max())
    over_mean = (tokens[:, rows] / scale[:, None]).sum(axis=0)
    over_mean /= over_mean.mean(axis=1, keepdims=True)
    drifts = [_drift(a, b) for a, b in zip(tokens[:-1, rows], tokens[1:, rows], strict=True)]
    both = [drift for drift in drifts if drift is not None]
    return LoadStatistics(
        tuple(int(row) for row in rows),
        over_mean,
        over_mean.max(axis=1),
        over_mean.std(axis=1),
        _averaged(both) if both else None,
        _drift(tokens[0, rows], tokens[-1, rows]) if len(tokens) > 1 else None,
    )


def distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the total variation distance of loads ``[rows, experts]``, each row as shares: half the sum of |a - b|.

    0: the same shares; 1: no expert in common. It is the share of the tokens that went elsewhere.
    """
    apart: NDArray[np.float64] = np.abs(_shares(a) - _shares(b)).sum(axis=1) / 2
    return apart


def chance_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return about what `distance` would be if both windows were drawn from the same shares, by row.

    The difference of two shares is then nearly normal with variance p (1 - p) (1/n_a + 1/n_b), and the mean of
    the absolute value of a normal is its deviation times sqrt(2 / pi). An approximation: tokens are not drawn
    one by one, and where most experts have no token or one it is too high.
    """
    p = _shares(_shares(a) + _shares(b))
    with np.errstate(over="ignore"):
        draws = 1 / a.sum(axis=1) + 1 / b.sum(axis=1)
    draws = np.minimum(
        draws, np.finfo(np.float64).max
    )  # infinite for the smallest loads: 0 x inf is no number
    deviation = np.sqrt(p * (1 - p) * draws[:, None])
    expected: NDArray[np.float64] = np.minimum(1.0, deviation.sum(axis=1) * np.sqrt(2 / np.pi) / 2)
    return expected


def _shares(loads: NDArray[np.float64]) -> NDArray[np.float64]:
    part = loads / loads.max(axis=1, keepdims=True)
    shares: NDArray[np.float64] = part / part.sum(axis=1, keepdims=True)
    return shares


def _drift(a: NDArray[np.float64], b: NDArray[np.float64]) -> Drift | None:
    """Compare two windows ``[rows, experts]`` over the rows where both have tokens; None where there are none."""
    both = a.any(axis=1) & b.any(axis=1)
    if not both.any():
        return None
    a, b = a[both], b[both]
    by_chance = chance_distance(a, b)
    centred = [_shares(x) - 1 / x.shape[1] for x in (a, b)]
    norms = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
    spread = norms > 0  # even loads correlate with nothing
    products = (centred[0] * centred[1]).sum(axis=1)[spread] / norms[spread]
    correlation = float(products.mean()) if spread.any() else None
    return Drift(float(distance(a, b).mean()), float(by_chance.mean()), correlation)


def _averaged(drifts: list[Drift]) -> Drift:
    known = [drift.correlation for drift in drifts if drift.correlation is not None]
    return Drift(
        math.fsum(drift.distance for drift in drifts) / len(drifts),
        math.fsum(drift.by_chance for drift in drifts) / len(drifts),
        math.fsum(known) / len(known) if known else None,
    )
