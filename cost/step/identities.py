"""What a roofline says of a model on a machine before any placement: the identities of the blackboard."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cost.catalog import catalog_figures
from cost.dtypes import bytes_per_param, multiply_dtype
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.step.step import even_step
from topology.base.figures import Figure
from topology.spec import GpuSpec


@dataclass(frozen=True)
class CacheTier:
    """A memory that keeps contexts: its capacity in bytes and its rate in bytes/s, each with its source."""

    name: str
    capacity_bytes: Figure
    bytes_per_s: Figure

    @property
    def drain_s(self) -> float:
        """Seconds to read all of it: what is wanted again sooner belongs in a faster tier, later in a slower one."""
        return self.capacity_bytes.value / self.bytes_per_s.value


def cache_tiers(gpu: GpuSpec) -> tuple[CacheTier, ...]:
    """Return the HBM of a GPU and the tiers below it, the fastest first."""
    tiers = catalog_figures("cache_tiers", "tiers", {"capacity_bytes": "byte", "bytes_per_s": "byte/s"})
    below = (CacheTier(name, **figures) for name, figures in tiers.items())
    return CacheTier("hbm", gpu.figure("hbm_bytes"), gpu.figure("hbm_bytes_per_s")), *below


def balancing_batch(model: Model, gpu: GpuSpec) -> float:
    """Return the tokens of a step at which computing takes as long as reading all weights once.

    ``flop/s / (bytes/s) * bytes of a weight / 2 * total / active parameters``, in the type that most weights have
    (experts, else the dense part): 300 x total / active for BF16 weights on a chip of 300 flop per byte.

    Raises
    ------
    MissingFigureError
        If the catalog has no peak for that type.
    """
    stored = model.precision["experts" if model.moe else "dense"]
    unit, _ = multiply_dtype(stored, gpu)
    flop_per_byte = gpu.dense_flop_per_s(unit) / gpu.hbm_bytes_per_s
    return flop_per_byte * bytes_per_param(stored) / 2 * model.total_params / model.active_params


def output_over_input(deployment: Deployment, stage: StageSpec, tp: int, batch: float) -> float:
    """Return GPU-seconds of an output token over those of an input token.

    Both on the GPUs of ``stage`` with evenly loaded experts: a decode step of ``batch`` sequences per GPU, and the
    prefill of one prompt per GPU of as many tokens as the context has.
    """
    workload = deployment.workload
    prefill = replace(
        deployment, workload=replace(workload, phase="prefill", batch=1, draft_tokens=0, accept_length=1.0)
    )
    output_s = _step_s(deployment, stage, tp, batch, len(stage.gpus)) / (batch * workload.tokens_per_step)
    return output_s / (_step_s(prefill, stage, tp, 1.0, len(stage.gpus)) / workload.context)


def over_two_domains(deployment: Deployment, stage: StageSpec, tp: int, batch: float) -> tuple[float, float]:
    """Return seconds of a step where one domain holds the EP group, and where each of two holds half of it.

    Whole model on the GPUs of ``stage``, evenly loaded experts, ``batch`` sequences per GPU.

    Raises
    ------
    InputError
        If no fabric joins its domains.
    """
    deployment.rates(stage).require_scale_out()
    gpus = len(stage.gpus)
    return _step_s(deployment, stage, tp, batch, gpus), _step_s(deployment, stage, tp, batch, gpus / 2)


def _step_s(deployment: Deployment, stage: StageSpec, tp: int, batch: float, domain_gpus: float) -> float:
    """Return seconds of a step of the whole model on the GPUs of one stage."""
    ep = len(stage.gpus)
    shape = StepShape(tp=tp, attention_dp=ep / tp, ep=ep, domain_gpus=domain_gpus)
    shape = shape.under(deployment.workload, batch)
    return float(even_step(deployment.model, shape, deployment.machine(stage)).total_s)
