"""The best of one layout for each phase over the whole cluster: what a fleet is compared with, and never below."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, best_at, sweep
from cost.serving.pools import match_rates
from placement.fleet.options import DECODE, PREFILL, Traffic
from placement.fleet.pricing import Column, Place, pool_rates
from placement.fleet.shapes import Shape
from topology.base.errors import InputError

_ALIKE = 1e-9


@dataclass(frozen=True)
class Uniform:
    """The best uniform plan: output tokens per second, the GPUs it uses, and its layouts in a few letters."""

    tok_s: float
    gpus_used: int
    label: str


def best_uniform(traffic: Traffic, place: Place | None = None) -> Uniform | None:
    """Return it, its experts placed by ``place``; None with several models, or where nothing keeps the limits.

    None too for pools of unlike domains.
    """
    if len(traffic.shares) > 1:
        return None
    decode, prefill = traffic.deployments[0]
    with suppress(InputError):  # no group divides the heads, or domains differ
        found = _swept(decode, traffic, () if traffic.tpot_s is None else (1 / traffic.tpot_s,))
        return _alone(found, traffic, place) if prefill is None else _matched(found, prefill, traffic, place)
    return None


def _reached(found: Sweep, index: int, role: str, traffic: Traffic, place: Place | None) -> float:
    """Part of its price that a layout reaches with its experts placed; 0 where they cannot be."""
    if place is None:
        return 1.0
    each_s = found.deployment.workload.tokens_per_step if role == DECODE else 1.0
    limit_s = (traffic.tpot_s if role == DECODE else traffic.ttft_s) or math.inf
    stages = found.variants[int(found.layout[index])].arrangement.replicas[0]
    shape = Shape((), tuple(len(stage) for stage in stages))
    tok_s = float(found.tok_s[index] / found.replicas[index])
    tp, batch, step_s = int(found.tp[index]), float(found.batch[index]), float(found.step_s[index])
    column = Column(0, role, shape, 0, tok_s, tok_s, tp, batch, step_s, limit_s * each_s)
    made = place(column, stages)
    return 0.0 if made is None else made.tok_s / tok_s


def _swept(deployment: Deployment, traffic: Traffic, speeds: tuple[float, ...] = ()) -> Sweep:
    return sweep(
        deployment,
        redundant=traffic.redundant,
        imbalance=traffic.imbalance,
        cut_experts=False,
        speeds=speeds,
    )


def _alone(found: Sweep, traffic: Traffic, place: Place | None) -> Uniform | None:
    """The best layout that decodes."""
    index = best_at(found, 0.0 if traffic.tpot_s is None else (1 - _ALIKE) / traffic.tpot_s)
    if index is None:
        return None
    used = int(found.gpus[index] * found.replicas[index])
    tok_s = float(found.tok_s[index]) * _reached(found, index, DECODE, traffic, place)
    return Uniform(tok_s, used, found.label(index)) if tok_s else None


def _matched(found: Sweep, prefill: Deployment, traffic: Traffic, place: Place | None) -> Uniform | None:
    """The best pair of pools."""
    other = _swept(prefill, traffic)
    best = match_rates(found, other, osl=traffic.osl, ttft_s=traffic.ttft_s, tpot_s=traffic.tpot_s).best()
    if best is None:
        return None
    sides = (
        (PREFILL, other, best.prefill, best.prefill_workers),
        (DECODE, found, best.decode, best.decode_workers),
    )
    label = ", ".join(
        f"{workers} x {side.label(index).rpartition(' ')[0]} {word}" for word, side, index, workers in sides
    )
    requests_per_s = best.requests_per_s
    if place is not None:
        decoders, prefillers, *_ = pool_rates(traffic, found, other)
        requests_per_s = min(
            workers * float(rates[index]) * _reached(side, index, role, traffic, place)
            for (role, side, index, workers), rates in zip(sides, (prefillers, decoders), strict=True)
        )
    return Uniform(requests_per_s * traffic.osl, best.gpus_used, label) if requests_per_s else None
