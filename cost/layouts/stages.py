"""The stages of every pipeline side by side: what each runs on and holds, what a step of it costs, and the hops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.layout import StageSpec
from cost.layouts.candidates import Variant, slots_of
from cost.machine import Machine
from cost.model import StageShard
from cost.step import even_step, overlapped
from cost.terms.pipeline import hops
from cost.terms.work import StepCost
from cost.validation.serving import with_imbalance
from cost.workload import StepShape


@dataclass(eq=False)
class Machines:
    """The distinct machines of a deployment; domains of one kind share one."""

    deployment: Deployment
    found: list[Machine] = field(default_factory=list)
    _places: dict[tuple[int, ...], tuple[int, int, float]] = field(default_factory=dict)

    def place(self, stage: StageSpec) -> tuple[int, int, float]:
        """Machine of ``stage``, its GPUs in the domain that has fewest of them, and the least HBM bytes of a GPU."""
        if stage.gpus not in self._places:
            domains = (self.deployment.cluster.spec.domains[d] for d in self.deployment.domain_set(stage))
            hbm_bytes = min(domain.gpu.hbm_bytes for domain in domains)
            self._places[stage.gpus] = self.number(stage), self.deployment.smallest_part(stage), hbm_bytes
        return self._places[stage.gpus]

    def number(self, stage: StageSpec) -> int:
        """Index of the machine that ``stage`` runs on."""
        machine = self.deployment.machine(stage)
        for index, known in enumerate(self.found):
            if known is machine or (
                known.efficiency is machine.efficiency
                and known.rates == machine.rates
                and known.kernels == machine.kernels
            ):
                return index
        self.found.append(machine)
        return len(self.found) - 1


@dataclass(frozen=True)
class Stage:
    """One stage as its cost goes; equal ones of a pipeline are priced once."""

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
    """Distinct stages of all pipelines, one after the other; arrays ``[stages]``.

    Attributes
    ----------
    pipeline, times:
        The pipeline that a stage is of, and how many stages of it are alike.
    machine, gpus, domain_gpus, hbm_bytes:
        What it runs on; ``domain_gpus``: GPUs of the group in the domain that has fewest of them.
    counts:
        Layers of each distinct kind, ``[kinds, stages]``.
    first, last:
        1 for the stage with the embedding, and with the head.
    in_flight, at_once:
        Sequences per GPU that it caches, and that pass it at once, for each sequence per GPU of the replica.
    """

    pipeline: NDArray[np.int64]
    times: NDArray[np.float64]
    machine: NDArray[np.int64]
    gpus: NDArray[np.float64]
    domain_gpus: NDArray[np.float64]
    hbm_bytes: NDArray[np.float64]
    counts: NDArray[np.float64]
    first: NDArray[np.float64]
    last: NDArray[np.float64]
    in_flight: NDArray[np.float64]
    at_once: NDArray[np.float64]

    def held(self, deployment: Deployment, rows: NDArray[np.int64]) -> StageShard:
        """What the stages ``rows`` hold of the model."""
        kinds = [
            (layer, count[rows])
            for layer, count in zip(deployment.model.kinds, self.counts, strict=True)
            if count.any()
        ]
        return StageShard(tuple(kinds), self.first[rows], self.last[rows])


@dataclass(frozen=True, eq=False)
class Hops:
    """Seconds of all hops of a micro-batch: ``fixed + batch * slope``, ``[pipelines]`` for each fabric.

    ``peak`` is the slope at the links' peak, without latency, over all fabrics.
    """

    fixed: dict[str, NDArray[np.float64]]
    slope: dict[str, NDArray[np.float64]]
    peak: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pipelines:
    """Replicas that cost the same, one entry each; arrays ``[pipelines]``.

    Attributes
    ----------
    variant:
        The variant that it is of; those of one variant follow each other.
    alike, gpus, depth:
        Replicas that are alike, GPUs of one of them, its stages.
    """

    variant: NDArray[np.int64]
    alike: NDArray[np.float64]
    gpus: NDArray[np.float64]
    depth: NDArray[np.float64]
    stages: StageTable
    hops: Hops


def pipelines_of(deployment: Deployment, variants: Sequence[Variant], machines: Machines) -> Pipelines:
    """Return the distinct pipelines of ``variants``, their stages and their hops."""
    found: list[tuple[int, int, int, int]] = []
    rows: list[tuple[int, int, Stage]] = []
    hop_rows: list[dict[str, tuple[float, float, float]]] = []
    known: dict[tuple[int, int], dict[str, tuple[float, float, float]]] = {}
    for number, what in enumerate(variants):
        for replica, count in what.arrangement.alike:
            stages = what.stages(replica)
            total = sum(len(stage.gpus) for stage in stages)
            distinct = Counter(distinct_stages(deployment, machines, stages, total))
            rows += [(len(found), times, stage) for stage, times in distinct.items()]
            key = id(what.arrangement), replica  # wherever its layers are cut
            if key not in known:
                known[key] = _hops(deployment, stages)
            hop_rows.append(known[key])
            found.append((number, count, total, len(stages)))
    variant, *rest = np.array(found, dtype=np.int64).reshape(-1, 4).T
    alike, gpus, depth = (column.astype(np.float64) for column in rest)
    return Pipelines(
        variant,
        alike,
        gpus,
        depth,
        stage_table(rows, len(deployment.model.kinds)),
        _hop_arrays(hop_rows),
    )


def distinct_stages(
    deployment: Deployment, machines: Machines, stages: Sequence[StageSpec], total: int
) -> Iterable[Stage]:
    """Yield each stage of a replica of ``total`` GPUs as its cost goes."""
    kind_of = deployment.model.kind_of
    for index, stage in enumerate(stages):
        counts = Counter(kind_of[stage.layers.start : stage.layers.stop])
        machine, domain_gpus, hbm_bytes = machines.place(stage)
        yield Stage(
            gpus=len(stage.gpus),
            domain_gpus=domain_gpus,
            machine=machine,
            counts=tuple(counts[kind] for kind in range(len(deployment.model.kinds))),
            first=index == 0,
            last=index == len(stages) - 1,
            in_flight=total / len(stage.gpus),
            at_once=total / len(stage.gpus) / len(stages),
            hbm_bytes=hbm_bytes,
        )


def stage_table(rows: Sequence[tuple[int, int, Stage]], kinds: int) -> StageTable:
    """Return stages side by side; each row has its pipeline and how many stages of that are alike."""
    stages = [stage for _, _, stage in rows]

    def column(name: str) -> NDArray[np.float64]:
        return np.array([getattr(stage, name) for stage in stages], dtype=np.float64)

    return StageTable(
        pipeline=np.array([pipeline for pipeline, _, _ in rows], dtype=np.int64),
        times=np.array([times for _, times, _ in rows], dtype=np.float64),
        machine=np.array([stage.machine for stage in stages], dtype=np.int64),
        gpus=column("gpus"),
        domain_gpus=column("domain_gpus"),
        hbm_bytes=column("hbm_bytes"),
        counts=np.array([stage.counts for stage in stages], dtype=np.float64).reshape(-1, kinds).T.copy(),
        first=column("first"),
        last=column("last"),
        in_flight=column("in_flight"),
        at_once=column("at_once"),
    )


def _hops(deployment: Deployment, stages: Sequence[StageSpec]) -> dict[str, tuple[float, float, float]]:
    """Fixed seconds, seconds and peak seconds for each sequence per GPU, by fabric: hops are linear in the batch."""
    found: dict[str, tuple[float, float, float]] = {}
    for (fabric, fixed_s, _), (_, one_s, peak_s) in zip(
        hops(deployment, stages, 0.0), hops(deployment, stages, 1.0), strict=True
    ):
        before = found.get(fabric, (0.0, 0.0, 0.0))
        found[fabric] = (before[0] + fixed_s, before[1] + one_s - fixed_s, before[2] + peak_s)
    return found


def _hop_arrays(hops: Sequence[dict[str, tuple[float, float, float]]]) -> Hops:
    fabrics = list(dict.fromkeys(fabric for row in hops for fabric in row))

    def column(fabric: str, place: int) -> NDArray[np.float64]:
        return np.array([row.get(fabric, (0.0, 0.0, 0.0))[place] for row in hops])

    return Hops(
        {fabric: column(fabric, 0) for fabric in fabrics},
        {fabric: column(fabric, 1) for fabric in fabrics},
        np.array([sum(peak for _, _, peak in row.values()) for row in hops], dtype=np.float64),
    )


Array = NDArray[np.float64]


class StageSeconds:
    """Seconds of stages, ``[rows]`` each: in all, at least, by part and by what binds."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.total = np.zeros(rows)
        self.lower = np.zeros(rows)
        self.terms: dict[str, Array] = {}
        self.limits: dict[str, Array] = {}

    def put(self, where: NDArray[np.int64], cost: StepCost) -> None:
        """Enter the seconds of the rows ``where``."""
        self.total[where], self.lower[where] = cost.total_s, cost.lower_s
        for into, found in ((self.terms, cost.terms_s), (self.limits, cost.limits_s)):
            for name, seconds in found.items():
                if np.any(np.asarray(seconds)):
                    into.setdefault(name, np.zeros(self._rows))[where] = seconds


def stage_shape(
    deployment: Deployment,
    stages: StageTable,
    rows: NDArray[np.int64],
    *,
    tp: NDArray[np.int64],
    moe_tp: NDArray[np.int64],
    batch: Array,
    redundant: int | None,
    imbalance: float | None = 1.0,
) -> StepShape:
    """Return what the stages ``rows`` process, ``batch`` sequences per GPU of their replica in flight.

    ``imbalance``: busiest GPU's expert load over the mean, experts else used alike; None: as served models are
    measured, the usual one of wide groups and experts of unequal use (:func:`with_imbalance`).
    """
    workload, gpus = deployment.workload, stages.gpus[rows]
    sequences = batch * stages.at_once[rows]
    ep = gpus / moe_tp
    moe = deployment.model.moe
    slots = np.zeros_like(ep) if moe is None else slots_of(moe.experts, ep, redundant)
    shape = StepShape(
        tp=tp.astype(np.float64),
        attention_dp=gpus / tp,
        ep=ep,
        moe_tp=moe_tp.astype(np.float64),
        slots=slots,
        domain_gpus=stages.domain_gpus[rows],
        context=float(workload.context),
        prompt_length=float(workload.context),
        prompt_cached=workload.prompt_cached,
        imbalance=0.0 if imbalance is None else np.full_like(ep, imbalance),
    )
    if imbalance is None:
        shape = with_imbalance(shape, workload.phase)
    if workload.decodes:
        return replace(shape, sequences=sequences, queries=1.0 + workload.draft_tokens)
    return replace(shape, prompt_tokens=sequences * workload.tokens_per_pass)


def stage_seconds(
    deployment: Deployment,
    machines: Sequence[Machine],
    machine: NDArray[np.int64],
    shape: StepShape,
    held: StageShard,
) -> StageSeconds:
    """Return what a step of each stage costs, experts balanced; ``machine`` is the index into ``machines``.

    A GPU with one expert copy more than others is the one that the step waits for.
    """
    shape = replace(shape, slots=np.ceil(shape.slots / shape.ep) * shape.ep)
    found = StageSeconds(len(machine))
    for index, what in enumerate(machines):
        where = np.flatnonzero(machine == index)
        if len(where):
            found.put(where, _step(deployment, what, _some(shape, where), _held(held, where)))
    return found


def _step(deployment: Deployment, machine: Machine, shape: StepShape, held: StageShard) -> StepCost:
    """One step, in two half batches where that is asked for."""
    whole = even_step(deployment.model, shape, machine, held)
    if not deployment.workload.overlap:
        return whole
    half = replace(
        shape,
        sequences=np.asarray(shape.sequences) / 2,
        prompt_tokens=np.asarray(shape.prompt_tokens) / 2,
    )
    halved = even_step(deployment.model, half, machine, held)
    return overlapped(whole, halved, machine.efficiency["overlap"])


def _some(shape: StepShape, where: NDArray[np.int64]) -> StepShape:
    arrays = {name: value[where] for name, value in vars(shape).items() if isinstance(value, np.ndarray)}
    return replace(shape, **arrays)


def _held(held: StageShard, where: NDArray[np.int64]) -> StageShard:
    layers = tuple((layer, np.asarray(count)[where]) for layer, count in held.layers)
    return StageShard(layers, np.asarray(held.first)[where], np.asarray(held.last)[where])
