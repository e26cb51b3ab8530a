"""Tensor-parallel all-reduce: the partial sums of attention and of the feed-forward part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cost.inputs.machine import Rates
from cost.inputs.workload import StepShape
from cost.model import Layer, MoeFfn
from cost.quantity import Quantity
from cost.terms.pipeline import ACTIVATION_BYTES
from cost.terms.work import AllReduce, LayerStep, Parts, Term

_ROUNDING = 1e-9


def all_reduce_part(
    hidden: int, shape: StepShape, *, times: Quantity, rates: Rates, layers: Quantity
) -> AllReduce:
    """``times`` all-reduces a layer of the hidden vectors of ``tp * tokens`` tokens over ``tp`` GPUs.

    Notes
    -----
    A reduce-scatter and an all-gather, each ``(n - 1) / n`` of the vectors through every GPU's links (jax-ml
    scaling book, "Sharded Matrices and How to Multiply Them"). A group over ``d`` domains reduces inside each
    first; then each of its ``tp / d`` GPUs sends its part of the vectors over the scale-out fabric, in as many rounds
    as a tree over the domains is deep, ``ceil(log2(d))``: each costs the fabric's latency and the delay of crossing
    it. So latency grows in the tuning model of NCCL too (src/graph/tuning.cc: ``log2i(nNodes) * interLat``), and
    where the scale-out link is no faster than the scale-up one, crossing more domains is never faster: neither at
    equal ``tp``, nor for equal vectors as ``tp`` grows over domains of one size.
    """
    tp = np.asarray(shape.width, dtype=np.float64)
    vectors = tp * shape.tokens * hidden * ACTIVATION_BYTES
    inside = np.minimum(tp, shape.domain_gpus)
    domains = tp / inside
    calls = np.where(tp > 1, times, 0.0)
    up_bytes = calls * 2 * (inside - 1) / inside * vectors
    out_bytes = calls * 2 * (domains - 1) / domains * vectors / inside
    return collective(up_bytes, out_bytes, domains, calls=calls, rates=rates, layers=layers)


def collective(
    up_bytes: NDArray[np.float64],
    out_bytes: NDArray[np.float64],
    domains: NDArray[np.float64],
    *,
    calls: Quantity,
    rates: Rates,
    layers: Quantity,
    term: str = "all_reduce",
) -> AllReduce:
    """Return ``calls`` collectives a layer of so many bytes of each GPU in all, in ``ceil(log2(d))`` rounds."""
    out_s = np.zeros_like(out_bytes)
    if np.any(out_bytes > 0):
        rates.require_scale_out()
        out_s = out_bytes / rates.out_bytes_per_s
    rounds = np.maximum(0.0, np.ceil(np.log2(domains) - _ROUNDING))
    latency_s = rates.up_latency_s + np.where(out_bytes > 0, rounds * rates.out_latency_s, 0.0)
    up_s = up_bytes / rates.up_bytes_per_s
    return AllReduce(up_s, out_s, calls, latency_s, layers, calls * rounds, term)


def all_reduces(layer: Layer, shape: StepShape) -> Quantity:
    """All-reduces of one layer: after attention, and after a feed-forward part that tensor parallelism cuts, if any.

    Experts of several attention groups return their sums by the combine; of one group, by the all-reduce.
    """
    if not isinstance(layer.ffn, MoeFfn) or layer.ffn.shared_params:
        return float(layer.parts)
    return layer.parts - (np.asarray(shape.token_groups) > 1).astype(float)


def _add(parts: Parts, at: LayerStep) -> None:
    if np.any(np.asarray(at.shape.width) > 1):
        times, rates = all_reduces(at.layer, at.shape), at.machine.rates
        reduce = all_reduce_part(at.model.hidden, at.shape, times=times, rates=rates, layers=at.count)
        parts.reduces.append(reduce)


ALL_REDUCE = Term(
    "all_reduce",
    "#009e73",
    behind=("links.all_reduce", "delay.all_reduce"),
    formula="layers x calls x (2 (n - 1) / n x bytes / reached rate + delay + latency)",
    sends=True,
    of_layer=_add,
)
