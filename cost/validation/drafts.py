"""Tokens that an engine drafts in a step where a measured row says that it drafts, but not how many."""

from __future__ import annotations

from dataclasses import replace

from cost.validation.point import Point


def with_unstated_drafts(point: Point) -> Point:
    """Return a point that drafts, its number not stated, with the number that engines run at its load."""
    groups = max(1, point.pool.workers * point.pool.attention_dp)
    requests = point.concurrency or point.batch * point.pool.gpus
    drafts = unstated_drafts(
        point.engine,
        point.model,
        each=requests / groups,
        data_parallel=point.pool.attention_dp > 1,
        disaggregated=point.prefill_pool is not None,
    )
    accepted = min(point.accept_length, 1.0 + drafts)
    return replace(point, draft_tokens=drafts, accept_length=accepted)


def unstated_drafts(
    engine: str, model: str, *, each: float, data_parallel: bool, disaggregated: bool = False
) -> int:
    """Tokens drafted a step where a row says "MTP" without a number.

    Parameters
    ----------
    each:
        Requests per attention group.

    Notes
    -----
    InferenceX's own scripts: on one engine TensorRT-LLM drafts 3 with tensor-parallel and 1 with data-parallel
    attention (``dsr1_*_trt_mtp.sh``), SGLang 2 for DeepSeek-R1 (``dsr1_*_mtp.sh``) and 3 for Qwen3.5, GLM-5 and
    DeepSeek-V4 (``speculative-num-steps``). Of its recipes for two pools that say the number, those of TensorRT-LLM
    with data-parallel attention draft 3 at up to about 25 requests a rank, 2 at up to 60, 1 above (medians 17, 35,
    211). Where nobody says which engine, TensorRT-LLM's.
    """
    if engine in ("sglang", "vllm"):
        return 2 if model == "deepseek-r1" or engine == "vllm" else 3
    if not data_parallel:
        return 3
    if not disaggregated:
        return 1
    return 3 if each <= 25 else 2 if each <= 60 else 1
