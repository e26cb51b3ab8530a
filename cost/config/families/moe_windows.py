"""Experts under attention that mixes windows or chunks with layers that see everything."""

from __future__ import annotations

from cost.attention.grouped import GroupedQuery
from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.families.moe import EXPERT_NAMES, alternating, dense_part
from cost.config.parts import (
    draft_layers,
    expert_count,
    expert_layers,
    gated,
    grouped_query,
    interval_windows,
    moe,
    windows_by_type,
)
from cost.model import DenseFfn


@family("llama4_text")
def llama4(f: Facts) -> Decoder:
    """Llama 4: experts in every n-th layer with a shared one, three of four layers see one chunk."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("use_qk_norm", "attn_temperature_tuning", "for_llm_compressor")
    if f.has("moe_layers"):
        listed = f.layer_ids("moe_layers", count)
        f.ignore("interleave_moe_layer_step")
    else:
        step = f.count("interleave_moe_layer_step")
        listed = frozenset(range(step - 1, count, step))
    sparse = [index in listed for index in range(count)]
    inner = f.count("intermediate_size")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner),
    )
    if all(sparse):
        f.ignore("intermediate_size_mlp")
        dense = None
    else:
        dense = DenseFfn(gated(hidden, f.count("intermediate_size_mlp")))
    bias = f.flag("attention_bias", default=False)
    attentions = [
        grouped_query(
            f,
            hidden,
            kv_heads_required=True,
            head_dim_required=True,
            qkv_bias=bias,
            out_bias=bias,
            window=window,
            chunked=window is not None,
        )
        for window in _llama4_chunks(f, count)
    ]
    layers = alternating(attentions, sparse, experts, dense, 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


def _llama4_chunks(f: Facts, layers: int) -> list[int | None]:
    """Return each layer's chunk: layers with positions (``no_rope_layers``, else three of four) have one."""
    f.ignore("attention_chunk_size", "no_rope_layers", "no_rope_layer_interval")
    if f.has("layer_types"):
        kinds = f.per_layer("layer_types", layers, ("chunked_attention", "full_attention"))
        chunked = [kind == "chunked_attention" for kind in kinds]
    elif f.has("no_rope_layers") and f.items("no_rope_layers"):
        chunked = [flag == 1 for flag in f.per_layer("no_rope_layers", layers, (0, 1))]
    else:
        every = f.count("no_rope_layer_interval", default=4)
        chunked = [(index + 1) % every != 0 for index in range(layers)]
    chunk = f.count_or_none("attention_chunk_size")
    return [chunk if flag else None for flag in chunked]


@family("exaone_moe")
def exaone_moe(f: Facts) -> Decoder:
    """K-EXAONE: EXAONE 4's attention with DeepSeek's experts."""
    hidden, count = f.count("hidden_size"), f.layers()
    inner = f.count("moe_intermediate_size")
    f.ignore("sliding_window_pattern")
    windowed = f.has("layer_types") or f.has("sliding_window")
    windows = windows_by_type(f, count) if windowed else [None] * count
    sparse = expert_layers(f, count)
    f.ignore("first_k_dense_replace")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "num_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner * f.whole("num_shared_experts")),
        router_bias=True,
        groups=True,
    )
    attentions = [
        grouped_query(f, hidden, kv_heads_required=True, qk_norm="head", window=window) for window in windows
    ]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


@family("afmoe")
def afmoe(f: Facts) -> Decoder:
    """Arcee Trinity: gated attention, four norms a layer, a window in three of four layers."""
    hidden, count = f.count("hidden_size"), f.layers()
    inner, dense_first = f.count("moe_intermediate_size"), f.whole("num_dense_layers")
    default = interval_windows(count, f.count("global_attn_every_n_layers"))
    if f.flag("attention_bias", default=False):
        f.fail("attention_bias", "false")
    f.ignore("num_expert_groups", "num_limited_groups", "n_group", "topk_group")
    sparse = [index >= dense_first for index in range(count)]
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "num_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner * f.whole("num_shared_experts")),
        router_bias=True,
    )
    attentions = [
        grouped_query(
            f,
            hidden,
            kv_heads_required=True,
            head_dim_required=True,
            qk_norm="head",
            gate=True,
            window=window,
        )
        for window in windows_by_type(f, count, default)
    ]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 4 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("mimo_v2_flash")
def mimo_v2_flash(f: Facts) -> Decoder:
    """MiMo-V2-Flash: values narrower than keys; layers with a window have more key heads, and sinks."""
    hidden, count = f.count("hidden_size"), f.layers()
    inner, heads = f.count("moe_intermediate_size"), f.count("num_attention_heads")
    for key, same in (("swa_num_attention_heads", heads), ("swa_head_dim", None), ("swa_v_head_dim", None)):
        expected = f.count(key.removeprefix("swa_")) if same is None else same
        if f.has(key) and f.count(key) != expected:
            f.fail(key, f"{expected}, as in the other layers")
    if f.flag("attention_bias", default=False) or f.flag("add_full_attention_sink_bias", default=False):
        f.refuse("biases of attention, or sinks in layers without a window, are not modelled.")
    if f.whole("n_shared_experts", default=0) or not f.flag("add_swa_attention_sink_bias", default=True):
        f.refuse("shared experts, or layers with a window but without sinks, are not modelled.")
    f.ignore("sliding_window_size", "attention_chunk_size")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "n_routed_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        router_bias=True,
        groups=True,
    )
    if not f.has("mlp_layer_types"):
        f.items("moe_layer_freq")
    sparse = expert_layers(f, count, default_dense=0)
    attentions = [_mimo_attention(f, hidden, windowed=windowed) for windowed in _mimo_windows(f, count)]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


def _mimo_windows(f: Facts, layers: int) -> list[bool]:
    """Whether each layer sees a window: ``layer_types``, or 1 in ``hybrid_layer_pattern``."""
    if f.has("layer_types"):
        return [window is not None for window in windows_by_type(f, layers)]
    return [flag == 1 for flag in f.per_layer("hybrid_layer_pattern", layers, (0, 1))]


def _mimo_attention(f: Facts, hidden: int, *, windowed: bool) -> GroupedQuery:
    heads, kv_heads = f.count("num_attention_heads"), f.count("num_key_value_heads")
    # The class without the key doubles the key heads of layers with a window.
    windowed_heads = f.count("swa_num_key_value_heads", default=2 * kv_heads)
    if windowed:
        kv_heads = windowed_heads
    f.divides(kv_heads, heads, "the key and value heads must divide num_attention_heads")
    return GroupedQuery(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=f.count("head_dim"),
        value_dim=f.count("v_head_dim"),
        window=f.count("sliding_window") if windowed else None,
        other_params=heads if windowed else 0,
    )
