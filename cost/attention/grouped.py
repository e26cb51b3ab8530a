"""Grouped-query attention (multi-head and multi-query are its ends), over the context or a window of it."""

from __future__ import annotations

from dataclasses import dataclass

from cost.attention.spans import at_most, mean_prompt_span, span
from cost.quantity import Quantity


@dataclass(frozen=True)
class GroupedQuery:
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
        gate = self.hidden * self.heads * self.value_dim if self.gated else 0
        keys = self.kv_heads if self.own_cache else 0
        return {
            "q": self.hidden * self.heads * self.head_dim + gate,
            "k": self.hidden * keys * self.head_dim,
            "v": 0 if self.values_are_keys else self.hidden * keys * self.value_dim,
            "o": self.heads * self.value_dim * self.hidden,
        }

    @property
    def matmul_params(self) -> int:
        """Projections of queries (and gate), keys, values and output."""
        return sum(self.modules.values())

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """``kv_heads * (head_dim + value_dim)`` elements a token, ``2 * n_kv * d`` where both are alike."""
        return self.read_bytes(context, kv_bytes) if self.own_cache else 0.0

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """All that is cached is read once a step: the query heads of a group share the read."""
        return self.kv_heads * (self.head_dim + self.value_dim) * kv_bytes * span(context, self.window)

    def decode_flop(self, context: Quantity) -> Quantity:
        """Scores ``2 n_h d``, weighted values ``2 n_h d_v`` a cached token: ``4 n_h d ctx`` where alike."""
        return 2 * self.heads * (self.head_dim + self.value_dim) * span(context, self.window)

    def prefill_flop(self, context: Quantity) -> Quantity:
        """As :meth:`decode_flop`, averaged over the tokens of a prompt of ``context`` tokens."""
        return 2 * self.heads * (self.head_dim + self.value_dim) * mean_prompt_span(context, self.window)

    def kv_shards(self, tp: Quantity) -> Quantity:
        """Key and value heads are split over at most ``kv_heads`` ranks, then replicated."""
        return at_most(tp, self.kv_heads)
