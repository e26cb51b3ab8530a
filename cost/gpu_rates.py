"""How fast each GPU of a stage runs experts, where GPUs differ: by its chip, and by how far it is throttled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.expert_use import ExpertUse
from cost.layout import StageSpec
from cost.model import MoeFfn
from cost.step_cost import kernel_seconds, reached
from cost.terms.experts import expert_columns, expert_times
from cost.terms.work import filling


@dataclass(frozen=True, eq=False)
class GpuRates:
    """How many times faster than the rates of its stage, those of the slowest GPU, each GPU runs experts.

    Attributes
    ----------
    compute, read:
        Of what kernels reach, float64 ``[gpus]``.
    peak_compute, peak_read:
        Of data-sheet peaks, float64 ``[gpus]``, at least 1.
    """

    compute: NDArray[np.float64]
    read: NDArray[np.float64]
    peak_compute: NDArray[np.float64]
    peak_read: NDArray[np.float64]


def gpu_rates(deployment: Deployment, stage: StageSpec) -> GpuRates | None:
    """Return the rates of each GPU of ``stage`` over those of the stage; None where all are alike."""
    spec = deployment.cluster.spec
    if not spec.slow_gpus and len({domain.gpu.name for domain in spec.domains}) == 1:
        return None
    key = "gpu rates", id(deployment.efficiency), deployment.engine, stage.gpus
    return deployment.once(key, lambda: _compared(deployment, stage))


def _compared(deployment: Deployment, stage: StageSpec) -> GpuRates | None:
    spec, gpus = deployment.cluster.spec, [deployment.cluster.gpus[gpu] for gpu in stage.gpus]
    kinds = [(spec.domains[gpu.domain].gpu.name, spec.slow_gpus.get(gpu.id, 1.0)) for gpu in gpus]
    if len(set(kinds)) == 1:
        return None
    weights = deployment.model.precision["experts"]

    def rates_of(part: StageSpec) -> tuple[float, float, float, float]:
        machine = deployment.machine(part)
        flop, hbm = machine.rates.flop_per_s[weights], machine.rates.hbm_bytes_per_s
        fraction = reached(machine.efficiency, *machine.rates.fractions("experts", weights))
        return flop * fraction, hbm * machine.efficiency["hbm.experts"], flop, hbm

    own: dict[tuple[str, float], tuple[float, float, float, float]] = {}
    for kind, gpu in zip(kinds, stage.gpus, strict=True):
        if kind not in own:
            own[kind] = rates_of(StageSpec((gpu,), stage.layers))
    over = np.array([own[kind] for kind in kinds]).T / np.array(rates_of(stage))[:, None]
    return GpuRates(over[0], over[1], np.maximum(over[2], 1.0), np.maximum(over[3], 1.0))


def expert_speed(
    deployment: Deployment, stage: StageSpec, moe: MoeFfn, use: ExpertUse, tokens: float
) -> NDArray[np.float64] | None:
    """Return the speed of each GPU of ``stage``, float64 ``[gpus]`` with mean 1; None where all are alike.

    The speed is one over the seconds that a GPU takes for the experts of ``use`` (an even part of the load, say) at
    ``tokens`` tokens per GPU: what binds it, computing or reading, is the same as in the step.
    """
    rates = gpu_rates(deployment, stage)
    if rates is None:
        return None
    machine, weights = deployment.machine(stage), deployment.model.precision["experts"]
    compute_s, read_s = expert_times(moe, use, tokens=tokens * use.gpus, weights=weights, rates=machine.rates)
    efficiency = machine.efficiency
    part = reached(efficiency, *machine.rates.fractions("experts", weights))
    columns = filling(
        expert_columns(moe, deployment.model.expert_hidden),
        machine.rates.flop_per_s[weights],
        machine.rates.hbm_bytes_per_s,
    )
    compute = compute_s.mean(axis=(0, 1)) * (1 / part + efficiency["columns.experts"] / columns)
    read = read_s.mean(axis=(0, 1)) / efficiency["hbm.experts"]
    busy = (compute > 0) | (read > 0)
    # the same slots and load on every GPU, so that neither counts as speed
    seconds = kernel_seconds(compute[busy].mean() / rates.compute, read[busy].mean() / rates.read, efficiency)
    per_second = 1.0 / np.asarray(seconds)
    speed: NDArray[np.float64] = per_second / per_second.mean()
    return speed
