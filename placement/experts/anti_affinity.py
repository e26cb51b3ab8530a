"""Anti-affinity over few failure domains: different domains where possible at low cost, else even spreading.

With as many domains as an expert wants copies, all lie in different ones, and the placement made so stays. Over
fewer a hot expert needs more copies than there are domains. The placement made without domains is then repaired
(:func:`spread_evenly`), pair exchanges that keep the rule follow, and layer by layer that is taken where it is
better. No expert has a third copy before all have two, so that as many as the slots allow outlive a failure,
whatever that costs balance.

The repair: first whole GPUs that are alike change places, which leaves all loads as they are, as long as fewer
copies are above their cap then. A copy that still is changes places with a copy of another expert in a domain that
may take it: of all such swaps the one after which the larger of the two GPU loads is smallest. Where none is left
(domains of different size, or counts that cannot be spread), an expert gets one copy more, which raises its cap, or
one fewer. Where not even that ends in a legal placement, one with counts that can be spread is the start instead
(:mod:`placement.experts.failure_domains`): whether there is any is decided before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.budget import Budget
from placement.experts.bounds import lower_bound
from placement.experts.counts import replicate
from placement.experts.failure_domains import require_apart, spread_row
from placement.experts.local_search import swap_down
from placement.experts.pack import distinct_copies, pack
from placement.experts.problem import Problem
from placement.experts.soft_max import descend

Place = Callable[[Problem, Budget], Experts]

LEAST_GAIN = 0.01
"""Of the largest load: for less, copies stay in different failure domains."""


def place_spread(problem: Problem, place: Place, budget: Budget, log: list[str]) -> Experts:
    """Return ``[layers, slots]`` with copies spread over the failure domains of ``problem``.

    ``place`` makes a placement with no expert twice in a domain, until ``budget``. Where that cannot be, or could be
    better by more than :data:`LEAST_GAIN` with more copies of an expert than domains, one made without domains is
    spread evenly. Where failure domains are given no expert has a third copy before all have two.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread evenly.
    """
    average = problem.average
    if problem.spread is None:
        return place(problem, budget)
    require_apart(average.experts, average.slots_per_gpu, average.failure_domain)
    if not average.each_alone and not average.can_be_apart:
        return _all_evenly(problem, place, budget, log)
    apart = place(problem, budget)
    rows = np.flatnonzero(~second_copies_first(problem.assignment(apart).copies))
    if rows.size:
        log.append(f"second copies before third copies in {rows.size} layers")
        apart[rows] = _with_second_copies(problem.rows(rows))
    if not average.each_alone and average.domains_used > 1 and problem.slots >= 2 * problem.experts:
        _evenly_where_better(problem, apart, log)
    return apart


def second_copies_first(copies: Ints) -> Bools:
    """Return where no expert has three copies while another has one, ``[layers]``, of ``[layers, experts]``."""
    fine: Bools = (copies.min(axis=1) > 1) | (copies.max(axis=1) < 3)
    return fine


def _with_second_copies(problem: Problem) -> Experts:
    """Place with no third copy of an expert before all have two.

    With fewer slots than for two each the experts with most load have two. Such counts can always be placed with no
    two copies in a domain: any k experts find as many slots in the others as in the largest one.
    """
    spare = problem.slots - problem.experts
    if spare >= problem.experts:
        return _swapped(problem, pack(problem.average, replicate(problem.highest, least=2)))
    heaviest = np.argsort(-problem.highest.mean, axis=1, kind="stable")[:, :spare]
    copies = np.ones((problem.layers, problem.experts), dtype=np.int64)
    np.put_along_axis(copies, heaviest, 2, axis=1)
    return _swapped(problem, pack(problem.average, copies))


def _all_evenly(problem: Problem, place: Place, budget: Budget, log: list[str]) -> Experts:
    """Place without failure domains, and spread the copies evenly."""
    free, twice = problem.without_spread(), problem.slots >= 2 * problem.experts
    slot_expert, fine = _spread(problem, _with_second_copies(free) if twice else place(free, budget))
    left = np.flatnonzero(~fine)
    if left.size:
        part = problem.rows(left)
        slot_expert[left] = _swapped(part, any_spread(part.highest))
    log.append(f"copies spread evenly over {problem.domains_used} failure domains in {problem.layers} layers")
    return slot_expert


def _evenly_where_better(problem: Problem, apart: Experts, log: list[str]) -> None:
    """Take layers with more copies of some expert than domains, two of each at least, where better, in place."""
    free = problem.without_spread()
    load = problem.evaluate(apart)
    fits = problem.average.counts_fit(replicate(free.highest))
    rows = np.flatnonzero(~fits & (load > lower_bound(free) * (1 + LEAST_GAIN)))
    if not rows.size:
        return
    part = problem.rows(rows)
    slot_expert, fine = _spread(part, _with_second_copies(part.without_spread()))
    fine &= second_copies_first(part.assignment(slot_expert).copies)
    better = fine & (part.evaluate(slot_expert) < load[rows] * (1 - LEAST_GAIN))
    apart[rows[better]] = slot_expert[better]
    if better.any():
        words = f"{problem.domains_used} failure domains in {int(better.sum())} layers"
        log.append(f"copies spread evenly over {words}")


def any_spread(problem: Problem) -> Experts:
    """Return a legal placement ``[layers, slots]``, the experts with most load with most copies; there is one."""
    order = np.argsort(-problem.mean, axis=1, kind="stable")
    row = spread_row(problem.experts, problem.slots_per_gpu, problem.failure_domain)
    return order[:, row].astype(np.int32)


def _swapped(problem: Problem, slot_expert: Experts) -> Experts:
    return (
        swap_down(problem, slot_expert) if problem.scenarios == 1 else descend(problem.searched, slot_expert)
    )


def _spread(problem: Problem, slot_expert: Experts) -> tuple[Experts, Bools]:
    """Spread copies evenly, then swap while it helps; return ``[layers, slots]`` and where that is legal."""
    spread, fine = spread_evenly(problem.average, slot_expert)
    rows = np.flatnonzero(fine)
    if rows.size:
        spread[rows] = _swapped(problem.rows(rows), spread[rows])
    return spread, fine


_HALF = 0.5  # a change of counts, in float32, is at least 1


def spread_evenly(problem: Problem, slot_expert: Experts) -> tuple[Experts, Bools]:
    """Return ``[layers, slots]`` with copies spread evenly over failure domains, and where that succeeded.

    ``slot_expert`` ``[layers, slots]`` has every expert. A layer in which neither a swap nor another count helps is
    returned as it came, and False in the second array ``[layers]``. Deterministic.
    """
    repaired, distinct = distinct_copies(problem.without_spread(), slot_expert)
    fine = problem.over_cap(repaired) == 0
    for layer in np.flatnonzero(~fine & distinct).tolist():
        one = _Layer(problem, problem.mean[layer], repaired[layer].copy())
        if one.repair():
            repaired[layer], fine[layer] = one.row, True
    repaired[~fine] = slot_expert[~fine]
    return repaired, fine


class _Layer:
    """One layer while it is repaired: what lies where, and how much each GPU has to do."""

    def __init__(self, problem: Problem, load: Floats, row: Experts) -> None:
        self.problem, self.load, self.row = problem, load, row
        self.gpu, self.domain = problem.slot_gpu, problem.failure_domain[problem.slot_gpu]
        self.index = np.arange(row.size)
        self.rows = replace(problem, loads=load[None, :])
        self._count()

    def _count(self) -> None:
        self.there = self.rows.in_domains(self.row[None, :])[0]
        self.copies = self.there.sum(axis=0)
        self.most = self.problem.most_in_domain(self.copies)
        self.on_gpu = self.problem.on_gpus(self.row[None, :])[0]
        self.share = self.load / self.copies
        self.busy = np.bincount(self.gpu, weights=self.share[self.row], minlength=self.problem.gpus)

    def repair(self) -> bool:
        """Swap, and where that ends exchange, until all is legal; return whether it is.

        Each swap leaves fewer copies above their cap, and none comes to be; other counts bring no other expert above
        its cap. As many steps as two a slot are more than any repair was seen to need.
        """
        while self._exchange_gpus():
            pass
        for _ in range(2 * self.row.size):
            over = self._above()
            if over.size == 0:
                return True
            if not (self._swap(over) or self._one_more(over) or self._exchange(over)):
                return False
        return False

    def _above(self) -> Index:
        """Slots of copies in domains that have too many of their expert."""
        return np.flatnonzero(self.there[self.domain, self.row] > self.most[self.row])

    def _exchange_gpus(self) -> bool:
        """Let two GPUs that are alike change places if that leaves fewer copies above their cap; whether it did.

        ``up`` and ``down`` are what one more and one copy fewer of an expert do in a domain. What both GPUs hold
        stays, so that its part in the sums is taken back.
        """
        held = self.on_gpu.astype(np.float32)
        over = np.maximum(self.there - self.most, 0)
        up = np.maximum(self.there + 1 - self.most, 0) - over
        down = np.maximum(self.there - 1 - self.most, 0) - over
        here = self.problem.failure_domain
        leaving = np.flatnonzero((self.on_gpu & (over > 0)[here]).any(axis=1))
        if leaving.size == 0:
            return False
        both = (up + down).astype(np.float32)
        comes = held @ up.T.astype(np.float32) + (held * down[here]).sum(axis=1, keepdims=True)
        change = comes[leaving][:, here] + comes[:, here[leaving]].T
        change -= (held * both[here])[leaving] @ held.T + held[leaving] @ (held * both[here]).T
        slots, speed = self.problem.slots_per_gpu, self.problem.speed
        alike = (slots[leaving][:, None] == slots) & (speed[leaving][:, None] == speed)
        change[~alike | (here[leaving][:, None] == here)] = 0.0
        a, h = divmod(int(np.argmin(change)), change.shape[1])
        if change[a, h] > -_HALF:
            return False
        g = int(leaving[a])
        for gpu, other in ((g, h), (h, g)):
            self.there[here[gpu]] += self.on_gpu[other].astype(np.int64) - self.on_gpu[gpu]
        first = self.problem.first_slot
        mine, theirs = slice(first[g], first[g + 1]), slice(first[h], first[h + 1])
        self.row[mine], self.row[theirs] = self.row[theirs].copy(), self.row[mine].copy()
        for table in (self.on_gpu, self.busy):
            table[[g, h]] = table[[h, g]]
        return True

    def _swap(self, over: Index) -> bool:
        mine, row, gpu, domain = self.row[over], self.row, self.gpu, self.domain
        here = domain[over]
        fine = here[:, None] != domain[None, :]
        fine &= (self.most[mine][:, None] > self.there[:, mine].T)[:, domain]  # there is room for mine
        fine &= ~self.on_gpu[:, mine].T[:, gpu]
        fine &= (self.there[here] < self.most)[:, row]  # and here for the other
        fine &= ~self.on_gpu[gpu[over]][:, row]
        if not fine.any():
            return False
        speed = self.problem.speed[gpu]
        moved = self.share[mine][:, None] - self.share[row][None, :]
        left = (self.busy[gpu[over]][:, None] - moved) / speed[over][:, None]
        right = (self.busy[gpu][None, :] + moved) / speed[None, :]
        cost = np.where(fine, np.maximum(left, right), np.inf)
        a, q = divmod(int(np.argmin(cost)), cost.shape[1])
        p = int(over[a])
        e, f = int(row[p]), int(row[q])
        change = self.share[e] - self.share[f]
        self.busy[gpu[p]] -= change
        self.busy[gpu[q]] += change
        for expert, old, new in ((e, p, q), (f, q, p)):
            self.there[domain[old], expert] -= 1
            self.there[domain[new], expert] += 1
            self.on_gpu[gpu[old], expert] = False
            self.on_gpu[gpu[new], expert] = True
            row[new] = expert
        return True

    def _one_more(self, over: Index) -> bool:
        """Give an expert above its cap one more copy if that raises it, for one that can best do with one fewer."""
        there, copies = self.there, self.copies
        raised = self.problem.most_in_domain(copies + 1)
        experts = np.unique(self.row[over])
        experts = experts[raised[experts] > self.most[experts]]
        experts = experts[np.argsort(-self.load[experts], kind="stable")]  # ties are not for names to decide
        left = self.problem.most_in_domain(copies - 1)
        beyond = there > left
        spared = (copies > 1) & (there - 1 <= left) & (beyond.sum(axis=0) - beyond == 0)
        fine = spared[self.domain, self.row] & ~self.on_gpu[self.gpu][:, experts].T
        fine &= (there < raised)[self.domain][:, experts].T
        if not fine.any():
            return False
        cost = np.where(fine, (self.load / np.maximum(copies - 1, 1))[self.row], np.inf)
        at, slot = divmod(int(np.argmin(cost)), cost.shape[1])
        self.row[slot] = experts[at]
        self._count()
        return True

    def _exchange(self, over: Index) -> bool:
        """Turn the lightest copy above its cap into one of the heaviest expert that may have one more there."""
        more = self.problem.most_in_domain(self.copies + 1)
        fine = (self.there < more)[self.domain[over]] & ~self.on_gpu[self.gpu[over]]
        fine[np.arange(over.size), self.row[over]] = False
        gain = np.where(fine, self.load / (self.copies + 1), -1.0) - self.share[self.row[over]][:, None]
        gain[~fine] = -np.inf
        at, expert = divmod(int(np.argmax(gain)), gain.shape[1])
        if not fine[at, expert]:
            return False
        self.row[over[at]] = expert
        self._count()
        return True
