"""Qwen3-Next and Qwen3.5: three layers of linear attention for one of gated full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.attention.linear import GatedDelta
from cost.config.decoder import Decoder, decoder, family
from cost.config.families.moe import dense_part, sparse_steps
from cost.config.parts import FULL, draft_layers, expert_count, gated, grouped_query, moe
from cost.model import DenseFfn, Layer

if TYPE_CHECKING:
    from cost.config.facts import Facts
    from cost.model import Attention, Ffn

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
