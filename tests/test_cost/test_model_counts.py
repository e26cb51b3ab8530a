"""Counts against transformers' own modules, and against what the authors publish."""

import json
import re
from pathlib import Path

import pytest

from cost.config.build import model_from_config
from cost.config.families import FAMILIES
from cost.model import Model, MoeFfn
from cost.resolve import model_names, published, resolve_model
from topology.base.errors import InputError

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "data" / "model_configs"
COUNTED = json.loads((HERE / "counted_by_transformers.json").read_text())
SMALL = COUNTED["small"]
REMOTE = json.loads((HERE / "remote_configs.json").read_text())
# Adapters without a class of their own in transformers (remote code), or with the class of another one.
ELSEWHERE = {row["config"]["model_type"] for row in REMOTE}
ELSEWHERE |= {"kimi_k2", "bailing_moe_v2", "minimax_m3", "step3p7", "minimax_m1"}
VISION = {name for name in FAMILIES if re.search("_vl|omni|4v", name)}


def attention_params(model: Model) -> int:
    return sum(layer.attention.matmul_params + layer.attention.other_params for layer in model.layers)


def expert_params(model: Model) -> int:
    ffns = [layer.ffn for layer in model.layers]
    return sum(ffn.experts * ffn.expert_params for ffn in ffns if isinstance(ffn, MoeFfn))


def test_counts_are_those_of_the_modules():
    for row in SMALL:
        kind = row["config"]["model_type"]
        model = model_from_config(row["config"], name="small")
        assert model.total_params == row["total"], kind
        assert attention_params(model) == row["attention"], kind
        assert expert_params(model) == row["experts"], kind
        for layer in model.layers:
            assert sum(layer.attention.modules.values()) == layer.attention.matmul_params, kind
        assert model_from_config(json.loads(json.dumps(model.config)), name="small") == model, kind


def test_every_family_is_counted_somewhere():
    counted = {row["config"]["model_type"] for row in SMALL}
    assert set(FAMILIES) <= counted | ELSEWHERE | VISION


@pytest.mark.parametrize("name", sorted(COUNTED["published_configs"]))
def test_published_configs_are_counted_exactly(name):
    path = SHARED / f"{name}.json"
    if not path.is_file():
        pytest.skip("the reference configs are not beside this checkout")
    model = resolve_model(str(path))
    assert model.total_params == COUNTED["published_configs"][name]
    assert model.notes == ()


def number(text: str) -> tuple[float, float]:
    """Value of a printed count, and half a unit of its last digit (trailing zeros of whole numbers say nothing)."""
    digits, unit = re.fullmatch(r"([\d.]+)([BT])", text).groups()
    scale = {"B": 1e9, "T": 1e12}[unit]
    decimals = len(digits.split(".")[1]) if "." in digits else len(digits.rstrip("0")) - len(digits)
    last = 10.0**-decimals
    return float(digits) * scale, last * scale / 2


# Vision towers and projectors, counted by transformers (Llama 4: with the published hidden size of 1,408).
TOWERS = {
    "qwen3.5-397b-a17b": 456_010_480,
    "llama-4-scout": 890_913_280,
    "llama-4-maverick": 890_913_280,
    "minimax-m3": 865_567_232,
}


def as_counted(model: Model, counts: str, value: int) -> float:
    """Our count with what the authors' figure adds or leaves out."""
    indices = [layer.attention.modules.get("index", 0) for layer in model.layers]
    index = sum(indices)
    adds = {
        "with input embedding": model.embedding_params,
        "with vision tower": TOWERS.get(model.name, 0),
        "without output head": -model.head_params,
        "without sparse index": -index,
        "with an index in every layer": max(indices) * len(indices) - index,
        "without embedding and head": -model.head_params - model.embedding_params,
        "with one draft layer": max(layer.total_params for layer in model.layers),
        "rounded down": 0,
    }
    return value + sum(adds[part] for part in counts.split(", ") if part)


def agrees(ours: float, printed: str, counts: str) -> bool:
    """Whether ``ours`` is what is ``printed``, rounded to its last digit."""
    value, half = number(printed)
    return value <= ours < value + 2 * half if "rounded down" in counts else abs(ours - value) <= half


@pytest.mark.parametrize("name", model_names())
def test_counts_match_the_published_rounding(name):
    model, facts = resolve_model(name), published(name)
    assert agrees(as_counted(model, facts.total_counts, model.total_params), facts.total, facts.total_counts)
    if facts.active:
        ours = as_counted(model, facts.active_counts, model.active_params)
        assert agrees(ours, facts.active, facts.active_counts)
        assert model.moe is not None


@pytest.mark.parametrize("row", REMOTE, ids=lambda row: row["config"]["model_type"])
def test_remote_code_families_match_the_published_rounding(row):
    model = model_from_config(row["config"], name="remote")
    value, half = number(row["total"])
    assert abs(model.total_params - value) <= 2 * half
    if row["active"]:
        value, half = number(row["active"])
        assert model.active_params <= value + half
        assert model.active_params_with_embedding >= value - half


def test_hunyuan_lists_with_one_entry_a_layer():
    config = {
        "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 128167, "num_experts": 64,
        "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
        "cla_share_factor": 2, "use_cla": False, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = model_from_config(config, name="hunyuan-a13b")
    assert agrees(model.total_params, "80B", "")  # model card of Hunyuan-A13B: 80B, 13B active
    assert agrees(model.active_params, "13B", "")
    with pytest.raises(InputError, match="moe_topk"):
        model_from_config({**config, "moe_topk": [8] * 31 + [4]}, name="odd")


def test_kimi_k3_is_its_checkpoint_to_the_element():
    # 1,503,647,073,024 elements in the 96 files of moonshotai/Kimi-K3: two FP4 weights are one, 32 have a scale, the
    # decay's scale is padded to 128 heads in the 69 delta layers, and the vision tower has 447,358,976.
    model = resolve_model("kimi-k3")
    experts = expert_params(model)
    assert experts == 92 * 896 * 3 * 3584 * 3072
    stored = model.total_params - experts + experts // 2 + experts // 32
    assert stored + 69 * (128 - 96) + 447_358_976 == 1_503_647_073_024
    assert model.precision["experts"] == "mxfp4"
    assert {model.precision[part] for part in ("shared", "attention", "dense", "head")} == {"bf16"}
    assert (model.hidden, model.expert_hidden, model.moe.width) == (
        7168,
        3584,
        3584,
    )  # the narrow vector is sent
    assert model.moe.shared_params == 3 * 7168 * 2 * 3072 + 2 * 7168 * 3584 + 3584
