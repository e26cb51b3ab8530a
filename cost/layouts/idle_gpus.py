"""Which of the arrangements that leave GPUs idle are worth pricing: those on the frontier, and a few near it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.layouts.candidates import (
    MOST_BETWEEN,
    Arrangement,
    batches_between,
    left_over,
    may_be_best,
)
from cost.layouts.fitting import FittingLayouts
from cost.layouts.front import pareto
from cost.layouts.stages import Columns, Pricer
from cost.layouts.unlike_stages import with_free_orders
from cost.workload import CHUNK_TOKENS

Array = NDArray[np.float64]
Points = tuple[Array, Array]

NEAR, MOST_NEAR = 0.05, 16
"""How much less than the best at its speed an arrangement that leaves GPUs idle may yield and still be priced, though
none of it is on the frontier: unequal loads may put it there. And how many of both kinds there are, unless more are
on the frontier: the nearest."""

_FIRST, _BETWEEN = 1 / 3, (3, 7, MOST_BETWEEN)
"""Batches to the double at which they are looked at first, then how many more between two neighbours where needed."""


@dataclass(frozen=True, eq=False)
class Looked:
    """Every arrangement of a cluster, and which of them are worth pricing.

    Attributes
    ----------
    layouts:
        Those of all arrangements that fit; None where none is legal.
    found:
        What was priced on the way: the layouts of ``base`` at every batch of the grid.
    base:
        Arrangements that are always priced.
    whole, alone:
        Of the rest, those on or near the frontier of what all GPUs yield, and of what the GPUs in use yield.
    """

    layouts: FittingLayouts | None
    found: Columns
    base: list[Arrangement]
    whole: list[Arrangement]
    alone: list[Arrangement]

    def rows_of(self, arranged: Iterable[Arrangement]) -> NDArray[np.bool_]:
        """Which layouts are of ``arranged``."""
        return np.zeros(0, dtype=bool) if self.layouts is None else _rows_of(self.layouts, arranged)


def arranged_in(
    pricer: Pricer,
    *,
    imbalance: float | None = 1.0,
    chunk_tokens: float | None = CHUNK_TOKENS,
    cut_experts: bool = False,
    alone: bool = True,
) -> list[Arrangement]:
    """Return every arrangement worth pricing; of those that leave GPUs over, those on the frontier or near it.

    With ``alone`` also those on or near the frontier of what a GPU in use yields: pools have some of their replicas.
    The rest as in :func:`cost.layouts.sweep`.
    """
    asked = imbalance, chunk_tokens, cut_experts

    def arrange() -> list[list[Arrangement]]:
        found = look(pricer, imbalance=imbalance, chunk_tokens=chunk_tokens, cut_experts=cut_experts)
        return [found.base + found.whole, found.base + found.alone]

    return pricer.deployment.once(arrange, "arranged", pricer.redundant, *asked)[alone]


def look(pricer: Pricer, *, imbalance: float | None, chunk_tokens: float | None, cut_experts: bool) -> Looked:
    """Return all arrangements and which are worth pricing.

    Whatever is on the frontier is found, not guessed: of a layout that leaves GPUs idle few batches are priced, with
    every split of the layers, then those between neighbours that no layout beats (:func:`batches_between`), down to
    whole sequences. So neither a GPU more nor a better figure takes a layout away.
    """
    deployment = pricer.deployment
    base, more = with_free_orders(pricer), left_over(deployment.cluster, deployment.model)
    layouts = FittingLayouts.of(
        pricer, [*base, *more], cut_experts=cut_experts, chunk_tokens=chunk_tokens, imbalance=imbalance
    )
    if layouts is None:
        return Looked(None, Columns(0), base, [], [])
    always = _rows_of(layouts, base)
    found = layouts.price(*layouts.grid(always))
    if not more:
        return Looked(layouts, found, base, [], [])
    arrangements = [one.arrangement for one in layouts.variants]
    used = np.array([one.gpus_used for one in arrangements], dtype=np.float64)[layouts.table.variant]
    shares = np.ones_like(used), used
    fronts = [_front(found, share) for share in shares]
    others = _near_batches(layouts, ~always, fronts, shares)
    place = {id(one): number for number, one in enumerate(more)}
    of = np.array([place.get(id(one), -1) for one in arrangements])[layouts.table.variant[others["layout"]]]
    whole, alone = (
        _near(of, _points(others, share), front) for front, share in zip(fronts, shares, strict=True)
    )
    kept = ([more[number] for number in sorted(those)] for those in (whole, whole | alone))
    return Looked(layouts, found, base, *kept)


def _near(of: NDArray[np.int64], points: Points, front: Points) -> set[int]:
    """Return those that have a point on the frontier, and the nearest to it; ``of [points]`` says whose each is."""
    if not len(of):
        return set()
    speed, rate = (np.log(np.concatenate(both)) for both in zip(front, points, strict=True))
    edge, known = pareto(speed, rate), len(front[0])
    first = set(of[edge[edge >= known] - known].tolist())
    behind = np.interp(speed[known:], speed[edge], rate[edge]) - rate[known:]
    nearest = np.full(int(of.max()) + 1, np.inf)
    np.minimum.at(nearest, of, behind)
    others = [one for one in np.argsort(nearest, kind="stable").tolist() if one not in first]
    near = [one for one in others if nearest[one] <= NEAR]
    return first | set(near[: max(0, MOST_NEAR - len(first))])


def _points(found: Columns, share: Array) -> Points:
    """Steps per second, and tokens per second for each of ``share [layouts]``, of what was priced."""
    return 1 / found["step_s"], found["tok_s"] / share[found["layout"]]


def _front(found: Columns, share: Array) -> Points:
    speed, rate = _points(found, share)
    edge = pareto(speed, rate)
    return speed[edge], rate[edge]


def _near_batches(
    layouts: FittingLayouts, chosen: NDArray[np.bool_], fronts: Sequence[Points], shares: Sequence[Array]
) -> Columns:
    """Price the ``chosen`` layouts at few batches, then at those between that none of them, nor of ``fronts``, beats.

    By each of ``shares``, of which ``fronts`` are.
    """
    others = layouts.price(*layouts.grid(chosen, steps=_FIRST))
    for between in _BETWEEN:
        others = others.take(np.lexsort((others["batch"], others["layout"])))
        layout, batch = others["layout"], others["batch"]
        able = np.zeros(max(0, len(layout) - 1), dtype=bool)
        for front, share in zip(fronts, shares, strict=True):
            able |= may_be_best(*_points(others, share), *front)
        next_ = batches_between(layout, batch, layouts.table.tp[layout], able, most=between)
        if len(next_[0]):
            others = others.joined(layouts.price(*next_))
    return others


def _rows_of(layouts: FittingLayouts, arranged: Iterable[Arrangement]) -> NDArray[np.bool_]:
    known = {id(one) for one in arranged}
    of = np.array([id(one.arrangement) in known for one in layouts.variants], dtype=bool)
    return np.asarray(of[layouts.table.variant])
