"""Place the experts of one layer by what its tokens choose together; never worse than what balance alone gives."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.local_search import swap_down
from placement.pack import pack
from placement.problem import make_problem
from placement.scenario_search import descend
from placement.solve import solve
from placement.traffic.grouping import Work, group, improve
from placement.traffic.parts import Parts
from placement.traffic.places import Places
from placement.traffic.reach import Reach, held_in, items_of, reach, slot_share, used_domain
from placement.traffic.relieve import relieve
from placement.traffic.spare import copies_for_balance, copies_for_traffic, shares_of
from placement.traffic.tokens import Tokens
from topology.errors import InputError

_SEARCHED = 20_000  # tokens that a search counts on
_CHECKED = 0.2  # of them, the last, only check that what was found is no accident
_SURE = 4.0  # standard errors that make it none
_SHARES = (0.0, 0.5, 1.0)  # of the spare copies that may go where they save crossings
_DOMAIN_ROOM, _NODE_ROOM = 0.6, 0.8  # of the slack: what is packed into parts of it later needs some


@dataclass(frozen=True)
class Rates:
    """What spare copies are weighed by; only the ratio counts.

    Attributes
    ----------
    imbalance_s:
        Seconds of a layer that one more mean load on the busiest GPU takes.
    crossing_s:
        Seconds that one more domain a token takes.
    """

    imbalance_s: float = 1.0
    crossing_s: float = 1.0


@dataclass(frozen=True, eq=False)
class TrafficTask:
    """One layer to be placed.

    Attributes
    ----------
    tokens, places:
        What tokens chose, and where slots are.
    load:
        float64 ``[scenarios, experts]``; None: that of the tokens.
    slack:
        The largest load of a domain, and of a GPU, may be ``1 + slack`` times what is even; of a GPU what balance alone
        reaches where that is more. Infinite: any.
    rates:
        What spare copies are weighed by.
    own:
        What a token's own domain costs it: 0 makes crossings few, 1 domains. Without spare copies both are the same.
    """

    tokens: Tokens
    places: Places
    load: Floats | None = None
    slack: float = 0.05
    rates: Rates = field(default_factory=Rates)
    own: float = 0.0

    def __post_init__(self) -> None:
        if not self.slack >= 0:
            raise InputError(f"balance slack {self.slack}: expected 0 or more.")
        if self.places.slots < self.tokens.experts:
            raise InputError(
                f"{self.places.slots} slots for {self.tokens.experts} experts: each expert needs one."
            )
        if self.load is not None and (
            self.load.ndim != 2
            or self.load.shape[1] != self.tokens.experts
            or not np.isfinite(self.load).all()
            or (self.load < 0).any()
            or not (self.load.sum(axis=1) > 0).all()
        ):
            raise InputError(
                f"loads {list(self.load.shape)}: expected [scenarios, {self.tokens.experts}], none negative, no row all 0."
            )

    @property
    def loads(self) -> Floats:
        """Loads ``[scenarios, experts]``, each adding up to 1."""
        load = self.tokens.load[None] if self.load is None else self.load
        whole: Floats = load / load.sum(axis=1, keepdims=True)
        return whole


@dataclass(frozen=True)
class Limit:
    """The largest loads asked for, in multiples of what is even."""

    domain: float
    gpu: float

    def kept(self, found: Reach) -> bool:
        """Whether they are kept, up to rounding."""
        return found.domain_peak <= self.domain * (1 + 1e-9) and found.gpu_peak <= self.gpu * (1 + 1e-9)


@dataclass(frozen=True, eq=False)
class TrafficPlacement:
    """A layer placed.

    Attributes
    ----------
    slot_expert:
        int32 ``[slots]``.
    reach, balanced:
        What the tokens reach, and what they would where balance alone counts.
    limit:
        The largest load of a domain and of a GPU that were asked for, 1 is even.
    held:
        Whether both are kept.
    reason:
        Why it is the placement of balance alone; empty where it is not.
    """

    slot_expert: Experts
    reach: Reach
    balanced: Reach
    limit: Limit
    held: bool
    reason: str = ""


def place(
    task: TrafficTask, *, seed: int = 0, work: Work | None = None, balanced: Experts | None = None
) -> TrafficPlacement:
    """Return a placement whose tokens reach few domains, then few nodes, with loads under the limit.

    Deterministic for a ``seed`` and the ``work``; names of experts and domains decide nothing. Where the last tokens
    do not confirm what the others promise, it is the placement by balance alone.

    Parameters
    ----------
    balanced:
        The placement where balance alone counts, ``[slots]``; None: made here.
    """
    work = work or Work()
    name = task.tokens.sample(_SEARCHED).ranks()
    back = np.argsort(name)
    tokens = task.tokens.renamed(name)
    load = task.loads[:, back]
    places = task.places
    plain = _balanced(load, places) if balanced is None else name[balanced].astype(np.int32)
    before = reach(tokens, plain, places, load)
    limit = Limit(1 + task.slack, max(1 + task.slack, before.gpu_peak))
    found, reason = _search(task, tokens, load, plain, limit, seed, work)
    after = before if found is plain else reach(tokens, found, places, load)
    return TrafficPlacement(back[found].astype(np.int32), after, before, limit, limit.kept(after), reason)


def _search(
    task: TrafficTask, tokens: Tokens, load: Floats, plain: Experts, limit: Limit, seed: int, work: Work
) -> tuple[Experts, str]:
    places = task.places
    if places.nodes < 2:
        return plain, "all GPUs are in one node: no placement lets tokens reach fewer"
    rng = np.random.default_rng(seed)
    sample = tokens.sample(_SEARCHED)
    cut = int(len(sample) * (1 - _CHECKED))
    fit, check = sample.rows(slice(0, cut)), sample.rows(slice(cut, None))
    if cut == 0 or len(check) == 0:
        return plain, f"{len(sample)} tokens are too few to plan by"
    size = shares_of(places.domain_slots, tokens.experts)
    room = 1 + (limit.domain - 1) * (1.0 if places.gpus == places.domains else _DOMAIN_ROOM)
    domains = Parts.free(fit, size, load, room * places.fair(places.domain))
    part = group(domains, rng, work)
    if places.domains > 1 and not _confirmed(check, part, plain, places):
        return plain, "choices do not depend on each other so that domains could be fewer on other tokens"
    part = improve(domains.of_tokens(sample), part, rng, work, heat=0.2, share=0.2)
    return _fill(task, sample, load, part, limit, rng, work), ""


def _confirmed(check: Tokens, part: Ints, plain: Experts, places: Places) -> bool:
    """Whether tokens not searched on reach fewer domains than under balance alone, beyond chance."""
    from placement.traffic.parts import reach_of_tokens

    ours = reach_of_tokens(check, part, places.domains).astype(np.float64)
    used = used_domain(held_in(plain, places, check.experts) > 0)
    theirs = np.mean(
        [reach_of_tokens(check, used[:, s], places.domains) for s in range(places.domains)], axis=0
    )
    saved = theirs - ours
    error = float(saved.std()) / np.sqrt(len(check))
    return float(saved.mean()) > _SURE * error


def _fill(
    task: TrafficTask,
    tokens: Tokens,
    load: Floats,
    part: Ints,
    limit: Limit,
    rng: np.random.Generator,
    work: Work,
) -> Experts:
    """Add spare copies, spread each domain over nodes and GPUs, and return the best way to share the spare ones."""
    places = task.places
    first = np.zeros((tokens.experts, places.domains), dtype=np.int64)
    first[np.arange(tokens.experts), part] = 1
    free = places.domain_slots - first.sum(axis=0)
    spare = int(free.sum())
    best, least = None, np.inf
    bound = limit.domain * places.fair(places.domain)
    for share in _SHARES if spare else _SHARES[:1]:
        held = first
        if share > 0 and places.domains > 1:
            most = int(np.ceil(share * spare))
            held = copies_for_traffic(tokens, first, free, load, bound, most=most, own=task.own)
        held = copies_for_balance(held, places.domain_slots - held.sum(axis=0), load, places)
        slot_expert = _pack(tokens, held, load, places, limit, rng, work)
        seen = reach(tokens, slot_expert, places, load)
        cost = seen.domains if task.own else seen.crossings
        seconds = task.rates.crossing_s * cost + task.rates.imbalance_s * seen.gpu_peak
        if seconds < least:
            best, least = slot_expert, seconds
    assert best is not None
    return best


def _pack(
    tokens: Tokens,
    held: Ints,
    load: Floats,
    places: Places,
    limit: Limit,
    rng: np.random.Generator,
    work: Work,
) -> Experts:
    """Spread the copies of each domain over its nodes and their GPUs: few nodes a token, GPUs even."""
    slot_expert = _in_domains(held, places)
    used = used_domain(held > 0)
    if places.nodes > places.domains:
        slot_expert = _to_nodes(tokens, slot_expert, held, used, load, places, limit, rng, work)
    slot_expert = _to_gpus(slot_expert, held, used, load, places)
    return relieve(tokens, slot_expert, load, places, limit.domain, limit.gpu)


def _in_domains(held: Ints, places: Places) -> Experts:
    """Return slots filled domain by domain, the copies of an expert as far apart as its domain's slots allow."""
    slot_expert = np.empty(places.slots, dtype=np.int32)
    for domain in range(places.domains):
        slots = np.flatnonzero(places.slot_domain == domain)
        slot_expert[slots] = np.repeat(np.arange(len(held)), held[:, domain])
    return slot_expert


def _to_nodes(
    tokens: Tokens,
    slot_expert: Experts,
    held: Ints,
    used: Ints,
    load: Floats,
    places: Places,
    limit: Limit,
    rng: np.random.Generator,
    work: Work,
) -> Experts:
    """Deal the copies of each domain to its nodes, so that tokens reach few."""
    source = np.arange(len(tokens)) % places.domains
    slot = items_of(tokens, slot_expert, places, used.T, source)
    items = Tokens.of(np.where(slot < places.slots, slot, -1), places.slots)
    share = slot_share(slot_expert, places, held, used) * load[:, slot_expert]
    room = 1 + (limit.domain - 1) * (1.0 if places.gpus == places.nodes else _NODE_ROOM)
    free = Parts.free(items, places.node_slots, share, room * places.fair(places.node))
    task = Parts(
        items, free.size, free.load, free.limit, within=places.slot_domain, part_of=places.node_domain
    )
    node = group(task, rng, Work(work.share * 0.3, work.goes_on))
    order = np.empty(places.slots, dtype=np.int64)
    order[np.argsort(places.slot_node, kind="stable")] = np.argsort(node, kind="stable")
    return slot_expert[order]


def _to_gpus(slot_expert: Experts, held: Ints, used: Ints, load: Floats, places: Places) -> Experts:
    """Deal the copies of each node to its GPUs, evenly loaded and none twice on one."""
    found = slot_expert.copy()
    share = slot_share(slot_expert, places, held, used) * load[:, slot_expert]
    for node in range(places.nodes):
        slots = np.flatnonzero(places.slot_node == node)
        gpus = np.flatnonzero((places.node == node) & (places.slots_per_gpu > 0))
        if gpus.size < 2:
            continue
        experts, local, counts = np.unique(slot_expert[slots], return_inverse=True, return_counts=True)
        row = np.stack([np.bincount(local.reshape(-1), weights=each[slots]) for each in share])
        row = np.maximum(row, row.max() * 1e-9)
        slots_per_gpu = places.slots_per_gpu[gpus]
        if counts.max() > gpus.size or slots_per_gpu.max() > experts.size:
            continue
        problem = make_problem(row[:, None, :], slots_per_gpu)
        if not problem.average.counts_fit(counts[None]).all():
            continue
        packed = swap_down(problem.average, pack(problem.average, counts[None]))
        if problem.scenarios > 1:
            packed = descend(problem, packed)
        found[slots] = experts[packed[0]]
    return found


def _balanced(load: Floats, places: Places) -> Experts:
    """Return the placement of balance alone, ``[slots]``."""
    problem = make_problem(load[:, None, :], places.slots_per_gpu)
    return solve(problem).assignment.slot_expert[0]
