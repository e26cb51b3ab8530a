"""Gemma 4: layers of two shapes, experts beside a dense part, embeddings for every layer, shared keys and values."""

from __future__ import annotations

from dataclasses import replace

from cost.attention.grouped import GroupedQuery
from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.parts import FULL, SLIDING, expert_count, gated, moe
from cost.model import DenseFfn, Layer, MoeFfn

_MOST_HEADS = 1 << 16


def _attentions(f: Facts, hidden: int, kinds: list[object], shared: int) -> list[GroupedQuery]:
    """One attention a layer; the last ``shared`` layers read the cache of the last one of their kind before them."""
    heads = f.count("num_attention_heads", most=_MOST_HEADS)
    kv_heads, alike = (
        f.count("num_key_value_heads", most=_MOST_HEADS),
        f.flag("attention_k_eq_v", default=False),
    )
    f.ignore("num_global_key_value_heads")
    wide_heads = kv_heads
    if alike and f.has("num_global_key_value_heads"):
        wide_heads = f.count("num_global_key_value_heads", most=_MOST_HEADS)
    for each in (kv_heads, wide_heads):
        f.divides(each, heads, "the key and value heads must divide num_attention_heads")
    dims = {SLIDING: f.count("head_dim"), FULL: f.count("global_head_dim")}
    window = f.count("sliding_window")
    first_shared = len(kinds) - shared
    if shared and set(kinds[:first_shared]) != set(kinds):
        f.fail(
            "num_kv_shared_layers", "few enough that a layer of each kind comes before the ones that share"
        )
    found = []
    for index, kind in enumerate(kinds):
        full, own = kind == FULL, index < first_shared
        dim = dims[str(kind)]
        found.append(
            GroupedQuery(
                hidden=hidden,
                heads=heads,
                kv_heads=wide_heads if full else kv_heads,
                head_dim=dim,
                value_dim=dim,
                window=None if full else window,
                values_are_keys=alike and full,
                own_cache=own,
                other_params=2 * dim if own else dim,
            )
        )
    return found


def _experts(f: Facts, hidden: int, dense: int) -> MoeFfn | None:
    """Read the experts that stand beside the dense part, which is counted as shared; None without them."""
    names = ("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    f.ignore(*names)
    if not f.flag("enable_moe_block", default=False):
        return None
    found = moe(
        f,
        hidden,
        experts=expert_count(f, "num_experts"),
        top_k=f.count("top_k_experts"),
        expert_params=gated(hidden, f.count("moe_intermediate_size", "expert_intermediate_size")),
        shared_params=dense,
    )
    # a scale for each channel before the router, and for each expert after it
    return replace(found, router_params=found.router_params + hidden + found.experts)


@family("gemma4_text", "gemma4_unified_text")
def gemma4(f: Facts) -> Decoder:
    """Gemma 4: one layer in five or six sees everything, with wider heads; the small ones have embeddings a layer.

    A layer's own embedding is looked up with the token, gated and projected in its feed-forward part; its share of
    the projection from the token's embedding is counted there too.
    """
    hidden, count = f.count("hidden_size"), f.layers()
    if f.flag("attention_bias", default=False):
        f.fail("attention_bias", "false")
    if f.has("use_bidirectional_attention") and f.text("use_bidirectional_attention") != "vision":
        f.fail(
            "use_bidirectional_attention", "'vision' or null: a model that sees what follows does not decode"
        )
    kinds = f.per_layer("layer_types", count, (FULL, SLIDING))
    if kinds[-1] != FULL:
        f.fail("layer_types", f"{FULL} in the last layer")
    shared = f.whole("num_kv_shared_layers", default=0, most=count - 1)
    attentions = _attentions(f, hidden, kinds, shared)
    # Absent is not off: this class has them on by default, the unified one never.
    if f.config.get("model_type") == "gemma4_text" and "hidden_size_per_layer_input" not in f.config:
        f.count("hidden_size_per_layer_input")
    own = f.whole("hidden_size_per_layer_input", default=0)
    f.ignore("vocab_size_per_layer_input")
    inner = f.count("intermediate_size")
    double = f.flag("use_double_wide_mlp", default=False)
    norms = 4 * hidden + 1  # and one number that scales the layer's output
    if own:
        norms += hidden
    layers = []
    for index, attention in enumerate(attentions):
        wide = inner * (2 if double and index >= count - shared else 1)
        dense = gated(hidden, wide) + 3 * hidden * own
        experts = _experts(f, hidden, dense)
        ffn = DenseFfn(dense) if experts is None else experts
        layers.append(Layer(attention, ffn, norms if experts is None else norms + 3 * hidden))
    found = decoder(f, hidden, layers, final_norm=hidden + own, tied=True)
    if not own:
        return found
    tables = f.count("vocab_size_per_layer_input") * count * own
    return replace(found, embedding_params=found.embedding_params + tables)
