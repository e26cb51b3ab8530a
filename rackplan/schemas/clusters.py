"""What commands about clusters, layouts and money print."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from cost.calibration.errors import CalibrationData
from cost.money.bill import BillPart, Totals
from cost.serving.supply import Pool, ProofData
from rackplan.schemas.figures import SetData, SetFigureData
from topology.base.figures import EvidenceLabel


class DrawPrinted(SetData):
    """What ``rackplan draw`` prints: what was drawn, and where it is.

    Attributes
    ----------
    cluster, gpus, file:
        The name, the GPUs, and what was written; null: nothing, without ``-o``.
    text:
        Without ``-o``: the file.
    """

    cluster: str
    gpus: int
    file: str | None
    text: NotRequired[str]


class LinkData(TypedDict):
    """A link under traffic.

    Attributes
    ----------
    link, tier:
        Its ends, and the tier of the network that it is of.
    bytes, bytes_per_s, seconds:
        What it carries, its rate per direction, and how long that takes.
    """

    link: str
    bytes: float
    tier: str
    bytes_per_s: float
    seconds: float


class HotLinkData(LinkData):
    """A load of links.

    Attributes
    ----------
    links:
        How many links have it.
    """

    links: int


class TierData(TypedDict):
    """A tier of the network under traffic.

    Attributes
    ----------
    bytes, seconds:
        What its links carry, once each, and the time of the busiest.
    """

    bytes: float
    seconds: float


class RatioData(TypedDict):
    """Scale-up over scale-out.

    Attributes
    ----------
    bytes, bytes_per_s:
        Of what is carried (null: none leaves a domain), and of a GPU's rates (null: there is one domain).
    """

    bytes: float | None
    bytes_per_s: float | None


class TrafficPrinted(SetData):
    """What ``rackplan traffic`` prints: traffic over the links of a cluster.

    Attributes
    ----------
    cluster, gpus, pattern, bytes, senders:
        The cluster, what was sent, in all, and by how many GPUs.
    completion_s, completion:
        When all has arrived: with links shared fairly (``fair``), or the ``bound``.
    bound_s, transfer_s, latency_s:
        The time of the busiest link, with latency; without; the latency alone.
    classes:
        Kinds of flows that were told apart; null where nobody shared links.
    bytes_per_s_per_gpu:
        Rate of a sender.
    bottleneck, bottlenecks:
        The busiest link, and all that tie.
    tiers, hottest:
        By tier, and the largest loads of links.
    scale_up_over_scale_out:
        Of bytes and rates.
    notes:
        What a reader should know.
    """

    cluster: str
    gpus: int
    pattern: str
    bytes: float
    completion_s: float
    completion: str
    bound_s: float
    transfer_s: float
    latency_s: float
    senders: int
    classes: int | None
    bytes_per_s_per_gpu: float
    bottleneck: LinkData
    bottlenecks: list[LinkData]
    tiers: dict[str, TierData]
    hottest: list[HotLinkData]
    scale_up_over_scale_out: RatioData
    notes: list[str]


class ReadFileData(TypedDict):
    """A file that was imported.

    Attributes
    ----------
    name, kind:
        What it is called, and what it is.
    """

    name: str
    kind: str


class ImportPrinted(TypedDict):
    """What ``rackplan import`` prints: the cluster made of files.

    Attributes
    ----------
    file, form:
        What was written (null: nothing, without ``-o``): ``regular`` (domains and a fabric) or ``raw`` (every link).
    gpus, domains, hosts:
        How many.
    read:
        The files.
    taken, anomalies:
        What was taken as given, and what is odd, in sentences.
    text:
        Without ``-o``: the file.
    """

    file: str | None
    text: NotRequired[str]
    form: str
    gpus: int
    domains: int
    hosts: int
    read: list[ReadFileData]
    taken: list[str]
    anomalies: list[str]


class ImbalanceData(TypedDict):
    """The imbalance of experts that is counted.

    Attributes
    ----------
    value, from_gpus, kind:
        Load of the busiest GPU over the mean, in groups of how many GPUs and more, and how it is known.
    """

    value: float
    from_gpus: int
    kind: EvidenceLabel


class ConfigurationData(TypedDict):
    """A layout at a batch.

    Attributes
    ----------
    layout:
        In short.
    tp, attention_dp, ep, moe_tp, stages, replicas:
        Tensor-parallel width and groups of attention, GPUs that experts are spread over, width that they are cut by,
        pipeline stages, and copies of the model.
    batch, max_batch:
        Sequences per GPU in use, and the most that fit.
    step_s, lower_step_s:
        The expected step and the pure roofline.
    tok_s_per_user, tok_s_per_gpu, tok_s_per_gpu_used, tok_s:
        Of one user, over all GPUs, over those in use, of all.
    longest_wait_ms:
        What a request with a place waits for its next token at most.
    usd_per_million_tokens, tok_s_per_mw:
        Null where there is no figure.
    attention_gpus, expert_gpus, micro_batches:
        With attention and experts on different GPUs.
    bound_by, terms_s:
        What takes most of the step, and the step by part.
    """

    layout: str
    tp: int
    attention_dp: int
    ep: int
    moe_tp: int
    stages: int
    replicas: int
    batch: float
    max_batch: float
    step_s: float
    lower_step_s: float
    tok_s_per_user: float
    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s: float
    longest_wait_ms: float
    usd_per_million_tokens: float | None
    tok_s_per_mw: float | None
    attention_gpus: NotRequired[int]
    expert_gpus: NotRequired[int]
    micro_batches: NotRequired[int]
    bound_by: str
    terms_s: dict[str, float]


class AtSpeedData(ConfigurationData):
    """The best at a speed per user.

    Attributes
    ----------
    target_tok_s_per_user:
        The speed.
    plan:
        The best that ``rackplan plan`` can make; null: none.
    """

    target_tok_s_per_user: float
    plan: ConfigurationData | None


class UnreachedData(TypedDict):
    """A speed per user that nothing reaches.

    Attributes
    ----------
    target_tok_s_per_user, tok_s_per_gpu:
        The speed, and null.
    """

    target_tok_s_per_user: float
    tok_s_per_gpu: None


class SweptData(SetData):
    """All layouts at all batches, of one phase.

    Attributes
    ----------
    cluster, gpus, phase, context, tokens:
        Where, what is priced, and which tokens are counted.
    what_if:
        What was assumed that no engine does, in words.
    imbalance:
        Of experts.
    configurations, layouts:
        How many were priced.
    pareto, iso:
        The frontier from the most throughput to the fastest, and the best at each speed.
    totals, calibration:
        Of the most throughput; how far off it may be (null: nothing was measured).
    """

    cluster: str
    gpus: int
    phase: str
    context: int
    tokens: str
    what_if: NotRequired[str]
    imbalance: ImbalanceData
    configurations: int
    layouts: int
    pareto: list[ConfigurationData]
    iso: list[AtSpeedData | UnreachedData]
    totals: Totals
    calibration: CalibrationData | None


class SourcedData(TypedDict):
    """A factor with its origin.

    Attributes
    ----------
    value, kind, source:
        The factor, how it is known, and where it was read.
    """

    value: float
    kind: EvidenceLabel
    source: str


class DeratesData(TypedDict):
    """What of the rates of pools counts as served.

    Attributes
    ----------
    prefill, decode:
        The part of each.
    """

    prefill: SourcedData
    decode: SourcedData


class TransferData(TypedDict):
    """How caches come from prefill to decode.

    Attributes
    ----------
    bytes_per_prompt, over, bytes_per_s_per_gpu, latency_s:
        How much, over which fabric, how fast, and after how long.
    reach:
        The part of the rate that transfers reach.
    """

    bytes_per_prompt: float
    over: str
    bytes_per_s_per_gpu: float
    latency_s: float
    reach: SourcedData


class WorkersData(ConfigurationData):
    """Workers of a pool.

    Attributes
    ----------
    workers, gpus_per_worker:
        How many, and the GPUs of each.
    """

    workers: int
    gpus_per_worker: int


class MatchData(TypedDict):
    """Pools of both phases that keep up with each other.

    Attributes
    ----------
    prefill, decode:
        Their workers.
    requests_per_s:
        Of all.
    output_tok_s_per_gpu, total_tok_s_per_gpu, output_tok_s_per_gpu_used, tok_s_per_user:
        Output tokens over the GPUs of both pools, over all given, over those in use, and of one user.
    ttft_s, prefill_s, transfer_s:
        The time to the first token without waiting, and its parts.
    gpus_used, prefill_gpus, decode_gpus:
        How many.
    totals:
        Of the cluster.
    """

    prefill: WorkersData
    decode: WorkersData
    requests_per_s: float
    output_tok_s_per_gpu: float
    total_tok_s_per_gpu: float
    output_tok_s_per_gpu_used: float
    tok_s_per_user: float
    ttft_s: float
    prefill_s: float
    transfer_s: float
    gpus_used: int
    prefill_gpus: int
    decode_gpus: int
    totals: Totals


class MatchedData(TypedDict):
    """Prefill and decode together.

    Attributes
    ----------
    isl, osl, gpus:
        Tokens of a prompt and of an answer, and all GPUs.
    tokens, ttft:
        What rates and the time to the first token count, in words.
    ttft_limit_s, ttft_limit_source, fastest_ttft_s:
        The longest time to the first token (null: none), who says it, and the shortest there is.
    derates, transfer:
        What counts as served, and how caches move.
    prefix_hit, cached_tokens:
        Part of a prompt that a cache holds, and its tokens.
    best, pareto:
        The most throughput (null: no pools match), and the frontier.
    calibration:
        How far off it may be; null: nothing was measured.
        Where it was asked for.
    """

    isl: float
    osl: float
    gpus: int
    tokens: str
    ttft: str
    ttft_limit_s: float | None
    ttft_limit_source: str
    fastest_ttft_s: float
    derates: DeratesData
    transfer: TransferData
    prefix_hit: float
    cached_tokens: float
    best: MatchData | None
    calibration: CalibrationData | None
    pareto: list[MatchData]


class SweepPrinted(SweptData):
    """What ``rackplan sweep`` prints, and writes to a ``.json``: all layouts at all batches.

    Attributes
    ----------
    model:
        Its name.
    prefill, rate_matching:
        With lengths of requests: the other phase, and both together.
    """

    model: str
    prefill: NotRequired[SweptData]
    rate_matching: NotRequired[MatchedData]


class CompareResultData(TypedDict):
    """A cluster at a speed per user.

    Attributes
    ----------
    cluster, model, gpus, status:
        Names, the GPUs, and whether the system is sold.
    tok_s_per_user, reached_tok_s_per_user:
        The speed asked for (or reached, where none was), and the one reached; null: it runs nothing.
    tokens, tok_s_per_gpu:
        Which tokens are counted, and throughput over all GPUs; null: nobody reaches it.
    step_s, batch, bound_by, layout:
        Of the best layout; null: there is none.
    evidence, calibration:
        The weakest kind of figure behind it, and how far off it may be.
    reason:
        Why there is none; else empty.
    """

    cluster: str
    model: str
    gpus: int
    tok_s_per_user: float | None
    reached_tok_s_per_user: float | None
    tokens: str
    tok_s_per_gpu: float | None
    step_s: float | None
    batch: float | None
    bound_by: str | None
    layout: str | None
    evidence: EvidenceLabel | None
    status: str
    reason: str
    calibration: CalibrationData | None


class CompareRowData(CompareResultData):
    """A cluster at a speed per user, and what it costs.

    Attributes
    ----------
    totals:
        Of the cluster.
    """

    totals: Totals


class ComparePrinted(TypedDict):
    """What ``rackplan compare`` prints, and writes to ``compare.json``: clusters for one model.

    Attributes
    ----------
    rows:
        A row for each cluster at each speed.
    set:
        What the user set, by cluster.
    what_if:
        What was assumed that no engine does, in words.
    """

    rows: list[CompareRowData]
    what_if: NotRequired[str]
    set: NotRequired[dict[str, list[SetFigureData]]]


class AskedSizeData(TypedDict):
    """What was asked of a size.

    Attributes
    ----------
    tok_s, peak_tok_s, utilization:
        Output tokens a second on average and at the peak, and the one over the other.
    spares:
        Domains kept for failures.
    context, isl, osl, prompts:
        Tokens in each sequence; of prompts and answers on average (null: decode alone); pairs of a prompt's tokens
        and its share.
    tpot_s, tpot_default, ttft_s, ttft_default:
        Longest time per token and to the first one (null: no limit), and whether nobody gave them.
    """

    tok_s: float
    peak_tok_s: float
    utilization: float
    spares: int
    context: int
    isl: float | None
    osl: float | None
    prompts: list[list[float]] | None
    tpot_s: float | None
    tpot_default: bool
    ttft_s: float | None
    ttft_default: bool


class LevelData(TypedDict):
    """A smaller fleet.

    Attributes
    ----------
    gpus, domains, tok_s, missed_tok_s:
        How many, what they give, and what they miss of the peak.
    enough_at_tpot_s:
        The shortest time per token at which they would do; null: none.
    usd_per_hour, power_w:
        Null where there is no figure.
    """

    gpus: int
    domains: int
    tok_s: float
    missed_tok_s: float
    enough_at_tpot_s: float | None
    usd_per_hour: float | None
    power_w: float | None


class JoinedData(TypedDict):
    """Units joined by their fabric.

    Attributes
    ----------
    units, tok_s, tok_s_per_gpu:
        How many, and what they give.
    """

    units: int
    tok_s: float
    tok_s_per_gpu: float


class SizePrinted(SetData):
    """What ``rackplan size`` prints: the fleet that serves so many tokens a second.

    Attributes
    ----------
    model, unit, units, asked:
        Names, how many units are joined, and what was asked.
    gpus, serving_gpus, gpus_idle:
        All, those that serve, and those of them without a replica.
    domains, serving_domains, racks:
        How many; racks are null where the unit does not say which GPUs share one.
    tokens, tok_s, tok_s_per_gpu, tok_s_per_user, tok_s_per_rack:
        Output tokens: of all, over GPUs that serve, of one user, and of a rack that serves.
    requests_per_s, ttft_s:
        With lengths of requests.
    layout, pools:
        The largest pool's layout, and all pools.
    proof:
        What is proven of a fleet of different shapes; null: one layout a pool.
    usd_per_million_tokens, usd_per_million_tokens_full, tok_s_per_mw, tok_s_per_mw_full:
        Of the traffic asked for, and if all that they can give were used.
    usd_per_hour, usd_per_year, price_basis, price_kind, power_w, power_kind, parts, missing:
        The bill: money, power, what is paid for, and what has no figure.
    next, fewer:
        The next smaller fleet (null: this is the least), and all that are smaller.
    joined, not_joined:
        What joined units give, and why none are.
    calibration:
        How far off it may be; null: nothing was measured.
    """

    model: str
    unit: str
    units: int
    asked: AskedSizeData
    gpus: int
    serving_gpus: int
    gpus_idle: int
    domains: int
    serving_domains: int
    racks: int | None
    tokens: str
    tok_s: float
    tok_s_per_gpu: float
    tok_s_per_user: float
    requests_per_s: float | None
    ttft_s: float | None
    tok_s_per_rack: float | None
    layout: str
    proof: ProofData | None
    pools: list[Pool]
    usd_per_million_tokens: float | None
    usd_per_million_tokens_full: float | None
    tok_s_per_mw: float | None
    tok_s_per_mw_full: float | None
    usd_per_hour: float | None
    usd_per_year: float | None
    price_basis: str
    price_kind: EvidenceLabel | None
    power_w: float | None
    power_kind: EvidenceLabel | None
    parts: tuple[BillPart, ...]
    missing: list[str]
    next: LevelData | None
    fewer: list[LevelData]
    joined: list[JoinedData]
    not_joined: str | None
    calibration: CalibrationData | None


class ShareData(TypedDict):
    """A model of a fleet.

    Attributes
    ----------
    model, share:
        Its name, and its part of the requests.
    """

    model: str
    share: float


class FleetInputsData(TypedDict):
    """What was asked of a fleet.

    Attributes
    ----------
    models:
        With their shares.
    isl, osl, context:
        Tokens of a prompt and of an answer, or in each sequence where decode alone is served.
    tok_s, utilization, spares:
        Output tokens a second (null: as many as there are), mean over peak, and domains kept for failures.
    tpot_s, ttft_s:
        Longest time per token and to the first one; null: no limit.
    price_basis:
        Whose price of a GPU-hour.
    """

    models: list[ShareData]
    isl: int | None
    osl: int | None
    context: int | None
    tok_s: float | None
    utilization: float
    spares: int
    tpot_s: float | None
    ttft_s: float | None
    price_basis: str


class PlacedData(TypedDict):
    """A replica with its experts placed under loads.

    Attributes
    ----------
    batch, tok_s, step_s, limit_s, over_limit:
        Of its plan (the last two as in the ``score`` of a plan).
    """

    batch: int
    tok_s: float
    step_s: float
    limit_s: float | None
    over_limit: float | None


class ReplicaData(TypedDict):
    """A replica.

    Attributes
    ----------
    gpus, stages:
        Ids of its GPUs, and those of each pipeline stage.
    """

    gpus: list[str]
    stages: list[list[str]]


class FleetPoolData(TypedDict):
    """Replicas of a shape.

    Attributes
    ----------
    role, model:
        ``decode``, ``prefill`` or ``both``, and of which model.
    plan, no_plan:
        File of the plan of one (null: none was written), and why there is none.
    layout, gpus_per_replica, gpu:
        Of each replica.
    batch, step_s, tok_s, tok_s_per_replica, requests_per_s, share:
        Sequences per GPU in use, the step, tokens of all and of one, requests (null: decode alone), part of a phase.
    placed:
        With experts placed under loads; null: no plan was made.
    replicas:
        Where each lies.
    """

    role: str
    model: str
    plan: str | None
    no_plan: str | None
    layout: str
    gpus_per_replica: int
    gpu: str
    batch: float
    step_s: float
    tok_s: float
    tok_s_per_replica: float
    requests_per_s: float | None
    share: float
    placed: PlacedData | None
    replicas: list[ReplicaData]


class FleetTotalsData(TypedDict):
    """What a fleet gives, costs and draws.

    Attributes
    ----------
    gpus, gpus_used, gpus_idle, gpus_broken, gpus_paid:
        That work, in use, idle, out of service, and paid for.
    tok_s, tok_s_per_gpu, tok_s_per_gpu_used:
        Output tokens of all, over GPUs that work, over those in use.
    input_tok_s, requests_per_s:
        Null where decode alone is served.
    usd_per_hour, usd_per_million_tokens, power_w, tok_s_per_mw:
        Null where there is no figure.
    """

    gpus: int
    gpus_used: int
    gpus_idle: int
    gpus_broken: int
    tok_s: float
    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    input_tok_s: float | None
    requests_per_s: float | None
    gpus_paid: int
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    power_w: float | None
    tok_s_per_mw: float | None


class FleetProofData(ProofData):
    """What is proven of a fleet.

    Attributes
    ----------
    of, search:
        What objective and bound are of, and what ran.
    interrupted:
        Whether Ctrl-C ended the search: it is the best so far.
    """

    of: str
    search: str
    interrupted: bool


class IdleData(TypedDict):
    """GPUs without work.

    Attributes
    ----------
    gpus, reason:
        Their ids, and why.
    """

    gpus: list[str]
    reason: str


class UniformData(TypedDict):
    """The best fleet of one layout.

    Attributes
    ----------
    tok_s, gpus_used, layout:
        What it gives, on how many, in which layout.
    """

    tok_s: float
    gpus_used: int
    layout: str


class FleetPrinted(SetData):
    """What ``rackplan fleet`` prints: replicas of different shapes at once.

    Attributes
    ----------
    cluster, goal, inputs:
        Where, what is best, and what was asked.
    pools, totals:
        Replicas by shape, and what they come to.
    missing:
        What has no figure, and how to give it.
    proof:
        What is proven.
    idle, broken:
        GPUs without work, and ids of those out of service.
    uniform:
        The best of one layout; null: nobody compared.
    notes:
        What a reader should know.
    """

    cluster: str
    goal: str
    inputs: FleetInputsData
    pools: list[FleetPoolData]
    totals: FleetTotalsData
    missing: list[str]
    proof: FleetProofData
    idle: list[IdleData]
    broken: list[str]
    uniform: UniformData | None
    notes: list[str]


class FleetFileData(FleetPrinted):
    """``fleet.json``: what ``rackplan fleet`` printed, and what it was made from.

    Attributes
    ----------
    command, sha256:
        The command line, and digests of the files that were read, by name.
    """

    command: str
    sha256: dict[str, str]
