"""Runs of InferenceX as its public API names them, as points: served requests, one run a row.

``*_tp`` and ``*_ep`` are widths of one worker, whose GPUs are the larger of the two; with ``*_dp_attention`` its
attention is data-parallel. A worker without counts is the only one. Times per token are medians, those to the first
token means, as the silicon sample has them.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from silicon import SATURATED_MS, Row, launched_cache, plain_image, usual_drafts

from cost.resolve import resolve_model
from cost.validation.read import Point, Pool
from topology.files.resolve import cluster_called

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = {
    "dsr1": "deepseek-r1",
    "dsv4": "deepseek-v4-pro",
    "glm5": "glm-5",
    "glm5.1": "glm-5",  # the same shape
    "gptoss120b": "gpt-oss-120b",
    "kimik2.5": "kimi-k2.5",
    "llama70b": "llama-3.1-70b",
    "minimaxm2.5": "minimax-m2.5",
    "qwen3.5": "qwen3.5-397b-a17b",
}
ENGINES = {"trt": "trtllm", "mori-sglang": "sglang"}
"""Engines by the names of the file."""
SYSTEMS = {"gb200": "gb200-nvl72", "gb300": "gb300-nvl72"}

_QUANTITIES: dict[str, Callable[[Row], float]] = {
    "tpot_ms": lambda row: float(row["median_tpot_s"]) * 1e3,
    "ttft_ms": lambda row: float(row["mean_ttft_s"] or row["median_ttft_s"] or "nan") * 1e3,
    "tok_s_per_gpu": lambda row: float(row["tput_per_gpu"]),
}


def read_inferencex(path: Path, quantity: str) -> list[Point]:
    """Return the file's points of ``tpot_ms``, ``ttft_ms`` or ``tok_s_per_gpu`` (input and output tokens), by row."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_point(i, Row(row), path.stem, quantity) for i, row in enumerate(csv.DictReader(file))]


def _point(number: int, row: Row, source: str, quantity: str) -> Point:
    name, hardware = MODELS[row["model"]], row["hardware"]
    cluster = cluster_called(SYSTEMS.get(hardware, hardware))
    engine = row["framework"].removeprefix("dynamo-")
    engine = ENGINES.get(engine, engine)
    weights = _weights(name, row["precision"], amd=hardware.startswith("mi"))
    split = row["disagg"] == "True"
    pool, prefill = _pool(row, "decode_"), _pool(row, "prefill_") if split else None
    drafting = row["spec_method"] != "none"
    version = re.search(r":v?(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)*)", plain_image(row["image"]))
    point = Point(
        id=f"{source}-{number}",
        source=source,
        quantity=quantity,
        measured=_QUANTITIES[quantity](row),
        phase="disaggregated" if split else "aggregated",
        cluster=cluster,
        model=name,
        pool=pool,
        prefill_pool=prefill,
        weights=weights,
        kv_dtype=launched_cache(cluster, engine, name, weights),
        concurrency=row.count("conc"),
        accept_length=0.0 if drafting else 1.0,
        isl=row.count("isl"),
        osl=row.count("osl"),
        token_kind="total",  # noqa: S106 - tokens of text
        engine=engine,
        engine_version=version[1] if version else "",
        date=row["date"],
        saturated=float(row["median_ttft_s"] or 0.0) * 1e3 > SATURATED_MS,
    )
    return replace(point, draft_tokens=usual_drafts(point)) if drafting else point


def _pool(row: Row, side: str) -> Pool:
    tp, ep = max(1, row.count(f"{side}tp")), max(1, row.count(f"{side}ep"))
    gpus, workers = max(tp, ep), max(1, row.count(f"{side}num_workers"))
    spread = row[f"{side}dp_attention"] == "True"
    if resolve_model(MODELS[row["model"]]).moe is None:
        return Pool(tp=gpus, moe_tp=gpus, workers=workers)
    if spread:
        return Pool(1, gpus, ep, 1 if ep > 1 else gpus, workers=workers)
    return Pool(gpus, 1, ep, gpus // ep, workers=workers)


def _weights(model: str, precision: str, *, amd: bool) -> str:
    """Format of the weights, "" where it is the checkpoint's own; AMD's FP4 is MXFP4."""
    own = resolve_model(model).precision
    if model in ("gpt-oss-120b", "deepseek-v4-pro") or own.get("experts", "").startswith(precision):
        return ""
    if precision == "fp4":
        return "mxfp4" if amd else "nvfp4"
    return precision
