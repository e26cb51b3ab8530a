"""Reading measured points: a CSV with one figure a row (``docs/calibration.md``), and the files that ship with us."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from cost.calibration.serving import MOST_DRAFTS
from cost.dtypes import DTYPES, format_called
from cost.resolve import checkpoint_called, resolve_model
from cost.validation.point import NO_LAYOUT, AllToAll, Point, Pool
from topology.base.errors import InputError
from topology.base.names import plain_words
from topology.base.reading import nearest
from topology.base.table import Row, Table, spellings
from topology.files.resolve import cluster_called

_DATA = Path(__file__).parent / "data"

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


def shipped_files() -> list[Path]:
    """Return the files of published measurements that ship with the package, sorted by name."""
    return [_DATA / "alltoall.csv", _DATA / "published.csv"]


def read_measurements(path: str | Path) -> list[Point]:
    """Read a CSV of measured points (docs/calibration.md).

    Raises
    ------
    InputError
        If it is none, or a column or a value is not known; the message names the row and the column.
    """
    table = Table.read(path)
    names = tuple(cell.strip().lower().replace(" ", "_").replace("-", "_") for cell in table.header)
    if not {"quantity", "measured"} <= set(names):
        raise InputError(
            f"{path}: no measured points; expected columns id, quantity, measured, phase, cluster, ... "
            "(docs/calibration.md)."
        )
    for name, cell in zip(names, table.header, strict=True):
        if name not in COLUMNS:
            raise InputError(f"{path}: unknown column {cell!r}; {nearest(cell, COLUMNS)}")
        if names.count(name) > 1:
            raise InputError(f"{path}: duplicate column {name} in the header.")
    return [_point(row) for row in replace(table, header=names).rows(NEEDED)]


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
    chosen = [row.text(prefix + name).lower() == BEST for name in _WIDTHS]
    tp, ep, moe_tp, dp = (
        0 if best else row.count(prefix + name) for name, best in zip(_WIDTHS, chosen, strict=True)
    )
    stages = row.count(prefix + "stages", 1) or 1
    slots = 0 if prefix else row.count("slots")
    if any(chosen):
        if stages > 1:
            row.fail(prefix + "stages", f"widths that are {BEST!r} are chosen for one stage; leave it blank.")
        return Pool(tp, dp, ep, moe_tp, 1, row.count(prefix + "workers"), slots, best=True)
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
    return Pool(tp, dp, ep, moe_tp, stages, workers, slots)


_GB = 1e9
LARGEST = "largest"
"""What ``batch_per_gpu`` says where the largest batch that fits was served."""
UNKNOWN = "unknown"
"""What ``draft_tokens`` says where a model that can draft may have done so and nobody recorded it."""
_ALLTOALL = ("dispatch_us", "combine_us")


@cache
def _model(text: str) -> tuple[str, str]:
    """Return a model's name in the catalog and the format in its name; as given where there is none."""
    try:
        return (text, "") if text.lower().endswith(".json") else checkpoint_called(text)
    except InputError:
        return text, ""


@cache
def _cluster(text: str) -> tuple[str, int]:
    """Return a cluster's name in the catalog and the GPUs after ``@`` (0 for none); as given where there is none."""
    head, _, count = text.partition("@")
    gpus = int(count) if re.fullmatch(r"\s*[0-9]{1,9}\s*", count) else 0
    try:
        return cluster_called(head), gpus
    except InputError:
        return head.strip(), gpus


def _point(row: Row) -> Point:
    phase, quantity = row.named("phase", PHASES), row.named("quantity", QUANTITY_NAMES)
    for column in NEEDED:
        row.need(column)
    if (quantity in _ALLTOALL) != (phase == "alltoall"):
        row.fail(
            "quantity", f"{quantity} does not go with phase {phase}; alltoall has dispatch_us, combine_us."
        )
    cluster, counted = _cluster(row.text("cluster"))
    model, named = _model(row.text("model")) if row.text("model") else ("", "")
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
        prefill_gpus=row.count("prefill_gpus"),
        pool=Pool(ep=row.count("ep", None, least=2)) if phase == "alltoall" else read_pool(row),
        prefill_pool=read_pool(row, "prefill_") if phase == "disaggregated" else None,
        weights=_dtype(row, "weights", named),
        experts_dtype=_dtype(row, "experts_dtype"),
        kv_dtype=_dtype(row, "kv_dtype"),
        batch=math.inf if row.text("batch_per_gpu").lower() == LARGEST else row.number("batch_per_gpu"),
        tpot_limit_ms=row.number("tpot_limit_ms"),
        concurrency=row.count("concurrency"),
        tokens=row.number("tokens_per_gpu"),
        isl=row.count("isl"),
        osl=row.count("osl"),
        context=row.number("context"),
        cache_hit=row.number("cache_hit", most=1.0),
        overlap=row.flag("overlap"),
        draft_tokens=drafts or 0,
        drafts_recorded=row.text("draft_tokens").lower() != UNKNOWN,
        accept_length=accepted,
        imbalance=_imbalance(row),
        kernel=row.text("kernel"),
        token_kind=row.named("token_kind", TOKEN_KINDS, "input" if phase == "prefill" else "output"),
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
    return _with_usual_drafts(point) if drafts is None else point


def _with_usual_drafts(point: Point) -> Point:
    """Return a point that drafts, its number not stated, with the number that engines run at its load."""
    requests = point.concurrency or point.batch * point.pool.gpus
    drafts = usual_drafts(
        point.engine,
        point.model,
        each=requests / max(1, point.pool.workers * point.pool.attention_dp),
        data_parallel=point.pool.attention_dp > 1,
        disaggregated=point.prefill_pool is not None,
    )
    return replace(point, draft_tokens=drafts, accept_length=min(point.accept_length, 1.0 + drafts))


def usual_drafts(
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
    return row.known(column, lambda text: format_called(plain_words(text)), DTYPES, default)


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
    shape = _shape(row, model) if model else {}
    return AllToAll(
        kernel=row.need("kernel"),
        tokens=row.positive("tokens_per_gpu"),
        hidden=row.count("hidden") or shape.get("hidden") or row.count("hidden", None, least=1),
        experts=row.count("experts") or shape.get("experts") or row.count("experts", None, least=1),
        top_k=row.count("top_k") or shape.get("top_k") or row.count("top_k", None, least=1),
        dispatch_dtype=_dtype(row, "dispatch_dtype", "fp8"),
        combine_dtype=_dtype(row, "combine_dtype", "bf16"),
        groups=row.count("groups", shape.get("groups", 0)),
        topk_groups=row.count("topk_groups", shape.get("topk_groups", 0)),
    )


def _shape(row: Row, name: str) -> dict[str, int]:
    """Return the shape of a model's routed layers."""
    try:
        model = resolve_model(name)
    except InputError as error:
        row.fail("model", str(error))
    moe = model.moe
    if moe is None:
        row.fail("model", f"{name} has no routed experts; leave it blank and give hidden, experts, top_k.")
    shape = {"hidden": model.hidden, "experts": moe.experts, "top_k": moe.top_k}
    return shape | ({"groups": moe.groups, "topk_groups": moe.topk_groups} if moe.groups > 1 else {})
