"""Whether slots can be filled with copies spread evenly over failure domains: exact, and one way to do it.

Experts are alike here: only counts and places decide. An expert of *level* u has at most u copies in each of the D
domains, and by :func:`placement.experts.problem.most_in_domain` from ``(u - 1) D + 1`` to ``u D`` in all. Two
experts whose levels differ by two or more can trade copies until they differ by one, no more unlike in any domain
than before. So the levels are k and k + 1, and their sum alone is left to choose. For given levels copies are a
flow from experts over domains to GPUs; a flow may be averaged over the experts of one level, so that the one
question left is how many copies of the experts of level k + 1 each GPU holds. That number has a lower and an upper
limit for each GPU, each domain and in all: limits of nested sets, which can be met where none contradicts another.
Copies dealt out in turn then meet every cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Ints


@dataclass(frozen=True, eq=False)
class _Room:
    """Limits to the copies of the ``many`` experts of level ``level + 1``; the other experts have ``level``.

    ``low`` and ``high`` ``[gpus]``, ``low_there`` and ``high_there`` ``[domains]``, ``least`` and ``most`` in all.
    """

    many: int
    low: Ints
    high: Ints
    low_there: Ints
    high_there: Ints
    least: int
    most: int

    @property
    def consistent(self) -> bool:
        return bool((self.low_there <= self.high_there).all()) and self.least <= self.most


def can_spread(experts: int, slots_per_gpu: Ints, domains: Ints) -> bool:
    """Whether ``slots_per_gpu`` ``[gpus]`` can be filled with copies spread evenly; exact, see the module.

    ``domains`` ``[gpus]`` is the failure domain of each GPU, numbered from 0. No GPU has more slots than ``experts``.
    """
    return _room(experts, slots_per_gpu, domains) is not None


def spread_row(experts: int, slots_per_gpu: Ints, domains: Ints) -> Experts:
    """Return the expert of each slot in one legal placement, int32 ``[slots]``; the first experts have most copies.

    Parameters as of :func:`can_spread`.

    Raises
    ------
    ValueError
        If there is none.
    """
    room = _room(experts, slots_per_gpu, domains)
    if room is None:
        raise ValueError(f"copies of {experts} experts cannot be spread evenly over the slots")
    held = room.low.copy()  # copies of experts of the upper level on each GPU
    there = np.bincount(domains, weights=held, minlength=room.low_there.size).astype(np.int64)
    more = np.maximum(room.low_there - there, 0)
    left = room.least - int(there.sum() + more.sum())
    for domain in range(more.size):  # what is still to come goes to the first domains that can take it
        extra = min(max(left, 0), int(room.high_there[domain] - there[domain] - more[domain]))
        more[domain] += extra
        left -= extra
    for gpu in range(held.size):
        extra = min(int(more[domains[gpu]]), int(room.high[gpu] - held[gpu]))
        held[gpu] += extra
        more[domains[gpu]] -= extra
    return _dealt(experts, room.many, slots_per_gpu, held, domains)


def _room(experts: int, slots_per_gpu: Ints, domains: Ints) -> _Room | None:
    """Return limits that do not contradict each other for the smallest sum of levels that has some, or None."""
    per_domain = np.bincount(domains, weights=slots_per_gpu).astype(np.int64)
    used = int((per_domain > 0).sum())
    total = int(per_domain.sum())
    lowest = max(experts, int(per_domain.max()))
    # of D times the sum of levels at most D - 1 an expert are not there
    highest = lowest if used == 1 else (total + experts * (used - 1)) // used
    for levels in range(lowest, highest + 1):
        room = _limits(experts, levels, slots_per_gpu, domains, per_domain, used)
        if room.consistent:
            return room
    return None


def _limits(
    experts: int, levels: int, slots_per_gpu: Ints, domains: Ints, per_domain: Ints, used: int
) -> _Room:
    level, many = divmod(levels, experts)
    few, total = experts - many, int(per_domain.sum())
    low, high = np.maximum(slots_per_gpu - few, 0), np.minimum(slots_per_gpu, many)
    low_there = np.bincount(domains, weights=low).astype(np.int64)
    high_there = np.bincount(domains, weights=high).astype(np.int64)
    low_there = np.maximum(low_there, per_domain - few * level)
    high_there = np.minimum(high_there, many * (level + 1))
    if used == 1 and levels > experts:  # a second copy in a single domain is never legal
        return _Room(many, low, high, low_there, high_there, 1, 0)
    least = max(int(low_there.sum()), many * (used * level + 1), total - few * used * level)
    most = min(int(high_there.sum()), many * used * (level + 1), total - few * (used * (level - 1) + 1))
    return _Room(many, low, high, low_there, high_there, least, most)


def _dealt(experts: int, many: int, slots_per_gpu: Ints, held: Ints, domains: Ints) -> Experts:
    """Deal out the first ``many`` experts in turn, ``held`` ``[gpus]`` to each GPU, and so the others.

    GPUs of a domain follow each other, so that a run of copies that goes round ``n`` times brings each expert
    ``n`` times at most.
    """
    row = np.empty(int(slots_per_gpu.sum()), dtype=np.int32)
    first = np.concatenate(([0], np.cumsum(slots_per_gpu)))
    turn = [0, 0]
    classes = np.arange(many), np.arange(many, experts)
    for gpu in np.argsort(domains, kind="stable").tolist():
        slot = int(first[gpu])
        for which, count in enumerate((int(held[gpu]), int(slots_per_gpu[gpu] - held[gpu]))):
            if count:
                row[slot : slot + count] = classes[which][
                    (turn[which] + np.arange(count)) % classes[which].size
                ]
                turn[which] += count
                slot += count
    return row
