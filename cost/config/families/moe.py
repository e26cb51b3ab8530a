"""Decoders with grouped-query attention and routed experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.attention.grouped import GroupedQuery
from cost.config.decoder import Decoder, decoder, family
from cost.config.families.llama import switched_windows, window_everywhere
from cost.config.parts import (
    draft_layers,
    expert_count,
    gated,
    grouped_query,
    moe,
    windows_by_type,
)
from cost.model import DenseFfn, Layer, MoeFfn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.config.facts import Facts
    from cost.model import Ffn

EXPERT_NAMES = ("num_local_experts", "num_experts")


def alternating(
    attentions: Sequence[GroupedQuery],
    sparse: Sequence[bool],
    routed: MoeFfn,
    dense: DenseFfn | None,
    norm: int,
) -> list[Layer]:
    """Put a layer's attention together with its experts or its dense part; ``norm`` weights of norms each."""
    layers = []
    for attention, has_experts in zip(attentions, sparse, strict=True):
        ffn: Ffn | None = routed if has_experts else dense
        if ffn is None:
            message = "a layer without experts needs a dense part"
            raise AssertionError(message)
        layers.append(Layer(attention, ffn, norm))
    return layers


def sparse_steps(f: Facts, layers: int) -> list[bool]:
    """Qwen's rule: every ``decoder_sparse_step``-th layer has experts, except ``mlp_only_layers``."""
    step = f.count("decoder_sparse_step", default=1)
    dense = f.layer_ids("mlp_only_layers", layers)
    sparse = [(index + 1) % step == 0 and index not in dense for index in range(layers)]
    if not any(sparse):
        f.refuse("decoder_sparse_step and mlp_only_layers leave no layer with experts.")
    return sparse


def dense_part(f: Facts, hidden: int, sparse: Sequence[bool], *, bias: bool = False) -> DenseFfn | None:
    """Read the dense part where a layer needs one."""
    if all(sparse):
        f.ignore("intermediate_size")
        return None
    return DenseFfn(gated(hidden, f.count("intermediate_size"), bias=bias))


def _gated_experts(f: Facts, hidden: int) -> MoeFfn:
    """Read gated experts as wide as ``intermediate_size``, in place of each feed-forward part."""
    return moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
    )


@family("mixtral")
def mixtral(f: Facts) -> Decoder:
    """Mixtral: a layer of eight experts in place of each feed-forward part."""
    hidden = f.count("hidden_size")
    experts = _gated_experts(f, hidden)
    layers = [
        Layer(grouped_query(f, hidden, kv_heads_required=True, window=window), experts, 2 * hidden)
        for window in window_everywhere(f)
    ]
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("qwen2_moe")
def qwen2_moe(f: Facts) -> Decoder:
    """Qwen 1.5 and 2 with experts: biases on queries, keys, values; a shared expert with its own gate."""
    hidden, count = f.count("hidden_size"), f.layers()
    sparse = sparse_steps(f, count)
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("moe_intermediate_size")),
        shared_params=gated(hidden, f.count("shared_expert_intermediate_size")) + hidden,
    )
    bias = f.flag("qkv_bias", default=True)
    attentions = [
        grouped_query(f, hidden, kv_heads_required=True, qkv_bias=bias, window=window)
        for window in switched_windows(f)
    ]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("qwen3_moe", "qwen3_vl_moe_text")
def qwen3_moe(f: Facts) -> Decoder:
    """Qwen 3 with experts: norms of queries and keys a head, no shared expert."""
    hidden, count = f.count("hidden_size"), f.layers()
    sparse = sparse_steps(f, count)
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("moe_intermediate_size")),
    )
    bias = f.flag("attention_bias", default=False)
    if not f.flag("use_qk_norm", default=True):
        f.fail("use_qk_norm", "true or absent: Qwen 3 norms queries and keys")
    attentions = [
        grouped_query(
            f, hidden, kv_heads_required=True, qkv_bias=bias, out_bias=bias, qk_norm="head", window=window
        )
        for window in switched_windows(f)
    ]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("olmoe", "flex_olmo")
def olmoe(f: Facts) -> Decoder:
    """OLMoE and FlexOlmo: queries and keys normed over all heads."""
    hidden = f.count("hidden_size")
    experts = _gated_experts(f, hidden)
    bias = f.flag("attention_bias", default=False)
    attention = grouped_query(f, hidden, qkv_bias=bias, out_bias=bias, qk_norm="full")
    layers = [Layer(attention, experts, 2 * hidden)] * f.layers()
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("phimoe")
def phimoe(f: Facts) -> Decoder:
    """Phi-3.5-MoE: norms with bias, and a head with bias where the config says so."""
    hidden = f.count("hidden_size")
    experts = _gated_experts(f, hidden)
    bias = f.flag("attention_bias")
    layers = [
        Layer(
            grouped_query(f, hidden, kv_heads_required=True, qkv_bias=bias, out_bias=bias, window=window),
            experts,
            4 * hidden,
        )
        for window in window_everywhere(f)
    ]
    head_bias = f.flag("lm_head_bias")
    return decoder(f, hidden, layers, final_norm=2 * hidden, tied=False, head_bias=head_bias)


@family("granitemoe", "granitemoeshared")
def granitemoe(f: Facts) -> Decoder:
    """Granite 3 with experts, in one of its forms with a shared one."""
    hidden = f.count("hidden_size")
    shared = f.whole("shared_intermediate_size", default=0)
    if shared and f.config.get("model_type") == "granitemoe":
        f.fail("shared_intermediate_size", "absent in a granitemoe model; granitemoeshared has it")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
        shared_params=gated(hidden, shared),
    )
    bias = f.flag("attention_bias", default=False)
    attention = grouped_query(f, hidden, kv_heads_required=True, qkv_bias=bias, out_bias=bias)
    layers = [Layer(attention, experts, 2 * hidden)] * f.layers()
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("dbrx")
def dbrx(f: Facts) -> Decoder:
    """DBRX: its own names for everything, norms without bias."""
    hidden, heads, count = f.count("d_model"), f.count("n_heads"), f.layers("n_layers")
    attn, ffn = f.section("attn_config"), f.section("ffn_config")
    head_dim = f.divides(heads, hidden, "n_heads must divide d_model")
    kv_heads = attn.count("kv_n_heads")
    f.divides(kv_heads, heads, "attn_config.kv_n_heads must divide n_heads")
    if f.count("num_key_value_heads", default=kv_heads) != kv_heads:
        f.fail("num_key_value_heads", f"attn_config.kv_n_heads ({kv_heads}), or absent")
    attention = GroupedQuery(hidden, heads, kv_heads, head_dim, head_dim)
    experts = moe(
        f,
        hidden,
        experts=ffn.count("moe_num_experts"),
        top_k=ffn.count("moe_top_k"),
        expert_params=gated(hidden, ffn.count("ffn_hidden_size")),
    )
    layers = [Layer(attention, experts, 2 * hidden)] * count
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("gpt_oss")
def gpt_oss(f: Facts) -> Decoder:
    """gpt-oss: biases everywhere, experts included; a sink a head; every second layer sees a window."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("experts_per_token")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok", "experts_per_token"),
        expert_params=gated(hidden, f.count("intermediate_size"), bias=True),
        router_bias=True,
    )
    bias = f.flag("attention_bias")
    layers = [
        Layer(
            grouped_query(
                f,
                hidden,
                kv_heads_required=True,
                head_dim_required=True,
                qkv_bias=bias,
                out_bias=bias,
                sinks=True,
                window=window,
            ),
            experts,
            2 * hidden,
        )
        for window in windows_by_type(f, count)
    ]
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("minimax_m2")
def minimax_m2(f: Facts) -> Decoder:
    """MiniMax M2: queries and keys normed over all heads, a correction bias in the router."""
    hidden, count = f.count("hidden_size"), f.layers()
    if f.has("attn_type_list"):
        f.per_layer("attn_type_list", count, (1,))
    f.ignore("qk_norm_type", "rotary_dim", "attention_bias")
    shared = f.whole("shared_intermediate_size", default=0)
    if shared:
        f.fail("shared_intermediate_size", "0: a shared expert of MiniMax M2 is not modelled")
    if not f.flag("use_qk_norm", default=True):
        f.fail("use_qk_norm", "true")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
        router_bias=f.flag("use_routing_bias", default=True),
    )
    attention = grouped_query(f, hidden, kv_heads_required=True, head_dim_required=True, qk_norm="full")
    layers = [Layer(attention, experts, 2 * hidden)] * count
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))
