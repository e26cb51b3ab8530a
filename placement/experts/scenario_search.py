"""Best swaps under all scenarios at once: a smooth stand-in for the largest load, all pairs by one product.

The largest load of a scenario is replaced by ``log(sum over GPUs of exp(theta * load)) / theta`` (log-sum-exp): it
sees every GPU near the top, and what it finds holds better on loads not seen than what the largest load alone
finds (docs/placement.md). A swap changes the sum in two GPUs, and each of the two changes is a product of what
leaves and what comes, summed over scenarios: all pairs of slots are one matrix product. Swaps of different GPUs
add up exactly, so that many are made at once. Of the mean over scenarios of the logarithm the tangent is used,
which lies above it: what lowers the tangent lowers the mean. theta is lower in layers whose loads are far above the
mean, so that no power of e overflows or vanishes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.experts.problem import Problem

SHARPNESS = {"mean": 60.0, "worst": 80.0}
"""theta: how near log-sum-exp is to the largest load; loads are multiples of the mean."""
_LEAST_GAIN = 2e-4  # relative, of a swap, in the sum of exponentials
_ROUNDS = 400  # more than any descent needs
_CELLS = 1 << 22  # pairs of slots looked at in a round, over layers: more layers go in several parts
_HOT_CELLS = 1 << 16  # the same in one layer: of many slots, those of the hottest GPUs are paired with all
_HOT_GPUS = 8  # at least: fewer make too few swaps in a round
_STEEPEST = 300.0  # a product of two powers of e above that would overflow


def smooth_load(problem: Problem, slot_expert: Experts) -> Floats:
    """Return log-sum-exp of the GPU loads ``[layers]``, mean or worst over scenarios, of ``[layers, slots]``."""
    theta = SHARPNESS[problem.objective]
    assignment = problem.average.assignment(slot_expert)
    return _smooth(problem, _relative(problem, [assignment.gpu_load(load) for load in problem.loads]), theta)


def descend(problem: Problem, slot_expert: Experts) -> Experts:
    """Swap copies between GPUs until no swap helps, and return the new ``[layers, slots]``.

    Copies of an expert stay spread over failure domains if they were, and on different GPUs in any case.
    Deterministic.
    """
    moved = slot_expert.copy()
    hot_gpus = _hot_gpus(problem)
    size = max(1, _CELLS // pairs(problem))
    for start in range(0, len(moved), size):
        rows = np.arange(start, min(start + size, len(moved)))
        state = _State(problem.rows(rows), moved[rows], hot_gpus)
        active = np.arange(rows.size)
        for _ in range(_ROUNDS):
            if active.size == 0:
                break
            active = state.step(active)
        moved[rows] = state.slot_expert
    return moved


def pairs(problem: Problem) -> int:
    """Pairs of slots that a round looks at in a layer."""
    return _hot_gpus(problem) * int(problem.average.slots_per_gpu.max()) * problem.average.slots


def _hot_gpus(problem: Problem) -> int:
    average = problem.average
    each = int(average.slots_per_gpu.max()) * average.slots
    return min(average.gpus, max(_HOT_GPUS, _HOT_CELLS // each))


def _relative(problem: Problem, gpu_load: list[Floats]) -> Floats:
    """Return loads over speed as multiples of their mean, ``[scenarios, layers, gpus]``."""
    average = problem.average
    relative: Floats = np.stack(gpu_load) * (average.gpus / average.experts) / average.speed
    return relative


def _smooth(problem: Problem, load: Floats, theta: float) -> Floats:
    peak = load.max(axis=2 if problem.objective == "mean" else (0, 2), keepdims=True)
    power = np.exp(theta * (load - peak))
    if problem.objective == "mean":
        each: Floats = peak[:, :, 0] + np.log(power.sum(axis=2)) / theta
        return problem.over_scenarios(each)
    worst: Floats = peak[0, :, 0] + np.log(power.sum(axis=(0, 2))) / theta
    return worst


def _exp(exponent: Floats) -> Floats:
    power: Floats = np.exp(np.clip(exponent, -_STEEPEST, _STEEPEST))
    return power


class _State:
    """Loads and membership that go with ``slot_expert``, kept up to date swap by swap."""

    def __init__(self, problem: Problem, slot_expert: Experts, hot_gpus: int) -> None:
        average = problem.average
        self.problem, self.slot_expert, self.hot_gpus = problem, slot_expert, hot_gpus
        self.gpu, self.domain = average.slot_gpu, average.failure_domain
        assignment = average.assignment(slot_expert)
        scale = average.gpus / average.experts
        # Loads of slots without the speed of their GPU, of GPUs with it.
        self.slot_load = np.stack([assignment.slot_load(load) for load in problem.loads]) * scale
        self.gpu_load = _relative(problem, [assignment.gpu_load(load) for load in problem.loads])
        # Powers of e that neither overflow nor vanish: a copy of ten times the mean load needs a gentler theta.
        heaviest = np.maximum(
            self.slot_load.max(axis=(0, 2)) / average.speed.min(), self.gpu_load.max(axis=(0, 2))
        )
        self.theta = np.minimum(SHARPNESS[problem.objective], _STEEPEST / heaviest)
        self.multi = np.take_along_axis(assignment.copies, slot_expert.astype(np.int64), axis=1) > 1
        self.speeds, self.speed_class = np.unique(average.speed, return_inverse=True)
        self.on_gpu = average.on_gpus(slot_expert)
        self.alone = average.spread is None  # each GPU is a failure domain of its own
        if not self.alone:
            self.in_domain = average.in_domains(slot_expert).astype(np.int32)
            self.most = average.most_in_domain(assignment.copies)  # swaps change no counts
        self.offsets = np.arange(int(average.slots_per_gpu.max()))

    def step(self, active: Index) -> Index:
        """Make the best swaps of different GPUs in each of the ``active`` layers; return those where one helped."""
        price = self._price(active)
        hot = np.argsort(-price.sum(axis=0), axis=1, kind="stable")[:, : self.hot_gpus]
        first, per_gpu = self.problem.average.first_slot, self.problem.average.slots_per_gpu
        slots = first[hot][:, :, None] + self.offsets
        real = (self.offsets < per_gpu[hot][:, :, None]).reshape(active.size, -1)
        mine = np.minimum(slots, self.gpu.size - 1).reshape(active.size, -1)
        change = self._changes(active, price, mine)
        change[~real] = np.inf
        self._forbid(active, mine, change)
        return self._take(active, mine, change)

    def _price(self, active: Index) -> Floats:
        """Each GPU's share of the sum of exponentials, ``[scenarios, active, gpus]``; the shares sum to 1."""
        load = self.gpu_load[:, active]
        over = 2 if self.problem.objective == "mean" else (0, 2)
        power: Floats = np.exp(self.theta[active][:, None] * (load - load.max(axis=over, keepdims=True)))
        votes = self.problem.votes
        if votes is None or over != 2:
            power /= power.sum(axis=over, keepdims=True) * (len(power) if over == 2 else 1)
        else:
            power *= votes[:, None, None] / power.sum(axis=over, keepdims=True)
        return power

    def _changes(self, active: Index, price: Floats, mine: Ints) -> Floats:
        """Change of the sum of exponentials by each swap, ``[active, mine, slots]``: one product of matrices.

        Mine leaves its GPU and the other copy comes, for each speed that its GPU can have; the other leaves its
        own and mine comes; less what both GPUs had.
        """
        load = self.slot_load[:, active]
        my_load = np.take_along_axis(load, np.broadcast_to(mine, (len(load), *mine.shape)), axis=2)
        my_gpu = self.gpu[mine]
        my_price = np.take_along_axis(price, np.broadcast_to(my_gpu, my_load.shape), axis=2)
        price = price[:, :, self.gpu]
        left = [-my_price.sum(axis=0, keepdims=True), np.ones((1, *mine.shape))]
        right = [np.ones((1, *price.shape[1:])), -price.sum(axis=0, keepdims=True)]
        for number, speed in enumerate(self.speeds):
            theta = self.theta[active][:, None] / speed
            alike = self.speed_class[self.gpu] == number
            left += [my_price * _exp(-theta * my_load) * alike[mine], _exp(theta * my_load)]
            right += [_exp(theta * load), price * _exp(-theta * load) * alike]
        rows = np.ascontiguousarray(np.concatenate(left).transpose(1, 2, 0))
        columns = np.ascontiguousarray(np.concatenate(right).transpose(1, 0, 2))
        change: Floats = rows @ columns
        return change

    def _forbid(self, active: Index, mine: Ints, change: Floats) -> None:
        """Make swaps infinitely bad that would put too many copies of an expert in one failure domain, in place."""
        average = self.problem.average
        rows = active[:, None]
        my_gpu = self.gpu[mine]
        # Mine to a GPU where its expert is: only experts with several copies can be elsewhere.
        at, which = np.nonzero(self.multi[rows, mine])
        expert = self.slot_expert[rows, mine][at, which]
        every = np.arange(average.gpus, dtype=np.int32)
        copy, gpu = np.nonzero(self._met(active[at], expert, my_gpu[at, which], every))
        change[at[copy, None], which[copy, None], self._slots_of(gpu)] = np.inf
        # The other to mine, where its own expert is.
        at, slot = np.nonzero(self.multi[active])
        met = self._met(active[at], self.slot_expert[active[at], slot], self.gpu[slot], my_gpu[at])
        copy, which = np.nonzero(met)
        change[at[copy], which, slot[copy]] = np.inf
        # And two of one GPU have nothing to exchange.
        layer, which = np.arange(active.size)[:, None, None], np.arange(mine.shape[1])[None, :, None]
        change[layer, which, self._slots_of(my_gpu)] = np.inf

    def _slots_of(self, gpu: NDArray[np.integer]) -> Ints:
        """Return the slots of each GPU in a last axis, the last one again where it has fewer than others."""
        first = self.problem.average.first_slot
        slots: Ints = np.minimum(first[gpu][..., None] + self.offsets, first[gpu + 1][..., None] - 1)
        return slots

    def _met(self, layers: Index, expert: Experts, home: Experts, gpu: Index | Experts) -> Bools:
        """Whether an expert that leaves ``home`` may not go to ``gpu`` for copies of its own, ``[copies, gpus]``."""
        met: Bools = self.on_gpu[layers[:, None], gpu, expert[:, None]]
        if self.alone:
            return met
        there = self.domain[gpu]
        same: Bools = there == self.domain[home][:, None]
        rows = layers[:, None]
        full = self.in_domain[rows, there, expert[:, None]] >= self.most[rows, expert[:, None]]
        return met | (~same & full)

    def _take(self, active: Index, mine: Ints, change: Floats) -> Index:
        """Make the best swaps, no GPU and no expert in two of them; return the layers where there was one."""
        other = np.argmin(change, axis=2)
        best = np.take_along_axis(change, other[:, :, None], axis=2)[:, :, 0]
        gpus = self.gpu[mine], self.gpu[other]
        experts = self.slot_expert[active[:, None], mine], self.slot_expert[active[:, None], other]
        helped = np.zeros(active.size, dtype=bool)
        rows = np.arange(active.size)
        while rows.size:
            pick = np.argmin(best[rows], axis=1)
            fine = best[rows, pick] < -_LEAST_GAIN
            rows, pick = rows[fine], pick[fine]
            helped[rows] = True
            self._swap(active[rows], mine[rows, pick], other[rows, pick])
            for kind in (gpus, experts):
                for one in kind:
                    done = one[rows, pick][:, None]
                    best[rows] = np.where(
                        (kind[0][rows] == done) | (kind[1][rows] == done), np.inf, best[rows]
                    )
        return active[helped]

    def _swap(self, layers: Index, left: Ints, right: Ints) -> None:
        gpu, domain, speed = self.gpu, self.domain, self.problem.average.speed
        change = self.slot_load[:, layers, right] - self.slot_load[:, layers, left]
        self.gpu_load[:, layers, gpu[left]] += change / speed[gpu[left]]
        self.gpu_load[:, layers, gpu[right]] -= change / speed[gpu[right]]
        for table in (self.slot_expert, self.multi):
            table[layers, left], table[layers, right] = table[layers, right], table[layers, left]
        self.slot_load[:, layers, left] += change
        self.slot_load[:, layers, right] -= change
        for here, there in ((left, right), (right, left)):
            self.on_gpu[layers, gpu[here], self.slot_expert[layers, there]] = False
            self.on_gpu[layers, gpu[here], self.slot_expert[layers, here]] = True
        if not self.alone:
            for here, there in ((left, right), (right, left)):
                self.in_domain[layers, domain[gpu[here]], self.slot_expert[layers, there]] -= 1
            for here in (left, right):
                self.in_domain[layers, domain[gpu[here]], self.slot_expert[layers, here]] += 1
