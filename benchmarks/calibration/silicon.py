"""The silicon sample that aiconfigurator ships, as points: served requests with TTFT and TPOT, one run a row.

Layouts are read as they ran and not as they were written down: the sample joins records of several origins, and some
of them lost or multiplied widths. Rows of one and the same run (equal times) that came in by two ways show what the
odd ones mean; the counts are those of the calibration part.

- ``0`` and blank mean 1.
- *Multiplied widths*: ``tp 64, moe_tp 8, moe_ep 8`` is ``tp 8, ep 8`` (11 twins), ``attention_dp 64, moe_tp 8,
  moe_ep 8`` is ``attention_dp 8, ep 8`` (11), ``tp 4, attention_dp 4, moe_ep 16`` is ``tp 4, ep 4`` (42). Benchmark
  logs (``gap-analysis``) are not so: there ``tp 4, moe_tp 2, moe_ep 2`` is what ran.
- *Ranks*: where the concurrency is ``batch_size`` times ``tp``, the batch is a rank's: attention was data-parallel.
- *Disaggregated without counts of workers*: the decode pool's ``moe_ep`` repeats the prefill pool's, ``moe_tp`` is
  what is left: ``prefill 4, decode tp 32, moe_tp 8, moe_ep 4`` is ``attention_dp 32, ep 32`` (13 twins).
- *Total as width*: equal widths of both pools that are no layout, like 20 or 48, are the GPUs of the deployment.
- *All ones* on a model that no single GPU holds: nothing was recorded (twins: decode pools of 4 and of 32).
- Decode workers that are not recorded are the medians of the 123 rows that have them; such prefill workers are enough
  (0: a count that never limits).

Whether a run drafted tokens is recorded nowhere; rows of the database dump (``db-dump``) did not. InferenceX's public
configurations (``data/recipes.csv``) say what really ran: a row is joined to them by chip, engine,
model, precision, lengths and requests, by the widths that it does record, by image and date; what the remaining
configurations agree on is taken.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from cost.resolve import checkpoint_called, resolve_model
from cost.validation.read import Point, Pool
from topology.files.resolve import cluster_called

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cost.model import Model

RECIPES = Path(__file__).parent / "data" / "recipes.csv"
BEFORE, AFTER = timedelta(days=21), timedelta(days=7)
"""How long before its commit, and after the next one, a configuration may have been run."""

# medians of the recorded counts: pools with tensor-parallel attention by engine, narrow and wide data-parallel pools
TP_WORKERS = {"sglang": 1}
OTHER_TP_WORKERS, NARROW_DP_WORKERS, WIDE_DP_WORKERS = 4, 2, 1
WIDE_GPUS, LARGEST_DECODE_GPUS, NODE = 16, 32, 4
DP_CONCURRENCY = (
    512  # recorded pools of 4 and 8 GPUs attend in data parallel beyond 700 requests, most from 512 on
)
PREFILL = Pool(attention_dp=NODE, ep=NODE)
MANY_PARAMS = 3e11  # at half a byte each, more than any single GPU of the sample holds
SATURATED_MS = 15_000
"""First token later than that: requests queue, and steps are those of an engine that is always full."""
LOG, DUMP = "gap-analysis", "db-dump"
DRAFTING = ("deepseek-", "glm-", "qwen3.5-", "qwen3-next")  # models that come with modules for drafting
SAME_RUNS = {"deepseek-v3": "deepseek-r1"}  # the benchmark's dumps call its R1 runs both
SYSTEMS = {"gb200_sxm": "gb200-nvl72"}  # what the sample calls a rack
FORMATS = {
    **dict.fromkeys(("fp8_block", "fp8_static", "fp8_ootb"), "fp8"),
    **dict.fromkeys(("w4a16_mxfp4", "w4a8_mxfp4_mxfp8"), "mxfp4"),
    **dict.fromkeys(("int4_wo", "w4afp8"), "int4"),
    **dict.fromkeys(("int8_wo", "sq"), "int8"),
    "fp4": "nvfp4",
    "float16": "fp16",
}


MEASURED = re.compile(r"measured=(\d{4}-\d\d-\d\d)")


class Row(dict[str, str]):
    """The cells of one row by column."""

    def count(self, name: str) -> int:
        """A whole number, 0 where the cell is blank."""
        return int(self[name] or 0)


def read_silicon(path: Path, quantity: str) -> list[Point]:
    """Return the sample's points of ``tpot_ms`` or of ``ttft_ms``, in the order of its rows.

    Rows without a date have that of the newest row: they are no later, and a point without a date would be asked for
    as of today.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = [Row(row) for row in csv.DictReader(file)]
    found = [
        replace(
            _point(row),
            quantity=quantity,
            measured=float(row[f"silicon_{quantity}"]),
            saturated=float(row["silicon_ttft_ms"] or 0.0) > SATURATED_MS,
        )
        for row in rows
    ]
    last = max(point.date for point in found)
    found = [replace(point, date=point.date or last) for point in found]
    return _reconciled(found, [(row["silicon_ttft_ms"], row["silicon_tpot_ms"]) for row in rows])


def _reconciled(points: Sequence[Point], times: Sequence[tuple[str, str]]) -> list[Point]:
    """Rows of one run, by its two times, tell of each other whether it drafted tokens."""
    known = {at: point for at, point in zip(times, points, strict=True) if point.drafts_recorded}
    labels = ("draft_tokens", "accept_length", "drafts_recorded")
    return [
        point
        if point.drafts_recorded or at not in known
        else replace(point, **{name: getattr(known[at], name) for name in labels})
        for at, point in zip(times, points, strict=True)
    ]


def _point(row: Row) -> Point:
    name, named = checkpoint_called(row["model_path"])
    model = resolve_model(name)
    cluster = cluster_called(SYSTEMS.get(row["system"], row["system"]))
    origin, engine = row["silicon_data_source"], row["backend"]
    logged, aggregated = LOG in origin, row["mode"] == "agg"
    weights, experts = _formats(row, model, named)
    found = re.search(r"silicon_concurrency=(\d+)", origin)
    pools = (_aggregated if aggregated else _disaggregated)(row, int(found[1]) if found else 0, model)
    pool, prefill, concurrency = pools
    drafts = None
    chip = re.match(r"[a-z]+\d+", row["system"])
    if chip and not logged:
        key = (
            *(chip[0], engine, SAME_RUNS.get(name, name), row["precision"]),
            *(row.count("isl"), row.count("osl"), concurrency),
        )
        label = _label(row, key, pool, prefill)
        drafts, pool, prefill = label.drafts, label.pool or pool, prefill and (label.prefill or prefill)
    if drafts is None and (not name.startswith(DRAFTING) or logged or origin.startswith(DUMP)):
        drafts = 0
    own = model.precision["experts" if model.moe else "dense"]
    return Point(
        id=row["id"],
        source=origin,
        quantity="",
        measured=0.0,
        phase="disaggregated" if prefill else "aggregated",
        cluster=cluster,
        model=name,
        pool=pool,
        prefill_pool=prefill,
        weights=weights,
        experts_dtype=experts,
        kv_dtype="" if logged else launched_cache(cluster, engine, name, experts or weights or own),
        concurrency=concurrency,
        in_step=logged,
        draft_tokens=drafts or 0,
        accept_length=0.0 if drafts else 1.0,
        drafts_recorded=drafts is not None,
        isl=row.count("isl"),
        osl=row.count("osl"),
        engine=engine,
        engine_version=row["backend_version"],
        date=measured[1] if (measured := MEASURED.search(origin)) else "",
    )


@dataclass(frozen=True)
class Recorded:
    """The widths of one pool as the file has them; ``workers`` and ``batch`` are 0 where it does not say."""

    tp: int
    attention_dp: int
    moe_tp: int
    ep: int
    workers: int = 0
    batch: int = 0
    logged: bool = False

    @staticmethod
    def of(row: Row, prefix: str = "") -> Recorded:
        """Return those of one side of a row, of "" for an aggregated one."""
        names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
        tp, dp, moe_tp, ep = (max(1, row.count(prefix + name)) for name in names)
        workers = row.count(f"{prefix}num_workers") if prefix else 0
        return Recorded(
            tp, dp, moe_tp, ep, workers, row.count(f"{prefix}batch_size"), LOG in row["silicon_data_source"]
        )

    @property
    def multiplied(self) -> bool:
        """Whether the attention's width is the product of two equal experts' widths."""
        equal = self.moe_tp == self.ep > 1 and self.tp * self.attention_dp == self.moe_tp * self.ep
        return equal and not self.logged

    @property
    def lost(self) -> bool:
        """Whether nothing was recorded."""
        return self.tp == self.attention_dp == self.moe_tp == self.ep == 1 and not self.workers

    @property
    def total(self) -> int:
        """GPUs of a whole deployment in the place of a width, 0 where the width is one."""
        odd = self.tp & (self.tp - 1) != 0 or self.tp > WIDE_GPUS
        return self.tp if odd and self.moe_tp == self.tp and self.attention_dp == self.ep == 1 else 0

    @property
    def consistent(self) -> Pool:
        """Both sides on the same GPUs: the wider side is the one that was recorded."""
        width, experts = self.tp * self.attention_dp, self.moe_tp * self.ep
        if experts > width and experts % self.tp == 0:
            return Pool(self.tp, experts // self.tp, self.ep, self.moe_tp)
        if experts != width:
            wide = self.attention_dp > 1
            return Pool(self.tp, self.attention_dp, width if wide else 1, 1 if wide else width)
        return Pool(self.tp, self.attention_dp, self.ep, self.moe_tp)


Pools = tuple[Pool, Pool | None, int]
"""What decodes (or serves both phases), what prefills, and the requests in the system."""


def _aggregated(row: Row, concurrency: int, model: Model) -> Pools:
    recorded, stages = Recorded.of(row), max(1, row.count("pp_size"))
    if model.moe and recorded.total:
        prefill, decode = _total_pools(recorded.total, concurrency, row["backend"])
        return decode, prefill, concurrency
    concurrency_of = concurrency or recorded.batch * recorded.attention_dp
    if not model.moe:
        each = recorded.batch and concurrency % recorded.batch == 0
        workers = max(1, concurrency // recorded.batch) if each else 1
        return Pool(recorded.tp, moe_tp=recorded.tp, stages=stages, workers=workers), None, concurrency_of
    pool = recorded.consistent
    if recorded.multiplied:
        dp = recorded.ep if recorded.attention_dp > 1 else 1
        pool = Pool(recorded.ep // dp, dp, recorded.ep)
    elif recorded.tp == recorded.attention_dp > 1 and recorded.moe_tp == 1 and recorded.ep == recorded.tp**2:
        pool = Pool(recorded.tp, ep=recorded.tp)
    elif recorded.batch and pool.attention_dp == 1 < pool.tp and concurrency == recorded.batch * pool.tp:
        pool = replace(pool, tp=1, attention_dp=pool.tp)
    return replace(pool, stages=stages), None, concurrency_of


def _disaggregated(row: Row, concurrency: int, model: Model) -> Pools:
    first, last = Recorded.of(row, "prefill_"), Recorded.of(row, "decode_")
    if first == last and first.lost and model.total_params > MANY_PARAMS:
        fp8 = row["gemm_quant_mode"].startswith("fp8")
        prefill, pool = _lost_pools(concurrency, fp8=fp8)
        return pool, prefill, concurrency
    if model.moe and first == last and first.total and not last.workers:
        prefill, pool = _total_pools(first.total, concurrency, row["backend"])
        return pool, prefill, concurrency
    pool = _decode_pool(last, first, concurrency, row["backend"], moe=model.moe is not None)
    pool = replace(pool, stages=max(1, row.count("decode_pp_size")))
    if model.moe:
        prefill = _experts_spread(replace(first.consistent, workers=first.workers))
    else:
        prefill = Pool(first.tp, moe_tp=first.tp, workers=first.workers)
    prefill = replace(prefill, stages=max(1, row.count("prefill_pp_size")))
    return pool, prefill, concurrency or last.batch * last.attention_dp * pool.workers


def _decode_pool(recorded: Recorded, prefill: Recorded, concurrency: int, engine: str, *, moe: bool) -> Pool:
    tp_workers = TP_WORKERS.get(engine, OTHER_TP_WORKERS)
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp, workers=recorded.workers or tp_workers)
    if recorded.workers:
        return _experts_spread(replace(recorded.consistent, workers=recorded.workers))
    width = recorded.tp * recorded.attention_dp
    repeated = 1 < recorded.ep == prefill.ep * prefill.attention_dp < width
    if recorded.attention_dp > 1 or (repeated and width >= WIDE_GPUS) or concurrency >= DP_CONCURRENCY:
        workers = WIDE_DP_WORKERS if width >= WIDE_GPUS else NARROW_DP_WORKERS
        return Pool(attention_dp=width, ep=width, workers=workers)
    if recorded.ep == 1:
        return Pool(tp=width, moe_tp=width, workers=tp_workers)
    return Pool(tp=width, ep=width, workers=tp_workers)


def _experts_spread(pool: Pool) -> Pool:
    """Experts of a pool with data-parallel attention are spread over it, not cut: so the twins say."""
    return pool if pool.attention_dp == 1 else replace(pool, ep=pool.attention_dp * pool.tp, moe_tp=1)


def _total_pools(total: int, concurrency: int, engine: str) -> tuple[Pool, Pool]:
    """The prefill and the decode pool of a deployment of which only all GPUs are recorded.

    Few requests on up to 28 GPUs: one prefill worker of 4 and as many narrow decode workers as the rest holds. Else
    one wide decode pool, and prefill workers of 4 in the rest.
    """
    if concurrency < DP_CONCURRENCY and total < LARGEST_DECODE_GPUS:
        workers = max(1, (total - NODE) // (NODE if engine == "sglang" else 2 * NODE))
        narrow = Pool(tp=4, moe_tp=4) if engine == "sglang" else Pool(tp=8, ep=8)
        return PREFILL, replace(narrow, workers=workers)
    width = LARGEST_DECODE_GPUS
    while width >= total * 0.9:
        width //= 2
    return replace(PREFILL, workers=max(1, (total - width) // NODE)), Pool(attention_dp=width, ep=width)


def _lost_pools(concurrency: int, *, fp8: bool) -> tuple[Pool, Pool]:
    """The prefill and the decode pool of a row that is all ones though no single GPU holds the model."""
    if concurrency < DP_CONCURRENCY:
        return replace(PREFILL, workers=0), Pool(tp=4, moe_tp=4, workers=NARROW_DP_WORKERS)
    prefill = Pool(attention_dp=8, ep=8) if fp8 else PREFILL
    return replace(prefill, workers=0), Pool(attention_dp=LARGEST_DECODE_GPUS, ep=LARGEST_DECODE_GPUS)


def _formats(row: Row, model: Model, named: str) -> tuple[str, str]:
    """Formats of the weights and of the experts, "" where they are the checkpoint's own.

    GPT-OSS and INT4 checkpoints come in one precision alone, whatever the row calls it.
    """

    def cell(column: str, default: str) -> str:
        text = row[column].lower()
        return FORMATS.get(text, text) or default

    given = cell("precision", named)
    weights, experts = cell("gemm_quant_mode", given), cell("moe_quant_mode", given)
    own, dense = model.precision["experts" if model.moe else "dense"], model.precision["attention"]
    if own.startswith("mxfp4") or (own.startswith("int4") and experts == "int4"):
        return "", ""
    if not model.moe:
        return ("" if weights == dense else weights), ""
    if dense.startswith(weights) and experts == own:
        return "", ""
    return weights, ("" if experts == weights else experts)


def launched_cache(cluster: str, engine: str, model: str, weights: str) -> str:
    """Format of the KV cache that InferenceX's public launch scripts set; BF16, the engines' own, where none."""
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


@dataclass(frozen=True)
class Recipe:
    """One public configuration; ``drafts``: None where it drafts without saying how many tokens."""

    pool: Pool
    prefill: Pool | None
    drafts: int | None
    image: str
    first: date
    last: date


Key = tuple[str, str, str, str, int, int, int]
"""Chip, engine, model, precision, isl, osl, requests."""


@cache
def _recipes() -> dict[Key, list[Recipe]]:
    found = defaultdict(list)
    with RECIPES.open(encoding="utf-8", newline="") as file:
        for row in map(Row, csv.DictReader(file)):
            drafts = row["drafts"]
            recipe = Recipe(
                _recipe_pool(row, ""),
                _recipe_pool(row, "prefill_") if row["prefill_workers"] else None,
                int(drafts) if drafts.isdigit() else {"mtp": None, "none": 0}[drafts],
                row["image"],
                date.fromisoformat(row["first"]),
                date.fromisoformat(row["last"]),
            )
            names = (row["chip"], row["engine"], row["model"], row["precision"])
            for requests in row["requests"].split():
                found[*names, row.count("isl"), row.count("osl"), int(requests)].append(recipe)
    return found


def _recipe_pool(row: Row, side: str) -> Pool:
    workers, gpus, ep = (row.count(f"{side}{name}") for name in ("workers", "gpus", "ep"))
    gpus, ep = max(gpus, ep, 1), max(ep, 1)  # some recipes give the width as that of the experts alone
    tp, dp = (1, gpus) if row[f"{side}dp"] == "yes" else (gpus, 1)
    return Pool(tp, dp, ep, gpus // ep, workers=workers, slots=0 if side else row.count("slots"))


@dataclass(frozen=True)
class Label:
    """What the configurations that match a row agree on; None where they do not, or no layout fits."""

    drafts: int | None = None
    pool: Pool | None = None
    prefill: Pool | None = None


def _label(row: Row, key: Key, pool: Pool, prefill: Pool | None) -> Label:
    origin, aggregated = row["silicon_data_source"], row["mode"] == "agg"
    fits: Callable[[Recipe], bool]
    if prefill is None:
        fits = partial(_fits_engine, Recorded.of(row), pool)
    elif aggregated:
        fits = partial(_fits_total, Recorded.of(row).total)
    else:
        fits = partial(_fits_pools, Recorded.of(row, "prefill_"), Recorded.of(row, "decode_"))
    found = [
        recipe
        for recipe in _recipes().get(key, ())
        if (recipe.prefill is None) == (prefill is None)
        and (recipe.drafts == 0 or not origin.startswith(DUMP))
    ]
    if not found:
        return Label()
    fitting = [recipe for recipe in found if fits(recipe)]
    image = re.search(r"(?:image=|; )([^\s;=]+/[^\s;=]+:[^\s;]+)$", origin)
    ran = plain_image(image[1]) if image else None
    nearest = [recipe for recipe in fitting or found if recipe.image == ran] or fitting or found
    measured = MEASURED.search(origin)
    if measured:
        off = [_days_off(recipe, date.fromisoformat(measured[1])) for recipe in nearest]
        nearest = [recipe for recipe, days in zip(nearest, off, strict=True) if days == min(off)]
    drafts = {_drafts(recipe, key) for recipe in nearest}
    agreed = drafts.pop() if len(drafts) == 1 else None
    if not fitting:
        return Label(agreed)
    chosen = sorted(nearest, key=_size)[(len(nearest) - 1) // 2]
    return Label(agreed, chosen.pool, chosen.prefill)


def usual_drafts(point: Point) -> int:
    """Return how many tokens a step drafts where it is known only that some were.

    Notes
    -----
    InferenceX's own scripts: on one engine TensorRT-LLM drafts 3 with tensor-parallel and 1 with data-parallel
    attention (``dsr1_*_trt_mtp.sh``), SGLang 2 for DeepSeek-R1 (``dsr1_*_mtp.sh``) and 3 for Qwen3.5, GLM-5 and
    DeepSeek-V4 (``speculative-num-steps``). Of its recipes for two pools that say the number, those of TensorRT-LLM
    with data-parallel attention draft 3 at up to about 25 requests an attention group, 2 at up to 60, 1 above
    (medians 17, 35, 211). Where the engine is not known, TensorRT-LLM's.
    """
    pool = point.pool
    if point.engine == "vllm":
        return 2
    if point.engine == "sglang":
        return 2 if point.model == "deepseek-r1" else 3
    if pool.attention_dp <= 1:
        return 3
    if point.prefill_pool is None:
        return 1
    per_group = point.requests / max(1, pool.workers * pool.attention_dp)
    return 3 if per_group <= 25 else 2 if per_group <= 60 else 1


def plain_image(name: str) -> str:
    """Return the name of an image without registry, platform and digest."""
    return re.sub(r"(-runtime|-amd64|-arm64|@sha.*)", "", name.strip().rpartition("/")[2])


def _days_off(recipe: Recipe, day: date) -> int:
    return max(0, (recipe.first - BEFORE - day).days, (day - recipe.last - AFTER).days)


def _size(recipe: Recipe) -> tuple[int, int, int]:
    """Order of configurations that a row may all be: by GPUs that decode, engines, GPUs that prefill."""
    return recipe.pool.gpus, recipe.pool.workers, recipe.prefill.gpus if recipe.prefill else 0


def _drafts(recipe: Recipe, key: Key) -> int:
    if recipe.drafts is not None:
        return recipe.drafts
    _, engine, model, *_, requests = key
    run = Point(
        *("", "", "", 0.0, "", "", model),
        pool=recipe.pool,
        prefill_pool=recipe.prefill,
        engine=engine,
        concurrency=requests,
    )
    return usual_drafts(run)


def _fits_engine(recorded: Recorded, pool: Pool, recipe: Recipe) -> bool:
    """Whether an aggregated row, read as ``pool``, can be a run of ``recipe``: widths that it records agree."""
    ran = recipe.pool
    if (ran.gpus_per_worker, ran.ep) != (pool.gpus_per_worker, pool.ep):
        return False
    known = recorded.multiplied or recorded.attention_dp > 1
    return not known or (ran.attention_dp > 1) == (pool.attention_dp > 1)


def _fits_total(total: int, recipe: Recipe) -> bool:
    return recipe.prefill is not None and recipe.pool.gpus + recipe.prefill.gpus == total


def _fits_pools(prefill: Recorded, decode: Recorded, recipe: Recipe) -> bool:
    """Whether a disaggregated row can be a run of ``recipe``."""
    if recipe.prefill is None:
        return False
    if prefill == decode and (decode.lost or decode.total) and not decode.workers:
        return decode.lost or _fits_total(decode.total, recipe)
    sides = ((prefill, recipe.prefill), (decode, recipe.pool))
    if not decode.workers and (prefill.ep > 1) != (recipe.prefill.ep > 1):
        return False  # the experts' width of such a decode pool repeats the prefill pool's
    return all(
        ran.gpus_per_worker in (side.tp * side.attention_dp, side.moe_tp * side.ep)
        and side.workers in (0, ran.workers)
        for side, ran in sides
    )
