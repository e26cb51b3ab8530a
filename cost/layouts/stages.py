"""Kinds of pipeline stages: what each runs on and holds, what a step of it costs, and the hops between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec, joints
from cost.inputs.machine import Machine
from cost.inputs.stage_context import StageContext
from cost.inputs.workload import StepShape, with_imbalance
from cost.layouts.arrays import Array, Index, pairs
from cost.layouts.candidates import Arrangement
from cost.memory.budget import Budget, Ranks
from cost.memory.stages import even_memory
from cost.model import Model, StageShard
from cost.quantity import Quantity
from cost.step.step import even_step, measured, with_even_slots
from cost.terms.pipeline import hand_over
from topology.base.errors import InputError

MAX_ROWS = 65_536
"""Stages priced at once: many more do not fit a processor's cache."""


class Stage(NamedTuple):
    """One stage as its cost goes, whatever layers it holds.

    Attributes
    ----------
    gpus, domain_gpus, machine:
        What it runs on; ``domain_gpus``: GPUs of the group in the domain that has fewest of them; ``machine``: its
        number among those of the pricer.
    in_flight, at_once:
        Sequences per GPU that it caches, and that pass it at once, for each sequence per GPU of the replica.
    chips:
        What GPUs it has: their number among those of the pricer.
    """

    gpus: int
    domain_gpus: int
    machine: int
    in_flight: float
    at_once: float
    chips: int

    @property
    def shape(self) -> Stage:
        """The same without what only memory depends on: stages of one shape take equally long."""
        return self._replace(in_flight=0.0, chips=0)


class Hop(NamedTuple):
    """Hops over one fabric: fixed seconds, and seconds for each sequence per GPU, expected and at the links' peak."""

    fabric: str
    fixed_s: float
    slope_s: float
    peak_s: float


class Line(NamedTuple):
    """One replica of an arrangement, wherever its layers are cut: kinds of its stages, its GPUs and its hops."""

    kinds: tuple[int, ...]
    gpus: int
    hops: tuple[Hop, ...]


@dataclass(frozen=True, eq=False)
class StageTable:
    """Stages side by side: the columns of :class:`Stage` and what they hold, ``[stages]``.

    ``kind`` is the place of each among those it was made of; ``counts`` are its layers of each distinct kind,
    ``[kinds, stages]``; ``first`` and ``last`` say whether it has the embedding, and the head.
    """

    kind: Index
    counts: Array
    first: Array
    last: Array
    machine: Index
    gpus: Array
    domain_gpus: Array
    in_flight: Array
    at_once: Array
    chips: Array

    @classmethod
    def of(cls, stages: Sequence[Stage], kind: Index, counts: Array, first: Array, last: Array) -> StageTable:
        """Return stages side by side, ``kind`` the place of each among ``stages``."""
        columns = np.array(stages, dtype=np.float64).reshape(-1, len(Stage._fields)).T[:, kind]
        named = dict(zip(Stage._fields, columns, strict=True))
        machine = named.pop("machine").astype(np.int64)
        return cls(kind, counts, first, last, machine, **named)

    @classmethod
    def bare(cls, stages: Sequence[Stage], kinds: int) -> StageTable:
        """Return stages that hold nothing of a model with ``kinds`` of layers."""
        none = np.zeros(len(stages))
        return cls.of(stages, np.arange(len(stages)), np.zeros((kinds, len(stages))), none, none)

    def held(self, deployment: Deployment, rows: Index) -> StageShard:
        """What the stages ``rows`` hold of the model."""
        kinds = zip(deployment.model.kinds, self.counts, strict=True)
        layers = tuple((layer, count[rows]) for layer, count in kinds if count.any())
        return StageShard(layers, self.first[rows], self.last[rows])


def single_parts(model: Model, stages: int) -> tuple[Index, StageShard]:
    """Return rows of ``stages`` that hold one part of a model each: a layer of each kind, the embedding, the head.

    Returns
    -------
    The stage of each row, and what it holds, ``[parts * stages]``: all stages with the first part come first.
    """
    parts = len(model.kinds) + 2
    identity = np.repeat(np.eye(parts), stages, axis=1)
    layers = tuple(zip(model.kinds, identity, strict=False))
    return np.tile(np.arange(stages), parts), StageShard(layers, first=identity[-2], last=identity[-1])


class Budgets(NamedTuple):
    """Figures of :class:`cost.memory.budget.Budget` of some stages, ``[stages]``."""

    usable: Array
    part: Array
    less: Array
    more: Array

    def pool(self, held: Quantity) -> Quantity:
        """As :meth:`cost.memory.budget.Budget.pool`."""
        return self.part * (self.usable - held)


@dataclass(frozen=True, eq=False)
class Widths:
    """How configurations cut their stages and what they process, each array ``[configurations]``.

    ``imbalance`` as in :func:`cost.layouts.sweep`; the rest as of :class:`cost.inputs.layout.Layout`.
    """

    tp: Index
    moe_tp: Index
    dcp: Index
    pcp: Index
    batch: Array
    imbalance: float | None = 1.0

    @classmethod
    def plain(cls, tp: Index, batch: Array) -> Widths:
        """Return those with whole experts and without context parallelism."""
        ones = np.ones_like(tp)
        return cls(tp, ones, ones, ones, batch)

    def rows(self, which: Index) -> Widths:
        """Those of some configurations."""
        tp, moe_tp, dcp, pcp = (column[which] for column in (self.tp, self.moe_tp, self.dcp, self.pcp))
        return Widths(tp, moe_tp, dcp, pcp, self.batch[which], self.imbalance)

    @property
    def cut(self) -> Index:
        """A number of each way to cut a stage."""
        return pairs(pairs(self.tp, self.moe_tp), pairs(self.dcp, self.pcp))


@dataclass(frozen=True, eq=False)
class StageCosts:
    """What a step of some stages costs, ``[stages]``; a part that none of them has is left out."""

    step_s: Array
    lower_s: Array
    terms_s: dict[str, Array] = field(default_factory=dict)
    limits_s: dict[str, Array] = field(default_factory=dict)


@dataclass(eq=False)
class Pricer:
    """Shapes, memory and seconds of stages over arrays, on the distinct machines of a deployment.

    ``redundant``: extra expert copies per layer; None: the fewest that divide. Domains of one kind share a machine.
    """

    deployment: Deployment
    redundant: int | None = None
    machines: list[Machine] = field(default_factory=list)
    kinds: dict[Stage, int] = field(default_factory=dict)
    chips: dict[tuple[int, ...], int] = field(default_factory=dict)
    _hops: dict[tuple[object, ...], Hop] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.redundant is not None and self.redundant < 0 and self.deployment.model.moe is not None:
            raise InputError(
                "expected 0 or more copies above one of each expert.", field="redundant", value=self.redundant
            )

    def lines(self, arrangement: Arrangement) -> list[tuple[Line, int]]:
        """Return the replicas of an arrangement that differ, and how many there are of each."""
        return [(self._line(arrangement.replicas[replica]), count) for replica, count in arrangement.alike]

    def _line(self, groups: Sequence[tuple[int, ...]]) -> Line:
        contexts = [self.deployment.context(StageSpec(gpus, range(0))) for gpus in groups]
        total = sum(map(len, groups))
        stages = [self.stage(context, total, len(groups)) for context in contexts]
        kinds = tuple(self.kinds.setdefault(stage, len(self.kinds)) for stage in stages)
        return Line(kinds, total, self._line_hops(contexts, stages, total / len(groups)))

    def stage(self, context: StageContext, total: int, depth: int) -> Stage:
        """Return a stage of a replica of ``total`` GPUs in ``depth`` stages."""
        if context.machine not in self.machines:
            self.machines.append(context.machine)
        machine, gpus = self.machines.index(context.machine), len(context.gpus)
        in_flight = total / gpus
        kinds = tuple(sorted({self.deployment.cluster.domain_kind[domain] for domain in context.domain_set}))
        chips = self.chips.setdefault(kinds, len(self.chips))
        return Stage(gpus, context.smallest_part, machine, in_flight, in_flight / depth, chips)

    def _line_hops(
        self, contexts: Sequence[StageContext], stages: Sequence[Stage], sequences: float
    ) -> tuple[Hop, ...]:
        """Hops of a micro-batch that goes round once, linear in the batch; ``sequences``: for each per GPU."""
        if len(stages) == 1:
            return ()
        hops: dict[str, Hop] = {}
        near = joints([context.place for context in contexts])
        faulty = self.deployment.fabric_faults is not None
        for index, stage in enumerate(stages):
            to, back = (index + 1) % len(stages), index + 1 == len(stages)
            # where links differ, a hop is of its GPUs alone
            ends = (contexts[index].gpus, contexts[to].gpus) if faulty else near[index]
            key = stage.machine, stage.gpus, stages[to].gpus, ends, sequences, back
            hop = self._hops.get(key)
            if hop is None:
                hop = self._hops[key] = self._hop(
                    contexts[index].gpus, contexts[to].gpus, sequences, back=back
                )
            fabric, *seconds = hop
            previous = hops.get(fabric)
            hops[fabric] = hop if previous is None else Hop(fabric, *map(add, previous[1:], seconds))
        return tuple(hops.values())

    def _hop(
        self, sender: tuple[int, ...], receiver: tuple[int, ...], sequences: float, *, back: bool
    ) -> Hop:
        ends = StageSpec(sender, range(0)), StageSpec(receiver, range(0))
        fabric, fixed_s, _ = hand_over(self.deployment, *ends, 0.0, back=back)
        _, one_s, peak_s = hand_over(self.deployment, *ends, sequences, back=back)
        return Hop(fabric, fixed_s, one_s - fixed_s, peak_s)

    def shape(self, stages: StageTable, rows: Index, widths: Widths) -> StepShape:
        """Return what the stages ``rows`` process, ``widths.batch`` sequences per GPU of their replica in flight.

        ``widths.imbalance``: busiest GPU's expert load over the mean, experts else used alike; None: as served models
        are measured, the usual one of wide groups and experts of unequal use (:func:`with_imbalance`).
        """
        workload, moe, gpus = self.deployment.workload, self.deployment.model.moe, stages.gpus[rows]
        tp, moe_tp, dcp, pcp = (
            column.astype(np.float64) for column in (widths.tp, widths.moe_tp, widths.dcp, widths.pcp)
        )
        sequences, ep = widths.batch * stages.at_once[rows], gpus / moe_tp
        shape = StepShape(
            tp=tp,
            attention_dp=gpus / tp,
            ep=ep,
            moe_tp=moe_tp,
            slots=np.zeros_like(ep) if moe is None else self._slots(moe.experts, ep),
            domain_gpus=stages.domain_gpus[rows],
            imbalance=0.0 if widths.imbalance is None else np.full_like(ep, widths.imbalance),
            dcp=dcp,
            pcp=pcp,
        )
        if widths.imbalance is None:
            shape = with_imbalance(shape, workload.step_phase)
        return shape.under(workload, sequences)

    def _slots(self, experts: int, ep: Array) -> Array:
        """Expert copies of a layer over ``ep`` places."""
        if self.redundant is None:
            return np.ceil(experts / ep) * ep
        return np.full_like(ep, experts + self.redundant)

    def memory(
        self, stages: StageTable, rows: Index, shape: StepShape, held: StageShard, *, buffers: bool = True
    ) -> tuple[Quantity, Quantity]:
        """As :func:`cost.memory.stages.even_memory`."""
        model, workload, in_flight = self.deployment.model, self.deployment.workload, stages.in_flight[rows]
        return even_memory(model, workload, shape, held, in_flight=in_flight, buffers=buffers)

    def budgets(self, stages: StageTable, rows: Index, shape: StepShape) -> Budgets:
        """Return how the engine divides the GPU that has least of each of the stages ``rows``."""
        depth = np.rint(stages.in_flight[rows] / stages.at_once[rows])
        columns = np.stack([stages.chips[rows], shape.tp, shape.moe_tp, shape.attention_dp, depth])
        kinds, of = np.unique(columns.astype(np.int64), axis=1, return_inverse=True)
        budgets = [self._budget(chips, Ranks(*ranks)) for chips, *ranks in kinds.T.tolist()]
        figures = [(budget.usable, budget.part, budget.less, budget.more) for budget in budgets]
        return Budgets(*np.array(figures, dtype=np.float64).reshape(-1, 4).T[:, of.reshape(-1)])

    def _budget(self, chips: int, ranks: Ranks) -> Budget:
        kinds, cluster = list(self.chips)[chips], self.deployment.cluster
        gpus = [cluster.spec.domains[cluster.domain_kind.index(kind)].gpu for kind in kinds]
        return min((self.deployment.budget_on(gpu, ranks) for gpu in gpus), key=lambda budget: budget.usable)

    def by_machine(self, machine: Index) -> Iterator[tuple[Machine, Index]]:
        """Yield the rows on each machine, as many at once as are priced fast; ``machine``: of each row."""
        for number, known in enumerate(self.machines):
            rows = np.flatnonzero(machine == number)
            for start in range(0, len(rows), MAX_ROWS):
                yield known, rows[start : start + MAX_ROWS]

    def seconds(
        self, stages: StageTable, rows: Index, shape: StepShape, held: StageShard, *, bounds: bool = True
    ) -> StageCosts:
        """Return what a step of the stages ``rows`` costs, experts balanced; ``bounds`` as :func:`even_step` has."""
        deployment, shape = self.deployment, with_even_slots(shape)
        costs = StageCosts(np.zeros(len(rows)), np.zeros(len(rows)))
        for machine, where in self.by_machine(stages.machine[rows]):
            layers = tuple((layer, np.asarray(count)[where]) for layer, count in held.layers)
            part = StageShard(layers, np.asarray(held.first)[where], np.asarray(held.last)[where])
            overlap = deployment.workload.overlap
            part_shape = measured(shape.rows(where), machine)
            cost = even_step(deployment.model, part_shape, machine, part, overlap=overlap, bounds=bounds)
            costs.step_s[where], costs.lower_s[where] = cost.total_s, cost.lower_s
            for all_s, some_s in ((costs.terms_s, cost.terms_s), (costs.limits_s, cost.limits_s)):
                for name, seconds in some_s.items():
                    if np.any(np.asarray(seconds)):
                        all_s.setdefault(name, np.zeros(len(rows)))[where] = seconds
        return costs
