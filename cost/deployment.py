"""The three inputs of every cost: cluster, model and workload, with what kernels reach of the peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cost.attention.sparse import as_if_sparse
from cost.calibration.alltoall import Kernel
from cost.calibration.serving import calibrated, require_engine
from cost.dtypes import cache_bytes_per_element
from cost.fabric_faults import FaultyFabric, faulty_links
from cost.layout import Place, StageSpec
from cost.machine import Efficiency, GpuRates, Machine, Rates, kernels_for, stage_rates, unlike_gpus
from cost.model import Model, MoeFfn
from cost.money.bill import Bill
from cost.money.prices import PriceBook
from cost.workload import Workload
from topology.base.errors import InputError
from topology.base.shown import Shown
from topology.cluster import Cluster
from topology.drained import without_slow_links
from topology.routes import Router
from topology.scale_out import leaves_and_pods

USABLE_HBM = 0.90
"""Fraction of the driver's capacity that an engine may fill; the rest is the driver's, graphs and fragments."""

_View = TypeVar("_View")


@dataclass(eq=False)
class _Views:
    """What was found of a cluster and a model: shared by deployments of the two that differ in the rest."""

    cluster: Cluster
    model: Model
    found: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def once(self, make: Callable[[], _View], *key: object) -> _View:
        """Return what ``make`` made the first time that it was asked for under ``key``."""
        if key not in self.found:
            self.found[key] = make()
        return cast(_View, self.found[key])


@dataclass(frozen=True, repr=False)
class Deployment(Shown):
    """What is costed: a model on a cluster under a workload.

    What depends on cluster and model alone is computed once and shared by deployments at other batches.

    Attributes
    ----------
    model:
        As given, or with the sparse attention that the workload asks for as a what-if.
    efficiency:
        What kernels reach; None: as calibrated for each chip (:func:`cost.calibration.serving.calibrated`).
    engine:
        Serving engine whose fixed delays are counted; empty: between those that were measured.
    prices:
        What an hour of each GPU costs and what it draws.
    """

    cluster: Cluster
    model: Model
    workload: Workload
    efficiency: Efficiency | None = None
    engine: str = ""
    prices: PriceBook = field(default_factory=PriceBook)
    _views: _Views | None = field(default=None, compare=False, repr=False)

    def brief(self) -> str:
        """Return the model, the cluster and the phase."""
        return f"{self.model.name} on {self.cluster.name}, {self.workload.phase}"

    def __post_init__(self) -> None:
        cache_bytes_per_element(self.workload.kv_dtype)
        require_engine(self.engine)
        object.__setattr__(self, "model", as_if_sparse(self.model, self.workload.sparse_attention))
        if not self.cluster.gpus:
            raise InputError(f"cluster {self.cluster.name}: it has no GPU.")
        known = self._views
        if known is None or known.cluster is not self.cluster or known.model is not self.model:
            object.__setattr__(self, "_views", _Views(self.cluster, self.model))

    @property
    def _known(self) -> _Views:
        assert self._views is not None  # noqa: S101 - made above
        return self._views

    def once(self, make: Callable[[], _View], *key: object) -> _View:
        """Return what ``make`` makes of this deployment at any batch: made once for each ``key``, then remembered."""
        at = self.workload.with_batch(0), self.efficiency, self.engine
        return self._known.once(make, *key, *at)

    def with_batch(self, batch: int) -> Deployment:
        """Return the same deployment at another batch."""
        return replace(self, workload=self.workload.with_batch(batch))

    @property
    def bill(self) -> Bill:
        """What all GPUs of the cluster that work cost and draw, idle ones too."""
        return self._known.once(lambda: self.prices.bill(self.cluster), "bill", self.prices)

    @property
    def notes(self) -> tuple[str, ...]:
        """What runs at a wider type than it is stored in, on some GPU; that the context is beyond the model's."""
        everywhere = stage_rates(
            self.cluster, range(len(self.cluster.gpus)), list(self.model.precision.values())
        )
        beyond = self.model.beyond(self.workload.context)
        return (*everywhere.notes, *[beyond] * bool(beyond))

    @property
    def fabric_note(self) -> str:
        """What links between domains that are broken or slow leave to traffic; empty where all of them work."""
        faults = self.fabric_faults
        return "" if faults is None else self._known.once(lambda: faults.note, "fabric note")

    def kernels_reach(self) -> Efficiency:
        """What kernels reach on the cluster's first GPU: what reports print."""
        first = self.cluster.spec.domains[self.cluster.gpus[0].domain].gpu
        return self.efficiency or calibrated(first, self.engine)

    def machine(self, stage: StageSpec) -> Machine:
        """What ``stage`` runs on: its rates, what its slowest chip reaches of them, and its all-to-all kernels."""

        def made() -> Machine:
            rates = self.rates(stage)
            domains = (self.cluster.spec.domains[domain] for domain in self.domain_set(stage))
            gpu = next(domain.gpu for domain in domains if domain.gpu.name == rates.chip)
            efficiency = self.efficiency or calibrated(gpu, self.engine)
            kernels = kernels_for(rates, self.workload.phase)
            return Machine(rates, efficiency, kernels, self.workload.kv_dtype)

        key = self._rates_key(stage), self.efficiency, self.engine, self.workload.phase
        return self._known.once(made, "machine", *key)

    def kernel(self, stage: StageSpec, *, tp: int = 1) -> Kernel | None:
        """The kernel that sends tokens to the experts of ``stage``; None where nothing is sent.

        Inside one domain another may run with few tokens (:class:`cost.machine.Kernels`). One attention group
        alone (``tp`` GPUs) has every token on each of its GPUs; at data-sheet peaks no kernel loses anything.
        """
        moe = any(isinstance(self.model.layers[layer].ffn, MoeFfn) for layer in stage.layers)
        machine = self.machine(stage)
        if not moe or len(stage.gpus) <= tp or machine.efficiency.ideal:
            return None
        return machine.kernels.across if len(self.domain_set(stage)) > 1 else machine.kernels.inside

    def rates(self, stage: StageSpec) -> Rates:
        """Peak rates of the slowest GPU of ``stage``; scores multiply BF16 besides the weights' types."""

        def made() -> Rates:
            dtypes = [*self.model.precision.values(), "bf16", self.workload.kv_dtype]
            rates = stage_rates(self.cluster, stage.gpus, dtypes)
            if self._routed(stage):
                rates = replace(rates, alltoall_bytes_per_s=self._uniform(stage, rates.up_bytes_per_s))
            return replace(rates, out_bytes_per_s=self.alltoall_left(stage) * rates.out_bytes_per_s)

        return self._known.once(made, "rates", self._rates_key(stage))

    def _rates_key(self, stage: StageSpec) -> tuple[str, tuple[int, ...] | frozenset[int]]:
        """Equal for stages of the same rates: of the same domains, or of the same GPUs where those differ inside."""
        apart = self._routed(stage) or bool(self.cluster.spec.slow_gpus)
        return self.workload.kv_dtype, stage.gpus if apart else self.domain_set(stage)

    def _routed(self, stage: StageSpec) -> bool:
        """Whether bytes take several links inside a domain, or some links are broken."""
        spec = self.cluster.spec
        some = not spec.switched and any(not spec.domains[d].switched for d in self.domain_set(stage))
        return some or spec.reshaped

    def _uniform(self, stage: StageSpec, alone: float) -> float:
        """All-to-all bytes/s among the GPUs of a stage in one domain, the slowest such group; from the routes."""
        routers = [self.router, *(router for _, router in self._drained)]
        found = max(router.uniform_within_domains(stage.gpus) for router in routers)
        return found if np.isfinite(found) else alone

    @property
    def router(self) -> Router:
        """Routes of the cluster."""
        return self._known.once(lambda: Router(self.cluster), "router")

    @property
    def _drained(self) -> list[tuple[tuple[str, ...], Router]]:
        """Names of slow links, and the routes where those are out of service so that others stand in."""

        def made() -> list[tuple[tuple[str, ...], Router]]:
            return [(names, Router(cluster)) for names, cluster in without_slow_links(self.cluster)]

        return self._known.once(made, "drained")

    @property
    def fabric_faults(self) -> FaultyFabric | None:
        """What is left of the links between domains; None where all of them work."""

        def made() -> FaultyFabric | None:
            between = faulty_links(self.cluster).between
            return FaultyFabric(self.cluster, self.router, self._drained) if between else None

        return self._known.once(made, "fabric faults")

    def alltoall_left(self, stage: StageSpec) -> float:
        """Return the part of its rate that an all-to-all between the domains of ``stage`` has, 1 without faults."""
        faults = self.fabric_faults
        if faults is None or len(self.domain_set(stage)) == 1:
            return 1.0
        return self._known.once(lambda: faults.alltoall(stage.gpus), "all-to-all", stage.gpus)

    def hop_left(self, sender: StageSpec, receiver: StageSpec) -> float:
        """Return the part of its rate that handing from stage to stage has left, 1 where all links work."""
        faults = self.fabric_faults
        if faults is None:
            return 1.0
        ends = sender.gpus, receiver.gpus
        return self._known.once(lambda: faults.handing(*ends), "hop", *ends)

    def gpu_rates(self, stage: StageSpec) -> GpuRates | None:
        """Rates at which each GPU of ``stage`` runs experts, over those of the stage; None where all are alike."""
        spec = self.cluster.spec
        kinds = self._known.once(lambda: len({domain.gpu.name for domain in spec.domains}), "GPU kinds")
        if not spec.slow_gpus and kinds == 1:
            return None
        key = stage.gpus, self.efficiency, self.engine, self.workload.kv_dtype
        return self._known.once(lambda: self._compared(stage), "GPU rates", *key)

    def _compared(self, stage: StageSpec) -> GpuRates | None:
        spec, gpus = self.cluster.spec, [self.cluster.gpus[gpu] for gpu in stage.gpus]
        kinds = [(spec.domains[gpu.domain].gpu.name, spec.slow_gpus.get(gpu.id, 1.0)) for gpu in gpus]
        if len(set(kinds)) == 1:
            return None
        weights = self.model.precision["experts"]

        def rates_of(part: StageSpec) -> tuple[float, float, float, float]:
            machine = self.machine(part)
            flop, hbm = machine.rates.flop_per_s[weights], machine.rates.hbm_bytes_per_s
            fraction = machine.efficiency.reached(*machine.rates.fractions("experts", weights))
            return flop * fraction, hbm * machine.efficiency["hbm.experts"], flop, hbm

        own: dict[tuple[str, float], tuple[float, float, float, float]] = {}
        for kind, gpu in zip(kinds, stage.gpus, strict=True):
            if kind not in own:
                own[kind] = rates_of(StageSpec((gpu,), stage.layers))
        over = np.array([own[kind] for kind in kinds]).T / np.array(rates_of(stage))[:, None]
        return GpuRates(over[0], over[1], np.maximum(over[2], 1.0), np.maximum(over[3], 1.0))

    def domains(self, stage: StageSpec) -> NDArray[np.int64]:
        """Scale-up domain of each GPU of ``stage``, ``[gpus]``."""
        gpus = self.cluster.gpus
        return self._known.once(
            lambda: np.array([gpus[gpu].domain for gpu in stage.gpus], dtype=np.int64), "domains", stage.gpus
        )

    def domain_set(self, stage: StageSpec) -> frozenset[int]:
        """Scale-up domains that ``stage`` lies in."""
        return self._known.once(lambda: frozenset(self.domains(stage).tolist()), "domain set", stage.gpus)

    def place(self, stage: StageSpec) -> Place:
        """Scale-up domain, leaf and pod that all GPUs of ``stage`` lie in."""

        def made() -> Place:
            domains = self.domain_set(stage)
            leaf, pod = self._known.once(
                lambda: leaves_and_pods(self.cluster.spec, self.cluster.gpus), "leaves"
            )
            leaves, pods = {leaf[gpu] for gpu in stage.gpus}, {pod[gpu] for gpu in stage.gpus}
            alone = (next(iter(where)) if len(where) == 1 else None for where in (domains, leaves, pods))
            return Place(*alone)

        return self._known.once(made, "place", stage.gpus)

    def unlike(self, stage: StageSpec) -> tuple[tuple[int, tuple[float, int]], ...]:
        """Which GPUs of ``stage`` are unlike others of their kind, by place, and in what (:func:`unlike_gpus`)."""
        marks = self._known.once(lambda: unlike_gpus(self.cluster), "unlike")
        return tuple(
            (place, marks[gpu]) for place, gpu in enumerate(stage.gpus * bool(marks)) if gpu in marks
        )

    def smallest_part(self, stage: StageSpec) -> int:
        """GPUs of ``stage`` in the scale-up domain that holds fewest of them."""
        if len(self.domain_set(stage)) == 1:
            return len(stage.gpus)
        return int(np.unique(self.domains(stage), return_counts=True)[1].min())

    def numbered(self, what: Literal["gpu", "node", "rack"]) -> NDArray[np.int64]:
        """Number of the GPU, node or rack of each GPU of the cluster, in order of appearance, ``[gpus]``."""

        def made() -> NDArray[np.int64]:
            names = [{"gpu": gpu.id, "node": gpu.node, "rack": gpu.rack}[what] for gpu in self.cluster.gpus]
            number = {name: index for index, name in enumerate(dict.fromkeys(names))}
            return np.array([number[name] for name in names], dtype=np.int64)

        return self._known.once(made, "numbers", what)
