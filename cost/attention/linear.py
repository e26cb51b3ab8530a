"""Linear attention by the gated delta rule: a state of constant size instead of a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost.attention.spans import at_most

if TYPE_CHECKING:
    from cost.quantity import Quantity

__all__ = ["GatedDelta"]

_STATE_BYTES = 4  # the recurrent state is kept in FP32 (`mamba_ssm_dtype` of Qwen3.5's config)
_CONV_BYTES = 2


@dataclass(frozen=True)
class GatedDelta:
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as in Qwen3-Next and Qwen3.5.

    Attributes
    ----------
    key_heads, key_dim, value_heads, value_dim:
        Heads of queries and keys, and of values; one state ``key_dim x value_dim`` a value head.
    kernel:
        Width of the short convolution over queries, keys and values.
    """

    hidden: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    kernel: int

    @property
    def kind(self) -> str:
        """``linear``."""
        return "linear"

    @property
    def heads(self) -> int:
        """Value heads: each has its own state."""
        return self.value_heads

    @property
    def _keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def _values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def _channels(self) -> int:
        return 2 * self._keys + self._values

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: queries, keys and values; output gate; two scalars a head; output."""
        return {
            "qkv": self.hidden * self._channels,
            "z": self.hidden * self._values,
            "ba": self.hidden * 2 * self.value_heads,
            "out": self._values * self.hidden,
        }

    @property
    def matmul_params(self) -> int:
        """All projections."""
        return sum(self.modules.values())

    @property
    def other_params(self) -> int:
        """Convolution kernels, the decay's two vectors and the norm of the output."""
        return self._channels * self.kernel + 2 * self.value_heads + self.value_dim

    @property
    def state_bytes(self) -> float:
        """State and the convolution's last ``kernel - 1`` inputs of one sequence."""
        state = self.value_heads * self.key_dim * self.value_dim * _STATE_BYTES
        return state + self._channels * (self.kernel - 1) * _CONV_BYTES

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return the state, whatever the context."""
        return self.state_bytes

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return the state twice: it is read and written back every step."""
        return 2 * self.state_bytes

    def decode_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Flop of the state (an element: decay 1, look-up 2, update 2, query 2) and the convolution."""
        return 7 * self.value_heads * self.key_dim * self.value_dim + 2 * self.kernel * self._channels

    def prefill_flop(self, context: Quantity) -> Quantity:
        """Flop of the recurrence; the chunked form trades a few more flop for larger multiplications."""
        return self.decode_flop(context)

    def kv_shards(self, tp: Quantity) -> Quantity:
        """States are split by value head."""
        return at_most(tp, self.value_heads)
