"""How many hidden vectors a GPU moves in a dispatch, by kernel family: with even experts, or as they are placed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from cost.experts.assignment import numbered, sum_by_place
from cost.experts.tokens.reach import ExpertUse, Floats, Ints, Routing, hit_chance
from topology.base.errors import InputError

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


def alltoall_volumes(
    family: Family, routing: Routing, *, tokens: ArrayLike, ep: ArrayLike, domain_gpus: ArrayLike
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
        If a count is below one.
    """
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
    family: Family,
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
    Every GPU sends as many tokens; what differs is how many experts' pairs a GPU receives. Where it is known which
    experts are chosen together (``use.hits``), tokens go where those of the traces go. Loads alone do not say it: a
    token is then taken to use a GPU or a domain with the chance of as many equally loaded experts
    (:meth:`cost.experts.tokens.reach.ExpertUse.token_share`).
    """
    index = numbered(domain)
    group = _Group(index, np.bincount(index), float(tokens))
    scenarios = use.share.shape[:2] if use.hits is None else use.hits.gpus.shape[:2]
    if family == "all-gather":
        return _all_gather(group, scenarios)
    per_node = family == "per-node" and len(group.members) > 1
    if use.hits is not None:
        chance, reached = use.hits.pairs if family == "per-copy" else use.hits.gpus, use.hits.domains
    else:
        chance = (use.top_k * use.share if family == "per-copy" else use.token_share(limit))[:, :, None]
        by_domain = replace(use, share=sum_by_place(use.share, index)) if per_node else use
        reached = by_domain.token_share(limit)[:, :, None] if per_node else chance
    if chance.shape[2] > 1:
        return _per_node_by_source(group, chance, reached) if per_node else _direct_by_source(group, chance)
    chance, reached = chance[:, :, 0], reached[:, :, 0]
    return _per_node(group, chance, reached) if per_node else _direct(group, chance)


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
    outside = group.index[:, None] != group.index
    same = np.eye(len(outside), dtype=bool)
    near, far = np.where(outside | same, 0.0, chance), np.where(outside, chance, 0.0)
    return GpuVectors(
        received_up=group.tokens * near.sum(axis=-2),
        sent_up=group.tokens * near.sum(axis=-1),
        received_out=group.tokens * far.sum(axis=-2),
        sent_out=group.tokens * far.sum(axis=-1),
        received=group.tokens * chance.sum(axis=-2),
    )


def _per_node_by_source(group: _Group, chance: Floats, reached: Floats) -> GpuVectors:
    """As :func:`_per_node`, by the GPU that a token comes from."""
    straight = _direct_by_source(group, chance)
    members = group.members[group.index]
    elsewhere = group.index[:, None] != np.arange(len(group.members))
    sent = group.tokens * np.where(elsewhere, reached, 0.0)
    # what the domain's GPUs need from outside comes in at each of them alike, and is forwarded to the others
    needed = straight.received_out
    of_domain = group.of_domain(needed)
    return replace(
        straight,
        received_up=straight.received_up + needed * (members - 1) / members,
        sent_up=straight.sent_up + (of_domain - needed) / members,
        received_out=sent.sum(axis=-2)[..., group.index] / members,
        sent_out=sent.sum(axis=-1),
    )


def _all_gather(group: _Group, shape: tuple[int, ...]) -> GpuVectors:
    """Each vector to every domain once, shared by its GPUs, then to every GPU; whatever the experts."""
    members = group.members[group.index]
    outside = group.all_tokens - group.in_domain
    up = (group.in_domain - group.tokens) + outside * (members - 1) / members
    sent = np.full(len(members), group.tokens * (len(group.members) - 1))
    everything = np.full(len(members), group.all_tokens)
    volumes = (up, up, outside / members, sent, everything)
    return GpuVectors(*(np.broadcast_to(value, (*shape, len(members))) for value in volumes))
