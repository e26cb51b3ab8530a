"""Attention of one layer: projections, scores over the cache of decoding sequences, scores inside prompts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cost.dtypes import bytes_per_param, cache_bytes_per_element
from cost.inputs.machine import Rates, Unit
from cost.inputs.workload import StepShape
from cost.model import Attention
from cost.quantity import Quantity, positive
from cost.terms.work import LayerStep, Parts, Term, Work, weight_work


def _uneven(shape: StepShape) -> Quantity:
    """By what part the rank with the most to do exceeds the mean, requests assigned at random.

    Of ``N`` ranks with ``B`` requests each on average the largest is about ``sqrt(2 ln N / B)`` above the mean: the
    maximum of ``N`` Poisson counts, normal approximation; no rank has more than all requests.
    """
    ranks = np.maximum(shape.attention_dp, 1.0)
    requests = np.maximum(shape.sequences * shape.tp, 1.0)
    uneven: Quantity = shape.random * np.minimum(np.sqrt(2 * np.log(ranks) / requests), ranks - 1)
    return uneven


def attention_works(
    attention: Attention, shape: StepShape, *, hidden: int, kv_dtype: str, weights: str, rates: Rates
) -> list[Work]:
    """Work of one GPU in one layer.

    Notes
    -----
    Projections: ``2 * matmul_params`` flop a token, weights / width read once a step. Decode scores: the attention's
    own flop over the cache, and the cache of the group's sequences over the parts that tensor parallelism cuts it
    into (1 for MLA: every rank reads all of it), and context parallelism that. Scores are multiplied in the cache's
    own format where the chip can, as FlashMLA and TensorRT-LLM do with FP8 caches, else in BF16.
    Prompt scores: flop alone, since keys and values were just computed. Where a cache holds the first ``c`` of the
    ``L`` tokens of a prompt, the rest attend to all before them: ``L f(L) - c f(c)`` flop a prompt, with ``f(n)``
    those of a token of a prompt of ``n``; the cache of the ``c`` is read once, and MLA rebuilds their keys and values
    from the latents (``2 * kv_b`` flop each), as engines that prefill in chunks do.
    """
    stored = (attention.matmul_params + attention.other_params) * bytes_per_param(weights) / shape.width
    works = [
        weight_work(
            "attention",
            "gemm",
            "hbm.weights",
            flop=2 * attention.matmul_params * shape.tokens,
            read=stored,
            columns=hidden / shape.width,
            weights=weights,
            rates=rates,
        )
    ]
    if shape.decodes:
        works.append(_decode_scores(attention, shape, kv_dtype, rates))
    if shape.prefills:
        works.append(_prompt_scores(attention, shape, kv_dtype, rates))
    return works


def _decode_scores(attention: Attention, shape: StepShape, kv_dtype: str, rates: Rates) -> Work:
    eight = rates.unit.get(kv_dtype) == "fp8"
    flop_per_s = rates.flop_per_s[kv_dtype if eight else "bf16"]
    read = attention.read_bytes(shape.context, cache_bytes_per_element(kv_dtype))
    cache = shape.sequences * shape.tp * attention.cache_share(read, shape.context, shape.tp, shape.dcp)
    flop = shape.sequences * shape.queries * attention.decode_flop(shape.context)
    wide = "attention.decode.bf16"
    unit = Unit(wide)
    if eight:
        unit = Unit("attention.decode.fp8", ((wide, rates.flop_per_s["bf16"] / flop_per_s),))
    return Work(
        "attention",
        (unit,),
        "hbm.cache",
        flop / flop_per_s,
        cache / rates.hbm_bytes_per_s,
        uneven=_uneven(shape),
    )


def _prompt_scores(attention: Attention, shape: StepShape, kv_dtype: str, rates: Rates) -> Work:
    flop = shape.prompt_tokens * attention.prefill_flop(shape.prompt_length)
    cache = 0.0 * flop
    if positive(shape.prompt_cached):
        length, cached = shape.prompt_length, shape.prompt_cached
        prompts = shape.prompt_tokens / (length - cached)
        new_flop = length * attention.prefill_flop(length) - cached * attention.prefill_flop(cached)
        rebuilt = attention.modules["kv_b"] if attention.kind == "mla" else 0
        flop = prompts * (new_flop + 2 * rebuilt * cached)
        held = attention.cache_bytes(cached, cache_bytes_per_element(kv_dtype))
        cache = prompts * shape.tp * held / attention.kv_shards(shape.width)
    seconds = flop / rates.flop_per_s["bf16"], cache / rates.hbm_bytes_per_s
    return Work("attention", (Unit("attention.prefill"),), "hbm.cache", *seconds)


def _add(parts: Parts, at: LayerStep) -> None:
    works = attention_works(
        at.layer.attention,
        at.shape,
        hidden=at.model.hidden,
        kv_dtype=at.machine.kv_dtype,
        weights=at.model.precision["attention"],
        rates=at.machine.rates,
    )
    parts.works += [replace(work, layers=at.count) for work in works]


ATTENTION = Term(
    "attention",
    "#0072b2",
    behind=("attention", "gemm", "hbm"),
    formula="layers x (projections + scores over the cached context), each hypot(flop / flop/s, bytes / HBM rate)",
    of_layer=_add,
)
RANKS = Term(
    "rank_imbalance",
    "#7e57c2",
    behind=("ranks.uneven",),
    formula="ranks.uneven x spread of the requests' context x seconds of attention scores",
    meaning="attention ranks wait for the slowest one, since requests are assigned at random",
)
