"""Matched pools of prefill and decode: the best pair, the frontier of pairs, and what they come to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass

from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, ErrorOf, error_to_dict, errors_in
from cost.layouts import Sweep
from cost.money.bill import Bill, Totals
from cost.serving.pools import DECODE_DERATE, PREFILL_DERATE, TTFT_LIMIT, RateMatch, RateMatches
from rackplan.views.blocks import Block, Chart, Page, Table, Text, labelled, section, sections, thinned
from rackplan.views.charts import pools_chart
from rackplan.views.data import taken
from rackplan.views.layouts import MOST_ROWS, ConfigurationData, configurations
from rackplan.views.measured import measured_points
from rackplan.views.money import money_columns, totals_blocks
from rackplan.views.pareto import HEIGHT
from rackplan.views.size import derate_words
from rackplan.views.words import band_words
from topology.base.figures import EvidenceLabel, Figure
from topology.base.shown import Shown
from topology.base.units import plural


@plain_dataclass(frozen=True, eq=False, repr=False)
class Pools(Shown):
    """Matched pools.

    Attributes
    ----------
    ttft_s, ttft_default:
        Limit on the time to first token (None: none), and whether it is the default.
    """

    matches: RateMatches
    decode: Sweep
    prefill: Sweep
    ttft_s: float | None = None
    ttft_default: bool = False

    def brief(self) -> str:
        """Return what is served, and the best pair of pools."""
        best, what = self.matches.best(), self.decode.deployment
        lengths = f"{self.matches.isl:,.0f} + {self.matches.osl:,.0f} tokens"
        if best is None:
            return f"{what.model.name} on {what.cluster.name}, {lengths}: no pair keeps the limits"
        return (
            f"{what.model.name} on {what.cluster.name}, {lengths}: {best.output_tok_s_per_gpu:,.0f} output tok/s/GPU "
            f"at {best.tok_s_per_user:,.3g} tok/s/user, TTFT {best.ttft_s:,.2f} s"
        )

    @property
    def errors(self) -> tuple[ErrorOf, ...]:
        """The errors of the chips of both pools, each once, as rows with a pool for each phase have them."""
        sides = (errors_in(side.deployment, phase="disaggregated") for side in (self.decode, self.prefill))
        return tuple(dict.fromkeys(error for errors in sides for error in errors))

    @property
    def bill(self) -> Bill:
        """What the GPUs of both pools cost and draw, and those left over; a cluster of both is paid for once."""
        decode, prefill = self.decode.deployment, self.prefill.deployment
        bills = [decode.bill] if decode.cluster is prefill.cluster else [decode.bill, prefill.bill]
        return Bill.together(bills)

    def totals(self, row: RateMatch) -> Totals:
        """Return what a pair of pools gives, costs and draws, GPUs of neither pool too."""
        return self.bill.totals(
            row.requests_per_s * row.osl,
            requests_per_s=row.requests_per_s,
            gpus_idle=row.gpus - row.gpus_used,
        )

    def sides(self, row: RateMatch) -> tuple[tuple[str, Sweep, int, int], ...]:
        """Both pools of a pair: name, sweep, configuration in it, workers."""
        return (
            ("prefill", self.prefill, row.prefill, row.prefill_workers),
            ("decode", self.decode, row.decode, row.decode_workers),
        )


@dataclass(frozen=True, kw_only=True)
class SourcedData:
    """A factor with its origin.

    Attributes
    ----------
    value, kind, source:
        The factor, how it is known, and where it was read.
    """

    value: float
    kind: EvidenceLabel
    source: str


@dataclass(frozen=True, kw_only=True)
class DeratesData:
    """What of the rates of pools counts as served.

    Attributes
    ----------
    prefill, decode:
        The part of each.
    """

    prefill: SourcedData
    decode: SourcedData


@dataclass(frozen=True, kw_only=True)
class TransferData:
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


@dataclass(frozen=True, kw_only=True)
class WorkersData(ConfigurationData):
    """Workers of a pool.

    Attributes
    ----------
    workers, gpus_per_worker:
        How many, and the GPUs of each.
    """

    workers: int
    gpus_per_worker: int


@dataclass(frozen=True, kw_only=True)
class MatchData:
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


@dataclass(frozen=True, kw_only=True)
class MatchedData:
    """Prefill and decode together.

    Attributes
    ----------
    isl, osl, gpus:
        Tokens of a prompt and of an answer, and all GPUs.
    tokens, ttft:
        What rates and the time to the first token count, in words.
    ttft_limit_s, ttft_limit_source, fastest_ttft_s:
        The longest time to the first token (null: none), where it is from, and the shortest there is.
    derates, transfer:
        What counts as served, and how caches move.
    prefix_hit, cached_tokens:
        Part of a prompt that a cache holds, and its tokens.
    best, pareto:
        The most throughput (null: no pools match), and the frontier.
    calibration:
        How far off it may be; null: no rows are measured.
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


def matched_data(pools: Pools) -> MatchedData:
    """Return the frontier of both pools together, and their best."""
    matches, workload = pools.matches, pools.prefill.deployment.workload
    best = matches.best()
    return taken(
        MatchedData,
        matches,
        tokens="output, over all GPUs of both pools and those left over",
        ttft="prefill step and transfer of the cache, queueing excluded",
        ttft_limit_s=pools.ttft_s,
        ttft_limit_source=TTFT_LIMIT.source if pools.ttft_default else "--ttft-ms",
        derates=DeratesData(prefill=_sourced(PREFILL_DERATE), decode=_sourced(DECODE_DERATE)),
        transfer=TransferData(
            bytes_per_prompt=matches.cache_bytes,
            over=matches.path.name,
            bytes_per_s_per_gpu=matches.path.bytes_per_s,
            latency_s=matches.path.latency_s,
            reach=_sourced(matches.path.reach),
        ),
        prefix_hit=workload.prefix_hit,
        cached_tokens=workload.prompt_cached,
        best=None if best is None else _matches([best], pools)[0],
        calibration=error_to_dict(pools.errors),
        pareto=_matches([matches.row(int(index)) for index in matches.frontier()], pools),
    )


def _sourced(figure: Figure) -> SourcedData:
    return SourcedData(value=figure.value, kind=figure.kind.label, source=figure.source)


def _matches(rows: Sequence[RateMatch], pools: Pools) -> list[MatchData]:
    """Return pairs of pools as data."""

    def workers(found: Sweep, which: list[int], counts: list[int]) -> list[WorkersData]:
        each = zip(configurations(found, which), which, counts, strict=True)
        return [
            WorkersData(**vars(one), workers=count, gpus_per_worker=int(found.gpus[index]))
            for one, index, count in each
        ]

    prefill = workers(pools.prefill, [row.prefill for row in rows], [row.prefill_workers for row in rows])
    decode = workers(pools.decode, [row.decode for row in rows], [row.decode_workers for row in rows])
    return [
        taken(MatchData, row, prefill=first, decode=second, totals=pools.totals(row))
        for row, first, second in zip(rows, prefill, decode, strict=True)
    ]


def pools_blocks(pools: Pools) -> list[Block]:
    """Return the best pair of pools, and the frontier of pairs; on a page as points too."""
    matches, best = pools.matches, pools.matches.best()
    lengths = f"prompts of {matches.isl:,} and answers of {matches.osl:,} tokens"
    title = section(f"Both phases: {lengths}, {plural(matches.gpus, 'GPU')} in all")
    if best is None:
        fastest = f"the fastest prefill and transfer take {matches.fastest_ttft_s:,.2f} s"
        limits = Text(f"{_limit(pools)}; {fastest}", "Limits")
        return sections(title, [Text("No pair of pools keeps the limits."), limits])
    edge = [matches.row(int(index)) for index in matches.frontier()]

    def chart() -> list[Block]:
        figure = pools_chart(edge, best, measured_points(pools.decode.deployment, ("disaggregated",)))
        return [Chart("pools", figure, "Output tok/s/GPU of matched pools against tok/s/user", HEIGHT)]

    table = _pair_table(thinned(edge, MOST_ROWS), pools)
    legend = [
        Text(
            "tok/s/GPU: output tokens over all GPUs given, idle ones too; total: input and output tokens; TTFT: the "
            "prefill step and the transfer of its cache, without waiting; P:D: GPUs that prefill and that decode; "
            "move: transfer; idle: GPUs in neither pool."
        ),
        *labelled("Derates", derate_words()),
    ]
    return sections(title, _best(best, pools), [Page(chart), table], legend)


def _best(best: RateMatch, pools: Pools) -> list[Block]:
    matches, path = pools.matches, pools.matches.path
    band = band_words(best.output_tok_s_per_gpu, pools.errors)
    used = f", {best.output_tok_s_per_gpu_used:,.0f} output over the {best.gpus_used} in use"
    rows = {
        "GPUs": f"{best.prefill_gpus} prefill : {best.decode_gpus} decode, {best.gpus - best.gpus_used} idle",
        "Throughput": f"{best.output_tok_s_per_gpu:,.0f} output tok/s/GPU{band} over {plural(best.gpus, 'GPU')}, "
        f"{best.total_tok_s_per_gpu:,.0f} total" + used * (best.gpus_used < best.gpus),
        "Speed": f"{best.tok_s_per_user:,.1f} tok/s/user, TTFT {best.ttft_s:,.2f} s, "
        f"{best.requests_per_s:,.2f} requests/s",
    }
    transfer = (
        f"{matches.cache_bytes / 1e6:,.1f} MB of cache a prompt over {path.name} at "
        f"{path.bytes_per_s / 1e9:,.1f} GB/s a GPU ({path.reach.kind.label}: {path.reach.source})"
    )
    times = f"prefill {best.prefill_s * 1e3:,.0f} ms + transfer {best.transfer_s * 1e3:,.1f} ms"
    return [
        *(
            Text(
                f"{plural(workers, 'worker')} of {plural(int(found.gpus[index]), 'GPU')}, {_worker(found, index)}, "
                f"batch {float(found.batch[index]):.4g} per GPU, {found.deployment.cluster.name}",
                name.capitalize(),
            )
            for name, found, index, workers in pools.sides(best)
        ),
        *(Text(text, label) for label, text in rows.items()),
        *totals_blocks(pools.totals(best)),
        Text(f"{times}; {_limit(pools)}", "First token"),
        Text(transfer, "Transfer"),
    ]


def _worker(found: Sweep, index: int) -> str:
    """Return the layout of one worker, without how many replicas the cluster holds."""
    return found.label(index).rpartition(" ")[0]


def _limit(pools: Pools) -> str:
    if pools.ttft_s is None:
        return "no TTFT limit"
    origin = f" (default; --ttft-ms; {TTFT_LIMIT.source})" if pools.ttft_default else ""
    return f"TTFT limit {pools.ttft_s:g} s{origin}"


def _pair_table(rows: Sequence[RateMatch], pools: Pools) -> Table:
    return Table.of(
        rows,
        ("prefill workers", lambda row: f"{row.prefill_workers} x {_worker(pools.prefill, row.prefill)}"),
        ("decode workers", lambda row: f"{row.decode_workers} x {_worker(pools.decode, row.decode)}"),
        ("P:D", lambda row: f"{row.prefill_gpus}:{row.decode_gpus}"),
        ("batch", lambda row: f"{pools.decode.batch[row.decode]:.4g}"),
        ("tok/s/user", lambda row: f"{row.tok_s_per_user:,.1f}"),
        ("tok/s/GPU", lambda row: f"{row.output_tok_s_per_gpu:,.0f}"),
        *money_columns(pools.totals, [pools.bill])[:1],
        ("TTFT s", lambda row: f"{row.ttft_s:,.2f}"),
        ("move ms", lambda row: f"{row.transfer_s * 1e3:,.1f}"),
        ("idle", lambda row: str(row.gpus - row.gpus_used)),
    ).narrowed()
