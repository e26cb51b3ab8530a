"""Layers of one part each, Mamba-2 in most of them: Nemotron-H and Nemotron 3."""

from __future__ import annotations

from collections.abc import Sequence

from cost.attention.state_space import Mamba2, NoAttention
from cost.config.facts import Facts
from cost.config.family import FULL, Count, Dense, Grouped, Routed, experts_in
from cost.model import Attention, DenseFfn, Ffn

_MAMBA, _MOE, _MLP = "linear_attention", "moe", "mlp"
_LETTERS = {"M": _MAMBA, "*": FULL, "E": _MOE, "-": _MLP}
_OLD = {"mamba": _MAMBA, "attention": FULL}
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def part_names(f: Facts) -> None:
    """Give ``layers_block_type`` one kind a layer, from the letters of ``hybrid_override_pattern`` or old names."""
    f.rename({"layer_types": "layers_block_type", "attention_head_dim": "head_dim"})
    if f.has("hybrid_override_pattern"):
        kinds: list[object] = [_LETTERS.get(letter, letter) for letter in f.text("hybrid_override_pattern")]
    else:
        kinds = [
            _OLD.get(kind, kind) if isinstance(kind, str) else kind for kind in f.items("layers_block_type")
        ]
    f.data = {"num_hidden_layers": len(kinds), **f.data, "layers_block_type": kinds}


def _kinds(f: Facts, layers: int) -> list[object]:
    return f.per_layer("layers_block_type", layers, tuple(_LETTERS.values()))


def mixers(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Mamba-2, attention, or none where the layer is a feed-forward part."""
    mamba = Mamba2(
        hidden=hidden,
        heads=f.count("mamba_num_heads"),
        head_dim=f.count("mamba_head_dim"),
        state=f.count("ssm_state_size"),
        groups=f.count("n_groups"),
        kernel=f.count("conv_kernel"),
        conv_bias=f.flag("use_conv_bias"),
        chunk=f.count("chunk_size"),
        # without the key the config's class keeps FP32
        state_dtype_bytes=_STATE_BYTES[f.choice("mamba_ssm_cache_dtype", _STATE_BYTES, "float32")],
    )
    f.divides(mamba.groups, mamba.heads, "n_groups must divide mamba_num_heads")
    full = Grouped(kv_heads_required=True, head_dim_required=True).one(f, hidden)
    by_kind: dict[object, Attention] = {_MAMBA: mamba, FULL: full}
    return [by_kind.get(kind, NoAttention()) for kind in _kinds(f, layers)]


_EXPERTS = Routed(
    experts=experts_in("n_routed_experts"),
    gated=False,
    shared=1,
    shared_width=Count("moe_shared_expert_intermediate_size"),
    router_bias=True,
    groups=True,
)


def one_ffn(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """Experts, which may take a narrower width (latent MoE), a dense part, or none beside a mixer."""
    kinds = _kinds(f, layers)
    f.ignore(
        "intermediate_size", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group",
        "topk_group", "moe_shared_expert_intermediate_size", "moe_latent_size",
    )  # fmt: skip
    by_kind: dict[object, Ffn] = {}
    if _MOE in kinds:
        by_kind[_MOE] = _EXPERTS.one(f, hidden, expert_hidden=f.count_or_none("moe_latent_size"))
    if _MLP in kinds:
        by_kind[_MLP] = Dense(gated=False).one(f, hidden)
    return [by_kind.get(kind, DenseFfn(0)) for kind in kinds]
