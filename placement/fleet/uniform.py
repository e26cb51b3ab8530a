"""The best of one layout for each pool over the whole cluster: what a fleet is compared with, and never below."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

from cost.layouts import Sweep, best_at, sweep
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving
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
    """Return it, of one pool or two, its experts placed by ``place``.

    None with several models, or where nothing keeps the limits on domains all alike.
    """
    if len(traffic.shares) > 1:
        return None
    decode, prefill = traffic.deployments[0]
    speeds = () if traffic.tpot_s is None else (1 / traffic.tpot_s,)
    with suppress(InputError):  # no group divides the heads, or domains differ
        if prefill is None:
            found = sweep(
                decode,
                redundant=traffic.redundant,
                imbalance=traffic.imbalance,
                cut_experts=False,
                speeds=speeds,
            )
            return _alone(found, traffic, place)
        serving = Serving.of(
            decode,
            traffic.lengths,
            ttft_s=traffic.ttft_s,
            redundant=traffic.redundant,
            imbalance=traffic.imbalance,
            cut_experts=False,
            speeds=speeds,
        )
        ways = [_served(serving, row, traffic, place) for row in serving.bests(traffic.tpot_s).values()]
        return max((one for one in ways if one.tok_s), key=lambda one: one.tok_s, default=None)
    return None


def _reached(found: Sweep, index: int, role: str, limit_s: float, place: Place | None) -> float:
    """Part of its price that a layout reaches with its experts placed; 0 where they cannot be."""
    if place is None:
        return 1.0
    stages = found.variants[int(found.layout[index])].arrangement.replicas[0]
    shape = Shape((), tuple(len(stage) for stage in stages))
    tok_s = float(found.tok_s[index] / found.replicas[index])
    tp, batch, step_s = int(found.tp[index]), float(found.batch[index]), float(found.step_s[index])
    made = place(Column(0, role, shape, 0, tok_s, tok_s, tp, batch, step_s, limit_s), stages)
    return 0.0 if made is None else made.tok_s / tok_s


def _longest_s(traffic: Traffic) -> float:
    """Longest step that decodes."""
    return (traffic.tpot_s or math.inf) * traffic.deployments[0][0].workload.tokens_per_step


def _alone(found: Sweep, traffic: Traffic, place: Place | None) -> Uniform | None:
    """The best layout that decodes."""
    index = best_at(found, 0.0 if traffic.tpot_s is None else (1 - _ALIKE) / traffic.tpot_s)
    if index is None:
        return None
    used = int(found.gpus[index] * found.replicas[index])
    tok_s = float(found.tok_s[index]) * _reached(found, index, DECODE, _longest_s(traffic), place)
    return Uniform(tok_s, used, found.label(index)) if tok_s else None


def _served(serving: Serving, row: RateMatch, traffic: Traffic, place: Place | None) -> Uniform:
    """What the pools of a match serve: the slower phase."""
    longest_s, ttft_s = _longest_s(traffic), traffic.ttft_s or math.inf
    rates, limits, words = [row.requests_per_s], [longest_s], ["for both phases"]
    if row.one_pool and serving.both is not None:
        limits = [min(longest_s, ttft_s - row.prefill_s + float(serving.both.step_s[row.decode]))]
    else:
        decoders, prefillers, *_ = pool_rates(traffic, serving.decode, serving.prefill)
        rates = [
            row.prefill_workers * float(prefillers[row.prefill]),
            row.decode_workers * float(decoders[row.decode]),
        ]
        limits, words = [ttft_s, longest_s], [PREFILL, DECODE]
    requests_per_s, labels = math.inf, []
    for (role, side, index, workers), rate, limit_s, word in zip(
        serving.sides(row), rates, limits, words, strict=True
    ):
        requests_per_s = min(requests_per_s, rate * _reached(side, index, role, limit_s, place))
        labels.append(f"{workers} x {side.worker_label(index)} {word}")
    return Uniform(requests_per_s * traffic.osl, row.gpus_used, ", ".join(labels))
