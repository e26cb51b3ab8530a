"""Failure domains of a cluster, and whether copies can be spread over them.

Whether they can is exact, and there is one way to do it. Experts are alike here: only counts and places decide. An
expert of *level* u has at most u copies in each of the D domains, and by
:func:`placement.experts.problem.most_in_domain` from ``(u - 1) D + 1`` to ``u D`` in all. Two experts whose levels
differ by two or more can trade copies until they differ by one, no more unlike in any domain than before. So the
levels are k and k + 1, and their sum alone is left to choose. For given levels copies are a flow from experts over
domains to GPUs; a flow may be averaged over the experts of one level, so that the one question left is how many
copies of the experts of level k + 1 each GPU holds. That number has a lower and an upper limit for each GPU, each
domain and in all: limits of nested sets, which can be met where none contradicts another. Copies dealt out in turn
then meet every cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost.inputs.deployment import Deployment
from placement.arrays import Experts, Ints
from placement.experts.problem import spread_slots
from placement.options import Spread
from topology.base.errors import InfeasibleError, input_name
from topology.base.units import plural
from topology.cluster import Gpu


def domain_name(gpu: Gpu, spread: Spread) -> str:
    """Return the id of what ``gpu`` fails with: itself, its node, or its rack (its node where none is named)."""
    return {"gpu": gpu.id, "node": gpu.node, "rack": gpu.rack}[spread]


def stage_domains(deployment: Deployment, members: Sequence[Sequence[int]], spread: Spread) -> Ints | None:
    """Return the failure domain of each GPU of a stage in all its replicas, int64 ``[gpus]``; None: each is one.

    ``members`` are the GPUs of the stage in each replica. All hold the same experts, so two of its places are in one
    failure domain where they are in some replica.
    """
    if spread == "gpu":
        return None
    number = deployment.numbered(spread)
    table = np.unique(number[np.array(members)], axis=0)
    joined = np.unique(table[0], return_inverse=True)[1].astype(np.int64).reshape(-1)
    while True:
        before = joined
        for row in table:
            least = np.full(int(row.max()) + 1, joined.size)
            np.minimum.at(least, row, joined)
            joined = least[row]
        if np.array_equal(before, joined):
            return joined


def require_apart(
    experts: int,
    slots_per_gpu: Ints,
    domains: Ints | None,
    word: str = input_name("spread"),
    *,
    once: bool = False,
) -> None:
    """Check that the slots can be filled with copies spread evenly over failure domains.

    They can with no expert twice in a domain exactly where no domain has more slots than there are experts
    (``once``: that alone will do). Else, of D domains with slots, an expert of c copies has at most
    ``ceil(c / D) <= (c + D - 1) / D`` in each: summed over experts, that is what the largest domain can take. That no
    GPU may hold an expert twice limits it further. Exact: what is refused has no legal placement.

    Raises
    ------
    InfeasibleError
        If they cannot: what binds, and what would go.
    """
    if domains is None:
        return
    per_domain = np.bincount(domains, weights=slots_per_gpu).astype(np.int64)
    most = int(per_domain.max())
    used = int((per_domain > 0).sum())
    if most <= experts or (used > 1 and not once and can_spread(experts, slots_per_gpu, domains)):
        return
    if used == 1 or once:
        over = f"these {used} domains" if used > 1 else "one domain"
        raise InfeasibleError(
            f"{word}: a failure domain has {plural(most, 'slot')} per layer for "
            f"{plural(experts, 'expert')}, so an expert would have two copies in it; over {over} at most "
            f"{input_name('redundant')} "
            f"{experts * (used - 1)} goes, or use a narrower {input_name('spread')} or a wider "
            f"{input_name('ep')}."
        )
    total = int(per_domain.sum())
    room = (total + (used - 1) * experts) // used
    if most > room:
        what = f"with the copies of {plural(experts, 'expert')} spread evenly it can take {room}"
    else:
        what = (
            f"the copies of {plural(experts, 'expert')} cannot fill them spread evenly with no "
            f"two of one on a GPU; failure "
            f"domains have {'/'.join(map(str, per_domain[per_domain > 0].tolist()))} slots"
        )
    raise InfeasibleError(
        f"{word}: of {total} slots per layer one of {used} failure domains has {most}, and {what}: "
        f"{_what_would_go(experts, slots_per_gpu, domains)}; or use a narrower {input_name('spread')}, or an "
        f"{input_name('ep')} with more similar failure domains."
    )


def _what_would_go(experts: int, slots_per_gpu: Ints, domains: Ints) -> str:
    """Return, in words, how many copies can be spread: of slots dealt to GPUs in turn `redundant` in all."""
    gpus, redundant = slots_per_gpu.size, int(slots_per_gpu.sum()) - experts
    if np.array_equal(slots_per_gpu, spread_slots(experts, gpus, redundant)):
        fits = (
            fewer
            for fewer in range(redundant - 1, -1, -1)
            if can_spread(experts, spread_slots(experts, gpus, fewer), domains)
        )
        return f"at most {input_name('redundant')} {next(fits)} goes"  # without extra copies it always does
    left = slots_per_gpu.copy()
    while not can_spread(experts, left, domains):
        per_domain = np.bincount(domains, weights=left)
        left[np.argmax(np.where(domains == np.argmax(per_domain), left, -1))] -= 1
    fewer = int(slots_per_gpu.sum() - left.sum())
    return f"with {fewer} slot{'s' * (fewer > 1)} fewer there it goes"


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
