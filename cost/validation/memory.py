"""Start logs of engines: weights, room for the cache and its tokens of one GPU beside what is predicted."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cost.calibration.serving import engine_version
from cost.dtypes import cache_bytes_per_element, format_called
from cost.inputs.workload import StepShape, Workload
from cost.memory.engines import (
    GIB,
    MIN_ROOM_GIB,
    EngineMemory,
    Taken,
    engine_memory,
    forward_gib,
    seen_gib,
    usual_step,
)
from cost.memory.sizes import shard_bytes
from cost.memory.stages import even_memory, weights_off
from cost.model import Model
from cost.resolve import checkpoint_called, resolve_model
from cost.validation.predict import Prediction
from cost.validation.read import Point
from cost.validation.validation import Validation
from topology.base.errors import InputError, RackplanError
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
_FP4 = ("nvfp4", "mxfp4")
_CONTEXT_TOKENS = 2.0**20
_VOCABS = 150_000, 128_000, 250_000
"""Of a model that is not known: usual, least and most."""
_FREE_SHARE = 0.986
"""Part of the total that is free before loading where a log prints that alone: .965 to .995 in eight logs."""
_REPORTED_SHARE = 0.98
"""Part of the GB that a card is called by which CUDA sees in GiB: 21.48 of 22, 23.58 of 24, 79.18 of 80."""
_CARD = re.compile(r"(\d+) gb card", re.IGNORECASE)


_TEXTS = ("engine_version", "log_month", "model", "weights_format", "kv_dtype", "gpu")
_FIGURES = ("hbm_gib", "free_before_gib")
_COUNTS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


@dataclass(frozen=True)
class StartLog:
    """What an engine was asked for and found, by column; figures that it did not print are 0, texts empty.

    ``held_gib``: the weights that it printed, which serve a model that is not known; ``shared``: the GPU's memory is
    its host's too.
    """

    engine: str
    engine_version: str
    log_month: str
    model: str
    weights_format: str
    kv_dtype: str
    gpu: str
    hbm_gib: float
    free_before_gib: float
    held_gib: float
    n_gpus: int
    tp: int
    pp: int
    dp: int
    ep: int
    dcp: int
    mem_fraction: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    drafts: bool
    graphs: bool
    experts: bool
    shared: bool


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
        try:
            predicted = _predictions(log)
        except RackplanError as error:
            predicted = dict.fromkeys(QUANTITIES, Prediction(None, error.problem))
        source = f"{row.text('source')} {row.text('ref')}".strip()
        asked = Point(str(number), source, "", 0.0, MEMORY, log.gpu, log.model)
        asked = replace(asked, engine=log.engine, engine_version=log.engine_version)
        for quantity in QUANTITIES:
            measured = _measured(row, quantity)
            if measured > 0:
                points.append(replace(asked, quantity=quantity, measured=measured))
                predictions.append(predicted[quantity])
    return Validation(path.name, points, predictions, corrected=True)


def _measured(row: Row, quantity: str) -> float:
    """Return a figure of a log; 0 where it has none, or one below 0, which an engine prints that does not start."""
    return 0.0 if row.text(quantity).startswith("-") else row.number(quantity)


def _log(row: Row) -> StartLog:
    tp, pp, dp = (row.count(name, 1, least=1) for name in ("tp", "pp", "dp"))
    gpus = row.count("n_gpus", tp * pp * dp, least=1)
    # SGLang and TensorRT-LLM count the GPUs of all attention ranks in TP
    tp = tp // dp if tp * pp * dp > gpus and tp % dp == 0 else tp
    plain: dict[str, Any] = {
        **{name: row.text(name) for name in _TEXTS},
        **{name: row.number(name) for name in _FIGURES},
        **{name: row.count(name) for name in _COUNTS},
    }
    ep, dcp = (row.count(name, 1, least=1) for name in ("ep", "dcp"))
    return StartLog(
        **plain,
        engine=engine_version(row.need("engine"))[0],
        held_gib=row.number("weights_gib") + row.number("draft_weights_gib"),
        n_gpus=gpus,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        dcp=dcp,
        mem_fraction=row.number("mem_fraction", most=1.0),
        drafts=row.flag("spec_decode"),
        graphs=row.flag("cuda_graphs") or not row.text("cuda_graphs"),
        experts="moe" in row.text("arch") or ep > 1,
        shared="unified memory" in row.text("note"),
    )


def _predictions(log: StartLog) -> dict[str, Prediction]:
    try:
        model, unknown = _model(log), ""
    except RackplanError as error:
        if not log.held_gib:
            raise
        model, unknown = None, error.problem
    cache = log.kv_dtype.lower()
    cache = "bf16" if cache in ("", "auto", "fp16", "float16", "bfloat16") else format_called(cache) or cache
    workload = Workload(context=round(_CONTEXT_TOKENS), kv_dtype=cache, draft_tokens=int(log.drafts))
    predictions = dict.fromkeys(QUANTITIES, Prediction(None, unknown))
    weights, off = log.held_gib, 0.0
    if model is not None:
        shape = _shape(log).under(workload, 1.0)
        fullest, *_ = even_memory(model, workload, shape, model.first_stage(shape.stages))
        weights = float(np.max(fullest)) / GIB
        off = weights * weights_off(model)
        predictions["weights_gib"] = Prediction(weights, "", weights - off, weights + off)
    form, total = engine_memory(log.engine, log.engine_version, log.log_month), _total_gib(log)
    if form is None:
        return predictions | _unknown(f"what {log.engine} {log.engine_version} keeps".strip())
    if not total:
        return predictions | _unknown(f"the memory of {log.gpu or 'the GPU'}")
    if log.shared and form.base == "after loading":
        return predictions | _unknown("what the host keeps of memory that it shares with the GPU")
    overhead = _taken_gib(log, model, form, total)
    part = log.mem_fraction or form.usual_utilisation(
        total, tp=log.tp, stages=log.pp, ranks=log.dp, drafts=log.drafts, chunk=log.max_num_batched_tokens
    )
    room = form.room_gib(total, weights, overhead.gib, part)
    low, high = overhead.spread(off)
    reasons = ["may not start: too little room is left."] if room < MIN_ROOM_GIB else []
    if model is None:
        reasons.append("weights as the log has them: its model is not in the catalog.")
    reason = " ".join(reasons)
    pool = Prediction(max(0.0, room), reason, max(0.0, room - low), max(0.0, room + high))
    predictions["kv_mem_gib"] = pool
    if model is None:
        return predictions
    token_bytes = _token_bytes(log, model, workload)
    if token_bytes is None:
        why = "layers with a window or a state: tokens depend on the engine's blocks; compare the room."
        return predictions | {"kv_tokens": Prediction(None, why)}
    figures = (
        figure * GIB / token_bytes for figure in (pool.value, pool.low, pool.high) if figure is not None
    )
    value, low, high = figures
    return predictions | {"kv_tokens": Prediction(value, reason, low, high)}


def _unknown(subject: str) -> dict[str, Prediction]:
    """Say of room and tokens that they cannot be predicted."""
    return dict.fromkeys(QUANTITIES[1:], Prediction(None, f"{subject} is not known."))


def _model(log: StartLog) -> Model:
    """Return the model that a log names, in the formats that it gives where the checkpoint is not known.

    Checkpoints of experts in FP4 keep attention in BF16: ``exclude_modules`` of nvidia/DeepSeek-V3-0324-NVFP4, in
    github.com/ai-dynamo/aiconfigurator.
    """
    if not log.model:
        raise InputError("the log names no model.")
    try:
        return resolve_model(log.model)
    except RackplanError:
        name, weights = checkpoint_called(log.model)
        weights = _formats(log.weights_format) or weights
        model = resolve_model(name, weights=weights or None)
        of_experts = model.moe is not None and weights in _FP4
        return resolve_model(name, weights=f"{weights},attention=bf16") if of_experts else model


def _formats(text: str) -> str:
    """Return ``experts nvfp4`` as the option has it; empty where the log says nothing, or that of the checkpoint."""
    words = text.lower().split()
    if not words or words[0] in ("checkpoint", "bf16", "fp16"):
        return ""
    return "=".join(words[:2]) if words[0] == "experts" else words[0]


def _chip(log: StartLog) -> str:
    """Return the GPU's name in the catalog, or as the log has it."""
    return (find_gpu(log.gpu) if log.gpu else None) or log.gpu.lower()


def _rocm(log: StartLog) -> bool:
    return "rocm" in _chip(log) or _chip(log).startswith("mi")


def _total_gib(log: StartLog) -> float:
    """Return what the driver reports: of the log, of what it found free, or of the chip; 0 where none is known."""
    form = engine_memory(log.engine, log.engine_version, log.log_month)
    if log.free_before_gib and form is not None and form.base == "before loading":
        return log.free_before_gib + form.outside.value
    if log.hbm_gib or log.free_before_gib:
        return log.hbm_gib or log.free_before_gib / _FREE_SHARE
    chip = find_gpu(log.gpu) if log.gpu else None
    if chip is None:
        called = _CARD.fullmatch(log.gpu)
        return float(called[1]) * _REPORTED_SHARE if called else 0.0
    total = load_gpu(chip).hbm_bytes / GIB
    return total if _rocm(log) else seen_gib(total)


def _shape(log: StartLog) -> StepShape:
    gpus = log.tp * log.dp
    # without expert parallelism vLLM cuts experts over the GPUs of all ranks
    ep, moe_tp = (log.ep, max(1, gpus // log.ep)) if log.ep > 1 else (1, gpus)
    return StepShape(
        tp=float(log.tp),
        attention_dp=float(log.dp),
        ep=float(ep),
        moe_tp=float(moe_tp),
        dcp=float(log.dcp),
        stages=float(log.pp),
        domain_gpus=float(gpus),
    )


def _taken_gib(log: StartLog, model: Model | None, form: EngineMemory, total: float) -> Taken:
    """Return what the engine takes beside weights and cache, and the least and the most of it."""
    chip, shape = _chip(log), _shape(log)
    tokens = (
        log.max_num_batched_tokens or (form.whole_prompts and log.max_model_len) or usual_step(total, chip)[1]
    )
    forward = 0.0 if model is None else forward_gib(model, tokens, tp=shape.tp, moe_tp=shape.moe_tp)
    bounds = [
        form.taken_gib(
            vocab=vocab,
            sequences=log.max_num_seqs or min(form.sequences, usual_step(total, chip)[0]),
            several=log.n_gpus > 1,
            rocm=_rocm(log),
            experts=log.experts if model is None else model.moe is not None,
            graphs=log.graphs,
            forward=float(forward),
        )
        for vocab in ((model.vocab,) * 3 if model else _VOCABS)
    ]
    return bounds[0]._replace(low=bounds[1].low, high=bounds[2].high)


def _token_bytes(log: StartLog, model: Model, workload: Workload) -> float | None:
    """Return the cache bytes that a GPU holds for each token of one engine; None where they differ by token."""
    element = cache_bytes_per_element(workload.kv_dtype)
    for layer in model.kinds:
        once, twice = (
            float(layer.attention.cache_bytes(tokens, element))
            for tokens in (_CONTEXT_TOKENS, 2 * _CONTEXT_TOKENS)
        )
        if abs(twice - 2 * once) > once * 1e-9:
            return None
    shape = _shape(log).under(workload, 1.0)
    _, cache, _ = shard_bytes(model, workload, model.whole, shape, slots=0.0)
    return float(cache) / log.tp / _CONTEXT_TOKENS / log.pp
