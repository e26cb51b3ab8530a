"""Tencent's Hunyuan: dense and with experts."""

from __future__ import annotations

from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.families.llama import dense
from cost.config.families.moe import alternating, dense_part
from cost.config.parts import (
    draft_layers,
    expert_count,
    expert_layers,
    gated,
    grouped_query,
    moe,
)
from cost.model import Layer


def hunyuan_leftovers(f: Facts) -> None:
    """Set aside what Hunyuan's configs carry over from other models, and refuse what would matter."""
    if f.flag("use_cla", default=False):
        f.fail("use_cla", "false: layers that share keys and values are not modelled")
    if not f.flag("use_qk_norm", default=True):
        f.fail("use_qk_norm", "true or absent: this family norms queries and keys")
    f.ignore(
        "cla_share_factor", "attention_head_dim", "dense_list", "class_num", "pool_type", "org_vocab_size"
    )
    f.ignore("num_media_embeds", "use_rotary_pos_emb", "vit_type", "vit_patch", "vit_path", "kv_lora_rank")
    f.ignore("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "use_mla")
    if f.flag("use_mla", default=False):
        f.fail("use_mla", "false")


@family("hunyuan_v1_dense")
def hunyuan_dense(f: Facts) -> Decoder:
    """Hunyuan dense: norms of queries and keys a head."""
    hunyuan_leftovers(f)
    bias = f.flag("attention_bias", default=False)
    return dense(f, qkv_bias=bias, out_bias=bias, qk_norm="head", kv_heads_required=True)


@family("hunyuan_v1_moe")
def hunyuan_moe(f: Facts) -> Decoder:
    """Hunyuan-A13B: one shared feed-forward part as wide as an expert; lists with one entry a layer."""
    hidden, count = f.count("hidden_size"), f.layers()
    inner = f.count("intermediate_size")
    for key, allowed in (("moe_intermediate_size", inner), ("num_shared_expert", 1)):
        if f.has(key) and f.config[key] != allowed:
            f.per_layer(key, count, (allowed,))
    hunyuan_leftovers(f)
    f.ignore("use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token")
    f.ignore("capacity_factor", "group_limited_greedy")
    if f.whole("moe_layer_num_skipped", default=0):
        f.fail("moe_layer_num_skipped", "0: dense layers among Hunyuan's experts are not modelled")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "num_experts"),
        top_k=_same_in_all(f, "moe_topk", count),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner),
    )
    bias = f.flag("attention_bias", default=False)
    attention = grouped_query(f, hidden, kv_heads_required=True, qkv_bias=bias, out_bias=bias, qk_norm="head")
    layers = [Layer(attention, experts, 2 * hidden)] * count
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


def _same_in_all(f: Facts, key: str, layers: int) -> int:
    """Return a number that is given once, or once a layer and always the same."""
    if f.has(key) and isinstance(f.config[key], list):
        values = f.items(key)
        if not values:
            f.fail(key, "a number or one number a layer")
        f.per_layer(key, layers, (values[0],))
        f.config = {**f.config, key: values[0]}
    return f.count(key)


@family("hy_v3")
def hunyuan_v3(f: Facts) -> Decoder:
    """Hunyuan 3: norms of queries and keys a head, DeepSeek's experts and router bias."""
    hidden, count = f.count("hidden_size"), f.layers()
    inner = f.count("moe_intermediate_size")
    sparse = expert_layers(f, count)
    mlp_bias = f.flag("mlp_bias", default=False)
    if mlp_bias:
        f.fail("mlp_bias", "false")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, "num_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, inner),
        shared_params=gated(hidden, inner * f.whole("num_shared_experts")),
        router_bias=True,
    )
    bias = f.flag("attention_bias", default=False)
    attention = grouped_query(
        f,
        hidden,
        kv_heads_required=True,
        head_dim_required=True,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
    )
    layers = alternating([attention] * count, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))
