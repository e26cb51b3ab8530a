"""Which loads a re-plan looks at, and how much each counts: the last window, those before it, stored scenarios.

Nobody knows the next window. It may be like the last one (engines serve the same users for minutes), like one of a
few windows ago, or like any of the stored workloads; a placement that is good under all of them, weighted, is what
the re-plan looks for. The weights were chosen by simulation (docs/replan.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.arrays import Floats, Ints
from placement.experts.scenario_groups import group_scenarios
from placement.online.memory import Memory

LAST_WEIGHT, SEEN_WEIGHT, STORED_WEIGHT = 4.0, 1.0, 1.0
"""Weights of the last window, of the kinds of windows seen and of the stored scenarios, each group together."""

HALF_TRUST_WINDOWS = 4
"""Windows after which those seen have half of their weight: one window says little beside stored workloads."""

AGE_WEIGHT = 0.8
"""Weight of a kind of windows, by each window since it was seen last."""

MAX_WORKLOADS = 8
"""Groups of stored scenarios that a re-plan looks at: its work grows with them."""

MIN_WEIGHT = 0.02
"""Of the weight of the heaviest vote: lighter ones are not looked at."""


class Votes(NamedTuple):
    """Loads ``[n, layers, experts]`` of mean 1 in each row, and their weights ``[n]``, which sum to 1."""

    loads: Floats
    weights: Floats


def votes(window: Floats, memory: Memory, stored: Floats) -> Votes:
    """Return the votes of the last ``window`` ``[layers, experts]``, of kinds of windows and of ``stored`` scenarios.

    At least one window has been seen. Rows are of mean 1, or all 0 where nothing is known: there a vote is as the
    last window. A layer without tokens in the last window counts as even.
    """
    windows = int(memory.windows.sum())
    trust = windows**2 / (windows**2 + HALF_TRUST_WINDOWS**2)
    fading = _fading(memory.age)
    weights = np.concatenate(
        [
            [trust * LAST_WEIGHT * (1 - memory.surprise)],
            trust * SEEN_WEIGHT * fading / fading.sum(),
            np.full(len(stored), STORED_WEIGHT / max(1, len(stored))),
        ]
    )
    if memory.windows[-1] == 1:  # the last kind is the last window itself
        weights[len(memory.windows)] += weights[0]
        weights[0] = 0.0
    heard = weights >= MIN_WEIGHT * weights.max()
    filled = np.where(window.max(axis=1, keepdims=True) > 0, window, 1.0)
    loads = np.concatenate([window[None], memory.loads, stored])[heard]
    loads = np.where(loads.max(axis=2, keepdims=True) > 0, loads, filled)
    return Votes(loads, weights[heard] / weights[heard].sum())


def _fading(age: Ints) -> Floats:
    """Return :data:`AGE_WEIGHT` to the power of ``age``, by multiplications: the same bytes on every machine."""
    powers: Floats = np.multiply.accumulate(np.append(1.0, np.full(int(age.max(initial=0)), AGE_WEIGHT)))
    return powers[age]


def relative(tokens: Floats) -> Floats:
    """Return ``[.., experts]`` loads divided by the mean of their row; rows without tokens stay 0."""
    largest = tokens.max(axis=-1, keepdims=True)
    # First the largest: the sum of loads near 1e308 overflows.
    scaled = tokens / np.where(largest > 0, largest, 1.0)
    mean = scaled.mean(axis=-1, keepdims=True)
    scaled /= np.where(mean > 0, mean, 1.0)
    return scaled


def workloads(scenarios: Floats) -> Floats:
    """Return one load for each group of alike ``scenarios`` ``[scenarios, layers, experts]``: their mean.

    Groups are those of a plan (:func:`placement.experts.scenario_groups.group_scenarios`), :data:`MAX_WORKLOADS` at
    most.
    """
    group, _ = group_scenarios(scenarios, most=MAX_WORKLOADS)
    return relative(np.stack([scenarios[group == kind].mean(axis=0) for kind in range(int(group.max()) + 1)]))
