"""How many hidden vectors a GPU moves in a dispatch, by kernel family: with even experts, or as they are placed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil, comb, floor
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.experts.assignment import numbered, sum_by_place
from cost.experts.hits import TokenHits
from cost.experts.use import ExpertUse
from topology.base.errors import InputError
from topology.base.units import added

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_GPUS = 2**31


@dataclass(frozen=True)
class Routing:
    """How tokens choose among the experts of a layer, with equally loaded experts.

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

    up: Floats
    out: Floats
    received: Floats


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
class GpuVectors:
    """Hidden vectors of one dispatch by GPU, each ``[scenarios, layers, gpus]``; a combine returns the same number.

    Attributes
    ----------
    received_up, sent_up:
        Over its links of the scale-up fabric, in and out.
    received_out, sent_out:
        Over its links of the scale-out fabric.
    received:
        That end on it, its own included.
    """

    received_up: Floats
    sent_up: Floats
    received_out: Floats
    sent_out: Floats
    received: Floats

    @property
    def busiest(self) -> Volumes:
        """Of the busiest GPU in its busier direction, ``[scenarios, layers]``."""
        return Volumes(
            _busiest(self.received_up, self.sent_up),
            _busiest(self.received_out, self.sent_out),
            np.asarray(self.received.max(axis=-1)),
        )


def _busiest(received: Floats, sent: Floats) -> Floats:
    return np.asarray(np.maximum(received.max(axis=-1), sent.max(axis=-1)))


def placed_vectors(
    family: str,
    use: ExpertUse,
    *,
    tokens: float,
    domain: Ints,
    limit: tuple[int, int] = (0, 0),
) -> GpuVectors:
    """Return the vectors that each GPU moves; scenarios are the traces where ``use`` knows them, else its loads.

    Parameters
    ----------
    family:
        One of :data:`FAMILIES`.
    tokens:
        Tokens per GPU of the EP group.
    domain:
        Scale-up domain of each GPU of the group, ``[gpus]``.
    limit:
        Groups of experts, and how many of them a token may use; 0, 0: no limit. Not read where hits are known.

    Notes
    -----
    Every GPU sends as many tokens; what differs is how many experts' pairs a GPU receives. Where routing traces say
    which experts are chosen together (:attr:`ExpertUse.hits`), tokens go where those of the traces go. Loads alone do
    not say it: a token is then taken to use a GPU or a domain with the chance of as many equally loaded experts
    (:func:`independent_hits`).

    Raises
    ------
    InputError
        If the family is not known.
    """
    require_family(family)
    index = numbered(domain)
    group = _Group(index, np.bincount(index), float(tokens))
    hits = use.hits
    if family == "all-gather":
        return _all_gather(group, use.share.shape[:2] if hits is None else hits.gpus.shape[:2])
    per_node = family == "per-node" and len(group.members) > 1
    if hits is None:
        chance = use.top_k * use.share if family == "per-copy" else independent_hits(use, limit)
        if not per_node:
            return _direct(group, chance)
        whole = replace(use, share=sum_by_place(use.share, index))
        return _per_node(group, chance, independent_hits(whole, limit))
    chance = hits.pairs if family == "per-copy" else hits.gpus
    if chance.shape[2] > 1:
        return _per_node_by_source(group, hits) if per_node else _direct_by_source(group, chance)
    if per_node:
        return _per_node(group, chance[:, :, 0], hits.domains[:, :, 0])
    return _direct(group, chance[:, :, 0])


@dataclass(frozen=True, eq=False)
class _Group:
    """GPUs of an EP group by domain: index of each GPU's domain, GPUs of each domain, tokens of a GPU."""

    index: Ints
    members: Ints
    tokens: float

    @property
    def all_tokens(self) -> float:
        return self.tokens * len(self.index)

    @property
    def in_domain(self) -> Floats:
        """Tokens of each GPU's domain, ``[gpus]``."""
        return self.tokens * self.members[self.index].astype(np.float64)

    def of_domain(self, values: Floats) -> Floats:
        """Sum over the GPUs of each GPU's domain, ``[..., gpus]``."""
        return sum_by_place(values, self.index)[..., self.index]


def independent_hits(use: ExpertUse, limit: tuple[int, int]) -> Floats:
    """Return the chance that a token reaches each place of ``use.share`` if experts were chosen independently.

    ``limit``: groups of experts and how many of them a token may use, which lowers it as much as for even placement.
    It is also the fraction of the tokens that a place receives, one copy a place, ``[scenarios, layers, places]``.
    """
    share = use.token_share()
    if not limit[0]:
        return share
    free = float(hit_chance(Routing(use.experts, use.top_k), 1, use.gpus))
    limited = float(hit_chance(Routing(use.experts, use.top_k, *limit), 1, use.gpus))
    return share * (limited / free)


def _direct(group: _Group, chance: Floats) -> GpuVectors:
    """Each vector straight to the GPU that needs it; ``chance [..., gpus]`` copies of a token go to each."""
    of_domain = group.of_domain(chance)
    # one domain has all: the same sum in another order would leave a residue that seems to leave it
    everywhere = of_domain if len(group.members) == 1 else chance.sum(axis=-1, keepdims=True)
    return GpuVectors(
        received_up=(group.in_domain - group.tokens) * chance,
        sent_up=group.tokens * (of_domain - chance),
        received_out=(group.all_tokens - group.in_domain) * chance,
        sent_out=group.tokens * (everywhere - of_domain),
        received=group.all_tokens * chance,
    )


def _per_node(group: _Group, chance: Floats, reached: Floats) -> GpuVectors:
    """One copy to each other domain, on the sender's rail, then forwarded to the GPUs that need it.

    ``reached [..., domains]``: chance that a token needs a domain.
    """
    members = group.members[group.index]
    outside = group.all_tokens - group.in_domain
    of_domain = group.of_domain(chance)
    # the forwarding GPU is one of its domain: what it needs itself does not move again
    return GpuVectors(
        received_up=((group.in_domain - group.tokens) + outside * (members - 1) / members) * chance,
        sent_up=(group.tokens + outside / members) * (of_domain - chance),
        received_out=outside / members * reached[..., group.index],
        sent_out=group.tokens * (reached.sum(axis=-1, keepdims=True) - reached[..., group.index]),
        received=group.all_tokens * chance,
    )


def _direct_by_source(group: _Group, chance: Floats) -> GpuVectors:
    """As :func:`_direct`, ``chance [..., sources, gpus]`` of the tokens of each GPU."""
    apart = group.index[:, None] != group.index
    near, far = np.where(apart | np.eye(len(apart), dtype=bool), 0.0, chance), np.where(apart, chance, 0.0)
    return GpuVectors(
        received_up=group.tokens * near.sum(axis=-2),
        sent_up=group.tokens * near.sum(axis=-1),
        received_out=group.tokens * far.sum(axis=-2),
        sent_out=group.tokens * far.sum(axis=-1),
        received=group.tokens * chance.sum(axis=-2),
    )


def _per_node_by_source(group: _Group, hits: TokenHits) -> GpuVectors:
    """As :func:`_per_node`, by the GPU that a token comes from."""
    straight = _direct_by_source(group, hits.gpus)
    members = group.members[group.index]
    other = group.index[:, None] != np.arange(len(group.members))
    reached = group.tokens * np.where(other, hits.domains, 0.0)
    # what the domain's GPUs need from outside comes in at each of them alike, and is forwarded to the others
    needed = straight.received_out
    of_domain = group.of_domain(needed)
    return replace(
        straight,
        received_up=straight.received_up + needed * (members - 1) / members,
        sent_up=straight.sent_up + (of_domain - needed) / members,
        received_out=reached.sum(axis=-2)[..., group.index] / members,
        sent_out=reached.sum(axis=-1),
    )


def _all_gather(group: _Group, shape: tuple[int, ...]) -> GpuVectors:
    """Each vector to every domain once, shared by its GPUs, then to every GPU; whatever the experts."""
    members = group.members[group.index]
    outside = group.all_tokens - group.in_domain
    up = (group.in_domain - group.tokens) + outside * (members - 1) / members
    sent = np.full(len(members), group.tokens * (len(group.members) - 1))
    everything = np.full(len(members), group.all_tokens)
    found = (up, up, outside / members, sent, everything)
    return GpuVectors(*(np.broadcast_to(value, (*shape, len(members))) for value in found))
