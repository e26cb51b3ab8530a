"""The three inputs of every cost: cluster, model and workload, with what kernels reach of the peaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
"""Fraction of the driver's capacity that an engine may fill; the rest is for the driver, graphs and fragments."""


@dataclass(frozen=True)
class Setting:
    """What is costed: a model on a cluster under a workload."""

    cluster: Cluster
    model: Model
    workload: Workload
    efficiency: Efficiency = PUBLISHED

    def __post_init__(self) -> None:
        cache_bytes_per_element(self.workload.kv_dtype)
        if self.cluster.spec.gpus < 1:
            raise InputError(f"cluster {self.cluster.name}: it has no GPU.")

    def with_batch(self, batch: int) -> Setting:
        """Return the same setting at another batch."""
        return replace(self, workload=self.workload.with_batch(batch))

    @property
    def notes(self) -> tuple[str, ...]:
        """What runs at a wider type than it is stored in, on some GPU of the cluster."""
        everywhere = stage_rates(self.cluster, range(len(self.cluster.gpus)), list(self.model.precision.values()))
        return everywhere.notes

    def rates(self, stage: StageSpec) -> Rates:
        """Peak rates of the slowest GPU of ``stage``; scores multiply BF16 besides the weights' types."""
        return stage_rates(self.cluster, stage.gpus, [*self.model.precision.values(), "bf16"])

    def domain_set(self, stage: StageSpec) -> set[int]:
        """Scale-up domains that ``stage`` lies in."""
        gpus = self.cluster.gpus
        return {gpus[gpu].domain for gpu in stage.gpus}

    def domains(self, stage: StageSpec) -> NDArray[np.int64]:
        """Scale-up domain of each GPU of ``stage``, ``[gpus]``."""
        return np.array([self.cluster.gpus[gpu].domain for gpu in stage.gpus], dtype=np.int64)
