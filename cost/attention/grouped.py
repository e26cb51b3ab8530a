"""Grouped-query attention (multi-head and multi-query are its ends): of all tokens, a window, or indexed blocks."""

from __future__ import annotations

from dataclasses import dataclass

from cost.model import ByToken, Projected
from cost.quantity import Quantity, at_most, mean_prompt_span, span


@dataclass(frozen=True)
class GroupedQuery(Projected):
    """Query heads that share ``kv_heads`` key and value heads (Ainslie et al. 2023, "GQA").

    Attributes
    ----------
    head_dim, value_dim:
        Width of one query or key head, and of one value head.
    window:
        Tokens a query sees at most (sliding window, or the length of a chunk); None: the whole context.
        A chunk is counted at its full length, which is what the last token of a chunk reads.
    chunked:
        The window is a fixed chunk, not one that slides.
    gated:
        The output is multiplied by a gate projected from the input, as wide as the queries.
    head_gated:
        The gate has one number a head (Step-3.5).
    values_are_keys:
        Values are the projected keys before their norm and positions: no weights of their own, but a cache entry.
    own_cache:
        False where the layer reads keys and values of an earlier one: no weights for them, and nothing cached.
    other_params:
        Biases, norms of queries and keys, sinks.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None = None
    chunked: bool = False
    gated: bool = False
    head_gated: bool = False
    values_are_keys: bool = False
    own_cache: bool = True
    other_params: int = 0

    @property
    def kind(self) -> str:
        """``gqa``, ``swa`` (sliding window) or ``chunked``."""
        if self.window is None:
            return "gqa"
        return "chunked" if self.chunked else "swa"

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection; a gate counts with the queries, whose projection is twice as wide."""
        gate = self.hidden * self.heads * (self.value_dim if self.gated else int(self.head_gated))
        keys = self.kv_heads if self.own_cache else 0
        return {
            "q": self.hidden * self.heads * self.head_dim + gate,
            "k": self.hidden * keys * self.head_dim,
            "v": 0 if self.values_are_keys else self.hidden * keys * self.value_dim,
            "o": self.heads * self.value_dim * self.hidden,
        }

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """``kv_heads * (head_dim + value_dim)`` elements a token, ``2 * n_kv * d`` where both are alike."""
        return self.read_bytes(context, kv_bytes) if self.own_cache else 0.0

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """All that is cached is read once a step: the query heads of a group share the read."""
        return self._pairs(span(context, self.window), kv_bytes)

    def _pairs(self, tokens: Quantity, kv_bytes: float) -> Quantity:
        """Keys and values of ``tokens`` tokens."""
        return self.kv_heads * (self.head_dim + self.value_dim) * kv_bytes * tokens

    def decode_flop(self, context: Quantity) -> Quantity:
        """Scores ``2 n_h d``, weighted values ``2 n_h d_v`` a cached token: ``4 n_h d ctx`` where alike."""
        return 2 * self.heads * (self.head_dim + self.value_dim) * span(context, self.window)

    def prefill_flop(self, context: Quantity) -> Quantity:
        """As :meth:`decode_flop`, averaged over the tokens of a prompt of ``context`` tokens."""
        return 2 * self.heads * (self.head_dim + self.value_dim) * mean_prompt_span(context, self.window)

    def kv_shards(self, tp: Quantity) -> Quantity:
        """Key and value heads are split over at most ``kv_heads`` ranks, then replicated."""
        return at_most(tp, self.kv_heads)

    @property
    def by_token(self) -> ByToken | None:
        """Keys and values of all tokens; a window stays whole."""
        return None if self.window else ByToken(self.kv_heads, self.head_dim, self.value_dim)


_INDEX_BYTES = (
    2  # index keys stay in BF16 whatever the KV cache dtype (the default of vLLM's MiniMax M3 indexer cache)
)


@dataclass(frozen=True)
class BlockSparse(GroupedQuery):
    """Grouped-query attention over the blocks that a small index picks (MiniMax Sparse Attention, arXiv:2606.13392).

    Each key-value head has one head of the index and reads ``top_blocks`` blocks of its own choice, the latest ones
    among them. The index scores every token by one shared key, which has a cache of its own.

    Attributes
    ----------
    index_heads, index_dim:
        Heads of the index, as many as key-value heads, and the width of its one key a token.
    block, top_blocks:
        Tokens of a block, and the blocks that a query reads.
    """

    index_heads: int = 0
    index_dim: int = 0
    block: int = 0
    top_blocks: int = 0

    kind = "bsa"

    @property
    def modules(self) -> dict[str, int]:
        """Projections of queries, keys, values and output, and of the index's queries and its key."""
        return {**super().modules, "index": self.hidden * (self.index_heads + 1) * self.index_dim}

    @property
    def chosen(self) -> int:
        """Tokens that a query reads at most (MiniMax-M3: 2,048)."""
        return self.block * self.top_blocks

    def index_bytes(self, context: Quantity) -> Quantity:
        """Index keys of ``context`` tokens, in BF16."""
        return self.index_dim * _INDEX_BYTES * context

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Keys, values and index keys of every token."""
        return self._pairs(context, kv_bytes) + self.index_bytes(context)

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Index keys of the whole context, then keys and values of the chosen blocks, one choice a key-value head."""
        return self.index_bytes(context) + self._pairs(span(context, self.chosen), kv_bytes)

    def _flop(self, indexed: Quantity, read: Quantity) -> Quantity:
        index = 2 * self.index_heads * self.index_dim * indexed
        return index + 2 * self.heads * (self.head_dim + self.value_dim) * read

    def decode_flop(self, context: Quantity) -> Quantity:
        """Index ``2 n_i d_i`` over the whole context, ``2 n_h (d + d_v)`` over the chosen blocks."""
        return self._flop(context, span(context, self.chosen))

    def prefill_flop(self, context: Quantity) -> Quantity:
        """As :meth:`decode_flop`, averaged over the tokens of a prompt of ``context`` tokens."""
        return self._flop(mean_prompt_span(context, None), mean_prompt_span(context, self.chosen))

    def kv_shards(self, tp: Quantity) -> Quantity:
        """Keys and values are split by head; every rank holds all index keys, so the parts are fewer than ranks.

        The parts of a BF16 cache. Reads of a long context are cut less than that: index keys are most of them.
        """
        pairs = self.kv_heads * (self.head_dim + self.value_dim)
        return (pairs + self.index_dim) / (pairs / at_most(tp, self.kv_heads) + self.index_dim)
