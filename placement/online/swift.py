"""A policy like vllm-ascend's SwiftBalancer: spare copies chosen anew, then swaps, each pair of ranks at most once.

References
----------
vllm-ascend, ``docs/source/developer_guide/Design_Documents/eplb_swift_balancer.md`` ("enhanced version optimizing
expert swaps for low-bandwidth devices"), vLLM #37656, and the behaviour of ``policy_swift_balancer`` at 182b75e,
against which ours is measured (``benchmarks/RESULTS.md``). In a layer that is not balanced to 1 %, the first copy
of each expert stays, and the slots of the others take experts anew, largest load per copy first, each on the rank
of least load, with one transfer at most from a rank to another. Then the most loaded rank swaps an expert with
another rank, lightest first, as long as its load falls by 1 % of the mean; ranks that have exchanged something are
no longer asked, and what has just come stays. A layer that gets worse is left as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placement.arrays import Bools, Experts, Floats, Ints
from placement.online.policy import Group
from topology.errors import InputError

_BALANCED = 1.01  # max over mean rank load
_GAIN = 0.01  # of the mean rank load, that a swap must take off the busiest rank
_SWAPS = 100


class SwiftBalancer:
    """See the module.

    Raises
    ------
    InputError
        If GPUs have unequal numbers of slots.
    """

    def __init__(self, group: Group) -> None:
        if not group.equal_slots:
            raise InputError("SwiftBalancer swaps between equally many slots; the plan's slots are unequal.")
        self._group = group
        self._load = np.zeros((group.layers, group.experts))

    def observe(self, window: Floats) -> None:
        """Add the window to the load since the last placement."""
        self._load = self._load + window

    def place(self, old: Experts) -> Experts:
        """Return the layers that are not balanced with other spare copies and swaps."""
        ranks = self._group.gpus
        load, self._load = self._load, np.zeros_like(self._load)
        mean = float(load[0].sum()) / ranks  # of the first layer: every layer routes as many tokens
        new = old.copy()
        for layer in range(self._group.layers):
            held = old[layer].reshape(ranks, -1)
            before = _imbalance(held, load[layer])
            if before < _BALANCED:
                continue
            work = _Layer.with_spare_copies(held, load[layer])
            peak = work.swap(_GAIN * mean)
            if peak / mean < before and work.is_complete(self._group.experts):
                new[layer] = work.in_order()
        return self._group.kept_in_place(old, new)


def _imbalance(held: Ints, load: Floats) -> float:
    """Largest over mean rank load, each expert's load split evenly over its copies."""
    ranks = (load / np.maximum(np.bincount(held.ravel(), minlength=load.size), 1))[held].sum(axis=1)
    return float(ranks.max() / ranks.mean())


@dataclass(eq=False)
class _Layer:
    """One layer at work.

    Attributes
    ----------
    placed:
        ``[ranks, slots]``; -1 where nothing is placed yet.
    share:
        Load that a copy of each expert is taken to have.
    busy:
        Load of each rank by that.
    sent:
        Whether a rank has sent another one something, ``[from, to]``.
    came:
        Whether a slot's expert came just now; such copies stay.
    held:
        Experts of each rank, in the order that decides which freed slot a new one takes, and so which copy is the
        first one the next time: that of a set of ids. Theirs is the same; an id is its own hash in every process.
    """

    placed: Ints
    share: Floats
    busy: Floats
    sent: Bools
    came: Bools
    held: list[set[int]] = field(default_factory=list)

    @classmethod
    def with_spare_copies(cls, held: Ints, load: Floats) -> _Layer:
        """Keep the first copy of each expert and deal the other slots out anew."""
        ranks, slots = held.shape
        # the first copy in the order of slots, then ranks
        first = np.zeros(held.size, dtype=bool)
        first[np.unique(held.T.ravel(), return_index=True)[1]] = True
        kept = first.reshape(slots, ranks).T
        home = np.zeros(load.size, dtype=np.int64)
        home[held[kept]] = np.nonzero(kept)[0]
        spare = int((~kept).sum())
        copies = _spare_copies(load, spare, ranks)
        # their estimate: a copy takes two of the copies + 1 parts of its expert's load (one of one, two of three...)
        share = 2 * load / (copies + 2)
        placed = np.where(kept, held, -1).astype(np.int64)
        busy = (np.where(kept, share[held], 0.0)).sum(axis=1)
        made = cls(
            placed, share, busy, np.zeros((ranks, ranks), dtype=bool), np.zeros(held.shape, dtype=bool)
        )
        made._deal(copies, home)
        if (placed < 0).any():
            made._fill(load, home)
        return made

    def _deal(self, copies: Ints, home: Ints) -> None:
        """Put each spare copy, largest first, on the lightest rank with room that its home has sent nothing yet."""
        experts = np.repeat(np.arange(copies.size), copies)
        for expert in experts[np.argsort(-self.share[experts], kind="stable")].tolist():
            open_ = (self.placed < 0).any(axis=1) & ~(self.placed == expert).any(axis=1)
            open_ &= ~self.sent[home[expert]]
            if open_.any():
                rank = int(np.where(open_, self.busy, np.inf).argmin())
                self._put(expert, rank, int(np.flatnonzero(self.placed[rank] < 0)[-1]), int(home[expert]))
                self.busy[rank] += self.share[expert]

    def _fill(self, load: Floats, home: Ints) -> None:
        """Give slots that are still open the experts of largest load per copy; loads are then as they are."""
        number = np.bincount(self.placed[self.placed >= 0], minlength=load.size)
        self.share = load / number
        for rank in np.flatnonzero((self.placed < 0).any(axis=1)).tolist():
            for slot in np.flatnonzero(self.placed[rank] < 0).tolist():
                share = self.share.copy()
                share[self.placed[rank][self.placed[rank] >= 0]] = -1.0
                expert = _last_largest(share)
                self._put(expert, rank, slot, int(home[expert]))
                number[expert] += 1
                self.share[expert] = load[expert] / number[expert]
        self.busy = self.share[self.placed].sum(axis=1)

    def _put(self, expert: int, rank: int, slot: int, home: int) -> None:
        self.placed[rank, slot], self.came[rank, slot] = expert, True
        self.sent[home, rank] = True

    def swap(self, gain: float) -> float:
        """Swap experts of the busiest rank away as long as each swap takes off ``gain``; return its load."""
        peak, self.held = 0.0, [set(row) for row in self.placed.tolist()]
        for _ in range(_SWAPS):
            ranks = np.argsort(self.busy, kind="stable")
            top = int(ranks[-1])
            peak = float(self.busy[top])
            found = self._swap_from(top, ranks[:-1], gain)
            if found is None:
                break
            other, here, there = found
            a, b = int(self.placed[top, here]), int(self.placed[other, there])
            self.placed[top, here], self.placed[other, there] = b, a
            self.came[top, here] = self.came[other, there] = True
            for rank, goes, comes in ((top, a, b), (other, b, a)):
                self.held[rank].remove(goes)
                self.held[rank].add(comes)
            change = self.share[a] - self.share[b]
            self.busy[top] -= change
            self.busy[other] += change
            self.sent[top, other] = self.sent[other, top] = True
        return peak

    def _swap_from(self, top: int, others: Ints, gain: float) -> tuple[int, int, int] | None:
        """Return the lightest rank to swap with, and the slots here and there that leave the two least loaded."""
        others = others[~self.sent[others, top] & ~self.sent[top, others]]
        mine, theirs = self.placed[top], self.placed[others]
        goes = ~self.came[top] & ~(mine[None, :, None] == theirs[:, None, :]).any(axis=2)  # [others, slots]
        comes = ~self.came[others] & ~np.isin(theirs, mine)
        change = self.share[mine][None, :, None] - self.share[theirs][:, None, :]
        after = np.maximum(self.busy[top] - change, self.busy[others][:, None, None] + change)
        after[~(goes[:, :, None] & comes[:, None, :])] = np.inf
        best = after.min(axis=(1, 2), initial=np.inf)
        enough = np.flatnonzero((best < self.busy[top]) & (self.busy[top] - best >= gain))
        if not enough.size:
            return None
        at = int(enough[0])
        here, there = divmod(int(after[at].argmin()), theirs.shape[1])
        return int(others[at]), here, there

    def in_order(self) -> Ints:
        """Return the experts of all ranks, ``[slots]``."""
        return np.array([expert for rank in self.held for expert in rank], dtype=np.int64)

    def is_complete(self, experts: int) -> bool:
        """Whether every expert has a copy, and no rank two of one."""
        rows = np.sort(self.placed, axis=1)
        return bool((rows[:, 1:] != rows[:, :-1]).all()) and np.unique(self.placed).size == experts


def _spare_copies(load: Floats, spare: int, ranks: int) -> Ints:
    """Return the spare copies of each expert: one at a time to the largest load per copy, below ranks less one."""
    copies = np.zeros(load.size, dtype=np.int64)
    share = load.astype(np.float64).copy()
    for _ in range(spare):
        expert = _last_largest(np.where(copies + 1 < ranks, share, -1.0))
        copies[expert] += copies[expert] + 1 < ranks
        share[expert] = 2 * load[expert] / (copies[expert] + 2)
    return copies


def _last_largest(values: Floats) -> int:
    """Return the index of the largest value, the last of equal ones."""
    return values.size - 1 - int(values[::-1].argmax())
