"""Names of a checkpoint's linear modules by class of weight, and whether a quantiser's list names them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cost.model import MoeFfn
from topology.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.config.decoder import Decoder

__all__ = ["MATMUL_CLASSES", "matches", "module_names"]

# The classes of weights that a token is multiplied with inside the layers; quantisers take these.
MATMUL_CLASSES = ("experts", "shared", "attention", "dense")

_FFN_BLOCKS = ("mlp", "block_sparse_moe", "feed_forward")
_ATTENTION = {
    "linear": ("linear_attn.in_proj_qkvz", "linear_attn.out_proj"),
    "mla": ("self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj", "self_attn.o_proj"),
}
_GROUPED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_EXPERTS = tuple(f"{block}.experts.0.{name}" for block in _FFN_BLOCKS for name in ("gate_proj", "down_proj"))
_SHARED = tuple(
    f"{block}.{shared}.{name}"
    for block in _FFN_BLOCKS
    for shared in ("shared_experts", "shared_expert")
    for name in ("gate_proj", "down_proj")
)
_DENSE = tuple(
    f"{block}.{name}" for block in ("mlp", "feed_forward") for name in ("gate_proj", "up_proj", "down_proj")
)
_PREFIXES = ("model.", "language_model.model.", "model.language_model.")
_STRIPPED = re.compile(r"^(model\.|language_model\.|transformer\.)+")


def module_names(decoder: Decoder) -> dict[str, list[tuple[str, ...]]]:
    """Return for each matmul class one entry a layer: the names its modules may have in the model.

    Families call the same part differently (``mlp``, ``block_sparse_moe``, ``feed_forward``); a list that
    names one of them means the layer's part.
    """
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in MATMUL_CLASSES}
    for index, layer in enumerate(decoder.layers):
        at = f"layers.{index}."
        kind = "mla" if layer.attention.kind in {"mla", "dsa"} else layer.attention.kind
        found["attention"].append(tuple(at + name for name in _ATTENTION.get(kind, _GROUPED)))
        if isinstance(layer.ffn, MoeFfn):
            found["experts"].append(tuple(at + name for name in _EXPERTS))
            if layer.ffn.shared_params:
                found["shared"].append(tuple(at + name for name in _SHARED))
        else:
            found["dense"].append(tuple(at + name for name in _DENSE))
    return {name: entries for name, entries in found.items() if entries}


def _matches_literal(pattern: str, name: str) -> bool:
    """Whether the dotted parts of ``pattern`` (``*`` allowed) stand one after the other in ``name``."""
    wanted = [part for part in _STRIPPED.sub("", pattern).split(".") if part]
    if wanted and wanted[-1] in {"weight", "*"}:
        wanted.pop()
    parts = name.split(".")
    if not wanted:
        return False
    starts = range(len(parts) - len(wanted) + 1)
    return any(all(map(fnmatchcase, parts[start:], wanted)) for start in starts)


def matches(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether one of ``patterns`` names one of ``names``; ``re:`` marks a regular expression.

    Raises
    ------
    InputError
        If a regular expression is broken.
    """
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                expression = re.compile(pattern[3:])
            except re.error as error:
                raise InputError(
                    f"quantization_config: {pattern!r} is no regular expression ({error})."
                ) from None
            if any(expression.match(prefix + name) for prefix in (*_PREFIXES, "") for name in names):
                return True
        elif any(_matches_literal(pattern, name) for name in names):
            return True
    return False
