"""The stages of every pipeline side by side: what each runs on and holds, what a step of it costs, and the hops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.layout import Joint, Place, StageSpec, joints
from cost.layouts.candidates import Arrangement, Variant, expand, slots_of
from cost.machine import Machine
from cost.memory import domain_hbm_bytes, even_memory
from cost.model import StageShard
from cost.quantity import Quantity
from cost.step import even_step
from cost.terms.pipeline import hand_over
from cost.terms.work import StepCost
from cost.workload import StepShape, with_imbalance
from topology.base.units import added

Array = NDArray[np.float64]
Index = NDArray[np.int64]


MOST_ROWS = 65_536
"""Stages priced at once: many more do not fit a processor's cache."""
MOST_LINES = 10_000
"""Replicas of all variants; of more, those that cost the same are joined (a raw graph's domains are told apart)."""


@dataclass(frozen=True)
class Stage:
    """One stage as its cost goes, whatever layers it holds.

    Attributes
    ----------
    machine, gpus, domain_gpus, hbm_bytes:
        What it runs on; ``domain_gpus``: GPUs of the group in the domain that has fewest of them.
    in_flight, at_once:
        Sequences per GPU that it caches, and that pass it at once, for each sequence per GPU of the replica.
    """

    gpus: int
    domain_gpus: int
    machine: int
    in_flight: float
    at_once: float
    hbm_bytes: float


@dataclass(frozen=True)
class Line:
    """One replica of an arrangement: ``kinds`` of its stages, its GPUs and its hops by fabric (:class:`Hops`)."""

    kinds: list[int]
    gpus: int
    hops: dict[str, tuple[float, float, float]]


@dataclass(frozen=True, eq=False)
class StageTable:
    """Distinct stages of all pipelines, one after the other: the columns of :class:`Stage`, ``[stages]``.

    ``kind`` is the place of each among those it was made of, ``pipeline`` that which a stage is of, ``times`` how
    many stages of it are alike; ``counts`` are its layers of each distinct kind, ``[kinds, stages]``; ``first`` and
    ``last`` say whether it has the embedding, and the head.
    """

    kind: Index
    pipeline: Index
    times: Array
    counts: Array
    first: Array
    last: Array
    machine: Index
    gpus: Array
    domain_gpus: Array
    hbm_bytes: Array
    in_flight: Array
    at_once: Array

    @classmethod
    def of(
        cls,
        stages: Sequence[Stage],
        kind: Index,
        *,
        pipeline: Index,
        times: Array,
        counts: Array,
        first: Array,
        last: Array,
    ) -> StageTable:
        """Return stages side by side, ``kind`` the place of each among ``stages``."""
        machine = np.array([stage.machine for stage in stages], dtype=np.int64)[kind]
        names = ("gpus", "domain_gpus", "hbm_bytes", "in_flight", "at_once")
        columns = (np.array([getattr(stage, name) for stage in stages], dtype=np.float64) for name in names)
        return cls(kind, pipeline, times, counts, first, last, machine, *(column[kind] for column in columns))

    @classmethod
    def bare(cls, stages: Sequence[Stage], kinds: int) -> StageTable:
        """Return stages without layers, of one pipeline."""
        many = len(stages)
        one, none, each = np.ones(many), np.zeros(many), np.arange(many)
        counts = np.zeros((kinds, many))
        return cls.of(
            stages, each, pipeline=np.zeros_like(each), times=one, counts=counts, first=none, last=none
        )

    def held(self, deployment: Deployment, rows: Index) -> StageShard:
        """What the stages ``rows`` hold of the model."""
        kinds = [
            (layer, count[rows])
            for layer, count in zip(deployment.model.kinds, self.counts, strict=True)
            if count.any()
        ]
        return StageShard(tuple(kinds), self.first[rows], self.last[rows])


@dataclass(frozen=True, eq=False)
class Columns:
    """Figures of rows side by side by kind and name: ``step_s`` and ``lower_s``, seconds by ``term`` and ``limit``.

    Besides, of configurations, their ``layout`` and ``batch``, and ``tok_s``.

    A part that no row has is no column: it takes no time.
    """

    rows: int
    table: dict[tuple[str, str], NDArray[Any]] = field(default_factory=dict)

    def __getitem__(self, kind: str) -> NDArray[Any]:
        return self.table.get((kind, ""), np.zeros(self.rows))

    def named(self, kind: str) -> dict[str, Array]:
        """Seconds of every ``term`` or ``limit``."""
        return {name: value for (found, name), value in self.table.items() if found == kind}

    def put(self, where: Index, cost: StepCost) -> None:
        """Enter what a step of the rows ``where`` costs."""
        terms = {("term", name): seconds for name, seconds in cost.terms_s.items()}
        limits = {("limit", name): seconds for name, seconds in cost.limits_s.items()}
        found = {("step_s", ""): cost.total_s, ("lower_s", ""): cost.lower_s, **terms, **limits}
        for key, seconds in found.items():
            if not key[1] or np.any(np.asarray(seconds)):
                self.table.setdefault(key, np.zeros(self.rows))[where] = seconds

    def take(self, which: Index) -> Columns:
        """Some of the rows, in this order."""
        return Columns(len(which), {key: value[which] for key, value in self.table.items()})

    def joined(self, other: Columns) -> Columns:
        """The rows of both, one after the other."""
        none, nor = np.zeros(self.rows), np.zeros(other.rows)
        keys = {**self.table, **other.table}
        both = {key: np.concatenate([self.table.get(key, none), other.table.get(key, nor)]) for key in keys}
        return Columns(self.rows + other.rows, both)


@dataclass(eq=False)
class Pricer:
    """Shapes, memory and seconds of stages over arrays, on the distinct machines of a deployment.

    ``redundant``: extra expert copies per layer; None: the fewest that divide. Domains of one kind share a machine.
    """

    deployment: Deployment
    redundant: int | None = None
    machines: list[Machine] = field(default_factory=list)
    kinds: list[Stage] = field(default_factory=list)
    balanced: dict[Arrangement, list[tuple[range, ...]]] = field(default_factory=dict)
    shape_of: list[int] = field(default_factory=list)
    _kind: dict[Stage, int] = field(default_factory=dict)
    _kind_at: dict[tuple[object, ...], int] = field(default_factory=dict)
    _shape: dict[Stage, int] = field(default_factory=dict)
    _lines: dict[tuple[Arrangement, int], Line] = field(default_factory=dict)
    _places: dict[tuple[int, ...], tuple[int, int, float]] = field(default_factory=dict)
    _where: dict[tuple[int, ...], Place] = field(default_factory=dict)
    _hops: dict[tuple[object, ...], tuple[str, float, float, float]] = field(default_factory=dict)

    def line(self, what: Arrangement, replica: int) -> Line:
        """Return one replica of an arrangement, wherever its layers are cut."""
        if (what, replica) not in self._lines:
            stages = [StageSpec(gpus, range(0)) for gpus in what.replicas[replica]]
            places = [self.place(stage) for stage in stages]
            total = sum(len(stage.gpus) for stage in stages)
            kinds = [
                self._kind_of(place, len(stage.gpus), total, len(stages))
                for stage, place in zip(stages, places, strict=True)
            ]
            self._lines[what, replica] = Line(kinds, total, _hops(self, stages, places))
        return self._lines[what, replica]

    def _kind_of(self, place: tuple[int, int, float], gpus: int, total: int, depth: int) -> int:
        """Place among ``kinds`` of a stage of ``gpus`` in a replica of ``total`` GPUs in ``depth`` stages."""
        key = place, gpus, total, depth
        if key not in self._kind_at:
            machine, domain_gpus, hbm_bytes = place
            each = total / gpus
            found = Stage(gpus, domain_gpus, machine, each, each / depth, hbm_bytes)
            if found not in self._kind:
                self._kind[found] = len(self.kinds)
                self.kinds.append(found)
                alike = replace(found, in_flight=0.0, hbm_bytes=0.0)  # what only memory depends on
                self.shape_of.append(self._shape.setdefault(alike, len(self._shape)))
            self._kind_at[key] = self._kind[found]
        return self._kind_at[key]

    @property
    def shapes(self) -> list[Stage]:
        """The distinct kinds of stages by the time that a step takes on them; ``shape_of`` has the place of each."""
        return list(self._shape)

    def place(self, stage: StageSpec) -> tuple[int, int, float]:
        """Machine of ``stage``, its GPUs in the domain that has fewest of them, and the least HBM bytes of a GPU."""
        deployment = self.deployment
        if stage.gpus not in self._places:
            hbm_bytes = min(domain_hbm_bytes(deployment, stage).values())
            self._places[stage.gpus] = self._number(stage), deployment.smallest_part(stage), hbm_bytes
        return self._places[stage.gpus]

    def hop(
        self,
        ends: tuple[StageSpec, StageSpec],
        near: Joint | None,
        machine: int,
        sequences: float,
        *,
        back: bool,
    ) -> tuple[str, float, float, float]:
        """Return the fabric of a hop, its fixed seconds, and those for each sequence per GPU, expected and at peak.

        ``near``: what the groups have in common, None where links differ; ``machine``: that of the first.
        ``sequences``: over all GPUs of the group, for each per GPU of the replica; ``back`` as in
        :func:`cost.terms.pipeline.hand_over`.
        """
        stage, after = ends
        key = machine, len(stage.gpus), len(after.gpus), ends if near is None else near, sequences, back
        if key not in self._hops:
            fabric, fixed_s, _ = hand_over(self.deployment, stage, after, 0.0, back=back)
            _, one_s, peak_s = hand_over(self.deployment, stage, after, sequences, back=back)
            self._hops[key] = fabric, fixed_s, one_s - fixed_s, peak_s
        return self._hops[key]

    def where(self, stage: StageSpec) -> Place:
        """Scale-up domain, leaf and pod of ``stage``."""
        if stage.gpus not in self._where:
            self._where[stage.gpus] = self.deployment.place(stage)
        return self._where[stage.gpus]

    def _number(self, stage: StageSpec) -> int:
        """Index of the machine that ``stage`` runs on."""
        machine = self.deployment.machine(stage)
        for index, known in enumerate(self.machines):
            if known is machine or (
                known.efficiency is machine.efficiency
                and known.rates == machine.rates
                and known.kernels == machine.kernels
            ):
                return index
        self.machines.append(machine)
        return len(self.machines) - 1

    def shape(
        self,
        stages: StageTable,
        rows: Index,
        *,
        tp: Index,
        moe_tp: Index,
        batch: Array,
        imbalance: float | None = 1.0,
    ) -> StepShape:
        """Return what the stages ``rows`` process, ``batch`` sequences per GPU of their replica in flight.

        ``imbalance``: busiest GPU's expert load over the mean, experts else used alike; None: as served models are
        measured, the usual one of wide groups and experts of unequal use (:func:`with_imbalance`).
        """
        workload, moe, gpus = self.deployment.workload, self.deployment.model.moe, stages.gpus[rows]
        sequences, ep = batch * stages.at_once[rows], gpus / moe_tp
        shape = StepShape(
            tp=tp.astype(np.float64),
            attention_dp=gpus / tp,
            ep=ep,
            moe_tp=moe_tp.astype(np.float64),
            slots=np.zeros_like(ep) if moe is None else slots_of(moe.experts, ep, self.redundant),
            domain_gpus=stages.domain_gpus[rows],
            imbalance=0.0 if imbalance is None else np.full_like(ep, imbalance),
        )
        if imbalance is None:
            shape = with_imbalance(shape, workload.phase)
        return shape.under(workload, sequences)

    def memory(
        self, stages: StageTable, rows: Index, shape: StepShape, held: StageShard, *, passing: bool = True
    ) -> tuple[Quantity, Quantity]:
        """Bytes as of :func:`cost.memory.even_memory`; without ``passing`` no workspace of what passes a step."""
        at_once = stages.at_once[rows] if passing else 0.0
        model, workload = self.deployment.model, self.deployment.workload
        return even_memory(model, workload, shape, held, in_flight=stages.in_flight[rows], at_once=at_once)

    def seconds(self, stages: StageTable, rows: Index, shape: StepShape, held: StageShard) -> Columns:
        """Return what a step of each of the stages ``rows`` costs, experts balanced.

        A GPU with one expert copy more than others is the one that the step waits for.
        """
        shape = replace(shape, slots=np.ceil(shape.slots / shape.ep) * shape.ep)
        found, machine = Columns(len(rows)), stages.machine[rows]
        for index, what in enumerate(self.machines):
            mine = np.flatnonzero(machine == index)
            for start in range(0, len(mine), MOST_ROWS):
                where = mine[start : start + MOST_ROWS]
                part, some = _shard(held, where), shape.rows(where)
                overlap = self.deployment.workload.overlap
                found.put(where, even_step(self.deployment.model, some, what, part, overlap=overlap))
        return found


def _shard(held: StageShard, where: Index) -> StageShard:
    layers = tuple((layer, np.asarray(count)[where]) for layer, count in held.layers)
    return StageShard(layers, np.asarray(held.first)[where], np.asarray(held.last)[where])


@dataclass(frozen=True, eq=False)
class Hops:
    """Seconds of all hops of a micro-batch: ``fixed + batch * slope``, ``[pipelines]`` for each fabric.

    ``peak`` is the slope at the links' peak, without latency, over all fabrics.
    """

    fixed: dict[str, Array]
    slope: dict[str, Array]
    peak: Array

    @classmethod
    def of(cls, rows: Sequence[dict[str, tuple[float, float, float]]]) -> Hops:
        """Return the hops of pipelines side by side: fixed, slope and peak by fabric of each."""
        fabrics = list(dict.fromkeys(fabric for row in rows for fabric in row))
        fixed, slope = (
            {fabric: np.array([row.get(fabric, (0.0, 0.0))[place] for row in rows]) for fabric in fabrics}
            for place in (0, 1)
        )
        peak = np.array([added(peak for _, _, peak in row.values()) for row in rows], dtype=np.float64)
        return cls(fixed, slope, peak)


@dataclass(frozen=True, eq=False)
class Pipelines:
    """Replicas that cost the same, one entry each; arrays ``[pipelines]``.

    Attributes
    ----------
    variant:
        The variant that it is of; those of one variant follow each other.
    alike, gpus, depth:
        Replicas that are alike, GPUs of one of them, its stages.
    lead:
        For each row of ``stages`` the first of its variant that costs the same: pipelines of a variant may differ in
        nothing but their hops.
    """

    variant: Index
    alike: Array
    gpus: Array
    depth: Array
    stages: StageTable
    hops: Hops
    lead: Index

    @cached_property
    def _of_variant(self) -> tuple[Index, Index]:
        """The first pipeline of each variant, and how many it has."""
        length = np.bincount(self.variant)
        return np.cumsum(length) - length, length

    @cached_property
    def _of_pipeline(self) -> tuple[Index, Index]:
        """The first row of ``stages`` of each pipeline, and how many it has."""
        length = np.bincount(self.stages.pipeline)
        return np.cumsum(length) - length, length

    def of(self, variants: Index) -> tuple[Index, Index]:
        """Pipelines of each entry of ``variants``: the entry's place, and the pipeline (:func:`expand`)."""
        return expand(*self._of_variant, variants)

    def rows(self, pipelines: Index) -> tuple[Index, Index]:
        """Rows of the stages of each entry of ``pipelines``: the entry's place, and the row (:func:`expand`)."""
        return expand(*self._of_pipeline, pipelines)


def pipelines_of(pricer: Pricer, variants: Sequence[Variant]) -> Pipelines:
    """Return the distinct pipelines of ``variants``, their stages and their hops."""
    model = pricer.deployment.model
    found = [
        (number, count, pricer.line(what.arrangement, replica))
        for number, what in enumerate(variants)
        for replica, count in what.arrangement.alike
    ]
    if len(found) > MOST_LINES:
        found = _joined(found)
    lines = [line for _, _, line in found]
    variant = np.array([number for number, _, _ in found], dtype=np.int64)
    depth = np.array([len(line.kinds) for line in lines], dtype=np.int64)
    pipeline = np.repeat(np.arange(len(found)), depth)
    kind = np.array([kind for line in lines for kind in line.kinds], dtype=np.int64)
    stop = np.array([one.stop for number, _, _ in found for one in variants[number].ranges], dtype=np.int64)
    end = np.cumsum(depth)
    start = np.roll(stop, 1)
    start[end - depth] = 0
    first, last = np.zeros((2, len(kind)))
    first[end - depth], last[end - 1] = 1.0, 1.0
    # what each stage holds, as a number
    before = np.zeros((len(model.layers) + 1, len(model.kinds)), dtype=np.int64)
    before[1:] = np.cumsum(np.array(model.kind_of)[:, None] == np.arange(len(model.kinds)), axis=0)
    counts = before[stop] - before[start]
    held = np.zeros(len(kind), dtype=np.int64)
    for column in counts.T:
        held = np.unique(pairs(held, column), return_inverse=True)[1].reshape(-1)
    stage = pairs(pairs(kind, held), (2 * first + last).astype(np.int64))
    _, at, times = np.unique(pairs(pipeline, stage), return_index=True, return_counts=True)
    order = np.argsort(at)
    at = at[order]
    _, leader, same = np.unique(
        pairs(variant[pipeline[at]], stage[at]), return_index=True, return_inverse=True
    )
    table = StageTable.of(
        pricer.kinds,
        kind[at],
        pipeline=pipeline[at],
        times=times[order].astype(np.float64),
        counts=counts[at].T.astype(np.float64),
        first=first[at],
        last=last[at],
    )
    return Pipelines(
        variant,
        np.array([count for _, count, _ in found], dtype=np.float64),
        np.array([line.gpus for line in lines], dtype=np.float64),
        depth.astype(np.float64),
        table,
        Hops.of([line.hops for line in lines]),
        leader[same.reshape(-1)],
    )


def _joined(found: Sequence[tuple[int, int, Line]]) -> list[tuple[int, int, Line]]:
    """Return the replicas of each variant, those whose stages and hops cost the same as one."""
    number: dict[object, int] = {}
    of_line: dict[int, int] = {}  # a line is in many variants
    alike: dict[tuple[int, int], tuple[Line, int]] = {}
    for variant, count, line in found:
        if id(line) not in of_line:
            key = tuple(line.kinds), line.gpus, tuple(line.hops.items())
            of_line[id(line)] = number.setdefault(key, len(number))
        first, before = alike.get((variant, of_line[id(line)]), (line, 0))
        alike[variant, of_line[id(line)]] = first, before + count
    return [(variant, count, line) for (variant, _), (line, count) in alike.items()]


def pairs(one: Index, other: Index) -> Index:
    """Return a number of each pair of two columns of numbers."""
    return one * (int(other.max(initial=0)) + 1) + other


def _hops(
    pricer: Pricer, stages: Sequence[StageSpec], places: Sequence[tuple[int, int, float]]
) -> dict[str, tuple[float, float, float]]:
    """Fixed seconds, seconds and peak seconds for each sequence per GPU, by fabric: hops are linear in the batch."""
    found: dict[str, tuple[float, float, float]] = {}
    total, depth = sum(len(stage.gpus) for stage in stages), len(stages)
    if depth == 1:
        return found
    alike = pricer.deployment.fabric_faults is None
    near: Sequence[Joint | None] = (
        joints([pricer.where(stage) for stage in stages]) if alike else [None] * depth
    )
    for index, stage in enumerate(stages):
        ends = stage, stages[(index + 1) % depth]
        hop = pricer.hop(ends, near[index], places[index][0], total / depth, back=index == depth - 1)
        before = found.get(hop[0], (0.0, 0.0, 0.0))
        found[hop[0]] = (before[0] + hop[1], before[1] + hop[2], before[2] + hop[3])
    return found
