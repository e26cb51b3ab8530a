"""Mamba-2 in most layers: Nemotron-H and Nemotron 3, whose layers are one part each; Granite 4 and Bamba."""

from __future__ import annotations

from collections.abc import Sequence

from cost.attention.state_space import Mamba2, NoAttention
from cost.config.facts import Facts
from cost.config.family import FULL, Count, Dense, Flag, Grouped, Routed
from cost.model import Attention, DenseFfn, Ffn

_MAMBA, _MOE, _MLP = "linear_attention", "moe", "mlp"
_LETTERS = {"M": _MAMBA, "*": FULL, "E": _MOE, "-": _MLP}
_OLD_NAMES = {"mamba": _MAMBA, "attention": FULL}
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def part_names(f: Facts) -> None:
    """Give ``layers_block_type`` one kind a layer, from letters, the layers that attend (Bamba), or old names."""
    f.rename({"layer_types": "layers_block_type", "attention_head_dim": "head_dim"})
    kinds: list[object]
    if f.has("attn_layer_indices"):
        kinds = [FULL if flag else _MAMBA for flag in f.listed("attn_layer_indices", f.layers())]
    elif f.has("hybrid_override_pattern"):
        kinds = [_LETTERS.get(letter, letter) for letter in f.text("hybrid_override_pattern")]
    else:
        kinds = [
            _OLD_NAMES.get(kind, kind) if isinstance(kind, str) else kind
            for kind in f.items("layers_block_type")
        ]
    f.data = {"num_hidden_layers": len(kinds), **f.data, "layers_block_type": kinds}


def _kinds(f: Facts, layers: int) -> list[object]:
    return f.per_layer("layers_block_type", layers, tuple(_LETTERS.values()))


def _mamba2(f: Facts, hidden: int) -> Mamba2:
    heads = f.count(f.one_of("mamba_num_heads", "mamba_n_heads"))
    if f.data.get("mamba_d_head") == "auto":
        dim = f.divides(heads, f.count("mamba_expand") * hidden, "mamba_n_heads must divide the inner width")
        f.data = {**f.data, "mamba_d_head": dim}
    mamba = Mamba2(
        hidden=hidden,
        heads=heads,
        head_dim=f.count(f.one_of("mamba_head_dim", "mamba_d_head")),
        state=f.count(f.one_of("ssm_state_size", "mamba_d_state")),
        groups=f.count(f.one_of("n_groups", "mamba_n_groups")),
        kernel=f.count(f.one_of("conv_kernel", "mamba_d_conv")),
        conv_bias=f.flag(f.one_of("use_conv_bias", "mamba_conv_bias")),
        chunk=f.count(f.one_of("chunk_size", "mamba_chunk_size")),
        # without the key the config's class keeps FP32
        state_dtype_bytes=_STATE_BYTES[f.choice("mamba_ssm_cache_dtype", _STATE_BYTES, "float32")],
    )
    f.divides(mamba.groups, mamba.heads, "n_groups must divide mamba_num_heads")
    return mamba


def mixers(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Mamba-2, attention, or none where the layer is a feed-forward part."""
    full = Grouped(kv_heads_required=True, head_dim_required=True).one(f, hidden)
    by_kind: dict[object, Attention] = {_MAMBA: _mamba2(f, hidden), FULL: full}
    return [by_kind.get(kind, NoAttention()) for kind in _kinds(f, layers)]


_EXPERTS = Routed(
    experts=Count("n_routed_experts"),
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


def granite_mixers(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Mamba-2 or attention, each beside a feed-forward part."""
    kinds = f.per_layer("layers_block_type", layers, (_MAMBA, FULL))
    full = Grouped(kv_heads_required=True, bias=Flag("attention_bias")).one(f, hidden)
    # models without such layers have the keys too
    f.ignore(*(key for key in f.data if key.startswith("mamba_")))
    mamba = _mamba2(f, hidden) if _MAMBA in kinds else full
    return [mamba if kind == _MAMBA else full for kind in kinds]


def granite_ffn(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """Experts and a shared part, or that part alone where there are no experts."""
    if f.whole("num_local_experts"):
        return _GRANITE_MOE(f, hidden, layers)
    f.ignore("intermediate_size", "num_experts_per_tok")
    return Dense("shared_intermediate_size")(f, hidden, layers)


_GRANITE_MOE = Routed(
    width=Count("intermediate_size"), shared=1, shared_width=Count("shared_intermediate_size")
)
