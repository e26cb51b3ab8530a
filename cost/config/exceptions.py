"""What no row of the table says of single families: blocks that an index picks, layers of several shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.attention.grouped import BlockSparse, GroupedQuery
from cost.config.facts import Facts
from cost.config.family import (
    FULL,
    SLIDING,
    Count,
    Grouped,
    Routed,
    feed_forward,
    windows_by_type,
)
from cost.config.unmodelled import check_unread
from cost.model import Attention, DenseFfn, Ffn

# Blocks that an index picks: MiniMax M3.

_BLOCKS = "minimax_m3_sparse"
# By key of the config, that of its section `sparse_attention_config`.
_BLOCK_KEYS = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
}


def m3_attention(f: Facts, hidden: int, layers: int) -> Sequence[GroupedQuery]:
    """Full attention, or of blocks; the index's keys are in a section of the config or in flat keys."""
    full = Grouped(kv_heads_required=True, head_dim_required=True, qk_norm="head").one(f, hidden)
    flags, index = _m3_index(f, layers)
    if not any(flags):
        return [full] * layers
    heads, dim, block, top = (index.count(a if index is f else b) for a, b in _BLOCK_KEYS.items())
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


def _m3_index(f: Facts, layers: int) -> tuple[list[bool], Facts]:
    """Whether each layer reads blocks, and the section that describes the index (the config itself where flat)."""
    if not f.has("sparse_attention_config"):
        return f.layers_with("layer_types", layers, _BLOCKS, FULL), f
    section = f.sub("sparse_attention_config")
    if not section.flag("use_sparse_attention", default=True):
        return [False] * layers, section
    flags = section.layers_with("sparse_attention_freq", layers, 1, 0)
    section.choice("sparse_score_type", ("max",), "max")
    if section.whole("sparse_init_block", default=0):
        section.must_be("sparse_init_block", "0: blocks at the start that are always read are not modelled")
    if section.has("sparse_disable_index_value"):
        without = section.layers_with("sparse_disable_index_value", layers, 1, 0)
        if any(flag and not off for flag, off in zip(flags, without, strict=True)):
            section.must_be(
                "sparse_disable_index_value", "1 in every sparse layer: values of the index are not modelled"
            )
    if f.has("layer_types") and f.layers_with("layer_types", layers, _BLOCKS, FULL) != flags:
        f.must_be("layer_types", "what sparse_attention_freq says, or absent")
    return flags, section


# Windows and chunks over unlike heads: Llama 4, MiMo-V2-Flash, Gemma 4.


def llama4_chunks(f: Facts, layers: int) -> list[int | None]:
    """Return each layer's chunk: layers with positions (``no_rope_layers``, else three of four) have one."""
    f.ignore("attention_chunk_size", "no_rope_layers", "no_rope_layer_interval")
    if f.has("layer_types"):
        chunked = f.layers_with("layer_types", layers, "chunked_attention", FULL)
    elif f.has("no_rope_layers") and f.items("no_rope_layers"):
        chunked = f.layers_with("no_rope_layers", layers, 1, 0)
    else:
        interval = f.count("no_rope_layer_interval", default=4)
        chunked = [(index + 1) % interval != 0 for index in range(layers)]
    chunk = f.count_or_none("attention_chunk_size")
    return [chunk if flag else None for flag in chunked]


def llama4_sparse(f: Facts, layers: int) -> list[bool]:
    """Whether each layer has experts: those listed, or every n-th."""
    if f.has("moe_layers"):
        f.ignore("interleave_moe_layer_step")
        return f.listed("moe_layers", layers)
    step = f.count("interleave_moe_layer_step")
    return [(index + 1) % step == 0 for index in range(layers)]


def checked_mimo(f: Facts) -> None:
    """Reject heads of layers with a window that are unlike the others' in more than their number of keys."""
    for key in ("num_attention_heads", "head_dim", "v_head_dim"):
        expected = f.count(key)
        if f.has(f"swa_{key}") and f.count(f"swa_{key}") != expected:
            f.must_be(f"swa_{key}", f"{expected}, as in the other layers")


def mimo_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Values narrower than keys; layers with a window have more key heads, and sinks."""
    if f.has("layer_types"):
        windowed = [window is not None for window in windows_by_type(f, layers)]
    else:
        windowed = f.layers_with("hybrid_layer_pattern", layers, 1, 0)
    heads, kv_heads = f.count("num_attention_heads"), f.count("num_key_value_heads")
    # The class without the key doubles the key heads of layers with a window.
    by_window = {False: kv_heads, True: f.count("swa_num_key_value_heads", default=2 * kv_heads)}
    for flag in windowed:
        f.divides(by_window[flag], heads, "the key and value heads must divide num_attention_heads")
    return [
        GroupedQuery(
            hidden=hidden,
            heads=heads,
            kv_heads=by_window[flag],
            head_dim=f.count("head_dim"),
            value_dim=f.count("v_head_dim"),
            window=f.count("sliding_window") if flag else None,
            other_params=heads if flag else 0,
        )
        for flag in windowed
    ]


def checked_gemma4(f: Facts) -> None:
    """Reject a Gemma 4 that sees what follows, or does not say whether each layer has embeddings."""
    if f.has("use_bidirectional_attention") and f.text("use_bidirectional_attention") != "vision":
        f.must_be(
            "use_bidirectional_attention", "'vision' or null: a model that sees what follows does not decode"
        )
    # Absent is not off: this class has them on by default, the unified one never.
    if f.data.get("model_type") == "gemma4_text" and "hidden_size_per_layer_input" not in f.data:
        f.count("hidden_size_per_layer_input")
    f.ignore("vocab_size_per_layer_input")


def _gemma4_shared(f: Facts, layers: int) -> int:
    """Return how many of the last layers read the cache of the last one of their kind before them."""
    return f.whole("num_kv_shared_layers", default=0, most=layers - 1)


def gemma4_attention(f: Facts, hidden: int, layers: int) -> Sequence[GroupedQuery]:
    """Layers with a window, and wider ones that see everything; the last may have no cache of their own."""
    kinds = f.per_layer("layer_types", layers, (FULL, SLIDING))
    if kinds[-1] != FULL:
        f.must_be("layer_types", f"{FULL} in the last layer")
    first_shared = layers - _gemma4_shared(f, layers)
    heads = f.count("num_attention_heads")
    kv_heads = f.count("num_key_value_heads")
    alike = f.flag("attention_k_eq_v", default=False)
    wide_heads = kv_heads
    if alike and f.has("num_global_key_value_heads"):
        wide_heads = f.count("num_global_key_value_heads")
    for count in (kv_heads, wide_heads):
        f.divides(count, heads, "the key and value heads must divide num_attention_heads")
    narrow, wide, window = f.count("head_dim"), f.count("global_head_dim"), f.count("sliding_window")
    if first_shared < layers and set(kinds[:first_shared]) != set(kinds):
        f.must_be(
            "num_kv_shared_layers", "few enough that a layer of each kind comes before the ones that share"
        )
    return [
        GroupedQuery(
            hidden=hidden,
            heads=heads,
            kv_heads=wide_heads if kind == FULL else kv_heads,
            head_dim=(dim := wide if kind == FULL else narrow),
            value_dim=dim,
            window=None if kind == FULL else window,
            values_are_keys=alike and kind == FULL,
            own_cache=index < first_shared,
            other_params=2 * dim if index < first_shared else dim,
        )
        for index, kind in enumerate(kinds)
    ]


def gemma4_ffn(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """A dense part in each layer, counted as shared where experts stand beside it.

    A layer's own embedding is looked up with the token, gated and projected in its feed-forward part; its share of
    the projection from the token's embedding is counted there too.
    """
    inner, double = f.count("intermediate_size"), f.flag("use_double_wide_mlp", default=False)
    width = f.whole("hidden_size_per_layer_input", default=0)
    first_shared = layers - _gemma4_shared(f, layers)
    dense = [
        feed_forward(hidden, inner * (2 if double and index >= first_shared else 1)) + 3 * hidden * width
        for index in range(layers)
    ]
    f.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    if not f.flag("enable_moe_block", default=False):
        return [DenseFfn(params) for params in dense]
    experts = _GEMMA4_MOE.one(f, hidden)
    # a scale for each channel before the router, and for each expert after it
    scales = hidden + experts.experts
    return [
        replace(experts, shared_params=params, router_params=experts.router_params + scales)
        for params in dense
    ]


_GEMMA4_MOE = Routed(
    experts=Count("num_experts"),
    top_k=Count("top_k_experts"),
    width=Count("moe_intermediate_size", "expert_intermediate_size"),
)


def gemma4_besides(f: Facts, hidden: int) -> tuple[int, int]:
    """Norms of experts and of a layer's own embedding, and one number that scales the layer's output."""
    width = f.whole("hidden_size_per_layer_input", default=0)
    experts = 3 * hidden if f.flag("enable_moe_block", default=False) else 0
    return 1 + experts + (hidden if width else 0), width


def gemma4_embedding(f: Facts, hidden: int) -> int:  # noqa: ARG001 - as every rule of an embedding
    """Weights of the embeddings that each layer has of its own."""
    width = f.whole("hidden_size_per_layer_input", default=0)
    return f.count("vocab_size_per_layer_input") * f.layers() * width if width else 0


# What single families leave over from other models, or write in their own way.


def checked_mistral(f: Facts) -> None:
    """Reject a Mistral that says nothing of windows: the class default is 4,096, and later models mean none."""
    if "sliding_window" not in f.data and not f.has("layer_types"):
        f.count("sliding_window")


# Gemma 3's published multimodal configs leave out what equals the class default
# (gemma-3-4b-it gives neither heads nor vocabulary): `Gemma3TextConfig` in transformers 4.50 and later.
_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}


def with_gemma3_defaults(f: Facts) -> None:
    """Fill in what Gemma 3's published configs leave out."""
    f.data = {**_GEMMA3, **f.data}


def dbrx_attention(f: Facts, hidden: int, layers: int) -> Sequence[GroupedQuery]:
    """DBRX's attention without biases; a flat key may repeat the key and value heads."""
    heads, kv_heads = f.count("n_heads"), f.sub("attn_config").count("kv_n_heads")
    if f.count("num_key_value_heads", default=kv_heads) != kv_heads:
        f.must_be("num_key_value_heads", f"attn_config.kv_n_heads ({kv_heads}), or absent")
    dim = f.divides(heads, hidden, "the heads must divide the hidden size")
    f.divides(kv_heads, heads, "the key and value heads must divide the heads")
    return [GroupedQuery(hidden, heads, kv_heads, dim, dim)] * layers


def hunyuan_experts(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """Hunyuan-A13B: one shared part as wide as an expert; some keys are lists with one entry a layer."""
    inner = f.count("intermediate_size")
    for key, allowed in (("moe_intermediate_size", inner), ("num_shared_expert", 1)):
        if f.has(key) and f.data[key] != allowed:
            f.per_layer(key, layers, (allowed,))
    if f.has("moe_topk") and isinstance(f.data["moe_topk"], list):
        values = f.items("moe_topk")
        if not values:
            f.must_be("moe_topk", "a number or one number a layer")
        f.per_layer("moe_topk", layers, (values[0],))
        f.data = {**f.data, "moe_topk": values[0]}
    return _HUNYUAN_MOE(f, hidden, layers)


_HUNYUAN_MOE = Routed(
    experts=Count("num_experts"), top_k=Count("moe_topk"), width=Count("intermediate_size"), shared=1
)


def step_names(f: Facts) -> None:
    """Give Step's keys the names that others have, and leave out the layer types of draft layers."""
    f.rename(
        {
            "num_attention_groups": "num_key_value_heads",
            "moe_num_experts": "n_routed_experts",
            "moe_top_k": "num_experts_per_tok",
            "share_expert_dims": "share_expert_dim",
        }
    )
    layers = f.layers()
    drafts = f.whole("num_nextn_predict_layers", default=0)
    if f.has("layer_types") and len(f.items("layer_types")) == layers + drafts:
        f.data = {**f.data, "layer_types": f.data["layer_types"][:layers]}
    if f.has("moe_layers_enum") and isinstance(f.data["moe_layers_enum"], str):
        ids = [int(part) if part.strip().isdigit() else part for part in f.text("moe_layers_enum").split(",")]
        f.data = {**f.data, "moe_layers_enum": ids}


def step_attention(f: Facts, hidden: int, layers: int) -> Sequence[GroupedQuery]:
    """Full attention, and layers with a window whose heads are in ``attention_other_setting``; a gate a head."""
    setting = f.sub("attention_other_setting")
    setting.choice("attention_type", (SLIDING,))
    full = replace(_STEP_FULL.one(f, hidden), head_gated=f.flag("use_head_wise_attn_gate", default=False))
    heads, groups = setting.count("num_attention_heads"), setting.count("num_attention_groups")
    setting.divides(groups, heads, "num_attention_groups must divide num_attention_heads")
    if setting.count("head_dim") != full.head_dim:
        setting.must_be("head_dim", f"that of the other layers ({full.head_dim})")
    narrow = replace(full, heads=heads, kv_heads=groups)
    setting.ignore("true_head_dim")
    check_unread(setting, "step3p5")
    return [
        full if window is None else replace(narrow, window=window) for window in windows_by_type(f, layers)
    ]


_STEP_FULL = Grouped(kv_heads_required=True, head_dim_required=True, qk_norm="head")


def laguna_attention(f: Facts, hidden: int, layers: int) -> Sequence[GroupedQuery]:
    """Full attention and windows by ``layer_types``, heads by ``num_attention_heads_per_layer``; a gate a head."""
    f.ignore("gating")
    if f.has("gating_types"):
        f.per_layer("gating_types", layers, ("per_head",))
    if f.data.get("gating", True) not in (True, None, "per-head"):
        f.must_be("gating", "'per-head': a gate an element is not modelled")
    key = "num_attention_heads_per_layer"
    usual = replace(_STEP_FULL.one(f, hidden), head_gated=True)
    counts = f.items(key) if f.has(key) else [usual.heads] * layers
    if len(counts) != layers:
        f.must_be(key, f"a list with one entry for each of {layers} layers")
    attentions = []
    for heads, window in zip(counts, windows_by_type(f, layers), strict=True):
        of_layer = Facts({**f.data, "num_attention_heads": heads}, f"{f.where}: {key}")
        attentions.append(replace(_STEP_FULL.one(of_layer, hidden), head_gated=True, window=window))
    return attentions


def checked_minimax_m2(f: Facts) -> None:
    """Reject layers of another attention."""
    if f.has("attn_type_list"):
        f.per_layer("attn_type_list", f.layers(), (1,))


def is_ling_2(f: Facts) -> bool:
    """Whether this is Ling 2.0: it keeps the first one's model_type, and only it has a bias of the router."""
    return f.has("moe_router_enable_expert_bias")


def dots_windows(f: Facts, layers: int) -> list[int | None]:
    """Return dots.llm1's windows, which only ``layer_types`` says."""
    return windows_by_type(f, layers) if f.has("layer_types") else [None] * layers


def ernie_sparse(f: Facts, layers: int) -> list[bool]:
    """Whether each layer of ERNIE has experts: from a first to a last layer, every n-th."""
    start, interval = f.whole("moe_layer_start_index"), f.count("moe_layer_interval")
    end = f.whole("moe_layer_end_index", default=layers - 1)
    return [start <= index <= end and (index + 1) % interval == 0 for index in range(layers)]
