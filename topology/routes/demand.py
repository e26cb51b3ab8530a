"""Demand between GPUs, in a form that is summed by class without writing out every pair.

A demand is a matrix ``D [gpus, gpus]`` of bytes as a product ``S' R`` of two sparse matrices with few rows. Routing
needs only its sums over GPUs that are linked alike: with ``K [gpus, classes]`` telling who is in which,
``(S K)' (R K)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from topology.routes.network import Bools, Floats, Ints

_ROUNDING = 1e-9  # relative to the demand of one pair: what a difference of equal sums may leave


def summed(index: Ints, amounts: Floats, size: int) -> Floats:
    """Return ``[size]`` sums of ``amounts`` by ``index`` (floats even where there are none)."""
    return np.bincount(index, amounts, size).astype(np.float64)


def table(rows: Ints, columns: Ints, amounts: Floats, shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of ``shape`` with sums of ``amounts``."""
    from scipy.sparse import csr_array

    return csr_array((amounts, (rows, columns)), shape=shape)


def ones_at(rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of ``shape`` with a one at each place given, added up where a place comes twice."""
    return table(rows, columns, np.ones(len(rows)), shape)


def runs(starts: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of runs that begin at ``starts`` and have ``count`` each, and which run each is of."""
    which = np.repeat(np.arange(len(count)), count)
    offset = np.cumsum(count) - count
    return starts[which] + np.arange(len(which)) - offset[which], which


class Pairs(NamedTuple):
    """The demand of pairs of GPUs: ``amounts[k]`` bytes from ``sources[k]`` to ``targets[k]``."""

    sources: Ints
    targets: Ints
    amounts: Floats

    def where(self, chosen: Bools | Ints | slice) -> Pairs:
        """Return the chosen pairs."""
        return Pairs(self.sources[chosen], self.targets[chosen], self.amounts[chosen])

    def demand(self, gpus: int) -> Demand:
        """Return them as a demand between ``gpus``."""
        from scipy.sparse import eye_array

        return Demand(
            eye_array(gpus, format="csr"), table(self.sources, self.targets, self.amounts, (gpus, gpus))
        )


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def joined(*parts: Pairs) -> Pairs:
    """Return the pairs of all parts; a pair may come several times."""
    columns = zip(*parts, strict=True)
    sources, targets, amounts = (np.concatenate(column) for column in columns)
    return Pairs(sources, targets, amounts)


@dataclass(frozen=True)
class Demand:
    """Bytes ``amount * senders' receivers`` from GPU to GPU.

    Attributes
    ----------
    senders, receivers:
        Sparse matrices ``[rows, gpus]``; counts where they are differences, which then are exact.
    amount:
        Bytes of one.
    seconds:
        Latency that these bytes have on the rest of their way.
    least:
        Bytes below which a sum is rounding.
    """

    senders: Any
    receivers: Any
    amount: float = 1.0
    seconds: float = 0.0
    least: float = 0.0

    def by_class(self, sources: Any, targets: Any) -> Demand:
        """Return the demand between classes: ``sources`` and ``targets`` are :func:`members` of those of either."""
        from scipy.sparse import eye_array

        senders, receivers = self.senders @ sources, self.receivers @ targets
        products = np.diff(senders.indptr) @ np.diff(receivers.indptr)
        if products <= 2 * (senders.nnz + receivers.nnz):  # pairs, rather than groups: added up now
            rows = senders.shape[1]
            senders, receivers = eye_array(rows, format="csr"), (senders.T @ receivers).tocsr()
        return replace(self, senders=senders, receivers=receivers)

    def scaled(self, parts: Floats, targets: Bools) -> Demand:
        """Return ``parts [gpus]`` of what each sends to ``targets [gpus]``."""
        from scipy.sparse import diags_array

        senders, receivers = (
            self.senders @ diags_array(parts),
            self.receivers @ diags_array(targets.astype(float)),
        )
        least = self.least * parts.max(initial=0.0)
        return replace(self, senders=senders.tocsr(), receivers=receivers.tocsr(), least=least)

    def between(self) -> Any:
        """Return the bytes of each pair with any, a sparse matrix."""
        cells = (self.senders.T @ self.receivers).tocoo()
        cells.data = np.where(self.amount * cells.data > self.least, self.amount * cells.data, 0.0)
        return cells

    def pairs(self) -> Pairs:
        """Return every pair with bytes."""
        cells = self.between()
        used = cells.data > 0
        return Pairs(cells.row[used].astype(np.int64), cells.col[used].astype(np.int64), cells.data[used])

    def within(self) -> Floats:
        """Return the bytes from each to itself."""
        amounts = self.amount * np.asarray(self.senders.multiply(self.receivers).sum(axis=0)).reshape(-1)
        return np.where(amounts > self.least, amounts, 0.0)

    @property
    def sent(self) -> Floats:
        """Bytes that each sends."""
        return self.amount * np.asarray(self.senders.T @ self.receivers.sum(axis=1)).reshape(-1)

    @property
    def received(self) -> Floats:
        """Bytes that each receives."""
        return self.amount * np.asarray(self.receivers.T @ self.senders.sum(axis=1)).reshape(-1)


def members(labels: Ints, classes: int) -> Any:
    """Return who is in which class ``[gpus, classes]``, a sparse matrix, by ``labels [gpus]``; -1 is left out."""
    known = np.flatnonzero(labels >= 0)
    return ones_at(known, labels[known], (len(labels), classes))


@dataclass(frozen=True)
class Alike:
    """GPUs that send alike: each of ``senders [gpus]`` sends ``amount * weights[t]`` bytes to every other GPU ``t``.

    Weights are at most one, and one where all hear the same, so that differences of sums are exact.
    """

    senders: Bools
    weights: Floats
    amount: float

    @property
    def amounts(self) -> Floats:
        """``[gpus]`` bytes that each hears from every sender."""
        return self.amount * self.weights

    def among(self, gpus: Ints) -> Alike:
        """Return the senders and receivers among some GPUs."""
        chosen = np.zeros_like(self.senders)
        chosen[gpus] = True
        return Alike(self.senders & chosen, np.where(chosen, self.weights, 0.0), self.amount)

    @property
    def any(self) -> bool:
        """Whether anything is sent."""
        return bool(self.amount > 0 and self.senders.any() and self.weights.any())

    @property
    def least(self) -> float:
        """Bytes below which a sum is rounding."""
        return _ROUNDING * self.amount


def nothing_alike(gpus: int) -> Alike:
    """Return no senders."""
    return Alike(np.zeros(gpus, dtype=bool), np.zeros(gpus), 0.0)


def alike_within(groups: Ints, alike: Alike) -> Demand:
    """Return what each sender sends to the others of its group; ``groups [gpus]``."""
    from scipy.sparse import vstack

    gpus = len(groups)
    names, group = np.unique(groups, return_inverse=True)
    sends, hears = np.flatnonzero(alike.senders), np.flatnonzero(alike.weights)
    selves = np.flatnonzero(alike.senders & (alike.weights > 0))
    rows = np.arange(len(selves))
    together = ones_at(group[sends], sends, (len(names), gpus))
    heard = table(group[hears], hears, alike.weights[hears], (len(names), gpus))
    itself = ones_at(rows, selves, (len(selves), gpus))
    back = table(rows, selves, alike.weights[selves], (len(selves), gpus))
    senders, receivers = vstack([together, -itself], "csr"), vstack([heard, back], "csr")
    return Demand(senders, receivers, alike.amount, 0.0, alike.least)


def alike_apart(senders: Any, receivers: Any, kinds: Any, amount: float, seconds: float) -> Demand:
    """Return what groups of senders send to the receivers of all other groups of their kind.

    ``senders, receivers [groups, gpus]`` are weights, ``kinds [kinds, groups]`` says which group is of which kind;
    the demand is ``amount * ((E S)' (E T) - S' T)``.
    """
    from scipy.sparse import vstack

    return Demand(
        vstack([kinds @ senders, -senders], "csr"),
        vstack([kinds @ receivers, receivers], "csr"),
        amount,
        seconds,
        _ROUNDING * amount,
    )
