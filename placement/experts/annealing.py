"""Annealing over swaps under many scenarios: thousands of swaps of all layers weighed in one NumPy step.

What is kept small in each layer is the mean over scenarios, by their votes, of log-sum-exp of the GPU loads,
``log(sum over GPUs of exp(theta * load)) / theta``; for the worst scenario, log-sum-exp over GPUs and scenarios. It
sees every GPU near the top, and what it finds holds better on loads not seen than what the largest load alone finds
(docs/placement.md). Of the mean of logarithms the tangent is used, which lies above it. The sum over
GPUs is separable: each step pairs all GPUs at random, the change by each swap within a pair is a product of what
leaves and what comes, summed over scenarios, and pairs do not touch each other, so that in every pair the best
swap, noise of the temperature subtracted, is made at once where that lowers the sum. Layers do not touch each other
either, so that all share the random pairs, and GPUs are blocks of memory.

Counts of copies stay. Elementwise arithmetic in a fixed order alone: no matrix products, no threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Experts, Floats, Index
from placement.experts.problem import Problem

SHARPNESS = 75.0
"""Of log-sum-exp, over the largest load of a scenario at the start."""
WARM, COLD = 3e-4, 1e-6
"""Temperature at the start and at the end, in units of the mean GPU load."""

_STEEPEST = 80.0  # powers of e above that overflow in a product of two, in single precision
_DESCENT = 4  # steps for each GPU: so often every two of them meet
STEPS = 20
"""Steps between two looks at how much of the work is done."""
_RENEWED = 5  # looks between two computations of all loads anew, which is when the best so far is kept
_POOL = 1 << 18  # exponential variates, drawn once and read from anywhere
_CELLS = 1 << 22  # slots times scenarios of the layers that are annealed together

_Singles = NDArray[np.float32]


def anneal(
    problem: Problem,
    slot_expert: Experts,
    *,
    spent: Callable[[], float],
    warm: float = WARM,
    seed: int = 0,
    on_round: Callable[[], None] = lambda: None,
) -> int:
    """Make ``slot_expert`` ``[layers, slots]`` better in place; return how many layers are.

    It is legal, and no layer worse by log-sum-exp, at any time, also when interrupted. Copies of an expert stay
    spread over failure domains if they were.

    Parameters
    ----------
    spent:
        How much of the work is done, growing from 0 to 1, asked every :data:`STEPS` steps: by counting calls, and
        then the answer is the same every time, or by the clock.
    warm:
        Temperature at the start.
    on_round:
        Called now and then.
    """
    size = max(1, _CELLS // (problem.slots * problem.scenarios))
    layers = np.array_split(np.arange(len(slot_expert)), -(-len(slot_expert) // size))
    states = [
        _State(problem.rows(rows), slot_expert[rows], np.random.default_rng([seed, part]))
        for part, rows in enumerate(layers)
    ]
    before = np.concatenate([state.best for state in states])
    rounds = 0
    while (done := spent()) < 1.0:
        rounds += 1
        for rows, state in zip(layers, states, strict=True):
            state.cool(warm * (COLD / warm) ** done)
            for _ in range(STEPS):
                state.step()
            if rounds % _RENEWED == 0:
                slot_expert[rows] = state.renew()
        on_round()
    for rows, state in zip(layers, states, strict=True):
        slot_expert[rows] = state.renew()
    return int((np.concatenate([state.best for state in states]) < before).sum())


def descend(problem: Problem, slot_expert: Experts) -> Experts:
    """Return ``[layers, slots]`` after swaps that help, at next to no temperature."""
    moved = slot_expert.copy()
    rounds = _DESCENT * problem.gpus // STEPS + 1
    done = iter(range(rounds + 1))
    anneal(problem, moved, spent=lambda: next(done) / rounds, warm=COLD)
    return moved


def step_cells(problem: Problem) -> int:
    """Numbers that a step writes, roughly: what its time grows with; 0 where there is no pair of GPUs."""
    each = int(problem.slots_per_gpu.max())
    swaps = (problem.gpus // 2) * each * each
    return problem.scenarios * problem.layers * 4 * (swaps + problem.gpus * (each + 2)) if swaps else 0


class _State:
    """Loads of slots and GPUs that go with a placement, ``[scenarios, (slot of a GPU,) GPU, layer]``."""

    def __init__(self, problem: Problem, slot_expert: Experts, rng: np.random.Generator) -> None:
        self.problem, self.rng, self.kept = problem, rng, slot_expert.copy()
        self.gpus, self.layers = problem.gpus, problem.layers
        self.each = int(problem.slots_per_gpu.max())
        self.worst = problem.objective == "worst"
        votes = np.full(problem.scenarios, 1 / problem.scenarios) if problem.votes is None else problem.votes
        self.votes = votes.astype(np.float32)[:, None, None]
        # Slot k of GPU g stands at [k, g]; GPUs with fewer slots than others have dead ones.
        first = problem.first_slot[:-1]
        place = np.arange(self.each)[:, None]
        self.dead = place >= problem.slots_per_gpu
        self.some_dead = bool(self.dead.any())
        self.slot = np.minimum(first + place, problem.slots - 1)
        self.alive = np.flatnonzero(~self.dead.ravel())
        self.order = np.argsort(self.slot.ravel()[self.alive], kind="stable")
        self.expert = np.ascontiguousarray(slot_expert.astype(np.int32).T[self.slot])
        self.expert[self.dead] = -1
        assignment = problem.assignment(slot_expert)
        self.copies = assignment.copies
        scale = problem.gpus / problem.experts
        self.share = np.ascontiguousarray(
            (problem.loads * scale / np.maximum(self.copies, 1)).transpose(0, 2, 1)
        )  # load of one copy, [scenarios, experts, layers]
        self.speed = problem.speed.astype(np.float32)[:, None]
        self.equal_speeds = problem.equal_speeds
        self.apart = not problem.each_alone
        if self.apart:
            self.domain = problem.failure_domain
            self.most = problem.most_in_domain(self.copies)
            self.in_domain = problem.in_domains(slot_expert)
        pairs = self.gpus // 2
        self.noise = rng.standard_exponential(_POOL + self.each**2 * pairs * self.layers, dtype=np.float32)
        self.scaled = self.noise
        self.change = np.empty((self.each, self.each, pairs, self.layers), np.float32)
        self.product = np.empty_like(self.change)
        self.same = np.empty(self.change.shape, bool)
        self._load()
        peak = np.maximum(self.gpu_load.max(axis=1, keepdims=True), 1.0)
        self.theta = (SHARPNESS / (peak.max(axis=0, keepdims=True) if self.worst else peak)).astype(
            np.float32
        )
        self._powers()
        self.best = self._price()

    def cool(self, temperature: float) -> None:
        """Set the temperature."""
        self.scaled = self.noise * np.float32(temperature)

    def renew(self) -> Experts:
        """Compute all loads anew, for rounding adds up; return the best ``[layers, slots]`` so far."""
        self._load()
        self._powers()
        value = self._price()
        won = value < self.best
        self.best[won] = value[won]
        flat = self.expert.reshape(-1, self.layers)[self.alive][self.order]
        self.kept[won] = flat.T[won]
        return self.kept

    def _load(self) -> None:
        """Set loads of slots (without the speed of their GPU) and of GPUs, from who lies where."""
        load = self.share[:, self.expert, np.arange(self.layers)]
        load[:, self.dead] = 0.0
        self.slot_load = load.astype(np.float32)
        self.gpu_load = (load.sum(axis=1) / self.speed.astype(np.float64)).astype(np.float32)

    def _powers(self) -> None:
        if self.equal_speeds:
            self.comes = np.exp(np.minimum(self.theta[:, None] * self.slot_load, _STEEPEST))
            self.leaves = 1 / self.comes

    def _price(self) -> Floats:
        """Set what a GPU's share of the sum is worth; return the objective, ``[layers]``."""
        power = self.theta * self.gpu_load
        top = power.max(axis=(0, 1) if self.worst else 1, keepdims=True)
        power -= top
        power = np.exp(power)
        if self.worst:
            power *= self.votes * len(power)
            total = power.sum(axis=1, keepdims=True).sum(axis=0, keepdims=True)
            value = (top + np.log(total)) / self.theta
            power /= total * self.theta
        else:
            total = power.sum(axis=1, keepdims=True)
            value = ((top + np.log(total)) / self.theta) * self.votes
            power *= self.votes / (total * self.theta)
        self.price, self.worth = power, power.sum(axis=0)
        found: Floats = value.sum(axis=0)[0].astype(np.float64)
        return found

    def step(self) -> None:
        """Pair the GPUs at random and make the swaps that the temperature lets through."""
        turn = int(self.rng.integers(self.gpus))
        # GPU i with GPU turn - i, modulo their number: each pair for one turn, and slices of memory.
        runs = [(low, high) for low, high in ((0, turn), (turn + 1, self.gpus - 1)) if high > low]
        if not runs:
            return
        weighed = self.price[:, None] * self.leaves if self.equal_speeds else None
        left, right, at = [], [], 0
        for low, high in runs:
            pairs = (high - low + 1) // 2
            here = slice(low, low + pairs)
            there = slice(high, high - pairs if high >= pairs else None, -1)
            self._weigh(weighed, here, there, slice(at, at + pairs))
            left.append(np.arange(low, low + pairs))
            right.append(np.arange(high, high - pairs, -1))
            at += pairs
        self._make(np.concatenate(left), np.concatenate(right))

    def _weigh(self, weighed: _Singles | None, here: slice, there: slice, at: slice) -> None:
        """Write what the swaps of pairs make of their two GPUs' sums, and which would meet a copy of their own."""
        change, product = self.change[:, :, at], self.product[:, :, at]
        if weighed is not None:
            mine, mine_goes = self.comes[:, :, here], weighed[:, :, here]
            # Turned round in memory, so that the loops below run over all pairs and layers at once.
            other = np.ascontiguousarray(self.comes[:, :, there])
            other_goes = np.ascontiguousarray(weighed[:, :, there])
        else:
            mine, mine_goes, other, other_goes = self._at_speeds(here, there)
        np.multiply(mine_goes[0, :, None], other[0, None], out=change)
        for scenario in range(len(self.price)):
            if scenario:
                np.multiply(mine_goes[scenario, :, None], other[scenario, None], out=product)
                np.add(change, product, out=change)
            np.multiply(mine[scenario, :, None], other_goes[scenario, None], out=product)
            np.add(change, product, out=change)
        np.equal(self.expert[:, here][:, None], self.expert[:, there][None], out=self.same[:, :, at])
        change -= self.worth[here] + self.worth[there]
        if self.some_dead:
            change[self.dead[:, None, here] | self.dead[None, :, there]] = np.inf

    def _at_speeds(self, here: slice, there: slice) -> tuple[_Singles, _Singles, _Singles, _Singles]:
        """Return the powers for pairs of GPUs that differ in speed: a copy weighs what its new GPU makes of it."""
        found: list[_Singles] = []
        for own, other in ((here, there), (there, here)):
            load = self.theta[:, None] * self.slot_load[:, :, own]
            comes = np.minimum(load / self.speed[other], _STEEPEST)
            leaves = np.minimum(load / self.speed[own], _STEEPEST)
            found += [np.exp(comes), self.price[:, None, own] * np.exp(-leaves)]
        return found[0], found[1], found[2], found[3]

    def _make(self, left: Index, right: Index) -> None:
        """Make the best swap of each pair where it lowers the sum, noise subtracted."""
        count = left.size
        shape = (self.each, self.each, count, self.layers)
        change = self.change[:, :, :count]
        start = int(self.rng.integers(_POOL))
        change -= self.scaled[start : start + change.size].reshape(shape)
        met = np.flatnonzero(self.same[:, :, :count])
        if met.size:  # a copy may not come to a GPU that holds its expert
            mine, other, pair, layer = np.unravel_index(met, shape)
            change[mine, :, pair, layer] = np.inf
            change[:, other, pair, layer] = np.inf
        flat = change.reshape(self.each**2, count * self.layers)
        pick = np.flatnonzero(flat.min(axis=0) < 0)
        if pick.size == 0:
            return
        mine, other = np.divmod(flat[:, pick].argmin(axis=0), self.each)
        pair, layer = np.divmod(pick, self.layers)
        self._swap(layer, (mine, left[pair]), (other, right[pair]))

    def _swap(self, layer: Index, one: tuple[Index, Index], two: tuple[Index, Index]) -> None:
        (place, gpu), (other_place, other) = one, two
        if self.apart:
            fine = self._spread(layer, one, two)
            layer, place, gpu = layer[fine], place[fine], gpu[fine]
            other_place, other = other_place[fine], other[fine]
        here, there = (place, gpu, layer), (other_place, other, layer)
        mine, theirs = self.slot_load[:, *here], self.slot_load[:, *there]
        change = theirs - mine
        self.gpu_load[:, gpu, layer] += change / self.speed[gpu, 0]
        self.gpu_load[:, other, layer] -= change / self.speed[other, 0]
        self.slot_load[:, *here], self.slot_load[:, *there] = theirs, mine
        if self.equal_speeds:
            for power in (self.comes, self.leaves):
                power[:, *here], power[:, *there] = power[:, *there], power[:, *here]
        self.expert[here], self.expert[there] = self.expert[there], self.expert[here]
        self._price()

    def _spread(self, layer: Index, one: tuple[Index, Index], two: tuple[Index, Index]) -> Bools:
        """Whether swaps leave copies spread over failure domains; keeps count of those that do."""
        experts = self.expert[(*one, layer)], self.expert[(*two, layer)]
        domains = self.domain[one[1]], self.domain[two[1]]
        crosses = domains[0] != domains[1]
        fine = np.ones(layer.size, dtype=bool)
        taken: set[tuple[int, int]] = set()
        for index in np.flatnonzero(crosses):
            row = int(layer[index])
            keys = [(row, int(expert[index])) for expert in experts]
            full = any(
                self.in_domain[row, goal[index], key[1]] >= self.most[row, key[1]]
                for key, goal in zip(keys, reversed(domains), strict=True)
            )
            # Of one expert one copy a step: the counts are those before it.
            if full or any(key in taken for key in keys):
                fine[index] = False
                continue
            taken.update(keys)
            for key, home, goal in zip(keys, domains, reversed(domains), strict=True):
                self.in_domain[row, home[index], key[1]] -= 1
                self.in_domain[row, goal[index], key[1]] += 1
        return fine
