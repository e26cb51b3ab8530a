"""Whole requests: one pool or two, the better one at usual speeds, the frontier of both, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, error_to_dict
from cost.layouts import Sweep
from cost.money.bill import Totals
from cost.serving.pools import POOL_DERATE, TTFT_LIMIT, RateMatch
from cost.serving.result import Pools
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving, way_of
from cost.validation.measured import comparable_points
from placement.options import USUAL_TPOT
from rackplan.report.notes import band_words, cluster_doubts, derate_words
from rackplan.views.blocks import Block, Chart, Heading, Table, Text, labelled, sections, thinned
from rackplan.views.charts import pools_chart
from rackplan.views.data import taken
from rackplan.views.forward import headline, machine_words
from rackplan.views.layouts import MOST_ROWS, ConfigurationData, configurations
from rackplan.views.money import money_columns, totals_blocks
from rackplan.views.pareto import HEIGHT, beside_measured
from topology.base.figures import EvidenceLabel, Figure
from topology.base.units import plural


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
class TransferData:
    """How caches come from prefill to decode, where those are two pools.

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
    """Pools that serve whole requests together.

    Attributes
    ----------
    serving:
        ``one pool`` for both phases, or ``two pools`` that keep up with each other.
    prefill, decode:
        Their workers; of one pool ``decode`` is of both phases and ``prefill`` null.
    requests_per_s:
        Of all.
    output_tok_s_per_gpu, total_tok_s_per_gpu, output_tok_s_per_gpu_used, tok_s_per_user:
        Output tokens over all GPUs given, input tokens too, over those in use, and of one user.
    ttft_s, prefill_s, transfer_s:
        The time to the first token without waiting, and its parts.
    gpus_used, prefill_gpus, decode_gpus:
        How many.
    totals:
        Of the cluster.
    in_flight:
        Requests that the workers of ``decode`` hold at a time on average, by Little's law.
    """

    serving: str
    prefill: WorkersData | None
    decode: WorkersData
    in_flight: float
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
class TurnData:
    """Where one way is ahead.

    Attributes
    ----------
    serving:
        Which.
    from_tok_s_per_user, to_tok_s_per_user:
        The speeds between which it is.
    """

    serving: str
    from_tok_s_per_user: float
    to_tok_s_per_user: float


@dataclass(frozen=True, kw_only=True)
class UnderLoadData:
    """What is served while 99 of 100 requests keep the limits, waiting included.

    Attributes
    ----------
    ttft_p99_s, requests_per_s, serving, layouts:
        The limit; what is served, how, and by which workers of each pool.
    """

    ttft_p99_s: float
    requests_per_s: float
    serving: str
    layouts: str


@dataclass(frozen=True, kw_only=True)
class MatchedData:
    """Whole requests.

    Attributes
    ----------
    isl, osl, gpus:
        Tokens of a prompt and of an answer on average, and all GPUs.
    tokens, ttft:
        What rates and the time to the first token count, in words.
    tpot_limit_s, ttft_limit_s, ttft_limit_source, fastest_ttft_s:
        The longest time per output token and to the first (null: none), where that is from, the shortest.
    derate, transfer:
        What of two pools counts as served, and how caches move between them (null: they cannot).
    prefix_hit, cached_tokens:
        Part of a prompt that a cache holds, and its tokens.
    serving, best:
        The better way within the limits, and its most throughput (null: nothing keeps them).
    ways:
        The most throughput of each way within the limits, the better one first; under load of the better one alone.
    turns:
        Which way is ahead at which speeds.
    speeds:
        The best at usual speeds, as far as they are reached.
    calibration:
        How far off it may be; null: no rows are measured.
    pareto:
        The frontier of both ways.
    under_load:
        Where a limit under load is given; else null.
    """

    isl: float
    osl: float
    gpus: int
    tokens: str
    ttft: str
    tpot_limit_s: float | None
    ttft_limit_s: float | None
    ttft_limit_source: str
    fastest_ttft_s: float
    derate: SourcedData
    transfer: TransferData | None
    prefix_hit: float
    cached_tokens: float
    serving: str | None
    best: MatchData | None
    ways: list[MatchData]
    turns: list[TurnData]
    speeds: list[MatchData]
    calibration: CalibrationData | None
    pareto: list[MatchData]
    under_load: UnderLoadData | None


def matched_data(pools: Pools) -> MatchedData:
    """Return the frontier of both ways, and their best."""
    serving, workload = pools.serving, pools.serving.prefill.deployment.workload
    two = serving.ways(pools.tpot_s).get(TWO_POOLS)
    transfer = None
    if two is not None and two.path is not None:
        transfer = TransferData(
            bytes_per_prompt=two.cache_bytes,
            over=two.path.name,
            bytes_per_s_per_gpu=two.path.bytes_per_s,
            latency_s=two.path.latency_s,
            reach=_sourced(two.path.reach),
        )
    under_load = None
    if pools.ttft_p99_s is not None and pools.loaded is not None:
        under_load = UnderLoadData(
            ttft_p99_s=pools.ttft_p99_s,
            requests_per_s=pools.loaded.requests_per_s,
            serving=way_of(pools.loaded),
            layouts=serving.label(pools.loaded),
        )
    bests = [pools.loaded] if pools.loaded else serving.bests(pools.tpot_s).values()
    ways = _matches(list(bests), pools)
    return MatchedData(
        isl=serving.lengths.mean_isl,
        osl=serving.lengths.mean_osl,
        gpus=serving.gpus,
        tokens="output tokens over all GPUs, idle ones included",
        ttft="prefill and transfer of the cache, queueing excluded",
        tpot_limit_s=pools.tpot_s,
        ttft_limit_s=serving.ttft_s,
        ttft_limit_source=TTFT_LIMIT.source if pools.ttft_default else "--ttft-ms",
        fastest_ttft_s=serving.fastest_ttft_s,
        derate=_sourced(POOL_DERATE),
        transfer=transfer,
        prefix_hit=workload.prefix_hit,
        cached_tokens=workload.prompt_cached,
        serving=ways[0].serving if ways else None,
        best=ways[0] if ways else None,
        ways=ways,
        turns=[
            TurnData(serving=name, from_tok_s_per_user=low, to_tok_s_per_user=high)
            for name, low, high in serving.turns()
        ],
        speeds=_matches([row for _, row in pools.at_speeds()], pools),
        calibration=error_to_dict(pools.errors),
        pareto=_matches(serving.frontier(), pools),
        under_load=under_load,
    )


def _sourced(figure: Figure) -> SourcedData:
    return SourcedData(value=figure.value, kind=figure.kind.label, source=figure.source)


def _matches(rows: Sequence[RateMatch], pools: Pools) -> list[MatchData]:
    """Return matches as data."""
    sides = [pools.serving.sides(row) for row in rows]
    sweeps = {role: found for pair in sides for role, found, _, _ in pair}
    priced: dict[tuple[str, int], ConfigurationData] = {}
    # all of a pool at once: pricing one takes as long as pricing a hundred
    for role, found in sweeps.items():
        some = [(n, at) for n, pair in enumerate(sides) for one, _, at, _ in pair if one == role]
        if role != "prefill":
            batches = np.array([(rows[n].step_batch, rows[n].batch) for n, _ in some]).T
            found = found.run([at for _, at in some], *batches)  # noqa: PLW2901 - as the rate holds them
        shown = configurations(found, range(len(some)) if role != "prefill" else [at for _, at in some])
        priced |= {(role, n): one for (n, _), one in zip(some, shown, strict=True)}
    data = []
    for n, (row, pair) in enumerate(zip(rows, sides, strict=True)):
        workers = {
            role: WorkersData(**vars(priced[role, n]), workers=count, gpus_per_worker=int(found.gpus[at]))
            for role, found, at, count in pair
        }
        one = taken(
            MatchData,
            row,
            serving=way_of(row),
            prefill=workers.get("prefill"),
            decode=workers.get("decode") or workers["both"],
            totals=pools.totals(row),
        )
        data.append(one)
    return data


def pools_answer(pools: Pools) -> list[Block]:
    """Return the answer: the better serving mode, its performance and cost, and the alternative."""
    serving, best = pools.serving, pools.best
    if best is None:
        fastest = f"the fastest time to first token is {serving.fastest_ttft_s:,.2f} s"
        return [Text("No layout meets the limits."), Text(f"{_limits(pools)}; {fastest}", "Limits")]
    totals, path = pools.totals(best), "" if best.one_pool else " and cache transfer"
    loaded = ""
    if pools.ttft_p99_s is not None and pools.loaded is not None:
        limit = f"a p99 time to first token of {pools.ttft_p99_s:g} s"
        loaded = f"{pools.loaded.requests_per_s:,.3g} requests/s at most within {limit} (simulated)"
    return [
        Text(_way_words(pools, best), way_of(best).capitalize()),
        Text(
            f"{best.output_tok_s_per_gpu:,.0f} output tok/s/GPU{band_words(best.output_tok_s_per_gpu, pools.errors)} "
            f"over {plural(best.gpus, 'GPU')}; {best.requests_per_s:,.3g} requests/s",
            "Throughput",
        ),
        Text(
            f"{best.tok_s_per_user:,.1f} tok/s/user; first token {best.ttft_s:,.2f} s (prefill{path}, "
            "queueing excluded)",
            "Speed",
        ),
        *totals_blocks(totals),
        *labelled("Under load", loaded),
        *(() if pools.loaded else labelled("Alternative", _other_words(pools, best))),
        *labelled("Better", turns_words(serving)),
        *labelled("Limits", _limits(pools)),
    ]


def pools_headline(pools: Pools) -> list[Block]:
    """Return the headline: the serving mode and its performance, or that no layout meets the limits."""
    best, cluster = pools.best, pools.serving.decode.deployment.cluster
    if best is None:
        return [Text(f"No layout meets the limits: {_limits(pools)}.", style="forward")]
    every = () if pools.loaded else pools.serving.bests(pools.tpot_s).values()
    ways = [row for row in every if row.one_pool != best.one_pool]
    ahead = "".join(
        f", {best.output_tok_s_per_gpu / row.output_tok_s_per_gpu:.2f}x {way_of(row)}" for row in ways
    )
    answer = (
        f"{way_of(best).capitalize()}: {best.output_tok_s_per_gpu:,.0f} output tok/s/GPU at "
        f"{best.tok_s_per_user:,.1f} tok/s/user{ahead}"
    )
    return headline(answer, machine_words(cluster), pools.totals(best), pools.errors, cluster_doubts(cluster))


def pools_picture(pools: Pools) -> list[Block]:
    """Return a chart of output throughput against speed per user, with measured runs and their predictions."""
    deployment, edge = pools.serving.decode.deployment, pools.serving.frontier()
    figure = pools_chart(edge, pools.best, comparable_points(deployment, pools.serving.lengths))
    says = "Output tok/s/GPU of whole requests against tok/s/user"
    return beside_measured(Chart("pools", figure, says, HEIGHT), [deployment], "disaggregated")


def turns_words(serving: Serving) -> str:
    """Return which serving mode is better at which speeds."""
    turns = [f"{name} at {low:,.0f} to {high:,.0f} tok/s/user" for name, low, high in serving.turns()]
    return ", ".join(turns)


def _other_words(pools: Pools, best: RateMatch) -> str:
    """Return the performance of the other serving mode, or why it is not possible."""
    serving = pools.serving
    others = [row for row in serving.bests(pools.tpot_s).values() if row.one_pool != best.one_pool]
    if others:
        gain = others[0].output_tok_s_per_gpu / best.output_tok_s_per_gpu - 1
        return (
            f"{way_of(others[0])}: {others[0].output_tok_s_per_gpu:,.0f} output tok/s/GPU ({gain:+.0%}), "
            f"{_way_words(pools, others[0])}"
        )
    if serving.refused:
        return f"{TWO_POOLS}: {serving.refused}"
    return (
        ""
        if serving.both is None
        else f"{TWO_POOLS if best.one_pool else ONE_POOL}: no layout meets the limits"
    )


def _way_words(pools: Pools, row: RateMatch) -> str:
    """Return the workers of all pools."""
    sides = [
        f"{role if len(pools.serving.sides(row)) > 1 else ''} {workers} x {found.worker_label(index)} "
        f"({plural(int(found.gpus[index]), 'GPU')} and {_in_flight(row, role, found, index)} each)".strip()
        for role, found, index, workers in pools.serving.sides(row)
    ]
    idle = row.gpus - row.gpus_used
    return "; ".join([*sides, *[f"{plural(idle, 'GPU')} idle"] * bool(idle)])


def speeds_table(pools: Pools) -> Table:
    """Return the best layouts at common speeds."""
    best = pools.at_speeds()
    table = _pair_table([row for _, row in best], pools)
    rows = [(f"{speed:g}", *cells) for (speed, _), cells in zip(best, table.rows, strict=True)]
    return replace(table, columns=("at tok/s/user", *table.columns), rows=rows).narrowed()


def pools_details(pools: Pools) -> list[Block]:
    """Return the frontier of both serving modes, the cache transfer, and a legend."""
    edge = pools.serving.frontier()
    two = pools.serving.ways(pools.tpot_s).get(TWO_POOLS)
    transfer = ""
    if two is not None and two.path is not None:
        path = two.path
        transfer = (
            f"{two.cache_bytes / 1e6:,.1f} MB of cache per prompt over {path.name} at "
            f"{path.bytes_per_s / 1e9:,.1f} GB/s per GPU ({path.reach.kind.label}: {path.reach.source})"
        )

    return sections(
        [
            Heading("Frontier of whole requests", 2, folded=True),
            _pair_table(thinned(edge, MOST_ROWS), pools).narrowed(),
        ],
        [
            Text(
                "tok/s/GPU: output tokens over all GPUs, idle ones included; TTFT: time to first token, queueing "
                "excluded; P:D: prefill and decode GPUs; in flight: requests per decode worker on average, the rate "
                "times the time of each (Little's law); "
                "move: cache transfer; idle: GPUs in no pool."
            ),
            *labelled("Derate", derate_words()),
            *labelled("Transfer", transfer),
        ],
    )


def _in_flight(row: RateMatch, role: str, found: Sweep, index: int) -> str:
    """Return the requests in flight of one worker on average; of one that prefills the prompts of a step."""
    if role == "prefill":
        return f"{plural(round(float(found.batch[index] * found.gpus[index])), 'prompt')} a step"
    return f"{row.in_flight / row.decode_workers:,.4g} in flight"


def tpot_words(tpot_s: float | None, *, default: bool) -> str:
    """Return the limit on the time per output token, and that the default one gave way."""
    if tpot_s is not None:
        return f"{tpot_s * 1e3:g} ms per output token ({1 / tpot_s:.4g} tok/s/user)" + " (default)" * default
    out = f" (the default of {USUAL_TPOT.text} is out of reach)" if default else ""
    return f"none on the time per output token{out}"


def _limits(pools: Pools) -> str:
    tpot = tpot_words(pools.tpot_s, default=pools.tpot_default)
    if pools.serving.ttft_s is None:
        return f"{tpot}; none on the time to first token"
    origin = f" (default; {TTFT_LIMIT.source})" if pools.ttft_default else ""
    if pools.ttft_default and pools.serving.ttft_s != TTFT_LIMIT.value:
        origin = f" (twice the fastest, since the default of {TTFT_LIMIT.text} is out of reach)"
    return f"{tpot}; {pools.serving.ttft_s:.3g} s to first token{origin}"


def _pair_table(rows: Sequence[RateMatch], pools: Pools) -> Table:
    return Table.of(
        rows,
        (
            "workers",
            lambda row: " + ".join(
                f"{workers} x {found.worker_label(index)}"
                for _, found, index, workers in pools.serving.sides(row)
            ),
        ),
        ("P:D", lambda row: "one pool" if row.one_pool else f"{row.prefill_gpus}:{row.decode_gpus}"),
        ("in flight", lambda row: f"{row.in_flight / row.decode_workers:,.4g}"),
        ("tok/s/user", lambda row: f"{row.tok_s_per_user:,.1f}"),
        ("tok/s/GPU", lambda row: f"{row.output_tok_s_per_gpu:,.0f}"),
        *money_columns(pools.totals, [pools.bill])[:1],
        ("TTFT s", lambda row: f"{row.ttft_s:,.2f}"),
        ("move ms", lambda row: f"{row.transfer_s * 1e3:,.1f}"),
        ("idle", lambda row: str(row.gpus - row.gpus_used)),
    )
