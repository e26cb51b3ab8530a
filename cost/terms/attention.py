"""Attention of one layer in a decode step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.dtypes import bytes_per_param, cache_bytes_per_element
from cost.terms.work import Work

if TYPE_CHECKING:
    from cost.model import Attention
    from cost.rates import Rates

__all__ = ["attention_work"]


def attention_work(
    attention: Attention, *, tokens: float, tp: int, context: float, kv_dtype: str, weights: str, rates: Rates
) -> Work:
    """Work of one GPU: projections, scores over the cache, and reading weights and cache.

    Parameters
    ----------
    tokens:
        Tokens per GPU of this step; a tensor-parallel group of ``tp`` GPUs serves ``tp * tokens`` sequences.

    Notes
    -----
    flop = tokens * (2 * projections + flop over the cache); bytes = weights / tp + the cache of the group's
    sequences over the parts that tensor parallelism cuts it into (1 for MLA: every rank reads all of it).
    Scores are multiplied in BF16 whatever the cache's format.
    """
    projections_s = 2 * attention.matmul_params * tokens / rates.flop_per_s[weights]
    scores_s = attention.decode_flop(context) * tokens / rates.flop_per_s["bf16"]
    stored = (attention.matmul_params + attention.other_params) * bytes_per_param(weights) / tp
    cache = (
        tokens
        * tp
        * attention.read_bytes(context, cache_bytes_per_element(kv_dtype))
        / attention.kv_shards(tp)
    )
    return Work(projections_s + scores_s, (stored + cache) / rates.hbm_bytes_per_s)
