"""Experts into domains (or nodes): mean-field starts, the best of them annealed, loads brought under their limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from placement.arrays import Ints
from placement.traffic.exchange import HARD, Exchange
from placement.traffic.mean_field import mean_field, melting_heat
from placement.traffic.parts import Parts

_START_TOKENS = 8192  # a start needs fewer than a search: what it finds is coarse
_STARTS_WORK = 4e8  # tokens x k x parts x steps of all starts together
_STEPS, _INNER = 60, 5
_MOST_STARTS = 6
_HEAT = (0.1, 0.005)  # of the tokens of an average expert
_MILD = 1.0  # price of a choice above a limit while it cools, in parts reached
_WAYS = (
    (1.0, _MILD),
    (10.0, 0.3),
    (5.0, 3.0),
)  # first heat and that price, in turn where there is time for several
_EXCHANGES = 2000
_START_COST = 1e-5  # units of work for each of its tokens x k x parts x steps
_REPAIR = 1.0  # price of a choice above a limit when starts are compared
_SMALL = 20_000  # choices that may be searched on from several starts in the time of one


@dataclass(frozen=True)
class Work:
    """How much a search may do, by counts that do not depend on the machine.

    Attributes
    ----------
    share:
        1 is a second or less of a layer of 256 experts and 20,000 tokens; starts and exchanges are in proportion.
    goes_on:
        Whether there is work left, given the units (:class:`placement.budget.Budget`) of what comes next; asked
        between starts and every few steps of annealing.
    """

    share: float = 1.0
    goes_on: Callable[[float], bool] = lambda _: True


def group(task: Parts, rng: np.random.Generator, work: Work, starts: Sequence[Ints] = ()) -> Ints:
    """Return a part for each expert, ``[experts]``: the best found, from mean-field starts and from ``starts``."""
    if task.parts < 2:
        return task.in_order()
    each = int(_STARTS_WORK / (task.tokens.k * task.parts * _STEPS))
    few = task.of_tokens(task.tokens.sample(min(_START_TOKENS, each + 1)))
    cells = len(few.tokens) * few.tokens.k * task.parts * _STEPS
    number = max(1, int(work.share * min(_STARTS_WORK / cells, _MOST_STARTS)))
    found = [task.in_order(), *starts]
    melting = melting_heat(few)
    for _ in range(number):
        if not work.goes_on(cells * _START_COST):
            break
        found.append(mean_field(few, rng, steps=_STEPS, inner=_INNER, melting=melting))
    found.sort(key=lambda part: _rank(task, part))
    tries = int(np.clip(_SMALL / task.tokens.choices.size, 1, _MOST_STARTS))  # few tokens are soon counted
    ends = [
        improve(task, part, rng, work, heat=heat, price=price)
        for part, (heat, price) in zip(found[:tries], cycle(_WAYS), strict=False)
    ]
    return min(ends, key=lambda part: (task.excess(part), task.reached(part)))


def improve(
    task: Parts,
    part: Ints,
    rng: np.random.Generator,
    work: Work,
    *,
    heat: float = 1.0,
    share: float = 1.0,
    price: float = _MILD,
) -> Ints:
    """Anneal ``part`` by exchanges and return it with loads under their limits, if exchanges get there.

    ``heat`` and ``share`` scale the first temperature and the number of exchanges.
    """
    if task.parts < 2:
        return part
    search = Exchange(task, part)
    unit = task.tokens.load.sum() / task.tokens.experts
    if work.goes_on(1.0):
        steps = int(_EXCHANGES * work.share * share)
        hot = (max(_HEAT[0] * heat, _HEAT[1]) * unit, _HEAT[1] * unit)
        search.anneal(rng, heat=hot, steps=steps, price=price, goes_on=work.goes_on)
    for higher in (4 * price, HARD):
        search.descend(price=higher, most=_EXCHANGES)
    return search.best[1][:-1].astype(np.int64)


def _rank(task: Parts, part: Ints) -> float:
    """Parts reached, and what loads above the limits will about cost to repair."""
    return task.reached(part) + _REPAIR * task.excess(part)
