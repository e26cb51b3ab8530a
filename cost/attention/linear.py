"""Layers with a state of constant size instead of a cache: linear attention, and short convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from cost.model import Attention, Projected
from cost.quantity import Quantity, at_most

_STATE_BYTES = 4  # the recurrent state is kept in FP32 (`mamba_ssm_dtype` of Qwen3.5's config)
CONV_BYTES = 2
# Tokens that the prefill kernel of Kimi delta attention takes at once (arXiv:2510.26692, section 6.3).
_CHUNK = 64
_BLOCK = 256  # the same of lightning attention (`block_size` of MiniMax-Text-01's config)


class Recurrent(Projected):
    """A state of constant size instead of a cache."""

    @property
    def state_bytes(self) -> float:
        """State and the last inputs of the convolution of one sequence."""
        raise NotImplementedError

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return the state, whatever the context."""
        return self.state_bytes

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return the state twice: it is read and written back every step."""
        return 2 * self.state_bytes

    def prefill_flop(self: Attention, context: Quantity) -> Quantity:
        """Flop of the recurrence; a chunked form trades a few more flop for larger multiplications."""
        return self.decode_flop(context)

    def kv_shards(self: Attention, tp: Quantity) -> Quantity:
        """States are split by head."""
        return at_most(tp, self.heads)


@dataclass(frozen=True)
class Lightning(Recurrent):
    """Lightning attention (Qin et al. 2024, arXiv:2401.04658) as in MiniMax-01 and Ling 2.5: a fixed decay a head.

    ``other_params``: norms of the output, of queries and keys.
    """

    hidden: int
    heads: int
    head_dim: int
    other_params: int

    kind = "lightning"

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: queries, keys and values; output gate; output."""
        params = self.hidden * self.heads * self.head_dim
        return {"qkv": 3 * params, "z": params, "out": params}

    @property
    def state_bytes(self) -> float:
        """One state ``head_dim x head_dim`` a head, in FP32."""
        return self.heads * self.head_dim**2 * _STATE_BYTES

    def decode_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Flop of the state: an element is decayed (1), updated (2) and queried (2)."""
        return 5 * self.heads * self.head_dim**2

    def prefill_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """``4 C d`` a head for scores and weighted values in blocks of ``C`` = 256, ``4 d^2`` for the state."""
        return 4 * self.heads * self.head_dim * (_BLOCK + self.head_dim)


@dataclass(frozen=True)
class ShortConv(Recurrent):
    """A convolution over the last ``kernel`` tokens of each channel, between two gates (LFM2, arXiv:2511.23404).

    ``bias``: it and the projections have biases.
    """

    hidden: int
    kernel: int
    bias: bool = False

    kind = "conv"

    @property
    def heads(self) -> int:
        """Channels: tensor parallelism divides them."""
        return self.hidden

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: two gates and values together; output."""
        return {"in": 3 * self.hidden**2, "mixed": self.hidden**2}

    @property
    def other_params(self) -> int:
        """Convolution kernels and biases."""
        return self.hidden * (self.kernel + (5 if self.bias else 0))

    @property
    def state_bytes(self) -> float:
        """The convolution's last ``kernel - 1`` inputs of one sequence."""
        return self.hidden * (self.kernel - 1) * CONV_BYTES

    def decode_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Flop of the convolution and of the two gates."""
        return 2 * self.hidden * (self.kernel + 1)


@dataclass(frozen=True)
class GatedDelta(Recurrent):
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

    kind = "linear"

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
    def other_params(self) -> int:
        """Convolution kernels, the decay's two vectors and the norm of the output."""
        return self._channels * self.kernel + 2 * self.value_heads + self.value_dim

    @property
    def state_bytes(self) -> float:
        """State in FP32 and the convolution's last ``kernel - 1`` inputs of one sequence."""
        state = self.value_heads * self.key_dim * self.value_dim * _STATE_BYTES
        return state + self._channels * (self.kernel - 1) * CONV_BYTES

    def decode_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Flop of the state (an element: decay 1, look-up 2, update 2, query 2) and the convolution."""
        return 7 * self.value_heads * self.key_dim * self.value_dim + 2 * self.kernel * self._channels


@dataclass(frozen=True)
class KimiDelta(GatedDelta):
    """Kimi delta attention (KDA; Kimi Linear, arXiv:2510.26692): a decay for every channel, not every head.

    As many heads of keys as of values, all of one width.

    Attributes
    ----------
    full_gate, full_decay:
        The output's gate (Kimi K3, Ling 3), and the decay (Ling 3), are one projection, not two through the width of
        a head (Kimi Linear).
    """

    full_gate: bool = False
    full_decay: bool = False

    @classmethod
    def of(cls, hidden: int, heads: int, head_dim: int, kernel: int, *, full_gate: bool = False) -> KimiDelta:
        """Return ``heads`` heads with a state ``head_dim x head_dim`` each."""
        return cls(hidden, heads, head_dim, heads, head_dim, kernel, full_gate)

    kind = "kda"

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection; the update has a rate a head."""
        full, through = self.hidden * self._values, (self.hidden + self._values) * self.value_dim
        return {
            **dict.fromkeys("qkvo", full),
            "decay": full if self.full_decay else through,
            "beta": self.hidden * self.heads,
            "gate": full if self.full_gate else through,
        }

    @property
    def other_params(self) -> int:
        """Convolution kernels, the decay's bias a channel and scale a head, and the norm of the output."""
        return self._channels * self.kernel + self._values + self.heads + self.value_dim

    def prefill_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """``6 d^2 + 3 C d + C^2`` a head in chunks of 64 (arXiv:2510.26692, eq. 13), and the convolution."""
        chunked = 6 * self.value_dim**2 + 3 * _CHUNK * self.value_dim + _CHUNK**2
        return self.heads * chunked + 2 * self.kernel * self._channels
