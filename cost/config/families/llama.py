"""Dense decoders built like Llama: norm, grouped-query attention, norm, gated feed-forward part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost.config.decoder import Decoder, decoder, family
from cost.config.parts import (
    FULL,
    SLIDING,
    draft_layers,
    gated,
    grouped_query,
    interval_windows,
    plain,
    window_of_kind,
    windows_by_type,
)
from cost.model import DenseFfn, Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.config.facts import Facts


def dense(  # noqa: PLR0913 - one flag for each thing that families differ in
    f: Facts,
    *,
    norms: int = 2,
    norm_width: int = 1,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    mlp_gated: bool = True,
    mlp_extra: int = 0,
    qk_norm: str = "",
    windows: Sequence[int | None] | None = None,
    kv_heads_required: bool = False,
    head_dim_required: bool = False,
    tied: bool = False,
    omitted: tuple[str, ...] = (),
) -> Decoder:
    """Build a decoder of like layers.

    Parameters
    ----------
    norms, norm_width:
        Norms a layer, and weights of one in units of hidden (1: scale; 2: scale and bias; 0: none).
    mlp_extra:
        Weights of a learned activation function.
    windows:
        Each layer's window; None: every layer sees the whole context.
    """
    hidden = f.count("hidden_size")
    count = f.layers()
    params = (gated if mlp_gated else plain)(hidden, f.count("intermediate_size"), bias=mlp_bias) + mlp_extra
    layers = []
    for window in windows if windows is not None else [None] * count:
        attention = grouped_query(
            f,
            hidden,
            kv_heads_required=kv_heads_required,
            head_dim_required=head_dim_required,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            qk_norm=qk_norm,
            window=window,
        )
        layers.append(Layer(attention, DenseFfn(params), norms * norm_width * hidden))
    return decoder(f, hidden, layers, final_norm=norm_width * hidden, tied=tied, omitted=omitted)


def window_everywhere(f: Facts) -> list[int | None]:
    """Return one window for all layers (null: none), as Mistral has it; ``layer_types`` goes before it."""
    count = f.layers()
    if f.has("layer_types"):
        return windows_by_type(f, count)
    return [f.count_or_none("sliding_window")] * count


def switched_windows(f: Facts) -> list[int | None]:
    """Qwen's rule: windows from layer ``max_window_layers`` on, and only with ``use_sliding_window``."""
    count = f.layers()
    f.ignore("sliding_window", "max_window_layers")
    if not f.flag("use_sliding_window", default=False):
        if f.has("layer_types") and SLIDING in f.per_layer("layer_types", count, (FULL, SLIDING)):
            f.fail("use_sliding_window", f"true, for layer_types has {SLIDING}")
        return [None] * count
    if f.has("layer_types"):
        return windows_by_type(f, count)
    first, window = f.whole("max_window_layers"), f.count("sliding_window")
    return [window if index >= first else None for index in range(count)]


@family("llama", "internlm")
def llama(f: Facts) -> Decoder:
    """Llama 1 to 3 and InternLM 1; Llama 1 has no ``num_key_value_heads`` and no bias keys."""
    internlm = f.config.get("model_type") == "internlm"
    bias = f.flag("bias") if internlm else f.flag("attention_bias", default=False)
    return dense(f, qkv_bias=bias, out_bias=bias, mlp_bias=f.flag("mlp_bias", default=False))


@family("mistral", "ministral", "ministral3")
def mistral(f: Facts) -> Decoder:
    """Mistral: Llama without biases, with one window for all layers or none."""
    if "sliding_window" not in f.config and not f.has("layer_types"):
        f.count("sliding_window")  # the class default is 4,096, and later models mean none: never guessed
    third = f.config.get("model_type") != "mistral"  # Ministral's heads are not as wide as hidden / heads
    return dense(f, windows=window_everywhere(f), kv_heads_required=True, head_dim_required=third)


@family("qwen2", "mimo", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
def qwen2(f: Facts) -> Decoder:
    """Qwen 2 and 2.5, and the language models of their VL forms: biases on queries, keys and values; MiMo-7B."""
    if not f.flag("attention_bias", default=True):
        f.fail("attention_bias", "true or absent: this family has biases")
    f.ignore("use_mrope")
    return dense(
        f, qkv_bias=True, windows=switched_windows(f), kv_heads_required=True, omitted=draft_layers(f)
    )


@family("qwen3", "qwen3_vl_text")
def qwen3(f: Facts) -> Decoder:
    """Qwen 3: norms of queries and keys a head."""
    bias = f.flag("attention_bias", default=False)
    return dense(
        f,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        windows=switched_windows(f),
        kv_heads_required=True,
        head_dim_required=True,
    )


@family("phi3")
def phi3(f: Facts) -> Decoder:
    """Phi-3 and Phi-4-mini: Llama with fused projections."""
    f.ignore("attention_bias")
    if f.flag("attention_bias", default=False):
        f.fail("attention_bias", "false: Phi-3's projections have none")
    return dense(f, windows=window_everywhere(f), kv_heads_required=True)


@family("olmo")
def olmo(f: Facts) -> Decoder:
    """OLMo: norms without weights."""
    bias = f.flag("attention_bias", default=False)
    return dense(f, norm_width=0, qkv_bias=bias, out_bias=bias)


@family("olmo2", "olmo3")
def olmo2(f: Facts) -> Decoder:
    """OLMo 2 and 3: norms after the parts, queries and keys normed over all heads."""
    bias = f.flag("attention_bias", default=False)
    third = f.config.get("model_type") == "olmo3"
    windows = windows_by_type(f, f.layers(), interval_windows(f.layers(), 4)) if third else None
    return dense(f, qkv_bias=bias, out_bias=bias, qk_norm="full", windows=windows)


@family("granite")
def granite(f: Facts) -> Decoder:
    """Granite 3: Llama with scaled residuals."""
    bias = f.flag("attention_bias", default=False)
    return dense(
        f, qkv_bias=bias, out_bias=bias, mlp_bias=f.flag("mlp_bias", default=False), kv_heads_required=True
    )


@family("glm", "glm4")
def glm(f: Facts) -> Decoder:
    """GLM-4-9B and the GLM-4-0414 series, which norm each part's output too."""
    norms = 4 if f.config.get("model_type") == "glm4" else 2
    bias = f.flag("attention_bias")
    return dense(f, norms=norms, qkv_bias=bias, kv_heads_required=True, head_dim_required=True)


@family("smollm3")
def smollm3(f: Facts) -> Decoder:
    """SmolLM3: Llama, some layers without positions; tied unless said otherwise."""
    f.ignore("no_rope_layers", "no_rope_layer_interval")
    bias = f.flag("attention_bias", default=False)
    return dense(
        f,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=f.flag("mlp_bias", default=False),
        windows=switched_windows(f),
        kv_heads_required=True,
        tied=True,
    )


@family("seed_oss")
def seed_oss(f: Facts) -> Decoder:
    """Seed-OSS: biases on queries, keys and values, apart from the output's."""
    return dense(
        f,
        qkv_bias=f.flag("attention_bias"),
        out_bias=f.flag("attention_out_bias"),
        mlp_bias=f.flag("mlp_bias", default=False),
        kv_heads_required=True,
        head_dim_required=True,
    )


@family("exaone4")
def exaone4(f: Facts) -> Decoder:
    """EXAONE 4: norms after the parts and of each head; in the 32B three of four layers see a window."""
    count = f.layers()
    f.ignore("sliding_window_pattern")
    windowed = f.has("layer_types") or f.has("sliding_window")
    windows = windows_by_type(f, count) if windowed else [None] * count
    return dense(f, qk_norm="head", windows=windows, kv_heads_required=True)


@family("hunyuan_v1_dense")
def hunyuan_dense(f: Facts) -> Decoder:
    """Hunyuan dense: norms of queries and keys a head."""
    f.ignore("use_qk_norm", "use_cla", "cla_share_factor", "attention_head_dim")
    bias = f.flag("attention_bias", default=False)
    return dense(f, qkv_bias=bias, out_bias=bias, qk_norm="head", kv_heads_required=True)


@family("ernie4_5")
def ernie(f: Facts) -> Decoder:
    """ERNIE 4.5 dense (0.3B): one flag for all biases, tied unless said otherwise."""
    bias = f.flag("use_bias", default=False)
    return dense(
        f,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        kv_heads_required=True,
        head_dim_required=True,
        tied=True,
    )


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
        attention = type(attention)(**{**vars(attention), "other_params": attention.other_params + per_head})
    layer = Layer(attention, DenseFfn(gated(hidden, f.count("intermediate_size"))), norms * 2 * hidden)
    return decoder(f, hidden, [layer] * count, final_norm=2 * hidden, tied=False)


__all__ = ["FULL", "SLIDING", "dense", "switched_windows", "window_everywhere", "window_of_kind"]
