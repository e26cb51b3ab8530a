"""The three inputs of every cost: cluster, model and workload, with what kernels reach of the peaks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cost.dtypes import cache_bytes_per_element
from cost.efficiency import PUBLISHED, Efficiency
from cost.rates import stage_rates
from topology.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.layout import StageSpec
    from cost.model import Model
    from cost.rates import Rates
    from cost.workload import Workload
    from topology.cluster import Cluster

__all__ = ["USABLE_HBM", "Setting"]

USABLE_HBM = 0.90
"""Fraction of the driver's capacity that an engine may fill; the rest is the driver's, graphs and fragments."""


@dataclass(frozen=True)
class Setting:
    """What is costed: a model on a cluster under a workload.

    What depends on cluster and model alone is computed once and shared by settings at other batches.
    """

    cluster: Cluster
    model: Model
    workload: Workload
    efficiency: Efficiency = PUBLISHED
    _known: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        cache_bytes_per_element(self.workload.kv_dtype)
        if not self.cluster.gpus:
            raise InputError(f"cluster {self.cluster.name}: it has no GPU.")

    def with_batch(self, batch: int) -> Setting:
        """Return the same setting at another batch."""
        return replace(self, workload=self.workload.with_batch(batch))

    @property
    def notes(self) -> tuple[str, ...]:
        """What runs at a wider type than it is stored in, on some GPU of the cluster."""
        everywhere = stage_rates(
            self.cluster, range(len(self.cluster.gpus)), list(self.model.precision.values())
        )
        return everywhere.notes

    def rates(self, stage: StageSpec) -> Rates:
        """Peak rates of the slowest GPU of ``stage``; scores multiply BF16 besides the weights' types."""
        key = "rates", id(self.cluster), id(self.model), self.domain_set(stage)
        if key not in self._known:
            dtypes = [*self.model.precision.values(), "bf16"]
            self._known[key] = stage_rates(self.cluster, stage.gpus, dtypes)
        found: Rates = self._known[key]
        return found

    def domain_set(self, stage: StageSpec) -> frozenset[int]:
        """Scale-up domains that ``stage`` lies in."""
        key = "set", id(self.cluster), stage.gpus
        if key not in self._known:
            self._known[key] = frozenset(self.domains(stage).tolist())
        found: frozenset[int] = self._known[key]
        return found

    def domains(self, stage: StageSpec) -> NDArray[np.int64]:
        """Scale-up domain of each GPU of ``stage``, ``[gpus]``."""
        key = "domains", id(self.cluster), stage.gpus
        if key not in self._known:
            gpus = self.cluster.gpus
            self._known[key] = np.array([gpus[gpu].domain for gpu in stage.gpus], dtype=np.int64)
        found: NDArray[np.int64] = self._known[key]
        return found
