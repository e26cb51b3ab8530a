"""A plan file: its parts as they are read, each checked by a model, and the whole as it is written."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from cost.experts.dispatch import DispatchPolicy
from cost.money.bill import Totals
from cost.written import CalibrationData, ProofData, TokenTrafficData
from placement.findings import (
    AtLeastOne,
    AtRisk,
    Count,
    FrontPoint,
    LayerAtRisk,
    NotNegative,
    RedundancyPoint,
    ScenarioRow,
    SpreadCounts,
    TrafficRow,
    WhatIf,
)
from placement.options import Objective, ScenarioWeights, Spread
from placement.plan import OrderProof, Origin, Proof
from topology.base.figures import EvidenceLabel

_Said = Annotated[int, Field(ge=0, le=10**12)]


class Part(BaseModel):
    """A part of the file: made from the object it describes, or from what was read; unknown keys are passed over."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, from_attributes=True)


class StagePart(Part):
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
    """

    replica: Count = 0
    domains: list[str] = []
    first_layer: Count
    last_layer: Count
    gpus: list[str]


class ExpertsPart(Part):
    """Which experts each GPU holds.

    Attributes
    ----------
    gpus:
        Ids of all GPUs of the cluster.
    layers:
        By id of each MoE layer, a list for each of ``gpus`` of the experts that it holds; empty outside the stage.
    """

    gpus: list[str]
    layers: dict[str, list[list[Count]]]


class LayoutPart(Part):
    """The parallel layout.

    Attributes
    ----------
    stages, ep, tp:
        Pipeline stages of a replica; GPUs that a layer's experts are spread over; tensor-parallel width of attention.
    attention_dp:
        Groups of attention that a stage has, each with sequences of its own.
    replicas, gpus_used:
        Copies of the whole model, and the GPUs that they take.
    batch_per_gpu:
        Sequences per GPU in use.
    passed_over:
        What was faster but for the tolerance, in words.
    """

    # all but tp follows from the rest of the file: held against it, never used
    stages: _Said | None = None
    ep: _Said | None = None
    tp: AtLeastOne
    attention_dp: _Said | None = None
    replicas: _Said | None = None
    batch_per_gpu: _Said | None = None
    gpus_used: _Said | None = None
    passed_over: str | None = None


class WorkloadPart(Part):
    """What is served.

    Attributes
    ----------
    phase, context:
        Decode or prefill; tokens already in each sequence (prefill: of each prompt).
    batch:
        Sequences per GPU in use.
    kv_dtype:
        Format of the KV cache.
    draft_tokens, accept_length:
        Tokens that each sequence drafts in a step, and tokens that a step yields.
    overlap:
        Whether two half batches take turns at computing and sending.
    sparse_attention:
        What if attention read only a part of the cache: ``sqrt`` or tokens; empty: it reads all.
    prefix_hit:
        Part of each prompt that a cache already holds.
    """

    model_config = ConfigDict(extra="forbid")
    phase: Literal["decode", "prefill"]
    context: int
    batch: AtLeastOne
    kv_dtype: str
    draft_tokens: int = 0
    accept_length: float = 1.0
    overlap: bool = False
    sparse_attention: str = ""
    prefix_hit: float = 0.0


class ModelPart(Part):
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


class LoadsPart(Part):
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
    synthetic: bool
    tokens: list[list[list[float]]]


class RequestPart(Part):
    """What was asked of the planner, under the names of :class:`placement.options.PlanOptions`.

    Attributes
    ----------
    engine:
        Engine whose fixed delays count; empty: between those measured.
    spread:
        Where copies of an expert differ: gpu, node or rack.
    objective, scenario_weights:
        Over several loads: the mean or the worst of them, and who votes.
    split:
        How the engine splits the tokens of an expert over its copies.
    """

    model_config = ConfigDict(extra="allow")
    engine: str = ""
    spread: Spread = "gpu"
    objective: Objective = "mean"
    split: DispatchPolicy = "even"
    scenario_weights: ScenarioWeights | None = None


class PricesPart(Part):
    """Prices and powers that the money was counted with.

    Attributes
    ----------
    basis:
        Whose price of a GPU-hour.
    prices, powers:
        The user's own, by GPU: USD per hour, and all-in watts.
    """

    basis: str = "rental"
    prices: dict[str, float] = {}
    powers: dict[str, float] = {}


class InputsPart(Part):
    """All that the plan was made from."""

    model: ModelPart
    cluster: dict[str, Any]
    workload: WorkloadPart
    loads: LoadsPart | None = None
    prices: PricesPart = PricesPart()


class ScenariosPart(Part):
    """Balancedness under each load, in sample and left out.

    Attributes
    ----------
    objective:
        What the search took over the loads.
    groups:
        Groups of alike loads with one vote each; absent: each has one.
    in_sample, left_out:
        Means over the rows.
    rows:
        A row for each load.
    """

    objective: Objective
    groups: AtLeastOne | None = None
    in_sample: float | None = None
    left_out: float | None = None
    rows: Annotated[tuple[ScenarioRow, ...], Field(min_length=1)]


class FailuresPart(Part):
    """What one failure would do.

    Attributes
    ----------
    spread:
        The failure domain of ``layers`` and ``experts``.
    experts_at_risk:
        Experts with all copies in one failure domain, summed over layers.
    share_at_risk:
        Fraction of the tokens that go to them, mean over layers.
    what_if:
        After any one GPU, node or rack is lost.
    experts:
        Those at risk that take most tokens.
    layers:
        Layers with an expert at risk.
    copies:
        How far the copies are in different nodes or racks; not there where each GPU is a failure domain.
    """

    spread: Spread
    experts_at_risk: Count = 0
    share_at_risk: float = 0.0
    what_if: tuple[WhatIf, ...]
    experts: tuple[AtRisk, ...]
    layers: tuple[LayerAtRisk, ...]
    copies: SpreadCounts | None = None


class CurveLayoutPart(Part):
    """The layout of a curve.

    Attributes
    ----------
    ep, tp, stages:
        GPUs of an expert group, tensor-parallel width, pipeline stages.
    """

    ep: AtLeastOne
    tp: AtLeastOne
    stages: AtLeastOne


class RedundancyPart(Part):
    """Throughput against copies.

    Attributes
    ----------
    layout:
        The layout that all points have.
    chosen, knee:
        Copies above one of each expert of the point that was taken, and the fewest that are nearly as good.
    points:
        By rising number of copies.
    """

    layout: CurveLayoutPart
    chosen: Count = 0
    knee: Count = 0
    points: Annotated[tuple[RedundancyPoint, ...], Field(min_length=1)]


class TrafficReportPart(Part):
    """Placements compared by the step that they take, as tokens choose experts together.

    Attributes
    ----------
    known:
        What says which experts tokens choose together, in words.
    traces:
        Names of the routing traces that say it; empty: it is the model's limit on groups.
    chosen:
        The placement that was taken.
    slack:
        How far loads may be above even, as a fraction, for fewer domains a token.
    rows:
        A row for each placement, balance alone first.
    front:
        Balance against domains a token, where asked for; else empty.
    """

    known: str
    traces: tuple[str, ...] = ()
    chosen: str
    slack: NotNegative
    rows: Annotated[tuple[TrafficRow, ...], Field(min_length=1)]
    front: tuple[FrontPoint, ...] = ()


class PlanFile(Part):
    """A plan file, as far as it is read."""

    schema_version: Literal[2]
    origin: Origin
    stages: Annotated[list[StagePart], Field(min_length=1)]
    experts: ExpertsPart
    layout: LayoutPart
    service_level: str | None = None
    limit_s: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None
    proof: Proof
    order: OrderProof | None = None
    scenarios: ScenariosPart | None = None
    redundancy: RedundancyPart | None = None
    failures: FailuresPart | None = None
    by_traffic: TrafficReportPart | None = None
    request: RequestPart
    inputs: InputsPart


class ScoreData(TypedDict):
    """What a step costs and yields.

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
    batch_per_gpu: int
    max_batch_per_gpu: int
    evidence: EvidenceLabel
    what_if: NotRequired[str]
    balancedness_mean: float | None
    balancedness: dict[str, float]


class PlanScoreData(ScoreData):
    """A plan's score.

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
    traffic: NotRequired[TokenTrafficData]


class LayoutData(TypedDict):
    """The parallel layout.

    Attributes
    ----------
    stages, ep, tp:
        Pipeline stages of a replica; GPUs that a layer's experts are spread over; tensor-parallel width of attention.
    attention_dp:
        Groups of attention that a stage has, each with sequences of its own.
    replicas, gpus_used:
        Copies of the whole model, and the GPUs that they take.
    batch_per_gpu:
        Sequences per GPU in use.
    """

    stages: int
    ep: int
    tp: int
    attention_dp: int
    replicas: int
    batch_per_gpu: int
    gpus_used: int


class ChosenLayoutData(LayoutData):
    """The layout of a plan.

    Attributes
    ----------
    passed_over:
        What was faster within the tolerance, and not taken, in words; null: nothing.
    """

    passed_over: str | None


class PlanProofData(ProofData):
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

    of: str
    interrupted: bool
    log: list[str]


class InputsData(TypedDict):
    """All that a plan was made from.

    Attributes
    ----------
    model, workload, loads, prices:
        The model, what it serves, the loads of its experts (null without any), and what money is counted with.
    cluster:
        The resolved cluster, as ``topology.cluster_from_dict`` reads it.
    seed:
        Of synthetic loads and of the search.
    sha256, command:
        Digests of the files that were read, by name, and the command line.
    """

    model: ModelPart
    cluster: dict[str, Any]
    workload: WorkloadPart
    loads: LoadsPart | None
    seed: int
    prices: PricesPart
    sha256: dict[str, str]
    command: str


class PlanData(TypedDict):
    """A plan without what is bulky: what goes where by stage, what a step costs, what is proven.

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
    model: str
    cluster: str
    stages: list[StagePart]
    layout: ChosenLayoutData
    service_level: str | None
    limit_s: float | None
    score: PlanScoreData
    proof: PlanProofData
    order: OrderProof | None
    baselines: dict[str, ScoreData | None]
    scenarios: ScenariosPart | None
    redundancy: RedundancyPart | None
    failures: FailuresPart | None
    by_traffic: TrafficReportPart | None
    baseline_reasons: dict[str, str]
    request: RequestPart


class PlanFileData(PlanData):
    """A plan file, ``plan.json``: all that a plan can be scored, drawn and re-planned from.

    Attributes
    ----------
    schema_version:
        Of this form.
    experts:
        Which experts each GPU holds.
    inputs:
        All that it was made from.
    """

    schema_version: Literal[2]
    experts: ExpertsPart
    inputs: InputsData
