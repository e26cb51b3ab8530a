"""Dense decoders farther from Llama: no gate, wide heads, more norms, parts side by side."""

from __future__ import annotations

from dataclasses import replace

from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.families.llama import dense, window_everywhere
from cost.config.parts import (
    gated,
    grouped_query,
    interval_windows,
    windows_by_type,
)
from cost.model import DenseFfn, Layer


@family("arcee", "nemotron")
def squared_relu(f: Facts) -> Decoder:
    """Arcee AFM and Nemotron-4 / Minitron: no gate in the feed-forward part (squared ReLU)."""
    bias = f.flag("attention_bias", default=False)
    width = 2 if f.config.get("model_type") == "nemotron" else 1
    return dense(
        f,
        norm_width=width,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=f.flag("mlp_bias", default=False),
        mlp_gated=False,
        kv_heads_required=True,
    )


@family("apertus")
def apertus(f: Facts) -> Decoder:
    """Apertus: xIELU with two learned numbers and two stored constants, no gate, norms a head."""
    bias = f.flag("attention_bias", default=False)
    f.choice("hidden_act", ("xielu",))
    return dense(
        f, qkv_bias=bias, out_bias=bias, mlp_gated=False, mlp_extra=4, qk_norm="head", kv_heads_required=True
    )


@family("starcoder2")
def starcoder2(f: Facts) -> Decoder:
    """StarCoder 2: norms with bias, no gate, one flag for all biases, one window for all layers; tied."""
    bias = f.flag("use_bias")
    f.choice("mlp_type", ("default",), "default")
    return dense(
        f,
        norm_width=2,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        mlp_gated=False,
        windows=window_everywhere(f),
        kv_heads_required=True,
        tied=True,
    )


@family("gemma")
def gemma(f: Facts) -> Decoder:
    """Gemma 1: wide heads; tied."""
    bias = f.flag("attention_bias", default=False)
    return dense(f, qkv_bias=bias, out_bias=bias, kv_heads_required=True, head_dim_required=True, tied=True)


@family("gemma2")
def gemma2(f: Facts) -> Decoder:
    """Gemma 2: four norms a layer, every second layer sees everything (the first does not)."""
    bias = f.flag("attention_bias", default=False)
    count = f.layers()
    return dense(
        f,
        norms=4,
        qkv_bias=bias,
        out_bias=bias,
        windows=windows_by_type(f, count, interval_windows(count, 2)),
        kv_heads_required=True,
        head_dim_required=True,
        tied=True,
    )


# Gemma 3's published multimodal configs leave out what equals the class default
# (gemma-3-4b-it gives neither heads nor vocabulary): `Gemma3TextConfig` in transformers 4.50 and later.
_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}


@family("gemma3_text")
def gemma3(f: Facts) -> Decoder:
    """Gemma 3: as Gemma 2 with norms of queries and keys a head; every sixth layer sees everything."""
    f.config = {**_GEMMA3, **f.config}
    bias = f.flag("attention_bias", default=False)
    count = f.layers()
    every = f.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return dense(
        f,
        norms=4,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        windows=windows_by_type(f, count, interval_windows(count, every)),
        kv_heads_required=True,
        head_dim_required=True,
        tied=True,
    )


@family("cohere", "cohere2")
def cohere(f: Facts) -> Decoder:
    """Command R and A: one norm for attention and feed-forward part, which run side by side; tied."""
    second = f.config.get("model_type") == "cohere2"
    hidden, count = f.count("hidden_size"), f.layers()
    bias = f.flag("attention_bias", default=False)
    f.ignore(
        "use_parallel_block", "use_parallel_embedding", "use_gated_activation", "position_embedding_type"
    )
    if second:
        default = interval_windows(count, f.count("sliding_window_pattern", default=4))
        windows = windows_by_type(f, count, default)
    else:
        windows = [None] * count
    qk_norm = "full" if f.flag("use_qk_norm", default=False) else ""
    ffn = DenseFfn(gated(hidden, f.count("intermediate_size")))
    layers = [
        Layer(
            grouped_query(
                f,
                hidden,
                kv_heads_required=True,
                qkv_bias=bias,
                out_bias=bias,
                qk_norm=qk_norm,
                window=window,
            ),
            ffn,
            hidden,
        )
        for window in windows
    ]
    return decoder(f, hidden, layers, final_norm=hidden, tied=True)


@family("stablelm")
def stablelm(f: Facts) -> Decoder:
    """StableLM 2: norms with bias; the parallel form has one norm a layer."""
    hidden, count = f.count("hidden_size"), f.layers()
    norms = 1 if f.flag("use_parallel_residual", default=False) else 2
    attention = grouped_query(f, hidden, qkv_bias=f.flag("use_qkv_bias", default=False))
    if f.flag("qk_layernorm", default=False):
        per_head = (attention.heads + attention.kv_heads) * attention.head_dim
        attention = replace(attention, other_params=attention.other_params + per_head)
    layer = Layer(attention, DenseFfn(gated(hidden, f.count("intermediate_size"))), norms * 2 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=2 * hidden, tied=False)
