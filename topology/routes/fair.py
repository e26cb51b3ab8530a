"""Max-min fair sharing: when the last of many flows ends if all begin at once and share every link fairly.

Rates are max-min fair (Bertsekas and Gallager, "Data Networks", 1992, 6.5.2): no flow can go faster unless one that
is no faster goes slower. They are found by progressive filling; all links that are the bottleneck of every flow on
them are filled at once. When flows end the others share what they leave, so time goes in steps: to the next end, or
:data:`STEP` of the busiest link's time where ends lie closer together. A flow that ends inside a step spreads its
last bytes over it: no byte is lost and no link is overfull.

Flows are columns of a sparse matrix of links x classes. Links whose rows are in proportion are one (:func:`folded`),
and so are links and classes that nothing tells apart (:func:`refined`); both are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from topology.routes.network import Bools, Floats, Ints

STEP = 0.005
"""Of the busiest link's time: how long a step may be in which flows end."""
_LAST_STEP = 1e-4  # of the busiest link's time: how exactly the last end is known
_SAME = 1e-9  # relative difference of amounts that rounding may leave
_DIGITS = 10  # of sums that tell classes apart
_LEVEL = 1e-4  # relative difference of fair shares that are filled at once
_ROUNDS = 50  # of filling, before shares that differ more are filled at once

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Flows:
    """Classes of flows on links.

    Attributes
    ----------
    weights:
        ``[links, classes]`` sparse: bytes/s on a link when each flow of a class goes at one byte/s.
    bytes_per_s:
        ``[links]`` capacity.
    amounts:
        ``[classes]`` bytes of one flow.
    """

    weights: Any
    bytes_per_s: Floats
    amounts: Floats

    @property
    def busiest_s(self) -> float:
        """Seconds that the busiest link needs."""
        return float((self.weights @ self.amounts / self.bytes_per_s).max(initial=0.0))


def last_end_s(flows: Flows, progress: Progress | None = None) -> float:
    """Return the second at which the last flow ends.

    ``progress`` is told after each step which part of the bytes has arrived.
    """
    flows = refined(folded(flows))
    bound = flows.busiest_s
    if bound <= 0:
        return 0.0
    links = _Links.of(flows)
    left = flows.amounts.copy()
    now, whole = 0.0, float(left.sum())
    while True:
        if 2 * np.count_nonzero(left) < len(left):
            links, left = links.only(left > 0)[0], left[left > 0]
        if not len(left):
            return now
        rest = links.busiest_s(left)
        step = max(min(STEP * bound, rest), _LAST_STEP * bound)
        rates = links.fair_rates(left / step)
        ends = rates * step >= left * (1 - _SAME)
        if ends.all():
            return now + min(step, rest)
        if not ends[left > 0].any():  # nobody ends in this step: on to the next end
            step = float((left[left > 0] / rates[left > 0]).min())
            ends = rates * step >= left * (1 - _SAME)
        left = np.where(ends, 0.0, left - rates * step)
        now += step
        if progress is not None:
            progress(1 - float(left.sum()) / whole)


def folded(flows: Flows) -> Flows:
    """Return the same flows on the links that can hold them up: of links in proportion the tightest."""
    rows = flows.weights.tocsr()
    kept = np.flatnonzero(np.diff(rows.indptr))
    rows, rates = rows[kept], flows.bytes_per_s[kept]
    probes = rows @ np.random.default_rng(0).uniform(1, 2, (rows.shape[1], 3))
    ratios = np.round(probes[:, 1:] / probes[:, :1], _DIGITS)
    tightness = probes[:, 0] / rates
    order = np.lexsort((np.arange(len(kept)), -tightness, ratios[:, 1], ratios[:, 0]))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(ratios[order], axis=0) != 0).any(axis=1)
    chosen = np.sort(order[first])
    return Flows(rows[chosen], rates[chosen], flows.amounts)


def refined(flows: Flows) -> Flows:
    """Return one class for all that nothing tells apart, and one link for each set of alike links.

    Colour refinement until links of a colour carry the same from each colour of flows, and flows of a colour take
    links of the same colours and have the same bytes (an equitable partition): such flows have the same fair rate
    at all times.
    """
    rows = flows.weights.tocsr()
    uses = rows.T.tocsr()
    uses.data = np.ones_like(uses.data)
    random = np.random.default_rng(0)
    links = np.zeros(rows.shape[0], dtype=np.int64)
    classes, before = colours(rounded(flows.amounts)), 0
    while (now := int(classes.max(initial=-1)) + 1) != before:
        if now == rows.shape[1]:
            return flows
        before = now
        shares = rows @ random.uniform(1, 2, (now, 2))[classes] / flows.bytes_per_s[:, None]
        links = colours(links, rounded(shares))
        names = random.uniform(1, 2, (int(links.max(initial=-1)) + 1, 2))
        classes = colours(classes, rounded(uses @ names[links]))
    return _quotient(flows, links, classes)


def _quotient(flows: Flows, links: Ints, classes: Ints) -> Flows:
    """Return the flows on the first link of each colour, summed by colour of flows."""
    from scipy.sparse import csr_array

    _, first_link = np.unique(links, return_index=True)
    _, first_class = np.unique(classes, return_index=True)
    each = np.arange(len(classes))
    member = csr_array((np.ones(len(classes)), (each, classes)), shape=(len(classes), len(first_class)))
    return Flows(
        flows.weights.tocsr()[first_link] @ member, flows.bytes_per_s[first_link], flows.amounts[first_class]
    )


def rounded(values: Floats) -> Floats:
    """Return values without the digits that the order of a sum changes."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa, _DIGITS), exponent))


def colours(*columns: Any) -> Ints:
    """Return a number for each different row of some columns side by side."""
    rows = [values for column in columns for values in np.atleast_2d(column.T)]
    order = np.lexsort(rows)
    changed = np.zeros(max(len(order) - 1, 0), dtype=bool)
    for values in rows:
        ordered = values[order]
        changed |= ordered[1:] != ordered[:-1]
    found = np.zeros(len(order), dtype=np.int64)
    found[order[1:]] = np.cumsum(changed)
    return found


@dataclass(frozen=True)
class _Links:
    """Links and classes, by row and by column; an entry is the part of a link that a byte/s of its class takes."""

    rows: Any
    columns: Any

    @classmethod
    def of(cls, flows: Flows) -> _Links:
        """Return the links of some flows."""
        rows = flows.weights.tocsr().copy()
        rows.eliminate_zeros()
        rows.data /= np.repeat(flows.bytes_per_s, np.diff(rows.indptr))
        return cls(rows, rows.tocsc())

    def only(self, chosen: Bools) -> tuple[_Links, Ints]:
        """Return the chosen classes on the links that they take, and which links those are."""
        rows = self.columns[:, np.flatnonzero(chosen)].tocsr()
        kept = np.flatnonzero(np.diff(rows.indptr))
        rows = rows[kept]
        return _Links(rows, rows.tocsc()), kept

    def busiest_s(self, amounts: Floats) -> float:
        """Return the seconds that the busiest link needs for the bytes of each class."""
        return float((self.rows @ amounts).max(initial=0.0))

    def fair_rates(self, most: Floats) -> Floats:
        """Return ``[classes]`` max-min fair bytes/s, none above ``most``; zero where that is zero."""
        rates = np.zeros(len(most))
        links, who, free = self, np.arange(len(most)), most > 0
        room = np.ones(self.rows.shape[0])
        level = _LEVEL
        for turn in count(1):
            if not free.any():
                return rates
            if 2 * np.count_nonzero(free) < len(free):
                links, kept = links.only(free)
                who, most, room, free = who[free], most[free], room[kept], np.ones(int(free.sum()), bool)
            found = links.filled(free, most, room, level)
            hit = found > 0
            rates[who[hit]] = found[hit]
            room = np.maximum(room - links.rows @ found, 0.0)
            free &= ~hit
            level = level if turn < _ROUNDS else 2 * level
        raise AssertionError

    def filled(self, free: Bools, most: Floats, room: Floats, level: float) -> Floats:
        """Return the rates of the free flows that are settled now, zero for the others.

        ``level`` is the relative difference of shares that count as equal. No link gets more than its ``room``.
        """
        rows, columns = self.rows, self.columns
        load = rows @ free.astype(float)
        share = np.divide(room, load, out=np.full(len(load), np.inf), where=load > 0)
        fair = np.minimum.reduceat(share[columns.indices], columns.indptr[:-1])
        capped = free & (most <= fair)
        offer = np.where(free, np.where(capped, 0.0, fair), np.inf)
        least = np.minimum.reduceat(offer[rows.indices], rows.indptr[:-1])
        full = (least >= share * (1 - level)) & (load > 0)
        settled = np.logical_or.reduceat(full[columns.indices], columns.indptr[:-1])
        return np.where(free & (capped | settled), np.minimum(fair, most), 0.0)
