"""Experts into domains (or nodes): mean-field starts, the best annealed by exchanges, loads brought under their limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Ints
from placement.traffic.exchange import HARD, Exchange
from placement.traffic.mean_field import mean_field, melting_heat
from placement.traffic.parts import Parts

_START_TOKENS = 8192  # a start needs fewer than a search: what it finds is coarse
_STARTS_WORK = 1.2e9  # tokens x k x parts x steps of all starts together
_STEPS, _INNER = 60, 5
_MOST_STARTS = 6
_HEAT = (0.1, 0.005)  # of the tokens of an average expert
_MILD = 1.0  # price of a choice above a limit while it cools, in parts reached
_EXCHANGES = 2000


@dataclass(frozen=True)
class Work:
    """How much a search may do, by counts that do not depend on the machine.

    Attributes
    ----------
    share:
        1 is a second or less of a layer of 256 experts and 20,000 tokens; starts and exchanges are in proportion.
    goes_on:
        Whether there is time left; asked between starts and before annealing.
    """

    share: float = 1.0
    goes_on: Callable[[], bool] = lambda: True


def group(task: Parts, rng: np.random.Generator, work: Work, starts: Sequence[Ints] = ()) -> Ints:
    """Return a part for each expert, ``[experts]``: the best found, from mean-field starts and from ``starts``."""
    if task.parts < 2:
        return task.in_order()
    few = task.of_tokens(task.tokens.sample(_START_TOKENS))
    cells = len(few.tokens) * few.tokens.k * task.parts * _STEPS
    number = max(1, int(work.share * min(_STARTS_WORK / cells, _MOST_STARTS)))
    found = [task.in_order(), *starts]
    melting = melting_heat(few)
    for _ in range(number):
        if not work.goes_on():
            break
        found.append(mean_field(few, rng, steps=_STEPS, inner=_INNER, melting=melting))
    return improve(task, min(found, key=lambda part: _rank(task, part)), rng, work)


def improve(
    task: Parts, part: Ints, rng: np.random.Generator, work: Work, *, heat: float = 1.0, share: float = 1.0
) -> Ints:
    """Anneal ``part`` by exchanges and return it with loads under their limits, if exchanges get there.

    ``heat`` and ``share`` scale the first temperature and the number of exchanges.
    """
    if task.parts < 2:
        return part
    search = Exchange(task, part)
    unit = task.tokens.load.sum() / task.tokens.experts
    if work.goes_on():
        steps = int(_EXCHANGES * work.share * share)
        hot = (max(_HEAT[0] * heat, _HEAT[1]) * unit, _HEAT[1] * unit)
        search.anneal(rng, heat=hot, steps=steps, price=_MILD)
    for price in (4 * _MILD, HARD):
        search.descend(price=price, most=_EXCHANGES)
    return search.part[:-1].astype(np.int64)


def _rank(task: Parts, part: Ints) -> float:
    """Parts reached, and what loads above the limits will about cost to repair."""
    return task.reached(part) + _REPAIR * task.excess(part)


_REPAIR = 1.0
