"""What users see under a load: percentiles, throughput, where requests wait, and the most that keep the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, ErrorOf, error_to_dict
from cost.queueing.load import PERCENTILES, WARM_UP
from cost.queueing.pools import EnginePool
from cost.queueing.result import Simulated
from cost.serving.serving import ONE_POOL, TWO_POOLS
from placement.analysis.evidence import deployment_figures
from rackplan.report.notes import (
    accuracy_words,
    chip_words,
    cluster_doubts,
    recipe_lines,
    sentence,
    serving_words,
)
from rackplan.views.blocks import (
    GAP,
    Beside,
    Block,
    Chart,
    Details,
    Heading,
    Page,
    Table,
    Text,
    View,
    labelled,
    sections,
)
from rackplan.views.data import SetData, taken
from rackplan.views.forward import leading
from rackplan.views.provenance import deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_blocks, set_data
from topology.base.units import plural

HEIGHT = 420


@dataclass(frozen=True, kw_only=True)
class PercentilesData:
    """What so many of 100 requests do not exceed.

    Attributes
    ----------
    p50, p90, p99:
        Of 50, 90 and 99.
    """

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class EnginesData:
    """Engines of a pool.

    Attributes
    ----------
    role:
        ``both``, ``prefill`` or ``decode``.
    workers, gpus_per_worker, layout:
        How many, GPUs of each, and its layout.
    use:
        Part of the time that they are in a step.
    cache_tokens:
        Tokens that the KV cache of one holds; null of those that prefill.
    """

    role: str
    workers: int
    gpus_per_worker: int
    layout: str
    use: float
    cache_tokens: float | None


@dataclass(frozen=True, kw_only=True)
class LoadLimitsData:
    """Longest times that 99 of 100 requests may see; null: no limit.

    Attributes
    ----------
    ttft_p99_ms, tpot_p99_ms:
        To the first token, and per token after it.
    """

    ttft_p99_ms: float | None
    tpot_p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class WaitsData:
    """What a request waits for on average.

    Attributes
    ----------
    prefill, transfer, decode:
        For its prefill to start, for links that others use, for a place in the pool that decodes.
    cache_room:
        Of these, because a KV cache had no room.
    """

    prefill: float
    transfer: float
    decode: float
    cache_room: float


@dataclass(frozen=True, kw_only=True)
class SimulateResult(SetData):
    """What ``rackplan simulate`` prints: what users see of requests that wait for each other.

    Attributes
    ----------
    model, cluster, gpus, load, isl, osl, router, seed:
        What was simulated: names, GPUs of all engines, what arrives, mean tokens of prompts and answers.
    serving, pools:
        ``one pool`` or ``two pools``, and their engines.
    requests, counted:
        Simulated, and of these counted: the first of made ones only fill the engines.
    req_s, served_req_s, goodput_req_s:
        Requests per second that are sent (of users: served), that are served, and of those that keep the limits.
    overloaded:
        Whether more are sent than served, so that times grow as long as that lasts.
    ttft_ms, tpot_ms, e2e_ms:
        To the first token, per token after it (a mean of each request), and to the last one.
    output_tok_s, output_tok_s_per_gpu:
        Output tokens per second, of all and over the GPUs of engines.
    limits:
        What 99 of 100 requests shall keep.
    max_req_s, max_req_s_low, max_req_s_high, max_req_s_missing:
        The most requests per second that keep the limits: the median, least and most of several streams; null where
        there is no such rate, and why.
    prefix_hit:
        Part of all prompt tokens that was found in a cache.
    waits_ms, queue:
        What a request waits for, and for what most; empty where it hardly waits.
    preempted:
        Times that a request was computed again for lack of room.
    calibration:
        How far off rates of such engines are; null: nothing was measured.
    """

    model: str
    cluster: str
    gpus: int
    load: str
    isl: float
    osl: float
    router: str
    seed: int
    serving: str
    pools: list[EnginesData]
    requests: int
    counted: int
    req_s: float
    served_req_s: float
    goodput_req_s: float
    overloaded: bool
    ttft_ms: PercentilesData
    tpot_ms: PercentilesData
    e2e_ms: PercentilesData
    output_tok_s: float
    output_tok_s_per_gpu: float
    limits: LoadLimitsData
    max_req_s: float | None
    max_req_s_low: float | None
    max_req_s_high: float | None
    max_req_s_missing: str | None
    prefix_hit: float
    waits_ms: WaitsData
    queue: str
    preempted: int
    calibration: CalibrationData | None


def _percentiles(seconds: NDArray[np.float64]) -> PercentilesData:
    p50, p90, p99 = (1e3 * np.percentile(seconds, PERCENTILES)).tolist()
    return PercentilesData(p50=p50, p90=p90, p99=p99)


def simulate_result(one: Simulated) -> SimulateResult:
    """Return a simulation as data."""
    found, limits, most = one.found, one.limits, one.most
    waits = {name: 1e3 * seconds for name, seconds in found.outcome.waits_s.items()}
    pools = [
        EnginesData(
            role=pool.role,
            workers=pool.workers,
            gpus_per_worker=pool.gpus,
            layout=layout,
            use=found.outcome.use[pool.role],
            cache_tokens=pool.room if np.isfinite(pool.room) else None,
        )
        for pool, layout in zip(one.pools.pools, one.layouts, strict=True)
    ]
    return taken(
        SimulateResult,
        found,
        model=one.deployment.model.name,
        cluster=one.deployment.cluster.whole.name,
        gpus=one.pools.gpus,
        load=one.load,
        isl=float(found.outcome.isl.mean()),
        osl=float(found.outcome.osl.mean()),
        router=one.router,
        seed=one.seed,
        serving=ONE_POOL if len(pools) == 1 else TWO_POOLS,
        pools=pools,
        requests=len(one.requests),
        counted=int(found.counted.sum()),
        req_s=one.req_s,
        served_req_s=found.requests_per_s,
        goodput_req_s=found.goodput_per_s,
        overloaded=one.overloaded,
        ttft_ms=_percentiles(found.ttft_s),
        tpot_ms=_percentiles(found.tpot_s),
        e2e_ms=_percentiles(found.e2e_s),
        output_tok_s_per_gpu=found.output_tok_s / one.pools.gpus,
        limits=LoadLimitsData(
            ttft_p99_ms=None if limits.ttft_s is None else 1e3 * limits.ttft_s,
            tpot_p99_ms=None if limits.tpot_s is None else 1e3 * limits.tpot_s,
        ),
        max_req_s=None if most is None else most.requests_per_s,
        max_req_s_low=None if most is None else most.low,
        max_req_s_high=None if most is None else most.high,
        max_req_s_missing=one.reason if most is None else None,
        waits_ms=WaitsData(**waits, cache_room=1e3 * found.outcome.cache_wait_s),
        preempted=found.outcome.preempted,
        calibration=error_to_dict(one.errors),
        **set_data(one.deployment.cluster),
    )


def simulate_view(found: Simulated) -> View:
    """Return the blocks and the data of ``rackplan simulate``."""
    return View(simulate_blocks(found), simulate_result(found))


def simulate_blocks(found: Simulated, command: str = "") -> list[Block]:
    """Return what a terminal and the page show; ``command`` makes the page again."""
    data = simulate_result(found)
    what = f"{data.model} on {data.cluster}: {found.load}"
    return sections(
        [Heading(what), Page(_headline(data, found.errors))],
        _answer(data, accuracy_words(found.errors)),
        [Page(lambda: _charts(found))],
        [Details(_details(found, data))],
        [Page(lambda: _grounds(found, command))],
    )


_ROUTERS = {
    "least": "the replica with fewest requests",
    "round": "each replica in turn",
    "prefix": "the longest cached prefix",
}


def _headline(data: SimulateResult, errors: Sequence[ErrorOf]) -> list[Block]:
    """Return the answer in three lines: the maximum rate, the latencies at the rate asked, and the accuracy."""
    load = f"At {data.req_s:,.4g} requests/s{' (overloaded)' * data.overloaded}"
    times = f"p99 {data.ttft_ms.p99 / 1e3:,.2f} s to first token, {data.tpot_ms.p99:,.1f} ms per output token"
    good = f"{data.goodput_req_s:,.4g} requests/s are within the limits"
    most = f"Maximum: {_most_words(data)}".replace("these limits", f"{_limits(data)}")
    return leading(most, f"{load}: {times}; {good}", f"Accuracy: {accuracy_words(errors)}")


def _answer(data: SimulateResult, band: str) -> list[Block]:
    engines = "; ".join(
        f"{pool.role if len(data.pools) > 1 else ''} {pool.workers:,} x {pool.layout} "
        f"({plural(pool.gpus_per_worker, 'GPU')} each)".strip()
        for pool in data.pools
    )
    requests = f"{data.requests:,} of {data.isl:,.0f} + {data.osl:,.0f} tokens"
    cached = f"; {data.prefix_hit:.0%} of prompt tokens cached" if data.prefix_hit else ""
    table = Table.of(
        [
            ("first token, ms", data.ttft_ms),
            ("per output token, ms", data.tpot_ms),
            ("whole request, s", _in_seconds(data.e2e_ms)),
        ],
        ("", lambda row: row[0]),
        *((f"p{percent}", _cell(percent)) for percent in PERCENTILES),
    )
    used = ", ".join(
        f"{pool.role} {pool.use:.0%}" if len(data.pools) > 1 else f"{pool.use:.0%}" for pool in data.pools
    )
    again = (
        f"; {plural(data.preempted, 'request')} preempted and recomputed because the KV cache was full"
        * (data.preempted > 0)
    )
    wait_ms = data.waits_ms.prefill + data.waits_ms.transfer + data.waits_ms.decode
    queue = f"{data.queue}; a request waits {wait_ms:,.0f} ms on average" if data.queue else "almost none"
    overload = (
        f"requests arrive faster than they are served ({data.req_s:,.4g} against {data.served_req_s:,.4g} "
        "requests/s), so "
        "latencies keep growing"
    )
    answer = [
        Text(engines, data.serving.capitalize()),
        Text(f"{requests}{cached}; routed to {_ROUTERS[data.router]}", "Requests"),
        *labelled("Overloaded", overload if data.overloaded else ""),
        GAP,
        table,
        GAP,
        Text(
            f"{data.output_tok_s:,.0f} output tok/s, {data.output_tok_s_per_gpu:,.0f} per GPU in use; "
            f"{data.served_req_s:,.4g} requests/s",
            "Served",
        ),
        Text(f"{data.goodput_req_s:,.4g} requests/s within {_limits(data)}", "Goodput"),
        Text(f"engines busy: {used}{again}", "Utilization"),
        Text(queue, "Queue"),
        Text(_most_words(data), "Maximum"),
        *labelled("Band", f"throughput: {band}" if band else ""),
    ]
    return [replace(one, style="forward") if isinstance(one, Text) else one for one in answer]


def _in_seconds(of: PercentilesData) -> PercentilesData:
    """Return milliseconds as seconds."""
    return PercentilesData(p50=of.p50 / 1e3, p90=of.p90 / 1e3, p99=of.p99 / 1e3)


def _cell(percent: int) -> Callable[[tuple[str, PercentilesData]], str]:
    def cell(row: tuple[str, PercentilesData]) -> str:
        value: float = getattr(row[1], f"p{percent}")
        return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"

    return cell


def _limits(data: SimulateResult) -> str:
    """Return the limits in words."""
    limits = data.limits
    words = [
        f"{limit:,.4g} ms {what}"
        for limit, what in (
            (limits.ttft_p99_ms, "to first token"),
            (limits.tpot_p99_ms, "per output token"),
        )
        if limit is not None
    ]
    return " and ".join(words) or "no limits"


def _most_words(data: SimulateResult) -> str:
    if data.max_req_s is None:
        return f"none: {data.max_req_s_missing}".rstrip(".")
    low, high = data.max_req_s_low or 0.0, data.max_req_s_high or 0.0
    streams = f" ({low:,.3g} to {high:,.3g} over several random streams)" if high > low else ""
    return f"{data.max_req_s:,.3g} requests/s with 99% of requests within these limits{streams}"


def _details(found: Simulated, data: SimulateResult) -> list[Block]:
    deployment, outcome = found.deployment, found.found.outcome
    table = Table.of(
        list(zip(found.pools.pools, data.pools, strict=True)),
        ("pool", lambda row: row[1].role),
        ("workers", lambda row: f"{row[1].workers:,} x {row[1].layout}"),
        ("GPUs each", lambda row: f"{row[1].gpus_per_worker:,}"),
        ("utilization", lambda row: f"{row[1].use:.1%}"),
        ("cache tokens", lambda row: "-" if row[1].cache_tokens is None else f"{row[1].cache_tokens:,.0f}"),
        ("groups", lambda row: f"{row[0].table.groups:,}"),
    )
    waits = ", ".join(f"{name} {1e3 * seconds:,.1f} ms" for name, seconds in outcome.waits_s.items())
    links = found.pools.transfers
    transfer = ""
    if links is not None:
        moved = links.cache_bytes(round(data.isl))
        transfer = (
            f"{moved / 1e6:,.1f} MB of cache per prompt at {links.bytes_per_s / 1e9:,.1f} GB/s per GPU: "
            f"{1e3 * links.alone_s(moved):,.1f} ms without contention"
        )
    not_counted = (
        f"the first {WARM_UP:.0%} of requests, and the last ones that only sustain the load, are not counted"
        if found.requests.made
        else ""
    )
    return sections(
        [Heading("Engines", 2), table],
        [
            *labelled("Scheduler", *dict.fromkeys(map(_scheduler, found.pools.pools))),
            *labelled("Serving", "; ".join(serving_words(deployment.workload, deployment.engine))),
            *labelled("Recipe", *recipe_lines(deployment)),
            *labelled("Waits", f"{waits}; of which for free cache {1e3 * outcome.cache_wait_s:,.1f} ms"),
            *labelled("Transfer", transfer),
            *labelled("Outside", f"{1e3 * found.pools.fixed_s:,.0f} ms per request outside the engines"),
            *labelled("Counted", not_counted),
            *labelled("Kernels", *map(chip_words, found.errors)),
            *labelled("Lengths", found.lengths.note),
            *set_blocks("Set", deployment.cluster),
            *labelled("Note", cluster_doubts(deployment.cluster)),
        ],
    )


def _scheduler(pool: EnginePool) -> str:
    one = pool.scheduler
    return (
        f"prefill {'shares steps with decode' if one.mixes else 'and decode run in separate steps'}; at most "
        f"{one.tokens:,} tokens per step and {one.sequences:,} sequences per attention group; a request starts when "
        f"the cache has room for its prompt and {one.reserved:.0%} of its answer"
    )


def _charts(found: Simulated) -> list[Block]:
    from rackplan.views.simulate_charts import rates_chart, shares_chart, timeline_chart

    rates, every = list(found.curve), list(found.curve.values())
    ttft_s = [np.percentile(one.ttft_s, PERCENTILES).tolist() for one in every]
    token_ms = [(1e3 * np.percentile(one.tpot_s, PERCENTILES)).tolist() for one in every]
    limits = found.limits
    token_limit = None if limits.tpot_s is None else 1e3 * limits.tpot_s
    table = Table(
        (
            "requests/s",
            *(f"first token p{percent}, s" for percent in PERCENTILES),
            *(f"per token p{percent}, ms" for percent in PERCENTILES),
        ),
        [
            (f"{rate:,.3g}", *(f"{value:,.3g}" for value in (*first, *token)))
            for rate, first, token in zip(rates, ttft_s, token_ms, strict=True)
        ],
    )
    last = (
        f"At {rates[-1]:,.3g} requests/s the p99 time to first token is {ttft_s[-1][-1]:,.3g} s and that per later "
        f"token {token_ms[-1][-1]:,.3g} ms{'; the queue grows' if every[-1].grows else ''}."
    )
    if found.most is not None:
        last += (
            " Green: the maximum within all limits, over several random streams; the curves are of the first."
        )
    timeline = found.found.outcome.timeline
    queue = f"At most {timeline[:, 1].max():,.0f} requests wait and {timeline[:, 2].max():,.0f} are in steps"
    charts = [
        Chart(
            name,
            rates_chart(rates, times, limit, found.most, unit, what),
            f"p99 {times[0][-1]:,.3g} {unit} at {rates[0]:,.3g} requests/s, {times[-1][-1]:,.3g} {unit} at "
            f"{rates[-1]:,.3g}",
            HEIGHT,
        )
        for name, times, limit, unit, what in (
            ("first-token", ttft_s, limits.ttft_s, "s", "to first token"),
            ("per-token", token_ms, token_limit, "ms", "per output token"),
        )
        if np.any(times)  # answers of one token have no later ones
    ]
    return [
        Heading("Times against request rate", 2),
        Beside(charts),
        Text(last, style="note"),
        Page([table], fold="Percentiles as a table"),
        Heading("Queue and batch", 2),
        Chart("timeline", timeline_chart(found.found), queue, HEIGHT),
        Heading("Distribution of time to first token", 2),
        Chart(
            "shares",
            shares_chart(found.found),
            "Share of requests with their first token by time in seconds",
            HEIGHT,
        ),
    ]


def _grounds(found: Simulated, command: str) -> list[Block]:
    """Return the command and every input, and every figure with its source."""
    near = f"{sentence('; '.join(map(chip_words, found.errors)))} Throughput: {accuracy_words(found.errors)}."
    rows = [
        *deployment_rows(found.deployment, None)[:-2],
        ("load", found.load),
        ("lengths", found.lengths.brief()),
        ("router", found.router),
        ("seed", f"{found.seed}"),
    ]
    figures = figures_section(deployment_figures(found.deployment), [], [near] if found.errors else [], [])
    return [*inputs_section(command, rows), *figures]
