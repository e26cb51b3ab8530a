"""Multi-head latent attention (MLA), dense and with DeepSeek's sparse index on top (DSA)."""

from __future__ import annotations

from dataclasses import dataclass

from cost.attention.spans import mean_prompt_span, span
from cost.quantity import Quantity

# The index keeps its keys in FP8 with one FP32 scale per 128 elements, whatever the KV cache dtype
# (DeepSeek-V3.2 technical report, section 2; vLLM's and SGLang's indexer caches hold 128 + 4 bytes a token).
INDEX_SCALE_BYTES = 4
_INDEX_BLOCK = 128


@dataclass(frozen=True)
class Latent:
    """Keys and values rebuilt from one latent a token (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Attributes
    ----------
    q_rank:
        Rank of the query's own latent; None where queries are projected directly.
    kv_rank, rope:
        Width of the latent and of the shared key part that carries positions: what a token caches.
    nope, value_dim:
        Width of one head's key without positions, and of its value.
    gated:
        The output is multiplied by a gate projected from the input, as wide as the values of all heads.
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
    gated: bool = False
    other_params: int = 0

    @property
    def kind(self) -> str:
        """``mla``."""
        return "mla"

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: down and up for queries, keys and values, and the output."""
        wide = self.heads * (self.nope + self.rope)
        gate = {"gate": self.hidden * self.heads * self.value_dim} if self.gated else {}
        return {
            **gate,
            "q_a": self.hidden * (self.q_rank or 0),
            "q_b": (self.hidden if self.q_rank is None else self.q_rank) * wide,
            "kv_a": self.hidden * (self.kv_rank + self.rope),
            "kv_b": self.kv_rank * self.heads * (self.nope + self.value_dim),
            "o": self.heads * self.value_dim * self.hidden,
        }

    @property
    def matmul_params(self) -> int:
        """All projections (DeepSeek-V3: 187.1 M); absorbed decode multiplies with the up-projection by halves."""
        return sum(self.modules.values())

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
        return self.rebuilt_flop(mean_prompt_span(context, None))

    def rebuilt_flop(self, tokens: Quantity) -> Quantity:
        """Scores and weighted values over ``tokens`` keys and values rebuilt from their latents."""
        return 2 * self.heads * (self.nope + self.rope + self.value_dim) * tokens

    def kv_shards(self, tp: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return 1: the latent belongs to all heads, tensor parallelism replicates it."""
        return 1


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

    @property
    def kind(self) -> str:
        """``dsa``."""
        return "dsa"

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

    def index_bytes(self, context: Quantity) -> Quantity:
        """Index keys of ``context`` tokens in FP8: 128 + 4 bytes each, one for every ``pool`` tokens."""
        if not self.own_index:
            return 0.0
        each = self.index_dim + INDEX_SCALE_BYTES * self.index_dim / _INDEX_BLOCK
        return each / self.pool * context

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
        seen = mean_prompt_span(context, None)
        return self.index_flop(seen) + self.absorbed_flop(mean_prompt_span(context, self.top_k))
