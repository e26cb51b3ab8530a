"""Bring the busiest GPU under the limit by the exchanges that cost tokens fewest domains and nodes."""

from __future__ import annotations

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints
from placement.traffic.exchange import Exchange
from placement.traffic.parts import Parts
from placement.traffic.places import Places
from placement.traffic.reach import held_in, items_of, slot_share, used_domain
from placement.traffic.tokens import Tokens

_MOST = 400  # exchanges
_DOMAIN = 100.0  # nodes that a domain more counts as


def relieve(
    tokens: Tokens, slot_expert: Experts, load: Floats, places: Places, domain_limit: float, limit: float
) -> Experts:
    """Exchange copies of the busiest GPU for lighter ones until none is above ``limit``, and return the slots.

    Each exchange is the one that costs least for the load it takes away; domains stay below theirs, or do not rise.
    Where no exchange helps it stops.
    """
    held = held_in(slot_expert, places, tokens.experts)
    used = used_domain(held > 0)
    share = slot_share(slot_expert, places, held, used) * load[:, slot_expert]  # [scenarios, slots]
    fair = places.fair(np.arange(places.gpus))
    place_load = _Loads(share, places, fair)
    if place_load.gpu.max() <= limit:
        return slot_expert
    source = np.arange(len(tokens)) % places.domains
    items = Tokens.of(items_of(tokens, slot_expert, places, used.T, source), places.slots)
    levels = [
        (weight, Exchange(Parts.free(items, size, share, np.full(size.size, np.inf)), part))
        for weight, size, part, wanted in (
            (_DOMAIN, places.domain_slots, places.slot_domain, places.domains > 1),
            (1.0, places.node_slots, places.slot_node, places.nodes > places.domains),
        )
        if wanted
    ]
    at = np.arange(places.slots)  # where each item is; an item is what a slot held at first
    for _ in range(_MOST):
        hot = int(place_load.gpu.max(axis=0).argmax())
        if place_load.gpu[:, hot].max() <= limit:
            break
        mine = np.flatnonzero(places.slot_gpu[at] == hot)
        gain, legal = place_load.gain(mine, at, hot, limit, domain_limit)
        legal &= ~_twice(slot_expert, mine, at, places)
        if not legal.any():
            break
        cost = np.zeros(gain.shape)
        for weight, level in levels:
            change = level.changes(mine, 0.0)
            cost += weight * np.where(np.isfinite(change), change, 0.0)
        rank = np.where(cost > 0, cost / np.maximum(gain, 1e-12), cost * gain)
        best = int(np.where(legal, rank, np.inf).argmin())
        one, two = int(mine[best // at.size]), best % at.size
        for _, level in levels:
            if level.part[one] != level.part[two]:
                level.exchange(one, two)
        place_load.exchange(one, two, at)
        at[one], at[two] = at[two], at[one]
    found = np.empty_like(slot_expert)
    found[at] = slot_expert
    return found


class _Loads:
    """Loads of GPUs and domains over what is even, kept up to date."""

    def __init__(self, share: Floats, places: Places, fair: Floats) -> None:
        self.places, self.share = places, share
        self.fair_gpu = np.maximum(fair, 1e-300)
        self.fair_domain = np.maximum(places.fair(places.domain), 1e-300)
        self.gpu = self._sum(places.slot_gpu, places.gpus) / self.fair_gpu
        self.domain = self._sum(places.slot_domain, places.domains) / self.fair_domain

    def _sum(self, where: Ints | Experts, size: int) -> Floats:
        return np.stack([np.bincount(where, weights=row, minlength=size) for row in self.share])

    def gain(
        self, mine: Index, at: Index, hot: int, limit: float, domain_limit: float
    ) -> tuple[Floats, Bools]:
        """Return what each exchange takes off the hot GPU's peak, ``[mine, items]``, and whether it is allowed."""
        gpu, domain = self.places.slot_gpu[at], self.places.slot_domain[at]
        more = self.share[:, mine, None] - self.share[:, None, :]
        here = self.gpu[:, hot][:, None, None] - more / self.fair_gpu[hot]
        there = self.gpu[:, gpu][:, None, :] + more / self.fair_gpu[gpu]
        peak = float(self.gpu[:, hot].max())
        gain = peak - np.maximum(here.max(axis=0), limit)
        home = int(self.places.domain[hot])
        domain_there = self.domain[:, domain][:, None, :] + more / self.fair_domain[domain]
        crowded = ((domain_there > domain_limit) & (more > 0)).any(axis=0) & (domain != home)
        legal = (gain > 1e-9) & (there.max(axis=0) < peak - 1e-9) & (gpu != hot) & ~crowded
        calm = legal & (there.max(axis=0) <= limit)
        return gain, calm if calm.any() else legal

    def exchange(self, one: int, two: int, at: Index) -> None:
        more = self.share[:, one] - self.share[:, two]
        for load, where, fair in (
            (self.gpu, self.places.slot_gpu, self.fair_gpu),
            (self.domain, self.places.slot_domain, self.fair_domain),
        ):
            a, b = int(where[at[one]]), int(where[at[two]])
            load[:, a] -= more / fair[a]
            load[:, b] += more / fair[b]


def _twice(slot_expert: Experts, mine: Index, at: Index, places: Places) -> Bools:
    """Mark exchanges after which a GPU would hold an expert twice, ``[mine, items]``."""
    gpu = places.slot_gpu[at]
    experts = int(slot_expert.max()) + 1
    holds = np.zeros((places.gpus, experts), dtype=bool)
    holds[gpu, slot_expert] = True
    hot = gpu[mine[0]]
    same = slot_expert[mine][:, None] == slot_expert[None, :]
    twice: Bools = (holds[hot][slot_expert][None, :] | holds[gpu][:, slot_expert[mine]].T) & ~same
    return np.asarray(twice | same, dtype=bool)
