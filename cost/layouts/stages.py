"""The stages of every pipeline side by side: what each runs on and holds, what a step of it costs, and the hops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.layout import StageSpec
from cost.layouts.candidates import Variant, expand, slots_of
from cost.machine import Machine
from cost.memory import domain_hbm_bytes, even_memory
from cost.model import StageShard
from cost.quantity import Quantity
from cost.step import even_step
from cost.terms.pipeline import hops
from cost.terms.work import StepCost
from cost.workload import StepShape, with_imbalance
from topology.units import added

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """One stage as its cost goes; equal ones of a pipeline are priced once.

    Attributes
    ----------
    machine, gpus, domain_gpus, hbm_bytes:
        What it runs on; ``domain_gpus``: GPUs of the group in the domain that has fewest of them.
    counts:
        Layers of each distinct kind.
    first, last:
        Whether it has the embedding, and the head.
    in_flight, at_once:
        Sequences per GPU that it caches, and that pass it at once, for each sequence per GPU of the replica.
    """

    gpus: int
    domain_gpus: int
    machine: int
    counts: tuple[int, ...]
    first: bool
    last: bool
    in_flight: float
    at_once: float
    hbm_bytes: float


@dataclass(frozen=True, eq=False)
class StageTable:
    """Distinct stages of all pipelines, one after the other: the columns of :class:`Stage`, ``[stages]``.

    ``pipeline`` is that which a stage is of, ``times`` how many stages of it are alike; ``counts`` are ``[kinds,
    stages]``.
    """

    pipeline: Index
    times: Array
    machine: Index
    counts: Array
    gpus: Array
    domain_gpus: Array
    hbm_bytes: Array
    first: Array
    last: Array
    in_flight: Array
    at_once: Array

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, Stage]], kinds: int) -> StageTable:
        """Return stages side by side; each row has its pipeline and how many stages of that are alike."""
        pipeline, times, stages = zip(*rows, strict=True)
        names = ("gpus", "domain_gpus", "hbm_bytes", "first", "last", "in_flight", "at_once")
        return cls(
            np.array(pipeline, dtype=np.int64),
            np.array(times, dtype=np.float64),
            np.array([stage.machine for stage in stages], dtype=np.int64),
            np.array([stage.counts for stage in stages], dtype=np.float64).reshape(-1, kinds).T.copy(),
            *(np.array([getattr(stage, name) for stage in stages], dtype=np.float64) for name in names),
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
    _places: dict[tuple[int, ...], tuple[int, int, float]] = field(default_factory=dict)
    _counts: dict[range, tuple[int, ...]] = field(default_factory=dict)

    def stages(self, stages: Sequence[StageSpec]) -> Iterable[Stage]:
        """Yield each stage of a replica as its cost goes."""
        model = self.deployment.model
        total = sum(len(stage.gpus) for stage in stages)
        for index, stage in enumerate(stages):
            if stage.layers not in self._counts:
                held = model.kind_of[stage.layers.start : stage.layers.stop]
                self._counts[stage.layers] = tuple(held.count(kind) for kind in range(len(model.kinds)))
            machine, domain_gpus, hbm_bytes = self.place(stage)
            yield Stage(
                gpus=len(stage.gpus),
                domain_gpus=domain_gpus,
                machine=machine,
                counts=self._counts[stage.layers],
                first=index == 0,
                last=index == len(stages) - 1,
                in_flight=total / len(stage.gpus),
                at_once=total / len(stage.gpus) / len(stages),
                hbm_bytes=hbm_bytes,
            )

    def place(self, stage: StageSpec) -> tuple[int, int, float]:
        """Machine of ``stage``, its GPUs in the domain that has fewest of them, and the least HBM bytes of a GPU."""
        deployment = self.deployment
        if stage.gpus not in self._places:
            hbm_bytes = min(domain_hbm_bytes(deployment, stage).values())
            self._places[stage.gpus] = self._number(stage), deployment.smallest_part(stage), hbm_bytes
        return self._places[stage.gpus]

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
            where = np.flatnonzero(machine == index)
            if len(where):
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
    def _of_variant(self) -> Index:
        """Variant of each row of ``stages``, growing."""
        return self.variant[self.stages.pipeline]

    def rows(self, variants: Index) -> tuple[Index, Index]:
        """Rows of the stages of each entry of ``variants``: the entry's place, and the row (:func:`expand`)."""
        length = np.bincount(self._of_variant)
        return expand(np.cumsum(length) - length, length, variants)


def pipelines_of(pricer: Pricer, variants: Sequence[Variant]) -> Pipelines:
    """Return the distinct pipelines of ``variants``, their stages and their hops."""
    found: list[tuple[int, int, int, int]] = []
    rows: list[tuple[int, int, Stage]] = []
    hop_rows: list[dict[str, tuple[float, float, float]]] = []
    known: dict[tuple[int, int], dict[str, tuple[float, float, float]]] = {}
    lead: list[int] = []
    for number, what in enumerate(variants):
        first: dict[Stage, int] = {}
        for replica, count in what.arrangement.alike:
            stages = what.stages(replica)
            distinct = Counter(pricer.stages(stages))
            lead += [first.setdefault(stage, len(rows) + place) for place, stage in enumerate(distinct)]
            rows += [(len(found), times, stage) for stage, times in distinct.items()]
            key = id(what.arrangement), replica  # wherever its layers are cut
            if key not in known:
                known[key] = _hops(pricer.deployment, stages)
            hop_rows.append(known[key])
            found.append((number, count, sum(len(stage.gpus) for stage in stages), len(stages)))
    variant, *rest = np.array(found, dtype=np.int64).reshape(-1, 4).T
    alike, gpus, depth = (column.astype(np.float64) for column in rest)
    table = StageTable.of(rows, len(pricer.deployment.model.kinds))
    return Pipelines(variant, alike, gpus, depth, table, Hops.of(hop_rows), np.array(lead, dtype=np.int64))


def _hops(deployment: Deployment, stages: Sequence[StageSpec]) -> dict[str, tuple[float, float, float]]:
    """Fixed seconds, seconds and peak seconds for each sequence per GPU, by fabric: hops are linear in the batch."""
    found: dict[str, tuple[float, float, float]] = {}
    for (fabric, fixed_s, _), (_, one_s, peak_s) in zip(
        hops(deployment, stages, 0.0), hops(deployment, stages, 1.0), strict=True
    ):
        before = found.get(fabric, (0.0, 0.0, 0.0))
        found[fabric] = (before[0] + fixed_s, before[1] + one_s - fixed_s, before[2] + peak_s)
    return found
