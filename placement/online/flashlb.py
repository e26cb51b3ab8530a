"""A policy like vllm-ascend's FlashLB: copies and places by mean and spread of load, where a layer has become worse.

References
----------
vllm-ascend, ``docs/source/developer_guide/Design_Documents/eplb_swift_balancer.md`` ("threshold-based adjustment
... through layer-wise fluctuation detection") and the behaviour of ``policy_flashlb`` at 182b75e, against which
ours is measured (``benchmarks/RESULTS.md``): a layer is placed afresh where its balancedness has fallen below .85,
or below .9 of what its last placement promised (.9 and .95 in groups of fewer than 32 ranks). The risk of a load is
its mean plus .6745 deviations. Experts are sorted by risk and cut into four parts; part by part the number of
copies that it takes of those left is searched, eight to each side of the greedy share, each tried by placing all
copies, largest mean load first, on the rank that is then at least risk. The ranks of the new placement are matched
to the old ones so that most copies stay.
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Bools, Experts, Floats, Ints
from placement.migrate.start import relabel
from placement.online.policy import Group
from topology.errors import InputError

STEPS = 600 + 50
"""``expert_heat_collection_interval`` and ``algorithm_execution_interval``; then one step for each layer."""

_QUARTILE = 0.6744897501960817  # deviations above the mean that three of four normal draws are below
_PARTS, _WIDTH, _MOST_STAGES = 4, 8, 64
_MANY_RANKS = 32
_LEVEL, _RATIO = (0.9, 0.85), (0.95, 0.9)  # of few ranks, of many
_NOTHING = 1e-2  # tokens that keep a ratio finite


class FlashLB:
    """See the module.

    Raises
    ------
    InputError
        If GPUs have unequal numbers of slots.
    """

    def __init__(self, group: Group) -> None:
        if not group.equal_slots:
            raise InputError("FlashLB places equally many copies on each GPU; the plan's slots are unequal.")
        self._group = group
        self._each = group.slot_gpu.size // group.gpus
        self._seen: list[Floats] = []
        self._promised = np.zeros(group.layers)
        many = group.gpus >= _MANY_RANKS
        self._level, self._ratio = _LEVEL[many], _RATIO[many]

    def observe(self, window: Floats) -> None:
        """Keep the window until the next placement."""
        self._seen.append(window)

    def place(self, old: Experts) -> Experts:
        """Return ``old`` with the layers that have become worse placed afresh."""
        stages = np.stack(self._seen, axis=1) + 1.0  # [layers, stages, experts]
        self._seen = []
        now = self._balancedness(stages, old)
        due = (now < self._promised * self._ratio) | (now < self._level) | (self._promised == 0)
        layers = np.flatnonzero(due)
        if not layers.size:
            return old
        found, complete = self._search(_fewer(stages[layers]))
        layers, found = layers[complete], found[complete]
        promised = self._balancedness(_fewer(stages[layers]), found)
        better = (
            promised > now[layers]
        )  # what it then remembers; what it installs is every layer that it placed
        self._promised[layers[better]] = promised[better]
        new = old.copy()
        if layers.size:
            new[layers] = relabel(self._group.task(old).rows(layers), found)
        return new

    def _balancedness(self, stages: Floats, placed: Experts) -> Floats:
        """Mean over max rank load, one over the mean of its inverse over stages, ``[layers]``."""
        copies = _copies(placed, stages.shape[2])
        share = np.take_along_axis(stages / copies[:, None], placed[:, None].astype(np.int64), axis=2)
        ranks = share.reshape(*share.shape[:2], self._group.gpus, self._each).sum(axis=3)
        peak = (ranks.max(axis=2) * self._group.gpus + _NOTHING) / (ranks.sum(axis=2) + _NOTHING)
        balance: Floats = 1.0 / peak.mean(axis=1)
        return balance

    def _search(self, stages: Floats) -> tuple[Experts, Bools]:
        """Return the placement of each layer ``[layers, slots]``, and whether all its copies found a rank."""
        layers, _, experts = stages.shape
        spread = stages.std(axis=1, ddof=1) if stages.shape[1] > 1 else np.zeros((layers, experts))
        risk = stages.mean(axis=1) + _QUARTILE * spread
        order = np.argsort(-risk, axis=1, kind="stable")
        sorted_risk = np.take_along_axis(risk, order, axis=1)
        copies = np.ones((layers, experts), dtype=np.int64)  # by rank in `order`
        left = np.full(layers, self._group.slot_gpu.size - experts)
        size = -(-experts // _PARTS)
        for part in range(_PARTS - 1):
            begin, end = part * size, min(experts, (part + 1) * size)
            if begin >= experts:
                break
            most = int(left.max())
            first = _histories(sorted_risk[:, begin:end], most)
            if end == experts:
                copies[:, begin:end] = first[np.arange(layers), left]
                break
            rest = _histories(sorted_risk[:, end:], most)
            greedy = _histories(sorted_risk[:, begin:], most)[np.arange(layers), left]
            guess = (greedy[:, : end - begin] - 1).sum(axis=1)
            taken = self._best(stages, order, copies, (begin, end), (first, rest), (guess, left))
            copies[:, begin:end] = first[np.arange(layers), taken]
            left = left - taken
            copies[:, end:] = rest[np.arange(layers), left]
        return self._placed(stages, order, copies)

    def _best(
        self,
        stages: Floats,
        order: Ints,
        copies: Ints,
        span: tuple[int, int],
        histories: tuple[Ints, Ints],
        room: tuple[Ints, Ints],
    ) -> Ints:
        """Return how many copies a part takes, ``[layers]``: of those near the guess, the one of best balance.

        ``span`` is the part in ``order``; ``histories`` the copies of its experts and of those after it for each
        number of spare ones, ``[layers, spare + 1, experts]``; ``room`` the guess and the spare copies of each layer.
        """
        (begin, end), (first, rest), (guess, left) = span, histories, room
        # in the order of the search: of equals the one nearest to the guess, and of those the lower one
        steps = np.array([0, *(sign * far for far in range(1, _WIDTH + 1) for sign in (-1, 1))])
        tried = guess[:, None] + steps
        layer, which = np.nonzero((tried >= 0) & (tried <= left[:, None]))
        number = tried[layer, which]
        trial = copies[layer].copy()
        trial[:, begin:end] = first[layer, number]
        trial[:, end:] = rest[layer, left[layer] - number]
        placed, complete = self._placed(stages[layer], order[layer], trial)
        score = np.full(tried.shape, -1.0)
        score[layer, which] = 0.0
        layer, which = layer[complete], which[complete]
        score[layer, which] = self._balancedness(stages[layer], placed[complete])
        best: Ints = tried[np.arange(len(tried)), score.argmax(axis=1)]
        return best

    def _placed(self, stages: Floats, order: Ints, copies: Ints) -> tuple[Experts, Bools]:
        """Place copies, largest mean load first, on the rank of least risk that has room and not that expert.

        ``copies`` is by rank in ``order``, ``[rows, experts]``. A row that cannot be completed is returned as False.
        """
        rows, times, _ = stages.shape
        gpus, each = self._group.gpus, self._each
        number = np.empty_like(copies)
        np.put_along_axis(number, order, copies, axis=1)
        mean = stages.mean(axis=1) / number
        turn = np.argsort(-mean, axis=1, kind="stable")
        index = np.arange(rows)
        repeats = np.take_along_axis(number, turn, axis=1)
        sequence = np.repeat(turn.ravel(), repeats.ravel()).reshape(rows, gpus * each)
        if times == 1:
            placed, complete = _dealt(np.take_along_axis(mean, sequence, axis=1), sequence, gpus)
            return placed, complete & (placed >= 0).all(axis=1)
        apart = (stages - stages.mean(axis=1, keepdims=True)) / (np.sqrt(times - 1) * number[:, None])
        load, swing = np.zeros((rows, gpus)), np.zeros((rows, gpus, times))
        last, fill = np.full((rows, gpus), -1), np.zeros((rows, gpus), dtype=np.int64)
        placed = np.full((rows, gpus, each), -1, dtype=np.int32)
        complete = np.ones(rows, dtype=bool)
        for step in range(gpus * each):
            expert = sequence[:, step]
            moved = swing + apart[index, :, expert][:, None]
            # its own mean is the same everywhere
            risk = load + _QUARTILE * np.sqrt((moved * moved).sum(axis=2))
            # copies of an expert come one after another
            risk[(fill == each) | (last == expert[:, None])] = np.inf
            rank = risk.argmin(axis=1)
            complete &= np.isfinite(risk[index, rank])
            spot = np.minimum(fill[index, rank], each - 1)
            placed[index, rank, spot] = expert
            load[index, rank] += mean[index, expert]
            swing[index, rank] = moved[index, rank]
            fill[index, rank] += 1
            last[index, rank] = expert
        return placed.reshape(rows, gpus * each), complete & (placed >= 0).all(axis=(1, 2))


def _dealt(weight: Floats, sequence: Ints, gpus: int) -> tuple[Experts, Bools]:
    """Put copies, heaviest first, on the lightest rank that has room and not that expert: one stage has no swing.

    ``weight`` and ``sequence`` are loads and experts of the copies, those of an expert one after another, ``[rows,
    copies]``. Returns experts by slot, and whether each copy found such a rank.
    """
    rows, slots = sequence.shape
    each = slots // gpus
    experts, weights = np.ascontiguousarray(sequence.T), np.ascontiguousarray(weight.T)
    again = np.zeros(experts.shape, dtype=bool)
    again[1:] = experts[1:] == experts[:-1]
    load = np.zeros((rows, gpus))  # inf where a rank is full
    last, room = np.full(rows * gpus, -1), np.full(rows * gpus, each)
    placed, complete = np.full(rows * slots, -1, dtype=np.int32), np.ones(rows, dtype=bool)
    flat, first, number = load.ravel(), np.arange(rows) * gpus, np.arange(gpus)
    for expert, added, repeated in zip(experts, weights, again, strict=True):
        at = load.argmin(axis=1)
        at += first
        row = repeated.nonzero()[0]
        if row.size:  # a rank has it already
            ranks = first[row, None] + number
            risk = np.where(last[ranks] == expert[row, None], np.inf, load[row])
            rank = risk.argmin(axis=1)
            at[row] = first[row] + rank
            complete[row] &= risk[np.arange(row.size), rank] < np.inf
        left = np.maximum(room[at] - 1, 0)
        placed[at * each + left] = expert
        now = np.where(left == 0, np.inf, flat[at] + added)
        flat[at], room[at], last[at] = now, left, expert
    # where all ranks were full another copy was replaced, and a slot is left open
    return placed.reshape(rows, gpus, each)[:, :, ::-1].reshape(rows, slots), complete


def _fewer(stages: Floats) -> Floats:
    """Return ``[layers, stages, experts]`` with many stages summed into 64 of equally many, the oldest left out."""
    size = max(1, stages.shape[1] // _MOST_STAGES)
    if size == 1:
        return stages[:, -_MOST_STAGES:]
    kept = stages[:, -size * _MOST_STAGES :]
    summed: Floats = kept.reshape(len(kept), _MOST_STAGES, size, -1).sum(axis=2)
    return summed


def _histories(weight: Floats, most: int) -> Ints:
    """Return the copies for 0 to ``most`` spare ones, ``[layers, spare, experts]``: each to the largest per copy."""
    layers, experts = weight.shape
    counts = np.ones((layers, most + 1, experts), dtype=np.int64)
    now, index = np.ones((layers, experts), dtype=np.int64), np.arange(layers)
    for spare in range(1, most + 1):
        now[index, np.argmax(weight / now, axis=1)] += 1
        counts[:, spare] = now
    return counts


def _copies(placed: Experts, experts: int) -> Ints:
    """Copies of each expert, at least 1 that nothing is divided by 0, ``[layers, experts]``."""
    key = np.arange(len(placed))[:, None] * experts + placed
    counts = np.bincount(key.ravel(), minlength=len(placed) * experts).reshape(len(placed), experts)
    return np.maximum(counts, 1)
