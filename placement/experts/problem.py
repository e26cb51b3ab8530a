"""The placement problem and its objective: loads, slots, speeds, failure domains, dispatch policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.experts.assignment import Assignment
from cost.experts.best_split import lp_level
from cost.experts.dispatch import DispatchPolicy, slot_shares
from cost.experts.quota import fill_scenarios
from placement.arrays import Bools, Experts, Floats, Index, Ints, count_copies, first_bad
from placement.experts.scenario_groups import distinct, group_scenarios, heard, votes
from placement.options import Objective, require_objective
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.units import plural

WIDE_GAP = 5e-3
"""The gap from which other copy counts are looked at."""

EQUAL = 1e-9
"""Relative: an objective that near to its bound is its bound, up to rounding."""

_CELLS = 1 << 22  # of [layers, domains, experts] in one part
_Copies = TypeVar("_Copies", int, "Ints")


@dataclass(frozen=True, eq=False)
class Problem:
    """Experts of some layers, to be copied into the slots of one EP group: one placement for all loads.

    Attributes
    ----------
    loads:
        float64 ``[scenarios, layers, experts]``, finite, not negative, no row all zero; one load may be given as
        ``[layers, experts]``. :func:`make_problem` scales each row to mean 1.
    slots_per_gpu:
        int64 ``[gpus]``, the same in every layer; a GPU may have none.
    gpu_speed:
        float64 ``[gpus]``, positive: tokens per second of each GPU, relative to their mean; None: all equal. A GPU's
        load counts as load over speed.
    spread:
        int64 ``[gpus]``: failure domain of each GPU (node, rack...); the copies of an expert lie in different ones,
        as far as there are enough. None: each GPU is one of its own.
    objective:
        What is kept small in each layer: ``mean`` or ``worst`` over scenarios of the largest GPU load over the mean.
    split:
        Dispatch policy: how the engine splits an expert's tokens over its copies.
    nodes:
        int64 ``[gpus]``: node of each GPU, for a split by source; None: each GPU is a node of its own. For ``quota``:
        the scale-up domain, within which copies are fetched; None: all are in one.
    quota_slots:
        For ``quota``: slots of each GPU with experts that are filled for each batch, besides ``slots_per_gpu``.
    grouped:
        Whether scenarios that are nearly the same share a vote in a search (:attr:`searched`). What is scored is each
        load, equally.
    votes:
        float64 ``[scenarios]``, summing to 1: weight of each scenario in the mean; None: all equal.

    Raises
    ------
    InputError
        If the loads are not as above, if there are fewer slots than experts, or if a GPU has more slots than
        there are experts (it would hold two copies of one); if a speed is not positive or of another length.
    """

    loads: Floats
    slots_per_gpu: Ints
    gpu_speed: Floats | None = None
    spread: Ints | None = None
    objective: Objective = "mean"
    split: DispatchPolicy = "even"
    nodes: Ints | None = None
    grouped: bool = True
    votes: Floats | None = None
    quota_slots: int = 0

    def __post_init__(self) -> None:
        if self.loads.ndim == 2:
            object.__setattr__(self, "loads", self.loads[None])
        _check_loads(self.loads)
        _check_slots(self.slots_per_gpu, self.experts)
        _check_speed(self.gpu_speed, self.gpus)
        if self.spread is not None and self.spread.shape != (self.gpus,):
            raise InputError(
                f"{self.spread.size} failure domains for {self.gpus} GPUs: give one for each GPU."
            )

    @property
    def scenarios(self) -> int:
        """Number of loads."""
        return int(self.loads.shape[0])

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.loads.shape[1])

    @property
    def experts(self) -> int:
        """Logical experts of a layer."""
        return int(self.loads.shape[2])

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.slots_per_gpu.shape[0])

    @cached_property
    def mean(self) -> Floats:
        """Mean load over scenarios, float64 ``[layers, experts]``: what searches for one load go by."""
        if self.scenarios == 1:
            only: Floats = self.loads[0]
            return only
        if self.votes is not None:
            weighted: Floats = (self.votes[:, None, None] * self.loads).sum(axis=0)
            return weighted
        mean: Floats = self.loads.mean(axis=0)
        return mean

    @cached_property
    def speed(self) -> Floats:
        """Relative speed of each GPU, float64 ``[gpus]``, mean 1."""
        if self.gpu_speed is None:
            return np.ones(self.gpus)
        relative: Floats = self.gpu_speed / self.gpu_speed.mean()
        return relative

    @cached_property
    def equal_speeds(self) -> bool:
        """Whether all GPUs are as fast."""
        return bool((self.speed == self.speed[0]).all())

    @cached_property
    def failure_domain(self) -> Ints:
        """Failure domain of each GPU, int64 ``[gpus]``, numbered from 0."""
        if self.spread is None:
            return np.arange(self.gpus, dtype=np.int64)
        numbered: Ints = np.unique(self.spread, return_inverse=True)[1].astype(np.int64)
        return numbered

    @cached_property
    def slots(self) -> int:
        """Slots of a layer over all GPUs."""
        return int(self.slots_per_gpu.sum())

    @cached_property
    def slot_gpu(self) -> Experts:
        """The GPU of each slot, int32 ``[slots]``, non-decreasing."""
        return np.repeat(np.arange(self.gpus, dtype=np.int32), self.slots_per_gpu)

    @cached_property
    def first_slot(self) -> Ints:
        """The first slot of each GPU, int64 ``[gpus + 1]``; the last entry is ``slots``."""
        starts: Ints = np.concatenate(([0], np.cumsum(self.slots_per_gpu)))
        return starts

    @cached_property
    def average(self) -> Problem:
        """The same for the mean load alone."""
        return self if self.scenarios == 1 else replace(self, loads=self.mean, votes=None)

    @cached_property
    def highest(self) -> Problem:
        """The same for each expert's largest load in any scenario; its rows have no mean of 1."""
        return self if self.scenarios == 1 else replace(self, loads=self.loads.max(axis=0), votes=None)

    @cached_property
    def by_votes(self) -> Problem:
        """The same loads, each once, with one vote for each group of alike ones; itself where none are alike."""
        if self.scenarios == 1 or not self.grouped:
            return self
        loads = self.loads[distinct(self.loads)]
        groups = group_scenarios(loads)[0]
        count = int(groups.max()) + 1
        if count == self.scenarios:
            return self
        # equal votes would round a mean in another way
        votes_of = None if count == len(loads) else votes(groups)
        return replace(self, loads=loads, votes=votes_of, grouped=False)

    @cached_property
    def groups(self) -> int:
        """Groups of alike scenarios, whatever the weights."""
        return int(group_scenarios(self.loads[distinct(self.loads)])[0].max()) + 1

    @cached_property
    def searched(self) -> Problem:
        """Loads and votes used by a search (:mod:`placement.experts.scenario_groups`), never for scores.

        For the worst scenario no loads further away: they would be the worst. Itself where each has a vote.
        """
        if self.scenarios == 1 or not self.grouped:
            return self
        loads, weight = heard(self.by_votes.loads, further=self.objective == "mean")
        return replace(self, loads=loads, votes=weight, grouped=False)

    @property
    def even(self) -> Problem:
        """The same for an engine that splits tokens evenly over copies."""
        return self if self.split == "even" else replace(self, split="even")

    @property
    def with_quota(self) -> Problem:
        """The same with quota slots as any others and an LP split: under one load no placement of it is behind."""
        slots = np.where(self.slots_per_gpu > 0, self.slots_per_gpu + self.quota_slots, 0)
        return replace(self, split="lp", slots_per_gpu=np.minimum(slots, self.experts), quota_slots=0)

    @property
    def equal_loads(self) -> bool:
        """Whether all scenarios have the same loads."""
        return bool((self.loads == self.loads[0]).all())

    def each(self) -> Iterator[Problem]:
        """Yield the same for each load alone."""
        yield from (replace(self, loads=load, votes=None) for load in self.loads)

    def in_order(self) -> Problem:
        """Return the same with the scenarios in an order that does not depend on the one they came in."""
        if self.scenarios == 1:
            return self
        order = sorted(range(self.scenarios), key=lambda i: self.loads[i].tobytes())
        return replace(self, loads=self.loads[order], votes=None if self.votes is None else self.votes[order])

    def without(self, scenario: int) -> Problem:
        """Return the same without one of the scenarios."""
        left = None if self.votes is None else np.delete(self.votes, scenario)
        if left is not None:
            left /= left.sum()
        return replace(self, loads=np.delete(self.loads, scenario, axis=0), votes=left)

    def without_spread(self) -> Problem:
        """Return the same with each GPU a failure domain of its own."""
        return self if self.spread is None else replace(self, spread=None)

    def rows(self, which: Index | Bools) -> Problem:
        """Return the same problem for some of the layers, in any order, also repeated."""
        return replace(self, loads=self.loads[:, which])

    def assignment(self, slot_expert: Experts) -> Assignment:
        """Wrap ``[layers, slots]`` expert ids as an assignment to this problem's slots."""
        return Assignment(slot_expert.astype(np.int32), self.slot_gpu, self.experts, self.gpus)

    def peaks(self, placement: Assignment | Experts) -> Floats:
        """Largest over mean GPU load, ``[scenarios, layers]``, under the split, from the placement alone.

        ``placement``: the expert of each slot, ``[layers, slots]``, or the assignment. Of GPUs of different speed:
        largest load over speed, relative to what all would take if they were equally busy.
        """
        assignment = placement if isinstance(placement, Assignment) else self.assignment(placement)
        if self.split == "quota":
            filled = fill_scenarios(assignment, self.loads, self.quota_slots, self.speed, self.nodes)
            load = filled.assignment.gpu_load(self.loads.reshape(-1, self.experts), filled.shares)
            largest = (load / self.speed).max(axis=1).reshape(self.scenarios, self.layers)
        elif self.split == "lp":
            largest = np.stack([lp_level(assignment, load, self.speed) for load in self.loads])
        else:
            shares = None if self.split == "even" else slot_shares(assignment, self.split, nodes=self.nodes)
            busy = [assignment.gpu_load(load, shares) / self.speed for load in self.loads]
            largest = np.stack([load.max(axis=1) for load in busy])
        peaks: Floats = largest * self.gpus / self.loads.sum(axis=2)
        return peaks

    def over_scenarios(self, values: Floats) -> Floats:
        """Return the mean by :attr:`votes`, or the worst, of ``[scenarios, layers]``: ``[layers]``."""
        if self.objective == "worst":
            worst: Floats = values.max(axis=0)
            return worst
        if self.votes is not None:
            weighted: Floats = (self.votes[:, None] * values).sum(axis=0)
            return weighted
        mean: Floats = values.mean(axis=0)
        return mean

    def evaluate(self, placement: Assignment | Experts) -> Floats:
        """Return the objective of each layer, ``[layers]``: :meth:`peaks`, the mean or the worst over scenarios."""
        return self.over_scenarios(self.peaks(placement))

    @cached_property
    def each_alone(self) -> bool:
        """Whether each GPU is a failure domain of its own."""
        return self.spread is None or self.domains == self.gpus

    @cached_property
    def domains(self) -> int:
        """Failure domains, those without slots too."""
        return int(self.failure_domain.max()) + 1

    @cached_property
    def domains_used(self) -> int:
        """Failure domains that have slots."""
        return int(np.unique(self.failure_domain[self.slots_per_gpu > 0]).size)

    @cached_property
    def _domain_slots(self) -> Ints:
        slots: Ints = np.bincount(self.failure_domain, weights=self.slots_per_gpu).astype(np.int64)
        return slots

    @property
    def can_be_apart(self) -> bool:
        """Whether the slots can be filled with no expert twice in a failure domain: the rule where copies are few."""
        return bool(self._domain_slots.max() <= self.experts)

    @property
    def domain_slots(self) -> Ints:
        """Slots of each failure domain, int64 ``[domains]``, where each holds an expert once at most.

        Any distinct experts of a domain can be dealt out to its GPUs, so that what can be placed at all is decided
        by these numbers alone.

        Raises
        ------
        InfeasibleError
            If a domain has more slots than there are experts: it would hold two copies of one.
        """
        slots = self._domain_slots
        worst = int(np.argmax(slots))
        if not self.can_be_apart:
            raise InfeasibleError(
                f"a failure domain of {int((self.failure_domain == worst).sum())} GPUs has {int(slots[worst])} "
                f"slots for {self.experts} experts, so it would hold two copies of an expert: spread over smaller "
                f"domains ({input_name('spread')} node or gpu), or give it at most {self.experts} slots."
            )
        return slots

    @cached_property
    def room(self) -> Ints:
        """Most copies that any 1, 2, 3... experts can have together, none twice in a failure domain, ``[experts]``.

        Entry ``k - 1`` is the sum over domains of ``min(slots, k)``. Errors as of :attr:`domain_slots`.
        """
        slots = self.domain_slots
        ks = np.arange(1, self.experts + 1)
        total: Ints = np.minimum(slots[None, :], ks[:, None]).sum(axis=1)
        return total

    @property
    def most_copies(self) -> int:
        """Most copies that an expert can have with no two in a failure domain, and one of each other expert."""
        return min(self.slots - self.experts + 1, int((self.domain_slots > 0).sum()))

    @property
    def seconds_first(self) -> bool:
        """Whether no expert gets a third copy before all have two: as many as the slots allow outlive a failure."""
        return self.spread is not None and self.domains_used > 1

    @property
    def copies_range(self) -> tuple[int, int]:
        """Fewest and most copies of an expert in a search: on every GPU, or no two in one failure domain."""
        if self.seconds_first and self.slots < 2 * self.experts:
            return 1, 2
        return 1 + self.seconds_first, self.domains_used

    def counts_fit(self, copies: Ints) -> Bools:
        """Whether counts ``[layers, experts]`` fit :attr:`room` (Gale and Ryser's condition), ``[layers]``."""
        most = np.cumsum(-np.sort(-copies, axis=1), axis=1)
        fits: Bools = np.all(most <= self.room, axis=1)
        return fits

    def most_in_domain(self, copies: Ints) -> Ints:
        """Most copies in one failure domain of experts with so many (:func:`most_in_domain`), in any shape."""
        return most_in_domain(copies, self.domains_used)

    def in_domains(self, slot_expert: Experts) -> Ints:
        """Copies of each expert in each failure domain, ``[layers, domains, experts]``, of ``[layers, slots]``."""
        return count_copies(slot_expert, self.failure_domain[self.slot_gpu], self.domains, self.experts)

    def on_gpus(self, slot_expert: Experts) -> Bools:
        """Whether a GPU holds an expert, ``[layers, gpus, experts]``, of ``[layers, slots]``; -1 is no expert."""
        held = np.zeros((len(slot_expert), self.gpus, self.experts), dtype=bool)
        row, slot = np.nonzero(slot_expert >= 0)
        held[row, self.slot_gpu[slot], slot_expert[row, slot]] = True
        return held

    def over_cap(self, slot_expert: Experts) -> Ints:
        """Copies above :meth:`most_in_domain` and second ones of a GPU, ``[layers]``; 0 where legal.

        ``slot_expert`` ``[layers, slots]`` names experts that exist, each at least once.
        """
        twice = _again(slot_expert, self.slot_gpu, self.experts)
        if self.each_alone:
            return twice
        over = np.zeros(len(slot_expert), dtype=np.int64)
        size = max(1, _CELLS // (self.domains * self.experts))
        for start in range(0, len(slot_expert), size):
            there = self.in_domains(slot_expert[start : start + size])
            most = self.most_in_domain(there.sum(axis=1))
            over[start : start + size] = np.maximum(there - most[:, None], 0).sum(axis=(1, 2))
        return over + twice

    def apart(self, slot_expert: Experts) -> Bools:
        """Whether no failure domain holds an expert twice, ``[layers]``, of ``[layers, slots]``."""
        apart: Bools = _again(slot_expert, self.failure_domain[self.slot_gpu], self.experts) == 0
        return apart

    def legal(self, slot_expert: Experts) -> Bools:
        """Whether each row of ``slot_expert`` ``[layers, slots]`` is a legal placement: the rule of every search.

        Every slot holds an expert that exists, every expert has a copy, and :meth:`over_cap` is 0.
        """
        rows = np.flatnonzero((slot_expert.min(axis=1) >= 0) & (slot_expert.max(axis=1) < self.experts))
        copies = count_copies(slot_expert[rows], np.zeros(1, dtype=np.int64), 1, self.experts)[:, 0]
        rows = rows[copies.all(axis=1)]
        fine = np.zeros(len(slot_expert), dtype=bool)
        fine[rows] = self.over_cap(slot_expert[rows]) == 0
        return fine


def most_in_domain(copies: _Copies, domains: int) -> _Copies:
    """Most copies of an expert with ``copies`` of them in one of ``domains`` failure domains that have slots.

    One where there are enough domains, else an even part of them, rounded up: ``ceil(copies / domains)``. In a
    single domain one, so that a second copy, which would not outlive it, is never legal there.
    """
    return -(-copies // (domains if domains > 1 else copies + (copies == 0)))


def _again(slot_expert: Experts, place: NDArray[np.integer], experts: int) -> Ints:
    """Copies of an expert beyond the first in a place, ``[layers]``; ``place`` is that of each slot."""
    if np.bincount(place).max() == 1:
        return np.zeros(len(slot_expert), dtype=np.int64)
    held = np.sort(slot_expert + place.astype(np.int64) * experts, axis=1)
    again: Ints = (held[:, 1:] == held[:, :-1]).sum(axis=1)
    return again


def make_problem(
    loads: ArrayLike,
    slots_per_gpu: ArrayLike,
    speed: Floats | None = None,
    spread: Ints | None = None,
    *,
    objective: Objective = "mean",
    split: DispatchPolicy = "even",
    nodes: Ints | None = None,
    quota_slots: int = 0,
) -> Problem:
    """Check ``loads`` ``[scenarios, layers, experts]`` (or one load) and divide each layer of each by its mean.

    Raises
    ------
    InputError
        As :class:`Problem`, or if there is no such objective.
    """
    raw = np.asarray(loads, dtype=np.float64, order="C")
    raw = raw[None] if raw.ndim == 2 else raw
    _check_loads(raw)
    scaled = raw / raw.max(axis=2, keepdims=True)  # first the largest: the sum of loads near 1e308 overflows
    return Problem(
        scaled / scaled.mean(axis=2, keepdims=True),
        np.asarray(slots_per_gpu, dtype=np.int64).copy(),
        speed,
        spread,
        require_objective(objective),
        split,
        nodes,
        quota_slots=quota_slots,
    )


def keep_better(problem: Problem, slot_expert: Experts, layers: Index, again: Experts) -> int:
    """Take the rows of ``again`` that are better than ``slot_expert[layers]``, in place; return how many."""
    part = problem.rows(layers)
    better = part.evaluate(again) < part.evaluate(slot_expert[layers])
    slot_expert[layers[better]] = again[better]
    return int(better.sum())


def second_copies_first(copies: Ints) -> Bools:
    """Return where no expert has three copies while another has one, ``[layers]``, of ``[layers, experts]``."""
    fine: Bools = (copies.min(axis=1) > 1) | (copies.max(axis=1) < 3)
    return fine


def proven(reached: Floats, bound: Floats) -> Bools:
    """Whether an objective is its bound, up to rounding, ``[layers]``."""
    there: Bools = reached <= bound * (1 + EQUAL)
    return there


def search_state(load: Floats, bound: Floats) -> tuple[int, int, float, float]:
    """Return what a search tells: layers proven and in all, and the means of ``load`` and ``bound`` ``[layers]``."""
    least = float(np.minimum(bound, load).mean())
    return int(proven(load, bound).sum()), load.size, float(load.mean()), least


def fewest_redundant(experts: int, gpus: int) -> int:
    """Fewest extra copies per layer that make slots divisible by the GPUs (256 experts, 72 GPUs: 32)."""
    return -experts % gpus


def spread_slots(experts: int, gpus: int, redundant: int | None = None) -> Ints:
    """Slots of each GPU, int64 ``[gpus]``, for ``redundant`` copies per layer above one of each expert.

    What does not divide gives the first GPUs one slot more. ``None`` means :func:`fewest_redundant`.

    Raises
    ------
    InputError
        If there is no GPU or no expert, or ``redundant`` is negative (fewer slots than experts).
    """
    if experts < 1 or gpus < 1:
        raise InputError(f"{experts} experts on {gpus} GPUs: both must be at least 1.")
    slots = experts + (fewest_redundant(experts, gpus) if redundant is None else redundant)
    least, more = divmod(slots, gpus)
    per_gpu = np.full(gpus, least, dtype=np.int64)
    per_gpu[:more] += 1
    _check_slots(per_gpu, experts)
    return per_gpu


def _check_speed(speed: Floats | None, gpus: int) -> None:
    if speed is None:
        return
    if speed.shape != (gpus,) or not (np.isfinite(speed) & (speed > 0)).all():
        raise InputError(f"{speed.size} speeds for {gpus} GPUs: give one finite number above 0 per GPU.")


def _check_loads(loads: Floats) -> None:
    if loads.ndim != 3 or 0 in loads.shape:
        shape = loads.shape[1:] if loads.ndim == 3 and loads.shape[0] == 1 else loads.shape
        raise InputError(
            f"expert loads have shape {list(shape)}: give [scenarios, layers, experts], or [layers, experts] of one "
            "load, none of them 0."
        )
    bad = first_bad(loads)
    if bad:
        scenario, layer, expert = bad
        raise InputError(
            f"expert loads, {_row(loads, scenario, layer)}, expert {expert}: {loads[bad]} is not a token "
            "count; give finite, non-negative numbers."
        )
    dead = loads.max(axis=2) == 0
    if dead.any():
        scenario, layer = (int(i) for i in np.argwhere(dead)[0])
        raise InputError(
            f"expert loads, {_row(loads, scenario, layer)}: all zero; give loads of MoE layers only."
        )


def _row(loads: Floats, scenario: int, layer: int) -> str:
    return f"row {layer}" if len(loads) == 1 else f"scenario {scenario}, row {layer}"


def _check_slots(slots_per_gpu: Ints, experts: int) -> None:
    if slots_per_gpu.ndim != 1 or slots_per_gpu.size == 0 or int(slots_per_gpu.min()) < 0:
        raise InputError(f"slots per GPU {slots_per_gpu.tolist()}: give one non-negative count per GPU.")
    slots = int(slots_per_gpu.sum())
    gpus = slots_per_gpu.size
    if slots < experts:
        raise InputError(
            f"{plural(slots, 'slot')} on {plural(gpus, 'GPU')} cannot hold {plural(experts, 'expert')}: give "
            f"more GPUs or a larger {input_name('redundant')} (0 or more: it counts copies above one of each "
            "expert)."
        )
    if int(slots_per_gpu.max()) > experts:
        most = int(slots_per_gpu.max())
        raise InputError(
            f"{plural(most, 'slot')} on a GPU for {plural(experts, 'expert')}: it would hold two copies of "
            f"an expert; give at most {input_name('redundant')} {experts * (gpus - 1)} on {gpus} GPUs, or more GPUs."
        )
