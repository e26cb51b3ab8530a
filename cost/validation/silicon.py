"""The silicon sample that aiconfigurator ships: served requests with measured TTFT and TPOT, one run a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, partial
from pathlib import Path

from cost.validation.cells import Row, rows_of, table_of
from cost.validation.point import Point, Pool
from cost.validation.recipes import Asked, Label, label_of, launched_cache, plain_image
from cost.validation.silicon_layout import (
    Recorded,
    aggregated_pool,
    decode_pool,
    fits_engine,
    fits_pools,
    fits_total,
    lost_pools,
    prefill_pool,
    total_pools,
)
from cost.validation.spelling import cluster_name, model_name
from topology.errors import InputError

_POOL = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_NEEDED = (
    *("id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode"),
    *("isl", "osl", "gemm_quant_mode", "moe_quant_mode", "batch_size"),
    *_POOL,
    *(f"{side}_{name}" for side in ("prefill", "decode") for name in ("batch_size", "num_workers", *_POOL)),
    *("silicon_ttft_ms", "silicon_tpot_ms"),
)
_MODES = {"agg": "aggregated", "disagg": "disaggregated"}
_FORMATS = {
    "fp8": "fp8",
    "fp8_block": "fp8",
    "fp8_static": "fp8",
    "fp8_ootb": "fp8",
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4_wo": "int4",
    "int4": "int4",
    "int8": "int8",
    "int8_wo": "int8",
    "sq": "int8",
    "w4afp8": "int4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
}
_LOG = "gap-analysis"  # in the path of the logs that were benchmarked for the sample itself
_DUMP = (
    "db-dump"  # of a database without drafting runs: equal rows of other origins scatter below, never they
)
_JOINED = "layout of the public configuration with the row's key"
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")
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


def read_silicon(path: str | Path) -> list[Point]:
    """Read the silicon sample; a row gives a point of ``tpot_ms`` and one of ``ttft_ms``, both with its id.

    What the file's traps are and how rows are read all the same: :mod:`cost.validation.silicon_layout`.

    Raises
    ------
    InputError
        If a column is missing or a value cannot be read; the message names the row and the column.
    """
    header, table = table_of(path)
    return silicon_from_table(path, header, table)


def silicon_from_table(
    path: str | Path, header: Sequence[str], table: Sequence[Sequence[str]]
) -> list[Point]:
    """Read the cells of the silicon sample (:func:`read_silicon`)."""
    for name in _NEEDED:
        if name not in header:
            raise InputError(f"{path}: the column {name} of the silicon sample is missing.")
    points: list[Point] = []
    for row in rows_of(path, header, table):
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
        isl=int(row.positive("isl")),
        osl=int(row.positive("osl")),
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
        *(int(row.positive("isl")), int(row.positive("osl")), concurrency),
    )
    if prefill is None:
        fits = partial(fits_engine, _recorded(row), pool)
    elif row.text("mode") == "agg":
        fits = partial(fits_total, _recorded(row).total)
    else:
        fits = partial(fits_pools, _recorded(row, "prefill_"), _recorded(row, "decode_"))
    return label_of(
        Asked(
            key,
            prefill is not None,
            fits,
            plain_image(image[1]) if image else "",
            date.fromisoformat(day[1]) if day else None,
            drafting=not origin.startswith(_DUMP),
        )
    )


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
