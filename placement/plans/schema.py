"""A plan file, ``plan.json``: one dataclass for each of its parts, of which it is read, written and described.

Parts that a plan keeps as they are have their class there: :mod:`placement.plans.findings`, :mod:`placement.plan`,
:class:`placement.options.PlanOptions`, :class:`cost.inputs.workload.Workload`, :class:`cost.money.prices.PriceBook`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import AfterValidator, Field, PlainSerializer, WrapValidator
from typing_extensions import TypedDict

from cost.calibration.correction import RunLine
from cost.calibration.errors import CalibrationData
from cost.experts.tokens.traffic import TokenTraffic
from cost.inputs.workload import Workload
from cost.money.bill import Totals
from cost.money.prices import PriceBook
from placement.options import PlanOptions
from placement.plan import Asked, Decision, OrderProof, Origin, Proof
from placement.plans.findings import LEFT_OUT, Count, Failures, RedundancyCurve, ScenarioReport, TrafficReport
from topology.base.errors import InputError
from topology.base.figures import EvidenceLabel
from topology.base.schema import problem

_Follows = Annotated[int, Field(ge=0, le=10**12, strict=True)]
"""What follows from the rest of the file: it must agree where the file has it."""

_AS_IS = PlainSerializer(lambda value: value)
"""Of what is made as JSON-able data."""


def _refused_in_place(value: object, make: Callable[[object], Any]) -> Any:
    """Have what a class refuses refused with its place in the file."""
    try:
        return make(value)
    except InputError as error:
        raise problem(str(error)) from None


_IN_PLACE = WrapValidator(_refused_in_place)


def _equal_rows_once(rows: list[list[int]]) -> list[list[int]]:
    """Keep equal rows of a layer once in memory: replicas hold the same."""
    same: dict[tuple[int, ...], list[int]] = {}
    return [same.setdefault(tuple(row), row) for row in rows]


def _phase_first(workload: Workload) -> dict[str, Any]:
    """Return a workload as files have it, without what is of prompts where that is nothing."""
    of_prompts = ("prefix_hit", "prompt", "answer", "prompt_share", "prompt_chunk", "held", "states")
    fields = {key: value for key, value in asdict(workload).items() if key not in of_prompts or value}
    return {"phase": workload.phase, **fields}


@dataclass(frozen=True, kw_only=True)
class StagePart:
    """A stage of a replica: a run of layers on its GPUs.

    Attributes
    ----------
    replica:
        Number of the replica, from 0.
    domains:
        Scale-up domains that its GPUs lie in.
    first_layer, last_layer:
        Layers of the model, both included.
    gpus:
        Ids of its GPUs.
    attention:
        Ids of the GPUs with its attention, where they are others than those of its experts; empty: the same.
    """

    replica: Count = 0
    domains: list[str] = LEFT_OUT
    first_layer: Count
    last_layer: Count
    gpus: Annotated[list[str], Field(min_length=1)]
    attention: Annotated[list[str], Field(exclude_if=lambda ids: not ids)] = field(default_factory=list)


@dataclass(frozen=True)
class ExpertsPart:
    """Which experts each GPU holds.

    Attributes
    ----------
    gpus:
        Ids of all GPUs of the cluster.
    layers:
        By id of each MoE layer, a list for each of ``gpus`` of the experts that it holds; empty outside the stage.
    """

    gpus: list[str]
    layers: dict[str, Annotated[list[list[Count]], AfterValidator(_equal_rows_once)]]


class LayoutPart(TypedDict, total=False):
    """The parallel layout.

    Attributes
    ----------
    stages, ep, tp:
        Pipeline stages of a replica; GPUs that a layer's experts are spread over; tensor-parallel width of attention.
    moe_tp:
        Parts that tensor parallelism cuts each expert into, over all GPUs of a stage: none is placed then. 1: whole.
    dcp, pcp:
        GPUs of an attention group that the cache of a sequence, and the tokens of a prompt, are split over.
    attention_dp:
        Groups of attention that a stage has, each with sequences of its own.
    replicas, gpus_used:
        Copies of the whole model, and the GPUs that they take.
    batch_per_gpu:
        Sequences per GPU in use; a tensor-parallel group of 8 with one has 0.125.
    attention_gpus, micro_batches:
        With attention apart from the experts: GPUs of a replica that it runs on, and parts of the batch that take
        turns; else absent.
    """

    stages: _Follows
    ep: _Follows
    tp: Required[Annotated[int, Field(ge=1, le=10**12, strict=True)]]
    moe_tp: Annotated[int, Field(ge=1, le=10**12, strict=True)]
    dcp: Annotated[int, Field(ge=1, le=10**12, strict=True)]
    pcp: Annotated[int, Field(ge=1, le=10**12, strict=True)]
    attention_dp: _Follows
    replicas: _Follows
    batch_per_gpu: Annotated[float, Field(ge=0, le=10**12, strict=True, allow_inf_nan=False)]
    gpus_used: _Follows
    attention_gpus: _Follows
    micro_batches: Annotated[int, Field(ge=1, le=64, strict=True)]


class ChosenLayoutPart(LayoutPart, total=False):
    """The layout of a plan.

    Attributes
    ----------
    passed_over:
        What was faster within the tolerance, and not taken, in words; null: nothing.
    """

    passed_over: str | None


class ScoreData(TypedDict):
    """Cost and yield of a step.

    Attributes
    ----------
    step_s, lower_step_s:
        The expected step, and the pure roofline that no schedule is faster than.
    tok_s_per_gpu, tok_s_per_gpu_used, tok_s_per_user:
        Tokens a second over all GPUs given, over those in use, and of one user.
    tokens:
        Which tokens are counted: ``output``, or ``input`` where prompts are prefilled.
    tokens_per_step:
        Tokens that all GPUs make (prefill: read) in a step.
    bound_by:
        What takes most of the step.
    terms_s, limits_s:
        The step by part, and by what bounds it; each sums to ``step_s``.
    parts_s:
        By part, then by what bounds it.
    floor_s:
        What each resource is busy for at its peak.
    hbm_bytes:
        Memory of the fullest GPU by use.
    batch_per_gpu, max_batch_per_gpu:
        Sequences per GPU in use, and the most that fit.
    evidence:
        The weakest kind of figure that the step rests on.
    what_if:
        What was assumed that no engine does, in words.
    balancedness_mean, balancedness:
        Mean over max GPU load: mean over MoE layers (null without experts), and by id of the layer.
    """

    step_s: float
    lower_step_s: float
    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s_per_user: float
    tokens: str
    tokens_per_step: float
    bound_by: str
    terms_s: dict[str, float]
    limits_s: dict[str, float]
    parts_s: dict[str, dict[str, float]]
    floor_s: dict[str, float]
    hbm_bytes: dict[str, float]
    batch_per_gpu: float
    max_batch_per_gpu: float
    evidence: EvidenceLabel
    what_if: NotRequired[str]
    balancedness_mean: float | None
    balancedness: dict[str, float]


class PlanScoreData(ScoreData):
    """A plan's score; never believed when a file is read.

    Attributes
    ----------
    limit_s, over_limit:
        Longest time per output token (prefill: of a step) that the plan was chosen to hold (null: no limit), and the
        fraction by which it is exceeded (null where it is not).
    totals:
        Of the whole cluster.
    calibration:
        How far off it may be; null where nothing was measured.
    traffic:
        Where tokens go, where they were traced.
    """

    limit_s: float | None
    over_limit: float | None
    totals: Totals
    calibration: CalibrationData | None
    traffic: NotRequired[TokenTraffic]


@dataclass(frozen=True, kw_only=True)
class ProofPart(Proof):
    """What is proven of the experts' placement.

    Attributes
    ----------
    of:
        What objective and bound are of, in words.
    interrupted:
        Whether Ctrl-C ended the search: it is the best so far.
    log:
        Notes of the planner.
    """

    of: str = ""
    interrupted: bool = False
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelPart:
    """The model, resolved.

    Attributes
    ----------
    name:
        Its name in the catalog, or of its file.
    config:
        Its Hugging Face ``config.json``, with what the catalog adds under ``rackplan``.
    weights:
        Format of the weights in place of the checkpoint's own.
    """

    name: str
    config: dict[str, Any]
    weights: str | None = None


@dataclass(frozen=True)
class LoadsPart:
    """Tokens per expert that the experts were placed for.

    Attributes
    ----------
    names:
        Of the scenarios.
    synthetic:
        Whether they were drawn, not recorded.
    tokens:
        By scenario, MoE layer and expert.
    """

    names: list[str]
    synthetic: Annotated[bool, Field(strict=True)]
    tokens: list[list[list[float]]]


@dataclass(frozen=True, kw_only=True)
class RequestPart(PlanOptions):
    """Options of the planner.

    Attributes
    ----------
    engine:
        Engine whose fixed delays count; empty: between those measured.
    mem_util, max_seqs:
        As of :class:`cost.inputs.deployment.Deployment`.
    any_shape:
        Whether layouts may be of any shape, not only deployable.
    dcp, pcp:
        Context parallelism asked for; null: where it may pay.
    recipe:
        Which recipe of published runs its formats and drafts are of, with its source; empty: none.
    """

    engine: str = ""
    mem_util: Annotated[float, Field(gt=0, le=1)] | None = None
    max_seqs: Annotated[int, Field(ge=1)] | None = None
    any_shape: bool = False
    dcp: Annotated[int, Field(ge=1)] | None = None
    pcp: Annotated[int, Field(ge=1)] | None = None
    recipe: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelInputsPart:
    """Inputs of a pool of another model.

    Attributes
    ----------
    model, loads:
        The model, and the loads of its experts (null without any).
    """

    model: ModelPart
    loads: LoadsPart | None = None


@dataclass(frozen=True, kw_only=True)
class InputsPart:
    """Inputs of a plan.

    Attributes
    ----------
    model, workload, loads, prices:
        The model, what it serves, the loads of its experts (null without any), and what money is counted with: of the
        first pool.
    models:
        Models that other pools serve.
    cluster:
        The resolved cluster, as ``topology.cluster_from_dict`` reads it.
    seed:
        Of synthetic loads and of the search.
    physics, own_runs:
        Whether the runs that ship correct nothing, and the user's own runs, which correct what they leave over.
    sha256, command:
        Digests of the files that were read, by name, and the command line.
    """

    model: ModelPart
    cluster: dict[str, Any]
    workload: Annotated[Workload, _IN_PLACE, PlainSerializer(_phase_first)]
    loads: LoadsPart | None = None
    models: tuple[ModelInputsPart, ...] = ()
    seed: int = 0
    prices: Annotated[PriceBook, _IN_PLACE] = field(default_factory=PriceBook)
    physics: bool = False
    own_runs: tuple[RunLine, ...] = ()
    sha256: dict[str, str] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanPart:
    """A plan without large parts: stages, score and proof.

    Attributes
    ----------
    origin:
        Whether the planner made it, a re-plan did, or it was imported from an engine's file.
    model, cluster:
        Their names.
    stages:
        Of all replicas.
    layout, service_level, limit_s:
        The parallel layout, the speed that it was chosen for in words, and its longest time per token (null: none).
    score:
        What a step costs.
    proof, order:
        What is proven of the experts' placement, and of the order of stages over unlike domains (null: there is one).
    baselines, baseline_reasons:
        Scores of other policies by name (null where one does not apply), and why one does not.
    scenarios, redundancy, failures, by_traffic:
        Findings: each load in and out of sample, throughput against copies, what a failure would do, placements
        compared under traced tokens; null where there is nothing to find.
    request:
        The options that it was made with.
    """

    origin: Origin
    model: str = LEFT_OUT
    cluster: str = LEFT_OUT
    stages: Annotated[list[StagePart], Field(min_length=1)]
    layout: ChosenLayoutPart
    service_level: str | None = None
    limit_s: Annotated[float, Field(gt=0.0, strict=True, allow_inf_nan=False)] | None = None
    score: Annotated[PlanScoreData, _AS_IS] = LEFT_OUT
    proof: ProofPart
    order: OrderProof | None = None
    baselines: Annotated[dict[str, ScoreData | None], _AS_IS] = LEFT_OUT
    scenarios: ScenarioReport | None = None
    redundancy: RedundancyCurve | None = None
    failures: Failures | None = None
    by_traffic: TrafficReport | None = None
    baseline_reasons: dict[str, str] = LEFT_OUT
    request: Annotated[RequestPart, _IN_PLACE]


@dataclass(frozen=True, kw_only=True)
class PoolPart(PlanPart):
    """A pool: replicas that do the same.

    Attributes
    ----------
    role:
        ``decode``, ``prefill`` or ``both``.
    replicas:
        How many there are.
    gpus:
        Ids of the GPUs that are the pool's; empty: all of the cluster.
    experts:
        Which experts each of its GPUs holds.
    workload:
        What it does.
    """

    role: str
    replicas: Count
    gpus: list[str]
    experts: ExpertsPart
    workload: Annotated[Workload, _IN_PLACE, PlainSerializer(_phase_first)]


@dataclass(frozen=True, kw_only=True)
class PlanFile(PlanPart):
    """A plan file, ``plan.json``: all that a plan can be scored, drawn and re-planned from.

    Attributes
    ----------
    schema_version:
        Of this form.
    experts:
        Which experts each GPU of the first pool holds.
    inputs:
        All that it was made from.
    pools:
        All pools, the first as the root has it; left out: there is that one.
    serving:
        The requests that the pools serve together; null where one phase alone was planned.
    decision:
        How it was decided which replicas there are.
    """

    schema_version: Literal[3]
    experts: ExpertsPart
    inputs: InputsPart
    pools: tuple[PoolPart, ...] = ()
    serving: Asked | None = None
    decision: Decision | None = None
