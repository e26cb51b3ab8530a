"""Three layers of linear attention for one of another kind: Qwen3-Next and 3.5, Kimi Linear and K3, GLM-5.3-Flash."""

from __future__ import annotations

from dataclasses import replace

from cost.attention.linear import GatedDelta, KimiDelta
from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.families.deepseek import INDEXED, indexed, latent, layers_of, mixing, routed
from cost.config.families.moe import dense_part, sparse_steps
from cost.config.parts import FULL, draft_layers, expert_count, gated, grouped_query, moe
from cost.config.unread import check_unread
from cost.model import Attention, DenseFfn, Ffn, Layer

LINEAR = "linear_attention"


def _attentions(f: Facts, hidden: int, count: int) -> list[Attention]:
    """One attention a layer, by ``layer_types`` or every ``full_attention_interval``-th full."""
    if f.has("layer_types"):
        full = [kind == FULL for kind in f.per_layer("layer_types", count, (FULL, LINEAR))]
        if f.has("full_attention_interval"):
            every = f.count("full_attention_interval")
            if full != [(index + 1) % every == 0 for index in range(count)]:
                f.fail("full_attention_interval", "what layer_types says, or absent")
    else:
        every = f.count("full_attention_interval")
        full = [(index + 1) % every == 0 for index in range(count)]
    bias = f.flag("attention_bias", default=False)
    quadratic = grouped_query(
        f,
        hidden,
        kv_heads_required=True,
        head_dim_required=True,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        gate=f.flag("attn_output_gate", default=True),
    )
    if bias:
        f.fail("attention_bias", "false: biases of gated attention are not modelled")
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


@family("qwen3_next", "qwen3_5_moe_text", "qwen3_5_text")
def qwen3_next(f: Facts) -> Decoder:
    """Qwen3-Next and Qwen3.5, with experts (and a gated shared one) or without."""
    hidden, count = f.count("hidden_size"), f.layers()
    attentions = _attentions(f, hidden, count)
    if f.config.get("model_type") == "qwen3_5_text":
        ffns: list[Ffn] = [DenseFfn(gated(hidden, f.count("intermediate_size")))] * count
    else:
        experts = moe(
            f,
            hidden,
            experts=expert_count(f, "num_experts"),
            top_k=f.count("num_experts_per_tok"),
            expert_params=gated(hidden, f.count("moe_intermediate_size")),
            shared_params=gated(hidden, f.count("shared_expert_intermediate_size")) + hidden,
        )
        sparse = sparse_steps(f, count)
        dense = dense_part(f, hidden, sparse) or DenseFfn(0)
        ffns = [experts if flag else dense for flag in sparse]
    layers = [Layer(attention, ffn, 2 * hidden) for attention, ffn in zip(attentions, ffns, strict=True)]
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


# What Kimi calls the keys that DeepSeek's reading knows.
_KIMI_NAMES = {
    "num_expert_group": "n_group",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
}
_DELTA_KEYS = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}


def _delta(f: Facts, hidden: int) -> tuple[KimiDelta, Facts]:
    """Read Kimi delta attention, and return the section it stands in (the config itself where its keys are flat)."""
    f.ignore("linear_attn_config", "linear_lower_bound", *_DELTA_KEYS.values())
    section = f.section("linear_attn_config") if f.has("linear_attn_config") else f
    heads, dim, kernel = (
        section.count(flat if section is f else within) for within, flat in _DELTA_KEYS.items()
    )
    full_gate = section is not f and section.flag("use_full_rank_gate", default=False)
    if section is not f:
        section.ignore("gate_lower_bound", "safe_gate", "kda_layers", "full_attn_layers")
        check_unread(section, str(f.config.get("model_type")))
    return KimiDelta(hidden, heads, dim, kernel, full_gate=full_gate), section


def _kimi_layers(f: Facts, section: Facts, count: int) -> list[bool]:
    """Whether each layer is linear: ``layer_types``, or two lists of layer numbers that start at 1."""
    if f.has("layer_types"):
        return [kind == LINEAR for kind in f.per_layer("layer_types", count, (FULL, LINEAR))]
    linear, full = section.items("kda_layers"), section.items("full_attn_layers")
    numbers = [each for each in (*linear, *full) if isinstance(each, int) and not isinstance(each, bool)]
    if len(numbers) != len(linear) + len(full) or sorted(numbers) != list(range(1, count + 1)):
        section.fail("full_attn_layers", f"the layers from 1 to {count} that are not in kda_layers")
    return [index + 1 in linear for index in range(count)]


@family("kimi_linear")
def kimi_linear(f: Facts) -> Decoder:
    """Kimi Linear and the language model of Kimi K3: delta attention and latent attention, DeepSeek's experts.

    K3 adds gates, experts of a narrower width (latent MoE), and residuals over blocks of layers.
    """
    for old, new in _KIMI_NAMES.items():
        f.ignore(old)
        if f.config.get(old) is not None:
            if f.config.get(new, f.config[old]) != f.config[old]:
                f.fail(new, f"the same as {old}, which means the same")
            f.config = {**f.config, new: f.config[old]}
    f.ignore(
        "mla_use_nope",
        "use_grouped_topk",
        "activation_situ_beta",
        "activation_situ_linear_beta",
        "attn_res_block_size",
    )
    hidden, count = f.count("hidden_size"), f.layers()
    delta, section = _delta(f, hidden)
    wide = replace(latent(f, hidden), gated=f.flag("mla_use_output_gate", default=False))
    attentions: list[Attention] = [delta if linear else wide for linear in _kimi_layers(f, section, count)]
    width = f.count_or_none("routed_expert_hidden_size")
    experts = routed(f, hidden, router_bias=True, width=width)
    if width is not None:
        around = 2 * hidden * width + (width if f.flag("latent_moe_use_norm") else 0)
        experts = replace(experts, shared_params=experts.shared_params + around, width=width)
    f.ignore("latent_moe_use_norm")
    layers = layers_of(f, attentions, hidden, experts)
    # A query and a norm before attention, before the feed-forward part, and before the last norm.
    residual = 2 * hidden if f.count_or_none("attn_res_block_size") else 0
    layers = [replace(layer, norm_params=layer.norm_params + 2 * residual) for layer in layers]
    return decoder(f, hidden, layers, final_norm=hidden + residual, tied=False, omitted=draft_layers(f))


@family("glm5_next_text")
def glm5_next(f: Facts) -> Decoder:
    """GLM-5.3-Flash: Kimi delta attention, latent attention with an index of pooled keys, residual streams."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("mla_use_nope", "index_share_for_mtp_iteration", "index_kpool_always_select_tail")
    if not f.flag("mhc", default=True):
        f.fail("mhc", "true: without residual streams the model is another one")
    if not f.flag("index_kpool_compress", default=True):
        f.fail("index_kpool_compress", "true: an index over pools without weights is not modelled")
    delta, _ = _delta(f, hidden)
    pool = f.count("index_kpool")
    f.divides(pool, f.count("index_topk"), "index_kpool must divide index_topk")
    picked = indexed(f, hidden, count, pool=pool)
    kinds = f.per_layer("layer_types", count, (LINEAR, FULL, *INDEXED))
    attentions: list[Attention] = [
        delta if kind == LINEAR else attention for kind, attention in zip(kinds, picked, strict=True)
    ]
    layers = layers_of(f, attentions, hidden, routed(f, hidden, router_bias=True))
    streams = mixing(hidden, f.count("hc_mult"))
    layers = [replace(layer, norm_params=layer.norm_params + streams) for layer in layers]
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))
