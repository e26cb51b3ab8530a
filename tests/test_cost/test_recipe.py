"""Recipes of published runs: the shipped file, whose recipe a chip has, and what is refused in a file."""

from __future__ import annotations

import re

import pytest

from cost.calibration.serving import MAX_DRAFTS
from cost.config.precision import classes_given
from cost.recipe import ANY_MODEL, PATH, Recipes, published_recipe
from cost.resolve import resolve_model
from topology.base.errors import InputError
from topology.base.reading import load_yaml
from topology.base.schema import validated

R1 = resolve_model("deepseek-r1")


def found(model: str, *chips: str) -> tuple[object, ...]:
    recipe, _ = published_recipe(chips, resolve_model(model))
    return recipe.narrowed(resolve_model(model)), recipe.kv_dtype, recipe.draft_tokens, recipe.overlap


def test_recipes_are_those_of_public_configurations() -> None:
    for chip in ("b200-sxm", "b300-sxm", "gb200", "gb300", "rubin"):
        assert found("deepseek-r1", chip) == ("nvfp4,attention=fp8", "fp8", 3, False)
        assert found("deepseek-v4-pro", chip)[0] is None  # its experts are in FP4 as they come
    assert found("deepseek-r1", "h200-sxm") == (None, "fp8", 3, False)
    assert found("deepseek-r1", "h800-sxm") == (None, "bf16", 0, True)
    assert found("gpt-oss-120b", "h100-sxm") == (None, "bf16", 0, False)
    assert found("llama-3.1-70b", "b200-sxm") == ("nvfp4", "fp8", 0, False)
    assert found("qwen3-235b-a22b", "mi355x") == ("experts=mxfp4", "fp8", 0, False)


def test_a_recipe_of_any_model_makes_no_weights_wider() -> None:
    assert found("qwen3-235b-a22b", "h100-sxm")[0] == "fp8"
    assert found("kimi-k2.5", "h100-sxm")[0] is None  # INT4 experts
    assert found("kimi-k3", "gb200")[0] is None  # MXFP4 experts are as narrow as NVFP4


def test_each_says_where_it_is_from_and_a_chip_whose_it_takes() -> None:
    assert published_recipe(["gb200"], R1)[1].startswith("InferenceX dsr1-fp4-")
    assert published_recipe(["rubin"], R1)[1].startswith("as on gb300: InferenceX dsr1-fp4-")
    assert published_recipe(["tpu-v7"], R1) == (None, "no public run of deepseek-r1 on tpu-v7")
    assert published_recipe(["gb200", "gb200", "gb300"], R1)[0] is not None
    assert published_recipe(["h100-sxm", "gb200"], R1) == (None, "h100-sxm, gb200 have different ones")


def test_the_shipped_file_can_be_priced() -> None:
    table = validated(Recipes, load_yaml(PATH, PATH.name), PATH.name)
    assert {recipe.source for recipe in table.recipes} == set(table.sources)
    for recipe in table.recipes:
        assert recipe.draft_tokens <= MAX_DRAFTS
        assert (recipe.draft_tokens == 0) or not {*ANY_MODEL} & {*recipe.models}
    assert len(table.recipes) < 60


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"chips": ["h101"]}, "is not a chip"),
        ({"models": ["deepseek-r9"]}, "is not a model"),
        ({"weights": "fp3"}, "no such format"),
        ({"weights": "expert=fp8"}, "there is no class of weights 'expert'"),
        ({"kv_dtype": "fp5"}, "is not a format of the KV cache"),
        ({"source": "hearsay"}, "'hearsay' is not among the file's sources"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(changed: dict[str, object], words: str) -> None:
    recipe = {"chips": ["gb200"], "models": ["deepseek-r1"], "source": "a"} | changed
    with pytest.raises(InputError, match=re.escape(words)):
        validated(Recipes, {"sources": {"a": "A"}, "like": {}, "recipes": [recipe]}, "recipes.yaml")


def test_formats_of_weights_by_class() -> None:
    assert classes_given("FP8") == dict.fromkeys(("experts", "shared", "attention", "dense"), "fp8")
    assert classes_given("experts=nvfp4") == {"experts": "nvfp4"}
    assert classes_given("nvfp4,attention=fp8") == classes_given("nvfp4") | {"attention": "fp8"}
    assert classes_given(None) == {}
    part = resolve_model("glm-5", weights="experts=nvfp4, shared=fp8")
    assert {part.precision[name] for name in ("attention", "dense", "head")} == {"bf16"}
    assert (part.precision["experts"], part.precision["shared"]) == ("nvfp4", "fp8")
    for wrong in ("fp8,nvfp4", "experts=fp8,experts=nvfp4", "experts=", "router=fp8", ""):
        with pytest.raises(InputError, match="`weights`"):
            classes_given(wrong)
