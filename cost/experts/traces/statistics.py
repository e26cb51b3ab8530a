"""What recordings tell: skew of loads, drift from window to window, and how far choices are from independent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.routing import RoutingTrace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FAR_BELOW = 1e-200


@dataclass(frozen=True)
class Drift:
    """How far loads move from one window to another, mean over layers, as shares of the tokens: 0 to 1.

    Attributes
    ----------
    moved_share, by_chance_share:
        Between windows, and what chance alone would give.
    correlation:
        Of the loads; None: they are all equal.
    """

    moved_share: float
    by_chance_share: float
    correlation: float | None


@dataclass(frozen=True, eq=False)
class LoadStatistics:
    """Skew of each row that has tokens, over all windows together, and drift between them.

    ``rows`` are the rows with tokens; ``max_over_mean`` and ``variation`` (standard deviation / mean over the
    experts) have one entry for each of them; ``over_mean`` is ``[rows, experts]``, each row with mean 1.
    ``consecutive`` averages the drift between neighbouring windows; both drifts are None with a single window.
    """

    rows: tuple[int, ...]
    over_mean: Floats
    max_over_mean: Floats
    variation: Floats
    consecutive: Drift | None
    first_to_last: Drift | None


def load_statistics(tokens: Floats) -> LoadStatistics:
    """Return the statistics of ``tokens [windows, rows, experts]``, which hold at least one token."""
    rows = np.flatnonzero(tokens.any(axis=(0, 2)))
    largest = tokens[:, rows].max(axis=(0, 2))
    # sums of loads near 1e308 overflow; a row far below the largest one has a scale of its own, or it would vanish
    scale = np.where(largest < largest.max() * _FAR_BELOW, largest, largest.max())
    over_mean = (tokens[:, rows] / scale[:, None]).sum(axis=0)
    over_mean /= over_mean.mean(axis=1, keepdims=True)
    windows = list(tokens[:, rows])
    return LoadStatistics(
        tuple(int(row) for row in rows),
        over_mean,
        over_mean.max(axis=1),
        over_mean.std(axis=1),
        _drift(pairwise(windows)),
        _drift([(windows[0], windows[-1])] * (len(windows) > 1)),
    )


def distance(a: Floats, b: Floats) -> Floats:
    """Return the total variation distance of loads ``[rows, experts]``, each row as shares: half the sum of |a - b|.

    0: the same shares; 1: no expert in common. It is the share of the tokens that went elsewhere.
    """
    apart: Floats = np.abs(_shares(a) - _shares(b)).sum(axis=1) / 2
    return apart


def chance_distance(a: Floats, b: Floats) -> Floats:
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
    expected: Floats = np.minimum(1.0, deviation.sum(axis=1) * np.sqrt(2 / np.pi) / 2)
    return expected


def _shares(loads: Floats) -> Floats:
    part = loads / loads.max(axis=1, keepdims=True)
    shares: Floats = part / part.sum(axis=1, keepdims=True)
    return shares


def _drift(pairs: Iterable[tuple[Floats, Floats]]) -> Drift | None:
    """Compare windows ``[rows, experts]`` over the rows where both have tokens; None where there are none."""
    moves = []
    for pair in pairs:
        present = pair[0].any(axis=1) & pair[1].any(axis=1)
        if present.any():
            a, b = (window[present] for window in pair)
            centred = [_shares(window) - 1 / window.shape[1] for window in (a, b)]
            norms = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
            spread = norms > 0  # even loads correlate with nothing
            products = (centred[0] * centred[1]).sum(axis=1)[spread] / norms[spread]
            correlation = [float(products.mean())] if spread.any() else []
            moves.append((float(distance(a, b).mean()), float(chance_distance(a, b).mean()), correlation))
    if not moves:
        return None
    moved, by_chance, correlations = zip(*moves, strict=True)
    known = [*chain(*correlations)]
    return Drift(
        math.fsum(moved) / len(moved),
        math.fsum(by_chance) / len(by_chance),
        math.fsum(known) / len(known) if known else None,
    )


SAMPLE_TOKENS = 2**14
"""Tokens whose pairs of choices are counted."""
DOMAIN_COUNTS = (4, 8)
"""Into how many equal parts the experts are cut, in their order."""
_ROUNDS = 40  # of the fixed point of odds


@dataclass(frozen=True)
class Dependence:
    """Pairs of choices against those that independent choices with the same popularity would give.

    Attributes
    ----------
    dependent_share:
        Share of the pairs that lie elsewhere (total variation distance), mean over layers; 0: independent.
    by_chance_share:
        What it would be for as many pairs if they were independent.
    worst_dependent_share, worst_layer:
        The largest, and the row of its layer (of two layers: of the first).
    """

    dependent_share: float
    by_chance_share: float
    worst_dependent_share: float
    worst_layer: int

    @property
    def beyond_chance_share(self) -> float:
        """What chance does not explain, 0 to 1."""
        return max(0.0, self.dependent_share - self.by_chance_share)


@dataclass(frozen=True)
class CoActivation:
    """What is found in a trace.

    Attributes
    ----------
    within:
        Of two experts of one token in a layer; None where a token has one.
    domains:
        By number of equal parts of the experts, in order: parts that a token needs in a layer, and what independent
        choices would need.
    tokens:
        Tokens of the sample that was counted.
    """

    within: Dependence | None
    domains: dict[int, tuple[float, float]]
    tokens: int


def coactivation(trace: RoutingTrace) -> CoActivation:
    """Return how far ``trace`` is from independent choices, from an even sample of at most 16,384 tokens."""
    sample = trace.sample(SAMPLE_TOKENS)
    layers = 1 if trace.repeated else trace.layers  # one layer that stands for all
    distances = []
    for layer in range(layers):
        observed = _pairs(sample.choices[layer], trace.experts)
        if observed.any():
            distances.append((*_distance(observed, _independent(observed)), layer))
    within = None
    if distances:
        dependent, by_chance, _ = np.array(distances).mean(axis=0).tolist()
        worst, _, layer = max(distances, key=itemgetter(0))
        within = Dependence(dependent, by_chance, worst, layer)
    domains = {parts: _parts(sample, layers, parts) for parts in DOMAIN_COUNTS if parts < trace.experts}
    return CoActivation(within, domains, sample.kept)


def _pairs(chosen: NDArray[np.int16], experts: int) -> Floats:
    """Tokens with two different experts among ``chosen [tokens, k]``, ``[experts, experts]``."""
    width = experts + 1  # the last: of choices that were not used
    counts = np.zeros(width * width, dtype=np.int64)
    used = np.where(chosen < 0, experts, chosen).astype(np.int64)
    for choice in range(used.shape[1]):
        counts += np.bincount((used[:, choice : choice + 1] * width + used).ravel(), minlength=width * width)
    pairs = counts.reshape(width, width)[:experts, :experts].astype(np.float64)
    np.fill_diagonal(pairs, 0)
    return pairs


def _independent(observed: Floats) -> Floats:
    """Pairs of independent choices: in proportion to how often each side is in a pair, and as many in all."""
    expected: Floats = np.outer(observed.sum(axis=1), observed.sum(axis=1))
    np.fill_diagonal(expected, 0)
    scaled: Floats = expected * (observed.sum() / max(expected.sum(), 1e-300))
    return scaled


def _distance(observed: Floats, expected: Floats) -> tuple[float, float]:
    """Total variation distance, and about what it is by chance: of Poisson counts around ``expected``.

    The mean of ``|N - m|`` of a Poisson count is ``2 exp(-m) m^(n + 1) / n!`` with ``n`` the whole part of ``m``.
    """
    from scipy.special import gammaln

    total = observed.sum()
    mean = np.maximum(expected, 1e-300)
    floor = np.floor(mean)
    chance = 2 * np.exp((floor + 1) * np.log(mean) - mean - gammaln(floor + 1))
    return float(np.abs(observed - expected).sum() / (2 * total)), float(chance.sum() / (2 * total))


def _parts(sample: RoutingTrace, layers: int, parts: int) -> tuple[float, float]:
    """Return in how many of ``parts`` runs of experts a token has some, and what independent choices would give."""
    part_of = np.append(np.arange(sample.experts, dtype=np.int64) * parts // sample.experts, parts)
    traced, used, chosen = [], [], []
    for layer in range(layers):
        choices = sample.choices[layer]
        choices = choices[(choices >= 0).any(axis=1)].astype(np.int64)
        if not len(choices):  # a dense layer
            continue
        hit = np.zeros((len(choices), parts + 1), dtype=bool)
        hit[np.arange(len(choices))[:, None], part_of[choices]] = True
        traced.append(float(hit[:, :parts].sum(axis=1).mean()))
        used.append(np.bincount(choices[choices >= 0], minlength=sample.experts) / len(choices))
        chosen.append(float((choices >= 0).sum(axis=1).mean()))
    reached = independent_reach(np.stack(used), part_of[:-1], max(1, round(float(np.mean(chosen)))))
    return float(np.mean(traced)), float(reached.sum(axis=1).mean())


def independent_reach(used: Floats, part_of: Ints, k: int) -> Floats:
    """Return the chance that a token of ``k`` independent choices reaches each part, ``[layers, parts]``.

    Parameters
    ----------
    used:
        Chance that a token uses each expert, ``[layers, experts]``; the sum of a layer is about ``k``.
    part_of:
        Part that each expert lies in, ``[experts]``.

    Notes
    -----
    The distribution of ``k`` different experts that is freest but for how often each is used: a set is as likely as
    the product of its experts' odds (conditional Poisson sampling; Chen, Dempster and Liu, Biometrika 1994, whose
    fixed point gives the odds). A part is missed where all ``k`` are among the others.
    """
    share = np.clip(used, 1e-12, 1 - 1e-9)
    odds = share / (1 - share)
    for _ in range(_ROUNDS):
        sums = _symmetric(odds, k)
        without = np.ones_like(odds)
        for size in range(1, k):
            without = np.maximum(sums[:, size, None] - odds * without, 0.0)
        odds = np.minimum(odds * share / np.maximum(odds * without / sums[:, k, None], 1e-300), 1e12)
    total = _symmetric(odds, k)[:, k]
    missed = [_symmetric(odds[:, part_of != part], k)[:, k] / total for part in range(int(part_of.max()) + 1)]
    return 1 - np.stack(missed, axis=1)


def _symmetric(values: Floats, size: int) -> Floats:
    """Sums over all sets of 0, 1, .. ``size`` values of their product, ``[rows, size + 1]``."""
    sums = np.zeros((len(values), size + 1))
    sums[:, 0] = 1.0
    for column in values.T:
        sums[:, 1:] += column[:, None] * sums[:, :-1]
    return sums
