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

from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.online.policy import Group
from topology.errors import InputError

_BALANCED = 1.01  # max over mean rank load
_GAIN = 0.01  # of the mean rank load, that a swap must take off the busiest rank
_SWAPS = 100
_FEW = 4  # lightest ranks that are looked at first: mostly one of them takes part


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
        held = old.astype(np.int64).reshape(len(old), ranks, -1)
        before = _imbalance(held, load)
        layers = np.flatnonzero(~(before < _BALANCED))
        new = old.copy()
        if layers.size:
            work = _Layers.with_spare_copies(held[layers], load[layers])
            better = (work.swap(_GAIN * mean) / mean < before[layers]) & work.are_complete()
            new[layers[better]] = work.in_order(np.flatnonzero(better))
        return self._group.kept_in_place(old, new)


def _imbalance(held: Ints, load: Floats) -> Floats:
    """Largest over mean rank load ``[layers]``, each expert's load split evenly over its copies."""
    layers, experts = load.shape
    row = np.arange(layers)[:, None, None]
    copies = np.bincount((row * experts + held).ravel(), minlength=load.size).reshape(load.shape)
    ranks = (load / np.maximum(copies, 1))[row, held].sum(axis=2)
    imbalance: Floats = ranks.max(axis=1) / ranks.mean(axis=1)
    return imbalance


@dataclass(eq=False)
class _Layers:
    """Layers at work, each by itself.

    Attributes
    ----------
    placed:
        ``[layers, ranks, slots]``; -1 where nothing is placed yet.
    share:
        Load that a copy of each expert is taken to have, ``[layers, experts]``.
    busy:
        Load of each rank by that, ``[layers, ranks]``.
    sent:
        Whether a rank has sent another one something, ``[layers, from, to]``.
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
    held: list[list[set[int]]] = field(default_factory=list)

    @classmethod
    def with_spare_copies(cls, held: Ints, load: Floats) -> _Layers:
        """Keep the first copy of each expert and deal the other slots out anew."""
        layers, ranks, slots = held.shape
        row = np.arange(layers)[:, None, None]
        # the first copy in the order of slots, then ranks
        by_slot = held.transpose(0, 2, 1).reshape(layers, -1)
        order = np.argsort(by_slot, axis=1, kind="stable")
        ordered = np.take_along_axis(by_slot, order, axis=1)
        first = np.ones(order.shape, dtype=bool)
        np.put_along_axis(first, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)
        kept = first.reshape(layers, slots, ranks).transpose(0, 2, 1)
        home = np.zeros(load.shape, dtype=np.int64)
        layer, rank, slot = np.nonzero(kept)
        home[layer, held[layer, rank, slot]] = rank
        spare = (~kept).sum(axis=(1, 2))
        copies = _spare_copies(load, spare, ranks)
        # their estimate: a copy takes two of the copies + 1 parts of its expert's load (one of one, two of three...)
        share = 2 * load / (copies + 2)
        placed = np.ascontiguousarray(np.where(kept, held, -1))
        busy = np.ascontiguousarray(np.where(kept, share[row, held], 0.0)).sum(axis=2)
        sent = np.zeros((layers, ranks, ranks), dtype=bool)
        made = cls(placed, share, busy, sent, np.zeros(held.shape, dtype=bool))
        made._deal(copies, home)
        for number in np.flatnonzero((placed < 0).any(axis=(1, 2))).tolist():
            made._fill(number, load[number], home[number])
        return made

    def _deal(self, copies: Ints, home: Ints) -> None:
        """Put each spare copy, largest first, on the lightest rank with room that its home has sent nothing yet."""
        layer, expert = np.divmod(np.repeat(np.arange(copies.size), copies.ravel()), copies.shape[1])
        order = np.lexsort((-self.share[layer, expert], layer))
        layer, expert = layer[order], expert[order]
        first = np.searchsorted(layer, np.arange(len(copies) + 1))
        turn = np.arange(layer.size) - first[layer]
        free = (self.placed < 0).sum(axis=2)
        for number in range(int(turn.max(initial=-1)) + 1):
            row, which = layer[turn == number], expert[turn == number]
            closed = (free[row] == 0) | (self.placed[row] == which[:, None, None]).any(axis=2)
            closed |= self.sent[row, home[row, which]]
            busy = np.where(closed, np.inf, self.busy[row])
            rank = busy.argmin(axis=1)
            goes = ~closed[np.arange(row.size), rank]
            row, which, rank = row[goes], which[goes], rank[goes]
            empty = self.placed[row, rank] < 0
            slot = empty.shape[1] - 1 - empty[:, ::-1].argmax(axis=1)
            self.placed[row, rank, slot], self.came[row, rank, slot] = which, True
            self.sent[row, home[row, which], rank] = True
            self.busy[row, rank] += self.share[row, which]
            free[row, rank] -= 1

    def _fill(self, layer: int, load: Floats, home: Ints) -> None:
        """Give slots that are still open the experts of largest load per copy; loads are then as they are."""
        placed = self.placed[layer]
        number = np.bincount(placed[placed >= 0], minlength=load.size)
        per_copy = load / number
        for rank in np.flatnonzero((placed < 0).any(axis=1)).tolist():
            for slot in np.flatnonzero(placed[rank] < 0).tolist():
                share = per_copy.copy()
                share[placed[rank][placed[rank] >= 0]] = -1.0
                expert = int(_last_largest(share))
                placed[rank, slot], self.came[layer, rank, slot] = expert, True
                self.sent[layer, home[expert], rank] = True
                number[expert] += 1
                per_copy[expert] = load[expert] / number[expert]
        self.share[layer], self.busy[layer] = per_copy, per_copy[placed].sum(axis=1)

    def swap(self, gain: float) -> Floats:
        """Swap experts of the busiest ranks away as long as each swap takes off ``gain``; return their loads."""
        layers, ranks, _ = self.placed.shape
        self.held = [[set(row) for row in rows] for rows in self.placed.tolist()]
        holds = np.zeros((layers, ranks, self.share.shape[1]), dtype=bool)
        holds[np.arange(layers)[:, None, None], np.arange(ranks)[:, None], self.placed] = True
        peak, active = np.zeros(layers), np.arange(layers)
        for _ in range(_SWAPS):
            order = np.argsort(self.busy[active], axis=1, kind="stable")
            top = order[:, -1]
            peak[active] = self.busy[active, top]
            found, other, here, there = self._swaps_from(active, order, holds, gain)
            active, top = active[found], top[found]
            if not active.size:
                break
            goes, comes = self.placed[active, top, here], self.placed[active, other, there]
            self.placed[active, top, here], self.placed[active, other, there] = comes, goes
            self.came[active, top, here] = self.came[active, other, there] = True
            for rank, gone, new in ((top, goes, comes), (other, comes, goes)):
                holds[active, rank, gone], holds[active, rank, new] = False, True
                for layer, at, a, b in np.stack((active, rank, gone, new), axis=1).tolist():
                    self.held[layer][at].remove(a)
                    self.held[layer][at].add(b)
            change = self.share[active, goes] - self.share[active, comes]
            self.busy[active, top] -= change
            self.busy[active, other] += change
            self.sent[active, top, other] = self.sent[active, other, top] = True
        return peak

    def _swaps_from(
        self, layers: Ints, order: Ints, holds: Bools, gain: float
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Return for which ``layers`` there is a swap, the lightest rank for it, and the slots here and there.

        ``order`` ``[layers, ranks]``: the lightest rank first, and last the one that swaps; of the slots those that
        leave the two least loaded.
        """
        parts = []
        left = np.arange(layers.size)
        for begin, end in ((0, _FEW), (_FEW, order.shape[1] - 1)):
            others = order[left, begin : min(end, order.shape[1] - 1)]
            if not others.size:
                continue
            best, slots = self._after(layers[left], order[left, -1], others, holds)
            busy = self.busy[layers[left], order[left, -1]][:, None]
            enough = (best < busy) & (busy - best >= gain)
            at, which = np.flatnonzero(enough.any(axis=1)), enough.argmax(axis=1)
            which = which[at]
            here, there = np.divmod(slots[at, which], self.placed.shape[2])
            parts.append(np.stack((left[at], others[at, which], here, there)))
            left = np.delete(left, at)
        found = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), dtype=np.int64)
        found = found[:, np.argsort(found[0], kind="stable")]
        return found[0], found[1], found[2], found[3]

    def _after(self, layers: Ints, top: Ints, others: Ints, holds: Bools) -> tuple[Floats, Ints]:
        """Return the larger load after the best swap with each other rank, and its slots ``here * slots + there``."""
        row = layers[:, None]
        mine, theirs = self.placed[layers, top], self.placed[row, others]
        goes = ~self.came[layers, top][:, None] & ~holds[row[:, :, None], others[:, :, None], mine[:, None]]
        comes = ~self.came[row, others] & ~holds[row[:, :, None], top[:, None, None], theirs]
        apart = self.sent[row, others, top[:, None]] | self.sent[row, top[:, None], others]
        comes &= ~apart[:, :, None]
        share = self.share[row, mine][:, None, :, None]
        change = share - self.share[row[:, :, None], theirs][:, :, None, :]
        after = np.maximum(
            self.busy[layers, top][:, None, None, None] - change,
            self.busy[row, others][:, :, None, None] + change,
        )
        after[~(goes[:, :, :, None] & comes[:, :, None, :])] = np.inf
        flat = after.reshape(*others.shape, -1)
        slots = flat.argmin(axis=2)
        return np.take_along_axis(flat, slots[:, :, None], axis=2)[:, :, 0], slots

    def in_order(self, layers: Index) -> Ints:
        """Return the experts of all ranks of some layers, ``[layers, slots]``."""
        rows = [[expert for rank in self.held[layer] for expert in rank] for layer in layers.tolist()]
        return np.array(rows, dtype=np.int64).reshape(layers.size, self.placed[0].size)

    def are_complete(self) -> Bools:
        """Whether every expert of a layer has a copy, and no rank two of one."""
        rows = np.sort(self.placed, axis=2)
        held = np.zeros(self.share.shape, dtype=bool)
        held[np.arange(len(held))[:, None], self.placed.reshape(len(held), -1)] = True
        complete: Bools = (rows[:, :, 1:] != rows[:, :, :-1]).all(axis=(1, 2)) & held.all(axis=1)
        return complete


def _spare_copies(load: Floats, spare: Ints, ranks: int) -> Ints:
    """Return the spare copies of each expert: one at a time to the largest load per copy, below ranks less one."""
    copies = np.zeros(load.shape, dtype=np.int64)
    share = load.astype(np.float64)
    for number in range(int(spare.max(initial=0))):
        row = np.flatnonzero(spare > number)
        expert = _last_largest(np.where(copies[row] + 1 < ranks, share[row], -1.0))
        copies[row, expert] += copies[row, expert] + 1 < ranks
        share[row, expert] = 2 * load[row, expert] / (copies[row, expert] + 2)
    return copies


def _last_largest(values: Floats) -> Index:
    """Return the index of the largest value of each row, the last of equal ones."""
    last: Index = values.shape[-1] - 1 - values[..., ::-1].argmax(axis=-1)
    return last
