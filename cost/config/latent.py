"""DeepSeek's experts and attentions: latent, with an index over it, and compressed (V4); GLM-5 and Kimi K2 too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.attention.latent import CompressedAttention, IndexedLatent, Latent
from cost.config.facts import Facts
from cost.config.family import SLIDING, Count, Dense, Routed, after_first
from cost.model import Attention, Ffn

INDEXED = ("indexed_attention", "deepseek_sparse_attention")


def _shared_experts(f: Facts) -> int:
    if "n_shared_experts" not in f.data:
        f.count("n_shared_experts")  # absent is not null: its default differs between definitions
    return f.whole("n_shared_experts", default=0)


def _grouped_choice(f: Facts) -> bool:
    f.ignore("n_group", "topk_group")
    return f.data.get("topk_method") != "greedy"


DEEPSEEK_MOE = Routed(
    experts=Count("n_routed_experts", "num_experts", "num_local_experts"),
    shared=_shared_experts,
    groups=_grouped_choice,
    sparse=after_first,
)


def normed_experts(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """DeepSeek-V3's experts and a norm of their sum, which counts with the router."""
    rule = replace(DEEPSEEK_MOE, router_bias=True)
    experts = rule.one(f, hidden)
    experts = replace(experts, router_params=experts.router_params + hidden)
    return rule.in_layers(f, hidden, layers, experts)


_LONGCAT_MOE = Routed(
    experts=Count("n_routed_experts"),
    top_k=Count("moe_topk"),
    width=Count("expert_ffn_hidden_size"),
    router_bias=True,
)


def longcat_ffn(f: Facts, hidden: int, halves: int) -> Sequence[Ffn]:
    """LongCat's dense parts, one in each half of a layer; the experts stand beside the first.

    Some experts have no weights (they return the token), and a token uses the others as often as they are among all:
    the average that training holds it to (arXiv:2509.01322).
    """
    f.choice("zero_expert_type", ("identity",), "identity")
    dense, experts = Dense("ffn_hidden_size").one(f, hidden), _LONGCAT_MOE.one(f, hidden)
    empty = f.whole("zero_expert_num")
    used = f.divides(
        experts.experts + empty,
        experts.top_k * experts.experts,
        "moe_topk x n_routed_experts must be a multiple of all experts, those without weights among them",
    )
    router = experts.router_params + empty * (hidden + 1)
    beside = replace(experts, top_k=used, shared_params=dense.params, router_params=router)
    return [beside if half % 2 == 0 else dense for half in range(halves)]


def latent(f: Facts, hidden: int) -> Latent:
    """Read latent attention; ``q_lora_rank`` may be null, then queries are projected directly."""
    heads = f.count("num_attention_heads")
    f.ignore("num_key_value_heads", "head_dim")
    if "q_lora_rank" not in f.data:
        f.count("q_lora_rank")  # absent is not null: V2-Lite writes null where it has no rank
    q_rank = f.count_or_none("q_lora_rank")
    kv_rank, rope, nope = f.count("kv_lora_rank"), f.whole("qk_rope_head_dim"), f.count("qk_nope_head_dim")
    if f.has("qk_head_dim") and f.count("qk_head_dim") != nope + rope:
        f.must_be("qk_head_dim", f"qk_nope_head_dim + qk_rope_head_dim ({nope + rope})")
    norms = (q_rank or 0) + kv_rank
    biases = norms + rope + hidden if f.flag("attention_bias", default=False) else 0
    return Latent(
        hidden=hidden,
        heads=heads,
        q_rank=q_rank,
        kv_rank=kv_rank,
        nope=nope,
        rope=rope,
        value_dim=f.count("v_head_dim"),
        other_params=norms + biases,
    )


def latent_everywhere(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Latent attention in every layer."""
    return [latent(f, hidden)] * layers


def indexed(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Latent attention whose tokens an index picks, in every layer."""
    if f.has("layer_types"):
        f.per_layer("layer_types", layers, INDEXED)
    return indexed_latent(f, hidden, layers)


def indexed_latent(f: Facts, hidden: int, layers: int, *, pool: int = 1) -> list[IndexedLatent]:
    """Read latent attention with an index for each layer; ``pool``: tokens that a key of the index stands for."""
    base = latent(f, hidden)
    if base.q_rank is None:
        f.must_be("q_lora_rank", "a number: the index takes its queries from that latent")
    dim = f.count("index_head_dim")
    pooling = pool * dim if pool > 1 else 0  # the weight of each place in a pool
    return [
        IndexedLatent(
            **{**vars(base), "other_params": base.other_params + (2 * dim + pooling if own_index else 0)},
            index_heads=f.count("index_n_heads"),
            index_dim=dim,
            top_k=f.count("index_topk"),
            own_index=own_index,
            pool=pool,
        )
        for own_index in _own_index(f, layers)
    ]


def _own_index(f: Facts, layers: int) -> list[bool]:
    """Whether each layer has an index of its own; GLM-5.1 and later share one between neighbours."""
    listed = "indexer_types" if f.has("indexer_types") else "index_topk_pattern"
    if listed == "indexer_types":
        f.ignore("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
    if f.has(listed):
        if listed == "indexer_types" or isinstance(f.data[listed], list):
            return f.layers_with(listed, layers, "full", "shared")
        letters = f.text(listed)
        if len(letters) != layers or set(letters) - {"F", "S"}:
            f.must_be(listed, f"one F (full) or S (shared) for each of {layers} layers")
        return [letter == "F" for letter in letters]
    interval, skip = f.count("index_topk_freq", default=1), f.whole("index_skip_topk_offset", default=2)
    return [max(index - skip + 1, 0) % interval == 0 for index in range(layers)]


_CSA, _HCA = "compressed_sparse_attention", "heavily_compressed_attention"
# Tokens that an entry stands for where the config does not say: `DeepseekV4Config` in transformers.
_V4_RATES = {SLIDING: 0, _CSA: 4, _HCA: 128}


def mixing(hidden: int, streams: int) -> int:
    """Weights that mix a layer's residual streams (mHC): around attention and around the feed-forward part."""
    return 2 * ((2 + streams) * streams * (streams * hidden + 1) + 3)


def v4_mixing(f: Facts, hidden: int) -> tuple[int, int]:
    """Weights that mix DeepSeek-V4's residual streams: in each layer, and before the head."""
    streams = f.count("hc_mult")
    return mixing(hidden, streams), streams * (streams * hidden + 1) + 1


def v4_experts(f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
    """Experts everywhere; the first layers route by a table over token ids, which needs no correction bias."""
    if f.has("mlp_layer_types"):
        f.ignore("num_hash_layers")
        hashed = f.layers_with("mlp_layer_types", layers, "hash_moe", "moe")
    else:
        hash_layers = f.whole("num_hash_layers")
        if hash_layers > layers:
            f.must_be("num_hash_layers", f"at most the number of layers ({layers})")
        hashed = [index < hash_layers for index in range(layers)]
    by_hash, by_router = (replace(DEEPSEEK_MOE, router_bias=bias).one(f, hidden) for bias in (False, True))
    return [by_hash if flag else by_router for flag in hashed]


def v4_attention(f: Facts, hidden: int, layers: int) -> Sequence[Attention]:
    """Attention with a window over a compressed cache, by ``layer_types`` or ``compress_ratios``.

    ``compress_ratios`` may go on with the draft layers' rates, and the first entries count.
    """
    if f.has("layer_types"):
        f.ignore("compress_ratios")
        kinds = f.per_layer("layer_types", layers, tuple(_V4_RATES))
        return [_v4_layer(f, hidden, str(kind)) for kind in kinds]
    ratios = f.items("compress_ratios")
    drafts = f.whole("num_nextn_predict_layers", default=0)
    if len(ratios) not in (layers, layers + drafts):
        f.must_be(
            "compress_ratios",
            f"a list with one entry for each of {layers} layers (and {drafts} draft layers)",
        )
    f.data = {**f.data, "compress_ratios": ratios[:layers]}
    by_rate: dict[object, str] = {rate: kind for kind, rate in _V4_RATES.items()}
    return [
        _v4_layer(f, hidden, by_rate[rate]) for rate in f.per_layer("compress_ratios", layers, [*by_rate])
    ]


def _v4_rate(f: Facts, kind: str) -> int:
    """Tokens that one entry stands for: ``compress_rates`` by kind, or a key for each of the two."""
    if kind == SLIDING:
        return 0
    single = "compress_rate_csa" if kind == _CSA else "compress_rate_hca"
    if f.has(single):
        return f.count(single)
    if f.has("compress_rates"):
        return f.sub("compress_rates").count(kind, default=_V4_RATES[kind])
    return _V4_RATES[kind]


def _v4_layer(f: Facts, hidden: int, kind: str) -> CompressedAttention:
    """Read one layer's attention; the kind with the lower rate is indexed."""
    heads, groups = f.count("num_attention_heads"), f.count("o_groups")
    f.divides(groups, heads, "o_groups must divide num_attention_heads")
    index = (f.count("index_n_heads"), f.count("index_head_dim"), f.count("index_topk"))
    index_heads, index_dim, top_k = index if kind == _CSA else (0, 0, 0)
    return CompressedAttention(
        hidden=hidden,
        heads=heads,
        head_dim=f.count("head_dim"),
        q_rank=f.count("q_lora_rank"),
        o_groups=groups,
        o_rank=f.count("o_lora_rank"),
        window=f.count("sliding_window"),
        rate=_v4_rate(f, kind),
        index_heads=index_heads,
        index_dim=index_dim,
        top_k=top_k,
    )
