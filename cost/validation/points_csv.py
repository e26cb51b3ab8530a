"""Our own format of measured points: a CSV with one figure a row (``docs/calibration.md``)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost.calibration.serving import MOST_DRAFTS
from cost.validation.drafts import with_unstated_drafts
from cost.validation.names import cluster_name, dtype_name, model_name
from cost.validation.point import NO_LAYOUT, AllToAll, Point, Pool
from topology.base.errors import InputError
from topology.base.reading import nearest
from topology.base.table import Row, Table, spellings

COLUMNS = (
    "id", "source", "quantity", "measured", "phase", "model", "cluster", "gpus", "gpus_per_domain", "engine",
    "engine_version", "weights", "experts_dtype", "kv_dtype", "tp", "ep", "moe_tp", "attention_dp", "stages",
    "slots", "workers", "prefill_tp", "prefill_ep", "prefill_moe_tp", "prefill_attention_dp",
    "prefill_stages", "prefill_workers", "prefill_gpus", "batch_per_gpu", "tpot_limit_ms",
    "concurrency", "tokens_per_gpu", "isl", "osl", "context", "cache_hit", "overlap", "draft_tokens",
    "accept_length", "imbalance", "kernel", "token_kind", "link_gb_s", "nic_gb_s", "pair", "hidden", "experts",
    "top_k", "groups", "topk_groups", "dispatch_dtype", "combine_dtype", "notes",
)  # fmt: skip
"""Every column, in the order in which files are written; docs/calibration.md has what each means."""

NEEDED = ("id", "quantity", "measured", "phase", "cluster")
"""Columns that a file must have; every other one may be left out."""

QUANTITY_NAMES = spellings(
    {
        "tpot_ms": "tpot itl_ms itl",
        "ttft_ms": "ttft",
        "tok_s_per_gpu": "tok/s/gpu tokens_per_s_per_gpu",
        "step_ms": "step",
        "dispatch_us": "dispatch",
        "combine_us": "combine",
    }
)
PHASES = spellings(
    {
        "decode": "",
        "prefill": "",
        "aggregated": "agg e2e_agg",
        "disaggregated": "disagg e2e_disagg",
        "alltoall": "all_to_all a2a",
    }
)
TOKEN_KINDS = spellings(
    {"output": "out generated", "input": "in prompt", "total": "in+out input+output", "input_cached": ""}
)


def column_of(name: str) -> str | None:
    """Return the column that a header cell names, whatever its case; None where there is none."""
    key = name.strip().lower().replace(" ", "_").replace("-", "_")
    return key if key in COLUMNS else None


# The parallel layout of one pool, as its cells give it.

BEST = "best"
"""What a width says that is for the model to choose."""

_WIDTHS = ("tp", "ep", "moe_tp", "attention_dp")


def read_pool(row: Row, prefix: str = "") -> Pool:
    """Return the pool of the columns that begin with ``prefix``; blank cells follow from the others.

    The GPUs of a stage are ``tp * attention_dp`` for attention and ``ep * moe_tp`` for the experts, so one of the
    four follows from the other three: a blank ``attention_dp`` from the experts' side, else 1; a blank ``ep`` is
    all GPUs of the stage where attention is data-parallel, else 1; a blank ``moe_tp`` is what remains; a blank
    ``tp`` is 1, or ``moe_tp`` where nothing else is given. Where one of them is ``best``, the model chooses it and
    those that are blank, and the workers if they are blank too.

    Raises
    ------
    InputError
        If the two sides do not use the same GPUs, or a pipeline is asked for whose widths are to be chosen.
    """
    if any(row.text(prefix + name).lower() == BEST for name in _WIDTHS):
        return _open_pool(row, prefix)
    tp, ep, moe_tp, dp = (row.count(prefix + name) for name in _WIDTHS)
    stages = row.count(prefix + "stages", 1) or 1
    workers = row.count(prefix + "workers", 1) or 1
    if not (tp or ep or moe_tp or dp):
        return NO_LAYOUT
    tp = tp or (moe_tp if not (ep or dp) else 1)
    if not dp:
        dp = max(1, (ep or 1) * (moe_tp or 1) // tp)
    width = tp * dp
    if not ep:
        ep = width // moe_tp if moe_tp else width if dp > 1 else 1
    moe_tp = moe_tp or width // max(ep, 1)
    if ep * moe_tp != width:
        row.fail(
            f"{prefix}ep",
            f"ep {ep} x moe_tp {moe_tp} is not tp {tp} x attention_dp {dp}: both are the GPUs of one stage.",
        )
    slots = row.count(prefix + "slots") if not prefix else 0
    return Pool(tp, dp, ep, moe_tp, stages, workers, slots)


def _open_pool(row: Row, prefix: str) -> Pool:
    """The pool of which at least one width is ``best``: 0 in those that the model chooses."""
    if row.count(prefix + "stages", 1) > 1:
        row.fail(prefix + "stages", f"widths that are {BEST!r} are chosen for one stage; leave it blank.")
    tp, ep, moe_tp, dp = (
        0 if row.text(prefix + name).lower() == BEST else row.count(prefix + name) for name in _WIDTHS
    )
    slots = row.count(prefix + "slots") if not prefix else 0
    return Pool(tp, dp, ep, moe_tp, 1, row.count(prefix + "workers"), slots, best=True)


_GB = 1e9
LARGEST = "largest"
"""What ``batch_per_gpu`` says where the largest batch that fits was served."""
UNKNOWN = "unknown"
"""What ``draft_tokens`` says where a model that can draft may have done so and nobody recorded it."""
_ALLTOALL = ("dispatch_us", "combine_us")


def is_points(header: Sequence[str]) -> bool:
    """Whether a header is that of our format: it has the columns that every file needs."""
    return {"quantity", "measured"} <= {column_of(name) for name in header}


def points_from_table(table: Table) -> list[Point]:
    """Read the cells of a file of our format.

    Raises
    ------
    InputError
        If a column or a value is not known; the message names the row and the column.
    """
    names = tuple(_column(table.path, name) for name in table.header)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{table.path}: duplicate column {name} in the header.")
    return [_point(row) for row in replace(table, header=names).rows(NEEDED)]


def _column(path: str | Path, name: str) -> str:
    found = column_of(name)
    if found is None:
        raise InputError(f"{path}: unknown column {name!r}; {nearest(name, COLUMNS)}")
    return found


def _point(row: Row) -> Point:
    phase, quantity = row.named("phase", PHASES), row.named("quantity", QUANTITY_NAMES)
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
        **_alike(row),
        quantity=quantity,
        measured=row.positive("measured"),
        phase=phase,
        cluster=cluster,
        model=model,
        gpus=row.count("gpus", counted),
        pool=Pool(ep=row.count("ep", None, least=2)) if phase == "alltoall" else read_pool(row),
        prefill_pool=read_pool(row, "prefill_") if phase == "disaggregated" else None,
        weights=_dtype(row, "weights", named),
        experts_dtype=_dtype(row, "experts_dtype"),
        kv_dtype=_dtype(row, "kv_dtype"),
        batch=math.inf if row.text("batch_per_gpu").lower() == LARGEST else row.number("batch_per_gpu"),
        tokens=row.number("tokens_per_gpu"),
        cache_hit=row.number("cache_hit", most=1.0),
        overlap=row.flag("overlap"),
        draft_tokens=drafts or 0,
        drafts_recorded=row.text("draft_tokens").lower() != UNKNOWN,
        accept_length=accepted,
        imbalance=_imbalance(row),
        token_kind=row.named("token_kind", TOKEN_KINDS, "input" if phase == "prefill" else "output"),
        up_bytes_per_s=row.number("link_gb_s") * _GB,
        out_bytes_per_s=row.number("nic_gb_s") * _GB,
        engine=row.text("engine").lower(),
        alltoall=_alltoall(row, model) if phase == "alltoall" else None,
    )
    _consistent(row, point)
    return with_unstated_drafts(point) if drafts is None else point


def _alike(row: Row) -> dict[str, Any]:
    """The cells that a point has as they are."""
    return {
        **{name: row.text(name) for name in ("id", "source", "kernel", "engine_version", "pair", "notes")},
        **{
            name: row.count(name) for name in ("prefill_gpus", "concurrency", "isl", "osl", "gpus_per_domain")
        },
        **{name: row.number(name) for name in ("tpot_limit_ms", "context")},
    }


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
        digits = re.fullmatch(r"mtp[ \-=x]*([0-9]{1,9})[ \-=x]*", text)
        drafts = int(digits[1]) if digits else None
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


def _alltoall(row: Row, model: str) -> AllToAll:
    shape = _shape(row, model)
    return AllToAll(
        kernel=row.need("kernel"),
        tokens=row.positive("tokens_per_gpu"),
        hidden=row.count("hidden") or shape["hidden"] or row.count("hidden", None, least=1),
        experts=row.count("experts") or shape["experts"] or row.count("experts", None, least=1),
        top_k=row.count("top_k") or shape["top_k"] or row.count("top_k", None, least=1),
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
