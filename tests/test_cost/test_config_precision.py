"""The precision of each class of weights in every dialect of checkpoints, bytes and the units that multiply."""

import json
from pathlib import Path

import pytest

from cost.config.build import model_from_config
from cost.dtypes import bytes_per_param, cache_bytes_per_element, dtype, multiply_dtype
from cost.resolve import resolve_model
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.spec import GpuSpec

MATMUL = ("experts", "shared", "attention", "dense")
V3 = {
    key: value for key, value in resolve_model("deepseek-v3").config.items() if key != "quantization_config"
}
LLAMA = {**resolve_model("llama-3.1-405b").config}


def precision(config: dict, section: dict | None = None, **keys: object) -> dict[str, str]:
    added = {} if section is None else {"quantization_config": section}
    model = model_from_config({**config, **keys, **added}, name="model")
    return {name: model.precision[name] for name in (*MATMUL, "head")}


def uniform(dtype: str, head: str = "bf16") -> dict[str, str]:
    return {**dict.fromkeys(MATMUL, dtype), "head": head}


def compressed(
    bits: int,
    kind: str,
    targets: tuple[str, ...] = ("Linear",),
    ignore: list[str] | None = None,
    **more: object,
) -> dict:
    """A section of compressed-tensors that quantises ``targets`` alike and leaves the head as it was."""
    group = {"targets": list(targets), "weights": {"num_bits": bits, "type": kind, **more}}
    kept = ["lm_head"] if ignore is None else ignore
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": kept}


def quark(weight: dict | None, exclude: tuple[str, ...] = ("lm_head",), **layers: dict | None) -> dict:
    """A section of AMD Quark with a format for all modules and others by name."""
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight, "input_tensors": None},
        "exclude": list(exclude),
        "layer_quant_config": {f"*{name}*": {"weight": own} for name, own in layers.items()},
        "layer_type_quant_config": {},
    }


FP4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "group_size": None}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, uniform("fp8")),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, uniform("mxfp8")),
        ({"quant_method": "fp8"}, uniform("fp8-row")),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, uniform("int4-g128-zp")),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}, uniform("int4-g64-zp")),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "zero_point": False}, uniform("int4-g128")),
        ({"quant_method": "mxfp4"}, {**uniform("bf16"), "experts": "mxfp4"}),
        (quark(FP4), uniform("mxfp4")),
        (quark(FP4, self_attn=FP8), {**uniform("mxfp4"), "attention": "fp8-row"}),
        (quark({"dtype": "int4", "qscheme": "per_group", "group_size": 64}), uniform("int4-g64")),
        (quark(FP4, self_attn=None), {**uniform("mxfp4"), "attention": "bf16"}),
        (quark(None, experts=FP4), {**uniform("bf16"), "experts": "mxfp4", "shared": "mxfp4"}),
        (compressed(8, "float", strategy="block", block_structure=[128, 128]), uniform("fp8")),
        (compressed(4, "int", strategy="group", group_size=32), uniform("int4-g32")),
        (compressed(4, "float", strategy="tensor_group", group_size=16), uniform("nvfp4")),
        (compressed(4, "float", strategy="group", group_size=32), uniform("mxfp4")),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, uniform("nvfp4")),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": []}, uniform("fp8-row")),
        (
            {
                "producer": {"name": "modelopt"},
                "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["*self_attn*"]},
            },
            {**uniform("nvfp4"), "attention": "bf16"},
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quant_method": "modelopt",
                "quantized_layers": {
                    f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(61)
                },
            },
            {**uniform("bf16"), "experts": "nvfp4"},
        ),
    ],
)
def test_dialects(section, expected):
    assert precision(V3, section) == expected


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (["re:.*self_attn.*"], {"attention": "bf16"}),
        (["re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], {"dense": "bf16"}),
        (["*.mlp.shared_experts.*"], {"shared": "bf16"}),
        (["gate", "lm_head", "model.embed_tokens", "model.layers.3.mlp.gate"], {}),
        (
            ["model.layers.0", "model.layers.1", "model.layers.2"],
            {"dense": "bf16", "attention": "fp8*0.9508+bf16*0.0492"},
        ),
        (["model.layers.1*"], {"dense": "fp8*0.6667+bf16*0.3333"}),
    ],
)
def test_modules_that_stay_as_they_were(kept, expected):
    formats = precision(
        V3, {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": kept}
    )
    known = {name: formats[name] for name in expected}
    assert known == expected
    if not expected:
        assert formats == uniform("fp8")


def test_nvfp4_deepseek_quantises_the_output_projection_alone():
    # What NVIDIA's hf_quant_config.json lists: both projections to and from the latents stay in BF16.
    formats = resolve_model("deepseek-v3.1-nvfp4").precision
    assert formats["experts"] == formats["shared"] == formats["dense"] == "nvfp4"
    assert formats["attention"] == "nvfp4*0.6277+bf16*0.3723"
    assert formats["head"] == formats["router"] == formats["embedding"] == "bf16"


def test_weights_override_the_layers_alone_and_survive_the_plan_file():
    model = resolve_model("deepseek-v3", weights="nvfp4")
    assert [model.precision[name] for name in (*MATMUL, "head")] == ["nvfp4"] * 4 + ["bf16"]
    assert model.precision_source == "`weights` nvfp4"
    part = resolve_model("glm-5", weights="experts=nvfp4, shared=fp8")
    assert (part.precision["experts"], part.precision["shared"], part.precision["dense"]) == (
        "nvfp4",
        "fp8",
        "bf16",
    )
    for wrong in ("fp8,nvfp4", "experts=fp8,experts=nvfp4", "experts=", "router=fp8", ""):
        with pytest.raises(InputError, match="`weights`"):
            resolve_model("glm-5", weights=wrong)
    assert model_from_config(model.config, name=model.name) == model
    assert model_from_config(model.config, name=model.name, weights="bf16").precision["experts"] == "bf16"
    bare = {key: value for key, value in LLAMA.items() if key not in {"torch_dtype", "dtype"}}
    assert precision(bare, torch_dtype="float32") == uniform("fp32", "fp32")
    assert model_from_config(bare, name="m").precision_source.startswith("assumed bf16")


def test_weights_make_an_unknown_quantiser_readable():
    section = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    with pytest.raises(InputError, match=r"quant_method is 'bitsandbytes', which is not modelled.*`weights`"):
        model_from_config({**V3, "quantization_config": section}, name="m")
    model = model_from_config({**V3, "quantization_config": section}, name="m", weights="int4")
    assert model.precision["experts"] == "int4-g128"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size: [64, 64]"),
        ({"quant_method": "fp8", "modules_to_not_convert": [1]}, "must be a list of module names"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits: 3 must be 4 or 8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"x": 1}}, "`dynamic` rules"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 100}, "groups of 100 is not known"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quant_algo: 'W4A8_AWQ'"),
        (compressed(3, "int"), "num_bits: 3"),
        (compressed(8, "float", ignore=["re:("]), "is not a regular expression"),
        (compressed(8, "float", ignore=["re:(.+)+!"]), "repeats a group"),
        (compressed(8, "float", ignore=[f"re:a{i}" for i in range(65)]), "at most 64 are read"),
        ({"bits": 4}, "quant_method is None, which is not modelled"),
        ([1], "quantization_config: [1] must be a mapping of keys to values"),
    ],
)
def test_wrong_sections_are_one_line(section, words):
    with pytest.raises(InputError) as caught:
        model_from_config({**V3, "quantization_config": section}, name="m")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modules_of_layers_with_two_attentions_and_of_parts_beside_experts():
    counted = json.loads(Path(__file__).with_name("counted_by_transformers.json").read_text())["small"]
    small = {row["config"]["model_type"]: row["config"] for row in reversed(counted)}
    kept = ["model.layers.1.self_attn.0.o_proj", "model.layers.1.mlps.0", "model.layers.0.mlps.1"]
    longcat = precision(small["longcat_flash"], {"quant_method": "fp8", "modules_to_not_convert": kept})
    assert longcat["shared"] == longcat["dense"] == "bf16*0.5000+fp8-row*0.5000"
    assert longcat["attention"] == "fp8-row*0.9302+bf16*0.0698"  # one output projection of four
    for kind, name, part in (
        ("granitemoe_swa", "re:.*shared_mlp.*", "shared"),
        ("granitemoehybrid", "*.mamba.*", "attention"),
        ("bailing_hybrid", "re:.*attention.*", "attention"),
        ("lfm2_moe", "re:.*feed_forward.w.*", "dense"),
    ):
        formats = precision(small[kind], {"quant_method": "fp8", "modules_to_not_convert": [name]})
        assert (formats[part] != "fp8-row", formats["experts"]) == (True, "fp8-row"), kind


def gpu(*units: str) -> GpuSpec:
    figures = {f"{unit}_flop_per_s": Figure(1e15, "flop/s", Evidence.ASSUMED, "test") for unit in units}
    return GpuSpec("chip", "Chip", "maker", "test", 1, figures)


def test_weights_multiply_in_the_next_wider_unit_and_say_so():
    every = ("bf16", "fp8", "fp4")
    for name, units, unit in (("fp8", every[:2], "fp8"), ("nvfp4", every, "fp4"), ("bf16", every, "bf16")):
        assert multiply_dtype(name, gpu(*units)) == (unit, None)
    for name, units, unit in (
        ("nvfp4", every[:2], "fp8"),
        ("int4-g32", every, "bf16"),
        ("mxfp4", every[:1], "bf16"),
    ):
        multiplied, note = multiply_dtype(name, gpu(*units))
        assert (multiplied, name in note) == (unit, True)
    with pytest.raises(MissingFigureError, match="chip: the catalog has no dense peak for bf16"):
        multiply_dtype("bf16", gpu("fp8"))


def test_formats_of_caches_and_unknown_ones():
    assert [cache_bytes_per_element(name) for name in ("bf16", "FP8", "fp32")] == [2, 1, 4]
    with pytest.raises(InputError, match="`kv_dtype` 'nvfp4': no format of the KV cache"):
        cache_bytes_per_element("nvfp4")
    for wrong in ("fp9", "", "nvfp4*0.5", "nvfp4*half+bf16*0.5", "what*0.5+bf16*0.5"):
        with pytest.raises(InputError, match="`weights` "):
            dtype(wrong)


def test_bytes_of_formats_with_their_scales():
    sizes = {"bf16": 2, "fp32": 4, "int8": 1, "BFloat16": 2, "fp8": 1 + 4 / 16384, "mxfp4": 0.53125}
    sizes |= {"nvfp4": 0.5625, "mxfp8": 1.03125, "int4-g32": 0.5625}
    sizes |= {"int4-g128": 0.515625, "int4-g128-zp": 0.51953125, "int4": 0.515625}
    assert {name: bytes_per_param(name) for name in sizes} == sizes
