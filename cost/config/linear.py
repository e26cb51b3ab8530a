"""Linear attention or short convolutions in most layers: Qwen3-Next, Kimi Linear, GLM-5.3-Flash, Ling, LFM2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.attention.linear import GatedDelta, KimiDelta, Lightning, ShortConv
from cost.config.facts import Facts
from cost.config.family import FULL, Grouped, feed_forward
from cost.config.latent import DEEPSEEK_MOE, INDEXED, indexed_latent, latent
from cost.config.unmodelled import check_unread
from cost.model import Attention, DenseFfn, Ffn

LINEAR = "linear_attention"


def gated_delta(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Qwen's gated delta rule, by ``layer_types`` or with every ``full_attention_interval``-th layer full."""
    interval = None
    if f.has("full_attention_interval") or not f.has("layer_types"):
        interval = f.count("full_attention_interval")
    full = [interval is not None and (index + 1) % interval == 0 for index in range(layers)]
    if f.has("layer_types"):
        listed = f.layers_with("layer_types", layers, FULL, LINEAR)
        if interval is not None and full != listed:
            f.must_be("full_attention_interval", "as layer_types has it, or absent")
        full = listed
    quadratic = _GATED_FULL.one(f, hidden)
    linear = GatedDelta(
        hidden=hidden,
        key_heads=f.count("linear_num_key_heads"),
        key_dim=f.count("linear_key_head_dim"),
        value_heads=f.count("linear_num_value_heads"),
        value_dim=f.count("linear_value_head_dim"),
        kernel=f.count("linear_conv_kernel_dim"),
    )
    f.divides(linear.key_heads, linear.value_heads, "linear_num_key_heads must divide linear_num_value_heads")
    return [quadratic if flag else linear for flag in full]


_GATED_FULL = Grouped(
    kv_heads_required=True,
    head_dim_required=True,
    qk_norm="head",
    gate=lambda f: f.flag("attn_output_gate", default=True),
)
_DELTA_KEYS = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}


def _kimi_delta(f: Facts, hidden: int) -> tuple[KimiDelta, Facts]:
    """Read Kimi delta attention, and return the section it stands in (the config itself where its keys are flat)."""
    f.ignore("linear_attn_config", "linear_lower_bound", *_DELTA_KEYS.values())
    section = f.sub("linear_attn_config") if f.has("linear_attn_config") else f
    heads, dim, kernel = (
        section.count(flat if section is f else within) for within, flat in _DELTA_KEYS.items()
    )
    full_gate = section is not f and section.flag("use_full_rank_gate", default=False)
    if section is not f:
        section.ignore("gate_lower_bound", "safe_gate", "kda_layers", "full_attn_layers")
        check_unread(section, str(f.data.get("model_type")))
    return KimiDelta.of(hidden, heads, dim, kernel, full_gate=full_gate), section


def kimi_names(f: Facts) -> None:
    """Give Kimi's keys the names that DeepSeek's reading knows."""
    f.rename(
        {
            "num_expert_group": "n_group",
            "num_experts_per_token": "num_experts_per_tok",
            "num_shared_experts": "n_shared_experts",
        }
    )


def kimi_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Delta and latent attention: by ``layer_types``, or by two lists of layer numbers that start at 1."""
    delta, section = _kimi_delta(f, hidden)
    wide = latent(f, hidden)
    if f.flag("mla_use_output_gate", default=False):
        wide = replace(wide, gate_dim=wide.value_dim)
    if f.has("layer_types"):
        linear = f.layers_with("layer_types", layers, LINEAR, FULL)
    else:
        kda_layers, full_layers = section.items("kda_layers"), section.items("full_attn_layers")
        numbers = [
            number
            for number in (*kda_layers, *full_layers)
            if isinstance(number, int) and not isinstance(number, bool)
        ]
        if len(numbers) != len(kda_layers) + len(full_layers) or sorted(numbers) != list(
            range(1, layers + 1)
        ):
            section.must_be("full_attn_layers", f"the layers from 1 to {layers} that are not in kda_layers")
        linear = [index + 1 in kda_layers for index in range(layers)]
    return [delta if flag else wide for flag in linear]


def kimi_experts(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """DeepSeek's experts, in Kimi K3 of a narrower width with a projection before and after (latent MoE)."""
    rule = replace(DEEPSEEK_MOE, router_bias=True)
    width = f.count_or_none("routed_expert_hidden_size")
    experts = rule.one(f, hidden, expert_hidden=width)
    if width is not None and f.flag("latent_moe_use_norm"):
        experts = replace(experts, shared_params=experts.shared_params + width)
    f.ignore("latent_moe_use_norm")
    return rule.in_layers(f, hidden, layers, experts)


def kimi_residuals(f: Facts, hidden: int) -> tuple[int, int]:
    """Residuals over blocks of layers: a query and a norm before attention, feed-forward part and last norm."""
    residual_params = 2 * hidden if f.count_or_none("attn_res_block_size") else 0
    return 2 * residual_params, residual_params


def glm5_next_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Kimi delta attention, and latent attention with an index of pooled keys."""
    delta, _ = _kimi_delta(f, hidden)
    pool = f.count("index_kpool")
    f.divides(pool, f.count("index_topk"), "index_kpool must divide index_topk")
    picked = indexed_latent(f, hidden, layers, pool=pool)
    kinds = f.per_layer("layer_types", layers, (LINEAR, FULL, *INDEXED))
    return [delta if kind == LINEAR else attention for kind, attention in zip(kinds, picked, strict=True)]


def minimax_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """MiniMax-01 and M1: lightning attention but in layers with a 1 in ``attn_type_list``."""
    full = Grouped(kv_heads_required=True, head_dim_required=True).one(f, hidden)
    light = Lightning(hidden, full.heads, full.head_dim, other_params=full.heads * full.head_dim)
    if f.has("layer_types"):
        linear = f.layers_with("layer_types", layers, LINEAR, FULL)
    else:
        linear = f.layers_with("attn_type_list", layers, 0, 1)
    return [light if flag else full for flag in linear]


_LING_FULL = Grouped(
    kv_heads_required=True, qk_norm="head", normed=lambda f: f.flag("use_qk_norm"), head_dim_required=True
)


def ling_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Linear attention, and a full one as the last of each ``layer_group_size``.

    Ling 3 has Kimi delta and gated latent attention; Ling 2.5 and 2.6 lightning and latent attention, and Ring-linear
    2.0 grouped queries in place of the latter.
    """
    group = f.count("layer_group_size")
    f.divides(group, layers, "layer_group_size must divide num_hidden_layers")
    heads = f.count("num_attention_heads")
    dim = f.count("linear_head_dim" if f.has("linear_head_dim") else "head_dim")
    f.ignore("linear_num_heads", "linear_conv_kernel_dim")
    of_ling_3 = [f.has(key) for key in ("short_conv_kernel_size", "no_kda_lora", "kda_safe_gate")]
    full: Attention
    linear: Attention
    if any(of_ling_3):
        f.choice("gated_attention_proj_granularity_type", ("head_wise",), "head_wise")
        plain = f.flag("no_kda_lora", default=True)
        kernel = f.count("short_conv_kernel_size")
        linear = replace(KimiDelta.of(hidden, heads, dim, kernel, full_gate=plain), full_decay=plain)
        f.ignore("use_qk_norm", "group_norm_size")  # of lightning attention
        full = replace(latent(f, hidden), gate_dim=1)
    else:
        norms = 2 * dim if f.flag("use_qk_norm") else 0
        f.divides(f.count("group_norm_size", default=1), heads, "group_norm_size must divide the heads")
        linear = Lightning(hidden, heads, dim, other_params=heads * dim + norms)
        full = latent(f, hidden) if f.has("kv_lora_rank") else _LING_FULL.one(f, hidden)
    if f.has("layer_types"):
        full_layers = f.layers_with("layer_types", layers, FULL, LINEAR)
    else:
        full_layers = [(index + 1) % group == 0 for index in range(layers)]
    return [full if flag else linear for flag in full_layers]


def short_convolutions(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """LFM2: short convolutions, and attention in some layers, by ``layer_types`` or ``full_attn_idxs``."""
    full = Grouped(kv_heads_required=True, qk_norm="head").one(f, hidden)
    conv = ShortConv(hidden, f.count("conv_L_cache"), bias=f.flag("conv_bias"))
    f.ignore("full_attn_idxs", "conv_dim", "conv_dim_out", "block_dim", "block_ffn_dim_multiplier")
    if f.has("layer_types"):
        attended = f.layers_with("layer_types", layers, FULL, "conv")
    else:
        attended = f.listed("full_attn_idxs", layers)
    return [full if flag else conv for flag in attended]


def lfm2_dense(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """LFM2 without experts: two thirds of the stated width, rounded up, where ``block_auto_adjust_ff_dim``."""
    inner = f.count(f.one_of("block_ff_dim", "intermediate_size"))
    if f.flag("block_auto_adjust_ff_dim", default=True):
        if f.data.get("block_ffn_dim_multiplier", 1) != 1:
            f.must_be("block_ffn_dim_multiplier", "1")
        multiple = f.count("block_multiple_of", default=256)
        inner = -(-(2 * inner // 3) // multiple) * multiple
    return [DenseFfn(feed_forward(hidden, inner))] * layers
