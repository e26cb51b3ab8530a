"""Attention over compressed keys and values: MLA, with DeepSeek's index (DSA), and DeepSeek-V4's entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cost.model import ByToken, Projected
from cost.quantity import Quantity, mean_prompt_span, span

# The index keeps its keys in FP8 with one FP32 scale per 128 elements, whatever the KV cache dtype
# (DeepSeek-V3.2 technical report, section 2; vLLM's and SGLang's indexer caches hold 128 + 4 bytes a token).
INDEX_SCALE_BYTES = 4
_INDEX_BLOCK = 128
_BF16_BYTES = 2


def _scaled_bytes(dim: int) -> float:
    """Bytes of ``dim`` elements in FP8 with their scales."""
    return dim + INDEX_SCALE_BYTES * dim / _INDEX_BLOCK


@dataclass(frozen=True)
class Latent(Projected):
    """Keys and values rebuilt from one latent a token (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Attributes
    ----------
    q_rank:
        Rank of the query's own latent; None where queries are projected directly.
    kv_rank, rope:
        Width of the latent and of the shared key part that carries positions: what a token caches.
    nope, value_dim:
        Width of one head's key without positions, and of its value.
    gate_dim:
        Width a head of the gate, projected from the input, that the output is multiplied by: ``value_dim`` (Kimi K3),
        1 (Ling 3), or 0 without a gate.
    other_params:
        Norms of the latents, biases.
    """

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    value_dim: int
    gate_dim: int = 0
    other_params: int = 0

    kind = "mla"
    # as vLLM's and SGLang's deepseek_v2.py have them (``ReplicatedLinear``)
    replicated: ClassVar[tuple[str, ...]] = ("q_a", "kv_a")

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: down and up for queries, keys and values, and the output."""
        wide = self.heads * (self.nope + self.rope)
        return {
            "gate": self.hidden * self.heads * self.gate_dim,
            "q_a": self.hidden * (self.q_rank or 0),
            "q_b": (self.hidden if self.q_rank is None else self.q_rank) * wide,
            "kv_a": self.hidden * (self.kv_rank + self.rope),
            "kv_b": self.kv_rank * self.heads * (self.nope + self.value_dim),
            "o": self.heads * self.value_dim * self.hidden,
        }

    @property
    def by_token(self) -> ByToken:
        """One latent for all heads; queries meet it, and results leave it, as wide as it is."""
        return ByToken(1, self.kv_rank + self.rope, self.kv_rank)

    def latent_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Latents of ``context`` tokens: 576 elements each in DeepSeek-V3."""
        return (self.kv_rank + self.rope) * kv_bytes * context

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """One latent a token."""
        return self.latent_bytes(context, kv_bytes)

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Return the whole cache: all heads share one read a step."""
        return self.latent_bytes(context, kv_bytes)

    def absorbed_flop(self, tokens: Quantity) -> Quantity:
        """``2 n_h ((rank + rope) + rank)`` a cached token (V3: 278,528): scores, weighted latents."""
        return 2 * self.heads * (2 * self.kv_rank + self.rope) * tokens

    def decode_flop(self, context: Quantity) -> Quantity:
        """Absorbed form: the heads work on latents directly."""
        return self.absorbed_flop(context)

    def prefill_flop(self, context: Quantity) -> Quantity:
        """Rebuilt keys and values: ``2 n_h (nope + rope + v)`` a seen token (V3: 40,960 ctx a token)."""
        return 2 * self.heads * (self.nope + self.rope + self.value_dim) * mean_prompt_span(context, None)


@dataclass(frozen=True)
class IndexedLatent(Latent):
    """MLA over the ``top_k`` tokens that a small index picks (DeepSeek-V3.2, GLM-5).

    Attributes
    ----------
    index_heads, index_dim:
        Heads of the index and the width of its one key a token.
    top_k:
        Latents that the attention proper reads.
    own_index:
        False where the layer reuses the choice of an earlier one: no index weights, no index cache.
    pool:
        Tokens that one key of the index stands for (GLM-5.3-Flash: 4); ``top_k`` still counts tokens.
    """

    index_heads: int = 0
    index_dim: int = 0
    top_k: int = 0
    own_index: bool = True
    pool: int = 1

    kind = "dsa"
    replicated: ClassVar[tuple[str, ...]] = (*Latent.replicated, "index")

    @property
    def modules(self) -> dict[str, int]:
        """MLA's projections and the index's: queries from the query latent, one key, one weight a head.

        Where keys are pooled, a second projection as wide as the key weighs the tokens of a pool.
        """
        if not self.own_index:
            return super().modules
        q_in = self.hidden if self.q_rank is None else self.q_rank
        keys = self.index_dim * (1 if self.pool == 1 else 2)
        index = q_in * self.index_heads * self.index_dim + self.hidden * (keys + self.index_heads)
        return {**super().modules, "index": index}

    def latent_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Latents of ``context`` tokens; of an FP8 cache positions stay in BF16 and 128 elements share an FP32 scale.

        656 bytes in DeepSeek-V3.2 (the FP8 form of FlashMLA's sparse kernels, which vLLM's cache has too).
        """
        if kv_bytes != 1:
            return super().latent_bytes(context, kv_bytes)
        return (_scaled_bytes(self.kv_rank) + _BF16_BYTES * self.rope) * context

    def index_bytes(self, context: Quantity) -> Quantity:
        """Index keys of ``context`` tokens in FP8: 128 + 4 bytes each, one for every ``pool`` tokens."""
        return _scaled_bytes(self.index_dim) / self.pool * context if self.own_index else 0.0

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Latents and index keys of every token."""
        return self.latent_bytes(context, kv_bytes) + self.index_bytes(context)

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Index keys of the whole context, then the latents of the chosen tokens."""
        return self.index_bytes(context) + self.latent_bytes(span(context, self.top_k), kv_bytes)

    def index_flop(self, tokens: Quantity) -> Quantity:
        """One dot product a head and key: ``2 n_i d_i``."""
        return 2.0 * self.index_heads * self.index_dim / self.pool * tokens if self.own_index else 0.0

    def decode_flop(self, context: Quantity) -> Quantity:
        """Index over the whole context, absorbed attention over the chosen tokens."""
        return self.index_flop(context) + self.absorbed_flop(span(context, self.top_k))

    def prefill_flop(self, context: Quantity) -> Quantity:
        """Index over all earlier tokens, absorbed attention over those that each token chose."""
        mean_span = mean_prompt_span(context, None)
        return self.index_flop(mean_span) + self.absorbed_flop(mean_prompt_span(context, self.top_k))


_STATE_BYTES = 4  # tokens waiting to be compressed are kept in FP32, as keys and as gates


@dataclass(frozen=True)
class CompressedAttention(Projected):
    """One key-value head shared by all query heads (keys are the values), over three kinds of entry.

    They are the last ``window`` tokens; one entry for every ``rate`` tokens; and, where ``top_k`` is set, an
    index that picks ``top_k`` of those (rate 4, "CSA"). Without it all entries are read (rate 128, "HCA");
    with ``rate`` 0 there is the window alone. DeepSeek-V4 technical report (2026), section 2.3.

    Attributes
    ----------
    q_rank, o_groups, o_rank:
        Rank of the query's latent; the output projection goes in ``o_groups`` groups through ``o_rank`` each.
    index_heads, index_dim, top_k:
        The index (0 where there is none); its keys are compressed at the same rate.
    """

    hidden: int
    heads: int
    head_dim: int
    q_rank: int
    o_groups: int
    o_rank: int
    window: int
    rate: int
    index_heads: int = 0
    index_dim: int = 0
    top_k: int = 0

    replicated: ClassVar[tuple[str, ...]] = ("q_a", "kv", "compressors", "index")

    @property
    def kind(self) -> str:
        """``csa`` (indexed), ``hca`` (all entries) or ``swa`` (window alone)."""
        if not self.rate:
            return "swa"
        return "csa" if self.top_k else "hca"

    @property
    def _compressors(self) -> tuple[int, ...]:
        """Widths of what is compressed: entries and, with an index, its keys."""
        if not self.rate:
            return ()
        return (self.head_dim, self.index_dim) if self.top_k else (self.head_dim,)

    @property
    def _overlap(self) -> int:
        """Indexed entries overlap their neighbour: every token takes part in two (section 2.3.1)."""
        return 2 if self.top_k else 1

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: queries by their latent, one key-value head, grouped output, compressors."""
        wide = self.heads * self.head_dim
        return {
            "q_a": self.hidden * self.q_rank,
            "q_b": self.q_rank * wide,
            "kv": self.hidden * self.head_dim,
            "o_a": wide * self.o_rank,
            "o_b": self.o_groups * self.o_rank * self.hidden,
            "compressors": sum(2 * self.hidden * self._overlap * width for width in self._compressors),
            "index": self.index_heads * (self.q_rank * self.index_dim + self.hidden) if self.top_k else 0,
        }

    @property
    def other_params(self) -> int:
        """Norms of the latent and of keys, sinks, and each compressor's position bias and norm."""
        compressor_params = sum(self.rate * self._overlap * width + width for width in self._compressors)
        return self.q_rank + self.head_dim + self.heads + compressor_params

    @property
    def state_bytes(self) -> float:
        """Tokens of the unfinished (and, with overlap, the previous) block, before compression."""
        tokens = self.rate * self._overlap
        return sum(2 * tokens * self._overlap * width * _STATE_BYTES for width in self._compressors)

    def entries(self, context: Quantity) -> Quantity:
        """Compressed entries of ``context`` tokens."""
        return context / self.rate if self.rate else 0.0

    def index_bytes(self, context: Quantity) -> Quantity:
        """Index keys in FP8 with one FP32 scale per 128 elements, one for each entry."""
        return _scaled_bytes(self.index_dim) * self.entries(context) if self.top_k else 0.0

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Window, entries, index keys, and the state of the compressors."""
        elements = self.head_dim * (span(context, self.window) + self.entries(context))
        return elements * kv_bytes + self.index_bytes(context) + self.state_bytes

    def _read_entries(self, context: Quantity) -> Quantity:
        entries = self.entries(context)
        return span(entries, self.top_k) if self.top_k else entries

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Window, the entries attended to, all index keys, and one write of compressor state."""
        elements = self.head_dim * (span(context, self.window) + self._read_entries(context))
        written = self.state_bytes / (self.rate * self._overlap) if self.rate else 0.0
        return elements * kv_bytes + self.index_bytes(context) + written

    def decode_flop(self, context: Quantity) -> Quantity:
        """Scores and weighted values ``4 n_h d`` an entry read; ``2 n_i d_i`` an entry indexed."""
        read_entries = span(context, self.window) + self._read_entries(context)
        index = 2 * self.index_heads * self.index_dim * self.entries(context) if self.top_k else 0.0
        return 4 * self.heads * self.head_dim * read_entries + index

    def prefill_flop(self, context: Quantity) -> Quantity:
        """As :meth:`decode_flop`, averaged over the tokens of a prompt of ``context`` tokens."""
        entries = self.entries(context)
        read = mean_prompt_span(entries, self.top_k or None)
        mean_entries = mean_prompt_span(context, self.window) + read
        index = 2 * self.index_heads * self.index_dim * entries / 2 if self.top_k else 0.0
        return 4 * self.heads * self.head_dim * mean_entries + index
