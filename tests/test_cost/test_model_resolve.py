"""Models by catalog name and from files."""

import json
import re
from pathlib import Path

import pytest

from cost.config.build import model_from_config
from cost.dtypes import dtype
from cost.resolve import (
    checkpoint_of,
    hugging_face_ids,
    model_called,
    model_names,
    model_title,
    published,
    resolve_model,
)
from topology.base.errors import InputError

GOOD = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "vocab_size": 100, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("name", model_names())
def test_entries_are_whole(name):
    model = resolve_model(name)
    assert model.name == name
    assert model.source == f"catalog {name}"
    assert model_title(name)
    assert published(name).sources
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", checkpoint_of(model)), "what an engine loads"
    assert model.notes == ()
    assert all(dtype(weights).bytes_per_param > 0 for weights in model.precision.values())
    assert hugging_face_ids(name)
    for text in (model_title(name), *hugging_face_ids(name)):
        assert model_called(text.upper()) == model_called(text.partition("/")[2] or text) == name
        assert model_called(text.replace("-", " ").replace("_", " ")) == name
    assert model_from_config(json.loads(json.dumps(model.config)), name=name) == model


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deepseek-v33", "did you mean deepseek-v3"),
        ("gpt-oss", "may be gpt-oss-120b or gpt-oss-20b; write one of them"),
        ("mistral-8x7b", "did you mean mixtral-8x7b or mixtral-8x22b or"),
        (
            "nvidia/Kimi-K2.5-NVFP4",
            "give `model` kimi-k2.5 `weights` experts=nvfp4",
        ),  # only those are quantised
        ("nobody/zzzzzz", "There is no such file either; `rackplan"),
        ("", "not in the catalog"),
        ("missing/config.json", "there is no such file"),
    ],
)
def test_unknown_names(text, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        resolve_model(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_has_its_weights_and_context_and_is_what_an_engine_loads():
    known = resolve_model("Qwen/Qwen3-235B-A22B-FP8")
    assert (known.name, known.precision["experts"]) == ("qwen3-235b-a22b", "fp8")
    for text in ("qwen3 235b a22b", "Qwen/Qwen3-235B", "somebody/Qwen3-235B"):
        assert resolve_model(text).name == "qwen3-235b-a22b", "as people type it"
    assert checkpoint_of(known) == "Qwen/Qwen3-235B-A22B-FP8"
    assert checkpoint_of(resolve_model("Qwen3-235B")) == "Qwen/Qwen3-235B-A22B"
    assert checkpoint_of(resolve_model("deepseek-r1", weights="nvfp4")) == ""
    assert resolve_model("qwen3-235b-a22b").most_context == 40960
    long = resolve_model("Qwen/Qwen3-235B-A22B-Instruct-2507")
    assert (long.most_context, "README of github.com/QwenLM" in long.most_context_source) == (262144, True)
    assert model_from_config(json.loads(json.dumps(long.config)), name=long.name) == long


def test_a_file_or_folder_goes_before_a_spelling_and_after_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("Qwen3-235B", "deepseek-v3", "deepseek-ai/DeepSeek-V3"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text(json.dumps(GOOD))
    assert resolve_model("Qwen3-235B").hidden == GOOD["hidden_size"]
    assert resolve_model("deepseek-ai/DeepSeek-V3").name == "DeepSeek-V3"
    assert resolve_model("deepseek-v3").name == "deepseek-v3"
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({**GOOD, "time_step_limit": [0.0, float("inf")]}).encode())
    assert resolve_model(str(path)).hidden == 64, "a mark of the order of bytes and infinities do not matter"
    for content, words in (
        ("{", "not valid JSON"),
        ('{"a": 1, "a": 2}', "a: duplicate key"),
        ("[1]", "a JSON list"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=words):
            resolve_model(str(path))


@pytest.mark.parametrize(
    ("name", "beside"), [("config.json", "hf_quant_config.json"), ("a_config.json", "a_hf_quant_config.json")]
)
def test_the_quantisers_own_file_is_read_where_the_config_is_silent(name, beside, tmp_path):
    (tmp_path / name).write_text(json.dumps(GOOD))
    quantization = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]},
    }
    (tmp_path / beside).write_text(json.dumps(quantization))
    model = resolve_model(str(tmp_path / name))
    assert model.precision["dense"] == "nvfp4"
    assert model_from_config(model.config, name=model.name) == model
    (tmp_path / name).write_text(json.dumps({**GOOD, "quantization_config": {"quant_method": "fp8"}}))
    assert resolve_model(str(tmp_path / name)).precision["dense"] == "fp8-row"


def test_a_model_comes_from_its_content_and_itself() -> None:
    known = resolve_model("mixtral-8x7b")
    assert resolve_model(known) is known
    assert resolve_model(known.config).layers == known.layers
    with pytest.raises(InputError, match="weights"):
        resolve_model("mixtral-8x7b", weights=8)  # type: ignore[arg-type]
    for value in (None, 3, [1], b"mixtral-8x7b", Path("no.json"), {}, {1: 2}):
        with pytest.raises(InputError):
            resolve_model(value)  # type: ignore[arg-type]
