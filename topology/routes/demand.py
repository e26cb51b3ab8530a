"""Demand between terminals, in forms that are summed by class without writing out every pair.

A demand is a matrix ``D [n, n]`` of bytes from terminal to terminal. Routing needs only its sums over classes of
terminals that are linked alike: with ``K [n, classes]`` telling which terminal is in which class, ``K' D K``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topology.routes.network import Bools, Floats, Ints

_ROUNDING = 1e-9  # relative to the demand of one pair: what a difference of equal sums may leave


def summed(index: Ints, amounts: Floats, size: int) -> Floats:
    """Return ``[size]`` sums of ``amounts`` by ``index`` (floats even where there are none)."""
    return np.bincount(index, amounts, size).astype(np.float64)


def ones_at(rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of ``shape`` with a one at each place given, added up where a place comes twice."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


class Demand(Protocol):
    """Bytes between terminals."""

    def sent(self, n: int, /) -> Floats:
        """Bytes that each of ``n`` terminals sends."""

    def received(self, n: int, /) -> Floats:
        """Bytes that each of ``n`` terminals receives."""

    def between(self, labels: Ints, classes: int) -> Floats:
        """Bytes from class to class, ``[classes, classes]``."""

    def pairs(self) -> Pairs:
        """Every pair with bytes: sources, destinations, bytes."""


class Pairs(NamedTuple):
    """The demand of pairs of GPUs: ``amounts[k]`` bytes from ``sources[k]`` to ``targets[k]``."""

    sources: Ints
    targets: Ints
    amounts: Floats

    def where(self, chosen: Bools | Ints | slice) -> Pairs:
        """Return the chosen pairs."""
        return Pairs(self.sources[chosen], self.targets[chosen], self.amounts[chosen])

    def sent(self, n: int, /) -> Floats:
        """Bytes that each terminal sends."""
        return summed(self.sources, self.amounts, n)

    def received(self, n: int, /) -> Floats:
        """Bytes that each terminal receives."""
        return summed(self.targets, self.amounts, n)

    def between(self, labels: Ints, classes: int) -> Floats:
        """Bytes from class to class."""
        key = labels[self.sources] * classes + labels[self.targets]
        return summed(key, self.amounts, classes * classes).reshape(classes, classes)

    def pairs(self) -> Pairs:
        """Every pair with bytes."""
        return self


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def joined(*parts: Pairs) -> Pairs:
    """Return the pairs of all parts; a pair may come several times."""
    columns = zip(*parts, strict=True)
    sources, targets, amounts = (np.concatenate(column) for column in columns)
    return Pairs(sources, targets, amounts)


@dataclass(frozen=True)
class OuterDemand:
    """Groups of senders and receivers: group ``g`` sends to the receivers of all other groups of its kind.

    With ``S [groups, n]`` weights of senders, ``T [groups, n]`` of receivers and ``E [kinds, groups]`` the kind of
    each group, ``D = amount * ((E S)' (E T) - S' T)``. Weights are counts, so the difference is exact.
    """

    senders: Any
    receivers: Any
    kinds: Any
    amount: float

    def sent(self, _n: int, /) -> Floats:
        """Bytes that each terminal sends."""
        everyone = self.receivers.sum(axis=1)
        reached = self.kinds.T @ (self.kinds @ everyone) - everyone
        return self.amount * np.asarray(self.senders.T @ reached, dtype=float).reshape(-1)

    def received(self, _n: int, /) -> Floats:
        """Bytes that each terminal receives."""
        everyone = self.senders.sum(axis=1)
        heard = self.kinds.T @ (self.kinds @ everyone) - everyone
        return self.amount * np.asarray(self.receivers.T @ heard, dtype=float).reshape(-1)

    def between(self, labels: Ints, classes: int) -> Floats:
        """Bytes from class to class."""
        member = ones_at(np.arange(len(labels)), labels, (len(labels), classes))
        return self._product(self.senders @ member, self.receivers @ member)

    def pairs(self) -> Pairs:
        """Every pair with bytes."""
        dense = self._product(self.senders, self.receivers)
        sources, targets = np.nonzero(dense)
        return Pairs(sources, targets, dense[sources, targets])

    def _product(self, senders: Any, receivers: Any) -> Floats:
        """Return ``amount * ((E S)' (E T) - S' T)``."""
        whole = (self.kinds @ senders).T.toarray() @ (self.kinds @ receivers).toarray()
        whole -= (senders.T @ receivers).toarray()
        whole[whole < _ROUNDING] = 0.0
        return self.amount * np.asarray(whole, dtype=float)


def uniform_demand(members: NDArray[np.bool_], amount: float) -> OuterDemand:
    """Return ``amount`` bytes from each member to every other one."""
    chosen = np.flatnonzero(members)
    each = np.arange(len(chosen))
    rows = ones_at(each, chosen, (len(chosen), len(members)))
    return OuterDemand(rows, rows, ones_at(np.zeros_like(each), each, (1, len(chosen))), amount)


@dataclass(frozen=True)
class Demands:
    """The sum of several demands between the same terminals."""

    parts: Sequence[Demand]

    def sent(self, n: int, /) -> Floats:
        """Bytes that each terminal sends."""
        return sum((part.sent(n) for part in self.parts), np.zeros(n))

    def received(self, n: int, /) -> Floats:
        """Bytes that each terminal receives."""
        return sum((part.received(n) for part in self.parts), np.zeros(n))

    def between(self, labels: Ints, classes: int) -> Floats:
        """Bytes from class to class."""
        return sum((part.between(labels, classes) for part in self.parts), np.zeros((classes, classes)))

    def pairs(self) -> Pairs:
        """Every pair with bytes; a pair may come several times."""
        return joined(NO_PAIRS, *(part.pairs() for part in self.parts))
