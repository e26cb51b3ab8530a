"""What commands about one plan print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

from cost.serving.supply import ProofData
from cost.step.identities import Identities
from placement.plans.findings import LEFT_OUT
from placement.plans.schema import LayoutPart, PlanPart, PlanScoreData
from rackplan.schemas.figures import FigureData, SetData, SetFigureData
from topology.base.figures import EvidenceLabel


@dataclass(frozen=True, kw_only=True)
class PlanPrinted(PlanPart):
    """What ``rackplan plan`` prints: the plan without experts and inputs.

    Attributes
    ----------
    set:
        The figures that were set; absent where none was.
    files:
        What was written, by what it is.
    """

    set: list[SetFigureData] = LEFT_OUT
    files: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ImportedPlanPrinted(PlanPrinted):
    """What ``rackplan import-plan`` prints: the plan that was read.

    Attributes
    ----------
    engine_balancedness:
        Balancedness as the engine of the file splits tokens; null where nothing says how.
    """

    engine_balancedness: float | None


class ScorePrinted(PlanScoreData, SetData):
    """What ``rackplan score`` prints: the score of a plan, from its assignment alone.

    Attributes
    ----------
    details:
        With ``--details``: what explains the score.
    """

    details: NotRequired[DetailsData]


class BalancednessData(TypedDict):
    """Balancedness through a re-plan.

    Attributes
    ----------
    before, restored, after, fresh:
        Of the old plan (null where an expert has no copy left), with lost experts restored alone, of the new one, and
        of a plan made afresh.
    """

    before: float | None
    restored: float
    after: float
    fresh: float


class MovesPointData(TypedDict):
    """A re-plan with another number of moves.

    Attributes
    ----------
    moves, bytes:
        Copies to move, and their weights.
    balancedness, max_over_mean:
        Mean over max GPU load, and the objective of the search.
    """

    moves: int
    bytes: float
    balancedness: float
    max_over_mean: float


class MovesTotalsData(TypedDict):
    """What a re-plan moves.

    Attributes
    ----------
    moves, bytes, moved:
        Copies that a GPU must hold and did not, their weights, and their part of all copies.
    copies, fresh_moves, lost_copies, needed_moves:
        All copies; moves to a plan made afresh; copies that are lost; moves that restore every expert.
    seconds, bottleneck:
        Of the transfer over the cluster's links (null: they are not known), and the busiest of them.
    bytes_from:
        By how far the copy comes from: ``node``, ``domain``, ``rack``, ``across``, ``storage``.
    buffers:
        Moves that need a slot free on the way.
    balancedness:
        Through the re-plan.
    front:
        Balance against moves.
    """

    moves: int
    bytes: float
    copies: int
    fresh_moves: int
    lost_copies: int
    seconds: float | None
    bottleneck: str
    bytes_from: dict[str, float]
    moved: float
    needed_moves: int
    buffers: int
    balancedness: BalancednessData
    front: list[MovesPointData]


class ReplanProofData(ProofData):
    """What is proven of a re-plan's placement.

    Attributes
    ----------
    interrupted:
        Whether Ctrl-C ended the search: it is the best so far.
    """

    interrupted: bool


class ReplanPrinted(MovesTotalsData, SetData):
    """What ``rackplan replan`` prints: what moves, and the score of the new plan.

    Attributes
    ----------
    lost, lost_gpus, faulty_links:
        What was said to be gone, the GPUs that went with it, and links that fail or are slow.
    score, proof:
        Of the new plan.
    notes:
        What a reader should know.
    files:
        What was written, by what it is.
    """

    lost: list[str]
    lost_gpus: int
    faulty_links: int
    score: PlanScoreData
    proof: ReplanProofData
    notes: list[str]
    files: dict[str, str]


_From = TypedDict("_From", {"from": str | None})


class MoveData(_From):
    """A copy that a GPU must fetch.

    Attributes
    ----------
    layer, slot, expert:
        The layer of the model, the slot of the placement, and the expert that comes there.
    replaces:
        The expert that was there; null: the slot was empty.
    buffer:
        Whether the move needs a slot free on the way.
    gpu, from:
        Where it goes, and the GPU that has it; null: storage.
    bytes:
        Its weights.
    """

    layer: int
    slot: int
    expert: int
    replaces: int | None
    buffer: bool
    gpu: str
    bytes: float


class MovesFileData(TypedDict):
    """``moves.json``: the moves of a re-plan in an order that a runtime can follow.

    Attributes
    ----------
    schema_version:
        Of this form.
    model, cluster:
        Their names.
    totals:
        What they come to.
    moves:
        In order.
    """

    schema_version: int
    model: str
    cluster: str
    totals: MovesTotalsData
    moves: list[MoveData]


class TermData(TypedDict):
    """A part of the step.

    Attributes
    ----------
    term, meaning:
        Its name, and what it is where that does not say it.
    seconds, share, peak_s:
        Its time, its part of the step, and its time at the peak of what it uses.
    bound_by, limits_s:
        What bounds it, the most first, and its time by that.
    evidence:
        The weakest kind of figure behind it.
    """

    term: str
    meaning: NotRequired[str]
    seconds: float
    share: float
    peak_s: float
    bound_by: list[str]
    limits_s: dict[str, float]
    evidence: EvidenceLabel | None


class LimitData(TypedDict):
    """A resource that bounds the step.

    Attributes
    ----------
    resource:
        Its name.
    seconds, share:
        The time that it bounds, and its part of the step.
    busy_at_peak_s:
        What it would take at its peak.
    """

    resource: str
    seconds: float
    share: float
    busy_at_peak_s: float


class MemoryPartData(TypedDict):
    """A use of the memory of the fullest GPU.

    Attributes
    ----------
    use, bytes, share:
        What it is, how much, and its part of the whole.
    """

    use: str
    bytes: float
    share: float


class MemoryData(TypedDict):
    """Memory of the fullest GPU.

    Attributes
    ----------
    parts:
        By use.
    left_bytes, max_batch_per_gpu:
        What is left, and the sequences per GPU that would fit.
    note:
        How the cache grows, in words.
    """

    parts: list[MemoryPartData]
    left_bytes: float
    max_batch_per_gpu: int
    note: str


class UsedFigureData(FigureData):
    """A figure that a step rests on.

    Attributes
    ----------
    group, of, name:
        ``machine``, ``kernels``, ``loads`` or ``what-if``; the part of it; the figure.
    """

    group: str
    of: str
    name: str


class WeakestData(TypedDict):
    """The weakest figures that a step rests on.

    Attributes
    ----------
    kind, figures:
        How they are known, and which they are.
    """

    kind: EvidenceLabel
    figures: list[str]


class ResidualData(TypedDict):
    """What measured runs near the plan took over the physics.

    Attributes
    ----------
    factor, weight:
        The factor, and how near they are: 0 to 1.
    """

    factor: float
    weight: float


class ReachedData(TypedDict):
    """What is reached with a lever pulled.

    Attributes
    ----------
    tok_s_per_gpu, tok_s_per_gpu_used, tok_s_per_user:
        Over all GPUs, over those in use, of one user.
    step_s, batch, layout:
        The step, the sequences per GPU, and the layout.
    gain:
        Factor over the plan.
    """

    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s_per_user: float
    step_s: float
    batch: int
    layout: str
    gain: float


class LeverData(TypedDict):
    """A lever: a figure or choice changed by itself.

    Attributes
    ----------
    lever, kind, change, to:
        What is changed, of which kind (hardware, precision, workload, layout), by how much, and to what; absent where
        nothing is changed.
    batch_kept, layout_kept, layout_free:
        What is reached with batch and layout kept, with the layout kept, with the best layout; null where it cannot
        be, absent where it was not asked.
    reasons:
        Why it cannot be, by which of the three.
    note:
        What is odd about it.
    """

    lever: NotRequired[str]
    kind: NotRequired[str]
    change: NotRequired[str]
    to: NotRequired[str]
    batch_kept: NotRequired[ReachedData | None]
    layout_kept: NotRequired[ReachedData | None]
    layout_free: NotRequired[ReachedData | None]
    reasons: dict[str, str]
    note: NotRequired[str]


class DetailsData(TypedDict):
    """A plan part by part.

    Attributes
    ----------
    verdict:
        In a sentence what bounds the step.
    step_over_lower:
        The step over the pure roofline.
    mean_wait_ms, longest_wait_ms:
        What a request with a place waits for its next token.
    terms, limits:
        Parts of the step, and resources that bound it, largest first.
    memory:
        Of the fullest GPU.
    figures, weakest:
        Figures that the step rests on, each with its source, and the weakest of them.
    assumptions:
        In sentences.
    residual:
        What measured runs near it took over the physics.
    identities:
        What a roofline says of the model on this machine.
    levers:
        The largest levers; null where nobody looked.
    """

    verdict: str
    step_over_lower: float
    mean_wait_ms: float
    longest_wait_ms: float
    terms: list[TermData]
    limits: list[LimitData]
    memory: MemoryData
    figures: list[UsedFigureData]
    weakest: WeakestData
    assumptions: list[str]
    residual: ResidualData
    identities: Identities
    levers: list[LeverData] | None


class PlanRateData(TypedDict):
    """What the plan reaches as it is.

    Attributes
    ----------
    tok_s_per_gpu, tok_s_per_user, step_s, batch:
        Over all GPUs, of one user, its step, and its sequences per GPU in use.
    """

    tok_s_per_gpu: float
    tok_s_per_user: float
    step_s: float
    batch: int


class HeldData(TypedDict):
    """What is held while levers are pulled.

    Attributes
    ----------
    tpot_s, asked, words:
        The longest time per token, whether somebody asked for it, and in words; null: none.
    """

    tpot_s: float | None
    asked: bool
    words: str


class WhatIfPrinted(SetData):
    """What ``rackplan what-if`` prints: what each lever would bring.

    Attributes
    ----------
    model, cluster, gpus:
        Names, and the GPUs of the cluster.
    phase, tokens:
        Which phase, and which tokens are counted.
    layout, plan:
        Of the plan, and what it reaches.
    gain_of:
        The rate that gains are of.
    held:
        The time per token that levers keep.
    unchanged, levers:
        Nothing pulled, and each lever.
    """

    model: str
    cluster: str
    gpus: int
    phase: str
    tokens: str
    layout: LayoutPart
    plan: PlanRateData
    gain_of: str
    held: HeldData
    unchanged: LeverData
    levers: list[LeverData]


class ComparedData(TypedDict):
    """A figure of both plans.

    Attributes
    ----------
    first, second, same:
        Of each plan (null: it has none), and whether they are the same.
    """

    first: Any
    second: Any
    same: bool


class ComparedPlanData(SetData):
    """One of the plans compared.

    Attributes
    ----------
    file, model, cluster:
        The path as given, and names.
    """

    file: str
    model: str
    cluster: str


class MovedData(TypedDict):
    """What moves from one plan to the other.

    Attributes
    ----------
    moves, bytes, copies, left:
        Copies that a GPU must fetch, their weights, all copies, and moves if GPUs were called otherwise.
    seconds, bottleneck, bytes_from:
        Of the transfer (null: links are not known), its busiest link, and bytes by how far they come.
    by_layer:
        Moves by id of the layer.
    """

    moves: int
    bytes: float
    copies: int
    left: int
    seconds: float | None
    bottleneck: str
    bytes_from: dict[str, float]
    by_layer: dict[str, int]


class FindingsData(TypedDict):
    """What is found of one plan alone.

    Attributes
    ----------
    first, second:
        In sentences.
    """

    first: list[str]
    second: list[str]


class PredictionsData(TypedDict, total=False):
    """Predictions of both plans.

    Attributes
    ----------
    tokens, tok_s_per_gpu, tok_s_per_gpu_used, tok_s_per_user, tok_s:
        Which tokens are counted; over all GPUs, over those in use, of one user, and of the whole cluster.
    step_s, lower_step_s, bound_by:
        The expected step, the pure roofline, and what takes most of it.
    balancedness_mean, gap:
        Of the experts.
    terms_s:
        By part of the step.
    """

    tokens: ComparedData
    tok_s_per_gpu: ComparedData
    tok_s_per_gpu_used: ComparedData
    tok_s_per_user: ComparedData
    tok_s: ComparedData
    step_s: ComparedData
    lower_step_s: ComparedData
    bound_by: ComparedData
    balancedness_mean: ComparedData
    gap: ComparedData
    terms_s: dict[str, ComparedData]


class DiffPrinted(TypedDict):
    """What ``rackplan diff`` prints: two plans side by side.

    Attributes
    ----------
    plans, same:
        Both, and whether they are the same in all that is compared.
    inputs:
        Inputs that differ, by name.
    layout, predictions, hbm_bytes, cost:
        By figure: the layout, what is predicted, memory of the fullest GPU by use, money and power of the cluster.
    moves, moves_missing:
        What moves from the first to the second; null where that means nothing, and why.
    findings:
        Of each alone.
    """

    plans: list[ComparedPlanData]
    same: bool
    inputs: dict[str, ComparedData]
    layout: dict[str, ComparedData]
    predictions: PredictionsData
    hbm_bytes: dict[str, ComparedData]
    cost: dict[str, ComparedData]
    moves: MovedData | None
    moves_missing: str | None
    findings: FindingsData
