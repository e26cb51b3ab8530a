"""What the model predicts for measured points: served requests, layouts left open, and one dispatch or combine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from cost.calibration.alltoall import KernelUse, find_kernel
from cost.calibration.correction import PHYSICS, Correction, Kind
from cost.calibration.first_token import first_token_calibration
from cost.calibration.order import Bound
from cost.calibration.serving import ANY_ENGINE, calibrated, engine_version, require_engine
from cost.dtypes import dtype
from cost.experts.tokens.reach import Routing
from cost.experts.tokens.volumes import Volumes, alltoall_volumes
from cost.inputs.machine import Efficiency, Machine, Rates, kernels_for, stage_rates
from cost.inputs.workload import CHUNK_TOKENS, StepShape, Workload, with_imbalance
from cost.layouts.batches import batch_grid
from cost.layouts.candidates import group_widths
from cost.memory.batches import most_that_fit
from cost.memory.budget import Ranks, budget_of
from cost.memory.stages import batch_room, even_memory
from cost.model import Model, StageShard
from cost.quantity import Quantity
from cost.queueing.schedulers import scheduler_of
from cost.resolve import model_names, resolve_model
from cost.serving.steady_state import (
    Requests,
    Stepper,
    aggregated,
    decode_shape,
    disaggregated,
)
from cost.step.step import even_step, physics_seconds
from cost.terms.alltoall_kernel import alltoall_seconds, wire_bytes
from cost.terms.pipeline import BUBBLE, HOPS, bubble_seconds, even_hops_s, even_stage_s
from cost.terms.work import FIXED, IMBALANCE, StepCost
from cost.validation.read import ALLTOALL, LEGS, NO_LAYOUT, OF_STEPS, Point, Pool
from topology.base.errors import InfeasibleError, InputError
from topology.base.reading import nearest
from topology.catalog import cluster_names
from topology.files.resolve import resolve_cluster
from topology.spec import GpuSpec

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Prediction for a measured point: a value in the point's unit, or the reason why there is none.

    Attributes
    ----------
    low, high:
        Interval of the measured value that holds four of five, where there is one, also where there is no value.
    chosen:
        What the model chose where the row left its layout or its batch to it.
    """

    value: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    chosen: str = ""


def predict(points: Sequence[Point], correction: Correction = PHYSICS) -> list[Prediction]:
    """Return a prediction for each point, in their order; one without a value says why.

    ``correction``: what measured runs took over the physics (:mod:`cost.calibration.correction`).
    """
    stated = list(points)
    predictions = [Prediction(None, _unpredictable(point)) for point in points]
    for i, point in enumerate(points):
        if point.is_open and not predictions[i].reason:
            try:
                stated[i], chosen = choice(point)
            except InfeasibleError as error:
                predictions[i] = Prediction(None, str(error))
            else:
                predictions[i] = Prediction(None, chosen=chosen)
    able = [i for i, prediction in enumerate(predictions) if not prediction.reason]
    kernels = [i for i in able if points[i].phase == ALLTOALL]
    served = [i for i in able if points[i].phase != ALLTOALL]
    predicted = [
        *predict_alltoall([stated[i] for i in kernels]),
        *predict_serving([stated[i] for i in served], correction=correction, with_bands=True),
    ]
    for i, prediction in zip((*kernels, *served), predicted, strict=True):
        predictions[i] = replace(_positive(prediction), chosen=predictions[i].chosen)
    return predictions


def _positive(prediction: Prediction) -> Prediction:
    """A value that is no time and no rate is no prediction."""
    if prediction.value is None or (math.isfinite(prediction.value) and prediction.value > 0):
        return prediction
    return Prediction(None, f"the model gives {prediction.value:g}")


def unpredictable(point: Point) -> str:
    """Return why a point cannot be predicted from what its row says alone; empty if it says enough."""
    return "the row does not set its layout or its batch" if point.is_open else _unpredictable(point)


def _unpredictable(point: Point) -> str:
    """As :func:`unpredictable`, but for what the row leaves to the model."""
    reason = _unknown("cluster", point.cluster)
    if reason or point.phase == ALLTOALL:
        return reason
    formats = [_unknown("format", name) for name in (point.weights, point.experts_dtype) if name]
    if reason := next(filter(None, (_unknown("model", point.model), *formats)), ""):
        return reason
    if point.pool == NO_LAYOUT:
        return "the row gives no parallel layout (tp, attention_dp, ep, moe_tp are all blank)"
    if point.phase != "prefill" and not point.batch and not point.concurrency:
        return "the row gives neither batch_per_gpu nor concurrency"
    if point.phase in ("aggregated", "disaggregated") and not (point.isl and point.osl):
        return "the row does not give isl and osl"
    return "" if point.context or point.isl else "the row gives neither context nor isl"


@cache
def _unknown(kind: str, name: str) -> str:
    """Return why nothing goes by the ``name`` of a ``cluster``, ``model`` or format; empty where something does."""
    try:
        _READERS[kind](name)
    except InputError as error:
        if kind in _NAMES and not name.lower().endswith((".json", ".yaml", ".yml")):
            return f"{kind} {name!r} is not in the catalog; {nearest(name, _NAMES[kind]())}"
        return str(error)
    return ""


_READERS: Mapping[str, Callable[[str], object]]
_READERS = {"cluster": resolve_cluster, "model": resolve_model, "format": dtype}
_NAMES: Mapping[str, Callable[[], Collection[str]]] = {"cluster": cluster_names, "model": model_names}


# All-to-all: measured dispatches and combines.


@dataclass(frozen=True)
class Case:
    """A point in the terms of :func:`cost.terms.alltoall_kernel.alltoall_seconds`."""

    use: KernelUse
    leg: str
    volumes: Volumes
    vector_bytes: float
    up_bytes_per_s: float
    out_bytes_per_s: float
    ep: int
    scaled: bool
    reason: str = ""


def predict_alltoall(points: Sequence[Point]) -> list[Prediction]:
    """Return the predicted microseconds of each point, or why there are none, in the order of ``points``."""
    predictions = []
    for point in points:
        try:
            case = alltoall_case(point)
            kernel = case.use.kernel
            seconds = alltoall_seconds(
                kernel.dispatch if case.leg == "dispatch" else kernel.combine,
                case.volumes,
                vector_bytes=case.vector_bytes,
                up_bytes_per_s=case.up_bytes_per_s,
                out_bytes_per_s=case.out_bytes_per_s,
                ep=case.ep,
                scaled=case.scaled,
            )
            predictions.append(Prediction(float(seconds) * 1e6, case.reason))
        except InputError as error:
            predictions.append(Prediction(None, str(error)))
    return predictions


def alltoall_case(point: Point) -> Case:
    """Return the kernel, vectors and rates of a point.

    Raises
    ------
    InputError
        If the point is no dispatch or combine, or names a kernel, cluster or format that is not known.
    """
    exchange = point.alltoall
    if exchange is None or point.quantity not in LEGS:
        raise InputError(f"{point.id}: {point.quantity} is not the time of a dispatch or a combine.")
    ep, domain = point.pool.ep, domain_of(point)
    rates, crosses = _rates(point, ("bf16",), min(ep, domain)), ep > domain
    use = find_kernel(exchange.kernel, tokens=exchange.tokens, up_fabric=rates.up_fabric, crosses=crosses)
    routing = Routing(exchange.experts, exchange.top_k, exchange.groups, exchange.topk_groups, use.spread)
    if crosses and rates.out_bytes_per_s <= 0:
        raise InputError(
            f"{point.id}: EP {ep} spans domains of {domain}, and {point.cluster} has no scale-out rate."
        )
    leg = LEGS[point.quantity]
    vector = wire_bytes(
        exchange.hidden, exchange.dispatch_dtype if leg == "dispatch" else exchange.combine_dtype
    )
    return Case(
        use,
        leg,
        alltoall_volumes(use.kernel.family, routing, tokens=exchange.tokens, ep=ep, domain_gpus=domain),
        vector,
        rates.up_bytes_per_s,
        rates.out_bytes_per_s,
        ep,
        vector < wire_bytes(exchange.hidden, "bf16"),
        "; ".join(filter(None, (use.note, use.kernel.stand_in(rates.up_fabric)))),
    )


_cluster = cache(resolve_cluster)


# Served models: points grouped so that each group is one model on one machine, computed as arrays.

NOT_SIMULATED = "first tokens are simulated where the row states its layout and its requests"
_LATENT = ("mla", "dsa")
_FP4_MIX = {"attention": "fp8", "dense": "nvfp4", "shared": "nvfp4"}
"""What NVFP4 checkpoints keep besides experts: NVIDIA's of MLA models mix FP4 and BF16 in attention, about 8 bits;
those of other MoE models leave everything but experts in BF16."""
UNSTATED_WORKERS = 1e6
"""Prefill workers where a row does not say: so many that they never limit the decode pool."""
_CACHE_OF_ENGINE = {"trtllm": "fp8"}
"""KV format where a row does not give it: TensorRT-LLM keeps FP8 under quantised weights, others BF16."""


Reach = Callable[[GpuSpec, str], Efficiency]
"""What kernels reach on a chip under an engine."""


@dataclass(frozen=True, eq=False)
class Group:
    """Points of one phase of one model on one machine; arrays have one entry a point.

    Attributes
    ----------
    index, points:
        Positions in the list that was grouped, and the points, their engine without its version and their cache's
        format as it was where they do not say.
    pool, prefill_pool:
        Layouts; of aggregated and single-phase points both are the same.
    workers, prefill_workers:
        Engines of each pool.
    engine, ran:
        The engine whose delays count, empty for any, and the one that ran.
    """

    index: NDArray[np.int64]
    points: tuple[Point, ...]
    phase: str
    model: Model
    gpu: GpuSpec
    rates: Rates
    engine: str
    ran: str
    kernel: str
    overlap: bool
    workload: Workload
    pool: StepShape
    prefill_pool: StepShape
    workers: Array
    prefill_workers: Array
    requests: Requests

    def column(self, get: Callable[[Point], float]) -> Array:
        """Return a figure of each point."""
        return _column(self.points, get)

    @property
    def recorded(self) -> NDArray[np.bool_]:
        """:attr:`Point.drafts_recorded` of each point."""
        return self.column(lambda point: point.drafts_recorded) > 0


_SHARED = (
    *("phase", "model", "weights", "experts_dtype", "kv_dtype", "cluster", "gpus_per_domain"),
    *("up_bytes_per_s", "out_bytes_per_s", "engine", "kernel", "overlap"),
)
"""What all points of a group have in common."""


def _column(points: Sequence[Point], get: Callable[[Point], float]) -> Array:
    return np.array([get(point) for point in points], dtype=np.float64)


def group_points(points: Sequence[Point]) -> tuple[list[Group], dict[int, Prediction]]:
    """Return the groups, and the reason for each point that cannot be predicted."""
    members: dict[tuple[object, ...], dict[int, Point]] = defaultdict(dict)
    refused: dict[int, Prediction] = {}
    for i, point in enumerate(points):
        try:
            _cluster(point.cluster)
        except InputError as error:
            refused[i] = Prediction(None, str(error))
            continue
        plain = replace(point, engine=engine_version(point.engine)[0], kv_dtype=_kv_dtype(point))
        members[tuple(getattr(plain, name) for name in _SHARED)][i] = plain
    return [_group(np.array(list(group)), tuple(group.values())) for group in members.values()], refused


def _kv_dtype(point: Point) -> str:
    """The format of a point's cache, by its engine where the row does not say."""
    if point.kv_dtype:
        return point.kv_dtype
    model = _model(point.model, point.weights, point.experts_dtype)
    quantised = dtype(model.precision[model.main_weights]).bits <= 8
    return _CACHE_OF_ENGINE.get(timed_engine(point.engine), "bf16") if quantised else "bf16"


def timed_engine(engine: str) -> str:
    """Return the name of an engine that has delays of its own, else of any."""
    try:
        return require_engine(engine)
    except InputError:
        return ANY_ENGINE


@cache
def _model(name: str, weights: str, experts: str) -> Model:
    """Return the model with the row's formats; FP4 of all weights means FP4 of the feed-forward parts."""
    model = resolve_model(name)
    if not weights and not experts:
        return model
    precision = dict(model.precision)
    latent = model.kinds[0].attention.kind in _LATENT
    for part in ("attention", "dense", "shared", "experts"):
        form = (experts or weights) if part == "experts" else weights
        if form and model.moe and "fp4" in form and part != "experts":
            form = _FP4_MIX[part] if latent else "bf16"
        precision[part] = form or precision[part]
    return replace(model, precision=precision)


def _rates(point: Point, dtypes: tuple[str, ...], gpus: int | None = None) -> Rates:
    """Rates among the first ``gpus`` of the point's cluster, or all, with the links of the row."""
    rates = _rates_among(point.cluster, dtypes, gpus)
    if up := point.up_bytes_per_s:
        rates = replace(rates, up_bytes_per_s=up, alltoall_bytes_per_s=up)
    return replace(rates, out_bytes_per_s=point.out_bytes_per_s or rates.out_bytes_per_s)


@cache
def _rates_among(cluster: str, dtypes: tuple[str, ...], gpus: int | None) -> Rates:
    where = _cluster(cluster)
    return stage_rates(where, range(len(where.gpus))[:gpus], dtypes)


def _group(index: NDArray[np.int64], points: tuple[Point, ...]) -> Group:
    first, domain = points[0], _cluster(points[0].cluster).spec.domains[0]
    model = _model(first.model, first.weights, first.experts_dtype)
    column = partial(_column, points)

    def shape(pools: Sequence[Pool]) -> StepShape:
        names = ("tp", "attention_dp", "ep", "moe_tp", "slots", "stages")
        widths = np.array([[getattr(pool, name) for pool in pools] for name in names], dtype=np.float64)
        domain_gpus = np.full(len(pools), float(domain_of(first)))
        return StepShape(**dict(zip(names, widths, strict=True)), domain_gpus=domain_gpus)

    imbalance = column(lambda p: p.imbalance)
    dtypes = (*model.precision.values(), "bf16", first.kv_dtype)
    work = Workload(
        kv_dtype=first.kv_dtype,
        phase="prefill" if first.phase == "prefill" else "decode",
        states=scheduler_of(first.engine).states,
    )
    return Group(
        index=index,
        points=points,
        phase=first.phase,
        model=model,
        gpu=domain.gpu,
        rates=_rates(first, dtypes),
        engine="" if timed_engine(first.engine) == ANY_ENGINE else first.engine,
        ran=first.engine,
        kernel=first.kernel,
        overlap=first.overlap,
        workload=work,
        pool=replace(
            shape([p.pool for p in points]),
            imbalance=imbalance,
            context=column(lambda p: p.mean_context),
        ),
        prefill_pool=replace(
            shape([p.stated_prefill or p.pool for p in points]),
            imbalance=imbalance if first.phase == "prefill" else np.zeros(len(points)),
        ),
        workers=column(lambda p: p.pool.workers),
        prefill_workers=column(
            lambda p: (p.stated_prefill.workers if p.stated_prefill else 0) or UNSTATED_WORKERS
        ),
        requests=Requests(
            isl=column(lambda p: p.isl or p.context),
            osl=column(lambda p: p.osl or 1),
            concurrency=column(lambda p: p.requests),
            draft_tokens=column(lambda p: p.draft_tokens),
            accept_length=column(lambda p: p.accept_length),
        ),
    )


def gpus_of(point: Point) -> float:
    """GPUs that a figure per GPU is divided by, NaN where the row leaves the prefill pool open."""
    if point.gpus or point.phase != "disaggregated":
        return point.gpus or point.pool.gpus
    prefill = point.stated_prefill
    return point.pool.gpus + prefill.gpus if prefill and prefill.gpus else math.nan


@dataclass(frozen=True, eq=False)
class Times:
    """One value for each point of a group.

    ``batch``: sequences per GPU that decode at a time, where requests are served.
    """

    step_s: Quantity
    tpot_s: Quantity = math.nan
    tokens_per_s: Quantity = math.nan
    input_per_s: Quantity = math.nan
    batch: Quantity = 0.0


BENCHMARK_ROUNDS = 10
"""Requests of a user in a benchmark: InferenceX sends ten for each in flight, all users start at once."""


def machines(group: Group, efficiency: Efficiency) -> tuple[Machine, Machine]:
    """Return what the group's decode and prefill run on."""
    rates, kv_dtype = group.rates, group.workload.kv_dtype
    pads = scheduler_of(group.engine).pads and group.phase == "aggregated"
    decode = Machine(rates, efficiency, kernels_for(rates, "decode", group.kernel), kv_dtype, pads=pads)
    named = group.kernel if group.phase == "prefill" else ""
    return decode, Machine(rates, efficiency, kernels_for(rates, "prefill", named), kv_dtype)


def stepping(group: Group, machine: Machine) -> Callable[[StepShape], StepCost]:
    """Return what gives the cost of a step on a machine, in two halves where the group overlaps."""

    def cost(shape: StepShape) -> StepCost:
        cost_s = even_step(group.model, shape, machine, overlap=group.overlap)
        if np.all(np.asarray(shape.stages) == 1):
            return cost_s
        ends = even_step(group.model, shape, machine, StageShard((), last=1.0), overlap=group.overlap)
        one_pass_s, hops_s = cost_s.total_s, even_hops_s(group.model, shape, machine)
        slowest_s = even_stage_s(one_pass_s, ends.total_s, len(group.model.layers), shape.stages)
        cost_s.add(HOPS.name, FIXED, hops_s)
        cost_s.add(BUBBLE.name, IMBALANCE, bubble_seconds(shape.stages, slowest_s, one_pass_s, hops_s))
        return cost_s

    return cost


def room_of(group: Group, shape: StepShape) -> Quantity:
    """Return the sequences per GPU that fit on the stage that is full first (:func:`batch_room`)."""
    held = group.model.first_stage(shape.stages)
    memory = even_memory(group.model, group.workload, shape, held, in_flight=shape.stages)
    ranks = np.stack(np.broadcast_arrays(shape.tp, shape.moe_tp, shape.attention_dp, shape.stages))
    kinds, of = np.unique(ranks.reshape(4, -1).astype(np.int64), axis=1, return_inverse=True)
    budgets = [budget_of(group.gpu, group.model, group.engine, Ranks(*row)) for row in kinds.T.tolist()]
    usable, part = np.array([(budget.usable, budget.part) for budget in budgets]).T[:, of.reshape(-1)]
    return batch_room(memory, usable.reshape(ranks.shape[1:]), part.reshape(ranks.shape[1:]))


def stepper(group: Group, machine: Machine) -> Stepper:
    """Return what gives the expected seconds of such a step."""
    cost = stepping(group, machine)
    return lambda shape: cost(shape).total_s


def with_accepted(group: Group, efficiency: Efficiency) -> Group:
    """Return the group with the calibrated tokens a step where a row gives its drafts alone."""
    drafts, stated = np.asarray(group.requests.draft_tokens), np.asarray(group.requests.accept_length)
    lengths = np.array([1.0, *(efficiency[f"accept.{k}"] for k in (1, 2, 3))])
    accepted = np.where(stated > 0, stated, lengths[np.minimum(drafts, 3).astype(int)])
    accepted = np.where(group.recorded, accepted, efficiency["accept.unrecorded"])
    return replace(group, requests=replace(group.requests, accept_length=accepted))


def group_times(
    group: Group, efficiency: Efficiency, decode: Stepper | None = None, factor: Quantity = 1.0
) -> Times:
    """Return the times of a group of points.

    Parameters
    ----------
    decode:
        What gives the seconds of a step of the pool that decodes (or of the only one); the cost model's own if None.
    factor:
        What measured decode steps of served requests took over the model's (:attr:`Settled.factor`).
    """
    on_decode, on_prefill = machines(group, efficiency)
    pool = with_imbalance(group.pool, "decode")
    prefill_pool = with_imbalance(group.prefill_pool, "prefill")
    step = decode or stepper(group, on_prefill if group.phase == "prefill" else on_decode)
    if group.phase == "prefill":
        return _prefill(group, step, prefill_pool)
    group = with_accepted(group, efficiency)
    if group.phase == "decode":
        return _decoded(group, lambda shape: factor * step(shape), pool)
    requests, workers = group.requests, group.workers
    held = replace(pool, context=scheduler_of(group.engine).held(requests.isl, requests.osl))
    fitting = most_that_fit(room_of(group, held), group.pool.tp)
    max_batch = np.where(fitting > 0, fitting, np.inf)  # it ran: where nothing fits the room is not known
    if group.phase == "aggregated":
        served = aggregated(
            step, pool, requests, workers=workers, max_batch=max_batch, rounds=BENCHMARK_ROUNDS, factor=factor
        )
    else:
        served = disaggregated(
            step,
            pool,
            stepper(group, on_prefill),
            prefill_pool,
            requests,
            workers=workers,
            prefill_workers=group.prefill_workers,
            max_batch=max_batch,
            fixed_s=first_token_calibration().seconds(group.engine, group.phase),
            rounds=BENCHMARK_ROUNDS,
            factor=factor,
        )
    return Times(
        served.step_s,
        served.tpot_s,
        served.requests_per_s * requests.osl,
        served.requests_per_s * requests.isl,
        served.batch,
    )


def _decoded(group: Group, step: Stepper, pool: StepShape) -> Times:
    requests, gpus = group.requests, np.asarray(pool.engine_gpus)
    stated = group.column(lambda p: p.batch)
    batch = np.where(stated > 0, stated, requests.concurrency / (gpus * group.workers))
    step_s = step(replace(pool, sequences=batch, queries=1.0 + requests.draft_tokens, random=0.0))
    tpot_s = step_s / requests.accept_length
    return Times(step_s, tpot_s, group.workers * gpus * batch / tpot_s, batch=batch)


def _prefill(group: Group, step: Stepper, pool: StepShape) -> Times:
    isl = group.requests.isl
    per_gpu = np.maximum(np.maximum(isl, CHUNK_TOKENS) / pool.tp, 1.0)
    stated = group.column(lambda p: p.tokens)
    tokens: Array = np.where(stated > 0, stated, per_gpu)
    step_s = step(replace(pool, prompt_tokens=tokens, prompt_length=isl, sequences=0.0))
    return Times(step_s, input_per_s=group.workers * np.asarray(pool.engine_gpus) * tokens / step_s)


@dataclass(frozen=True, eq=False)
class Settled:
    """The steps that the points of a group decode in, and what measured runs say of them, ``[points]`` each.

    Nothing of prefill alone, of half batches that overlap and where it was not recorded whether tokens were drafted:
    no run that the correction was learned from is like them.
    """

    group: Group
    efficiency: Efficiency
    by_physics: Times
    bound: Bound

    @classmethod
    def of(cls, group: Group, correction: Correction, reach: Reach = calibrated) -> Settled:
        """Return the steps of a group; ``reach``: what kernels reach on a chip under an engine."""
        efficiency = reach(group.gpu, group.engine)
        machine = machines(group, efficiency)[0]
        # the other chips of the family too are priced under the engine whose delays count
        on_chip: Reach = lambda gpu, _: reach(gpu, group.engine)  # noqa: E731
        bound = Bound.of(correction, group.model, machine, group.gpu, group.ran, group.phase, on_chip)
        bound = replace(bound, day=group.column(lambda point: run_day(point, correction)))
        return cls(group, efficiency, group_times(group, efficiency), bound)

    @cached_property
    def times(self) -> Times:
        """Times of the points as corrected."""
        if (self.factor == 1).all():
            return self.by_physics
        return group_times(self.group, self.efficiency, factor=self.factor)

    @cached_property
    def shape(self) -> StepShape:
        """The steps, with the prompts that one pool mixes in."""
        requests = with_accepted(self.group, self.efficiency).requests
        pool = with_imbalance(self.group.pool, "decode")
        shape = decode_shape(pool, requests, np.maximum(self.by_physics.batch, 1e-9))
        if self.group.phase != "aggregated":
            return shape
        return replace(shape, rounds=BENCHMARK_ROUNDS).with_prompts(requests.isl, 0.0, requests.steps)

    @property
    def kind(self) -> Kind:
        """Categories of the points."""
        return self.bound.own[0].kind

    @cached_property
    def features(self) -> Array:
        """Features of the steps, ``[points, features]``."""
        return self.bound.features(self.shape, physics_seconds)

    @property
    def _told(self) -> NDArray[np.bool_]:
        return self.group.recorded & (self.group.phase != "prefill") & (not self.group.overlap)

    @cached_property
    def factor(self) -> Array:
        """What measured runs near each step took over the time by physics."""
        if self.bound.correction.bare or not self._told.any():
            return np.ones(self.group.index.shape)
        return np.where(self._told, np.exp(self.bound.logs(self.shape, physics_seconds)), 1.0)

    @property
    def bands(self) -> Array:
        """The factor either way that holds four of five runs like each; NaN where none corrects."""
        if self.bound.correction.physics or not self._told.any():
            return np.full(self.group.index.shape, np.nan)
        return np.where(self._told, self.bound.bands(self.shape, physics_seconds), np.nan)


def run_day(point: Point, correction: Correction) -> float:
    """Return the day of a run, ordinal; without a date that of its version's newest."""
    if point.date:
        return float(date.fromisoformat(point.date).toordinal())
    return correction.days.get((point.engine, point.engine_version), correction.newest)


def predict_serving(
    points: Sequence[Point],
    reach: Reach = calibrated,
    *,
    correction: Correction = PHYSICS,
    with_bands: bool = False,
) -> list[Prediction]:
    """Return a prediction for each point, in the order of ``points``; one without a value says why.

    First tokens of served requests have none here: they are simulated (:mod:`cost.validation.under_load`).

    Parameters
    ----------
    reach:
        What kernels reach on a chip under an engine.
    correction:
        What measured runs near them took over the physics, which corrects the time per token and the throughput that
        follows from it.
    with_bands:
        Whether each has the interval that holds four of five runs like it, which takes a while.
    """
    groups, refused = group_points(points)
    predictions = [refused.get(i, Prediction(None)) for i in range(len(points))]
    for group in groups:
        settled = Settled.of(group, correction, reach)
        bands = settled.bands if with_bands else np.full(group.index.shape, np.nan)
        for position, (i, band) in enumerate(zip(group.index.tolist(), bands.tolist(), strict=True)):
            value = quantity_of(points[i], group, settled.times, position)
            if np.isfinite(value):
                known = np.isfinite(band) and points[i].quantity in OF_STEPS
                predictions[i] = Prediction(value, "", *((value / band, value * band) if known else ()))
            elif points[i].quantity == "ttft_ms":
                predictions[i] = Prediction(None, NOT_SIMULATED)
            else:
                predictions[i] = Prediction(None, "this quantity does not apply to the phase")
    return predictions


def quantity_of(point: Point, group: Group, times: Times, position: int) -> float:
    """Return the value of a point's quantity in its unit, NaN where its phase has none."""

    def at(values: Quantity) -> float:
        return float(np.broadcast_to(values, group.index.shape)[position])

    alone = times.step_s if point.phase == "prefill" else math.nan
    seconds = {"tpot_ms": times.tpot_s, "ttft_ms": alone, "step_ms": times.step_s}
    if point.quantity in seconds:
        return at(seconds[point.quantity]) * 1e3
    output, input_rate = at(times.tokens_per_s), at(times.input_per_s)
    kind = point.token_kind
    if point.phase == "decode":
        rate = output
    elif point.phase == "prefill":
        rate = input_rate
    else:
        rate = {"output": output, "total": output + input_rate}.get(kind, input_rate)
    if kind == "input_cached":
        rate /= 1 - point.cache_hit
    return rate / gpus_of(point)


# Open points: every legal layout of one stage on the row's GPUs is predicted as if the row stated it; the one with
# the highest throughput per GPU is taken, at the largest batch that fits, or that keeps the row's limit on the time
# per token. The measured figure plays no part, and no learned correction does. A prefill pool is chosen first, for
# the most prompt tokens per second and GPU; where its GPUs are not stated it gets as many workers as decoding needs.

_MAX_EVERY_COUNT = 8
_CHOSEN = ("pool", "prefill_pool", "batch", "concurrency")


def choice(point: Point) -> tuple[Point, str]:
    """Return a point that leaves its layout or batch to the model with both stated, and what was chosen in words.

    Figures of one run (rows that differ only in what was measured) get the same choice.

    Raises
    ------
    InfeasibleError
        If nothing can be chosen.
    """
    best, text = _choose(_rate_of(replace(point, id="", source="", measured=1.0, pair="", notes="")))
    return replace(point, **{name: getattr(best, name) for name in _CHOSEN}), text


def legal_pools(point: Point, template: Pool, gpus: int, workers: Sequence[int] = ()) -> list[Pool]:
    """Return the pools of one stage for the point's model and cluster, with widths of ``template`` that are not 0.

    Parameters
    ----------
    gpus:
        GPUs of the pool. Engines have a part of them that divides them, inside a scale-up domain or over whole ones.
    workers:
        Counts of engines to try, as far as ``gpus`` has room for them; none: as many as fill it.
    """
    model = _model(point.model, point.weights, point.experts_dtype)
    domain = domain_of(point)
    fixed = {
        name: width for name in ("tp", "attention_dp", "ep", "moe_tp") if (width := getattr(template, name))
    }
    pools = []
    for width in (part for part in range(1, gpus + 1) if gpus % part == 0):
        if width > domain and width % domain:
            continue
        widths, parts = group_widths(model, width, {min(width, domain)}, cut_experts=True)
        counts = [template.workers] if template.workers else list(workers) or [gpus // width]
        for tp in widths:
            for part in parts if model.moe is not None else [width]:
                pool = Pool(tp, width // tp, width // part, part, slots=template.slots)
                if all(getattr(pool, name) == value for name, value in fixed.items()):
                    pools += [replace(pool, workers=count) for count in counts if count <= gpus // width]
    return pools


def domain_of(point: Point) -> int:
    """GPUs of a scale-up domain of the point's cluster."""
    return point.gpus_per_domain or _cluster(point.cluster).spec.domains[0].gpus


@cache
def _choose(point: Point) -> tuple[Point, str]:
    prefill, question = point.prefill_pool, point
    if prefill is not None and prefill.best:
        point = replace(point, prefill_pool=_best_prefill(point, prefill))
    rows = [replace(point, pool=pool) for pool in _decode_pools(point)]
    if not rows:
        raise InfeasibleError("no legal layout has the widths given on the GPUs of the row")
    if point.is_open:
        rows = [row for row, _ in fitting(rows)]
        if not rows:
            raise InfeasibleError("no layout with the widths given fits model and batch in memory")
    keeps = True
    if point.batch == math.inf or point.tpot_limit_ms:
        rows, keeps = _within_limit(rows)
    if prefill is not None and prefill.best and point.prefill_pool and not point.prefill_pool.workers:
        rows = _with_prefill_workers(rows, point.prefill_pool)
    best = _fastest(rows, "no configuration that the model may choose can serve the row")
    text = _description(question, best)
    if not keeps:
        text += f"; no configuration meets {point.tpot_limit_ms:.4g} ms per token, this is the closest"
    return best, text


def _fastest(rows: Sequence[Point], refusal: str) -> Point:
    """The row with the highest throughput per GPU; where none has any, the ``refusal``."""
    rates = values_of([_rate_of(row) for row in rows])
    if not np.isfinite(rates).any():
        raise InfeasibleError(refusal)
    return rows[int(np.nanargmax(rates))]


def _rate_of(point: Point) -> Point:
    """The row of the throughput that is made as large as can be: per GPU, of what the phase puts out."""
    kind = "input" if point.phase == "prefill" else "output"
    return replace(point, quantity="tok_s_per_gpu", token_kind=kind)


def values_of(rows: Sequence[Point], correction: Correction = PHYSICS) -> Array:
    """Predictions, NaN where there is none."""
    values = [prediction.value for prediction in predict_serving(rows, correction=correction)]
    return np.array(values, dtype=np.float64)


def largest_batches(rows: Sequence[Point]) -> Array:
    """Sequences per GPU that fit each row, whole ones of an attention group; 0 where none does."""
    largest = np.zeros(len(rows))
    groups, _ = group_points([replace(row, batch=1.0) if row.batch == math.inf else row for row in rows])
    for group in groups:
        room = np.asarray(room_of(group, replace(group.pool, prompt_length=group.requests.isl)))
        largest[group.index] = most_that_fit(room, group.pool.tp)
    return largest


def fitting(rows: Sequence[Point]) -> list[tuple[Point, float]]:
    """Return the rows whose layout (and batch, where decoding alone states one) the memory holds, and its most."""
    pairs = []
    for row, largest in zip(rows, largest_batches(rows).tolist(), strict=True):
        stated = row.phase == "decode" and row.batch != math.inf
        if largest > 0 and (not stated or (row.batch or row.concurrency / row.pool.gpus) <= largest):
            pairs.append((row, largest))
    return pairs


def _best_prefill(point: Point, widths: Pool) -> Pool:
    """The prefill pool with most prompt tokens per second and GPU; 0 workers where its GPUs are not known."""
    known = point.gpus - point.pool.gpus if point.gpus and not point.pool.best else 0
    pools = [] if known < 0 else legal_pools(point, widths, known or len(_cluster(point.cluster).gpus))
    rows = [row for row, _ in fitting([prefill_alone(point, pool, gpus=0) for pool in pools])]
    refusal = "no legal layout of the prefill pool has the widths given and fits in memory"
    best = _fastest(rows, refusal).pool
    return best if known or widths.workers else replace(best, workers=0)


def prefill_alone(point: Point, pool: Pool, gpus: int) -> Point:
    """The row's prompts on ``pool`` alone, its figure divided by ``gpus`` (0: those of the pool)."""
    prompts = replace(point, kernel="", imbalance=0.0, batch=0.0, token_kind="input")  # noqa: S106 - tokens of text
    return replace(prompts, phase="prefill", pool=pool, prefill_pool=None, gpus=gpus)


def _decode_pools(point: Point) -> list[Pool]:
    """The pools that decode (or the only ones) that may be chosen; the row's own where it states one."""
    if not point.pool.best:
        return [point.pool]
    gpus, prefill = point.gpus or len(_cluster(point.cluster).gpus), point.prefill_pool
    counted = point.gpus > 0
    if prefill is not None and prefill.workers:
        gpus -= prefill.gpus if point.gpus else 0
    elif prefill is not None:
        counted = False  # what both pools share out
    single = point.batch > 0 or point.phase == "prefill"
    workers = [] if counted else [1] if single else _counts(gpus)
    return legal_pools(point, point.pool, gpus, workers)


def _counts(limit: int) -> list[int]:
    """Every count up to 8, then powers of 2."""
    return [count for count in range(1, limit + 1) if count <= _MAX_EVERY_COUNT or not count & (count - 1)]


def _within_limit(rows: list[Point]) -> tuple[list[Point], bool]:
    """The rows at the largest batch that fits and keeps the limit on the time per token; False where none keeps it.

    Then the row that comes nearest to the limit is the only one.
    """
    limit, largest = rows[0].tpot_limit_ms, rows[0].batch == math.inf
    max_batches = largest_batches(rows).tolist()
    if not limit:
        return [at_batch(row, batch) for row, batch in zip(rows, max_batches, strict=True)], True
    grids = [
        [at_batch(row, batch) for batch in _batches(top, row.pool.tp).tolist()] if largest else [row]
        for row, top in zip(rows, max_batches, strict=True)
    ]
    ends = np.cumsum([len(grid) for grid in grids])
    points = [replace(point, quantity="tpot_ms") for grid in grids for point in grid]
    tpots = np.split(values_of(points), ends[:-1])
    keeps = [np.logical_and.accumulate(times <= limit).sum() for times in tpots]
    within = [grid[kept - 1] for grid, kept in zip(grids, keeps, strict=True) if kept]
    if within:
        return within, True
    return [grids[int(np.nanargmin([times[0] for times in tpots]))][0]], False


def _batches(limit: float, tp: int) -> Array:
    """Sequences per GPU up to ``limit``, dense where few: whole ones of an attention group of ``tp`` GPUs."""
    return np.unique(np.append(batch_grid(limit * tp) / tp, limit))


def at_batch(row: Point, batch: float) -> Point:
    """The row with ``batch`` sequences per GPU; as requests in the system where both phases are served."""
    if row.phase == "decode":
        return replace(row, batch=batch)
    return replace(row, batch=0.0, concurrency=max(1, round(batch * row.pool.gpus)))


def _with_prefill_workers(rows: Sequence[Point], pool: Pool) -> list[Point]:
    """The rows with as many prefill workers as the decode pool needs, or as the row's GPUs have room for."""
    (prompt_rate,) = values_of([prefill_alone(rows[0], replace(pool, workers=1), gpus=1)])
    need = values_of([replace(row, gpus=1, token_kind="input") for row in rows])  # noqa: S106 - tokens of text
    sized = []
    for row, rate in zip(rows, need.tolist(), strict=True):
        workers = max(1, math.ceil(rate / prompt_rate)) if math.isfinite(rate / prompt_rate) else 0
        if row.gpus:
            workers = min(workers, (row.gpus - row.pool.gpus) // pool.gpus_per_worker)
        if workers > 0:
            sized.append(replace(row, prefill_pool=replace(pool, workers=workers)))
    return sized


def _description(row: Point, best: Point) -> str:
    """What was chosen for a row, in a line."""
    parts, prefill = [], row.prefill_pool
    if prefill is not None and prefill.best and best.prefill_pool is not None:
        parts.append(f"prefill {label_of(best.prefill_pool)}")
    if row.pool.best:
        name = "" if row.phase == "aggregated" else f"{row.phase} " if prefill is None else "decode "
        parts.append(f"{name}{label_of(best.pool)}")
    if row.batch == math.inf:
        batch = best.batch or best.concurrency / best.pool.gpus
        within = f" and meet {row.tpot_limit_ms:.4g} ms per token" if row.tpot_limit_ms else ""
        parts.append(f"{batch:.4g} sequences per GPU, the most that fit{within}")
    return "; ".join(parts)


def label_of(pool: Pool) -> str:
    """The widths of a pool and its workers, in a word each."""
    cut = f" ETP{pool.moe_tp}" if pool.moe_tp > 1 else ""
    return f"TP{pool.tp} DP{pool.attention_dp} EP{pool.ep}{cut} x{pool.workers}"
