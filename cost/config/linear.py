"""Linear attention in three of four layers: Qwen3-Next and 3.5, Kimi Linear and K3, GLM-5.3-Flash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.attention.linear import GatedDelta, KimiDelta
from cost.config.facts import Facts
from cost.config.family import FULL, Grouped
from cost.config.latent import DEEPSEEK_MOE, INDEXED, indexed_latent, latent
from cost.config.unmodelled import check_unread
from cost.model import Attention, Ffn

LINEAR = "linear_attention"


def gated_delta(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Qwen's gated delta rule, by ``layer_types`` or with every ``full_attention_interval``-th layer full."""
    every = None
    if f.has("full_attention_interval") or not f.has("layer_types"):
        every = f.count("full_attention_interval")
    full = [every is not None and (index + 1) % every == 0 for index in range(layers)]
    if f.has("layer_types"):
        listed = f.layers_with("layer_types", layers, FULL, LINEAR)
        if every is not None and full != listed:
            f.must_be("full_attention_interval", "what layer_types says, or absent")
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
    wide = replace(latent(f, hidden), gated=f.flag("mla_use_output_gate", default=False))
    if f.has("layer_types"):
        linear = f.layers_with("layer_types", layers, LINEAR, FULL)
    else:
        first, full = section.items("kda_layers"), section.items("full_attn_layers")
        numbers = [each for each in (*first, *full) if isinstance(each, int) and not isinstance(each, bool)]
        if len(numbers) != len(first) + len(full) or sorted(numbers) != list(range(1, layers + 1)):
            section.must_be("full_attn_layers", f"the layers from 1 to {layers} that are not in kda_layers")
        linear = [index + 1 in first for index in range(layers)]
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
    one = 2 * hidden if f.count_or_none("attn_res_block_size") else 0
    return 2 * one, one


def glm5_next_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Kimi delta attention, and latent attention with an index of pooled keys."""
    delta, _ = _kimi_delta(f, hidden)
    pool = f.count("index_kpool")
    f.divides(pool, f.count("index_topk"), "index_kpool must divide index_topk")
    picked = indexed_latent(f, hidden, layers, pool=pool)
    kinds = f.per_layer("layer_types", layers, (LINEAR, FULL, *INDEXED))
    return [delta if kind == LINEAR else attention for kind, attention in zip(kinds, picked, strict=True)]
