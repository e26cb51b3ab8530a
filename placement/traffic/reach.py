"""What tokens reach under a placement: domains, nodes, crossings, loads; from the placement and the choices alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.arrays import Bools, Experts, Floats, Ints
from placement.traffic.parts import bits_of_parts, reach_of_tokens
from placement.traffic.places import Places
from placement.traffic.tokens import NONE, Tokens


@dataclass(frozen=True, eq=False)
class Reach:
    """Means over tokens, each from every domain as often, and loads of one layer.

    Attributes
    ----------
    domains, nodes:
        Domains and nodes that a token's experts lie in.
    crossings:
        Domains among them other than the token's own: what links between domains carry.
    domain_load:
        Load of each domain over what is even for its GPUs, ``[scenarios, domains]``.
    gpu_load:
        The same of each GPU that has slots, ``[scenarios, GPUs with slots]``.
    """

    domains: float
    nodes: float
    crossings: float
    domain_load: Floats
    gpu_load: Floats

    @property
    def domain_peak(self) -> float:
        """Largest load of a domain, 1 is even; of several scenarios the worst."""
        return float(self.domain_load.max())

    @property
    def gpu_peak(self) -> float:
        """Largest load of a GPU, 1 is even; of several scenarios the worst."""
        return float(self.gpu_load.max())


def reach(tokens: Tokens, slot_expert: Experts, places: Places, load: Floats | None = None) -> Reach:
    """Return what ``tokens`` reach under ``slot_expert`` ``[slots]``.

    Which copy of an expert a token uses: one in the token's own domain if there is one; else the domains that have
    one take the others in turn (:func:`used_domain`). Copies in one domain take its tokens in turn. ``load``
    ``[scenarios, experts]`` is that of the tokens if it is not given.
    """
    load = tokens.load[None] if load is None else load
    held = held_in(slot_expert, places, tokens.experts)
    used = used_domain(held > 0)
    each_node = places.nodes > places.domains
    alike = not (held.sum(axis=1) > 1).any()  # without spare copies the source decides nothing
    seen = []
    for source in range(1 if alike else places.domains):
        where = used[:, source]
        reached = reach_of_tokens(tokens, where, places.domains)
        own = float(reached.mean()) / places.domains if alike else _touched(tokens, where == source)
        nodes = _nodes(tokens, slot_expert, places, where, source) if each_node else float(reached.mean())
        seen.append((float(reached.mean()), nodes, float(reached.mean()) - own))
    domains, nodes, crossings = (float(each) for each in np.mean(seen, axis=0))
    return Reach(domains, nodes, crossings, *_loads(slot_expert, places, load, held, used))


def held_in(slot_expert: Experts, places: Places, experts: int) -> Ints:
    """Return the copies of each expert in each domain, ``[experts, domains]``."""
    key = slot_expert.astype(np.int64) * places.domains + places.slot_domain
    return np.bincount(key, minlength=experts * places.domains).reshape(experts, -1)


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


def slot_share(slot_expert: Experts, places: Places, held: Ints, used: Ints) -> Floats:
    """Return the fraction of its expert's tokens that each slot takes, ``[slots]``."""
    sources = np.zeros(held.shape)
    np.add.at(sources, (np.arange(len(held))[:, None], used), 1.0 / places.domains)
    share: Floats = (sources / np.maximum(held, 1))[slot_expert, places.slot_domain]
    return share


def _loads(
    slot_expert: Experts, places: Places, load: Floats, held: Ints, used: Ints
) -> tuple[Floats, Floats]:
    share = slot_share(slot_expert, places, held, used)
    fair_domain, fair_gpu = places.fair(places.domain), places.fair(np.arange(places.gpus))
    has = fair_domain > 0
    with_slots = fair_gpu > 0
    domain_load, gpu_load = [], []
    for row in load:
        part = share * row[slot_expert] / row.sum()
        domain = np.bincount(places.slot_domain, weights=part, minlength=places.domains)
        gpu = np.bincount(places.slot_gpu, weights=part, minlength=places.gpus)
        domain_load.append(np.where(has, domain / np.where(has, fair_domain, 1.0), 0.0))
        gpu_load.append(gpu[with_slots] / fair_gpu[with_slots])
    return np.stack(domain_load), np.stack(gpu_load)


def _touched(tokens: Tokens, mine: Bools) -> float:
    """Return the share of tokens that have an expert among ``mine`` ``[experts]``."""
    return float(np.append(mine, values=False)[tokens.choices].any(axis=1).mean())


def items_of(tokens: Tokens, slot_expert: Experts, places: Places, where: Ints, source: Ints | int) -> Ints:
    """Return the slot that serves each choice of each token, ``[tokens, k]``; -1 where there is none.

    ``where`` ``[experts]``, or ``[sources, experts]`` with ``source`` ``[tokens]``: the domain used. The copies there
    take tokens in turn.
    """
    order = np.lexsort((places.slot_domain, slot_expert))
    key = slot_expert[order].astype(np.int64) * places.domains + places.slot_domain[order]
    ends = np.searchsorted(key, np.arange(tokens.experts * places.domains + 1))
    chosen = tokens.choices
    safe = np.minimum(chosen, tokens.experts - 1)
    domain = where[safe] if where.ndim == 1 else where[np.asarray(source)[:, None], safe]
    at = safe * places.domains + domain
    first, copies = ends[at], ends[at + 1] - ends[at]
    turn = (np.arange(len(tokens))[:, None] + np.reshape(source, (-1, 1))) % np.maximum(copies, 1)
    slot: Ints = np.where(tokens.chosen, order[np.minimum(first + turn, order.size - 1)], NONE)
    return slot


def _nodes(tokens: Tokens, slot_expert: Experts, places: Places, where: Ints, source: int) -> float:
    slot = items_of(tokens, slot_expert, places, where, source)
    reached = np.zeros(len(tokens), dtype=np.int64)
    for word in bits_of_parts(places.slot_node, places.nodes):
        reached += np.bitwise_count(np.bitwise_or.reduce(word[slot], axis=1))
    return float(reached.mean())
