"""Place experts by co-activation: few domains per token, with domain loads under a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Experts, Floats, Ints
from placement.experts.baselines import balanced_packing
from placement.experts.problem import make_problem
from placement.experts.solve import solve
from placement.traffic.exchange import partition
from placement.traffic.tokens import Partition, Tokens

SLACK = 0.05
"""The load of a domain may be this much above what is even for its GPUs."""
_SEARCHED = 20_000  # tokens that a search counts on
_ROOM = 0.6  # of the slack, where a domain has several GPUs: what is packed into it needs some


@dataclass(frozen=True, eq=False)
class Places:
    """The GPUs of one EP group.

    Attributes
    ----------
    slots_per_gpu, domain:
        int64 ``[gpus]``; domains are numbered from 0. A GPU may have no slots.
    speed:
        float64 ``[gpus]``: relative speed of each GPU; loads are even where each takes as long.
    """

    slots_per_gpu: Ints
    domain: Ints
    speed: Floats

    @staticmethod
    def of(slots_per_gpu: Ints, domain: NDArray[np.integer], speed: Floats | None = None) -> Places:
        """Number the domains; without ``speed`` all GPUs are as fast."""
        number: Ints = np.unique(domain, return_inverse=True)[1].reshape(-1)
        return Places(slots_per_gpu, number, np.ones(slots_per_gpu.size) if speed is None else speed)

    @property
    def domains(self) -> int:
        """Number of domains."""
        return int(self.domain.max()) + 1

    @property
    def slot_domain(self) -> Ints:
        """Domain of each slot, ``[slots]``."""
        return np.repeat(self.domain, self.slots_per_gpu)

    @property
    def domain_slots(self) -> Ints:
        """Slots of each domain, ``[domains]``."""
        return np.bincount(self.domain, self.slots_per_gpu).astype(np.int64)

    @property
    def fair(self) -> Floats:
        """Share of the load that is even for each domain, ``[domains]``: the speed of its GPUs with slots."""
        used = np.where(self.slots_per_gpu > 0, self.speed, 0.0)
        share: Floats = np.bincount(self.domain, used) / used.sum()
        return share


def shares_of(weight: Ints, total: int) -> Ints:
    """Split ``total`` in proportion to ``weight`` in whole numbers; what is left goes by largest remainder."""
    exact = weight * total / weight.sum()
    share: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - share), kind="stable")
    share[order[: total - int(share.sum())]] += 1
    return share


def whole_groups(load: Floats, groups: int, domains: int) -> Ints | None:
    """Return the domain of each expert, ``[experts]``, with groups kept whole; None where they cannot be.

    Groups go to domains as EPLB's hierarchical policy deals them: heaviest first to the lightest domain with room.
    """
    if groups < 1 or load.size % groups or groups % domains:
        return None
    order = balanced_packing(load.reshape(1, groups, -1).sum(axis=2), domains)[0]
    domain = np.empty(groups, dtype=np.int64)
    domain[order] = np.repeat(np.arange(domains), groups // domains)
    return np.repeat(domain, load.size // groups)


def domains_by_tokens(
    tokens: Tokens,
    places: Places,
    load: Floats,
    *,
    slack: float = SLACK,
    groups: int = 0,
    seed: int = 0,
    share: float = 1.0,
) -> Ints:
    """Return a domain for each expert, ``[experts]``, so that tokens reach few with loads under the limit.

    Parameters
    ----------
    load:
        float64 ``[scenarios, experts]``.
    slack:
        The load of a domain is at most ``1 + slack`` of what is even, if exchanges of two experts get there.
    groups:
        Groups of consecutive experts that routing is limited by; whole groups are tried as a start. 0: none.
    share:
        Of the work of a full search.
    """
    size = shares_of(places.domain_slots, tokens.experts)
    room = 1 + slack * (1.0 if len(places.domain) == places.domains else _ROOM)
    task = Partition.of(tokens.sample(_SEARCHED), size, load, room * places.fair)
    whole = whole_groups(load.mean(axis=0), groups, places.domains)
    fits = whole is not None and np.array_equal(np.bincount(whole, minlength=places.domains), size)
    starts = [whole] if whole is not None and fits else []
    return partition(task, np.random.default_rng(seed), starts, share=share)


def used_domain(held: Bools) -> Ints:
    """Return the domain whose copy tokens from each domain use, ``[..., domains]``.

    ``held`` ``[..., domains]`` says where copies are. A domain with one uses its own; the first of those without
    uses the first domain with one, the second the second, and so on round.
    """
    domains = held.shape[-1]
    holders = np.argsort(~held, axis=-1, kind="stable")
    turn = (np.cumsum(~held, axis=-1) - 1) % np.maximum(held.sum(axis=-1, keepdims=True), 1)
    far = np.take_along_axis(holders, np.maximum(turn, 0), axis=-1)
    used: Ints = np.where(held, np.arange(domains), far)
    return used


def in_domains(parts: Sequence[Ints | None], load: Floats, places: Places, otherwise: Experts) -> Experts:
    """Return ``[layers, slots]`` with the experts of each domain placed on its GPUs, evenly loaded.

    Parameters
    ----------
    parts:
        Of each layer the domain of each expert, ``[experts]``; None: a layer to leave as it is.
    load:
        float64 ``[scenarios, layers, experts]``.
    otherwise:
        int32 ``[layers, slots]``: of layers without a part, and of those whose domains have too few slots, or slots
        that only two copies of an expert on a GPU would fill.
    """
    slot_expert = otherwise.copy()
    domains = [np.flatnonzero(places.domain == domain) for domain in range(places.domains)]
    least = np.array([places.slots_per_gpu[gpus].max() for gpus in domains])
    homogeneous: dict[tuple[bytes, bytes, int], list[tuple[int, int, Ints]]] = {}
    for layer, domain_of in enumerate(parts):
        if domain_of is None:
            continue
        count = np.bincount(domain_of, minlength=places.domains)
        if (count < least).any() or (count > places.domain_slots).any():
            continue
        for domain in np.flatnonzero(least).tolist():
            slots, speed = places.slots_per_gpu[domains[domain]], places.speed[domains[domain]]
            key = slots.tobytes(), speed.tobytes(), int(count[domain])
            mine = np.flatnonzero(domain_of == domain)
            homogeneous.setdefault(key, []).append((layer, domain, mine))
    for rows in homogeneous.values():
        layers = np.array([layer for layer, *_ in rows])
        experts = np.stack([mine for *_, mine in rows])
        inside = load[:, layers[:, None], experts]
        inside = np.maximum(inside, inside.max() * 1e-12)  # experts without load
        gpus = domains[rows[0][1]]
        solved = solve(make_problem(inside, places.slots_per_gpu[gpus], places.speed[gpus]))
        placed = np.take_along_axis(experts, solved.assignment.slot_expert.astype(np.int64), axis=1)
        for (layer, domain, _), row in zip(rows, placed, strict=True):
            slot_expert[layer, places.slot_domain == domain] = row
    return slot_expert
