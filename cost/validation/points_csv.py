"""Our own format of measured points: a CSV with one figure a row (``docs/measurements.md``)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from cost.calibration.serving import MOST_DRAFTS
from cost.validation.cells import Row, rows_of, table_of
from cost.validation.columns import (
    COLUMNS,
    NEEDED,
    PHASES,
    QUANTITY_NAMES,
    TOKEN_KINDS,
    column_of,
    unknown_column,
)
from cost.validation.point import AllToAll, Point, Pool
from cost.validation.pool_cells import pool_cells, read_pool
from cost.validation.recipes import with_unstated_drafts
from cost.validation.spelling import cluster_name, dtype_name, model_name, one_of, yes_or_no
from topology.errors import InputError

_GB = 1e9
LARGEST = "largest"
"""What ``batch_per_gpu`` says where the largest batch that fits was served."""
UNKNOWN = "unknown"
"""What ``draft_tokens`` says where a model that can draft may have done so and nobody recorded it."""
_ALLTOALL = ("dispatch_us", "combine_us")


def is_points(header: Sequence[str]) -> bool:
    """Whether a header is that of our format: it has the columns that every file needs."""
    return {"quantity", "measured"} <= {column_of(name) for name in header}


def read_points(path: str | Path) -> list[Point]:
    """Read a file of our format.

    Raises
    ------
    InputError
        If a column or a value is not known; the message names the row and the column.
    """
    header, table = table_of(path)
    return points_from_table(path, header, table)


def points_from_table(path: str | Path, header: Sequence[str], table: Sequence[Sequence[str]]) -> list[Point]:
    """Read the cells of a file of our format (:func:`read_points`)."""
    names = [_column(path, name) for name in header]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: column {name} stands twice in the header.")
    for name in NEEDED:
        if name not in names:
            raise InputError(f"{path}: the column {name} is missing; every file needs {', '.join(NEEDED)}.")
    return [_point(row) for row in rows_of(path, names, table)]


def _column(path: str | Path, name: str) -> str:
    found = column_of(name)
    if found is None:
        raise InputError(f"{path}: {unknown_column(name)}")
    return found


def _point(row: Row) -> Point:
    phase = row.known("phase", lambda text: one_of(text, PHASES), sorted(set(PHASES.values())), "")
    quantity = row.known(
        "quantity", lambda text: one_of(text, QUANTITY_NAMES), sorted(set(QUANTITY_NAMES.values())), ""
    )
    for column in NEEDED:
        row.need(column)
    if (quantity in _ALLTOALL) != (phase == "alltoall"):
        row.fail(
            "quantity", f"{quantity} does not go with phase {phase}; alltoall has dispatch_us, combine_us."
        )
    cluster, counted = cluster_name(row.text("cluster"))
    model, named = model_name(row.text("model")) if row.text("model") else ("", "")
    if not model and phase != "alltoall":
        row.fail("model", "it is blank; every row that is not alltoall needs it.")
    drafts, accepted = _drafts(row)
    point = Point(
        id=row.text("id"),
        source=row.text("source"),
        quantity=quantity,
        measured=row.positive("measured"),
        phase=phase,
        cluster=cluster,
        model=model,
        gpus=row.count("gpus", counted),
        pool=Pool(ep=_alltoall_ep(row)) if phase == "alltoall" else read_pool(row),
        prefill_pool=read_pool(row, "prefill_") if phase == "disaggregated" else None,
        weights=_dtype(row, "weights", named),
        experts_dtype=_dtype(row, "experts_dtype"),
        kv_dtype=_dtype(row, "kv_dtype"),
        prefill_gpus=row.count("prefill_gpus"),
        batch=math.inf if row.text("batch_per_gpu").lower() == LARGEST else row.number("batch_per_gpu"),
        tpot_limit_ms=row.number("tpot_limit_ms"),
        concurrency=row.count("concurrency"),
        tokens=row.number("tokens_per_gpu"),
        isl=row.count("isl"),
        osl=row.count("osl"),
        context=row.number("context"),
        cache_hit=row.number("cache_hit", most=1.0),
        overlap=_flag(row, "overlap"),
        draft_tokens=drafts or 0,
        drafts_recorded=row.text("draft_tokens").lower() != UNKNOWN,
        accept_length=accepted,
        imbalance=_imbalance(row),
        kernel=row.text("kernel"),
        token_kind=row.known(
            "token_kind",
            lambda text: one_of(text, TOKEN_KINDS),
            sorted(set(TOKEN_KINDS.values())),
            "input" if phase == "prefill" else "output",
        ),
        gpus_per_domain=row.count("gpus_per_domain"),
        up_bytes_per_s=row.number("link_gb_s") * _GB,
        out_bytes_per_s=row.number("nic_gb_s") * _GB,
        engine=row.text("engine").lower(),
        engine_version=row.text("engine_version"),
        pair=row.text("pair"),
        notes=row.text("notes"),
        alltoall=_alltoall(row, model) if phase == "alltoall" else None,
    )
    _consistent(row, point)
    return with_unstated_drafts(point) if drafts is None else point


def _consistent(row: Row, point: Point) -> None:
    """Raise where what is left to the model contradicts what the row states."""
    if point.batch == math.inf and point.concurrency:
        row.fail("batch_per_gpu", f"{LARGEST!r} and concurrency {point.concurrency}: give one of them.")
    if point.batch == math.inf and point.phase in ("prefill", "alltoall"):
        row.fail("batch_per_gpu", f"{LARGEST!r} says nothing of phase {point.phase}, which decodes nothing.")
    if point.tpot_limit_ms and (not point.is_open or point.phase == "prefill"):
        row.fail(
            "tpot_limit_ms",
            "it limits what the model chooses: the widths are no 'best', batch_per_gpu is not 'largest', or nothing "
            "decodes.",
        )
    if not point.prefill_gpus:
        return
    if point.prefill_pool is None or not point.prefill_pool.best:
        row.fail("prefill_gpus", "it goes with a width of the prefill pool that is 'best'.")
    if point.gpus and point.prefill_gpus >= point.gpus:
        row.fail("prefill_gpus", f"{point.prefill_gpus} of {point.gpus} GPUs leave none to decode.")


def _dtype(row: Row, column: str, default: str = "") -> str:
    from cost.dtypes import DTYPES

    return row.known(column, dtype_name, DTYPES, default)


def _flag(row: Row, column: str) -> bool:
    found = yes_or_no(row.text(column))
    if found is None:
        row.fail(column, f"{row.text(column)!r} must be yes or no.")
    return found


def _imbalance(row: Row) -> float:
    value = row.number("imbalance")
    if 0 < value < 1:
        row.fail("imbalance", f"{value:g} must be 1 or more: the busiest GPU's load over the mean load.")
    return value


def _drafts(row: Row) -> tuple[int | None, float]:
    """Tokens drafted (None: some, as ``MTP`` alone says) and tokens a step yields (0: as calibrated)."""
    text = row.text("draft_tokens").lower()
    drafts: int | None = None
    if text.startswith("mtp"):
        digits = text.removeprefix("mtp").strip(" -=x")
        drafts = int(digits) if digits.isascii() and digits.isdigit() else None
    elif text in ("no", "false", "off", "none", UNKNOWN):
        drafts = 0
    elif text not in ("yes", "true", "on"):
        drafts = row.count("draft_tokens")
    accepted = row.number("accept_length")
    if drafts == 0 and not accepted:
        return 0, 1.0
    if not accepted and (drafts or 0) > MOST_DRAFTS:
        row.fail("accept_length", f"it is blank; {drafts} draft tokens have no measured default.")
    most = 1 + (MOST_DRAFTS if drafts is None else drafts)
    if accepted and not 1 <= accepted <= most:
        row.fail("accept_length", f"{accepted:g} must be from 1 to 1 + draft_tokens = {most}.")
    return drafts, accepted


def _alltoall_ep(row: Row) -> int:
    ep = row.count("ep")
    if ep < 2:
        row.fail("ep", f"{row.text('ep')!r} must be 2 or more: the GPUs that exchange tokens.")
    return ep


def _alltoall(row: Row, model: str) -> AllToAll:
    shape = _shape(row, model)
    return AllToAll(
        kernel=row.need("kernel"),
        tokens=row.positive("tokens_per_gpu"),
        hidden=row.count("hidden") or shape["hidden"] or int(row.positive("hidden")),
        experts=row.count("experts") or shape["experts"] or int(row.positive("experts")),
        top_k=row.count("top_k") or shape["top_k"] or int(row.positive("top_k")),
        dispatch_dtype=_dtype(row, "dispatch_dtype", "fp8"),
        combine_dtype=_dtype(row, "combine_dtype", "bf16"),
        groups=row.count("groups", shape["groups"]),
        topk_groups=row.count("topk_groups", shape["topk_groups"]),
    )


def _shape(row: Row, model: str) -> dict[str, int]:
    """Return the shape of the model's routed layers, zeros where no model is named or it routes nothing."""
    from cost.resolve import resolve_model

    names = ("hidden", "experts", "top_k", "groups", "topk_groups")
    if not model:
        return dict.fromkeys(names, 0)
    try:
        found = resolve_model(model)
    except InputError as error:
        row.fail("model", str(error))
    moe = found.moe
    if moe is None:
        row.fail("model", f"{model} has no routed experts; leave it blank and give hidden, experts, top_k.")
    return {
        "hidden": found.hidden,
        "experts": moe.experts,
        "top_k": moe.top_k,
        "groups": moe.groups if moe.groups > 1 else 0,
        "topk_groups": moe.topk_groups if moe.groups > 1 else 0,
    }


def points_text(points: Iterable[Point]) -> str:
    """Return the text of a file of our format; :func:`read_points` gives the same points back."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    for point in points:
        writer.writerow({name: _cell(value) for name, value in _cells(point).items()})
    return out.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return repr(value).removesuffix(".0") if value else ""
    return str(value) if value else ""


def _cells(point: Point) -> dict[str, object]:
    cells: dict[str, object] = {
        name: getattr(point, name) for name in COLUMNS if hasattr(point, name) and name != "alltoall"
    }
    cells |= {
        "batch_per_gpu": LARGEST if point.batch == math.inf else point.batch,
        "draft_tokens": point.draft_tokens if point.drafts_recorded else UNKNOWN,
        "tokens_per_gpu": point.tokens,
        "link_gb_s": point.up_bytes_per_s / _GB,
        "nic_gb_s": point.out_bytes_per_s / _GB,
    }
    if point.alltoall is not None:
        cells |= {name: getattr(point.alltoall, name) for name in COLUMNS if hasattr(point.alltoall, name)}
        cells |= {"ep": point.pool.ep, "tokens_per_gpu": point.alltoall.tokens, "accept_length": 0}
        return cells
    cells |= pool_cells(point.pool)
    if point.prefill_pool is not None:
        cells |= {k: v for k, v in pool_cells(point.prefill_pool, "prefill_").items() if k in COLUMNS}
    return cells
