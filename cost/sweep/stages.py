"""The stages of every pipeline of a sweep side by side: GPUs, layers, machines, and the hops between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.held import Held
from cost.layout import StageSpec
from cost.machine import Machine
from cost.step import hop_seconds
from cost.sweep.arrangement import Arrangement
from cost.terms.links import hop_bytes, return_bytes


@dataclass(frozen=True, eq=False)
class Variant:
    """An arrangement with its layers split: ``ranges[stage]``."""

    arrangement: Arrangement
    ranges: tuple[range, ...]

    def stages(self, replica: int) -> tuple[StageSpec, ...]:
        """The stages of one replica."""
        groups = self.arrangement.replicas[replica]
        return tuple(StageSpec(gpus, layers) for gpus, layers in zip(groups, self.ranges, strict=True))


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

    def held(self, deployment: Deployment, rows: NDArray[np.int64]) -> Held:
        """What the stages ``rows`` hold of the model."""
        kinds = [
            (layer, count[rows])
            for layer, count in zip(deployment.model.kinds, self.counts, strict=True)
            if count.any()
        ]
        return Held(tuple(kinds), self.first[rows], self.last[rows])


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
    hops: list[dict[str, tuple[float, float, float]]] = []
    known: dict[tuple[int, int], dict[str, tuple[float, float, float]]] = {}
    for number, what in enumerate(variants):
        for replica, count in what.arrangement.alike:
            stages = what.stages(replica)
            total = sum(len(stage.gpus) for stage in stages)
            distinct = Counter(distinct_stages(deployment, machines, stages, total))
            rows += [(len(found), times, stage) for stage, times in distinct.items()]
            key = id(what.arrangement), replica  # wherever its layers are cut
            if key not in known:
                known[key] = _hops(deployment, stages, total)
            hops.append(known[key])
            found.append((number, count, total, len(stages)))
    variant, *rest = np.array(found, dtype=np.int64).reshape(-1, 4).T
    alike, gpus, depth = (column.astype(np.float64) for column in rest)
    return Pipelines(
        variant,
        alike,
        gpus,
        depth,
        stage_table(rows, len(deployment.model.kinds)),
        _hop_arrays(hops),
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


def _hops(
    deployment: Deployment, stages: Sequence[StageSpec], total: int
) -> dict[str, tuple[float, float, float]]:
    """Fixed seconds, seconds and peak seconds for each sequence per GPU, by fabric: hops are linear in the batch."""
    found: dict[str, tuple[float, float, float]] = {}
    if len(stages) == 1:
        return found
    for stage, after in zip(stages, [*stages[1:], stages[0]], strict=True):
        # the side with fewer GPUs moves more through each
        sequences = total / (len(stages) * min(len(stage.gpus), len(after.gpus)))
        tokens = sequences * deployment.workload.tokens_per_pass
        back = after is stages[0]
        moved = return_bytes(tokens=tokens) if back else hop_bytes(deployment.model.hidden, tokens=tokens)
        fabric, fixed_s, _ = hop_seconds(deployment, stage, after, moved=0.0)
        _, one_s, peak_s = hop_seconds(deployment, stage, after, moved=moved)
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
