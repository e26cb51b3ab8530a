"""The table of families: one row each, in the order of their ancestry; a new family is a new row.

What a row cannot say is a function in :mod:`cost.config.latent`, :mod:`cost.config.linear`,
:mod:`cost.config.state_space` or :mod:`cost.config.exceptions`. No row takes a default that published configs of the
family do not rely on.
"""

from __future__ import annotations

from dataclasses import replace

from cost.config import exceptions as own
from cost.config import latent, linear, state_space
from cost.config.facts import REQUIRED
from cost.config.family import (
    Count,
    Dense,
    Family,
    Flag,
    Grouped,
    Routed,
    after_first,
    by_list,
    by_step,
    from_start,
    full_every,
    one_window,
    switched_windows,
    windows_by_type,
    windows_if_given,
)

_BIAS = Flag("attention_bias")
_MLP_BIAS = Flag("mlp_bias")

# Attentions of several families, named for what they require.
_KV = Grouped(kv_heads_required=True)
_KV_BIAS = replace(_KV, bias=_BIAS)
_KV_DIM = replace(_KV, head_dim_required=True)
_KV_DIM_BIAS = replace(_KV_DIM, bias=_BIAS)
_KV_DIM_BIAS_REQUIRED = replace(_KV_DIM, bias=Flag("attention_bias", REQUIRED))
_HEAD_NORMS = replace(_KV_BIAS, qk_norm="head")
_GLM_HEADS = replace(_HEAD_NORMS, out_bias=False, normed=Flag("use_qk_norm"))
_COHERE = replace(_KV_BIAS, qk_norm="full", normed=Flag("use_qk_norm"))
_QWEN3 = replace(_KV_DIM_BIAS, qk_norm="head", windows=switched_windows)
_QWEN3_MOE = replace(_HEAD_NORMS, windows=switched_windows)

_GRANITE_SWA = replace(_KV_BIAS, sinks=True, windows=windows_by_type)
_MIXTRAL_MOE = Routed(width=Count("intermediate_size"))
_GRANITE_SHARED = replace(
    _MIXTRAL_MOE, shared=1, shared_width=Count("shared_intermediate_size", default=0, least=0)
)
_SHARED_WIDTH = Count("shared_expert_intermediate_size")
_SHARED_MOE = Routed(
    experts=Count("num_experts"),
    shared=Count("num_shared_experts", least=0),
    router_bias=True,
    sparse=after_first,
)
_GLM_MOE = replace(
    _SHARED_MOE,
    experts=Count("n_routed_experts", "num_experts", "num_local_experts"),
    shared=Count("n_shared_experts", least=0),
    groups=True,
)
_LING_MOE = replace(
    _SHARED_MOE,
    shared=Count("num_shared_experts", "n_shared_experts", default=0, least=0),
    shared_width=lambda f: f.count(
        "moe_shared_expert_intermediate_size", default=f.count("moe_intermediate_size")
    ),
    router_bias=Flag("moe_router_enable_expert_bias"),
    groups=own.is_ling_2,
    sparse=from_start,
)
_DEEPSEEK_V3_MOE = replace(latent.DEEPSEEK_MOE, router_bias=True)
_GATED_SHARED = Routed(shared=1, shared_width=_SHARED_WIDTH, shared_gate=True, sparse=by_step)

_HUNYUAN_MUST = {"use_qk_norm": (True, "true or absent: this family norms queries and keys")}
_GLM_IGNORED = "use_sliding_window sliding_window"
_LFM2 = Family(
    "lfm2",
    "LFM2: short convolutions in most layers.",
    linear.short_convolutions,
    linear.lfm2_dense,
    tied=True,
    before=lambda f: f.rename(
        {
            "tie_embedding": "tie_word_embeddings",
            "num_heads": "num_attention_heads",
            "num_dense_layers": "first_k_dense_replace",
        }
    ),
)
_COHERE_IGNORED = "use_parallel_block use_parallel_embedding use_gated_activation position_embedding_type"
_HUNYUAN_IGNORED = (
    "cla_share_factor attention_head_dim dense_list kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim "
    "v_head_dim"
)

TABLE = (
    # Like Llama: norm, grouped-query attention, norm, gated feed-forward part.
    Family(
        "llama internlm3 iquestcoder",
        "Llama 1 to 3, InternLM 3, IQuest-Coder; Llama 1 has no `num_key_value_heads` and no bias keys.",
        Grouped(bias=_BIAS),
        Dense(bias=_MLP_BIAS),
    ),
    Family(
        "internlm",
        "InternLM 1: Llama with one flag for attention's biases.",
        Grouped(bias=Flag("bias", REQUIRED)),
        Dense(bias=_MLP_BIAS),
    ),
    Family(
        "mistral",
        "Mistral: Llama without biases, with one window for all layers or none.",
        replace(_KV, windows=one_window),
        before=own.checked_mistral,
    ),
    Family(
        "ministral ministral3",
        "Ministral: heads that are not as wide as hidden / heads.",
        replace(_KV_DIM, windows=one_window),
        before=own.checked_mistral,
    ),
    Family(
        "qwen2 mimo qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text",
        "Qwen 2 and 2.5, their VL forms' language models, and MiMo-7B: biases on queries, keys and values.",
        replace(_KV, bias=True, out_bias=False, windows=switched_windows),
        must={"attention_bias": (True, "true or absent: this family has biases")},
    ),
    Family("qwen3 qwen3_vl_text", "Qwen 3: per-head norms of queries and keys.", _QWEN3),
    Family("phi3", "Phi-3 and Phi-4-mini: Llama with fused projections.", replace(_KV, windows=one_window)),
    Family("olmo", "OLMo: norms without weights.", Grouped(bias=_BIAS), norm_width=0),
    Family(
        "olmo2",
        "OLMo 2: norms after the parts, queries and keys normed over all heads.",
        Grouped(bias=_BIAS, qk_norm="full"),
    ),
    Family(
        "olmo3",
        "OLMo 3: OLMo 2 with a window in three of four layers.",
        Grouped(bias=_BIAS, qk_norm="full", windows=full_every(4)),
    ),
    Family(
        "cwm", "Code World Model: Llama with windows by layer.", replace(_KV_DIM, windows=windows_by_type)
    ),
    Family("granite", "Granite 3: Llama with scaled residuals.", _KV_BIAS, Dense(bias=_MLP_BIAS)),
    Family(
        "granite_swa",
        "Granite 4 with windows by layer and sinks.",
        _GRANITE_SWA,
        Dense(bias=_MLP_BIAS),
        tied=True,
    ),
    Family("glm", "GLM-4-9B.", replace(_KV_DIM_BIAS_REQUIRED, out_bias=False)),
    Family(
        "glm4",
        "The GLM-4-0414 series, which norms each part's output too.",
        replace(_KV_DIM_BIAS_REQUIRED, out_bias=False),
        norms=4,
    ),
    Family(
        "glm4v_text",
        "GLM-4.1V's language model: GLM-4-0414 with biases on queries, keys and values.",
        replace(_KV, bias=True, out_bias=False),
        norms=4,
        must={"attention_bias": (True, "true or absent: this family has biases")},
    ),
    Family(
        "smollm3",
        "SmolLM3: Llama, some layers without positions.",
        replace(_KV_BIAS, windows=switched_windows),
        Dense(bias=_MLP_BIAS),
        tied=True,
        ignore="no_rope_layers no_rope_layer_interval",
    ),
    Family(
        "seed_oss",
        "Seed-OSS: biases on queries, keys and values, apart from the output's.",
        replace(_KV_DIM_BIAS_REQUIRED, out_bias=Flag("attention_out_bias", REQUIRED)),
        Dense(bias=_MLP_BIAS),
    ),
    Family(
        "exaone4",
        "EXAONE 4: norms after the parts and of each head; in the 32B three of four layers see a window.",
        replace(_KV, qk_norm="head", windows=windows_if_given),
        ignore="sliding_window_pattern",
    ),
    Family(
        "ernie4_5",
        "ERNIE 4.5 dense (0.3B): one flag for all biases.",
        replace(_KV_DIM, bias=Flag("use_bias")),
        Dense(bias=Flag("use_bias")),
        tied=True,
    ),
    Family(
        "hunyuan_v1_dense",
        "Hunyuan dense: per-head norms of queries and keys.",
        _HEAD_NORMS,
        must=_HUNYUAN_MUST,
        ignore=_HUNYUAN_IGNORED,
    ),
    # Farther from Llama: no gate, wide heads, more norms, parts side by side.
    Family(
        "arcee",
        "Arcee AFM: no gate in the feed-forward part (squared ReLU).",
        _KV_BIAS,
        Dense(gated=False, bias=_MLP_BIAS),
    ),
    Family(
        "nemotron",
        "Nemotron-4 and Minitron: squared ReLU as in Arcee, norms with bias.",
        _KV_BIAS,
        Dense(gated=False, bias=_MLP_BIAS),
        norm_width=2,
    ),
    Family(
        "apertus",
        "Apertus: xIELU with two learned numbers and two stored constants, no gate, norms a head.",
        _HEAD_NORMS,
        Dense(gated=False, extra=4),
        before=lambda f: f.choice("hidden_act", ("xielu",)),
    ),
    Family(
        "starcoder2",
        "StarCoder 2: norms with bias, no gate, one flag for all biases, one window for all layers.",
        replace(_KV, bias=Flag("use_bias", REQUIRED), windows=one_window),
        Dense(gated=False, bias=Flag("use_bias", REQUIRED)),
        norm_width=2,
        tied=True,
        before=lambda f: f.choice("mlp_type", ("default",), "default"),
    ),
    Family("gemma", "Gemma 1: wide heads.", _KV_DIM_BIAS, tied=True),
    Family(
        "gemma2",
        "Gemma 2: four norms a layer, every second layer sees everything (the first does not).",
        replace(_KV_DIM_BIAS, windows=full_every(2)),
        norms=4,
        tied=True,
    ),
    Family(
        "gemma3_text",
        "Gemma 3: as Gemma 2 with per-head norms of queries and keys; every sixth layer sees everything.",
        replace(
            _KV_DIM_BIAS,
            qk_norm="head",
            windows=full_every(Count("sliding_window_pattern", "_sliding_window_pattern", default=6)),
        ),
        norms=4,
        tied=True,
        before=own.with_gemma3_defaults,
    ),
    Family(
        "gemma4_text gemma4_unified_text",
        "Gemma 4: one layer in five or six sees everything, with wider heads; small ones have embeddings a layer.",
        own.gemma4_attention,
        own.gemma4_ffn,
        norms=4,
        besides=own.gemma4_besides,
        embedding=own.gemma4_embedding,
        tied=True,
        ignore="num_global_key_value_heads vocab_size_per_layer_input",
        before=own.checked_gemma4,
    ),
    Family(
        "cohere",
        "Command R: one norm for attention and feed-forward part, which run side by side.",
        _COHERE,
        norms=1,
        tied=True,
        ignore=_COHERE_IGNORED,
    ),
    Family(
        "cohere2",
        "Command A: Command R with windows.",
        replace(_COHERE, windows=full_every(Count("sliding_window_pattern", default=4))),
        norms=1,
        tied=True,
        ignore=_COHERE_IGNORED,
    ),
    Family(
        "cohere2_moe",
        "Command A+ and North Mini: Command A with experts, dense layers first.",
        replace(_KV_DIM_BIAS, windows=windows_by_type),
        replace(
            _MIXTRAL_MOE,
            experts=Count("num_experts"),
            shared=Count("num_shared_experts", least=0),
            sparse=from_start,
            dense=Dense("prefix_dense_intermediate_size"),
        ),
        norms=1,
        tied=True,
        ignore=f"{_COHERE_IGNORED} sliding_window_pattern prefix_dense_sliding_window_pattern",
    ),
    Family(
        "stablelm",
        "StableLM 2: norms with bias; the parallel form has one norm a layer.",
        Grouped(bias=Flag("use_qkv_bias"), out_bias=False, qk_norm="full", normed=Flag("qk_layernorm")),
        norms=lambda f: 1 if f.flag("use_parallel_residual", default=False) else 2,
        norm_width=2,
    ),
    # Experts under grouped-query attention.
    Family(
        "mixtral",
        "Mixtral: a layer of eight experts in place of each feed-forward part.",
        replace(_KV, windows=one_window),
        _MIXTRAL_MOE,
    ),
    Family(
        "phimoe",
        "Phi-3.5-MoE: norms with bias, and a head with bias where the config says so.",
        replace(_KV, bias=Flag("attention_bias", REQUIRED), windows=one_window),
        _MIXTRAL_MOE,
        norm_width=2,
        head_bias=Flag("lm_head_bias", REQUIRED),
    ),
    Family(
        "olmoe flex_olmo",
        "OLMoE and FlexOlmo: queries and keys normed over all heads.",
        Grouped(bias=_BIAS, qk_norm="full"),
        _MIXTRAL_MOE,
    ),
    Family(
        "granitemoe",
        "Granite 3 with experts.",
        _KV_BIAS,
        _MIXTRAL_MOE,
        must={"shared_intermediate_size": (0, "absent in a granitemoe model; granitemoeshared has it")},
    ),
    Family("granitemoeshared", "Granite 3 with experts, one of them shared.", _KV_BIAS, _GRANITE_SHARED),
    Family(
        "granitemoe_swa", "Granite 4 with experts, windows by layer and sinks.", _GRANITE_SWA, _GRANITE_SHARED
    ),
    Family(
        "kolibri1",
        "Kolibri 1: per-head norms of queries and keys and of each part's output, windows by layer.",
        replace(_KV_DIM, qk_norm="head", windows=windows_by_type),
        Routed(shared=1, shared_width=_SHARED_WIDTH, router_bias=True),
        norms=4,
    ),
    Family(
        "laguna",
        "Laguna: heads that differ by layer, a gate a head, a dense part first, then experts and a shared one.",
        own.laguna_attention,
        Routed(shared=1, shared_width=_SHARED_WIDTH, router_bias=True, sparse=by_list),
        ignore="decoder_sparse_step mlp_only_layers",
    ),
    Family(
        "mellum",
        "Mellum: per-head norms of queries and keys, windows by layer, experts or a dense part by `mlp_layer_types`.",
        replace(_KV_DIM_BIAS, qk_norm="head", windows=windows_by_type),
        Routed(sparse=from_start),
    ),
    Family(
        "dbrx",
        "DBRX: its own names for everything, norms without bias.",
        own.dbrx_attention,
        Routed(
            experts=Count("moe_num_experts", section="ffn_config"),
            top_k=Count("moe_top_k", section="ffn_config"),
            width=Count("ffn_hidden_size", section="ffn_config"),
        ),
        hidden=Count("d_model"),
        layers="n_layers",
    ),
    Family(
        "gpt_oss",
        "gpt-oss: biases everywhere, experts included; a sink a head; every second layer sees a window.",
        replace(_KV_DIM_BIAS_REQUIRED, sinks=True, windows=windows_by_type),
        replace(
            _MIXTRAL_MOE, top_k=Count("num_experts_per_tok", "experts_per_token"), bias=True, router_bias=True
        ),
    ),
    Family(
        "minimax_m2",
        "MiniMax M2: queries and keys normed over all heads, a correction bias in the router.",
        replace(_KV_DIM, qk_norm="full"),
        replace(_MIXTRAL_MOE, router_bias=Flag("use_routing_bias", default=True)),
        must={
            "shared_intermediate_size": (0, "0: a shared expert of MiniMax M2 is not modelled"),
            "use_qk_norm": (True, "true"),
        },
        ignore="qk_norm_type attention_bias",
        before=own.checked_minimax_m2,
    ),
    Family(
        "minimax_m3 minimax_m3_vl_text",
        "MiniMax M3: dense layers first, then experts under attention to blocks that an index picks.",
        own.m3_attention,
        replace(
            _MIXTRAL_MOE,
            shared=1,
            shared_width=Count("shared_intermediate_size"),
            router_bias=Flag("use_routing_bias", default=True),
            sparse=by_list,
            dense=Dense("dense_intermediate_size"),
        ),
        must={
            "n_shared_experts": (1, "1: shared_intermediate_size is the width of one"),
            "use_qk_norm": (True, "true: queries and keys without norm are not modelled"),
        },
        before=lambda f: f.choice("qk_norm_type", ("per_head",), "per_head"),
    ),
    Family(
        "qwen2_moe",
        "Qwen 1.5 and 2 with experts: biases on queries, keys, values; a shared expert with its own gate.",
        replace(_KV, bias=Flag("qkv_bias", default=True), out_bias=False, windows=switched_windows),
        _GATED_SHARED,
    ),
    Family(
        "qwen3_moe qwen3_vl_moe_text qwen3_omni_moe_text",
        "Qwen 3 with experts: per-head norms of queries and keys, no shared expert.",
        _QWEN3_MOE,
        Routed(sparse=by_step),
        must={"use_qk_norm": (True, "true or absent: Qwen 3 norms queries and keys")},
    ),
    Family(
        "llama4_text",
        "Llama 4: experts in every n-th layer with a shared one, three of four layers see one chunk.",
        replace(_KV_DIM_BIAS, windows=own.llama4_chunks, chunked=True),
        replace(_MIXTRAL_MOE, shared=1, sparse=own.llama4_sparse, dense=Dense("intermediate_size_mlp")),
        ignore="use_qk_norm for_llm_compressor",
    ),
    Family(
        "exaone_moe",
        "K-EXAONE: EXAONE 4's attention with DeepSeek's experts.",
        replace(_KV, qk_norm="head", windows=windows_if_given),
        replace(_SHARED_MOE, groups=True),
        ignore="sliding_window_pattern first_k_dense_replace",
    ),
    Family(
        "afmoe",
        "Arcee Trinity: gated attention, four norms a layer, a window in three of four layers.",
        replace(_KV_DIM, qk_norm="head", gate=True, windows=full_every(Count("global_attn_every_n_layers"))),
        replace(_SHARED_MOE, sparse=after_first),
        norms=4,
        ignore="num_expert_groups num_limited_groups n_group topk_group",
        before=lambda f: f.rename({"num_dense_layers": "first_k_dense_replace"}),
    ),
    Family(
        "mimo_v2_flash",
        "MiMo-V2-Flash: values narrower than keys; layers with a window have more key heads, and sinks.",
        own.mimo_attention,
        Routed(experts=Count("n_routed_experts"), router_bias=True, groups=True, sparse=by_list),
        must={
            "add_swa_attention_sink_bias": (
                True,
                "true: layers with a window but without sinks are not modelled",
            ),
        },
        ignore="sliding_window_size attention_chunk_size",
        before=own.checked_mimo,
    ),
    Family(
        "step3p5 step3p7",
        "Step-3.5-Flash and Step-3.7-Flash: more query heads in layers with a window, a gate a head.",
        own.step_attention,
        Routed(
            experts=Count("n_routed_experts"),
            shared=1,
            shared_width=Count("share_expert_dim"),
            router_bias=Flag("use_moe_router_bias", REQUIRED),
            sparse=lambda f, layers: f.listed("moe_layers_enum", layers),
        ),
        must={"use_moe": (True, "true: Step without experts is not modelled")},
        ignore="moe_every_n_layer moe_layer_offset",
        before=own.step_names,
    ),
    Family(
        "glm4_moe glm4v_moe_text",
        "GLM-4.5 and GLM-4.5V: DeepSeek's experts under grouped-query attention.",
        _GLM_HEADS,
        _GLM_MOE,
        ignore=_GLM_IGNORED,
    ),
    Family(
        "sarvam_moe",
        "Sarvam 30B: GLM-4.5 with norms of queries and keys unless the config says no.",
        replace(_GLM_HEADS, normed=Flag("use_qk_norm", default=True)),
        _GLM_MOE,
        before=linear.kimi_names,
    ),
    Family(
        "solar_open",
        "Solar Open: GLM-4.5 with experts from the first layer on.",
        _GLM_HEADS,
        replace(_GLM_MOE, sparse=from_start),
        ignore=_GLM_IGNORED,
    ),
    Family(
        "dots1",
        "dots.llm1: GLM-4.5's experts, norms of queries and keys, windows by layer.",
        replace(_HEAD_NORMS, windows=own.dots_windows),
        _GLM_MOE,
        ignore=_GLM_IGNORED,
    ),
    Family(
        "ernie4_5_moe",
        "ERNIE 4.5 with experts from `moe_layer_start_index` on, a correction bias in the router.",
        _KV,
        Routed(
            experts=Count("moe_num_experts"),
            top_k=Count("moe_k"),
            shared=Count("moe_num_shared_experts", default=0, least=0),
            router_bias=True,
            sparse=own.ernie_sparse,
        ),
        tied=True,
        ignore="use_moe moe_gate moe_group",
    ),
    Family(
        "bailing_moe bailing_moe_v2",
        "Ling and Ring 1 and 2 (remote code): DeepSeek's experts under grouped-query attention.",
        replace(
            _KV,
            bias=Flag("use_qkv_bias"),
            out_bias=Flag("use_bias"),
            qk_norm="head",
            normed=lambda f: f.flag("use_qk_norm", default=REQUIRED if own.is_ling_2(f) else False),
        ),
        _LING_MOE,
    ),
    Family(
        "hunyuan_v1_moe",
        "Hunyuan-A13B: one shared feed-forward part as wide as an expert; lists with one entry a layer.",
        _HEAD_NORMS,
        own.hunyuan_experts,
        must=_HUNYUAN_MUST,
        ignore=f"{_HUNYUAN_IGNORED} use_mixed_mlp_moe",
    ),
    Family(
        "hy_v3",
        "Hunyuan 3: per-head norms of queries and keys, DeepSeek's experts and router bias.",
        replace(_KV_DIM_BIAS, qk_norm="head"),
        _SHARED_MOE,
    ),
    # DeepSeek, and what is built on its latent attention.
    Family(
        "deepseek",
        "DeepSeekMoE 16B (remote code): plain attention, 64 routed and 2 shared experts.",
        Grouped(bias=_BIAS),
        latent.DEEPSEEK_MOE,
    ),
    Family(
        "deepseek_v2 mistral4",
        "DeepSeek-V2 and V2-Lite, Mistral Small 4: latent attention; the router has no bias.",
        latent.latent_everywhere,
        latent.DEEPSEEK_MOE,
        ignore="mlp_bias",
    ),
    Family(
        "deepseek_v3 kimi_k2 glm4_moe_lite sarvam_mla",
        "DeepSeek-V3 to V3.1, Kimi K2, GLM-4.7-Flash, Sarvam 105B: a correction bias in the router (`noaux_tc`).",
        latent.latent_everywhere,
        _DEEPSEEK_V3_MOE,
        ignore="q_head_dim",
        before=linear.kimi_names,
    ),
    Family("youtu", "Youtu-LLM: latent attention without experts.", latent.latent_everywhere, tied=True),
    Family(
        "longcat_flash",
        "LongCat-Flash: each layer counts as two, with an attention and a dense part each, experts beside the first.",
        latent.latent_everywhere,
        latent.longcat_ffn,
        layers="num_layers",
        parts=2,
        ignore="num_hidden_layers",
    ),
    Family(
        "axk1",
        "A.X K1: DeepSeek-V3 with a norm of what the experts return.",
        latent.latent_everywhere,
        latent.normed_experts,
    ),
    Family(
        "deepseek_v32 glm_moe_dsa",
        "DeepSeek-V3.2 and GLM-5: V3 with an index that picks the tokens attention reads.",
        latent.indexed,
        _DEEPSEEK_V3_MOE,
        ignore="mlp_bias",
    ),
    Family(
        "deepseek_v4",
        "DeepSeek-V4: compressed attention, residual streams, experts everywhere (the first by hash).",
        latent.v4_attention,
        latent.v4_experts,
        besides=latent.v4_mixing,
        must={"num_key_value_heads": (1, "1: all heads share one key, which is also the value")},
        ignore="qk_rope_head_dim expert_dtype compress_rates compress_rate_csa compress_rate_hca",
    ),
    # Three layers of linear attention for one of another kind.
    Family(
        "qwen3_next qwen3_5_moe_text",
        "Qwen3-Next and Qwen3.5 with experts and a gated shared one.",
        linear.gated_delta,
        replace(_GATED_SHARED, experts=Count("num_experts")),
    ),
    Family("qwen3_5_text", "Qwen3.5 without experts.", linear.gated_delta),
    Family(
        "kimi_linear",
        "Kimi Linear and the language model of Kimi K3, which adds gates, narrower experts and block residuals.",
        linear.kimi_attention,
        linear.kimi_experts,
        besides=linear.kimi_residuals,
        before=linear.kimi_names,
    ),
    Family(
        "glm5_next_text",
        "GLM-5.3-Flash: Kimi delta attention, latent attention with an index of pooled keys, residual streams.",
        linear.glm5_next_attention,
        _DEEPSEEK_V3_MOE,
        besides=lambda f, hidden: (latent.mixing(hidden, f.count("hc_mult")), 0),
        must={
            "mhc": (True, "true: without residual streams the model is another one"),
            "index_kpool_compress": (True, "true: an index over pools without weights is not modelled"),
        },
    ),
    Family(
        "bailing_hybrid bailing_moe_linear",
        "Ling and Ring 2.5 and 3, Ring-linear 2.0: linear attention, the last layer of each group in full.",
        linear.ling_attention,
        replace(_LING_MOE, router_bias=Flag("moe_router_enable_expert_bias", default=True), groups=True),
        before=linear.kimi_names,
    ),
    Family(
        "minimax minimax_text_01 minimax_m1",
        "MiniMax-01 and M1: lightning attention in seven of eight layers, Mixtral's experts.",
        linear.minimax_attention,
        _MIXTRAL_MOE,
        must={"shared_intermediate_size": (0, "0: a shared expert of MiniMax-01 is not modelled")},
    ),
    _LFM2,
    replace(
        _LFM2,
        names="lfm2_moe",
        about="LFM2 with experts after the first dense layers.",
        ffn=Routed(
            experts=Count("num_experts"),
            router_bias=Flag("use_expert_bias", REQUIRED),
            sparse=after_first,
        ),
    ),
    Family(
        "granitemoehybrid",
        "Granite 4: Mamba-2 or attention, with experts and a shared part or that part alone.",
        state_space.granite_mixers,
        state_space.granite_ffn,
        must={"mamba_proj_bias": (False, "false")},
        ignore="position_embedding_type",
        before=state_space.part_names,
    ),
    Family(
        "bamba",
        "Bamba: Mamba-2 or attention.",
        state_space.granite_mixers,
        must={"mamba_proj_bias": (False, "false")},
        ignore="num_logits_to_keep",
        before=state_space.part_names,
    ),
    # One part a layer.
    Family(
        "nemotron_h",
        "Nemotron-H and Nemotron 3: Mamba-2, attention, experts or a dense part, each a layer with one norm.",
        state_space.mixers,
        state_space.one_ffn,
        norms=1,
        must={
            "n_shared_experts": (1, "1: moe_shared_expert_intermediate_size is the width of one"),
        },
        ignore="expand mtp_hybrid_override_pattern mtp_layers_block_type moe_shared_expert_overlap "
        "num_logits_to_keep time_step_rank",
        before=state_space.part_names,
    ),
)

FAMILIES = {name: family for family in TABLE for name in family.names.split()}
"""The row of each ``model_type`` that can be read."""
