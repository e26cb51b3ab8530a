"""Which of the arrangements that leave GPUs idle are worth pricing: those on the frontier, and a few near it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost.inputs.workload import CHUNK_TOKENS
from cost.layouts.arrays import Array, Bools, Index
from cost.layouts.batches import MAX_BETWEEN, may_be_best
from cost.layouts.candidates import MAX_REPLICA_GPUS, Arrangement, candidates
from cost.layouts.deployable import MAX_MIXED_GPUS
from cost.layouts.fitting import FittingLayouts, Priced
from cost.layouts.front import pareto
from cost.layouts.stages import Pricer
from cost.layouts.unlike_stages import unlike_arrangements

Points = tuple[Array, Array]

NEAR_LOSS, MAX_NEAR = 0.05, 16
"""How much less than the best at its speed an arrangement that leaves GPUs idle may yield and still be priced, though
none of it is on the frontier: unequal loads may put it there. And how many of both kinds there are, unless more are
on the frontier: the nearest."""

_FIRST_STEPS, _BETWEEN_LIMITS = 1 / 3, (7, MAX_BETWEEN)
"""Batches to the double at which they are looked at first, then how many more between two neighbours where needed."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Every arrangement of a cluster, and which of them are worth pricing, by their place.

    Attributes
    ----------
    layouts:
        Those of all arrangements that fit; None where none is legal.
    found:
        What was priced on the way: the layouts that are always priced at every batch of the grid.
    always:
        The first so many arrangements are always priced.
    whole, alone:
        Of the rest, those on or near the frontier of what all GPUs yield; those and the ones on or near the frontier
        of what the GPUs in use yield.
    """

    arranged: Sequence[Arrangement]
    layouts: FittingLayouts | None
    found: Priced | None
    always: int
    whole: Sequence[int] = ()
    alone: Sequence[int] = ()


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

    def arrange() -> Chosen:
        return chosen(pricer, imbalance=imbalance, chunk_tokens=chunk_tokens, cut_experts=cut_experts)

    choice = pricer.deployment.once(
        arrange, "arranged", pricer.redundant, imbalance, chunk_tokens, cut_experts
    )
    idle = choice.alone if alone else choice.whole
    return [choice.arranged[number] for number in (*range(choice.always), *idle)]


def chosen(
    pricer: Pricer, *, imbalance: float | None, chunk_tokens: float | None, cut_experts: bool
) -> Chosen:
    """Return all arrangements and which are worth pricing.

    Whatever is on the frontier is found, not guessed: of a layout that leaves GPUs idle few batches are priced, with
    every split of the layers, then those between neighbours that no layout beats (:meth:`FittingLayouts.refined`),
    down to whole sequences. So neither a GPU more nor a better figure takes a layout away, but for a pipeline over
    all groups, which is deployable for being over all (:func:`cost.layouts.deployable.deployable_stages`).
    """
    deployment = pricer.deployment
    usual, idle = map(list, candidates(deployment.cluster, deployment.model, any_shape=deployment.any_shape))
    unlike = unlike_arrangements(pricer)
    base = [*usual, *(arrangement for arrangement in unlike if arrangement not in usual)]

    def fitting(base: Sequence[Arrangement], idle: Sequence[Arrangement]) -> FittingLayouts | None:
        return FittingLayouts.of(
            pricer, [*base, *idle], cut_experts=cut_experts, chunk_tokens=chunk_tokens, imbalance=imbalance
        )

    layouts, max_gpus = None, MAX_MIXED_GPUS
    if deployment.workload.phase == "both" and not deployment.any_shape:
        while max_gpus < MAX_REPLICA_GPUS and (layouts is None or not len(layouts.most)):
            small_base, small_idle = (
                [candidate for candidate in arrangements if candidate.replica_gpus <= max_gpus]
                for arrangements in (base, idle)
            )
            layouts, max_gpus = fitting(small_base, small_idle), 2 * max_gpus
        base, idle = small_base, small_idle
    else:
        layouts = fitting(base, idle)
    arranged = [*base, *idle]
    if layouts is None:
        return Chosen(arranged, None, None, len(base))
    number = layouts.arrangement
    always = number < len(base)
    priced, at_few = layouts.price_apart(layouts.grid(always), layouts.grid(~always, steps=_FIRST_STEPS))
    if not idle:
        return Chosen(arranged, layouts, priced, len(base))
    used = np.array([arrangement.gpus_used for arrangement in arranged], dtype=np.float64)[number]
    shares = np.ones_like(used), used
    fronts = [_front(priced, share) for share in shares]
    idle_priced = _near_batches(layouts, at_few, fronts, shares)
    of = number[idle_priced.layout]
    by_cluster, by_used = (
        _near(of, _points(idle_priced, share), front) for front, share in zip(fronts, shares, strict=True)
    )
    return Chosen(arranged, layouts, priced, len(base), sorted(by_cluster), sorted(by_cluster | by_used))


def _near(of: Index, points: Points, front: Points) -> set[int]:
    """Return those that have a point on the frontier, and the nearest to it; ``of [points]`` says whose each is."""
    if not len(of):
        return set()
    speed, rate = (np.log(np.concatenate(figures)) for figures in zip(front, points, strict=True))
    edge, known = pareto(speed, rate), len(front[0])
    on_edge = set(of[edge[edge >= known] - known].tolist())
    behind = np.interp(speed[known:], speed[edge], rate[edge]) - rate[known:]
    nearest = np.full(int(of.max()) + 1, np.inf)
    np.minimum.at(nearest, of, behind)
    ranked = [number for number in np.argsort(nearest, kind="stable").tolist() if number not in on_edge]
    near = [number for number in ranked if nearest[number] <= NEAR_LOSS]
    return on_edge | set(near[: max(0, MAX_NEAR - len(on_edge))])


def _points(priced: Priced, share: Array) -> Points:
    """Steps per second, and tokens per second for each of ``share [layouts]``, of what was priced."""
    return 1 / priced.step_s, priced.tok_s / share[priced.layout]


def _front(priced: Priced, share: Array) -> Points:
    speed, rate = _points(priced, share)
    edge = pareto(speed, rate)
    return speed[edge], rate[edge]


def _near_batches(
    layouts: FittingLayouts, priced: Priced, fronts: Sequence[Points], shares: Sequence[Array]
) -> Priced:
    """Price ``priced`` at the batches between, too, that none of them, nor of ``fronts``, beats.

    By each of ``shares``, of which ``fronts`` are.
    """

    def able(priced: Priced) -> Bools:
        flags = (
            may_be_best(*_points(priced, share), front) for front, share in zip(fronts, shares, strict=True)
        )
        return np.asarray(np.any(list(flags), axis=0))

    for limit in _BETWEEN_LIMITS if len(priced) else ():
        priced = priced.take(np.lexsort((priced.batch, priced.layout)))
        priced = priced.joined(layouts.price(*layouts.between(priced, able(priced), limit)))
    return priced
