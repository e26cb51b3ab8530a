"""Recipes of published runs: formats of weights and cache, drafts and overlap, by chip and model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from cost.calibration.tables import CHECKED, Text, load_table, one_of
from cost.config.precision import classes_given
from cost.dtypes import CACHE_DTYPES, dtype
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.model import Model
from cost.resolve import model_names
from topology.base.errors import InputError
from topology.base.schema import problem
from topology.base.units import plural
from topology.catalog import gpu_names

PATH = Path(__file__).parent / "catalog" / "recipes.yaml"
SHOWN_RATIO = 1.1
"""Ratio of throughputs under two recipes from which both are shown."""
ANY_MODEL = ("moe", "dense")
"""What a recipe of any other model with or without routed experts has in place of names."""


def _format(weights: str) -> str:
    try:
        classes_given(weights)
    except InputError as error:
        raise problem(str(error)) from None
    return weights


Chip = Annotated[str, one_of("chip", gpu_names)]


@dataclass(frozen=True, config=CHECKED)
class Recipe:
    """What published runs serve some models with on some chips.

    Attributes
    ----------
    chips, models:
        Names of the catalog, or one of :data:`ANY_MODEL` for any other such model.
    weights:
        Formats (:func:`cost.config.precision.classes_given`); empty: the checkpoint's.
    kv_dtype, draft_tokens, overlap:
        As of :class:`cost.inputs.workload.Workload`.
    source:
        Where they are from: a key of the file's sources.
    """

    chips: tuple[Chip, ...]
    models: tuple[Annotated[str, one_of("model", lambda: (*model_names(), *ANY_MODEL))], ...]
    source: Text
    weights: Annotated[str, AfterValidator(_format)] = ""
    kv_dtype: Annotated[str, one_of("format of the KV cache", lambda: CACHE_DTYPES)] = "bf16"
    draft_tokens: Annotated[int, Field(strict=True, ge=0)] = 0
    overlap: bool = False

    def narrowed(self, model: Model) -> str | None:
        """Return the formats for a model; None: the checkpoint's, which one of any model never makes wider."""
        part = model.main_weights
        override = classes_given(self.weights or None).get(part)
        general = model.name not in self.models
        if override is None or (general and dtype(override).bits >= dtype(model.precision[part]).bits):
            return None
        return self.weights


@dataclass(frozen=True, config=CHECKED)
class Recipes:
    """The file: recipes, their sources in words, and chips that take the recipes of others."""

    sources: dict[str, Text]
    like: dict[Chip, Chip]
    recipes: tuple[Recipe, ...]

    def __post_init__(self) -> None:
        for recipe in self.recipes:
            if recipe.source not in self.sources:
                raise problem(f"source: {recipe.source!r} is not among the file's sources.")


@dataclass(frozen=True, kw_only=True)
class OtherRecipe:
    """What the recipe that is not in force would bring on a cluster.

    Attributes
    ----------
    cluster, recipe, words:
        Names, and formats, drafts and overlap in words.
    tok_s_per_user, tok_s_per_gpu, ratio:
        The speed compared at (null: as much as fits), throughput, and that over the one of the recipe in force.
    gpus:
        GPUs that give it: for a demand as many as it takes.
    """

    cluster: str
    recipe: str
    words: str
    tok_s_per_user: float | None
    tok_s_per_gpu: float
    ratio: float
    gpus: int

    @classmethod
    def over(
        cls,
        current: float,
        alternative: float,
        deployment: Deployment,
        *,
        tok_s_per_user: float | None,
        gpus: int,
    ) -> OtherRecipe | None:
        """Return ``alternative`` tok/s/GPU, under the recipe of ``deployment``, beside ``current``; None if alike."""
        if 1 / SHOWN_RATIO < alternative / current < SHOWN_RATIO:
            return None
        words, recipe = (
            recipe_words(deployment.model, deployment.workload),
            "usual" if deployment.recipe else "checkpoint",
        )
        return cls(
            cluster=deployment.cluster.name,
            recipe=recipe,
            words=words,
            tok_s_per_user=tok_s_per_user,
            tok_s_per_gpu=alternative,
            ratio=alternative / current,
            gpus=gpus,
        )


@cache
def _recipes() -> Recipes:
    return load_table(Recipes, PATH)


def published_recipe(chips: Sequence[str], model: Model) -> tuple[Recipe | None, str]:
    """Return the recipe that published runs of a model use on ``chips`` (all of one cluster), and where it is from.

    None, and why: no such run is public, or chips have different ones.
    """
    recipes = {_recipe_on(chip, model): chip for chip in chips}
    if len(recipes) > 1:
        return None, f"{', '.join(dict.fromkeys(chips))} have different ones"
    (recipe, chip), *_ = recipes.items()
    if recipe is None:
        return None, f"no public run of {model.name} on {chip}"
    origin = "" if chip in recipe.chips else f"as on {_recipes().like[chip]}: "
    return recipe, origin + _recipes().sources[recipe.source]


def _recipe_on(chip: str, model: Model) -> Recipe | None:
    """Return the first recipe of a chip or of the one it is like, by the model's name, then of any such model."""
    table = _recipes()
    places = [
        (name, at)
        for name in (model.name, ANY_MODEL[model.moe is None])
        for at in (chip, table.like.get(chip))
    ]
    return next(
        (
            entry
            for name, at in places
            for entry in table.recipes
            if name in entry.models and at in entry.chips
        ),
        None,
    )


def recipe_words(model: Model, workload: Workload) -> str:
    """Return formats, drafts and overlap in a few words: ``experts nvfp4, cache fp8, 3 drafts``."""
    part = model.main_weights
    weights = f"{'weights' if part == 'dense' else part} {model.precision[part]}"
    drafts = plural(workload.draft_tokens, "draft") if workload.draft_tokens else "no drafts"
    return ", ".join([weights, f"cache {workload.kv_dtype}", drafts, *["overlap"] * workload.overlap])
