"""The silicon sample that aiconfigurator ships: served requests with measured TTFT and TPOT, one run a row."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from cost.measured.cells import rows_of, table_of
from cost.measured.point import Point, Pool
from cost.measured.silicon_layout import Recorded, aggregated_pool, decode_pool, lost_pools, prefill_pool
from cost.measured.spelling import cluster_name, model_name
from topology.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cost.measured.cells import Row

__all__ = ["is_silicon", "read_silicon", "silicon_from_table"]

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
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4_wo": "int4",
    "int4": "int4",
    "int8": "int8",
    "int8_wo": "int8",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
}
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")
_SMALLEST_MULTI_GPU_PARAMS = 3e11  # at half a byte each, more than any single GPU of the sample holds


def is_silicon(header: Sequence[str]) -> bool:
    """Whether a header is that of the silicon sample."""
    return "silicon_tpot_ms" in header


def read_silicon(path: str | Path) -> list[Point]:
    """Read the silicon sample; a row gives a point of ``tpot_ms`` and one of ``ttft_ms``, both with its id.

    What the file's traps are and how rows are read all the same: :mod:`cost.measured.silicon_layout`.

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
    moe, params = _size(model)
    weights, experts = _formats(row, model, named)
    origin = row.text("silicon_data_source")
    found = _CONCURRENCY.search(origin)
    concurrency = int(found.group(1)) if found else 0
    if phase == "aggregated":
        pool, prefill, concurrency, note = _aggregated(row, concurrency, moe=moe)
        phase = "disaggregated" if prefill else phase
    else:
        pool, prefill, concurrency, note = _disaggregated(row, concurrency, params, moe=moe)
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
        concurrency=concurrency,
        isl=int(row.positive("isl")),
        osl=int(row.positive("osl")),
        engine=row.text("backend"),
        engine_version=row.text("backend_version"),
        notes=note,
    )


def _recorded(row: Row, prefix: str = "") -> Recorded:
    tp, _, dp, moe_tp, ep = (max(1, row.count(prefix + name)) for name in _POOL)
    workers = row.count(f"{prefix}num_workers") if prefix else 0
    return Recorded(tp, dp, moe_tp, ep, workers, row.count(f"{prefix}batch_size"))


def _stages(pool: Pool, row: Row, prefix: str = "") -> Pool:
    return replace(pool, stages=max(1, row.count(f"{prefix}pp_size")))


def _aggregated(row: Row, concurrency: int, *, moe: bool) -> tuple[Pool, Pool | None, int, str]:
    recorded = _recorded(row)
    if moe and recorded.total:
        decode = decode_pool(recorded, recorded, concurrency, row.text("backend"), moe=moe)
        note = (
            f"recorded as one layout of {recorded.tp} GPUs; read as the total of a disaggregated deployment"
        )
        return decode, prefill_pool(recorded, moe=moe), concurrency, note
    pool = _stages(aggregated_pool(recorded, concurrency, moe=moe), row)
    if not concurrency:
        concurrency = recorded.batch * recorded.attention_dp
    kept = Recorded(pool.tp, pool.attention_dp, pool.moe_tp, pool.ep, 0, recorded.batch)
    return pool, None, concurrency, "" if kept == recorded or not moe else _said(recorded)


def _disaggregated(
    row: Row, concurrency: int, params: float, *, moe: bool
) -> tuple[Pool, Pool | None, int, str]:
    engine = row.text("backend")
    first, last = _recorded(row, "prefill_"), _recorded(row, "decode_")
    lost = Recorded(1, 1, 1, 1)
    if first == last == lost and params > _SMALLEST_MULTI_GPU_PARAMS:
        prefill, pool = lost_pools(concurrency, 8 if row.text("gemm_quant_mode").startswith("fp8") else 4)
        return pool, prefill, concurrency, "the layout was not recorded; read as the usual one of its kind"
    pool = _stages(decode_pool(last, first, concurrency, engine, moe=moe), row, "decode_")
    prefill = _stages(prefill_pool(first, moe=moe), row, "prefill_")
    if not concurrency:
        concurrency = last.batch * last.attention_dp * pool.workers
    note = "" if last.workers else f"workers were not recorded; {_said(last)}"
    return pool, prefill, concurrency, note


def _said(recorded: Recorded) -> str:
    return (
        f"recorded as tp {recorded.tp}, attention_dp {recorded.attention_dp}, "
        f"moe_tp {recorded.moe_tp}, ep {recorded.ep}"
    )


@lru_cache(maxsize=256)
def _size(model: str) -> tuple[bool, float]:
    """Whether a model routes experts, and its weights; a model that the catalog lacks is taken to route."""
    from cost.resolve import model_names, resolve_model

    if model not in model_names():
        return True, 0.0
    found = resolve_model(model)
    return found.moe is not None, float(found.total_params)


@lru_cache(maxsize=256)
def _own(model: str) -> tuple[str, str]:
    """The checkpoint's own formats of attention and of experts (of dense layers, where nothing is routed)."""
    from cost.resolve import model_names, resolve_model

    if model not in model_names():
        return "", ""
    found = resolve_model(model)
    return found.precision["attention"], found.precision["experts" if found.moe else "dense"]


def _formats(row: Row, model: str, named: str) -> tuple[str, str]:
    """Formats of the weights and of the experts, "" where they are the checkpoint's own.

    GPT-OSS and INT4 checkpoints come in one precision alone, whatever the row calls it.
    """
    given = row.known("precision", _FORMATS.get, _FORMATS, named)
    weights = row.known("gemm_quant_mode", _FORMATS.get, _FORMATS, given)
    experts = row.known("moe_quant_mode", _FORMATS.get, _FORMATS, given)
    own_weights, own_experts = _own(model)
    moe, _ = _size(model)
    if own_experts.startswith("mxfp4") or (own_experts.startswith("int4") and experts == "int4"):
        return "", ""
    if not moe:
        return ("" if weights == own_weights else weights), ""
    if own_weights.startswith(weights) and experts == own_experts:
        return "", ""
    return weights, ("" if experts == weights else experts)
