"""The workload of the model: a serving phase, and the content of one step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from cost.attention.sparse import most_tokens_read
from cost.quantity import MAX_CONTEXT_TOKENS, Quantity, positive
from topology.base.errors import InputError, input_name

PHASES = ("decode", "prefill", "both")
CHUNK_TOKENS = 8192.0
"""Prompt tokens of one engine step: the default of TensorRT-LLM (``max_num_tokens``) and of vLLM's and SGLang's
chunked prefill on these chips."""
MIN_CHUNK = 32.0
NO_CHUNK = -1.0
"""A step of one pool in which no prompt is prefilled."""
GRAPHS = np.array([1, 2, 4, *range(8, 257, 8), 384, 512, 1024, 2048], dtype=np.float64)
"""Sequences of an attention group that CUDA graphs are captured for (TensorRT-LLM, ``cuda_graph_config``)."""
EXPERT_IMBALANCE = {"decode": 1.25, "prefill": 1.35}
"""Busiest expert GPU over the mean where a row does not say: production decode with EPLB, default prefill
(fits to DeepSeek's and SGLang's published throughput)."""
SKEW = 1.4
"""Unequal use of experts within a step (standard deviation of the logarithms): DeepSeek-V3's over whole workloads is
0.63, tokens of one batch are more alike. Of 0, 0.63, 1, 1.4 and 1.8 the served rows are fitted best by 1.4."""
IMBALANCE_FROM_EP = 16
"""Smaller groups hold so many experts a GPU that their loads even out; nothing is added for them."""


@dataclass(frozen=True)
class Workload:
    """One phase of serving.

    Attributes
    ----------
    context:
        Decode: tokens already in each sequence (its KV cache) at the step costed. Prefill: tokens of a prompt.
    batch:
        Decode: concurrent sequences per GPU in use; 0: the largest that fits. Prefill: prompts per GPU in a step;
        0: for each attention group those of :data:`cost.inputs.workload.CHUNK_TOKENS` tokens, at least one. A
        tensor-parallel group of 8 with one sequence has 0.125 of it per GPU.
    kv_dtype:
        Format of the KV cache (:mod:`cost.dtypes`).
    phase:
        One of :data:`PHASES`; ``both``: one pool decodes and prefills the prompts of the next requests in between.
    draft_tokens, accept_length:
        Multi-token prediction: tokens drafted a step, and tokens that a step yields on average, the first included.
    overlap:
        Two half batches take turns at computing and sending.
    quota_slots:
        Slots of each GPU that are filled with copies of hot experts for each micro-batch, layer after layer
        (:mod:`cost.experts.quota`); 0: there are none.
    sparse_attention:
        A what-if: attention reads the cache of at most so many tokens (``"2048"``), or of the square root of the
        context (``"sqrt"``); see :mod:`cost.attention.sparse`. Empty: as the model does.
    prefix_hit:
        Part of each prompt's tokens that a cache already holds, 0 to below 1. They are not prefilled.
    prompt, answer, prompt_share:
        Both phases: mean tokens of a prompt and of its answer; 1: a step bears all prompts, 0: those that come
        between two tokens of a request.
    prompt_chunk:
        Both phases: prompt tokens of each attention group in a step, all of which count; 0: as engines fill steps,
        :data:`NO_CHUNK`: none.
    held, states:
        Tokens that each sequence takes of the KV cache by how the engine admits requests, and copies of its state; 0:
        its ``context``, one of the whole room (:class:`cost.queueing.schedulers.Scheduler`).
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    context: int = 4096
    batch: float = 0
    kv_dtype: str = "bf16"
    phase: str = "decode"
    draft_tokens: int = 0
    accept_length: float = 1.0
    overlap: bool = False
    sparse_attention: str = ""
    prefix_hit: float = 0.0
    prompt: float = 0.0
    answer: float = 0.0
    prompt_share: float = 0.0
    prompt_chunk: float = 0.0
    held: float = 0.0
    states: float = 0.0
    quota_slots: int = 0

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise InputError(f"choose {' or '.join(PHASES[:2])}.", field="phase", value=self.phase)
        for name, value, least, limit in (
            ("context", self.context, 1, MAX_CONTEXT_TOKENS),
            ("draft_tokens", self.draft_tokens, 0, 64),
            ("quota_slots", self.quota_slots, 0, 64),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= limit:
                raise InputError(f"expected a whole number from {least} to {limit}.", field=name, value=value)
        if isinstance(self.batch, bool) or not 0 <= self.batch <= 10**9:
            raise InputError(
                "expected 0 (the largest) or more sequences per GPU, parts of one too.",
                field="batch",
                value=self.batch,
            )
        if self.batch == round(self.batch):  # so that it is written as people write it
            object.__setattr__(self, "batch", round(self.batch))
        if self.phase == "both" and not (self.prompt >= 1 and self.answer >= 1):
            raise InputError("both phases need prompt and answer lengths.", field="phase")
        most_accepted = 1 + self.draft_tokens
        if not (math.isfinite(self.accept_length) and 1 <= self.accept_length <= most_accepted):
            raise InputError(
                f"with {self.draft_tokens} draft tokens, a step yields 1 to {most_accepted} tokens.",
                field="accept_length",
                value=self.accept_length,
            )
        if self.draft_tokens and not self.decodes:
            raise InputError(
                f"draft tokens apply only to decode; leave them out with {input_name('phase')} prefill.",
                field="draft_tokens",
            )
        if self.sparse_attention:
            most_tokens_read(self.sparse_attention)
        if not (math.isfinite(self.prefix_hit) and 0 <= self.prefix_hit < 1):
            raise InputError(
                "expected a fraction of the prompt, 0 to below 1.",
                field="prefix_hit",
                value=f"{self.prefix_hit:g}",
            )
        if self.prefix_hit and self.phase == "decode":
            raise InputError(
                "the prefix cache applies only to prefill; leave it out for decode.", field="prefix_hit"
            )

    @property
    def decodes(self) -> bool:
        """Whether sequences decode."""
        return self.phase != "prefill"

    @property
    def step_phase(self) -> str:
        """Of which phase kernels and the use of experts are: a step that decodes is one, prompts in it or not."""
        return "decode" if self.decodes else "prefill"

    @property
    def what_if(self) -> str:
        """The hypothetical that is supposed, as data names it; empty where there is none."""
        return f"sparse_attention {self.sparse_attention}" if self.sparse_attention else ""

    @property
    def token_word(self) -> str:
        """Which tokens throughput counts."""
        return "output" if self.decodes else "input"

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of one sequence that pass the layers in one step."""
        return 1.0 + self.draft_tokens if self.decodes else self.context - self.prompt_cached

    @property
    def prompt_cached(self) -> float:
        """Tokens of each prompt that a cache holds; the last token of a prompt is always prefilled."""
        prompt = self.prompt or self.context
        return min(self.prefix_hit * prompt, prompt - 1.0)

    @property
    def tokens_per_step(self) -> float:
        """Tokens of one sequence that a step gains: output tokens, or those of its prompt, cached ones too."""
        return self.accept_length if self.decodes else float(self.context)

    def prompts_at_once(self, chunk_tokens: float = CHUNK_TOKENS) -> int:
        """Prompts of a chunk, which an attention group prefills in one step: at least a whole one."""
        return max(1, int(chunk_tokens // self.tokens_per_pass))

    @property
    def cached(self) -> int:
        """Tokens that each sequence takes of the KV cache."""
        return round(self.held) or self.context

    @property
    def of_prompt(self) -> Workload:
        """The prefill of one of its prompts: of a decode workload one as long as its context."""
        return replace(
            self,
            phase="prefill",
            context=round(self.prompt) or self.context,
            batch=0,
            draft_tokens=0,
            accept_length=1.0,
        )

    def with_batch(self, batch: float) -> Workload:
        """Return the same workload at another batch."""
        return replace(self, batch=batch)


_BY_SEQUENCES = ("sequences", "prompt_tokens", "prompt_share", "others", "measured")
"""Attributes of a step that follow from its sequences."""
_WEIGHTS = np.random.default_rng(0).uniform(1.0, 2.0, 64)
"""Of attributes in the number that tells shapes apart: no two shapes of use are alike."""


@dataclass(frozen=True, eq=False)
class StepShape:
    """A step of one EP group; every attribute is a number or an array, and they broadcast together.

    Attributes
    ----------
    sequences:
        Sequences per GPU that decode in this step, and ``queries`` tokens of each (1, and 1 more for each draft).
    context:
        Tokens in the cache of each.
    prompt_tokens:
        Tokens per GPU of prompts that are prefilled in this step, and ``prompt_length`` tokens each prompt has.
    prompt_cached:
        Tokens of each prompt that a cache already holds: they are attended to, not prefilled.
    tp:
        Width of tensor parallelism in attention and dense parts.
    attention_dp:
        Groups of that width that attend to their own sequences; together they are the EP group.
    ep, moe_tp:
        GPUs that a layer's experts are spread over, and parts that each expert is cut into.
    dcp, pcp:
        GPUs of an attention group that the cache of each decoding sequence, and the tokens of each prompt, are split
        over (:class:`cost.inputs.layout.Layout`).
    slots:
        Expert copies per layer over the group; 0: one of each.
    imbalance:
        Busiest GPU's expert load over the mean.
    prompt_share:
        Steps with such a chunk of prompts in each group, over the steps that decode: prompts of all requests take
        ``prompt_share`` times what a chunk adds to a step.
    others:
        Part of these that are of other requests than one that decodes.
    waits:
        1 where only those count that come between two tokens of a request: its own, and those of others that it waits
        for before its first (``prompts.first``), do not. 0: all of them.
    at_random:
        1 where each attention group has its chunks when its requests come, 0 where all have one in the same step.
    steps:
        Decode steps of a request, where prompts are prefilled beside them.
    rounds:
        Requests of a user one after the other in a benchmark whose users start at once.
    skew:
        How unequally experts are used within a step: standard deviation of the logarithms, 0 where all alike.
    domain_gpus:
        GPUs of the group in one scale-up domain.
    stages:
        Equal pipeline stages, each with as many GPUs and the same part of the layers, that a micro-batch passes: the
        step is one pass of all of them, and as many micro-batches are under way.
    random:
        1 where requests are assigned to attention ranks at random, 0 where each has just as many.
    measured:
        What measured steps near this one took over the model's (:mod:`cost.calibration.correction`).
    """

    tp: Quantity = 1.0
    attention_dp: Quantity = 1.0
    ep: Quantity = 1.0
    moe_tp: Quantity = 1.0
    sequences: Quantity = 0.0
    context: Quantity = 0.0
    queries: Quantity = 1.0
    prompt_tokens: Quantity = 0.0
    prompt_length: Quantity = 1.0
    prompt_cached: Quantity = 0.0
    prompt_share: Quantity = 1.0
    others: Quantity = 1.0
    waits: Quantity = 0.0
    steps: Quantity = 0.0
    rounds: Quantity = math.inf
    at_random: Quantity = 0.0
    slots: Quantity = 0.0
    imbalance: Quantity = 1.0
    skew: Quantity = 0.0
    domain_gpus: Quantity = 1.0
    stages: Quantity = 1.0
    random: Quantity = 1.0
    measured: Quantity = 1.0
    dcp: Quantity = 1.0
    pcp: Quantity = 1.0

    @property
    def gpus(self) -> Quantity:
        """GPUs of the group."""
        return self.tp * self.attention_dp

    @property
    def width(self) -> Quantity:
        """GPUs that have the same tokens, and the weights of attention and dense parts once."""
        return self.tp / self.pcp

    @property
    def token_groups(self) -> Quantity:
        """Groups of GPUs that have tokens of their own."""
        return self.attention_dp * self.pcp

    @property
    def engine_gpus(self) -> Quantity:
        """GPUs of all stages."""
        return self.gpus * self.stages

    @property
    def tokens(self) -> Quantity:
        """Tokens per GPU of the step."""
        return self.sequences * self.queries + self.prompt_tokens

    def under(self, workload: Workload, sequences: Quantity) -> StepShape:
        """The same group where ``sequences`` of ``workload`` per GPU decode, or are prefilled.

        Both phases: while a request decodes, each in its engine is prefilled once, in chunks of what an engine's
        budget of tokens leaves beside those that decode (:meth:`with_prompts`).
        """
        context = float(workload.context)
        shape = replace(self, context=context, prompt_length=context, prompt_cached=workload.prompt_cached)
        if workload.decodes:
            shape = replace(shape, sequences=sequences, queries=workload.tokens_per_pass)
            if workload.phase == "decode" or workload.prompt_chunk == NO_CHUNK:
                return shape
            if workload.prompt_chunk:
                chunk = workload.prompt_chunk / self.tp
                return replace(shape, prompt_tokens=chunk, prompt_length=workload.prompt)
            steps = workload.answer / workload.accept_length
            shape = shape.with_prompts(workload.prompt, workload.prompt_cached, steps)
            return replace(shape, waits=0.0) if workload.prompt_share == 1 else shape
        return replace(shape, prompt_tokens=sequences * workload.tokens_per_pass)

    def with_prompts(self, prompt: Quantity, cached: Quantity, steps: Quantity) -> StepShape:
        """The same step with a chunk of prompts in every attention group.

        Parameters
        ----------
        prompt, cached:
            Tokens of a prompt, and those of them that a cache holds.
        steps:
            Decode steps of a request, in which each of its engine is prefilled once.

        Notes
        -----
        A chunk is what :data:`CHUNK_TOKENS` leaves beside tokens that decode, or all prompts of the group's sequences
        where these are fewer: those of a round arrive together.
        """
        new = np.maximum(prompt - np.asarray(cached), 1.0)
        sequences = np.asarray(self.sequences * self.tp)
        budget = np.maximum(CHUNK_TOKENS - sequences * self.queries, MIN_CHUNK)
        chunk = np.minimum(budget, new * np.maximum(sequences, 1.0))
        others = 1.0 - np.minimum(1.0, 1.0 / np.maximum(sequences * self.attention_dp * self.stages, 1e-9))
        return replace(
            self,
            prompt_tokens=chunk / self.tp,
            prompt_length=prompt,
            prompt_cached=cached,
            prompt_share=sequences * new / (chunk * steps),
            others=others,
            waits=1.0,
            steps=steps,
            at_random=1.0,
        )

    def at(self, sequences: Quantity) -> StepShape:
        """Return the same step with other sequences per GPU, and the chunks of prompts that go with them."""
        moved = replace(self, sequences=sequences)
        if not positive(np.asarray(self.steps)):
            return moved
        mixed = moved.with_prompts(self.prompt_length, self.prompt_cached, self.steps)
        return replace(mixed, waits=self.waits, at_random=self.at_random)

    def repeated(self, times: int) -> StepShape:
        """Return each of the configurations so many times, one after the other."""
        arrays = {
            name: np.repeat(value, times)
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray)
        }
        return replace(self, **arrays)

    @property
    def but_sequences(self) -> Quantity:
        """A number that is equal for shapes that differ in sequences alone."""
        names = [name for name in vars(self) if name not in _BY_SEQUENCES]
        parts = (np.nan_to_num(getattr(self, name), posinf=-1.0) for name in names)
        return sum((part * weight for part, weight in zip(parts, _WEIGHTS, strict=False)), start=np.zeros(1))

    @property
    def padded(self) -> StepShape:
        """The same where a step decodes at the next size of a CUDA graph; sequences that fill it have no cache."""
        sequences = np.asarray(self.sequences * self.tp, dtype=np.float64)
        size = GRAPHS[np.minimum(np.searchsorted(GRAPHS, np.ceil(sequences - 1e-9)), len(GRAPHS) - 1)]
        ratio = np.where(sequences > 0, np.maximum(size / np.maximum(sequences, 1e-9), 1.0), 1.0)
        return replace(self, sequences=self.sequences * ratio, context=self.context / ratio)

    @property
    def halved(self) -> StepShape:
        """One of two half batches."""
        return replace(self, sequences=self.sequences / 2, prompt_tokens=self.prompt_tokens / 2)

    def rows(self, which: NDArray[np.int64]) -> StepShape:
        """Some of the configurations, where attributes are arrays."""
        arrays = {name: value[which] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)

    @property
    def mixes(self) -> bool:
        """Whether prompts are prefilled in a step that decodes."""
        return self.decodes and self.prefills

    @property
    def decodes(self) -> bool:
        """Whether any sequence decodes."""
        return positive(self.sequences)

    @property
    def prefills(self) -> bool:
        """Whether any prompt is prefilled."""
        return positive(self.prompt_tokens)


def with_imbalance(shape: StepShape, phase: str) -> StepShape:
    """Return the shape with the usual imbalance of wide groups where none is stated (1 exactly is stated)."""
    stated = np.asarray(shape.imbalance) > 0
    usual = np.where(np.asarray(shape.ep) >= IMBALANCE_FROM_EP, EXPERT_IMBALANCE[phase], 1.0)
    return replace(shape, imbalance=np.where(stated, shape.imbalance, usual), skew=SKEW)
