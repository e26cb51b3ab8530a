"""What commands about recordings, measured points and the catalog print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from typing_extensions import TypedDict

from rackplan.schemas.figures import FigureData, SetData
from topology.base.figures import EvidenceLabel


class WindowsData(TypedDict):
    """Windows of a recording.

    Attributes
    ----------
    total, empty, kept, scenarios:
        Recorded, without tokens, kept, and the scenarios that they became.
    """

    total: int
    empty: int
    kept: int
    scenarios: int


class MeanAndWorstData(TypedDict):
    """A measure over layers.

    Attributes
    ----------
    mean, worst, worst_layer:
        The mean, the largest, and the id of the layer that has it.
    """

    mean: float
    worst: float
    worst_layer: int


class LayerSkewData(TypedDict):
    """Skew of a layer.

    Attributes
    ----------
    max_over_mean, coefficient_of_variation:
        Of tokens per expert.
    """

    max_over_mean: float
    coefficient_of_variation: float


class SkewData(TypedDict):
    """Skew of tokens over experts.

    Attributes
    ----------
    max_over_mean, coefficient_of_variation:
        Over layers.
    layers:
        By id of the layer, where they are told apart.
    """

    max_over_mean: MeanAndWorstData
    coefficient_of_variation: MeanAndWorstData
    layers: NotRequired[dict[str, LayerSkewData]]


class DriftData(TypedDict):
    """How far loads move, as shares of the tokens: 0 to 1.

    Attributes
    ----------
    distance, by_chance:
        Between windows, and what chance alone would give; null: nobody can say.
    correlation:
        Of the loads; null: they are all equal.
    """

    distance: float | None
    by_chance: float | None
    correlation: float | None


class DriftsData(TypedDict):
    """Drift of loads.

    Attributes
    ----------
    consecutive, first_to_last:
        From window to window, and over all; null: there is one window.
    """

    consecutive: DriftData | None
    first_to_last: DriftData | None


class DependenceData(TypedDict):
    """How far choices of experts depend on each other.

    Attributes
    ----------
    distance, by_chance, beyond_chance:
        From independent choices, what chance alone would give, and what is beyond it.
    worst, worst_layer:
        The largest, and the layer that has it.
    """

    distance: float
    by_chance: float
    beyond_chance: float
    worst: float
    worst_layer: int


class ContiguousData(TypedDict):
    """Experts in equal contiguous parts.

    Attributes
    ----------
    domains_per_token, if_independent:
        Parts that a token needs, and what independent choices would need.
    """

    domains_per_token: float
    if_independent: float


class TraceData(TypedDict):
    """A routing trace.

    Attributes
    ----------
    kind:
        What it is.
    tokens, tokens_kept, tokens_counted:
        In it, kept, and counted in pairs.
    layers, experts, choices:
        How many, and experts that a token chooses.
    one_layer_for_all:
        Whether a single layer stands for all.
    skew:
        Of tokens over experts.
    coactivation:
        Choices in a layer; null: a token has one.
    contiguous:
        What equal parts of the experts need, by how many.
    notes:
        What a reader should know.
    """

    kind: str
    tokens: int
    tokens_kept: int
    layers: int
    experts: int
    choices: int
    one_layer_for_all: bool
    skew: SkewData
    coactivation: DependenceData | None
    contiguous: dict[str, ContiguousData]
    tokens_counted: int
    notes: list[str]


class RecordingData(TypedDict):
    """A recording of expert loads.

    Attributes
    ----------
    kind:
        What it is.
    layers, layers_without_tokens, experts:
        How many; rows that are dense layers.
    windows, tokens:
        Windows, and tokens over all layers, once for each expert chosen; null: beyond the range of floats.
    skew, drift:
        Over experts, and over windows.
    routing:
        The routing trace that it has too.
    notes:
        What a reader should know.
    """

    kind: str
    layers: int
    layers_without_tokens: int | Sequence[int]
    experts: int
    windows: WindowsData
    tokens: float | None
    skew: SkewData
    drift: DriftsData
    routing: NotRequired[TraceData]
    notes: list[str]


class LoadsPrinted(TypedDict):
    """What ``rackplan loads`` prints: recordings and traces.

    Attributes
    ----------
    files:
        By name.
    """

    files: dict[str, RecordingData | TraceData]


class ErrorsData(TypedDict):
    """Errors of the predicted rows of one quantity, as fractions of the measured values.

    Attributes
    ----------
    rows, predicted, coverage:
        Measured rows, those of them with a prediction, and their share.
    median_abs_error, mean_abs_error:
        Of ``|predicted - measured| / measured``; null where nothing was predicted, like all that follow.
    bias:
        Median of ``(predicted - measured) / measured``: below 0, predictions are too small.
    within_20_percent:
        Share of the predicted rows within 20 percent.
    intervals, inside_interval:
        Rows with an interval, and the share of them whose measured value it holds.
    """

    rows: int
    predicted: int
    median_abs_error: float | None
    mean_abs_error: float | None
    bias: float | None
    within_20_percent: float | None
    intervals: int
    inside_interval: float | None
    coverage: float


class PointData(TypedDict):
    """A measured point.

    Attributes
    ----------
    id, quantity, measured:
        Which, what of it, and the figure in the unit of the quantity's name.
    predicted, error, reason:
        The prediction and its signed error; null where there is none, and why.
    low, high, inside:
        The interval where one is given, and whether it holds the measured figure.
    chosen:
        What was chosen where the point does not say it.
    """

    id: str
    quantity: str
    measured: float
    predicted: float | None
    error: float | None
    reason: str
    low: float | None
    high: float | None
    inside: bool | None
    chosen: str


class ValidationData(TypedDict):
    """A file of measured points.

    Attributes
    ----------
    rows, residual:
        Its rows, and whether the learned correction was used.
    quantities:
        Errors by quantity.
    points:
        Each.
    """

    rows: int
    residual: bool
    quantities: dict[str, ErrorsData]
    points: list[PointData]


class ValidatePrinted(TypedDict):
    """What ``rackplan validate`` prints: predictions of measured points.

    Attributes
    ----------
    files:
        By name.
    """

    files: dict[str, ValidationData]


class ReplanRunData(TypedDict):
    """A re-plan of a replay.

    Attributes
    ----------
    after_window, copies, bytes, seconds, lost_s:
        When, how many copies moved with how many bytes, how long that took (null: links are not known), and the time
        of serving that it cost.
    """

    after_window: int
    copies: int
    bytes: float
    seconds: float | None
    lost_s: float


class PolicyData(TypedDict):
    """A policy of a replay.

    Attributes
    ----------
    name, interval, budget, start:
        Which, windows between re-plans (0: never), the most copies that one moves as a part of all (null: no limit),
        and the placement that it began with.
    balancedness, worst:
        Mean over scored windows and layers, and of the worst window.
    copies_moved, bytes_moved:
        Part of all copies that a re-plan moves, and bytes of all re-plans.
    imbalance_s, moves_s:
        Time of serving that imbalance and moves cost.
    tokens_gained, tok_s, tok_s_per_gpu:
        Over the baseline, and throughput of all and over GPUs.
    by_window, step_s, replans:
        Balancedness and step by window, and each re-plan.
    """

    name: str
    interval: int
    budget: float | None
    start: str
    balancedness: float
    worst: float
    copies_moved: float
    bytes_moved: float
    imbalance_s: float
    moves_s: float
    tokens_gained: float
    tok_s: float
    tok_s_per_gpu: float
    by_window: list[float]
    step_s: list[float]
    replans: list[ReplanRunData]


class BestPolicyData(TypedDict):
    """Which policy to take.

    Attributes
    ----------
    policy, interval, interval_steps, budget, why:
        Which, windows and steps between re-plans (null: never), the most copies (null: no limit), and why.
    """

    policy: str
    interval: int | None
    interval_steps: int | None
    budget: float | None
    why: str


class MeasuredData(TypedDict):
    """What the machine of the replay took.

    Attributes
    ----------
    planning_cpu_s, note:
        Processor time by policy, and what it is.
    """

    planning_cpu_s: list[float]
    note: str


class ReplayPrinted(SetData):
    """What ``rackplan replay`` prints, and writes to ``replay.json``: recorded windows through online balancers.

    Attributes
    ----------
    model, cluster:
        Their names.
    windows, scored, names, interrupted:
        Windows, those that are scored, their names, and whether Ctrl-C ended it.
    steps_per_window, tokens, tokens_per_step, step_s_balanced:
        Steps that a window stands for, which tokens are counted, those of a step, and the step with experts balanced.
    baseline, static:
        What tokens gained are over, and the plan that runs first.
    policies, best:
        Each, and which to take.
    measured:
        What the machine here took: another time other figures.
    notes:
        What a reader should know.
    """

    model: str
    cluster: str
    windows: int
    scored: int
    interrupted: bool
    names: list[str]
    steps_per_window: int
    tokens: str
    tokens_per_step: float
    step_s_balanced: float
    baseline: str
    static: str
    policies: list[PolicyData]
    best: BestPolicyData
    measured: MeasuredData
    notes: list[str]


class GpuRowData(TypedDict):
    """A GPU of the catalog in short; what is not published is absent.

    Attributes
    ----------
    name, title, status:
        What it is called, written out, and whether it is sold.
    hbm_bytes, hbm_bytes_per_s:
        Memory, and its rate.
    bf16_flop_per_s, fp8_flop_per_s, fp4_flop_per_s:
        Dense peaks.
    power_w, usd_per_h:
        Of one.
    flop_per_byte_bf16:
        Peak over rate; null where one is missing.
    """

    name: str
    title: str
    status: str
    hbm_bytes: NotRequired[float]
    hbm_bytes_per_s: NotRequired[float]
    bf16_flop_per_s: NotRequired[float]
    fp8_flop_per_s: NotRequired[float]
    fp4_flop_per_s: NotRequired[float]
    power_w: NotRequired[float]
    usd_per_h: NotRequired[float]
    flop_per_byte_bf16: float | None


class DomainData(TypedDict):
    """A system of the catalog in short: one scale-up domain.

    Attributes
    ----------
    name, title, status:
        What it is called, written out, and whether it is sold.
    gpus_per_node, gpus_per_domain:
        How many.
    scale_up_bytes_per_s, scale_out_bytes_per_s, scale_up_over_scale_out:
        Of a GPU and direction, and the one over the other; null where nobody published them.
    """

    name: str
    title: str
    status: str
    gpus_per_node: int
    gpus_per_domain: int
    scale_up_bytes_per_s: float | None
    scale_out_bytes_per_s: float | None
    scale_up_over_scale_out: float | None


class ClusterRowData(DomainData):
    """A system of the catalog in a list.

    Attributes
    ----------
    gpu:
        Its name.
    """

    gpu: str


class HubModelData(TypedDict):
    """What is published of a Hugging Face id.

    Attributes
    ----------
    positions, source:
        Tokens of the longest sequence that it was made for (null: not known), and where they were read.
    quantization:
        Its ``quantization_config`` where that is not the entry's.
    """

    positions: int | None
    source: str
    quantization: Mapping[str, Any] | None


class ModelCountsData(TypedDict):
    """A model of the catalog in a list.

    Attributes
    ----------
    total_params, active_params, active_params_with_embedding:
        Parameters, and those that a token uses, without the input embedding and with it.
    published_total, published_active:
        As its authors print them.
    layers, moe_layers, experts, experts_per_token:
        How many; 0 without experts.
    attention:
        Kinds of it.
    kv_bytes_per_sequence_4096_bf16:
        KV cache of 4,096 tokens in BF16, in bytes.
    precision, precision_source:
        Format of each class of weights, and who says so.
    omitted:
        What is left out.
    most_context, most_context_source:
        The longest sequence that is published (null: none), and where.
    huggingface:
        What is published of each id.
    sources:
        Of the counts.
    """

    total_params: int
    active_params: int
    active_params_with_embedding: int
    published_total: str
    published_active: str
    layers: int
    moe_layers: int
    experts: int
    experts_per_token: int
    attention: list[str]
    kv_bytes_per_sequence_4096_bf16: float
    precision: dict[str, str]
    precision_source: str
    omitted: list[str]
    most_context: int | None
    most_context_source: str
    huggingface: dict[str, HubModelData]
    sources: list[str]


class ModelData(ModelCountsData):
    """A model of the catalog.

    Attributes
    ----------
    name, title:
        What it is called, and written out.
    """

    name: str
    title: str


class GpuData(TypedDict):
    """A GPU of the catalog.

    Attributes
    ----------
    name, title, vendor, status, dies:
        What it is called, written out, its maker, whether it is sold, and dies of a package.
    figures, billed:
        Figures by name, and those that bills count besides.
    notes:
        What a reader should know.
    """

    name: str
    title: str
    vendor: str
    status: str
    dies: int
    figures: dict[str, FigureData]
    notes: list[str]
    billed: NotRequired[dict[str, FigureData]]


class LimitsData(TypedDict):
    """What a cluster takes.

    Attributes
    ----------
    gpus, hosts, racks, switches:
        How many; switches by kind.
    links:
        By fabric.
    copper_links, optical_links, transceivers:
        Of all fabrics that can be counted.
    power_w, power_basis, power_kind, rack_power_w:
        In all (null: nobody published it), of what, how it is known, and of a rack.
    mass_kg, mass_basis, mass_kind, rack_mass_kg:
        The same of weight.
    """

    gpus: int
    hosts: int
    racks: int
    switches: dict[str, int]
    links: list[CablingData]
    copper_links: int
    optical_links: int
    transceivers: int
    power_w: float | None
    power_basis: str
    power_kind: EvidenceLabel
    rack_power_w: float | None
    mass_kg: float | None
    mass_basis: str
    mass_kind: EvidenceLabel
    rack_mass_kg: float | None


class CablingData(TypedDict):
    """Links of a fabric.

    Attributes
    ----------
    fabric, scale_up, counted:
        Its name, whether it is of a domain, and whether the number of its links is published.
    board, copper, optical:
        Links on boards, in copper, and optical.
    copper_cables, links_per_transceiver, transceivers:
        Cables (null: nobody says how many make a link), optical links of a module, and modules.
    """

    fabric: str
    scale_up: bool
    board: int
    copper: int
    optical: int
    copper_cables: int | None
    counted: bool
    links_per_transceiver: int
    transceivers: int


class PhysicalData(LimitsData, SetData):
    """A cluster and what it takes.

    Attributes
    ----------
    name:
        What it is called.
    """

    name: str


class ClusterData(DomainData):
    """A system of the catalog.

    Attributes
    ----------
    structure, links_per_gpu, shape, switches, links_per_switch:
        How its GPUs are joined; null: not published.
    figures:
        By name, those of its links too.
    notes:
        What a reader should know.
    physical, gpu:
        What it takes, and its GPU.
    """

    structure: str
    links_per_gpu: int | None
    shape: list[int]
    switches: int | None
    links_per_switch: list[int] | None
    figures: dict[str, FigureData]
    notes: list[str]
    physical: PhysicalData
    gpu: GpuData


class RefusedModelData(TypedDict):
    """A model of the catalog that cannot be counted.

    Attributes
    ----------
    name, title:
        What it is called, and written out.
    refused:
        Why.
    """

    name: str
    title: str
    refused: NotRequired[str]


class ClusterListData(TypedDict):
    """The systems of the catalog.

    Attributes
    ----------
    clusters:
        A row for each.
    """

    clusters: list[ClusterRowData]


class GpuListData(TypedDict):
    """The GPUs of the catalog.

    Attributes
    ----------
    gpus:
        A row for each.
    """

    gpus: list[GpuRowData]


class ModelListData(TypedDict):
    """The models of the catalog.

    Attributes
    ----------
    models:
        A row for each.
    """

    models: list[ModelData | RefusedModelData]


class ListsData(ClusterListData, GpuListData, ModelListData):
    """All lists of the catalog."""


CatalogPrinted = (
    ListsData
    | ClusterListData
    | GpuListData
    | ModelListData
    | ClusterData
    | GpuData
    | ModelData
    | PhysicalData
)
"""What ``rackplan catalog`` prints: lists, or one entry with its figures."""


class SchemaRowData(TypedDict):
    """A schema.

    Attributes
    ----------
    name, kind, of:
        What ``rackplan schema`` calls it, ``command`` or ``file``, and what it is of in a sentence.
    """

    name: str
    kind: str
    of: str


class SchemaPrinted(TypedDict):
    """What ``rackplan schema --json`` prints without a name.

    Attributes
    ----------
    rows:
        A row for each schema.
    """

    rows: list[SchemaRowData]
