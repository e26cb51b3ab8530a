"""How many hidden vectors the GPUs of a placement move in a dispatch: tokens as traced, or independent choices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.dispatch import ExpertUse
from cost.terms.alltoall_volumes import Routing, Volumes, hit_chance, require_family
from cost.token_hits import TokenHits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


def placed_volumes(
    family: str,
    use: ExpertUse,
    *,
    tokens: float,
    domain: Ints,
    groups: int = 0,
    topk_groups: int = 0,
) -> Volumes:
    """Return the vectors of the busiest GPU, each field ``[scenarios, layers]``; as :func:`placed_vectors`."""
    return placed_vectors(
        family, use, tokens=tokens, domain=domain, groups=groups, topk_groups=topk_groups
    ).busiest


def placed_vectors(
    family: str,
    use: ExpertUse,
    *,
    tokens: float,
    domain: Ints,
    groups: int = 0,
    topk_groups: int = 0,
) -> GpuVectors:
    """Return the vectors that each GPU moves; scenarios are the traces where ``use`` knows them, else its loads.

    Parameters
    ----------
    family:
        Kernel family (:data:`cost.terms.alltoall_volumes.FAMILIES`).
    tokens:
        Tokens per GPU of the EP group.
    domain:
        Scale-up domain of each GPU of the group, ``[gpus]``.
    groups, topk_groups:
        Limit on the groups of experts that a token may use; 0, 0: none. Not read where tokens are traced.

    Notes
    -----
    Every GPU sends as many tokens; what differs is how many experts' pairs a GPU receives. Where routing traces say
    which experts are chosen together (:attr:`ExpertUse.hits`), tokens go where those of the traces go. Loads alone do
    not say it: a token is then taken to use a GPU or a domain with the chance of as many equally loaded experts
    (:meth:`ExpertUse.token_share`), lowered by a group limit as much as for even placement.

    Raises
    ------
    InputError
        If the family is not known.
    """
    require_family(family)
    index = np.unique(domain, return_inverse=True)[1].astype(np.int64)
    group = _Group(index, np.bincount(index), float(tokens))
    hits = use.hits
    if family == "all-gather":
        return _all_gather(group, use.share.shape[:2] if hits is None else hits.gpus.shape[:2])
    per_node = family == "per-node" and len(group.members) > 1
    limit = (groups, topk_groups)
    if hits is None:
        chance = use.top_k * use.share if family == "per-copy" else token_share(use, limit, use.gpus)
        if not per_node:
            return _direct(group, chance)
        whole = replace(use, share=group.by_domain(use.share))
        return _per_node(group, chance, token_share(whole, limit, len(group.members)))
    chance = hits.pairs if family == "per-copy" else hits.gpus
    if chance.shape[2] == 1:  # alike from everywhere
        return (
            _per_node(group, chance[:, :, 0], hits.domains[:, :, 0])
            if per_node
            else _direct(group, chance[:, :, 0])
        )
    return _per_node_by_source(group, hits) if per_node else _direct_by_source(group, chance)


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

    def by_domain(self, values: Floats) -> Floats:
        """Sum over each domain's GPUs, ``[..., gpus]`` to ``[..., domains]``."""
        order = np.argsort(self.index, kind="stable")
        starts = np.cumsum(self.members) - self.members
        return np.add.reduceat(values[..., order], starts, axis=-1)


def token_share(use: ExpertUse, limit: tuple[int, int], parts: int) -> Floats:
    """Return the fraction of the tokens that each of ``parts`` parts of the experts receives, one copy a part.

    As if experts were chosen independently, within ``limit`` groups of experts and how many of them a token may use.
    """
    share = use.token_share()
    if not limit[0]:
        return share
    free = float(hit_chance(Routing(use.experts, use.top_k), 1, parts))
    limited = float(hit_chance(Routing(use.experts, use.top_k, *limit), 1, parts))
    return share * (limited / free)


def _direct(group: _Group, chance: Floats) -> GpuVectors:
    """Each vector straight to the GPU that needs it; ``chance [..., gpus]`` copies of a token go to each."""
    of_domain = group.by_domain(chance)[..., group.index]
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
    of_domain = group.by_domain(chance)[..., group.index]
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
    of_domain = group.by_domain(needed)[..., group.index]
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
