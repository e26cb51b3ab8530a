"""State-space layers (Mamba-2), and layers that are a feed-forward part alone."""

from __future__ import annotations

from dataclasses import dataclass

from cost.attention.linear import CONV_BYTES, Recurrent
from cost.model import Projected
from cost.quantity import Quantity


@dataclass(frozen=True)
class Mamba2(Recurrent):
    """Mamba-2 (Dao and Gu 2024, arXiv:2405.21060) as in Nemotron-H, Granite 4: a state ``head_dim x state`` a head.

    Attributes
    ----------
    groups:
        Groups of heads that share ``B`` and ``C``, the inputs' and outputs' vectors of ``state`` elements.
    kernel, conv_bias:
        Width of the short convolution over values, ``B`` and ``C``, and whether it has a bias.
    chunk:
        Tokens that the prefill kernel takes at once.
    state_dtype_bytes:
        Bytes of one element of the state.
    """

    hidden: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    conv_bias: bool
    chunk: int
    state_dtype_bytes: int

    kind = "mamba2"

    @property
    def _values(self) -> int:
        return self.heads * self.head_dim

    @property
    def _channels(self) -> int:
        return self._values + 2 * self.groups * self.state

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection: gate, values, ``B``, ``C`` and a step a head together; output."""
        return {
            "in": self.hidden * (self._values + self._channels + self.heads),
            "mixed": self._values * self.hidden,
        }

    @property
    def other_params(self) -> int:
        """Convolution kernels and bias; step bias, decay and skip of each head; the gated norm."""
        return self._channels * (self.kernel + self.conv_bias) + 3 * self.heads + self._values

    @property
    def state_bytes(self) -> float:
        """State and the convolution's last ``kernel - 1`` inputs of one sequence."""
        state = self._values * self.state * self.state_dtype_bytes
        return state + self._channels * (self.kernel - 1) * CONV_BYTES

    def decode_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Flop of the state (an element: decay 1, update 2, output 2) and the convolution."""
        return 5 * self._values * self.state + 2 * self.kernel * self._channels

    def prefill_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Flop in chunks of ``Q`` (arXiv:2405.21060, section 6.3) and the convolution.

        ``2 Q N`` a group for ``C B^T``; ``2 Q P`` a head for its product with the values, ``2 N P`` each for the
        chunk's state and for its output. ``N``: ``state``, ``P``: ``head_dim``.
        """
        shared = 2 * self.groups * self.chunk * self.state
        return shared + self._values * (2 * self.chunk + 4 * self.state) + 2 * self.kernel * self._channels


@dataclass(frozen=True)
class NoAttention(Projected):
    """The attention of a layer that is a feed-forward part alone: nothing, so that any width divides it."""

    heads: int = 0
    other_params: int = 0

    kind = "none"

    @property
    def modules(self) -> dict[str, int]:
        """No projections."""
        return {}

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return 0."""
        return 0.0

    read_bytes = cache_bytes

    def decode_flop(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return 0."""
        return 0.0

    prefill_flop = decode_flop
