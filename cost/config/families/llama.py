"""Dense decoders built like Llama: norm, grouped-query attention, norm, gated feed-forward part."""

from __future__ import annotations

from collections.abc import Sequence

from cost.config.decoder import Decoder, decoder, family
from cost.config.facts import Facts
from cost.config.parts import (
    FULL,
    SLIDING,
    draft_layers,
    gated,
    grouped_query,
    interval_windows,
    plain,
    windows_by_type,
)
from cost.model import DenseFfn, Layer


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
