"""Place the experts of one layer by what its tokens choose together; never worse than what balance alone gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from placement.arrays import Experts, Floats, Ints
from placement.experts.annealing import descend
from placement.experts.counts import replicate
from placement.experts.local_search import swap_down
from placement.experts.pack import pack
from placement.experts.problem import make_problem
from placement.traffic.fill import fill, twice
from placement.traffic.grouping import Work, group, improve
from placement.traffic.groups import whole_groups
from placement.traffic.parts import Parts, reach_of_tokens
from placement.traffic.places import Places
from placement.traffic.reach import Reach, held_in, reach, used_domain
from placement.traffic.spare import shares_of
from placement.traffic.task import Limit, TrafficTask
from placement.traffic.tokens import Tokens

_SEARCHED = 20_000  # tokens that a search counts on
_CHECKED = 0.2  # of them, the last, only check that what was found is no accident
_SURE = 4.0  # standard errors that make it none
_DOMAIN_ROOM = 0.6  # of the slack, where a domain has several GPUs: what is packed into it needs some
_AGAIN = 0.2  # of heat and exchanges, when what was found is improved on all tokens

SLACKS = (0.0, 0.01, 0.02, 0.05, 0.10, 0.20, np.inf)
"""Those of a front between balance and domains."""

TOO_FEW = "too few tokens to plan by"
ONE_NODE = "all GPUs are in one node: no placement lets tokens reach fewer"
CROWDED = "so many spare copies could not be kept on different GPUs"
INDEPENDENT = "what tokens chose together does not make domains fewer on tokens that were not planned with"


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
    reason:
        Why it is the placement of balance alone; empty where it is not.
    """

    slot_expert: Experts
    reach: Reach
    balanced: Reach
    limit: Limit
    reason: str = ""

    @property
    def held(self) -> bool:
        """Whether the limits are kept; where they are not, no exchange of two experts came nearer."""
        return self.limit.kept(self.reach)


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
    return front(task, (task.slack,), seed=seed, work=work, balanced=balanced)[0]


def front(
    task: TrafficTask,
    slacks: Sequence[float] = SLACKS,
    *,
    seed: int = 0,
    work: Work | None = None,
    balanced: Experts | None = None,
) -> list[TrafficPlacement]:
    """Return a placement for each of ``slacks`` (growing), in place of the task's own: what less balance buys.

    Each is searched anew and annealed from its neighbour, whichever is better; one that reaches more domains than a
    tighter one, whose loads are allowed too, is that one. Otherwise as :func:`place`.
    """
    layer = _Layer(task, work or Work(), seed, balanced)
    found: list[TrafficPlacement] = []
    for slack in slacks:
        placed = layer.place(slack)
        if found and _cost(task, found[-1]) <= _cost(task, placed):
            placed = replace(found[-1], limit=placed.limit)
        found.append(placed)
    return found


def _cost(task: TrafficTask, placed: TrafficPlacement) -> tuple[bool, float]:
    return not placed.held, placed.reach.domains if task.own else placed.reach.crossings


class _Layer:
    """A layer under names that do not depend on those that its experts came with, and what was found so far."""

    def __init__(self, task: TrafficTask, work: Work, seed: int, balanced: Experts | None) -> None:
        name = task.tokens.sample(_SEARCHED).ranks()
        self.back = np.argsort(name)
        self.task = task.named(name)
        self.load = self.task.loads
        self.work, self.rng = work, np.random.default_rng(seed)
        places = task.places
        self.plain = _balanced(self.load, places) if balanced is None else name[balanced].astype(np.int32)
        self.before = reach(self.task.tokens, self.plain, places, self.load)
        grouped = whole_groups(task.loads.mean(axis=0), task.groups, places.domains)
        size = shares_of(places.domain_slots, task.tokens.experts)
        fits = grouped is not None and (np.bincount(grouped, minlength=places.domains) == size).all()
        self.starts = [grouped[self.back]] if grouped is not None and fits else []
        self.size = size
        self.sample = self.task.tokens.sample(_SEARCHED)
        self.part: Ints | None = None

    def place(self, slack: float) -> TrafficPlacement:
        """Return the layer placed under a limit."""
        task = replace(self.task, slack=slack)
        limit = Limit(1 + task.most, max(1 + task.most, self.before.gpu_peak))
        slot_expert, reason = self._search(task, limit)
        after = self.before if reason else reach(task.tokens, slot_expert, task.places, self.load)
        return TrafficPlacement(self.back[slot_expert].astype(np.int32), after, self.before, limit, reason)

    def _search(self, task: TrafficTask, limit: Limit) -> tuple[Experts, str]:
        places = task.places
        if places.nodes < 2:
            return self.plain, ONE_NODE
        cut = int(len(self.sample) * (1 - _CHECKED))
        fit, check = self.sample.rows(slice(0, cut)), self.sample.rows(slice(cut, None))
        if len(fit) == 0 or len(check) == 0:
            return self.plain, TOO_FEW
        room = 1 + (limit.domain - 1) * (1.0 if places.gpus == places.domains else _DOMAIN_ROOM)
        domains = Parts.free(fit, self.size, self.load, room * places.fair(places.domain))
        part = group(domains, self.rng, self.work, self.starts)
        ways = float(gammaln(task.tokens.experts + 1) - gammaln(self.size + 1).sum())
        if places.domains > 1 and not (
            _confirmed(check, part, self.plain, places, _SURE)
            or _confirmed(fit, part, self.plain, places, _SURE + math.sqrt(2 * ways))
        ):
            return self.plain, INDEPENDENT
        whole = domains.of_tokens(self.sample)
        part = improve(whole, part, self.rng, self.work, heat=_AGAIN, share=_AGAIN)
        if self.part is not None:
            other = improve(whole, self.part, self.rng, self.work, heat=_AGAIN, share=_AGAIN)
            part = min((part, other), key=lambda each: (whole.excess(each) > 0, whole.reached(each)))
        self.part = part
        searched = replace(task, tokens=self.sample)
        slot_expert = fill(searched, limit, part, self.rng, self.work)
        return (self.plain, CROWDED) if twice(slot_expert, places) else (slot_expert, "")


def _confirmed(check: Tokens, part: Ints, plain: Experts, places: Places, errors: float) -> bool:
    """Whether tokens reach fewer domains than under balance alone, by more than so many standard errors.

    Of N ways to place experts the best is by chance ``sqrt(2 ln N)`` of them better on the tokens that were searched.
    """
    ours = reach_of_tokens(check, part, places.domains).astype(np.float64)
    used = used_domain(held_in(plain, places, check.experts) > 0)
    theirs = np.mean(
        [reach_of_tokens(check, used[:, s], places.domains) for s in range(places.domains)], axis=0
    )
    saved = theirs - ours
    error = float(saved.std()) / np.sqrt(len(check))
    return bool(float(saved.mean()) > errors * error)


def _balanced(load: Floats, places: Places) -> Experts:
    """Return the placement of balance alone, ``[slots]``: greedy copies, packed, then pair exchanges."""
    problem = make_problem(load[:, None, :], places.slots_per_gpu, places.speed)
    average = problem.average
    packed = swap_down(average, pack(average, replicate(average)))
    row: Experts = (descend(problem, packed) if problem.scenarios > 1 else packed)[0]
    return row
