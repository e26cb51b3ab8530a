"""How many hidden vectors a GPU moves in a dispatch, by kernel family, where all experts are loaded evenly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil, comb, floor
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topology.base.errors import InputError
from topology.base.units import added

_MOST_GPUS = 2**31


@dataclass(frozen=True)
class Routing:
    """How tokens choose among the experts of a layer, all experts alike.

    Attributes
    ----------
    experts, top_k:
        Logical experts, and how many of them a token uses.
    groups, topk_groups:
        A token may only use experts of ``topk_groups`` out of ``groups`` groups of consecutive experts
        (DeepSeek-V3 report, section 2.1.2: 4 of 8); 0, 0: no such limit.
    spread:
        A token's experts always lie on as many GPUs as they can (the "perfect router" of kernel benchmarks).
    """

    experts: int
    top_k: int
    groups: int = 0
    topk_groups: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.experts:
            raise InputError(f"top_k {self.top_k}: must lie between 1 and the {self.experts} experts.")
        if bool(self.groups) != bool(self.topk_groups):
            raise InputError(
                f"groups {self.groups}, topk_groups {self.topk_groups}: give both, or 0 and 0 for no limit."
            )
        if self.groups and not (
            self.topk_groups <= self.groups <= self.experts
            and self.experts % self.groups == 0
            and self.top_k <= self.topk_groups * (self.experts // self.groups)
        ):
            raise InputError(
                f"groups {self.groups}, topk_groups {self.topk_groups}: {self.top_k} of {self.experts} experts "
                "cannot be chosen so."
            )


def hit_chance(routing: Routing, part_gpus: ArrayLike, ep: ArrayLike) -> NDArray[np.float64]:
    """Chance that a token uses some expert on ``part_gpus`` consecutive GPUs out of ``ep``.

    The mean over all such parts, ``[...]`` as the arguments broadcast. Experts lie in order, equally many a GPU
    (a part of an expert where they do not divide). Without groups a part of ``m`` experts is missed with
    probability ``C(E - m, K) / C(E, K)``; with groups the same among the experts of the groups chosen,
    averaged over all choices of groups: exact, also where parts and groups do not line up.
    """
    part, whole = np.broadcast_arrays(np.asarray(part_gpus, dtype=np.int64), np.asarray(ep, dtype=np.int64))
    keys, inverse = np.unique(
        part * _MOST_GPUS + whole, return_inverse=True
    )  # few shapes, many configurations
    chances = np.array([_hit_chance(routing, *divmod(int(key), _MOST_GPUS)) for key in keys])
    return chances[inverse].reshape(part.shape)


@cache
def _hit_chance(routing: Routing, part_gpus: int, ep: int) -> float:
    if part_gpus >= ep:
        return 1.0
    if routing.spread:
        return min(1.0, routing.top_k * part_gpus / ep)
    experts, top_k = routing.experts, routing.top_k
    cap = top_k * part_gpus / ep  # pieces of an expert draw no more tokens than it has
    if not routing.groups:
        return min(cap, 1.0 - _missed(experts, experts * part_gpus / ep, top_k))
    width = Fraction(routing.groups * part_gpus, ep)  # groups that one part covers
    parts = [
        _grouped(routing, i * width, (i + 1) * width) for i in range(min(width.denominator, ep // part_gpus))
    ]
    return min(cap, added(parts) / len(parts))


def _grouped(routing: Routing, start: Fraction, end: Fraction) -> float:
    """Chance that a token hits experts from ``start`` to ``end``, both counted in groups."""
    size = routing.experts // routing.groups
    covered = [
        float(min(end, Fraction(i + 1)) - max(start, Fraction(i))) * size
        for i in range(floor(start), ceil(end))
    ]
    whole = sum(width == size for width in covered)
    partial = [width for width in covered if width < size]
    others = routing.groups - len(covered)
    missed = 0.0
    for chosen_partial in range(2 ** len(partial)):
        held = [width for bit, width in enumerate(partial) if chosen_partial >> bit & 1]
        for chosen_whole in range(whole + 1):
            rest = routing.topk_groups - len(held) - chosen_whole
            if not 0 <= rest <= others:
                continue
            ways = comb(whole, chosen_whole) * comb(others, rest)
            eligible = routing.topk_groups * size
            missed += ways * _missed(eligible, added(held) + chosen_whole * size, routing.top_k)
    return 1.0 - missed / comb(routing.groups, routing.topk_groups)


def _missed(experts: float, held: float, top_k: int) -> float:
    """Chance that none of ``top_k`` different experts out of ``experts`` is among ``held`` (not always whole)."""
    chance = 1.0
    for draw in range(top_k):
        chance *= min(1.0, max(0.0, (experts - held - draw) / (experts - draw)))
    return chance


Family = Literal["per-node", "per-copy", "per-rank", "all-gather"]
FAMILIES: tuple[Family, ...] = get_args(Family)
"""``per-node``: one copy to each other domain, forwarded there (DeepEP normal). ``per-copy``: one copy for each
expert (low latency). ``per-rank``: one copy to each GPU (one-sided). ``all-gather``: everything to everybody."""


@dataclass(frozen=True, eq=False)
class Volumes:
    """Hidden vectors of one dispatch for the busiest GPU; a combine returns the same number.

    Attributes
    ----------
    up, out:
        Vectors that cross its links of the scale-up and of the scale-out fabric, in one direction.
    received:
        Vectors that end on it, its own included.
    """

    up: NDArray[np.float64]
    out: NDArray[np.float64]
    received: NDArray[np.float64]


def require_family(name: str) -> Family:
    """Return the family called ``name``.

    Raises
    ------
    InputError
        If there is none.
    """
    for family in FAMILIES:
        if name == family:
            return family
    raise InputError(f"kernel family {name!r} is not known; choose one of {', '.join(FAMILIES)}.")


def alltoall_volumes(
    family: str, routing: Routing, *, tokens: ArrayLike, ep: ArrayLike, domain_gpus: ArrayLike
) -> Volumes:
    """Return the vectors that each GPU sends when all experts are equally loaded.

    Parameters
    ----------
    family:
        One of :data:`FAMILIES`.
    tokens:
        Tokens per GPU; any shape that broadcasts with the others.
    ep:
        GPUs of the EP group.
    domain_gpus:
        GPUs of the group in one scale-up domain; at least ``ep``: the group lies in one domain.

    Notes
    -----
    With ``h(g)`` the chance that a token uses an expert on ``g`` given GPUs (:func:`hit_chance`), ``N`` GPUs,
    ``D`` of them in a domain and ``K`` experts a token, a token sends

    ========== =================== ========================
    family     out                 up
    ========== =================== ========================
    per-copy   ``K (N - D) / N``   ``K (D - 1) / N``
    per-rank   ``(N - D) h(1)``    ``(D - 1) h(1)``
    per-node   ``(N/D - 1) h(D)``  ``N h(1) (D - 1) / D``
    all-gather ``(N - D) / D``     ``N (D - 1) / D``
    ========== =================== ========================

    Per-node copies arrive on the GPU of the sender's rail, which forwards them: one in ``D`` is already there.
    An all-gather fetches each vector once a domain, shared by its GPUs, and passes it on inside. In one domain
    both per-node terms are those of per-rank.

    Raises
    ------
    InputError
        If the family is not known, or a count is below one.
    """
    require_family(family)
    n, d = (np.asarray(value, dtype=np.int64) for value in (ep, domain_gpus))
    t = np.asarray(tokens, dtype=np.float64)
    if (n < 1).any() or (d < 1).any() or not (t >= 0).all():
        raise InputError("all-to-all: ep and domain_gpus must be at least 1, tokens at least 0.")
    d = np.minimum(n, d)
    if family == "per-copy":
        up, out = routing.top_k * (d - 1) / n, routing.top_k * (n - d) / n
        received = np.asarray(routing.top_k)
    elif family == "all-gather":
        up, out = n * (d - 1) / d, (n - d) / d
        received = n
    else:
        rank = hit_chance(routing, 1, n)
        received = n * rank
        if family == "per-rank":
            up, out = (d - 1) * rank, (n - d) * rank
        else:
            inside = np.where(n == d, (d - 1) * rank, n * rank * (d - 1) / d)
            up, out = inside, (n / d - 1) * hit_chance(routing, d, n)
    moved = np.broadcast_arrays(t * up, t * out, t * received)
    return Volumes(*moved)
