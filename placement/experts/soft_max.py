"""Annealing under several loads: what is kept small is a soft maximum over GPUs, which holds on loads not seen.

In each layer it is the mean over scenarios, by their votes, of log-sum-exp of the GPU loads, ``log(sum over GPUs of
exp(theta * load)) / theta``; for the worst scenario, log-sum-exp over GPUs and scenarios. It sees every GPU near the
top, and what it finds holds better on loads not seen than what the largest load alone finds (docs/placement.md). Of
the mean of logarithms the tangent is used, which lies above it: a sum over GPUs, so that the change by each swap of
a pair is a product of what leaves and what comes.

Powers of e are made of additions and multiplications alone: the same bytes on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import frexp

import numpy as np

from placement.arrays import Experts, Index
from placement.budget import evenly
from placement.experts.annealing import Annealing, Singles
from placement.experts.excess import anneal_along
from placement.experts.problem import Problem

WARM, COLD = 1e-3, 3e-6
"""Temperature at the start and at the end, in units of the mean GPU load."""

STEPS = 20
"""Steps between two looks at how much of the work is done."""

_SHARPNESS = 75.0  # of the soft maximum, over the largest load of a scenario at the start
_STEEPEST = 80.0  # powers of e above that overflow in a product of two, in single precision
_DESCENT = 4  # steps for each GPU: so often every two of them meet
_RENEWED = 5  # looks between two computations of all loads anew, which is when the best so far is kept
_CELLS = 1 << 22  # slots times scenarios of the layers that are annealed together
_SQUARINGS = 10  # of a power of e
_DEAR = 3.0  # the first price of a move is 2 to minus that, of largest over mean GPU load: few gain as much
_EXCHANGES_TRIED = 16  # exchanges looked at in each layer and step
_MARKS = 20  # placements that a priced search shows on its way


def anneal(
    problem: Problem,
    slot_expert: Experts,
    *,
    rounds: Iterable[float],
    warm: float = WARM,
    seed: int = 0,
) -> int:
    """Make ``slot_expert`` ``[layers, slots]`` better in place; return how many layers are.

    It is legal, and no layer worse by log-sum-exp, at any time, also when interrupted. Copies of an expert stay
    spread over failure domains if they were.

    Parameters
    ----------
    rounds:
        How much of the work is done, growing from 0 to 1, before each :data:`STEPS` steps.
    warm:
        Temperature at the start.
    """
    size = max(1, _CELLS // (problem.slots * problem.scenarios))
    layers = np.array_split(np.arange(len(slot_expert)), -(-len(slot_expert) // size))
    runs = [
        _SoftMax(problem.rows(rows), slot_expert[rows], np.random.default_rng([seed, part]))
        for part, rows in enumerate(layers)
    ]
    for number, done in enumerate(rounds, 1):
        for rows, run in zip(layers, runs, strict=True):
            heat = warm * (COLD / warm) ** done
            for _ in range(STEPS):
                run.swap(1.0, heat)
            if number % _RENEWED == 0:
                slot_expert[rows] = run.renew()
    for rows, run in zip(layers, runs, strict=True):
        slot_expert[rows] = run.renew()
    return sum(int(run.better.sum()) for run in runs)


def along_prices(
    problem: Problem, start: Experts, old: Experts, *, price: float, steps: int, seed: int = 0
) -> Iterator[Experts]:
    """Yield placements ``[layers, slots]`` on the way from ``start`` as moves from ``old`` get cheaper.

    A move costs an eighth of largest over mean GPU load at first, and ``price`` at last, so that what gains
    most comes first. Copies are swapped, and turn into copies of other experts.
    """
    annealing = _SoftMax(problem, start, np.random.default_rng(seed), old)
    fraction, exponent = frexp(1 / price)
    last = exponent - 2 + 2 * fraction
    octaves = min(_DEAR, last), last
    marks = {(steps - 1) * mark // _MARKS for mark in range(1, _MARKS + 1)}
    for step, _ in enumerate(anneal_along(annealing, octaves, steps, _EXCHANGES_TRIED)):
        if step in marks:
            annealing.refresh(np.arange(problem.layers))  # rounding adds up
            yield annealing.slot_expert


def descend(problem: Problem, slot_expert: Experts) -> Experts:
    """Return ``[layers, slots]`` after swaps that help, at next to no temperature."""
    moved = slot_expert.copy()
    anneal(problem, moved, rounds=evenly(_DESCENT * problem.gpus // STEPS + 1), warm=COLD)
    return moved


def step_cells(problem: Problem) -> int:
    """Numbers that a step writes, roughly: what its time grows with; 0 where there is no pair of GPUs."""
    columns = min(int(problem.slots_per_gpu.max()), _SoftMax.columns)
    swaps = (problem.gpus // 2) * columns * columns
    return problem.scenarios * problem.layers * 4 * (swaps + problem.gpus * (columns + 2)) if swaps else 0


class _SoftMax(Annealing):
    """Swaps and exchanges judged by the soft maximum; keeps the best placement on the way.

    The target is the largest load at the start.
    """

    columns = 16

    def __init__(
        self, problem: Problem, start: Experts, rng: np.random.Generator, old: Experts | None = None
    ) -> None:
        peaks = problem.peaks(start)
        self.worst = problem.objective == "worst"
        target = np.broadcast_to(peaks.max(axis=0), peaks.shape) if self.worst else peaks
        votes = np.full(problem.scenarios, 1 / problem.scenarios) if problem.votes is None else problem.votes
        self.votes = votes.astype(np.float32)[:, None]
        self.theta = (_SHARPNESS / np.maximum(target, 1.0)).astype(np.float32)
        self.powers = np.ones((problem.scenarios, problem.layers, problem.experts + 1), np.float32)
        super().__init__(problem, start, target, rng, old)
        self.look()
        self.best, self.kept = self.total, start.copy()
        self.better = np.zeros(problem.layers, dtype=bool)

    def renew(self) -> Experts:
        """Compute all loads anew, for rounding adds up; return the best ``[layers, slots]`` so far."""
        self.refresh(np.arange(self.layers))
        self.look()
        # below the tangent of the logarithm at the best: lower by the logarithm too
        change = (self.votes * (self.total - self.best) / (self.best * self.theta)).sum(axis=0)
        won = change < 0
        self.better |= won
        self.best = np.where(won, self.total, self.best)
        self.kept[won] = self.slot_expert[won]
        return self.kept

    def refresh(self, layers: Index) -> None:
        super().refresh(layers)
        self.powers[:, layers] = _powers(self.share[:, layers] * self.theta[:, layers, None])

    def look(self, *_: float) -> None:
        power = _powers(self.over.reshape(*self.theta.shape, -1) * self.theta[:, :, None])
        total = power.sum(axis=2)
        if self.worst:
            total = np.repeat((total * self.votes).sum(axis=0, keepdims=True), len(total), axis=0)
        self.total = total
        self.scale = self.votes / (total * self.theta)
        power *= self.scale[:, :, None]
        self.now = power.reshape(self.over.shape)

    def energy(self, over: Singles, scenario: int, layer: Index) -> Singles:
        power = _powers(over * self.theta[scenario, layer])
        power *= self.scale[scenario, layer]
        return power

    def add_swaps(self, total: Singles, mine: tuple[Index, Index], other: tuple[Index, Index]) -> None:
        (left, gives), (right, takes) = mine, other
        now_left, now_right = self.now.take(left, axis=1), self.now.take(right, axis=1)
        layer, paces = self.layer[left], (self.pace[left], self.pace[right])
        if self.alike:
            powers, first = self.powers.reshape(len(self.powers), -1), layer * self.size
            goes, comes = ([powers.take(first + expert, axis=1)] for expert in (gives, takes))
        else:
            theta = self.theta.take(layer, axis=1)
            goes, comes = (
                [_powers((theta * pace)[:, None] * self.of_copies(*side)) for pace in paces]
                for side in (mine, other)
            )
        total -= (now_left + now_right).sum(axis=0)
        stays, leaves = now_left[:, None] / goes[0], now_right[:, None] / comes[-1]
        for scenario in range(len(now_left)):
            total += stays[scenario][:, None] * comes[0][scenario]
            total += goes[-1][scenario][:, None] * leaves[scenario]

    def excess(self) -> Singles:
        excess: Singles = self.now.sum(axis=0) * np.float32(_SHARPNESS)
        return excess


def _powers(power: Singles) -> Singles:
    """Return powers of e, none too large for a product of two: a cubic of a 1,024th, squared ten times.

    Within .02 % from -40 to 40, where GPUs count; numpy's own differ between machines in the last bit.
    """
    np.minimum(power, _STEEPEST, out=power)
    part = power * np.float32(0.5**_SQUARINGS)
    power = part * np.float32(1 / 6) + np.float32(0.5)
    for _ in range(2):
        power *= part
        power += np.float32(1)
    for _ in range(_SQUARINGS):
        power *= power
    return power
