"""Attention of one layer: projections, scores over the cache of decoding sequences, scores inside prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.dtypes import bytes_per_param, cache_bytes_per_element
from cost.terms.work import Work

if TYPE_CHECKING:
    from cost.model import Attention
    from cost.rates import Rates
    from cost.shape import StepShape

__all__ = ["attention_works"]


def attention_works(
    attention: Attention, shape: StepShape, *, hidden: int, kv_dtype: str, weights: str, rates: Rates
) -> list[Work]:
    """Work of one GPU in one layer.

    Notes
    -----
    Projections: ``2 * matmul_params`` flop a token, weights / tp read once a step. Decode scores: the attention's
    own flop over the cache, and the cache of the group's sequences over the parts that tensor parallelism cuts it
    into (1 for MLA: every rank reads all of it). Scores are multiplied in the cache's own format where the chip can,
    as FlashMLA and TensorRT-LLM do with FP8 caches, else in BF16.
    Prompt scores: flop alone, since keys and values were just computed.
    """
    fraction, wider = rates.fractions("gemm", weights)
    stored = (attention.matmul_params + attention.other_params) * bytes_per_param(weights) / shape.tp
    works = [
        Work(
            "attention",
            fraction,
            "hbm.weights",
            2 * attention.matmul_params * shape.tokens / rates.flop_per_s[weights],
            stored / rates.hbm_bytes_per_s,
            columns=hidden / shape.tp,
            wider=wider,
        )
    ]
    flop_per_s = max(rates.flop_per_s.get(kv_dtype, 0.0), rates.flop_per_s["bf16"])
    if shape.decodes:
        read = attention.read_bytes(shape.context, cache_bytes_per_element(kv_dtype))
        cache = shape.sequences * shape.tp * read / attention.kv_shards(shape.tp)
        flop = shape.sequences * shape.queries * attention.decode_flop(shape.context)
        works.append(
            Work(
                "attention", "attention.decode", "hbm.cache", flop / flop_per_s, cache / rates.hbm_bytes_per_s
            )
        )
    if shape.prefills:
        flop = shape.prompt_tokens * attention.prefill_flop(shape.prompt_length)
        flop_per_s = rates.flop_per_s["bf16"]
        works.append(Work("attention", "attention.prefill", "hbm.cache", flop / flop_per_s, 0.0 * flop))
    return works
