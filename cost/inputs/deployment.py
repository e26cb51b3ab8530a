"""The inputs of every cost: cluster, model and workload, with kernel efficiencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.attention.sparse import as_if_sparse
from cost.calibration.alltoall import Kernel
from cost.calibration.correction import PHYSICS, Correction, shipped_correction
from cost.calibration.serving import calibrated, require_engine
from cost.dtypes import cache_bytes_per_element
from cost.inputs.fabric_faults import FaultyFabric
from cost.inputs.layout import Place, StageSpec
from cost.inputs.machine import Efficiency, GpuRates, Machine, Rates, stage_rates
from cost.inputs.stage_context import ClusterContext, Conditions, StageContext
from cost.inputs.workload import Workload
from cost.memory.budget import Budget, Ranks, budget_of, most_sequences
from cost.model import Model, MoeFfn
from cost.money.bill import Bill
from cost.money.prices import PriceBook
from cost.queueing.schedulers import Scheduler, scheduler_of
from topology.base.errors import InputError
from topology.base.shown import Shown
from topology.cluster import Cluster
from topology.routes import Router
from topology.spec import GpuSpec

NONE_DEPLOYABLE = "no layout of quarter, half or whole nodes is possible, so layouts of any shape are used"
"""Note when layouts of any shape are used without being requested."""

_Answer = TypeVar("_Answer")


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
    mem_util, max_seqs:
        The part of a GPU's memory that the engine may use, and the most sequences that an attention group runs at a
        time; None: the engine's default.
    correction:
        What measured runs took over the physics; it does not enter half batches that overlap, what-ifs and
        efficiencies that are given.
    prices:
        What an hour of each GPU costs and what it draws.
    any_shape:
        Layouts need not be deployable (:mod:`cost.layouts.deployable`): any number of GPUs and stages will do.
    dcp, pcp:
        Context parallelism of pools that decode, and of those that only prefill
        (:class:`cost.inputs.layout.Layout`); None: where it may pay (:func:`cost.layouts.contexts.context_widths`).
    none_deployable:
        Why any shape will do: no layout that is deployable holds the model.
    recipe:
        Which recipe of published runs the formats, drafts and overlap are of, and its source, in words; empty:
        none was asked for.
    """

    cluster: Cluster
    model: Model
    workload: Workload
    efficiency: Efficiency | None = None
    engine: str = ""
    mem_util: float | None = None
    max_seqs: int | None = None
    correction: Correction = field(default_factory=shipped_correction)
    prices: PriceBook = field(default_factory=PriceBook)
    any_shape: bool = False
    dcp: int | None = None
    pcp: int | None = None
    none_deployable: bool = field(default=False, compare=False)
    recipe: str = ""
    _shared: ClusterContext | None = field(default=None, compare=False, repr=False)

    def brief(self) -> str:
        """Return the model, the cluster and the phase."""
        phase = "whole requests in one pool" if self.workload.phase == "both" else self.workload.phase
        return f"{self.model.name} on {self.cluster.name}, {phase}"

    def __post_init__(self) -> None:
        cache_bytes_per_element(self.workload.kv_dtype)
        require_engine(self.engine)
        if self.mem_util is not None and not 0 < self.mem_util <= 1:
            raise InputError("expected a part above 0 and up to 1.", field="mem_util", value=self.mem_util)
        object.__setattr__(self, "model", as_if_sparse(self.model, self.workload.sparse_attention))
        if not self.cluster.gpus:
            raise InputError(f"cluster {self.cluster.name}: it has no GPU.")
        known = self._shared
        if known is None or known.cluster is not self.cluster or known.model is not self.model:
            object.__setattr__(self, "_shared", ClusterContext(self.cluster, self.model))

    @property
    def shared(self) -> ClusterContext:
        """What deployments of this cluster and model share."""
        assert self._shared is not None  # noqa: S101 - made above
        return self._shared

    @cached_property
    def _conditions(self) -> Conditions:
        workload = self.workload
        bare = self.efficiency is not None or workload.overlap or workload.what_if or not workload.decodes
        correction = PHYSICS if bare else self.correction
        return Conditions(workload.phase, workload.kv_dtype, self.engine, self.efficiency, correction)

    def context(self, stage: StageSpec) -> StageContext:
        """Return the context of the GPUs of ``stage``, for any batch."""
        return self.shared.stage(self._conditions, stage.gpus)

    def once(self, make: Callable[[], _Answer], *key: object) -> _Answer:
        """Return the cached result of ``make`` for ``key``, shared by all batches of this deployment."""
        engine = self.engine, self.mem_util, self.max_seqs
        searched = self.any_shape, self.dcp, self.pcp
        at = self.workload.with_batch(0), self.efficiency, engine, self.correction, *searched
        return self.shared.once(make, *key, *at)

    def for_want_of_deployable(self) -> Deployment:
        """Return the same deployment where no layout that is deployable holds the model."""
        return replace(self, any_shape=True, none_deployable=True)

    def with_batch(self, batch: float) -> Deployment:
        """Return the same deployment at another batch."""
        return replace(self, workload=self.workload.with_batch(batch))

    @property
    def bill(self) -> Bill:
        """What all GPUs of the cluster that work cost and draw, idle ones too."""
        return self.shared.once(lambda: self.prices.bill(self.cluster), "bill", self.prices)

    @property
    def notes(self) -> tuple[str, ...]:
        """What runs at a wider type than it is stored in; that the context is beyond the model, a layout unusual."""
        everywhere = stage_rates(
            self.cluster, range(len(self.cluster.gpus)), list(self.model.precision.values())
        )
        beyond = self.model.beyond(self.workload.context)
        return (*everywhere.notes, *[beyond] * bool(beyond), *[NONE_DEPLOYABLE] * self.none_deployable)

    @property
    def fabric_note(self) -> str:
        """What links between domains that are broken or slow leave to traffic; empty where all of them work."""
        return self.shared.fabric_note

    def kernels_reach(self) -> Efficiency:
        """Kernel efficiencies on the cluster's first GPU, for reports."""
        gpu = self.cluster.spec.domains[self.cluster.gpus[0].domain].gpu
        return self.efficiency or calibrated(gpu, self.engine)

    def machine(self, stage: StageSpec) -> Machine:
        """Machine of ``stage``: its rates, the efficiencies of its slowest chip, and its all-to-all kernels."""
        return self.context(stage).machine

    def kernel(self, stage: StageSpec, *, tp: int = 1) -> Kernel | None:
        """The kernel that sends tokens to the experts of ``stage``; None where nothing is sent.

        Inside one domain another may run with few tokens (:class:`cost.inputs.machine.Kernels`). GPUs that all have
        the same tokens (``tp`` of them) send none; at data-sheet peaks no kernel loses anything.
        """
        moe = any(isinstance(self.model.layers[layer].ffn, MoeFfn) for layer in stage.layers)
        machine = self.machine(stage)
        if not moe or len(stage.gpus) <= tp or machine.efficiency.ideal:
            return None
        return machine.kernels.across if len(self.domain_set(stage)) > 1 else machine.kernels.inside

    def rates(self, stage: StageSpec) -> Rates:
        """Peak rates of the slowest GPU of ``stage``; scores multiply BF16 besides the weights' types."""
        return self.context(stage).rates

    @property
    def router(self) -> Router:
        """Routes of the cluster."""
        return self.shared.router

    @property
    def fabric_faults(self) -> FaultyFabric | None:
        """What is left of the links between domains; None where all of them work."""
        return self.shared.fabric_faults

    def budgets(self, stage: StageSpec, ranks: Ranks) -> dict[int, Budget]:
        """Return how the engine divides a GPU of each domain of ``stage``."""
        kind, domains = self.cluster.domain_kind, self.domain_set(stage)
        chips = {kind[at]: self.cluster.spec.domains[at].gpu for at in domains}
        of_kind = {number: self.budget_on(gpu, ranks) for number, gpu in chips.items()}
        return {at: of_kind[kind[at]] for at in domains}

    def budget(self, stage: StageSpec, ranks: Ranks) -> Budget:
        """Return the least of :meth:`budgets`."""
        return min(self.budgets(stage, ranks).values(), key=lambda budget: budget.usable)

    def budget_on(self, gpu: GpuSpec, ranks: Ranks) -> Budget:
        """Return how the engine divides a GPU."""
        drafts, limits = self.workload.draft_tokens > 0, (self.engine, self.max_seqs, self.mem_util)

        def find() -> Budget:
            engine, sequences, part = limits
            return budget_of(
                gpu, self.model, engine, ranks, drafts=drafts, sequences=sequences, utilisation=part
            )

        return self.shared.once(find, "budget", gpu.name, gpu.hbm_bytes, ranks, drafts, limits)

    @property
    def scheduler(self) -> Scheduler:
        """How the engine fills its steps."""
        return scheduler_of(require_engine(self.engine))

    @property
    def most_sequences(self) -> int:
        """The most sequences that an attention group runs at a time."""
        return self.max_seqs or self.shared.once(
            lambda: min(most_sequences(self.engine, domain.gpu) for domain in self.cluster.spec.domains),
            "sequences",
            self.engine,
        )

    def alltoall_left(self, stage: StageSpec) -> float:
        """Return the part of its rate that an all-to-all between the domains of ``stage`` has, 1 without faults."""
        return self.context(stage).alltoall_left

    def hop_left(self, sender: StageSpec, receiver: StageSpec) -> float:
        """Return the part of its rate that handing from stage to stage has left, 1 where all links work."""
        faults = self.fabric_faults
        return 1.0 if faults is None else faults.handing(sender.gpus, receiver.gpus)

    def gpu_rates(self, stage: StageSpec) -> GpuRates | None:
        """Rates at which each GPU of ``stage`` runs experts, over those of the stage; None where all are equal."""
        return self.context(stage).gpu_rates

    def domains(self, stage: StageSpec) -> NDArray[np.int64]:
        """Scale-up domain of each GPU of ``stage``, ``[gpus]``."""
        return self.context(stage).domains

    def domain_set(self, stage: StageSpec) -> frozenset[int]:
        """Scale-up domains of ``stage``."""
        return self.context(stage).domain_set

    def place(self, stage: StageSpec) -> Place:
        """Scale-up domain, leaf and pod that all GPUs of ``stage`` lie in."""
        return self.context(stage).place

    def smallest_part(self, stage: StageSpec) -> int:
        """GPUs of ``stage`` in the scale-up domain that holds fewest of them."""
        return self.context(stage).smallest_part

    def numbered(self, kind: Literal["gpu", "node", "rack"]) -> NDArray[np.int64]:
        """Number of the GPU, node or rack of each GPU of the cluster, in order of appearance, ``[gpus]``."""
        return self.shared.numbers[kind]
