"""Public benchmark configurations behind measured rows: what really ran, where a row itself does not say.

The facts are those of InferenceX's configuration files, October 2025 to May 2026 (Apache-2.0;
``benchmarks/calibration/pack_recipes.py`` packs them): pools, widths, data-parallel attention and drafting by chip,
engine, model, precision, lengths and requests. A row is joined by all of these, by the widths that it does record, by
the image that it ran and by its date; what the remaining configurations agree on is taken, the rest stays open.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache
from pathlib import Path

from cost.validation.point import Point, Pool
from topology.table import Row, Table

PATH = Path(__file__).parent / "data" / "recipes.csv"
COLUMNS = (
    *("chip", "engine", "model", "precision", "isl", "osl"),
    *(f"prefill_{name}" for name in ("workers", "gpus", "ep", "dp")),
    *("workers", "gpus", "ep", "dp", "drafts", "batch", "slots", "image", "first", "last", "requests"),
)
BEFORE, AFTER = timedelta(days=21), timedelta(days=7)
"""How long before its commit, and after the next one, a configuration may have been run."""


def plain_image(name: str) -> str:
    """Return the name of an image without registry, platform and digest."""
    return re.sub(r"(-runtime|-amd64|-arm64|@sha.*)", "", name.strip().rpartition("/")[2])


@dataclass(frozen=True)
class Recipe:
    """One public configuration.

    Attributes
    ----------
    pool, prefill_pool:
        What decodes (or serves both phases), what prefills.
    drafts:
        Tokens drafted a step; None: multi-token prediction without a number.
    stated:
        Whether the recipe says the number; otherwise "no drafts" is a key that is missing.
    batch:
        Largest batch of a rank that the recipe admits, 0 where it does not say.
    """

    pool: Pool
    prefill_pool: Pool | None
    drafts: int | None
    stated: bool
    batch: int
    image: str
    first: date
    last: date

    def days_off(self, day: date) -> int:
        """Days between ``day`` and the time in which the configuration may have been run."""
        return max(0, (self.first - BEFORE - day).days, (day - self.last - AFTER).days)


Key = tuple[str, str, str, str, int, int, int]
"""Chip, engine, model, precision, isl, osl, requests."""


@dataclass(frozen=True)
class Label:
    """What the configurations that match a row agree on.

    Attributes
    ----------
    known:
        Whether any configuration has the row's key.
    drafts:
        Tokens drafted a step where all agree; None where they do not, or where none is known.
    pool, prefill_pool:
        Layouts of the middle one by size, None where no layout fits what the row recorded.
    batch:
        Largest batch of a rank that it admits, 0 where it does not say.
    """

    known: bool
    drafts: int | None = None
    pool: Pool | None = None
    prefill_pool: Pool | None = None
    batch: int = 0


def label_of(
    key: Key,
    fits: Callable[[Recipe], bool],
    *,
    disaggregated: bool,
    image: str = "",
    day: date | None = None,
    drafting: bool = True,
) -> Label:
    """Return what the public configurations say of a row.

    Parameters
    ----------
    fits:
        Whether a recipe's pools can be what the row recorded.
    image, day:
        Image and date of the run; empty and None where not recorded.
    drafting:
        Whether the row can be a run that drafted.
    """
    found = [
        recipe
        for recipe in _recipes().get(key, ())
        if (recipe.prefill_pool is not None) == disaggregated and (drafting or recipe.drafts == 0)
    ]
    if not found:
        return Label(known=False)
    fitting = [recipe for recipe in found if fits(recipe)]
    nearest = [recipe for recipe in fitting or found if image and recipe.image == image] or fitting or found
    if day is not None:
        off = [recipe.days_off(day) for recipe in nearest]
        nearest = [recipe for recipe, days in zip(nearest, off, strict=True) if days == min(off)]
    drafts = {_drafts(recipe, key) for recipe in nearest}
    agreed = drafts.pop() if len(drafts) == 1 else None
    if not fitting:
        # no layout fits: only what all of them agree on says something
        return Label(known=True, drafts=agreed)
    chosen = sorted(nearest, key=_size)[(len(nearest) - 1) // 2]
    return Label(True, agreed, chosen.pool, chosen.prefill_pool, chosen.batch)


def _size(recipe: Recipe) -> tuple[int, int, int]:
    """Order of configurations that a row may all be: by GPUs that decode, engines, GPUs that prefill."""
    prefill = recipe.prefill_pool.gpus if recipe.prefill_pool else 0
    return recipe.pool.gpus, recipe.pool.workers, prefill


def _drafts(recipe: Recipe, key: Key) -> int:
    if recipe.drafts is not None:
        return recipe.drafts
    engine, model, requests = key[1], key[2], key[6]
    groups = recipe.pool.workers * recipe.pool.attention_dp
    return unstated_drafts(
        engine,
        model,
        each=requests / groups,
        data_parallel=recipe.pool.attention_dp > 1,
        disaggregated=recipe.prefill_pool is not None,
    )


def launched_cache(cluster: str, engine: str, model: str, weights: str) -> str:
    """Format of the KV cache that the public launch scripts set; BF16, the engines' own, where they set none.

    InferenceX's scripts (``benchmarks/single_node``, ``srt-slurm-recipes``; Apache-2.0): FP8 on TensorRT-LLM; on
    SGLang for latent attention on Blackwell and for Qwen3.5 in 8 bits or fewer; on vLLM for GPT-OSS on Blackwell, for
    MiniMax but on H100, for Kimi in NVFP4 and for DeepSeek-V4; BF16 in the rest.
    """
    hopper = cluster.startswith("hgx-h")
    eight_bits = (
        engine == "trtllm"
        or (engine == "sglang" and not hopper and model.startswith(("deepseek-", "glm-5", "kimi-")))
        or (engine == "sglang" and model.startswith("qwen3.5") and weights != "bf16")
        or (engine == "vllm" and not hopper and model.startswith("gpt-oss"))
        or (engine == "vllm" and model.startswith("minimax") and cluster != "hgx-h100")
        or (engine == "vllm" and model.startswith("kimi") and weights == "nvfp4")
        or (engine == "vllm" and model.startswith("deepseek-v4"))
    )
    return "fp8" if eight_bits else "bf16"


def with_unstated_drafts(point: Point) -> Point:
    """Return a point that drafts, its number not stated, with the number that engines run at its load."""
    groups = max(1, point.pool.workers * point.pool.attention_dp)
    requests = point.concurrency or point.batch * point.pool.gpus
    drafts = unstated_drafts(
        point.engine,
        point.model,
        each=requests / groups,
        data_parallel=point.pool.attention_dp > 1,
        disaggregated=point.prefill_pool is not None,
    )
    accepted = min(point.accept_length, 1.0 + drafts)
    return replace(point, draft_tokens=drafts, accept_length=accepted)


def unstated_drafts(
    engine: str, model: str, *, each: float, data_parallel: bool, disaggregated: bool = False
) -> int:
    """Tokens drafted a step where a row says "MTP" without a number.

    Parameters
    ----------
    each:
        Requests per attention group.

    Notes
    -----
    InferenceX's own scripts: on one engine TensorRT-LLM drafts 3 with tensor-parallel and 1 with data-parallel
    attention (``dsr1_*_trt_mtp.sh``), SGLang 2 for DeepSeek-R1 (``dsr1_*_mtp.sh``) and 3 for Qwen3.5, GLM-5 and
    DeepSeek-V4 (``speculative-num-steps``). Of its recipes for two pools that say the number, those of TensorRT-LLM
    with data-parallel attention draft 3 at up to about 25 requests a rank, 2 at up to 60, 1 above (medians 17, 35,
    211). Where nobody says which engine, TensorRT-LLM's.
    """
    if engine in ("sglang", "vllm"):
        return 2 if model == "deepseek-r1" or engine == "vllm" else 3
    if not data_parallel:
        return 3
    if not disaggregated:
        return 1
    return 3 if each <= 25 else 2 if each <= 60 else 1


@cache
def _recipes() -> Mapping[Key, list[Recipe]]:
    found = defaultdict(list)
    for row in Table.read(PATH).rows():
        recipe = _read(row)
        names = (row.need("chip"), row.need("engine"), row.need("model"), row.need("precision"))
        for requests in row.need("requests").split():
            found[*names, row.count("isl"), row.count("osl"), int(requests)].append(recipe)
    return found


def _read(row: Row) -> Recipe:
    drafts = row.need("drafts")
    return Recipe(
        pool=_pool(row, ""),
        prefill_pool=_pool(row, "prefill_") if row.text("prefill_workers") else None,
        drafts={"mtp": None, "none": 0}[drafts] if not drafts.isdigit() else int(drafts),
        stated=drafts.isdigit(),
        batch=row.count("batch"),
        image=row.text("image"),
        first=date.fromisoformat(row.need("first")),
        last=date.fromisoformat(row.need("last")),
    )


def _pool(row: Row, side: str) -> Pool:
    workers, gpus, ep = (row.count(f"{side}{name}") for name in ("workers", "gpus", "ep"))
    gpus, ep = max(gpus, ep, 1), max(ep, 1)  # some recipes give the width as that of the experts alone
    slots = 0 if side else row.count("slots")
    if row.text(f"{side}dp") == "yes":
        return Pool(1, gpus, ep, gpus // ep, workers=workers, slots=slots)
    return Pool(gpus, 1, ep, gpus // ep, workers=workers, slots=slots)
