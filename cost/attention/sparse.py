"""What-if: any attention with queries that read only a few cached tokens; neither trained nor measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.dtypes import cache_bytes_per_element, dense_flop_per_s
from cost.model import Attention, ByToken, Model, Projected
from cost.quantity import MAX_CONTEXT_TOKENS, Quantity, at_most
from topology.base.errors import InputError
from topology.spec import GpuSpec

SQRT = "sqrt"
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)  # exact for what is a polynomial of degree 15


def most_tokens_read(rule: str) -> int | None:
    """Return the most tokens that a query reads under ``rule``; None for ``sqrt``, which has no such limit.

    Raises
    ------
    InputError
        If the rule is neither ``sqrt`` nor a whole number of tokens.
    """
    if rule == SQRT:
        return None
    if not (rule.isascii() and rule.isdigit() and 1 <= int(rule[:12]) <= MAX_CONTEXT_TOKENS):
        raise InputError(
            f"expected sqrt or a whole number of tokens from 1 to {MAX_CONTEXT_TOKENS}.",
            field="sparse_attention",
            value=rule,
        )
    return int(rule)


@dataclass(frozen=True)
class AsIfSparse:
    """``inner`` as if a query over ``context`` tokens read the cache of ``reach(context)`` of them.

    A layer reads and computes what ``inner`` does at that shorter context: of full attention exactly so many tokens,
    of a window the smaller of the two. Weights and all that is kept (capacity) are those of ``inner``; finding the
    tokens costs nothing, so it bounds what a real sparse attention can save.

    Attributes
    ----------
    most:
        Tokens read at most; None: the square root of the context, the lecture's rule with a factor of 1.
    """

    inner: Attention
    most: int | None

    def reach(self, context: Quantity) -> Quantity:
        """Tokens that a query over ``context`` of them reads."""
        if self.most is not None:
            return at_most(context, float(self.most))
        if not isinstance(context, np.ndarray):
            return math.sqrt(context)
        roots: NDArray[np.float64] = np.sqrt(context)
        return roots

    @property
    def kind(self) -> str:
        """That of ``inner``: its kernels run."""
        return self.inner.kind

    @property
    def heads(self) -> int:
        """Query heads of ``inner``."""
        return self.inner.heads

    @property
    def modules(self) -> Mapping[str, int]:
        """Projections of ``inner``."""
        return self.inner.modules

    @property
    def matmul_params(self) -> int:
        """Weights of the projections of ``inner``."""
        return self.inner.matmul_params

    @property
    def replicated(self) -> tuple[str, ...]:
        """Those of ``inner``."""
        return self.inner.replicated

    @property
    def other_params(self) -> int:
        """Other weights of ``inner``."""
        return self.inner.other_params

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Everything stays cached: another query may read it."""
        return self.inner.cache_bytes(context, kv_bytes)

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """What ``inner`` reads over the tokens in reach."""
        return self.inner.read_bytes(self.reach(context), kv_bytes)

    def decode_flop(self, context: Quantity) -> Quantity:
        """Flop of ``inner`` over the tokens in reach."""
        return self.inner.decode_flop(self.reach(context))

    def prefill_flop(self, context: Quantity) -> Quantity:
        """Mean over a prompt's tokens, of which number ``t`` computes what ``inner`` does after ``reach(t)`` others.

        With ``G(u) = u * inner.prefill_flop(u)``, the flop of a whole prompt of ``u``, token ``t`` costs
        ``G'(reach(t))``. Under a limit ``n`` the mean is ``(G(n) + (c - n) G'(n)) / c``; under the square root, with
        ``t = u^2`` from 1 on and by parts, ``(2 s G(s) - 2 * integral of G from 1 to s - G(1)) / c`` where
        ``s^2 = c``: of full attention two thirds of ``s`` tokens.
        """
        tokens = context + (context == 0)  # an empty prompt computes nothing
        if self.most is None:
            root = self.reach(tokens)
            half = (root - 1) / 2
            total = sum(
                weight * half * self._prompt_flop(1 + half * (1 + node))
                for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True)
            )
            prompt_flop = 2 * root * self._prompt_flop(root) - 2 * total - self._prompt_flop(1.0)
            return prompt_flop / tokens * at_most(context, 1.0)
        reach = self.reach(context)
        token_flop = self._prompt_flop(self.most + 0.5) - self._prompt_flop(self.most - 0.5)
        return (self._prompt_flop(reach) + (context - reach) * token_flop) / tokens

    def _prompt_flop(self, tokens: Quantity) -> Quantity:
        return tokens * self.inner.prefill_flop(tokens)

    def kv_shards(self, tp: Quantity) -> Quantity:
        """As the cache of ``inner`` is divided."""
        return self.inner.kv_shards(tp)

    @property
    def by_token(self) -> ByToken | None:
        """As the cache of ``inner`` is split."""
        return self.inner.by_token

    def index_bytes(self, context: Quantity) -> Quantity:
        """Keys of the index of ``inner`` over the tokens in reach."""
        return self.inner.index_bytes(self.reach(context))

    cache_share = Projected.cache_share


def as_if_sparse(model: Model, rule: str) -> Model:
    """Return ``model`` with sparse attention by ``rule`` in every layer; unchanged for an empty rule.

    The same object where nothing changes; a rule replaces another.

    Raises
    ------
    InputError
        If the rule is none.
    """
    limit = most_tokens_read(rule) if rule else None
    kinds = []
    for layer in model.kinds:
        attention = layer.attention
        inner = attention.inner if isinstance(attention, AsIfSparse) else attention
        kinds.append(replace(layer, attention=AsIfSparse(inner, limit) if rule else inner))
    if tuple(kinds) == model.kinds:
        return model
    return replace(model, layers=tuple(kinds[kind] for kind in model.kind_of))


def cache_bound_context(model: Model, gpu: GpuSpec, kv_dtype: str) -> float:
    """Return the tokens of context from which a batch's caches take longer to read than the weights; may be infinite.

    At the batch that balances computing and reading the weights, where reading the cache of one sequence takes as
    long as computing its token: ``read_bytes(context) / hbm_bytes_per_s = 2 * active_params / flop_per_s``. Experts
    (else the dense part) say what the weights are multiplied in.
    """
    flop_per_s = dense_flop_per_s(model.precision[model.main_weights], gpu)
    element, kinds = cache_bytes_per_element(kv_dtype), model.kind_counts(range(len(model.layers)))
    budget = 2 * model.active_params * gpu.hbm_bytes_per_s / flop_per_s

    def exceeds(context: float) -> bool:
        return sum(n * float(layer.attention.read_bytes(context, element)) for layer, n in kinds) >= budget

    high = next((2.0**k for k in range(128) if exceeds(2.0**k)), math.inf)
    low = 0.0 if high == 1 else high / 2
    while math.isfinite(high) and high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return high
