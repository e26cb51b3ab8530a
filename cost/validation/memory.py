"""Start logs of engines: weights, room for the cache and its tokens of one GPU beside what is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cost.calibration.serving import engine_version
from cost.dtypes import cache_bytes_per_element, format_called
from cost.inputs.workload import StepShape, Workload
from cost.memory.engines import GIB, LEAST_GIB, SPREAD_GIB, EngineMemory, engine_memory, usual_sequences
from cost.memory.sizes import shard_bytes
from cost.memory.stages import WEIGHTS_OFF, even_memory
from cost.model import Model
from cost.resolve import checkpoint_called, resolve_model
from cost.validation.predict import Prediction
from cost.validation.read import Point
from cost.validation.validation import Validation
from topology.base.errors import RackplanError
from topology.base.table import Row, Table
from topology.catalog import load_gpu
from topology.catalog.spelled import find_gpu

MEMORY = "memory"
"""The phase of points that are read from start logs."""
COLUMNS = (
    "source", "ref", "engine", "engine_version", "model", "arch", "weights_format", "kv_dtype", "gpu", "hbm_gib",
    "n_gpus", "tp", "pp", "dp", "ep", "dcp", "max_model_len", "mem_fraction", "mem_fraction_from",
    "max_num_batched_tokens", "max_num_seqs", "spec_decode", "cuda_graphs", "started", "weights_gib",
    "draft_weights_gib", "kv_mem_gib", "kv_tokens", "max_concurrency", "kv_needed_gib", "act_peak_gib",
    "non_torch_gib", "consumed_gib", "peak_total_gib", "cudagraph_gib", "cudagraph_est_gib", "free_before_gib",
    "free_after_pool_gib", "log_month", "note",
)  # fmt: skip
"""Every column; all but ``engine`` may be left out."""
QUANTITIES = ("weights_gib", "kv_mem_gib", "kv_tokens")
_TOKENS = 2.0**20


@dataclass(frozen=True)
class StartLog:
    """What an engine was asked for; figures that it did not print are 0, texts empty."""

    engine: str
    version: str
    month: str
    model: str
    weights: str
    kv_dtype: str
    gpu: str
    total_gib: float
    tp: int
    pp: int
    dp: int
    ep: int
    dcp: int
    utilisation: float | None
    sequences: int
    drafts: bool


def memory_validation(path: Path) -> Validation:
    """Return the figures of a CSV of start logs (columns: :data:`COLUMNS`) beside what is predicted for each.

    Raises
    ------
    InputError
        If it is none, or a column or a value is not known; the message names row and column.
    """
    table = Table.read(path).of_columns(COLUMNS)
    points, predictions = [], []
    for number, row in enumerate(table.rows(("engine",)), start=1):
        log = _log(row)
        found = _predicted(log)
        for quantity in QUANTITIES:
            measured = _measured(row, quantity)
            if measured > 0:
                source = f"{row.text('source')} {row.text('ref')}".strip()
                points.append(
                    Point(
                        str(number),
                        source,
                        quantity,
                        measured,
                        MEMORY,
                        log.gpu,
                        log.model,
                        engine=log.engine,
                        engine_version=log.version,
                    )
                )
                predictions.append(found[quantity])
    return Validation(path.name, points, predictions, corrected=True)


def _measured(row: Row, quantity: str) -> float:
    """Return a figure of a log; 0 where it has none, or one below 0, which an engine prints that does not start."""
    return 0.0 if row.text(quantity).startswith("-") else row.number(quantity)


def _log(row: Row) -> StartLog:
    tp, pp = row.count("tp", 1, least=1), row.count("pp", 1, least=1)
    return StartLog(
        engine=engine_version(row.need("engine"))[0],
        version=row.text("engine_version"),
        month=row.text("log_month"),
        model=row.text("model"),
        weights=row.text("weights_format"),
        kv_dtype=row.text("kv_dtype"),
        gpu=row.text("gpu"),
        total_gib=row.number("hbm_gib"),
        tp=tp,
        pp=pp,
        dp=row.count("dp", 1, least=1),
        ep=row.count("ep", 1, least=1),
        dcp=row.count("dcp", 1, least=1),
        utilisation=row.number("mem_fraction", most=1.0) or None,
        sequences=row.count("max_num_seqs"),
        drafts=row.flag("spec_decode"),
    )


def _predicted(log: StartLog) -> dict[str, Prediction]:
    """Predict every quantity; what cannot be predicted says why."""
    try:
        return _predictions(log)
    except RackplanError as error:
        return dict.fromkeys(QUANTITIES, Prediction(None, error.problem))


def _predictions(log: StartLog) -> dict[str, Prediction]:
    model = _model(log)
    workload = Workload(context=round(_TOKENS), kv_dtype=_cache_dtype(log), draft_tokens=int(log.drafts))
    weights = _weights_gib(log, model, workload)
    off = weights * WEIGHTS_OFF
    found = {"weights_gib": Prediction(weights, "", weights - off, weights + off)}
    form, total = engine_memory(log.engine, log.version, log.month), _total_gib(log)
    if form is None or not total:
        known = (
            f"what {log.engine} {log.version} keeps"
            if form is None
            else f"the memory of {log.gpu or 'the GPU'}"
        )
        return found | dict.fromkeys(QUANTITIES[1:], Prediction(None, f"{known.strip()} is not known."))
    taken = _taken_gib(log, model, form, total)
    room, high, low = (form.room_gib(total, weights, gib, log.utilisation) for gib in taken)
    spread = SPREAD_GIB + off
    reason = "may not start: too little room is left." if room < LEAST_GIB else ""
    pool = Prediction(max(0.0, room), reason, max(0.0, low - spread), max(0.0, high + spread))
    found["kv_mem_gib"] = pool
    each = _token_bytes(log, model, workload)
    if each is None:
        why = "layers with a window or a state: tokens depend on the engine's blocks; compare the room."
        return found | {"kv_tokens": Prediction(None, why)}
    figures = (figure * GIB / each for figure in (pool.value, pool.low, pool.high) if figure is not None)
    value, low, high = figures
    return found | {"kv_tokens": Prediction(value, reason, low, high)}


def _model(log: StartLog) -> Model:
    """Return the model that a log names, in the formats that it gives where the checkpoint is not known."""
    try:
        return resolve_model(log.model)
    except RackplanError:
        name, weights = checkpoint_called(log.model)
        return resolve_model(name, weights=_formats(log.weights) or weights or None)


def _formats(text: str) -> str:
    """Return ``experts nvfp4`` as the option has it; empty where the log says nothing, or that of the checkpoint."""
    words = text.lower().split()
    if not words or words[0] in ("checkpoint", "bf16", "fp16"):
        return ""
    return "=".join(words[:2]) if words[0] == "experts" else words[0]


def _cache_dtype(log: StartLog) -> str:
    text = log.kv_dtype.lower()
    return "bf16" if text in ("", "auto", "fp16", "float16", "bfloat16") else format_called(text) or text


def _total_gib(log: StartLog) -> float:
    """Return what the driver reports: of the log, else of the chip in the catalog; 0 where neither is known."""
    chip = find_gpu(log.gpu) if log.gpu and not log.total_gib else None
    return log.total_gib or (load_gpu(chip).hbm_bytes / GIB if chip else 0.0)


def _shape(log: StartLog) -> StepShape:
    gpus = log.tp * log.dp
    # without expert parallelism vLLM cuts experts over the GPUs of all ranks
    ep, moe_tp = (log.ep, max(1, gpus // log.ep)) if log.ep > 1 else (1, gpus)
    return StepShape(
        tp=float(log.tp),
        attention_dp=float(log.dp),
        ep=float(ep),
        moe_tp=float(moe_tp),
        stages=float(log.pp),
        domain_gpus=float(gpus),
    )


def _weights_gib(log: StartLog, model: Model, workload: Workload) -> float:
    """Return the weights of the fullest GPU."""
    shape = _shape(log).under(workload, 1.0)
    return float(np.max(even_memory(model, workload, shape, model.first_stage(shape.stages))[0])) / GIB


def _taken_gib(log: StartLog, model: Model, form: EngineMemory, total: float) -> tuple[float, float, float]:
    """Return what the engine takes beside weights and cache, and the least and the most of it."""
    chip = find_gpu(log.gpu) or log.gpu.lower()
    return form.taken_gib(
        vocab=model.vocab,
        sequences=log.sequences or usual_sequences(total),
        several=log.tp * log.dp * log.pp > 1,
        rocm="rocm" in chip or chip.startswith("mi"),
    )


def _token_bytes(log: StartLog, model: Model, workload: Workload) -> float | None:
    """Return the cache bytes that a GPU holds for each token of one engine; None where they differ by token."""
    element = cache_bytes_per_element(workload.kv_dtype)
    for layer in model.kinds:
        once, twice = (float(layer.attention.cache_bytes(many, element)) for many in (_TOKENS, 2 * _TOKENS))
        if abs(twice - 2 * once) > once * 1e-9:
            return None
    shape = _shape(log).under(workload, 1.0)
    _, cache, _ = shard_bytes(model, workload, model.whole, shape, each=0.0)
    return float(cache) / log.tp / _TOKENS / log.pp / log.dcp
