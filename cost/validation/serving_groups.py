"""Points of served models, grouped so that each group is one model on one machine and computed as arrays."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cost.calibration.serving import ANY_ENGINE, require_engine
from cost.dtypes import dtype
from cost.inputs.machine import Rates, stage_rates
from cost.inputs.workload import StepShape, Workload
from cost.model import Model
from cost.resolve import resolve_model
from cost.serving.steady_state import Requests
from cost.validation.point import Point, Pool, Prediction
from topology.base.errors import InputError
from topology.files.resolve import resolve_cluster
from topology.spec import GpuSpec

LATENT = ("mla", "dsa")
FP4_BESIDES = {"attention": "fp8", "dense": "nvfp4", "shared": "nvfp4"}
"""What NVFP4 checkpoints keep besides experts: NVIDIA's of MLA models mix FP4 and BF16 in attention, about 8 bits;
those of other MoE models leave everything but experts in BF16."""
UNSTATED_WORKERS = 1e6
"""Prefill workers where a row does not say: so many that they never limit the decode pool."""
CACHE_OF_ENGINE = {"trtllm": "fp8"}
"""KV format where a row does not give it: TensorRT-LLM keeps FP8 under quantised weights, others BF16."""


@dataclass(frozen=True, eq=False)
class Group:
    """Points of one phase of one model on one machine; arrays have one entry a point.

    Attributes
    ----------
    index:
        Positions of the points in the list that was grouped.
    pool, prefill_pool:
        Layouts; of aggregated and single-phase points both are the same.
    workers, prefill_workers:
        Engines of each pool.
    tokens:
        Prompt tokens per GPU of a prefill step, 0 where not stated; ``batch`` sequences per GPU, likewise.
    """

    index: NDArray[np.int64]
    phase: str
    model: Model
    gpu: GpuSpec
    rates: Rates
    engine: str
    kernel: str
    overlap: bool
    workload: Workload
    pool: StepShape
    prefill_pool: StepShape
    workers: NDArray[np.float64]
    prefill_workers: NDArray[np.float64]
    requests: Requests
    batch: NDArray[np.float64]
    tokens: NDArray[np.float64]
    recorded: NDArray[np.bool_]
    in_step: NDArray[np.bool_]
    gpus: NDArray[np.float64]


class _Key(NamedTuple):
    """What all points of a group share, named as in :class:`cost.validation.point.Point`."""

    phase: str
    model: str
    weights: str
    experts_dtype: str
    kv_dtype: str
    cluster: str
    gpus_per_domain: int
    up_bytes_per_s: float
    out_bytes_per_s: float
    engine: str
    kernel: str
    overlap: bool


def group_points(points: Sequence[Point]) -> tuple[list[Group], dict[int, Prediction]]:
    """Return the groups, and the reason for each point that cannot be predicted."""
    members: dict[_Key, list[int]] = defaultdict(list)
    refused: dict[int, Prediction] = {}
    for i, point in enumerate(points):
        key = _key(point)
        try:
            _cluster(key.cluster)
        except InputError as error:
            refused[i] = Prediction(None, str(error))
            continue
        members[key].append(i)
    return [_group(key, points, index) for key, index in members.items()], refused


def _key(point: Point) -> _Key:
    key, engine = _Key(*(getattr(point, name) for name in _Key._fields)), _engine(point)
    return key._replace(engine=engine, kv_dtype=_cache_dtype(point, engine))


def _engine(point: Point) -> str:
    """Return the engine if it was measured, else an empty name: any."""
    try:
        name = require_engine(point.engine)
    except InputError:
        return ""
    return "" if name == ANY_ENGINE else name


@cache
def _model(name: str, weights: str, experts: str) -> Model:
    """Return the model with the row's formats; FP4 of all weights means FP4 of the feed-forward parts."""
    model = resolve_model(name)
    if not weights and not experts:
        return model
    precision = dict(model.precision)
    latent = model.kinds[0].attention.kind in LATENT
    for part in ("attention", "dense", "shared", "experts"):
        wanted = (experts or weights) if part == "experts" else weights
        if wanted and model.moe and "fp4" in wanted and part != "experts":
            wanted = FP4_BESIDES[part] if latent else "bf16"
        precision[part] = wanted or precision[part]
    return replace(model, precision=precision)


_cluster = cache(resolve_cluster)


@cache
def _rates(name: str, up: float, out: float, dtypes: tuple[str, ...]) -> Rates:
    cluster = _cluster(name)
    rates = stage_rates(cluster, range(len(cluster.gpus)), dtypes)
    if up:
        rates = replace(rates, up_bytes_per_s=up, alltoall_bytes_per_s=up)
    return replace(rates, out_bytes_per_s=out) if out else rates


def _cache_dtype(point: Point, engine: str) -> str:
    if point.kv_dtype:
        return point.kv_dtype
    model = _model(point.model, point.weights, point.experts_dtype)
    quantised = dtype(model.precision["experts" if model.moe else "dense"]).bits <= 8
    return CACHE_OF_ENGINE.get(engine, "bf16") if quantised else "bf16"


def _group(key: _Key, points: Sequence[Point], index: list[int]) -> Group:
    model = _model(key.model, key.weights, key.experts_dtype)
    domain = _cluster(key.cluster).spec.domains[0]
    domain_gpus = float(key.gpus_per_domain or domain.gpus)
    chosen = [points[i] for i in index]

    def column(get: Callable[[Point], float]) -> NDArray[np.float64]:
        return np.array([get(point) for point in chosen], dtype=np.float64)

    def shape(pools: Sequence[Pool]) -> StepShape:
        names = ("tp", "attention_dp", "ep", "moe_tp", "slots")
        widths = np.array([[getattr(pool, name) for pool in pools] for name in names], dtype=np.float64)
        each = np.full(len(pools), domain_gpus)
        return StepShape(**dict(zip(names, widths, strict=True)), domain_gpus=each)

    imbalance = column(lambda p: p.imbalance)
    phase = "prefill" if key.phase == "prefill" else "decode"
    dtypes = (*model.precision.values(), "bf16", key.kv_dtype)
    return Group(
        index=np.array(index),
        phase=key.phase,
        model=model,
        gpu=domain.gpu,
        rates=_rates(key.cluster, key.up_bytes_per_s, key.out_bytes_per_s, dtypes),
        engine=key.engine,
        kernel=key.kernel,
        overlap=key.overlap,
        workload=Workload(kv_dtype=key.kv_dtype, phase=phase),
        pool=replace(
            shape([p.pool for p in chosen]),
            imbalance=imbalance,
            context=column(lambda p: p.context or p.isl + p.osl / 2),
        ),
        prefill_pool=replace(
            shape([p.stated_prefill or p.pool for p in chosen]),
            imbalance=imbalance if key.phase == "prefill" else np.zeros(len(chosen)),
        ),
        workers=column(lambda p: p.pool.workers),
        prefill_workers=column(
            lambda p: (p.stated_prefill.workers if p.stated_prefill else 0) or UNSTATED_WORKERS
        ),
        requests=Requests(
            isl=column(lambda p: p.isl or p.context),
            osl=column(lambda p: p.osl or 1),
            concurrency=column(lambda p: p.concurrency or p.batch * p.pool.gpus),
            draft_tokens=column(lambda p: p.draft_tokens),
            accept_length=column(lambda p: p.accept_length),
        ),
        batch=column(lambda p: p.batch),
        tokens=column(lambda p: p.tokens),
        recorded=np.array([p.drafts_recorded for p in chosen]),
        in_step=np.array([p.in_step for p in chosen]),
        gpus=column(_gpus),
    )


def _gpus(point: Point) -> float:
    """GPUs that a figure per GPU is divided by, NaN where the row leaves the prefill pool open."""
    if point.gpus or point.phase != "disaggregated":
        return point.gpus or point.pool.gpus
    prefill = point.stated_prefill
    return point.pool.gpus + prefill.gpus if prefill and prefill.gpus else math.nan
