"""Context parallelism: what GPUs that share the tokens of a sequence send each other in one layer."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cost.dtypes import cache_bytes_per_element
from cost.inputs.machine import Rates
from cost.inputs.workload import StepShape
from cost.model import Attention, ByToken
from cost.quantity import Quantity, positive
from cost.terms.all_reduce import collective
from cost.terms.pipeline import ACTIVATION_BYTES
from cost.terms.work import AllReduce, LayerStep, Parts, Term, Work, weight_work

DECODE_CALLS = 3.0
"""All-gather of queries, all-gather of log-sum-exps, reduce-scatter of outputs (vLLM, ``cp_lse_ag_out_rs``; SGLang
packs the last two in one all-to-all)."""
LSE_BYTES = 4.0


def gathered(
    sent: Quantity, ranks: Quantity, shape: StepShape, rates: Rates, *, calls: Quantity, layers: Quantity
) -> AllReduce:
    """Return all-gathers, or reduce-scatters, of ``sent`` bytes of each of ``ranks`` GPUs.

    Each receives what the others have, from other domains over the scale-out fabric: its own part of each, then all
    of them from its neighbours. Calls cost what those of all-reduces do, of which they are the halves.
    """
    count = np.asarray(ranks, dtype=np.float64)
    inside = np.minimum(count, shape.domain_gpus)
    domains = count / inside
    return collective(
        (inside - 1) * domains * sent,
        (domains - 1) * np.asarray(sent),
        domains,
        calls=np.where(count > 1, calls, 0.0),
        rates=rates,
        layers=layers,
        term=CONTEXT.name,
    )


def decode_bytes(heads: int, cache: ByToken, shape: StepShape) -> Quantity:
    """Bytes that each GPU of a decode group sends of the group's tokens in one layer.

    The queries of its own heads, ``n_h / tp``, and their outputs in BF16; one FP32 log-sum-exp for each of the
    ``dcp n_h / tp`` heads that it attends with (Helix parallelism, arXiv:2507.07120, section 2.1; vLLM and SGLang, as
    above).
    """
    tokens = shape.sequences * shape.tp * shape.queries
    head = (cache.query + cache.output) * ACTIVATION_BYTES + shape.dcp * LSE_BYTES
    return tokens * heads / shape.tp * head


def prompt_bytes(attention: Attention, kv_dtype: str, shape: StepShape) -> tuple[Quantity, Quantity]:
    """Bytes that each GPU sends of prompts in one layer: over ``pcp`` ranks, and over ``dcp`` of them.

    Keys and values, or latents, of the rank's own new tokens in BF16, before they are cached (vLLM RFC 25749: an
    all-gather; SGLang's ``--attn-cp-size``); of prefixes that a striped cache holds the rank's part.
    """
    tokens = shape.prompt_tokens * shape.width
    one, two = (attention.cache_bytes(count, ACTIVATION_BYTES) for count in (1.0, 2.0))
    new = tokens * (two - one) / attention.kv_shards(shape.width)
    prompts = shape.prompt_tokens * shape.tp / np.maximum(shape.prompt_length - shape.prompt_cached, 1.0)
    held = attention.cache_bytes(shape.prompt_cached, cache_bytes_per_element(kv_dtype))
    return new, prompts * attention.cache_share(held, shape.prompt_cached, shape.tp, shape.dcp)


def _add(parts: Parts, at: LayerStep) -> None:
    attention, shape, rates = at.layer.attention, at.shape, at.machine.rates
    cache, striped = attention.by_token, np.any(np.asarray(shape.dcp) > 1)
    if striped and cache is not None and shape.decodes:
        calls = np.where(np.asarray(shape.sequences) > 0, DECODE_CALLS, 0.0)
        sent = decode_bytes(attention.heads, cache, shape)
        parts.reduces.append(gathered(sent, shape.dcp, shape, rates, calls=calls, layers=at.count))
    if not shape.prefills:
        return
    new, prefix = prompt_bytes(attention, at.machine.kv_dtype, shape)
    if striped and cache is not None and positive(shape.prompt_cached):
        parts.reduces.append(gathered(prefix, shape.dcp, shape, rates, calls=1.0, layers=at.count))
    if np.any(np.asarray(shape.pcp) > 1):
        parts.reduces.append(gathered(new, shape.pcp, shape, rates, calls=1.0, layers=at.count))
        if attention.kind == "mla":
            parts.works.append(_rebuilt(attention, at))


def _rebuilt(attention: Attention, at: LayerStep) -> Work:
    """Keys and values that a rank rebuilds from the latents of the other ranks' tokens, for its own heads."""
    shape, weights = at.shape, at.model.precision["attention"]
    prompts = shape.prompt_tokens / (shape.prompt_length - shape.prompt_cached)
    again = 2 * attention.modules["kv_b"] * prompts * shape.prompt_length * (shape.pcp - 1)
    read, columns, rates = 0.0 * again, math.inf, at.machine.rates
    work = weight_work(
        "attention",
        "gemm",
        "hbm.weights",
        flop=again,
        read=read,
        columns=columns,
        weights=weights,
        rates=rates,
    )
    return replace(work, layers=at.count)


CONTEXT = Term(
    "context",
    "#332288",
    behind=("links.all_reduce", "delay.all_reduce"),
    meaning="GPUs that share the tokens of a sequence exchange queries, partial outputs, keys and values",
    formula="layers x (bytes of the other ranks / reached rate + calls x (delay + latency))",
    sends=True,
    of_layer=_add,
)
"""Keys, values and queries of sequences whose tokens lie on several GPUs."""
