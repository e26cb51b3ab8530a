"""What is asked of the model: the phase, the length of the sequences and how many at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cost.attention.spans import LONGEST_CONTEXT
from cost.attention.sparse import most_tokens_read
from cost.serving import CHUNK_TOKENS
from topology.errors import InputError

PHASES = ("decode", "prefill")


@dataclass(frozen=True)
class Workload:
    """One phase of serving.

    Attributes
    ----------
    context:
        Decode: tokens already in each sequence (its KV cache) at the step costed. Prefill: tokens of a prompt.
    batch:
        Decode: concurrent sequences per GPU in use; 0: the largest that fits. Prefill: prompts per GPU in a step;
        0: those of :data:`cost.serving.CHUNK_TOKENS` tokens, at least one.
    kv_dtype:
        Format of the KV cache (:mod:`cost.dtypes`).
    draft_tokens, accept_length:
        Multi-token prediction: tokens drafted a step, and tokens that a step yields on average, the first included.
    overlap:
        Two half batches take turns at computing and sending.
    sparse_attention:
        A what-if: attention reads the cache of at most so many tokens (``"2048"``), or of the square root of the
        context (``"sqrt"``); see :mod:`cost.attention.sparse`. Empty: as the model does.
    prefix_hit:
        Prefill: part of each prompt's tokens that a cache already holds, 0 to below 1. They are not prefilled.
    """

    context: int = 4096
    batch: int = 0
    kv_dtype: str = "bf16"
    phase: str = "decode"
    draft_tokens: int = 0
    accept_length: float = 1.0
    overlap: bool = False
    sparse_attention: str = ""
    prefix_hit: float = 0.0

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise InputError(f"--phase {self.phase}: choose {' or '.join(PHASES)}.")
        for name, value, least, most in (
            ("--context", self.context, 1, LONGEST_CONTEXT),
            ("--batch", self.batch, 0, 10**9),
            ("--draft-tokens", self.draft_tokens, 0, 64),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise InputError(f"{name} {value}: expected a whole number from {least} to {most}.")
        most_accepted = 1 + self.draft_tokens
        if not (math.isfinite(self.accept_length) and 1 <= self.accept_length <= most_accepted):
            raise InputError(
                f"--accept-length {self.accept_length}: with {self.draft_tokens} draft tokens a step yields 1 to "
                f"{most_accepted} tokens."
            )
        if self.draft_tokens and not self.decodes:
            raise InputError("--draft-tokens: only decode drafts tokens; leave it out with --phase prefill.")
        if self.sparse_attention:
            most_tokens_read(self.sparse_attention)
        if not (math.isfinite(self.prefix_hit) and 0 <= self.prefix_hit < 1):
            raise InputError(
                f"--prefix-hit {self.prefix_hit:g}: expected a part of the prompt, 0 to below 1."
            )
        if self.prefix_hit and self.decodes:
            raise InputError("--prefix-hit: only prefill finds tokens in a cache; leave it out of decode.")

    @property
    def decodes(self) -> bool:
        """Whether the phase is decode."""
        return self.phase == "decode"

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
        return min(self.prefix_hit * self.context, self.context - 1.0)

    @property
    def tokens_per_step(self) -> float:
        """Tokens of one sequence that a step gains: output tokens, or those of its prompt, cached ones too."""
        return self.accept_length if self.decodes else float(self.context)

    def wanted_batch(self, most: int) -> int:
        """Return the batch to use where ``most`` sequences per GPU fit: the one asked for, or the phase's own."""
        if self.batch:
            return self.batch
        return most if self.decodes else min(most, max(1, int(CHUNK_TOKENS // self.tokens_per_pass)))

    def with_batch(self, batch: int) -> Workload:
        """Return the same workload at another batch."""
        return replace(self, batch=batch)
