"""One measured figure with the configuration it was measured on: the form that every data set is read into."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pool:
    """GPUs that do one job: ``workers`` independent engines with the same parallel layout.

    Attributes
    ----------
    tp, attention_dp:
        Width of tensor parallelism in attention, and groups of that width that attend to their own sequences.
    ep, moe_tp:
        GPUs that a layer's experts are spread over, and into how many parts each expert is cut.
    stages:
        Pipeline stages.
    slots:
        Expert copies per layer over the whole EP group; 0: one of each expert.

    best:
        Whether the widths (and workers) that are 0 are for the model to choose (:mod:`cost.validation.choices`).

    All four widths are 0 where a row gives no layout (:data:`NO_LAYOUT`).
    """

    tp: int = 1
    attention_dp: int = 1
    ep: int = 1
    moe_tp: int = 1
    stages: int = 1
    workers: int = 1
    slots: int = 0
    best: bool = False

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of one engine."""
        return self.tp * self.attention_dp * self.stages

    @property
    def gpus(self) -> int:
        """GPUs of all engines of the pool."""
        return self.workers * self.gpus_per_worker


NO_LAYOUT = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0)
"""The pool of a row that does not say how its GPUs work together: nothing can be predicted for it."""


@dataclass(frozen=True)
class AllToAll:
    """One dispatch or combine of one MoE layer.

    Attributes
    ----------
    kernel:
        Kernel family or implementation, in any spelling that :func:`cost.calibration.alltoall.find_kernel` knows.
    tokens:
        Tokens per GPU.
    hidden, experts, top_k:
        Shape of the layer; ``groups`` of which a token may use ``topk_groups`` (0, 0: no such limit).
    dispatch_dtype, combine_dtype:
        Format of the vectors on the way there and back.
    """

    kernel: str
    tokens: float
    hidden: int
    experts: int
    top_k: int
    dispatch_dtype: str
    combine_dtype: str
    groups: int = 0
    topk_groups: int = 0


@dataclass(frozen=True)
class Point:
    """One measured figure.

    Attributes
    ----------
    id, source:
        Name of the row, and where it was published.
    quantity, measured:
        ``tpot_ms``, ``ttft_ms``, ``tok_s_per_gpu``, ``step_ms``, ``dispatch_us`` or ``combine_us``, and the figure
        in that unit.
    phase:
        ``decode`` or ``prefill`` (one pool, that phase alone), ``aggregated`` (one pool serves both phases of each
        request), ``disaggregated`` (``pool`` decodes, ``prefill_pool`` prefills), ``alltoall``.
    model:
        Catalog name; empty for ``alltoall``.
    cluster:
        Catalog name of the cluster (``hgx-h100``, ``gb200-nvl72``), without a count of GPUs.
    gpus:
        GPUs that a figure per GPU is divided by; 0: those of the pools. ``prefill_gpus``: those of the prefill pool,
        where its layout is for the model to choose.
    weights, experts_dtype, kv_dtype:
        Formats; empty: the checkpoint's own (weights), the weights' (experts), BF16 (cache).
    batch:
        Decode: sequences per GPU of the pool (0: not stated, see ``concurrency``; infinite: the largest that fits).
    tpot_limit_ms:
        Time per output token that nothing the model chooses may exceed; 0: none.
    concurrency:
        Requests in the system (serving), 0: not stated.
    in_step:
        Whether all requests have the same lengths, so that prompts come together between answers.
    tokens:
        Prefill: prompt tokens per GPU in one step; 0: not stated.
    isl, osl:
        Tokens of prompt and answer of a request; ``context`` is the mean context of a decode step, 0: isl + osl/2.
    cache_hit:
        Fraction of prompt tokens that were found in a cache; a figure that counts them says so in ``token_kind``.
    overlap:
        Whether two half batches overlap computing and sending.
    draft_tokens, accept_length:
        Tokens drafted a step (0: no multi-token prediction), tokens a step yields on average (1 without drafts; 0: as
        calibrated).
    drafts_recorded:
        False where a model that can draft may have done so and the row does not say.
    imbalance:
        Busiest GPU's expert load over the mean; 0: not stated.
    kernel:
        All-to-all kernel family of the decode or prefill pool; empty: the phase's default on that fabric.
    token_kind:
        ``output``, ``input`` or ``total``: what a throughput counts; ``input_cached``: input, cached tokens too.
    gpus_per_domain:
        GPUs of one scale-up domain where the row's differs from the cluster's; 0: as the cluster.
    up_bytes_per_s, out_bytes_per_s:
        Bytes/s per GPU and direction of the scale-up and the scale-out fabric where the row's differ from the
        cluster's; 0: as the cluster.
    engine, engine_version:
        ``trtllm``, ``sglang``, ``vllm``..., or empty.
    pair:
        Rows of one A/B comparison share a name.
    """

    id: str
    source: str
    quantity: str
    measured: float
    phase: str
    cluster: str
    model: str = ""
    gpus: int = 0
    prefill_gpus: int = 0
    pool: Pool = field(default_factory=Pool)
    prefill_pool: Pool | None = None
    weights: str = ""
    experts_dtype: str = ""
    kv_dtype: str = ""
    batch: float = 0.0
    tpot_limit_ms: float = 0.0
    concurrency: int = 0
    in_step: bool = False
    tokens: float = 0.0
    isl: int = 0
    osl: int = 0
    context: float = 0.0
    cache_hit: float = 0.0
    overlap: bool = False
    draft_tokens: int = 0
    drafts_recorded: bool = True
    accept_length: float = 1.0
    imbalance: float = 0.0
    kernel: str = ""
    token_kind: str = "output"  # noqa: S105 - tokens of text
    gpus_per_domain: int = 0
    up_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    engine: str = ""
    engine_version: str = ""
    pair: str = ""
    notes: str = ""
    alltoall: AllToAll | None = None

    @property
    def is_open(self) -> bool:
        """Whether the row leaves its layout or its batch to the model."""
        return self.batch == math.inf or self.pool.best or bool(self.prefill_pool and self.prefill_pool.best)

    @property
    def stated_prefill(self) -> Pool | None:
        """The pool that prefills, where the row says how its GPUs work together."""
        return self.prefill_pool if self.prefill_pool and self.prefill_pool.tp else None


@dataclass(frozen=True)
class Prediction:
    """What the model says about a point: a value in the point's unit, or the reason why there is none.

    Attributes
    ----------
    low, high:
        Interval of the measured value where the model has one (time to first token), also where it gives no value.
    chosen:
        What the model chose where the row left its layout or its batch to it.
    """

    value: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    chosen: str = ""
