"""Decoders with grouped-query attention and routed experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.attention.grouped import GroupedQuery
from cost.config.decoder import Decoder, decoder, family
from cost.config.families.llama import switched_windows, window_everywhere
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
from cost.model import DenseFfn, Layer, MoeFfn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.config.facts import Facts
    from cost.model import Ffn

_EXPERT_NAMES = ("num_local_experts", "num_experts")


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


@family("mixtral")
def mixtral(f: Facts) -> Decoder:
    """Mixtral: a layer of eight experts in place of each feed-forward part."""
    hidden = f.count("hidden_size")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *_EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
    )
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
        experts=expert_count(f, *_EXPERT_NAMES),
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
        experts=expert_count(f, *_EXPERT_NAMES),
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
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *_EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
    )
    bias = f.flag("attention_bias", default=False)
    attention = grouped_query(f, hidden, qkv_bias=bias, out_bias=bias, qk_norm="full")
    layers = [Layer(attention, experts, 2 * hidden)] * f.layers()
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("phimoe")
def phimoe(f: Facts) -> Decoder:
    """Phi-3.5-MoE: norms with bias, and a head with bias where the config says so."""
    hidden = f.count("hidden_size")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *_EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
    )
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
        experts=expert_count(f, *_EXPERT_NAMES),
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
        experts=expert_count(f, *_EXPERT_NAMES),
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
        experts=expert_count(f, *_EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
        router_bias=f.flag("use_routing_bias", default=True),
    )
    attention = grouped_query(f, hidden, kv_heads_required=True, head_dim_required=True, qk_norm="full")
    layers = [Layer(attention, experts, 2 * hidden)] * count
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


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
        experts=expert_count(f, *_EXPERT_NAMES),
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
    attentions = [_with_window(attention, window) for window in windows]
    layers = alternating(attentions, sparse, experts, dense_part(f, hidden, sparse), 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


def _with_window(attention: GroupedQuery, window: int | None) -> GroupedQuery:
    return GroupedQuery(**{**vars(attention), "window": window})


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


@family("hunyuan_v1_moe")
def hunyuan_moe(f: Facts) -> Decoder:
    """Hunyuan-A13B: one shared feed-forward part as wide as an expert; lists with one entry a layer."""
    hidden, count = f.count("hidden_size"), f.layers()
    inner = f.count("intermediate_size")
    for key, allowed in (("moe_intermediate_size", inner), ("num_shared_expert", 1)):
        if f.has(key) and f.config[key] != allowed:
            f.per_layer(key, count, (allowed,))
    f.ignore(
        "use_mixed_mlp_moe", "moe_layer_num_skipped", "use_qk_norm", "cla_share_factor", "attention_head_dim"
    )
    f.ignore(
        "moe_drop_tokens",
        "moe_random_routing_dropped_token",
        "capacity_factor",
        "group_limited_greedy",
        "use_cla",
    )
    if f.config.get("moe_layer_num_skipped") or f.config.get("use_cla"):
        f.refuse("moe_layer_num_skipped or use_cla (keys and values shared between layers) is not modelled.")
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
