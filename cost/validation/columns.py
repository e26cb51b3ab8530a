"""The columns of our format of measured points: one table that the reader, the writer and the page share."""

from __future__ import annotations

from topology.reading import nearest

COLUMNS = {
    "id": "name of the row",
    "source": "where it was published",
    "quantity": "what was measured, and so the unit of `measured`",
    "measured": "the figure",
    "phase": "decode, prefill, aggregated, disaggregated or alltoall",
    "model": "catalog name, Hugging Face name or path of a config.json",
    "cluster": "catalog name, chip, or path of a cluster YAML; NAME@GPUS sets `gpus` too",
    "gpus": "GPUs that a figure per GPU was divided by",
    "gpus_per_domain": "GPUs of one scale-up domain",
    "engine": "trtllm, sglang, vllm, ...",
    "engine_version": "its version",
    "weights": "format of the weights",
    "experts_dtype": "format of the routed experts",
    "kv_dtype": "format of the KV cache",
    "tp": "GPUs that share one attention layer",
    "ep": "GPUs that a layer's experts are spread over",
    "moe_tp": "parts that each expert is cut into",
    "attention_dp": "groups that attend to their own sequences",
    "stages": "pipeline stages",
    "slots": "expert copies per layer over the whole EP group",
    "workers": "independent engines with this layout",
    "prefill_tp": "as tp, of the prefill pool",
    "prefill_ep": "as ep, of the prefill pool",
    "prefill_moe_tp": "as moe_tp, of the prefill pool",
    "prefill_attention_dp": "as attention_dp, of the prefill pool",
    "prefill_stages": "as stages, of the prefill pool",
    "prefill_workers": "as workers, of the prefill pool",
    "prefill_gpus": "GPUs of the prefill pool, where its layout is `best`",
    "batch_per_gpu": "decode: sequences per GPU of the pool, or `largest`",
    "tpot_limit_ms": "slowest time per output token that `best` and `largest` may choose",
    "concurrency": "requests in the system",
    "tokens_per_gpu": "prefill and all-to-all: tokens per GPU in one step",
    "isl": "tokens of the prompt",
    "osl": "tokens of the answer",
    "context": "mean tokens in a sequence during the decode steps",
    "cache_hit": "fraction of the prompt tokens found in a cache",
    "overlap": "whether two half batches overlap",
    "draft_tokens": "tokens drafted a step",
    "accept_length": "tokens that a step yields on average",
    "imbalance": "busiest GPU's expert load over the mean",
    "kernel": "all-to-all kernel",
    "token_kind": "which tokens a throughput counts",
    "link_gb_s": "scale-up GB/s per GPU and direction",
    "nic_gb_s": "scale-out GB/s per GPU and direction",
    "pair": "name that the rows of one A/B comparison share",
    "hidden": "all-to-all: elements of a vector",
    "experts": "all-to-all: routed experts of the layer",
    "top_k": "all-to-all: experts per token",
    "groups": "all-to-all: groups of experts",
    "topk_groups": "all-to-all: groups that a token may use",
    "dispatch_dtype": "all-to-all: format on the way to the experts",
    "combine_dtype": "all-to-all: format on the way back",
    "notes": "anything a reader should know",
}
"""Every column, in the order in which files are written, with its meaning in a line."""

NEEDED = ("id", "quantity", "measured", "phase", "cluster")
"""Columns that a file must have; every other one may be left out."""

QUANTITY_NAMES = {
    "tpot_ms": "tpot_ms",
    "tpot": "tpot_ms",
    "itl_ms": "tpot_ms",
    "itl": "tpot_ms",
    "ttft_ms": "ttft_ms",
    "ttft": "ttft_ms",
    "tok_s_per_gpu": "tok_s_per_gpu",
    "tok/s/gpu": "tok_s_per_gpu",
    "tokens_per_s_per_gpu": "tok_s_per_gpu",
    "step_ms": "step_ms",
    "step": "step_ms",
    "dispatch_us": "dispatch_us",
    "dispatch": "dispatch_us",
    "combine_us": "combine_us",
    "combine": "combine_us",
}
PHASES = {
    "decode": "decode",
    "prefill": "prefill",
    "aggregated": "aggregated",
    "agg": "aggregated",
    "e2e_agg": "aggregated",
    "disaggregated": "disaggregated",
    "disagg": "disaggregated",
    "e2e_disagg": "disaggregated",
    "alltoall": "alltoall",
    "all_to_all": "alltoall",
    "a2a": "alltoall",
}
TOKEN_KINDS = {
    "output": "output",
    "out": "output",
    "generated": "output",
    "input": "input",
    "in": "input",
    "prompt": "input",
    "total": "total",
    "in+out": "total",
    "input+output": "total",
    "input_cached": "input_cached",
}


def column_of(name: str) -> str | None:
    """Return the column that a header cell names, whatever its case; None where there is none."""
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    return key if key in COLUMNS else None


def unknown_column(name: str) -> str:
    """What to say of a header cell that names no column."""
    return f"unknown column {name!r}; {nearest(name, COLUMNS)}"
