"""How many hidden vectors a GPU moves in a dispatch, by kernel family: of even routing, and of a placement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil, comb, floor
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.dispatch import ExpertUse
from topology.errors import InputError
from topology.units import added

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


@dataclass(frozen=True, eq=False)
class _Group:
    """GPUs of an EP group by domain: index of each GPU's domain, GPUs of each domain, tokens of a GPU."""

    index: NDArray[np.int64]
    members: NDArray[np.int64]
    tokens: float

    @property
    def all_tokens(self) -> float:
        return self.tokens * len(self.index)

    @property
    def in_domain(self) -> NDArray[np.float64]:
        """Tokens of each GPU's domain, ``[gpus]``."""
        return self.tokens * self.members[self.index].astype(np.float64)

    def by_domain(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum over each domain's GPUs, ``[..., gpus]`` to ``[..., domains]``."""
        order = np.argsort(self.index, kind="stable")
        starts = np.cumsum(self.members) - self.members
        return np.add.reduceat(values[..., order], starts, axis=-1)


def placed_volumes(
    family: str,
    use: ExpertUse,
    *,
    tokens: float,
    domain: NDArray[np.int64],
    groups: int = 0,
    topk_groups: int = 0,
) -> Volumes:
    """Return the vectors of the busiest GPU, each field ``[scenarios, layers]``.

    Parameters
    ----------
    family:
        Kernel family (:data:`cost.terms.alltoall_volumes.FAMILIES`).
    tokens:
        Tokens per GPU of the EP group.
    domain:
        Scale-up domain of each GPU of the group, ``[gpus]``.
    groups, topk_groups:
        Limit on the groups of experts that a token may use; 0, 0: none.

    Notes
    -----
    Every GPU sends as many tokens; what differs is how many experts' pairs a GPU receives. A GPU's busiest
    direction counts on each fabric, then the busiest GPU. Loads alone do not say which experts are chosen
    together: a token is taken to use a GPU or a domain with the chance of as many equally loaded experts
    (:meth:`ExpertUse.token_share`), lowered by a group limit as much as for even placement.

    Raises
    ------
    InputError
        If the family is not known.
    """
    require_family(family)
    index = np.unique(domain, return_inverse=True)[1].astype(np.int64)
    group = _Group(index, np.bincount(index), float(tokens))
    limit = (groups, topk_groups)
    if family == "all-gather":
        volumes = _all_gather(group)
        return Volumes(*(np.full(use.share.shape[:2], value) for value in volumes))
    chance = use.top_k * use.share if family == "per-copy" else _token_share(use, limit, use.gpus)
    received = group.all_tokens * chance.max(axis=-1)
    if family == "per-node" and len(group.members) > 1:
        up, out = _per_node(group, use, chance, limit)
    else:
        up, out = _direct(group, chance)
    return Volumes(up, out, received)


def _token_share(use: ExpertUse, limit: tuple[int, int], parts: int) -> NDArray[np.float64]:
    """Fraction of the tokens that each of ``parts`` parts of the experts receives, one copy a part."""
    share = use.token_share()
    if not limit[0]:
        return share
    free = float(hit_chance(Routing(use.experts, use.top_k), 1, parts))
    limited = float(hit_chance(Routing(use.experts, use.top_k, *limit), 1, parts))
    return share * (limited / free)


def _direct(group: _Group, chance: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each vector straight to the GPU that needs it; ``chance [..., gpus]`` copies of a token go to each."""
    of_domain = group.by_domain(chance)[..., group.index]
    # one domain has all: the same sum in another order would leave a residue that seems to leave it
    everywhere = of_domain if len(group.members) == 1 else chance.sum(axis=-1, keepdims=True)
    received_up = (group.in_domain - group.tokens) * chance
    received_out = (group.all_tokens - group.in_domain) * chance
    sent_up = group.tokens * (of_domain - chance)
    sent_out = group.tokens * (everywhere - of_domain)
    return _busiest(received_up, sent_up), _busiest(received_out, sent_out)


def _per_node(
    group: _Group, use: ExpertUse, chance: NDArray[np.float64], limit: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One copy to each other domain, on the sender's rail, then forwarded to the GPUs that need it."""
    domains = len(group.members)
    whole = replace(use, share=group.by_domain(use.share))
    reached = _token_share(whole, limit, domains)
    members = group.members[group.index]
    outside = group.all_tokens - group.in_domain
    of_domain = group.by_domain(chance)[..., group.index]
    # the forwarding GPU is one of its domain: what it needs itself does not move again
    received_up = ((group.in_domain - group.tokens) + outside * (members - 1) / members) * chance
    sent_up = (group.tokens + outside / members) * (of_domain - chance)
    received_out = outside / members * reached[..., group.index]
    sent_out = group.tokens * (reached.sum(axis=-1, keepdims=True) - reached[..., group.index])
    return _busiest(received_up, sent_up), _busiest(received_out, sent_out)


def _all_gather(group: _Group) -> tuple[float, float, float]:
    """Each vector to every domain once, shared by its GPUs, then to every GPU; whatever the experts."""
    members = group.members[group.index]
    outside = group.all_tokens - group.in_domain
    up = (group.in_domain - group.tokens) + outside * (members - 1) / members
    out = np.maximum(outside / members, group.tokens * (len(group.members) - 1))
    return float(up.max()), float(out.max()), group.all_tokens


def _busiest(received: NDArray[np.float64], sent: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.maximum(received.max(axis=-1), sent.max(axis=-1)))
