"""One decode step of one stage: the parts, what each rests on, and which resource binds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cost.model import MoeFfn
from cost.terms.alltoall import alltoall_volume, vector_bytes
from cost.terms.attention import attention_work
from cost.terms.dense import dense_work
from cost.terms.experts import expert_times
from cost.terms.links import all_reduce_bytes

if TYPE_CHECKING:
    from cost.efficiency import Efficiency
    from cost.expert_use import ExpertUse
    from cost.layout import StageSpec
    from cost.model import Layer
    from cost.rates import Rates
    from cost.setting import Setting
    from cost.terms.work import Work

__all__ = ["StageCost", "stage_cost"]


@dataclass
class StageCost:
    """Seconds of one micro-batch on one stage.

    Attributes
    ----------
    terms_s:
        Expected seconds by part (``attention``, ``experts``, ``dense``, ``head``, ``dispatch``, ``combine``,
        ``tp_all_reduce``); parts follow each other, so they add up.
    limits_s:
        The same seconds by the resource that bound them (``compute``, ``HBM bandwidth``, a fabric's name).
    floor_s:
        Seconds at data-sheet peaks that each resource is busy: no schedule is faster than the largest.
    """

    terms_s: dict[str, float] = field(default_factory=dict)
    limits_s: dict[str, float] = field(default_factory=dict)
    floor_s: dict[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """Expected seconds of the stage."""
        return sum(self.terms_s.values())

    def add(self, term: str, limit: str, seconds: float) -> None:
        """Count ``seconds`` of ``term``, bound by ``limit``."""
        self.terms_s[term] = self.terms_s.get(term, 0.0) + seconds
        self.limits_s[limit] = self.limits_s.get(limit, 0.0) + seconds

    def busy(self, resource: str, seconds: float) -> None:
        """Count ``seconds`` at peak on ``resource``."""
        self.floor_s[resource] = self.floor_s.get(resource, 0.0) + seconds


def stage_cost(
    setting: Setting, stage: StageSpec, *, tokens: float, tp: int, use: ExpertUse | None, last: bool
) -> StageCost:
    """Return what one micro-batch of ``tokens`` tokens per GPU costs on ``stage``.

    Parameters
    ----------
    use:
        The experts' part of the stage's MoE layers, in order; None for a dense stage.
    last:
        Whether the stage holds the output head.
    """
    model, rates, efficiency = setting.model, setting.rates(stage), setting.efficiency
    cost = StageCost()
    for layer, count in model.kind_counts(stage.layers):
        _add_layer(cost, setting, layer, count, tokens=tokens, tp=tp, rates=rates)
    if last:
        head = dense_work(
            model.head_params, tokens=tokens, tp=tp, weights=model.precision["head"], rates=rates
        )
        _add_work(cost, "head", head, 1, efficiency.gemm.value, efficiency)
    if use is not None:
        moe = next(ffn for i in stage.layers if isinstance(ffn := model.layers[i].ffn, MoeFfn))
        _add_experts(cost, moe, use, tokens=tokens, setting=setting, rates=rates)
        _add_alltoall(cost, setting, stage, use, tokens=tokens, rates=rates)
    return cost


def _add_work(
    cost: StageCost, term: str, work: Work, count: int, fraction: float, efficiency: Efficiency
) -> None:
    hbm = efficiency.hbm.value
    cost.add(term, work.limit(fraction, hbm), count * work.seconds(fraction, hbm))
    cost.busy("compute", count * work.compute_s)
    cost.busy("HBM bandwidth", count * work.memory_s)


def _add_layer(
    cost: StageCost, setting: Setting, layer: Layer, count: int, *, tokens: float, tp: int, rates: Rates
) -> None:
    model, workload, efficiency = setting.model, setting.workload, setting.efficiency
    precision = model.precision
    attention = attention_work(
        layer.attention,
        tokens=tokens,
        tp=tp,
        context=workload.context,
        kv_dtype=workload.kv_dtype,
        weights=precision["attention"],
        rates=rates,
    )
    _add_work(cost, "attention", attention, count, efficiency.attention.value, efficiency)
    ffn = layer.ffn
    if isinstance(ffn, MoeFfn):
        parts = [(ffn.shared_params, tp, precision["shared"]), (ffn.router_params, 1, precision["router"])]
    else:
        parts = [(ffn.params, tp, precision["dense"])]
    for params, width, weights in parts:
        work = dense_work(params, tokens=tokens, tp=width, weights=weights, rates=rates)
        _add_work(cost, "dense", work, count, efficiency.gemm.value, efficiency)
    if tp > 1:
        # attention's output and the dense or shared feed-forward's, if there is one
        reduced = 1 if isinstance(ffn, MoeFfn) and not ffn.shared_params else 2
        moved = reduced * count * all_reduce_bytes(model.hidden, tokens=tokens, tp=tp)
        peak_s = moved / rates.up_bytes_per_s
        delay_s = reduced * count * 2 * rates.up_latency_s
        cost.add("tp_all_reduce", rates.up_fabric, peak_s / efficiency.scale_up.value + delay_s)
        cost.busy(rates.up_fabric, peak_s)


def _add_experts(
    cost: StageCost, moe: MoeFfn, use: ExpertUse, *, tokens: float, setting: Setting, rates: Rates
) -> None:
    """A layer takes as long as its slowest GPU; scenarios are averaged."""
    efficiency = setting.efficiency
    weights = setting.model.precision["experts"]
    compute_s, read_s = expert_times(moe, use, tokens=tokens * use.gpus, weights=weights, rates=rates)
    compute, read = compute_s / efficiency.experts.value, read_s / efficiency.hbm.value
    seconds = np.maximum(compute, read).max(axis=2)
    bound_by_compute = compute.max(axis=2) >= read.max(axis=2)
    weight = use.repeats / use.share.shape[0]
    cost.add("experts", "compute", float(seconds[bound_by_compute].sum()) * weight)
    cost.add("experts", "HBM bandwidth", float(seconds[~bound_by_compute].sum()) * weight)
    cost.busy("compute", float(compute_s.max(axis=2).sum()) * weight)
    cost.busy("HBM bandwidth", float(read_s.max(axis=2).sum()) * weight)


def _add_alltoall(
    cost: StageCost, setting: Setting, stage: StageSpec, use: ExpertUse, *, tokens: float, rates: Rates
) -> None:
    """Dispatch and combine of each layer: both fabrics at once, then the fixed delay of the kernel."""
    if use.gpus == 1:
        return
    efficiency, model = setting.efficiency, setting.model
    volume = alltoall_volume(use, tokens=tokens, domain=setting.domains(stage))
    crosses = bool(volume.out.any())
    if crosses:
        rates.require_scale_out()
    delays = {
        "dispatch": efficiency.dispatch_out_s if crosses else efficiency.dispatch_up_s,
        "combine": efficiency.combine_out_s if crosses else efficiency.combine_up_s,
    }
    sizes = vector_bytes(model.hidden, model.precision["experts"])
    weight = use.repeats / use.share.shape[0]
    for (term, delay), size in zip(delays.items(), sizes, strict=True):
        up_s = volume.up * size / rates.alltoall_bytes_per_s
        out_s = volume.out * size / rates.out_bytes_per_s if crosses else np.zeros_like(up_s)
        up, out = up_s / efficiency.scale_up.value, out_s / efficiency.scale_out.value
        seconds = np.maximum(up, out) + delay.value + (rates.out_latency_s if crosses else rates.up_latency_s)
        over_out = out > up
        cost.add(term, rates.up_fabric, float(seconds[~over_out].sum()) * weight)
        if crosses:
            cost.add(term, rates.out_fabric, float(seconds[over_out].sum()) * weight)
            cost.busy(rates.out_fabric, float(out_s.sum()) * weight)
        cost.busy(rates.up_fabric, float(up_s.sum()) * weight)


def hop_seconds(
    setting: Setting, sender: StageSpec, receiver: StageSpec, *, moved: float
) -> tuple[str, float, float]:
    """Return the fabric of a pipeline hop, its expected seconds and its seconds at peak.

    ``moved`` bytes pass the busiest GPU: over the scale-up fabric where both stages lie in one domain, else
    over the scale-out one.
    """
    rates = setting.rates(sender)
    if len(setting.domain_set(sender) | setting.domain_set(receiver)) == 1:
        peak_s = moved / rates.up_bytes_per_s
        return rates.up_fabric, peak_s / setting.efficiency.scale_up.value + rates.up_latency_s, peak_s
    rates.require_scale_out()
    peak_s = moved / rates.out_bytes_per_s
    return rates.out_fabric, peak_s / setting.efficiency.scale_out.value + rates.out_latency_s, peak_s
