"""From experts in domains to slots: spare copies, nodes, GPUs, and the busiest GPU relieved."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.experts.annealing import descend
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import make_problem
from placement.traffic.grouping import Work, group
from placement.traffic.parts import Parts
from placement.traffic.places import Places
from placement.traffic.reach import items_of, reach, slot_share, used_domain
from placement.traffic.relieve import relieve
from placement.traffic.spare import copies_for_balance, copies_for_traffic
from placement.traffic.task import Limit, TrafficTask
from placement.traffic.tokens import Tokens

_SHARES = (0.0, 0.5, 1.0)  # of the spare copies that may go where they save crossings
_NODE_ROOM = 0.8  # of the slack, where a node has several GPUs
_NODE_WORK = 0.3  # of a search, where nodes are a level of their own


def fill(task: TrafficTask, limit: Limit, part: Ints, rng: np.random.Generator, work: Work) -> Experts:
    """Return the slots of a layer whose experts' first copies lie in the domains ``part`` ``[experts]``.

    Spare copies are shared between those that save crossings and those that even out loads in a few ways; the one
    that takes fewest seconds by ``task.rates`` is kept.
    """
    tokens, places, load = task.tokens, task.places, task.loads
    first = np.zeros((tokens.experts, places.domains), dtype=np.int64)
    first[np.arange(tokens.experts), part] = 1
    free = places.domain_slots - first.sum(axis=0)
    spare = int(free.sum())
    bound = limit.domain * places.fair(places.domain)
    tried = []
    for share in _SHARES if spare and task.nearest and places.domains > 1 else _SHARES[:1]:
        most = int(np.ceil(share * spare))
        held = copies_for_traffic(tokens, first, free, load, bound, most=most, own=task.own)
        held = copies_for_balance(held, places.domain_slots - held.sum(axis=0), load, places)
        packing = _Packing(task, limit, held)
        if most == spare == 0:
            return packing.run(rng, work)
        seen = reach(tokens, packing.quick(), places, load)
        cost = seen.domains if task.own else seen.crossings
        seconds = task.rates.crossing_s * cost + task.rates.imbalance_s * seen.gpu_peak
        tried.append((not limit.kept(seen), seconds, share, packing))
    return min(tried, key=lambda each: each[:3])[3].run(rng, work)


class _Packing:
    """Copies of each domain to be spread over its nodes and their GPUs: few nodes a token, GPUs even."""

    def __init__(self, task: TrafficTask, limit: Limit, held: Ints) -> None:
        self.task, self.limit, self.held = task, limit, held
        self.tokens, self.places, self.load = task.tokens, task.places, task.loads

    @cached_property
    def used(self) -> Ints:
        """Domain that tokens of each expert use from each domain, ``[experts, domains]``."""
        return used_domain(self.held > 0)

    def run(self, rng: np.random.Generator, work: Work) -> Experts:
        """Return the slots."""
        slot_expert = self._in_domains()
        if self.places.nodes > self.places.domains:
            slot_expert = self._to_nodes(slot_expert, rng, work)
        return self._even(slot_expert, self.places)

    def quick(self) -> Experts:
        """Return slots as if each domain were one node: enough to tell ways to share spare copies apart."""
        return self._even(self._in_domains(), replace(self.places, node=self.places.domain))

    def _even(self, slot_expert: Experts, places: Places) -> Experts:
        slot_expert = apart(self._to_gpus(slot_expert, places), places)
        return relieve(self.tokens, slot_expert, self.load, places, self.limit.domain, self.limit.gpu)

    def _share(self, slot_expert: Experts) -> Floats:
        """Load of each slot, ``[scenarios, slots]``."""
        share: Floats = slot_share(slot_expert, self.places, self.held, self.used) * self.load[:, slot_expert]
        return share

    def _in_domains(self) -> Experts:
        slot_expert = np.empty(self.places.slots, dtype=np.int32)
        for domain in range(self.places.domains):
            slots = self.places.slot_domain == domain
            slot_expert[slots] = np.repeat(np.arange(len(self.held)), self.held[:, domain])
        return slot_expert

    def _to_nodes(self, slot_expert: Experts, rng: np.random.Generator, work: Work) -> Experts:
        """Deal the copies of each domain to its nodes, so that tokens reach few; every copy counts as an expert."""
        places = self.places
        items = items_of(self.tokens, slot_expert, places, self.used.T, each_source(self.tokens, places))
        room = 1 + (self.limit.domain - 1) * (1.0 if places.gpus == places.nodes else _NODE_ROOM)
        free = Parts.free(
            Tokens.of(items, places.slots),
            places.node_slots,
            self._share(slot_expert),
            room * places.fair(places.node),
        )
        inside = Parts(free.tokens, free.size, free.load, free.limit, places.slot_domain, places.node_domain)
        node = group(inside, rng, Work(work.share * _NODE_WORK, work.goes_on))
        order = np.empty(places.slots, dtype=np.int64)
        order[np.argsort(places.slot_node, kind="stable")] = np.argsort(node, kind="stable")
        return slot_expert[order]

    def _to_gpus(self, slot_expert: Experts, places: Places) -> Experts:
        """Deal the copies of each node to its GPUs, evenly loaded; as they are where that would put two on one."""
        found = slot_expert.copy()
        share = self._share(slot_expert)
        for node in range(places.nodes):
            slots = np.flatnonzero(places.slot_node == node)
            gpus = np.flatnonzero((places.node == node) & (places.slots_per_gpu > 0))
            experts, local, counts = np.unique(slot_expert[slots], return_inverse=True, return_counts=True)
            slots_per_gpu = places.slots_per_gpu[gpus]
            if gpus.size < 2 or counts.max() > gpus.size or slots_per_gpu.max() > experts.size:
                continue
            row = np.stack([np.bincount(local.reshape(-1), weights=each[slots]) for each in share])
            row = np.maximum(row, 1e-12)  # experts without load, or whole nodes of them
            problem = make_problem(row[:, None, :], slots_per_gpu, places.speed[gpus])
            if problem.average.counts_fit(counts[None]).all():
                packed = swap_down(problem.average, pack(problem.average, counts[None]))
                packed = descend(problem, packed) if problem.scenarios > 1 else packed
                found[slots] = experts[packed[0]]
        return found


def each_source(tokens: Tokens, places: Places) -> Ints:
    """Return a domain for each token to come from, all in turn, ``[tokens]``."""
    source: Ints = np.arange(len(tokens)) % places.domains
    return source


def twice(slot_expert: Experts, places: Places) -> bool:
    """Whether a GPU holds an expert twice."""
    pairs = places.slot_gpu.astype(np.int64) * (int(slot_expert.max()) + 1) + slot_expert
    return bool(np.unique(pairs).size < pairs.size)


def apart(slot_expert: Experts, places: Places) -> Experts:
    """Exchange copies until no GPU holds an expert twice, with others of the node, else of the domain, else of any.

    Where no exchange of two copies does that, the slots are returned as they are.
    """
    found = slot_expert.copy()
    experts = int(found.max()) + 1
    gpu = places.slot_gpu
    count = np.bincount(gpu.astype(np.int64) * experts + found, minlength=places.gpus * experts)
    count = count.reshape(places.gpus, experts)
    while True:
        more = np.flatnonzero(count[gpu, found] > 1)
        if more.size == 0:
            return found
        one = int(more[-1])
        here = int(gpu[one])
        fits = (count[here, found] == 0) & (count[gpu, found[one]] == 0)
        if not fits.any():
            return found
        far = (places.slot_node != places.slot_node[one]).astype(np.int64)
        far += places.slot_domain != places.slot_domain[one]
        two = int(np.where(fits, far, 3).argmin())
        for gone, come in ((one, two), (two, one)):
            count[gpu[gone], found[gone]] -= 1
            count[gpu[gone], found[come]] += 1
        found[one], found[two] = found[two], found[one]
