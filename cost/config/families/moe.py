"""Decoders with grouped-query attention and routed experts."""

from __future__ import annotations

from collections.abc import Sequence

from cost.attention.grouped import BlockSparse, GroupedQuery
from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.families.llama import switched_windows, window_everywhere
from cost.config.parts import (
    FULL,
    draft_layers,
    expert_count,
    expert_layers,
    gated,
    grouped_query,
    moe,
    windows_by_type,
)
from cost.config.unread import check_unread
from cost.model import DenseFfn, Ffn, Layer, MoeFfn

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


_SPARSE = "minimax_m3_sparse"


@family("minimax_m3", "minimax_m3_vl_text")
def minimax_m3(f: Facts) -> Decoder:
    """MiniMax M3: dense layers first, then experts under attention to blocks that an index picks."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("use_gemma_norm", "rotary_dim")
    if f.flag("attention_output_gate", default=False) or not f.flag("use_qk_norm", default=True):
        f.refuse("a gate of attention's output, or queries and keys without norm, are not modelled.")
    f.choice("qk_norm_type", ("per_head",), "per_head")
    if f.whole("n_shared_experts", default=1) != 1:
        f.fail("n_shared_experts", "1: shared_intermediate_size is the width of one")
    experts = moe(
        f,
        hidden,
        experts=expert_count(f, *EXPERT_NAMES),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(hidden, f.count("intermediate_size")),
        shared_params=gated(hidden, f.count("shared_intermediate_size")),
        router_bias=f.flag("use_routing_bias", default=True),
    )
    if not f.has("mlp_layer_types"):
        f.items("moe_layer_freq")
    sparse = expert_layers(f, count, default_dense=0)
    dense = DenseFfn(0 if all(sparse) else gated(hidden, f.count("dense_intermediate_size")))
    f.ignore("dense_intermediate_size")
    layers = alternating(_m3_attentions(f, hidden, count), sparse, experts, dense, 2 * hidden)
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


def _m3_attentions(f: Facts, hidden: int, count: int) -> list[GroupedQuery]:
    """One attention a layer: full, or of blocks; the index's keys are in a section of the config or in flat keys."""
    full = grouped_query(f, hidden, kv_heads_required=True, head_dim_required=True, qk_norm="head")
    flags, index = _m3_index(f, count)
    if not any(flags):
        return [full] * count
    heads, dim, block, top = (
        index.count(flat if index is f else within)
        for flat, within in (
            ("index_n_heads", "sparse_num_index_heads"),
            ("index_head_dim", "sparse_index_dim"),
            ("index_block_size", "sparse_block_size"),
            ("index_topk_blocks", "sparse_topk_blocks"),
        )
    )
    local = index.whole("index_local_blocks" if index is f else "sparse_local_block", default=1)
    if index is not f:
        check_unread(index, "minimax_m3")
    if heads != full.kv_heads:
        f.refuse(
            f"the index has {heads} heads for {full.kv_heads} key-value heads; only one each is modelled."
        )
    if local > top:
        f.refuse(f"the index keeps {local} latest blocks, but a query reads only {top}.")
    picked = BlockSparse(
        **{**vars(full), "other_params": full.other_params + 2 * dim},
        index_heads=heads,
        index_dim=dim,
        block=block,
        top_blocks=top,
    )
    return [picked if flag else full for flag in flags]


def _m3_index(f: Facts, count: int) -> tuple[list[bool], Facts]:
    """Whether each layer reads blocks, and the section that describes the index (the config itself where flat)."""
    if f.has("sparse_attention_config"):
        section = f.section("sparse_attention_config")
        if not section.flag("use_sparse_attention", default=True):
            return [False] * count, section
        flags = [flag == 1 for flag in section.per_layer("sparse_attention_freq", count, (0, 1))]
        section.choice("sparse_score_type", ("max",), "max")
        if section.whole("sparse_init_block", default=0):
            section.fail("sparse_init_block", "0: blocks at the start that are always read are not modelled")
        if section.has("sparse_disable_index_value"):
            without = section.per_layer("sparse_disable_index_value", count, (0, 1))
            if any(flag and off != 1 for flag, off in zip(flags, without, strict=True)):
                section.fail(
                    "sparse_disable_index_value",
                    "1 in every sparse layer: values of the index are not modelled",
                )
        if (
            f.has("layer_types")
            and [k == _SPARSE for k in f.per_layer("layer_types", count, (FULL, _SPARSE))] != flags
        ):
            f.fail("layer_types", "what sparse_attention_freq says, or absent")
        return flags, section
    return [kind == _SPARSE for kind in f.per_layer("layer_types", count, (FULL, _SPARSE))], f
