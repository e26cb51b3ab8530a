"""Experts as DeepSeek has them (routed, shared, a dense beginning) under grouped-query attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.families.moe import alternating, dense_part
from cost.config.parts import (
    draft_layers,
    expert_count,
    expert_layers,
    gated,
    grouped_query,
    moe,
    windows_by_type,
)


@family("glm4_moe", "glm4v_moe_text", "dots1", "solar_open")
def deepseek_like(f: Facts) -> Decoder:
    """GLM-4.5, GLM-4.5V, dots.llm1 and Solar Open: DeepSeek's experts under grouped-query attention."""
    kind = f.config.get("model_type")
    hidden, count = f.count("hidden_size"), f.layers()
    inner, shared = f.count("moe_intermediate_size"), f.whole("n_shared_experts")
    f.ignore("max_window_layers", "use_sliding_window")
    dense_first = 0 if kind == "solar_open" else None
    sparse = expert_layers(f, count, default_dense=dense_first)
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "n_routed_experts", "num_experts", "num_local_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner * shared),
        router_bias=True,
        groups=True,
    )
    bias = f.flag("attention_bias", default=False)
    normed = kind == "dots1" or f.flag("use_qk_norm", default=False)
    attention = grouped_query(
        f,
        hidden,
        kv_heads_required=True,
        qkv_bias=bias,
        out_bias=bias and kind == "dots1",
        qk_norm="head" if normed else "",
    )
    windows: Sequence[int | None] = [None] * count
    if kind == "dots1" and f.has("layer_types"):
        windows = windows_by_type(f, count)
    f.ignore("sliding_window")
    attentions = [replace(attention, window=window) for window in windows]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


@family("ernie4_5_moe")
def ernie_moe(f: Facts) -> Decoder:
    """ERNIE 4.5 with experts from ``moe_layer_start_index`` on, a correction bias in the router; tied."""
    hidden, count = f.count("hidden_size"), f.layers()
    first = f.whole("moe_layer_start_index")
    last = f.whole("moe_layer_end_index", default=count - 1)
    every = f.count("moe_layer_interval")
    sparse = [first <= index <= last and (index + 1) % every == 0 for index in range(count)]
    inner, bias = f.count("moe_intermediate_size"), f.flag("use_bias", default=False)
    f.ignore(
        "moe_use_aux_free",
        "moe_gate",
        "moe_capacity",
        "use_moe",
        "moe_group",
        "moe_multimodal_dispatch_use_allgather",
    )
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "moe_num_experts"),
        top_k=f.count("moe_k"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner * f.whole("moe_num_shared_experts", default=0), bias=False),
        router_bias=True,
    )
    if bias:
        f.fail("use_bias", "false: biases of ERNIE's experts are not modelled")
    attention = grouped_query(f, hidden, kv_heads_required=True)
    layers = alternating([attention] * count, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=True, omitted=draft_layers(f))


@family("bailing_moe", "bailing_moe_v2")
def bailing(f: Facts) -> Decoder:
    """Ling and Ring 1 and 2 (remote code): DeepSeek's experts under grouped-query attention."""
    # Ling 2.0 keeps the first one's model_type; only the second has a flag for the router's bias.
    second = f.has("moe_router_enable_expert_bias")
    hidden, count = f.count("hidden_size"), f.layers()
    inner, shared = f.count("moe_intermediate_size"), f.whole("num_shared_experts", default=0)
    shared_inner = f.count("moe_shared_expert_intermediate_size", default=inner)
    f.ignore(
        "norm_head",
        "norm_softmax",
        "multi_gate",
        "moe_router_enable_routed_scaling",
        "moe_router_topk_scaling_factor",
    )
    if f.config.get("multi_gate"):
        f.fail("multi_gate", "null: several routers a layer are not modelled")
    sparse = expert_layers(f, count, default_dense=0)
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "num_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, shared_inner * shared),
        router_bias=second and f.flag("moe_router_enable_expert_bias"),
        groups=second,
    )
    normed = f.flag("use_qk_norm") if second else f.flag("use_qk_norm", default=False)
    attention = grouped_query(
        f,
        hidden,
        kv_heads_required=True,
        qkv_bias=f.flag("use_qkv_bias", default=False),
        out_bias=f.flag("use_bias", default=False),
        qk_norm="head" if normed else "",
    )
    layers = alternating([attention] * count, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))
