"""Decoders from before Llama: norms and projections with biases, no gate, often learned positions."""

from __future__ import annotations

from dataclasses import replace

from cost.attention.grouped import GroupedQuery
from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.parts import grouped_query, plain
from cost.model import DenseFfn, Layer


def _heads(f: Facts, hidden: int, heads: int, kv_heads: int, *, bias: bool) -> GroupedQuery:
    """Attention whose heads split hidden, with biases on all projections or none."""
    dim = f.divides(heads, hidden, "the heads must divide the hidden size")
    f.divides(kv_heads, heads, "the key and value heads must divide the heads")
    biases = (heads + 2 * kv_heads) * dim + hidden if bias else 0
    return GroupedQuery(hidden, heads, kv_heads, dim, dim, other_params=biases)


@family("gpt2", "gpt_bigcode")
def gpt2(f: Facts) -> Decoder:
    """GPT-2, and StarCoder with one key and value head; learned positions, tied."""
    hidden, count = f.count("n_embd", "hidden_size"), f.layers("n_layer")
    heads = f.count("n_head")
    f.ignore("add_cross_attention")
    bigcode = f.config.get("model_type") == "gpt_bigcode"
    kv_heads = 1 if bigcode and f.flag("multi_query") else heads
    f.ignore("num_key_value_heads")
    inner = f.count("n_inner", default=4 * hidden)
    attention = _heads(f, hidden, heads, kv_heads, bias=True)
    layer = Layer(attention, DenseFfn(plain(hidden, inner, bias=True)), 4 * hidden)
    found = decoder(f, hidden, [layer] * count, final_norm=2 * hidden, tied=True)
    positions = f.count("n_positions") * hidden
    return replace(found, embedding_params=found.embedding_params + positions)


@family("gptj")
def gptj(f: Facts) -> Decoder:
    """GPT-J: one norm a layer, biases in the feed-forward part and the head alone."""
    hidden, count, heads = f.count("n_embd"), f.layers("n_layer"), f.count("n_head")
    f.ignore("n_positions")
    inner = f.count("n_inner", default=4 * hidden)
    attention = _heads(f, hidden, heads, heads, bias=False)
    layer = Layer(attention, DenseFfn(plain(hidden, inner, bias=True)), 2 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=2 * hidden, tied=False, head_bias=True)


@family("gpt_neox")
def gpt_neox(f: Facts) -> Decoder:
    """GPT-NeoX and Pythia: biases everywhere but in the head."""
    hidden, count = f.count("hidden_size"), f.layers()
    f.ignore("use_parallel_residual")
    heads = f.count("num_attention_heads")
    attention = _heads(f, hidden, heads, heads, bias=f.flag("attention_bias", default=True))
    ffn = DenseFfn(plain(hidden, f.count("intermediate_size"), bias=True))
    return decoder(f, hidden, [Layer(attention, ffn, 4 * hidden)] * count, final_norm=2 * hidden, tied=False)


@family("phi")
def phi(f: Facts) -> Decoder:
    """Phi-1, 1.5 and 2: one norm a layer, biases everywhere, the head too."""
    hidden, count = f.count("hidden_size"), f.layers()
    attention = grouped_query(f, hidden, qkv_bias=True, out_bias=True)
    if f.flag("qk_layernorm", default=False):
        attention = replace(attention, other_params=attention.other_params + 4 * attention.head_dim)
    ffn = DenseFfn(plain(hidden, f.count("intermediate_size"), bias=True))
    layer = Layer(attention, ffn, 2 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=2 * hidden, tied=False, head_bias=True)


@family("falcon")
def falcon(f: Facts) -> Decoder:
    """Falcon 7B, 40B, 180B and RW: the three forms differ in norms and in key and value heads; tied."""
    hidden = f.count("hidden_size", "n_embed")
    count, heads = f.layers(), f.count("num_attention_heads")
    bias, new = f.flag("bias"), f.flag("new_decoder_architecture", default=False)
    f.ignore("num_kv_heads", "multi_query", "parallel_attn", "num_ln_in_parallel_attn")
    parallel = f.flag("parallel_attn", default=True) if new else f.flag("parallel_attn")
    if new:
        kv_heads = f.count("num_kv_heads")
        norms = f.count("num_ln_in_parallel_attn", default=2, most=2) if parallel else 2
    else:
        kv_heads = 1 if f.flag("multi_query") else heads
        norms = 1 if parallel else 2
    inner = f.count("ffn_hidden_size", default=4 * hidden)
    attention = _heads(f, hidden, heads, kv_heads, bias=bias)
    layer = Layer(attention, DenseFfn(plain(hidden, inner, bias=bias)), norms * 2 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=2 * hidden, tied=True)


@family("bloom")
def bloom(f: Facts) -> Decoder:
    """BLOOM: a norm after the embedding, biases everywhere, tied."""
    hidden, count = f.count("hidden_size", "n_embed"), f.layers("n_layer")
    f.ignore("apply_residual_connection_post_layernorm", "offset_alibi", "attention_softmax_in_fp32")
    heads = f.count("n_head", "num_attention_heads")
    attention = _heads(f, hidden, heads, heads, bias=True)
    layer = Layer(attention, DenseFfn(plain(hidden, 4 * hidden, bias=True)), 4 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=4 * hidden, tied=True)


@family("opt")
def opt(f: Facts) -> Decoder:
    """OPT: learned positions (two more than the context), tied; not OPT-350M, which has extra projections."""
    hidden, count = f.count("hidden_size"), f.layers()
    if f.count("word_embed_proj_dim", default=hidden) != hidden:
        f.fail(
            "word_embed_proj_dim", f"hidden_size ({hidden}): projections around the layers are not modelled"
        )
    if not f.flag("do_layer_norm_before", default=True):
        f.fail("do_layer_norm_before", "true")
    f.ignore("_remove_final_layer_norm", "layerdrop")
    if f.flag("_remove_final_layer_norm", default=False):
        f.fail("_remove_final_layer_norm", "false")
    bias = f.flag("enable_bias", default=True)
    norm = 2 * hidden if f.flag("layer_norm_elementwise_affine", default=True) else 0
    heads = f.count("num_attention_heads")
    attention = _heads(f, hidden, heads, heads, bias=bias)
    layer = Layer(attention, DenseFfn(plain(hidden, f.count("ffn_dim"), bias=bias)), 2 * norm)
    found = decoder(f, hidden, [layer] * count, final_norm=norm, tied=True)
    positions = (f.count("max_position_embeddings") + 2) * hidden
    return replace(found, embedding_params=found.embedding_params + positions)


@family("mpt")
def mpt(f: Facts) -> Decoder:
    """MPT: no biases anywhere, ALiBi in place of learned positions, tied."""
    hidden, count, heads = f.count("d_model"), f.layers("n_layers"), f.count("n_heads")
    attn = f.section("attn_config")
    if not attn.flag("alibi", default=True) or attn.flag("qk_ln", default=False):
        f.refuse(
            "MPT with learned positions (alibi false) or normed queries and keys (qk_ln) is not modelled."
        )
    if not f.flag("no_bias", default=True):
        f.fail("no_bias", "true")
    f.ignore("learned_pos_emb", "embedding_fraction")
    kv_heads = attn.count("kv_n_heads", default=heads)
    if kv_heads != heads:
        f.refuse("MPT with fewer key and value heads is not modelled.")
    inner = f.count("expansion_ratio", default=4) * hidden
    attention = _heads(f, hidden, heads, heads, bias=False)
    layer = Layer(attention, DenseFfn(plain(hidden, inner)), 2 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=hidden, tied=True)
