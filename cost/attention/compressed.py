"""DeepSeek-V4's attention: a short window of single tokens, and compressed entries for what lies before."""

from __future__ import annotations

from dataclasses import dataclass

from cost.attention.latent import INDEX_SCALE_BYTES
from cost.attention.spans import mean_prompt_span, span
from cost.quantity import Quantity

_STATE_BYTES = 4  # tokens waiting to be compressed are kept in FP32, as keys and as gates
_INDEX_BLOCK = 128


@dataclass(frozen=True)
class CompressedAttention:
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
    def matmul_params(self) -> int:
        """All projections."""
        return sum(self.modules.values())

    @property
    def other_params(self) -> int:
        """Norms of the latent and of keys, sinks, and each compressor's position bias and norm."""
        each = sum(self.rate * self._overlap * width + width for width in self._compressors)
        return self.q_rank + self.head_dim + self.heads + each

    @property
    def state_bytes(self) -> float:
        """Tokens of the unfinished (and, with overlap, the previous) block, before compression."""
        kept = self.rate * self._overlap
        return sum(2 * kept * self._overlap * width * _STATE_BYTES for width in self._compressors)

    def entries(self, context: Quantity) -> Quantity:
        """Compressed entries of ``context`` tokens."""
        return context / self.rate if self.rate else 0.0

    def index_bytes(self, context: Quantity) -> Quantity:
        """Index keys in FP8 with one FP32 scale per 128 elements, one for each entry."""
        each = self.index_dim + INDEX_SCALE_BYTES * self.index_dim / _INDEX_BLOCK
        return each * self.entries(context) if self.top_k else 0.0

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
        seen = span(context, self.window) + self._read_entries(context)
        index = 2 * self.index_heads * self.index_dim * self.entries(context) if self.top_k else 0.0
        return 4 * self.heads * self.head_dim * seen + index

    def prefill_flop(self, context: Quantity) -> Quantity:
        """As :meth:`decode_flop`, averaged over the tokens of a prompt of ``context`` tokens."""
        entries = self.entries(context)
        read = mean_prompt_span(entries, self.top_k or None)
        seen = mean_prompt_span(context, self.window) + read
        index = 2 * self.index_heads * self.index_dim * entries / 2 if self.top_k else 0.0
        return 4 * self.heads * self.head_dim * seen + index

    def kv_shards(self, tp: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """One key-value head for all: tensor parallelism replicates it."""
        return 1
