"""Loads under which EPLB's greedy policy makes a placement that is given: for engines that read loads, not maps.

EPLB (one node, one group of experts) copies the expert of the largest load per copy until the slots are full, sorts
the copies by that and gives each to the GPU with the least so far that has a slot left. With loads per copy that are
nearly equal, ``B`` plus a little, each GPU gets its first copy in turn, then each its second, and so on: *rounds*.
The little ones decide the order of the GPUs in the next round, since a round goes from the least loaded GPU to the
most loaded one, and copies of one expert, which weigh the same, go to GPUs that follow each other. So

1. experts with several copies get a round each such that no GPU has two in one (a colouring of a graph), the others
   fill up;
2. from the last round back, the GPUs of a round are put in an order in which copies of one expert follow each other,
   and the little ones are chosen such that the loads before it are in that order.

The first two rounds are not free: in the first all loads are 0 and GPUs go by number, the second goes the other way
round. They hold experts with one copy; where that does not suffice the first one holds others too, and the GPUs of
the layer are numbered otherwise than asked. All is whole numbers that float32 holds; what is found is tried
(:func:`eplb_places`).
"""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints

_EXACT = 1 << 24
"""Whole numbers up to this are exact in float32, in which engines add loads."""
_TRIED = 20_000
"""Steps of a colouring that is given up then."""


def eplb_places(weights: Floats, slots: int, ranks: int) -> Ints:
    """Return EPLB's placement under loads ``[experts]``, int64 ``[slots]``: one node, one group of experts.

    It adds in float32 as engines do; copies of equal loads come in the order of their numbers.
    """
    load = weights.astype(np.float32)
    experts = len(load)
    copies = np.ones(experts, dtype=np.int64)
    held = list(range(experts))
    for _ in range(slots - experts):
        held.append(int(np.argmax(load / copies.astype(np.float32))))
        copies[held[-1]] += 1
    each = (load / copies.astype(np.float32))[held]
    busy, free = np.zeros(ranks, dtype=np.float32), np.full(ranks, slots // ranks)
    placed: list[list[int]] = [[] for _ in range(ranks)]
    for slot in np.argsort(-each, kind="stable").tolist():
        rank = int(np.argmin(np.where(free > 0, busy, np.inf)))
        placed[rank].append(held[slot])
        busy[rank] += each[slot]
        free[rank] -= 1
    return np.array(placed, dtype=np.int64).reshape(-1)


def copies_of(weights: Ints) -> Ints:
    """Return the copies that loads of :func:`weights_for` stand for, int64 ``[experts]``."""
    found: Ints = np.rint(weights / weights.min()).astype(np.int64)
    return found


def weights_for(held: Ints, experts: int) -> Ints | None:
    """Return loads ``[experts]`` under which EPLB places the experts of ``held`` ``[ranks, slots a rank]`` together.

    With the ranks in their order where it can be, else in another order. None where no such loads were found.
    """
    ranks, each = held.shape
    if each < 2:
        return None
    copies = np.bincount(held.reshape(-1), minlength=experts)
    for rounds in (range(2, each), [*range(2, each), 0]):
        colours = _colours(held, copies, len(rounds))
        if colours is None:
            continue
        found = _weigh(held, copies, {expert: rounds[colour] for expert, colour in colours.items()})
        if found is not None and _same(eplb_places(found.astype(np.float64), ranks * each, ranks), held):
            return found
    return None


def _same(placed: Ints, held: Ints) -> bool:
    """Whether the same experts lie together, on whatever rank."""
    both = (np.sort(rows, axis=1) for rows in (placed.reshape(held.shape), held))
    first, second = (rows[np.lexsort(rows.T[::-1])] for rows in both)
    return bool((first == second).all())


def _colours(held: Ints, copies: Ints, most: int) -> dict[int, int] | None:
    """Colour the experts with several copies so that no GPU has two of a colour; None where ``most`` do not do."""
    several = [expert for expert in range(len(copies)) if copies[expert] > 1]
    near: dict[int, set[int]] = {expert: set() for expert in several}
    for row in held.tolist():
        mine = [expert for expert in row if copies[expert] > 1]
        if len(mine) > most:
            return None
        for expert in mine:
            near[expert] |= set(mine) - {expert}
    colours: dict[int, int] = {}
    steps = 0

    def taken(expert: int) -> set[int]:
        return {colours[other] for other in near[expert] if other in colours}

    def coloured() -> bool:
        nonlocal steps
        steps += 1
        open_experts = [expert for expert in several if expert not in colours]
        if not open_experts or steps > _TRIED:
            return not open_experts
        expert = max(open_experts, key=lambda one: (len(taken(one)), len(near[one]), -one))
        used = max(colours.values(), default=-1)
        for colour in range(min(most, used + 2)):
            if colour not in taken(expert):
                colours[expert] = colour
                if coloured():
                    return True
                del colours[expert]
        return False

    return colours if coloured() else None


def _weigh(held: Ints, copies: Ints, round_of: dict[int, int]) -> Ints | None:
    """Return the loads of all experts, those with several copies in the given rounds; None: beyond float32."""
    ranks, each = held.shape
    owner = _rounds(held, copies, round_of)
    little = np.zeros((each, ranks), dtype=np.int64)  # of the copy that a GPU gets in a round
    target = np.zeros(
        ranks, dtype=np.int64
    )  # load before the round last looked at, the rounds' own part apart
    for number in range(each - 1, 1, -1):
        target = _round(owner[number], target, little[number])
    _first_two(owner[0], target, little[0], little[1])
    base = 0
    for number in range(each - 1, -1, -1):
        little[number] += base - little[number].min() + 1
        base = int(little[number].max())
    unit = base * (2 * int(copies.max()) + 2)
    if each * (unit + base) >= _EXACT or int(copies.max()) * (unit + base) >= _EXACT:
        return None
    found = np.zeros(len(copies), dtype=np.int64)
    for number in range(each):
        found[owner[number]] = (unit + little[number]) * copies[owner[number]]
    return found


def _rounds(held: Ints, copies: Ints, round_of: dict[int, int]) -> Ints:
    """Return the expert that each GPU gets in each round, ``[rounds, GPUs]``."""
    ranks, each = held.shape
    owner = np.full((each, ranks), -1, dtype=np.int64)
    for rank, row in enumerate(held.tolist()):
        for expert in row:
            if copies[expert] > 1:
                owner[round_of[expert], rank] = expert
        free = [number for number in range(each) if owner[number, rank] < 0]
        for number, expert in zip(free, (one for one in row if copies[one] == 1), strict=True):
            owner[number, rank] = expert
    return owner


def _blocks(owner: Ints, target: Ints) -> list[list[int]]:
    """Return the GPUs of each expert of a round by the load that they shall have after it, experts likewise."""
    blocks: dict[int, list[int]] = {}
    for rank in np.argsort(target, kind="stable").tolist():
        blocks.setdefault(int(owner[rank]), []).append(rank)
    return list(blocks.values())


def _round(owner: Ints, after: Ints, little: Ints) -> Ints:
    """Choose the little ones of a round, in place; return the loads before it. ``after`` all 0: the last round."""
    blocks = _blocks(owner, after)
    value = 0
    for before, block in zip([None, *blocks], blocks, strict=False):
        if before is not None:
            value -= max(1, 1 + int(after[before[-1]]) - int(after[block[0]]))
        little[block] = value
    found: Ints = after - little
    if not after.any():  # the last round: nothing comes after it, so it has any order
        found = np.empty_like(after)
        found[[rank for block in blocks for rank in block]] = np.arange(len(after))
        for place, block in enumerate(blocks):
            little[block] = -place
    return found


def _first_two(owner: Ints, after: Ints, first: Ints, second: Ints) -> None:
    """Choose the little ones of the first two rounds, in place; ``after`` is what loads shall be after both.

    In the second round GPUs go by what the first gave them, the least first, those with the same by their number.
    """
    alone = np.unique(owner).size == owner.size
    wanted = after if after.any() else np.arange(len(after))
    if alone:
        order = [[rank] for rank in reversed(range(len(owner)))]
    else:
        order = [list(reversed(block)) for block in reversed(_blocks(owner, wanted))]
    given = 0
    for before, block in zip([None, *order], order, strict=False):
        if before is not None:
            given += max(1, 1 + int(wanted[block[0]]) - int(wanted[before[-1]]))
        first[block] = given
    second[:] = wanted - first
