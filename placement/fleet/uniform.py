"""The best of one layout for each phase over the whole cluster: what a fleet is compared with, and never below."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, best_at, sweep
from cost.serving.pools import match_rates
from placement.fleet.options import Traffic
from topology.base.errors import InputError

_ALIKE = 1e-9


@dataclass(frozen=True)
class Uniform:
    """The best uniform plan: output tokens per second, the GPUs it uses, and its layouts in a few letters."""

    tok_s: float
    gpus_used: int
    label: str


def best_uniform(traffic: Traffic) -> Uniform | None:
    """Return it; None with several models, where nothing keeps the limits, or pools of unlike domains."""
    if len(traffic.shares) > 1:
        return None
    decode, prefill = traffic.deployments[0]
    with suppress(InputError):  # no group divides the heads, or domains differ
        found = _swept(decode, traffic, () if traffic.tpot_s is None else (1 / traffic.tpot_s,))
        return _alone(found, traffic) if prefill is None else _matched(found, prefill, traffic)
    return None


def _swept(deployment: Deployment, traffic: Traffic, speeds: tuple[float, ...] = ()) -> Sweep:
    return sweep(
        deployment,
        redundant=traffic.redundant,
        imbalance=traffic.imbalance,
        cut_experts=False,
        speeds=speeds,
    )


def _alone(found: Sweep, traffic: Traffic) -> Uniform | None:
    """The best layout that decodes."""
    index = best_at(found, 0.0 if traffic.tpot_s is None else (1 - _ALIKE) / traffic.tpot_s)
    if index is None:
        return None
    used = int(found.gpus[index] * found.replicas[index])
    return Uniform(float(found.tok_s[index]), used, found.label(index))


def _matched(found: Sweep, prefill: Deployment, traffic: Traffic) -> Uniform | None:
    """The best pair of pools."""
    other = _swept(prefill, traffic)
    best = match_rates(found, other, osl=traffic.osl, ttft_s=traffic.ttft_s, tpot_s=traffic.tpot_s).best()
    if best is None:
        return None
    sides = (
        ("prefill", other, best.prefill, best.prefill_workers),
        ("decode", found, best.decode, best.decode_workers),
    )
    label = ", ".join(
        f"{workers} x {side.label(index).rpartition(' ')[0]} {word}" for word, side, index, workers in sides
    )
    return Uniform(best.requests_per_s * traffic.osl, best.gpus_used, label)
