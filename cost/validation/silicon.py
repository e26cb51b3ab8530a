"""The silicon sample that aiconfigurator ships: served requests with measured TTFT and TPOT, one run a row.

Layouts are read as they ran and not as they were written down. The sample joins records of several origins, and some
of them lost or multiplied widths. Rows of one and the same run (equal times) that came in by two ways show what the
odd ones mean; the counts are those of the calibration part.

- ``0`` and blank mean 1.
- *Multiplied widths*: ``tp 64, moe_tp 8, moe_ep 8`` is ``tp 8, ep 8`` (11 twins), ``attention_dp 64, moe_tp 8,
  moe_ep 8`` is ``attention_dp 8, ep 8`` (11 twins), ``tp 4, attention_dp 4, moe_ep 16`` is ``tp 4, ep 4``
  (42 twins). That holds for rows that come from dumps of a database, where every width of experts above 1 is so; in
  rows of benchmark logs ``tp 4, moe_tp 2, moe_ep 2`` is what ran (the model would not fit on 2 GPUs, or the batch
  is that of one of 4 ranks). ``batch_size`` of such rows is divided by the wrong width; the concurrency holds.
- *Ranks*: where the concurrency is ``batch_size`` times the width of tensor parallelism, the batch is that of a
  rank, so attention was data-parallel.
- *Disaggregated without counts of workers*: ``moe_ep`` of the decode pool repeats the prefill pool's and ``moe_tp``
  is what is left: ``prefill 4, decode tp 32, moe_tp 8, moe_ep 4`` is ``attention_dp 32, ep 32`` (13 twins), ``tp 8,
  moe_tp 2, moe_ep 4`` is ``tp 8, ep 8`` (6) or ``attention_dp 8, ep 8`` (4, all of 1,024 requests or more).
- *Total as width*: equal widths of both pools (or of an aggregated row) that are no layout, like 20 or 48, are the
  GPUs of the whole deployment: 48 is four prefill workers of 4 and one decode pool of 32 (twins of 20, 24, 48, 52).
- *All ones* on a model that no single GPU holds: nothing was recorded (twins: decode pools of 4 and of 32).
- Counts of decode workers that are not recorded are the medians of the 123 rows that have them, by kind of pool and
  engine; prefill workers that are not recorded are taken as enough (0: a count that never limits).

Whether a run drafted tokens is recorded nowhere: equal rows of the dated dumps differ by up to two times for that
reason. The rows of the database dump (``db-dump``) did not: the others scatter below them, never they below others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, partial

from cost.validation.names import cluster_name, model_name
from cost.validation.point import Point, Pool
from cost.validation.recipes import Label, Recipe, label_of, launched_cache, plain_image
from topology.table import Row, Table, spellings

# medians of the recorded counts: pools with tensor-parallel attention by engine, narrow and wide data-parallel pools
_TP_WORKERS = {"sglang": 1}
_OTHER_TP_WORKERS = 4
_NARROW_DP_WORKERS, _WIDE_DP_WORKERS = 2, 1
_WIDE_GPUS = 16
_DP_CONCURRENCY = (
    512  # recorded pools of 4 and 8 GPUs attend in data parallel beyond 700 requests, most from 512 on
)
_LARGEST_DECODE_GPUS = 32
_NODE = 4
_PREFILL = Pool(attention_dp=_NODE, ep=_NODE)


@dataclass(frozen=True)
class Recorded:
    """The widths of one pool as the file has them; ``workers`` and ``batch`` are 0 where it does not say.

    ``logged``: the row comes from a benchmark log, not from a dump of a database.
    """

    tp: int
    attention_dp: int
    moe_tp: int
    ep: int
    workers: int = 0
    batch: int = 0
    logged: bool = False

    @property
    def multiplied(self) -> bool:
        """Whether the attention's width is the product of two equal experts' widths."""
        equal = self.moe_tp == self.ep > 1 and self.tp * self.attention_dp == self.moe_tp * self.ep
        return equal and not self.logged

    @property
    def squared(self) -> bool:
        """Whether ``tp`` was written into ``attention_dp`` too and their product into ``ep``."""
        return self.tp == self.attention_dp > 1 and self.moe_tp == 1 and self.ep == self.tp**2

    @property
    def lost(self) -> bool:
        """Whether nothing was recorded."""
        return self.tp == self.attention_dp == self.moe_tp == self.ep == 1 and not self.workers

    @property
    def total(self) -> int:
        """GPUs of a whole deployment that stand as a width, 0 where the width is one."""
        odd = self.tp & (self.tp - 1) != 0 or self.tp > _WIDE_GPUS
        return self.tp if odd and self.moe_tp == self.tp and self.attention_dp == self.ep == 1 else 0


def aggregated_pool(recorded: Recorded, concurrency: int, *, moe: bool) -> Pool:
    """Return the pool of an aggregated row (those with a total as width: :func:`total_pools`)."""
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp)
    if recorded.multiplied:
        width = recorded.ep
        dp = width if recorded.attention_dp > 1 else 1
        return Pool(tp=width // dp, attention_dp=dp, ep=width)
    if recorded.squared:
        return Pool(tp=recorded.tp, ep=recorded.tp)
    pool = _consistent(recorded)
    if recorded.batch and pool.attention_dp == 1 < pool.tp and concurrency == recorded.batch * pool.tp:
        return replace(pool, tp=1, attention_dp=pool.tp)
    return pool


def decode_pool(recorded: Recorded, prefill: Recorded, concurrency: int, engine: str, *, moe: bool) -> Pool:
    """Return the decode pool of a disaggregated row."""
    tp_workers = _TP_WORKERS.get(engine, _OTHER_TP_WORKERS)
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp, workers=recorded.workers or tp_workers)
    if recorded.workers:
        return _experts_spread(replace(_consistent(recorded), workers=recorded.workers))
    width = recorded.tp * recorded.attention_dp
    repeated = 1 < recorded.ep == prefill.ep * prefill.attention_dp < width
    if recorded.attention_dp > 1 or (repeated and width >= _WIDE_GPUS) or concurrency >= _DP_CONCURRENCY:
        workers = _WIDE_DP_WORKERS if width >= _WIDE_GPUS else _NARROW_DP_WORKERS
        return Pool(attention_dp=width, ep=width, workers=workers)
    if recorded.ep == 1:
        return Pool(tp=width, moe_tp=width, workers=tp_workers)
    return Pool(tp=width, ep=width, workers=tp_workers)


def prefill_pool(recorded: Recorded, *, moe: bool) -> Pool:
    """Return the prefill pool of a disaggregated row; 0 workers where their count was not recorded."""
    workers = recorded.workers
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp, workers=workers)
    return _experts_spread(replace(_consistent(recorded), workers=workers))


def total_pools(total: int, concurrency: int, engine: str) -> tuple[Pool, Pool]:
    """Return the prefill and the decode pool of a deployment of which only all GPUs are recorded.

    Few requests on up to 28 GPUs: one prefill worker of 4 and as many narrow decode workers as the rest holds (their
    concurrencies are multiples of that number). Else one wide decode pool, and prefill workers of 4 in the rest.
    """
    if concurrency < _DP_CONCURRENCY and total < _LARGEST_DECODE_GPUS:
        workers = max(1, (total - _NODE) // (_NODE if engine == "sglang" else 2 * _NODE))
        narrow = Pool(tp=4, moe_tp=4) if engine == "sglang" else Pool(tp=8, ep=8)
        return _PREFILL, replace(narrow, workers=workers)
    width = _LARGEST_DECODE_GPUS
    while width >= total * 0.9:
        width //= 2
    return replace(_PREFILL, workers=max(1, (total - width) // _NODE)), Pool(attention_dp=width, ep=width)


def lost_pools(concurrency: int, *, fp8: bool) -> tuple[Pool, Pool]:
    """Return the prefill and the decode pool of a row that is all ones though no single GPU holds the model."""
    if concurrency < _DP_CONCURRENCY:
        return replace(_PREFILL, workers=0), Pool(tp=4, moe_tp=4, workers=_NARROW_DP_WORKERS)
    prefill = Pool(attention_dp=8, ep=8) if fp8 else _PREFILL
    return replace(prefill, workers=0), Pool(attention_dp=_LARGEST_DECODE_GPUS, ep=_LARGEST_DECODE_GPUS)


def fits_engine(recorded: Recorded, pool: Pool, recipe: Recipe) -> bool:
    """Whether an aggregated row, read as ``pool``, can be a run of ``recipe``: widths that the row records agree."""
    ran = recipe.pool
    if (ran.gpus_per_worker, ran.ep) != (pool.gpus_per_worker, pool.ep):
        return False
    told = recorded.multiplied or recorded.attention_dp > 1
    return not told or (ran.attention_dp > 1) == (pool.attention_dp > 1)


def fits_total(total: int, recipe: Recipe) -> bool:
    """Whether ``total`` GPUs are those of both pools of ``recipe``."""
    return recipe.prefill_pool is not None and recipe.pool.gpus + recipe.prefill_pool.gpus == total


def fits_pools(prefill: Recorded, decode: Recorded, recipe: Recipe) -> bool:
    """Whether a disaggregated row can be a run of ``recipe``."""
    if recipe.prefill_pool is None:
        return False
    if prefill == decode and (decode.lost or decode.total) and not decode.workers:
        return decode.lost or fits_total(decode.total, recipe)
    sides = ((prefill, recipe.prefill_pool), (decode, recipe.pool))
    if not decode.workers and (prefill.ep > 1) != (recipe.prefill_pool.ep > 1):
        return False  # the experts' width of such a decode pool repeats the prefill pool's
    return all(
        ran.gpus_per_worker in (side.tp * side.attention_dp, side.moe_tp * side.ep)
        and side.workers in (0, ran.workers)
        for side, ran in sides
    )


def _consistent(recorded: Recorded) -> Pool:
    """Return the widths with both sides on the same GPUs: the wider side is the one that was recorded."""
    tp, dp = recorded.tp, recorded.attention_dp
    width, experts = tp * dp, recorded.moe_tp * recorded.ep
    if experts > width and experts % tp == 0:
        return Pool(tp, experts // tp, recorded.ep, recorded.moe_tp)
    if experts != width:
        return Pool(tp, dp, width if dp > 1 else 1, 1 if dp > 1 else width)
    return Pool(tp, dp, recorded.ep, recorded.moe_tp)


def _experts_spread(pool: Pool) -> Pool:
    """Experts of a pool with data-parallel attention are spread over it, not cut: so the twins say."""
    return pool if pool.attention_dp == 1 else replace(pool, ep=pool.attention_dp * pool.tp, moe_tp=1)


_POOL = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_NEEDED = (
    *("id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode"),
    *("isl", "osl", "gemm_quant_mode", "moe_quant_mode", "batch_size"),
    *_POOL,
    *(f"{side}_{name}" for side in ("prefill", "decode") for name in ("batch_size", "num_workers", *_POOL)),
    *("silicon_ttft_ms", "silicon_tpot_ms"),
)
_MODES = {"agg": "aggregated", "disagg": "disaggregated"}
_FORMATS = spellings(
    {
        "fp8": "fp8_block fp8_static fp8_ootb",
        "nvfp4": "fp4",
        "mxfp4": "w4a16_mxfp4 w4a8_mxfp4_mxfp8",
        "int4": "int4_wo w4afp8",
        "int8": "int8_wo sq",
        "bf16": "",
        "fp16": "float16",
    }
)
_LOG = "gap-analysis"  # in the path of the logs that were benchmarked for the sample itself
_DUMP = (
    "db-dump"  # of a database without drafting runs: equal rows of other origins scatter below, never they
)
_JOINED = "layout of the public configuration with the row's key"
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d{1,9})")
_MEASURED = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
_IMAGE = re.compile(r"(?:image=|; )([^\s;=]+/[^\s;=]+:[^\s;]+)$")
_CHIP = re.compile(r"[a-z]+\d+")
_DRAFTING = ("deepseek-", "glm-", "qwen3.5-", "qwen3-next")  # models that come with modules for drafting
_SAME_RUNS = {
    "deepseek-v3": "deepseek-r1"
}  # the same weights' shapes; the benchmark's dumps call its R1 runs both
_TOTAL = "only the GPUs of the whole deployment were recorded, as a width; read as disaggregated pools"
_SMALLEST_MULTI_GPU_PARAMS = 3e11  # at half a byte each, more than any single GPU of the sample holds


def is_silicon(header: Sequence[str]) -> bool:
    """Whether a header is that of the silicon sample."""
    return "silicon_tpot_ms" in header


def silicon_from_table(table: Table) -> list[Point]:
    """Read the silicon sample; a row gives a point of ``tpot_ms`` and one of ``ttft_ms``, both with its id.

    Raises
    ------
    InputError
        If a column is missing or a value cannot be read; the message names the row and the column.
    """
    points: list[Point] = []
    for row in table.rows(_NEEDED):
        point = _point(row)
        points += [point, replace(point, quantity="ttft_ms", measured=row.positive("silicon_ttft_ms"))]
    return points


def _point(row: Row) -> Point:
    phase = row.known("mode", _MODES.get, _MODES, "")
    if not phase:
        row.need("mode")
    model, named = model_name(row.need("model_path"))
    cluster, _ = cluster_name(row.need("system"))
    kind = _kind(model)
    weights, experts = _formats(row, model, named)
    origin = row.text("silicon_data_source")
    found = _CONCURRENCY.search(origin)
    concurrency = int(found.group(1)) if found else 0
    if phase == "aggregated":
        pool, prefill, concurrency, note = _aggregated(row, concurrency, moe=kind.moe)
        phase = "disaggregated" if prefill else phase
    else:
        pool, prefill, concurrency, note = _disaggregated(row, concurrency, kind)
    label = _label(row, model, concurrency, pool, prefill)
    if label.pool:
        pool, note = label.pool, _JOINED
    if prefill and label.prefill_pool:
        prefill = label.prefill_pool
    drafts = label.drafts
    if drafts is None and (not kind.drafts or _LOG in origin or origin.startswith(_DUMP)):
        drafts = 0
    return Point(
        id=row.need("id"),
        source=origin,
        quantity="tpot_ms",
        measured=row.positive("silicon_tpot_ms"),
        phase=phase,
        cluster=cluster,
        model=model,
        pool=pool,
        prefill_pool=prefill,
        weights=weights,
        experts_dtype=experts,
        kv_dtype=""
        if _LOG in origin
        else launched_cache(cluster, row.text("backend"), model, experts or weights or kind.experts),
        concurrency=concurrency,
        in_step=_LOG in origin,
        draft_tokens=drafts or 0,
        accept_length=0.0 if drafts else 1.0,
        drafts_recorded=drafts is not None,
        isl=row.count("isl", None, least=1),
        osl=row.count("osl", None, least=1),
        engine=row.text("backend"),
        engine_version=row.text("backend_version"),
        notes=note,
    )


def _label(row: Row, model: str, concurrency: int, pool: Pool, prefill: Pool | None) -> Label:
    """Return what the public configurations with the row's key say of it."""
    origin, chip = row.text("silicon_data_source"), _CHIP.match(row.text("system"))
    if _LOG in origin or not chip:
        return Label(known=False)
    image, day = _IMAGE.search(origin), _MEASURED.search(origin)
    key = (
        *(chip[0], row.text("backend"), _SAME_RUNS.get(model, model), row.text("precision")),
        *(row.count("isl", None, least=1), row.count("osl", None, least=1), concurrency),
    )
    if prefill is None:
        fits = partial(fits_engine, _recorded(row), pool)
    elif row.text("mode") == "agg":
        fits = partial(fits_total, _recorded(row).total)
    else:
        fits = partial(fits_pools, _recorded(row, "prefill_"), _recorded(row, "decode_"))
    return label_of(
        key,
        fits,
        disaggregated=prefill is not None,
        image=plain_image(image[1]) if image else "",
        day=_date(row, day[1]) if day else None,
        drafting=not origin.startswith(_DUMP),
    )


def _date(row: Row, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        row.fail("silicon_data_source", f"{text} is no date.")


def _recorded(row: Row, prefix: str = "") -> Recorded:
    tp, _, dp, moe_tp, ep = (max(1, row.count(prefix + name)) for name in _POOL)
    workers = row.count(f"{prefix}num_workers") if prefix else 0
    logged = _LOG in row.text("silicon_data_source")
    return Recorded(tp, dp, moe_tp, ep, workers, row.count(f"{prefix}batch_size"), logged)


def _stages(pool: Pool, row: Row, prefix: str = "") -> Pool:
    return replace(pool, stages=max(1, row.count(f"{prefix}pp_size")))


def _aggregated(row: Row, concurrency: int, *, moe: bool) -> tuple[Pool, Pool | None, int, str]:
    recorded = _recorded(row)
    if moe and recorded.total:
        prefill, decode = total_pools(recorded.total, concurrency, row.text("backend"))
        return decode, prefill, concurrency, _TOTAL
    pool = _stages(aggregated_pool(recorded, concurrency, moe=moe), row)
    if not moe and recorded.batch and concurrency % recorded.batch == 0:
        pool = replace(pool, workers=max(1, concurrency // recorded.batch))
    if not concurrency:
        concurrency = recorded.batch * recorded.attention_dp
    widths = (recorded.tp, recorded.attention_dp, recorded.moe_tp, recorded.ep)
    kept = widths == (pool.tp, pool.attention_dp, pool.moe_tp, pool.ep)
    return pool, None, concurrency, "" if kept or not moe else _said(recorded)


def _disaggregated(row: Row, concurrency: int, kind: _Kind) -> tuple[Pool, Pool | None, int, str]:
    engine = row.text("backend")
    first, last = _recorded(row, "prefill_"), _recorded(row, "decode_")
    if first == last and first.lost and kind.params > _SMALLEST_MULTI_GPU_PARAMS:
        prefill, pool = lost_pools(concurrency, fp8=row.text("gemm_quant_mode").startswith("fp8"))
        return pool, prefill, concurrency, "the layout was not recorded; read as the usual one of its kind"
    if kind.moe and first == last and first.total and not last.workers:
        prefill, pool = total_pools(first.total, concurrency, engine)
        return pool, prefill, concurrency, _TOTAL
    pool = _stages(decode_pool(last, first, concurrency, engine, moe=kind.moe), row, "decode_")
    prefill = _stages(prefill_pool(first, moe=kind.moe), row, "prefill_")
    if not concurrency:
        concurrency = last.batch * last.attention_dp * pool.workers
    note = "" if last.workers else f"workers were not recorded; {_said(last)}"
    return pool, prefill, concurrency, note


def _said(recorded: Recorded) -> str:
    return (
        f"recorded as tp {recorded.tp}, attention_dp {recorded.attention_dp}, "
        f"moe_tp {recorded.moe_tp}, ep {recorded.ep}"
    )


@dataclass(frozen=True)
class _Kind:
    """What reading a row needs to know of its model.

    ``drafts``: whether engines draft with modules of its own; ``moe``: whether it routes experts; ``params``: its
    weights; ``weights`` and ``experts``: the checkpoint's own formats of attention and of experts (of
    dense layers, where nothing is routed).
    """

    moe: bool
    drafts: bool
    params: float
    weights: str
    experts: str


_UNKNOWN = _Kind(moe=True, drafts=True, params=0.0, weights="?", experts="?")


@lru_cache(maxsize=256)
def _kind(model: str) -> _Kind:
    from cost.resolve import model_names, resolve_model

    if model not in model_names():
        return _UNKNOWN
    found = resolve_model(model)
    experts = found.precision["experts" if found.moe else "dense"]
    drafts = model.startswith(_DRAFTING)
    return _Kind(
        found.moe is not None, drafts, float(found.total_params), found.precision["attention"], experts
    )


def _format(row: Row, column: str, default: str) -> str:
    """The format that a cell names; one that is not known stays as it is, and is not predicted."""
    text = row.text(column).lower()
    return _FORMATS.get(text, text) or default


def _formats(row: Row, model: str, named: str) -> tuple[str, str]:
    """Formats of the weights and of the experts, "" where they are the checkpoint's own.

    GPT-OSS and INT4 checkpoints come in one precision alone, whatever the row calls it.
    """
    given = _format(row, "precision", named)
    weights, experts = _format(row, "gemm_quant_mode", given), _format(row, "moe_quant_mode", given)
    own = _kind(model)
    if own.experts.startswith("mxfp4") or (own.experts.startswith("int4") and experts == "int4"):
        return "", ""
    if not own.moe:
        return ("" if weights == own.weights else weights), ""
    if own.weights.startswith(weights) and experts == own.experts:
        return "", ""
    return weights, ("" if experts == weights else experts)
