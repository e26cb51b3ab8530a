"""The three inputs of every cost: cluster, model and workload, with what kernels reach of the peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.attention.sparse import as_if_sparse
from cost.calibration.alltoall import Kernel
from cost.calibration.serving import calibrated, require_engine
from cost.dtypes import cache_bytes_per_element
from cost.efficiency import Efficiency
from cost.layout import StageSpec
from cost.machine import Machine, Rates, kernels_for, stage_rates
from cost.model import Model, MoeFfn
from cost.workload import Workload
from topology.cluster import Cluster
from topology.errors import InputError

Found = TypeVar("Found")

USABLE_HBM = 0.90
"""Fraction of the driver's capacity that an engine may fill; the rest is the driver's, graphs and fragments."""


@dataclass(frozen=True)
class Deployment:
    """What is costed: a model on a cluster under a workload.

    What depends on cluster and model alone is computed once and shared by settings at other batches.

    Attributes
    ----------
    model:
        As given, or with the sparse attention that the workload asks for as a what-if.
    efficiency:
        What kernels reach; None: as calibrated for each chip (:func:`cost.calibration.serving.calibrated`).
    engine:
        Serving engine whose fixed delays are counted; empty: between those that were measured.
    """

    cluster: Cluster
    model: Model
    workload: Workload
    efficiency: Efficiency | None = None
    engine: str = ""
    _known: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        cache_bytes_per_element(self.workload.kv_dtype)
        require_engine(self.engine)
        object.__setattr__(self, "model", as_if_sparse(self.model, self.workload.sparse_attention))
        self._known["kept", id(self.cluster), id(self.model)] = self.cluster, self.model  # so ids stay theirs
        if not self.cluster.gpus:
            raise InputError(f"cluster {self.cluster.name}: it has no GPU.")

    def with_batch(self, batch: int) -> Deployment:
        """Return the same deployment at another batch."""
        return replace(self, workload=self.workload.with_batch(batch))

    def once(self, key: tuple[object, ...], make: Callable[[], Found]) -> Found:
        """Return what ``make`` returned for ``key`` the first time, on this cluster and model."""
        known = (*key, id(self.cluster), id(self.model))
        if known not in self._known:
            self._known[known] = make()
        found: Found = self._known[known]
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What runs at a wider type than it is stored in, on some GPU of the cluster."""
        everywhere = stage_rates(
            self.cluster, range(len(self.cluster.gpus)), list(self.model.precision.values())
        )
        return everywhere.notes

    def machine(self, stage: StageSpec) -> Machine:
        """What ``stage`` runs on: its rates, what its slowest chip reaches of them, and its all-to-all kernels."""
        rates = self.rates(stage)
        key = (
            "machine",
            id(rates),
            id(self.efficiency),
            self.engine,
            self.workload.kv_dtype,
            self.workload.phase,
        )
        if key not in self._known:
            domains = (self.cluster.spec.domains[domain] for domain in self.domain_set(stage))
            gpu = next(domain.gpu for domain in domains if domain.gpu.name == rates.chip)
            efficiency = self.efficiency or calibrated(gpu, self.engine)
            kernels = kernels_for(rates, self.workload.phase)
            self._known[key] = Machine(rates, efficiency, kernels, self.workload.kv_dtype)
        found: Machine = self._known[key]
        return found

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

    def kernels_reach(self) -> Efficiency:
        """What kernels reach on the cluster's first GPU: what reports print."""
        first = self.cluster.spec.domains[self.cluster.gpus[0].domain].gpu
        return self.efficiency or calibrated(first, self.engine)

    def rates(self, stage: StageSpec) -> Rates:
        """Peak rates of the slowest GPU of ``stage``; scores multiply BF16 besides the weights' types."""
        spec = self.cluster.spec
        domains = self.domain_set(stage)
        routed = spec.reshaped or any(spec.domains[d].structure != "switch" for d in domains)
        apart = routed or bool(spec.slow_gpus)
        kv_dtype, gpus = self.workload.kv_dtype, stage.gpus if apart else domains
        key = "rates", id(self.cluster), id(self.model), kv_dtype, gpus
        if key not in self._known:
            dtypes = [*self.model.precision.values(), "bf16", self.workload.kv_dtype]
            rates = stage_rates(self.cluster, stage.gpus, dtypes)
            if routed:
                rates = replace(rates, alltoall_bytes_per_s=self._uniform(stage, rates.up_bytes_per_s))
            self._known[key] = rates
        found: Rates = self._known[key]
        return found

    def _uniform(self, stage: StageSpec, alone: float) -> float:
        """All-to-all bytes/s among the GPUs of a stage in one domain, the slowest such group; from the routes."""
        from topology.routes import Router, uniform_bytes_per_s

        key = "router", id(self.cluster)
        if key not in self._known:
            self._known[key] = Router(self.cluster)
        where = self.domains(stage)
        gpus = np.array(stage.gpus)
        groups = [gpus[where == domain].tolist() for domain in np.unique(where)]
        return min(
            (
                uniform_bytes_per_s(self.cluster, group, self._known[key])
                for group in groups
                if len(group) > 1
            ),
            default=alone,
        )

    def domain_set(self, stage: StageSpec) -> frozenset[int]:
        """Scale-up domains that ``stage`` lies in."""
        key = "set", id(self.cluster), stage.gpus
        if key not in self._known:
            self._known[key] = frozenset(self.domains(stage).tolist())
        found: frozenset[int] = self._known[key]
        return found

    def smallest_part(self, stage: StageSpec) -> int:
        """GPUs of ``stage`` in the scale-up domain that holds fewest of them."""
        return int(np.unique(self.domains(stage), return_counts=True)[1].min())

    def domains(self, stage: StageSpec) -> NDArray[np.int64]:
        """Scale-up domain of each GPU of ``stage``, ``[gpus]``."""
        key = "domains", id(self.cluster), stage.gpus
        if key not in self._known:
            gpus = self.cluster.gpus
            self._known[key] = np.array([gpus[gpu].domain for gpu in stage.gpus], dtype=np.int64)
        found: NDArray[np.int64] = self._known[key]
        return found
