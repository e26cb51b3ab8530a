"""How many hidden vectors the busiest GPU moves in a dispatch, for experts as they are really placed and loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.expert_use import ExpertUse
from cost.terms.alltoall_routing import Routing, hit_chance
from cost.terms.alltoall_volumes import Volumes, require_family


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
        parts = [values[..., self.index == domain].sum(axis=-1) for domain in range(len(self.members))]
        return np.stack(parts, axis=-1)


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
