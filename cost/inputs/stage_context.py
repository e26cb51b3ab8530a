"""What is known of a cluster, and of the GPUs of a stage in it: found when it is first needed, then kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cost.calibration.correction import Correction
from cost.calibration.order import Bound
from cost.calibration.serving import calibrated, require_engine
from cost.inputs.fabric_faults import FaultyFabric, faulty_links
from cost.inputs.layout import Place
from cost.inputs.machine import Efficiency, GpuRates, Machine, Rates, kernels_for, stage_rates, unlike_gpus
from cost.model import Model
from cost.queueing.schedulers import scheduler_of
from topology.changes.drained import without_slow_links
from topology.cluster import Cluster
from topology.routes import Router
from topology.scale_out import leaves_and_pods

Ints = NDArray[np.int64]
Where = tuple[int, ...] | frozenset[int]
"""What rates depend on: the kinds of domains of a stage alone, or its GPUs where those of a domain differ."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, eq=False)
class ClusterContext:
    """Data shared by all deployments of a cluster and a model."""

    cluster: Cluster
    model: Model
    stages: dict[tuple[Conditions, tuple[int, ...]], StageContext] = field(default_factory=dict)
    machines: dict[tuple[Conditions, Where], Machine] = field(default_factory=dict)
    answers: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def once(self, make: Callable[[], _Answer], *key: object) -> _Answer:
        """Return the cached result of ``make`` for ``key``."""
        if key not in self.answers:
            self.answers[key] = make()
        return cast(_Answer, self.answers[key])

    def stage(self, conditions: Conditions, gpus: tuple[int, ...]) -> StageContext:
        """Return the context of a stage on ``gpus``."""
        context = self.stages.get((conditions, gpus))
        if context is None:
            context = self.stages[conditions, gpus] = StageContext(self, conditions, gpus)
        return context

    @cached_property
    def router(self) -> Router:
        """Routes of the cluster."""
        return Router(self.cluster)

    @cached_property
    def drained(self) -> list[tuple[tuple[str, ...], Router]]:
        """Names of slow links, and the routes where those are out of service so that others stand in."""
        return [(names, Router(cluster)) for names, cluster in without_slow_links(self.cluster)]

    @cached_property
    def fabric_faults(self) -> FaultyFabric | None:
        """What is left of the links between domains; None where all of them work."""
        between = faulty_links(self.cluster).between
        return FaultyFabric(self.cluster, self.router, self.drained) if between else None

    @cached_property
    def fabric_note(self) -> str:
        """What links between domains that are broken or slow leave to traffic; empty where all of them work."""
        return "" if self.fabric_faults is None else self.fabric_faults.note

    @cached_property
    def leaf_and_pod(self) -> Ints:
        """Leaf and pod of each GPU, ``[2, gpus]``."""
        return np.array(leaves_and_pods(self.cluster.spec, self.cluster.gpus), dtype=np.int64)

    @cached_property
    def domain(self) -> Ints:
        """Scale-up domain of each GPU, ``[gpus]``."""
        return np.array([gpu.domain for gpu in self.cluster.gpus], dtype=np.int64)

    @cached_property
    def unlike(self) -> dict[int, tuple[float, int]]:
        """GPUs that are unlike others of their kind (:func:`cost.inputs.machine.unlike_gpus`)."""
        return unlike_gpus(self.cluster)

    @cached_property
    def one_chip(self) -> bool:
        """Whether all GPUs are of one type."""
        return len({domain.gpu.name for domain in self.cluster.spec.domains}) == 1

    @cached_property
    def hbm_differs(self) -> bool:
        """Whether GPUs differ in capacity."""
        return len({domain.gpu.hbm_bytes for domain in self.cluster.spec.domains}) > 1

    @cached_property
    def numbers(self) -> dict[Literal["gpu", "node", "rack"], Ints]:
        """Number of the GPU, node and rack of each GPU, in order of appearance, ``[gpus]`` each."""
        gpus = self.cluster.gpus
        return {
            "gpu": _first_seen([gpu.id for gpu in gpus]),
            "node": _first_seen([gpu.node for gpu in gpus]),
            "rack": _first_seen([gpu.rack for gpu in gpus]),
        }


def _first_seen(names: list[str]) -> Ints:
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)


def digest(*arrays: NDArray[Any]) -> bytes:
    """Return a few bytes that are equal for equal arrays: those of 100,000 GPUs would be large keys."""
    result = blake2b(digest_size=20)
    for array in arrays:
        result.update(f"{array.dtype}{array.shape}".encode())
        result.update(np.ascontiguousarray(array).data)
    return result.digest()


@dataclass(frozen=True)
class Conditions:
    """What machines depend on besides the cluster and the model (:class:`cost.inputs.deployment.Deployment`)."""

    phase: str
    kv_dtype: str
    engine: str
    efficiency: Efficiency | None
    correction: Correction


@dataclass(frozen=True, eq=False)
class StageContext:
    """The GPUs of a stage under the conditions of a deployment, whatever its layers and batch."""

    shared: ClusterContext
    conditions: Conditions
    gpus: tuple[int, ...]

    @property
    def _cluster(self) -> Cluster:
        return self.shared.cluster

    @cached_property
    def domains(self) -> Ints:
        """Scale-up domain of each GPU, ``[gpus]``."""
        return self.shared.domain[list(self.gpus)]

    @cached_property
    def domain_set(self) -> frozenset[int]:
        """Scale-up domains of the stage."""
        return frozenset(self.domains.tolist())

    @cached_property
    def smallest_part(self) -> int:
        """GPUs of the stage in the scale-up domain that holds fewest of them."""
        if len(self.domain_set) == 1:
            return len(self.gpus)
        return int(np.unique(self.domains, return_counts=True)[1].min())

    @cached_property
    def place(self) -> Place:
        """Scale-up domain, leaf and pod that all GPUs of the stage lie in."""
        where = self.domain_set, *map(set, self.shared.leaf_and_pod[:, list(self.gpus)].tolist())
        return Place(*(next(iter(members)) if len(members) == 1 else None for members in where))

    @cached_property
    def unlike(self) -> tuple[tuple[int, tuple[float, int]], ...]:
        """GPUs unlike others of their kind, by place, and in what (:func:`cost.inputs.machine.unlike_gpus`)."""
        marks = self.shared.unlike
        gpus = self.gpus if marks else ()
        return tuple((place, marks[gpu]) for place, gpu in enumerate(gpus) if gpu in marks)

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """Equal for stages that cost the same but for layers and experts: how GPUs share domains, kinds, faults."""
        domains, order = np.unique(self.domains, return_inverse=True)
        kinds = np.array(self._cluster.domain_kind)[domains]
        return digest(order.astype(np.int32), kinds), self.unlike

    @cached_property
    def alltoall_left(self) -> float:
        """Part of its rate that an all-to-all between the domains of the stage has, 1 without faults."""
        faults = self.shared.fabric_faults
        return 1.0 if faults is None or len(self.domain_set) == 1 else faults.alltoall(self.gpus)

    @property
    def rates(self) -> Rates:
        """Peak rates of the slowest GPU; scores multiply BF16 besides the weights' types."""
        return self.machine.rates

    @cached_property
    def machine(self) -> Machine:
        """Machine of the stage: its rates, the efficiencies of its slowest chip, and its all-to-all kernels."""
        where: Where = self.gpus
        if not (self._routed or self._cluster.spec.slow_gpus):
            where = frozenset(self._cluster.domain_kind[domain] for domain in self.domain_set)
        key = self.conditions, where
        if key not in self.shared.machines:
            self.shared.machines[key] = self._machine()
        return self.shared.machines[key]

    def _machine(self) -> Machine:
        conditions, rates = self.conditions, self._rates()
        domains = (self._cluster.spec.domains[domain] for domain in self.domain_set)
        gpu = next(domain.gpu for domain in domains if domain.gpu.name == rates.chip)
        efficiency = conditions.efficiency or calibrated(gpu, conditions.engine)
        machine = Machine(
            rates,
            efficiency,
            kernels_for(rates, "prefill" if conditions.phase == "prefill" else "decode"),
            conditions.kv_dtype,
            pads=conditions.phase == "both" and scheduler_of(require_engine(conditions.engine)).pads,
        )
        if not conditions.correction.tells_of(self.shared.model):
            return machine
        bound = Bound.of(
            conditions.correction, self.shared.model, machine, gpu, conditions.engine, conditions.phase
        )
        return replace(machine, correction=bound)

    def _rates(self) -> Rates:
        precision = self.shared.model.precision
        dtypes = [*precision.values(), "bf16", self.conditions.kv_dtype]
        rates = stage_rates(self._cluster, self.gpus, dtypes)
        if self._routed:
            rates = replace(rates, alltoall_bytes_per_s=self._uniform(rates.up_bytes_per_s))
        return replace(rates, out_bytes_per_s=self.alltoall_left * rates.out_bytes_per_s)

    @cached_property
    def _routed(self) -> bool:
        """Whether bytes take several links inside a domain, or some links are broken."""
        spec = self._cluster.spec
        indirect = not spec.switched and any(not spec.domains[d].switched for d in self.domain_set)
        return indirect or spec.reshaped

    def _uniform(self, alone: float) -> float:
        """All-to-all bytes/s among the GPUs of the stage in one domain, the slowest such group; from the routes."""
        rate = self.shared.router.uniform_within_domains(self.gpus)
        if rate < alone * (1 - 1e-9):
            drained_rates = (router.uniform_within_domains(self.gpus) for _, router in self.shared.drained)
            rate = max(rate, *drained_rates, rate)
        return rate if np.isfinite(rate) else alone

    @cached_property
    def gpu_rates(self) -> GpuRates | None:
        """Rates at which each GPU runs experts, over those of the stage; None where all are homogeneous."""
        spec, shared = self._cluster.spec, self.shared
        if not spec.slow_gpus and shared.one_chip:
            return None
        gpus = [self._cluster.gpus[gpu] for gpu in self.gpus]
        kinds = [(spec.domains[gpu.domain].gpu.name, spec.slow_gpus.get(gpu.id, 1.0)) for gpu in gpus]
        if len(set(kinds)) == 1:
            return None
        gpu_of = dict(zip(reversed(kinds), reversed(self.gpus), strict=True))
        rates_of_kind = {
            kind: shared.stage(self.conditions, (gpu,)).expert_rates for kind, gpu in gpu_of.items()
        }
        over = np.array([rates_of_kind[kind] for kind in kinds]).T / np.array(self.expert_rates)[:, None]
        return GpuRates(over[0], over[1], np.maximum(over[2], 1.0), np.maximum(over[3], 1.0))

    @property
    def expert_rates(self) -> tuple[float, float, float, float]:
        """Flop/s and HBM bytes/s of experts: what kernels reach, then at peak."""
        machine, weights = self.machine, self.shared.model.precision["experts"]
        flop, hbm = machine.rates.flop_per_s[weights], machine.rates.hbm_bytes_per_s
        units = machine.rates.units("experts", weights)
        compute = flop / machine.efficiency.compute_times(units)
        return compute, hbm / machine.efficiency.read_times(units, "hbm.experts"), flop, hbm
