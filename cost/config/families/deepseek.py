"""DeepSeek and what is built on its latent attention: V1 to V4, Kimi K2, GLM-5."""

from __future__ import annotations

from cost.attention.latent import CompressedAttention, IndexedLatent, Latent
from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.parts import draft_layers, expert_count, expert_layers, gated, grouped_query, moe
from cost.model import Attention, DenseFfn, Layer, MoeFfn

_MOST_HEADS = 1 << 16
INDEXED = ("indexed_attention", "deepseek_sparse_attention")


def routed(f: Facts, hidden: int, *, router_bias: bool, width: int | None = None) -> MoeFfn:
    """Read DeepSeek's experts: routed, shared, and groups of which each token uses a few.

    ``width``: that of the vectors which routed experts take, where it is not ``hidden``.
    """
    inner = f.count("moe_intermediate_size")
    greedy = f.config.get("topk_method") == "greedy"
    if "n_shared_experts" not in f.config:
        f.count("n_shared_experts")  # absent is not null: its default differs between definitions
    f.ignore("n_group", "topk_group")
    return moe(
        f,
        hidden,
        experts=expert_count(f, "n_routed_experts", "num_experts", "num_local_experts"),
        top_k=f.count("num_experts_per_tok"),
        expert_params=gated(width or hidden, inner),
        shared_params=gated(hidden, inner * f.whole("n_shared_experts", default=0)),
        router_bias=router_bias,
        groups=not greedy,
    )


def layers_of(f: Facts, attentions: list[Attention], hidden: int, experts: MoeFfn) -> list[Layer]:
    """Give the first layers a dense part and the others experts."""
    sparse = expert_layers(f, len(attentions))
    if all(sparse):
        f.ignore("intermediate_size")
        dense = DenseFfn(0)
    else:
        dense = DenseFfn(gated(hidden, f.count("intermediate_size")))
    return [
        Layer(attention, experts if has_experts else dense, 2 * hidden)
        for attention, has_experts in zip(attentions, sparse, strict=True)
    ]


def latent(f: Facts, hidden: int) -> Latent:
    """Read latent attention; ``q_lora_rank`` may be null, then queries are projected directly."""
    heads = f.count("num_attention_heads", most=_MOST_HEADS)
    f.ignore("num_key_value_heads", "head_dim")
    if "q_lora_rank" not in f.config:
        f.count("q_lora_rank")  # absent is not null: V2-Lite writes null where it has no rank
    q_rank = f.count_or_none("q_lora_rank")
    kv_rank, rope, nope = f.count("kv_lora_rank"), f.whole("qk_rope_head_dim"), f.count("qk_nope_head_dim")
    if f.has("qk_head_dim") and f.count("qk_head_dim") != nope + rope:
        f.fail("qk_head_dim", f"qk_nope_head_dim + qk_rope_head_dim ({nope + rope})")
    bias = f.flag("attention_bias", default=False)
    biases = ((q_rank or 0) + kv_rank + rope + hidden) if bias else 0
    return Latent(
        hidden=hidden,
        heads=heads,
        q_rank=q_rank,
        kv_rank=kv_rank,
        nope=nope,
        rope=rope,
        value_dim=f.count("v_head_dim"),
        other_params=(q_rank or 0) + kv_rank + biases,
    )


@family("deepseek")
def deepseek_v1(f: Facts) -> Decoder:
    """DeepSeekMoE 16B (remote code): plain attention, 64 routed and 2 shared experts."""
    hidden, count = f.count("hidden_size"), f.layers()
    bias = f.flag("attention_bias", default=False)
    attention = grouped_query(f, hidden, qkv_bias=bias, out_bias=bias)
    layers = layers_of(f, [attention] * count, hidden, routed(f, hidden, router_bias=False))
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("deepseek_v2")
def deepseek_v2(f: Facts) -> Decoder:
    """DeepSeek-V2 and V2-Lite: latent attention; the router has no bias."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("mlp_bias")
    layers = layers_of(f, [latent(f, hidden)] * count, hidden, routed(f, hidden, router_bias=False))
    return decoder(f, hidden, layers, final_norm=hidden, tied=False)


@family("deepseek_v3", "kimi_k2", "glm4_moe_lite")
def deepseek_v3(f: Facts) -> Decoder:
    """DeepSeek-V3, R1 and V3.1, Kimi K2, GLM-4.7-Flash: a correction bias in the router (``noaux_tc``)."""
    hidden, count = f.count("hidden_size"), f.layers()
    layers = layers_of(f, [latent(f, hidden)] * count, hidden, routed(f, hidden, router_bias=True))
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


@family("deepseek_v32", "glm_moe_dsa")
def deepseek_v32(f: Facts) -> Decoder:
    """DeepSeek-V3.2 and GLM-5: V3 with an index that picks the tokens attention reads."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("mlp_bias", "index_share_for_mtp_iteration")
    if f.has("layer_types"):
        f.per_layer("layer_types", count, INDEXED)
    attentions: list[Attention] = list(indexed(f, hidden, count))
    layers = layers_of(f, attentions, hidden, routed(f, hidden, router_bias=True))
    return decoder(f, hidden, layers, final_norm=hidden, tied=False, omitted=draft_layers(f))


def indexed(f: Facts, hidden: int, count: int, *, pool: int = 1) -> list[IndexedLatent]:
    """Read latent attention with an index for each of ``count`` layers; ``pool``: tokens that a key stands for."""
    base = latent(f, hidden)
    if base.q_rank is None:
        f.fail("q_lora_rank", "a number: the index takes its queries from that latent")
    dim = f.count("index_head_dim")
    pooling = pool * dim if pool > 1 else 0  # the weight of each place in a pool
    return [
        IndexedLatent(
            **{**vars(base), "other_params": base.other_params + (2 * dim + pooling if own else 0)},
            index_heads=f.count("index_n_heads"),
            index_dim=dim,
            top_k=f.count("index_topk"),
            own_index=own,
            pool=pool,
        )
        for own in _own_index(f, count)
    ]


def _own_index(f: Facts, layers: int) -> list[bool]:
    """Whether each layer has an index of its own; GLM-5.1 and later share one between neighbours."""
    if f.has("indexer_types"):
        f.ignore("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset")
        return [kind == "full" for kind in f.per_layer("indexer_types", layers, ("full", "shared"))]
    if f.has("index_topk_pattern"):
        pattern = f.config["index_topk_pattern"]
        if isinstance(pattern, list):
            return [kind == "full" for kind in f.per_layer("index_topk_pattern", layers, ("full", "shared"))]
        letters = f.text("index_topk_pattern")
        if len(letters) != layers or set(letters) - {"F", "S"}:
            f.fail("index_topk_pattern", f"one F (full) or S (shared) for each of {layers} layers")
        return [letter == "F" for letter in letters]
    every, skip = f.count("index_topk_freq", default=1), f.whole("index_skip_topk_offset", default=2)
    return [max(index - skip + 1, 0) % every == 0 for index in range(layers)]


def mixing(hidden: int, streams: int) -> int:
    """Weights that mix a layer's residual streams (mHC): around attention and around the feed-forward part."""
    return 2 * ((2 + streams) * streams * (streams * hidden + 1) + 3)


_WINDOW, _CSA, _HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
# Tokens that an entry stands for where the config does not say: `DeepseekV4Config` in transformers.
_V4_RATES = {_WINDOW: 0, _CSA: 4, _HCA: 128}


@family("deepseek_v4")
def deepseek_v4(f: Facts) -> Decoder:
    """DeepSeek-V4: compressed attention, residual streams, experts everywhere (the first by hash)."""
    hidden, count = f.count("hidden_size"), f.layers()
    for key in ("attention_bias", "mlp_bias"):
        if f.flag(key, default=False):
            f.fail(key, "false")
    if f.count("num_key_value_heads", default=1) != 1:
        f.fail("num_key_value_heads", "1: all heads share one key, which is also the value")
    f.ignore("qk_rope_head_dim", "expert_dtype")
    f.ignore("compress_rates", "compress_rate_csa", "compress_rate_hca")
    streams = f.count("hc_mult")
    hashed = _hash_layers(f, count)
    with_bias, without = (routed(f, hidden, router_bias=flag) for flag in (True, False))
    layers = [
        Layer(
            _v4_attention(f, hidden, kind),
            without if by_hash else with_bias,
            2 * hidden + mixing(hidden, streams),
        )
        for kind, by_hash in zip(_v4_kinds(f, count), hashed, strict=True)
    ]
    head_mixing = streams * (streams * hidden + 1) + 1
    return decoder(f, hidden, layers, final_norm=hidden + head_mixing, tied=False, omitted=draft_layers(f))


def _hash_layers(f: Facts, layers: int) -> list[bool]:
    """Whether each layer routes by a table over token ids, which needs no correction bias."""
    if f.has("mlp_layer_types"):
        f.ignore("num_hash_layers")
        return [kind == "hash_moe" for kind in f.per_layer("mlp_layer_types", layers, ("hash_moe", "moe"))]
    first = f.whole("num_hash_layers")
    if first > layers:
        f.fail("num_hash_layers", f"at most the number of layers ({layers})")
    return [index < first for index in range(layers)]


def _v4_kinds(f: Facts, layers: int) -> list[str]:
    """Kind of each layer's attention, from ``layer_types`` or ``compress_ratios``.

    ``compress_ratios`` may go on with the draft layers' rates, and the first entries count.
    """
    if f.has("layer_types"):
        f.ignore("compress_ratios")
        return [str(kind) for kind in f.per_layer("layer_types", layers, tuple(_V4_RATES))]
    ratios = f.items("compress_ratios")
    drafts = f.whole("num_nextn_predict_layers", default=0)
    if len(ratios) not in (layers, layers + drafts):
        f.fail(
            "compress_ratios",
            f"a list with one entry for each of {layers} layers (and {drafts} draft layers)",
        )
    f.config = {**f.config, "compress_ratios": ratios[:layers]}
    kinds = {rate: kind for kind, rate in _V4_RATES.items()}
    return [
        kinds[rate] for rate in f.per_layer("compress_ratios", layers, tuple(kinds)) if isinstance(rate, int)
    ]


def _v4_rate(f: Facts, kind: str) -> int:
    """Tokens that one entry stands for: ``compress_rates`` by kind, or a key for each of the two."""
    if kind == _WINDOW:
        return 0
    single = "compress_rate_csa" if kind == _CSA else "compress_rate_hca"
    if f.has(single):
        return f.count(single)
    if f.has("compress_rates"):
        return f.section("compress_rates").count(kind, default=_V4_RATES[kind])
    return _V4_RATES[kind]


def _v4_attention(f: Facts, hidden: int, kind: str) -> CompressedAttention:
    """Read one layer's attention; the kind with the lower rate is indexed."""
    heads, groups = f.count("num_attention_heads", most=_MOST_HEADS), f.count("o_groups")
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
