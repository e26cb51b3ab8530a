"""The document of a simulation: what users see under a load, and the most that keep the limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cost.queueing.load import PERCENTILES, WARM_UP, UnderLoad
from cost.queueing.pools import EnginePool
from cost.queueing.result import Simulated
from cost.serving.cache_path import token_cache_bytes
from cost.serving.serving import ONE_POOL, TWO_POOLS
from rackplan.report import shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import phrase
from rackplan.report.notes import sentence
from rackplan.report.text import thinned
from topology.base.units import plural

_TIMES = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
"""Times of requests by the key of their percentiles, as attributes of a simulation."""
_PERCENTILES = " ".join(f"{key}_p{percent}_ms" for key in _TIMES for percent in (50, 90, 99))
OBSERVED = Record.of(
    "",
    f"cluster model serving load isl osl router seed requests requests_counted requests_per_s served_requests_per_s "
    f"goodput_requests_per_s max_requests_per_s low_max_requests_per_s high_max_requests_per_s {_PERCENTILES} "
    "ttft_p99_limit_ms tpot_p99_limit_ms tok_s tok_s_per_gpu_used gpus_used prefix_hit overloaded queue "
    "wait_prefill_ms wait_loading_ms wait_transfer_ms wait_decode_ms wait_cache_room_ms preempted",
    shown="ttft_p99_ms tpot_p99_ms max_requests_per_s served_requests_per_s goodput_requests_per_s tok_s "
    "tok_s_per_gpu_used gpus_used serving prefix_hit queue",
    tiles="ttft_p99_ms tpot_p99_ms max_requests_per_s goodput_requests_per_s tok_s",
)
TIMES = Table.of("times", "percentile ttft_ms tpot_ms e2e_ms", "Times, waiting included")
POOLS = shared.pools("busy_share")
TIERS = Table.of("kv_tiers", "tier replica_bytes tier_tokens found_share", "Where prompts were found")
CURVE = Table.of(
    "", "requests_per_s percentile ttft_ms tpot_ms e2e_ms", "Percentiles by request rate", max_rows=None
)
SIMULATE = Shape(
    "simulate",
    "What users see of requests under a load, and the most requests per second that keep the limits.",
    (OBSERVED, TIMES, POOLS, TIERS, *shared.GROUNDS),
)
_TIMELINE = Table.of("", "time_s requests state")
_FIRST_TOKENS = Table.of("", "ttft_ms first_token_share")
_MAX_POINTS = 400
"""Points of a line of a chart."""
_ROUTERS = {"least": "with fewest requests", "round": "whose turn it is", "prefix": "with most of its prefix"}


def simulate_doc(result: Simulated) -> Doc:
    """Return the document of ``rackplan simulate``."""
    row, observed, cluster = _observed(result), result.found, result.deployment.cluster
    pools = (
        shared.pool_row(pool.role, layout, pool.workers, pool.gpus)
        | {"busy_share": observed.outcome.use[pool.role]}
        | shared.cache_row(pool.cache)
        for pool, layout in zip(result.pools.pools, result.layouts, strict=True)
    )
    recomputed = (
        f"{plural(row['preempted'], 'request')} {'was' if row['preempted'] == 1 else 'were'} computed again"
    )
    slow = f"{phrase(row, 'requests_per_s')} arrive and {phrase(row, 'served_requests_per_s')} are served"
    return Doc(
        SIMULATE,
        f"{row['model']} on {row['cluster']}: {result.lengths.brief()}, {result.load}",
        [*_answer(row, result.reason), shared.accuracy_sentence(result.errors)],
        [
            Note(f"Overloaded: {slow}, so times grow." if result.overloaded else "", kind="warning"),
            Note(shared.doubt_sentence(cluster), kind="warning"),
            shared.set_table(cluster),
            OBSERVED(row),
            TIMES(_percentiles(observed)),
            POOLS(pools),
            *([TIERS(_tiers(result))] if result.requests.segments else []),
            shared.cache_note(result.pools.pools[-1].cache),
            Note("" if result.most else sentence(result.reason), "max_requests_per_s", "missing"),
            Note(f"{recomputed} for lack of room in the KV cache." if row["preempted"] else "", "preempted"),
            Late(lambda: _charts(result)),
        ],
        [
            Late(lambda: [_curve(result)]),
            *shared.grounds([(result.deployment, None, result.errors)], _methods(result)),
        ],
        result.columns,
    )


def _observed(result: Simulated) -> dict[str, Any]:
    observed, limits, max_load, outcome = result.found, result.limits, result.most, result.found.outcome
    return {
        **OBSERVED.row(result, observed),
        "cluster": result.deployment.cluster.whole.name,
        "model": result.deployment.model.name,
        "serving": TWO_POOLS if result.pools.transfers else ONE_POOL,
        "isl": float(outcome.isl.mean()),
        "osl": float(outcome.osl.mean()),
        "requests": len(result.requests),
        "requests_counted": int(observed.counted.sum()),
        "requests_per_s": result.req_s,
        "served_requests_per_s": observed.requests_per_s,
        "goodput_requests_per_s": observed.goodput_per_s,
        "max_requests_per_s": max_load and max_load.requests_per_s,
        "low_max_requests_per_s": max_load and max_load.low,
        "high_max_requests_per_s": max_load and max_load.high,
        "ttft_p99_limit_ms": limits.ttft_s and 1e3 * limits.ttft_s,
        "tpot_p99_limit_ms": limits.tpot_s and 1e3 * limits.tpot_s,
        "tok_s": observed.output_tok_s,
        "tok_s_per_gpu_used": observed.output_tok_s / result.pools.gpus,
        "gpus_used": result.pools.gpus,
        "wait_cache_room_ms": 1e3 * outcome.cache_wait_s,
        "preempted": outcome.preempted,
        **{f"wait_{name}_ms": 1e3 * seconds for name, seconds in outcome.waits_s.items()},
        **{
            f"{key}_{at['percentile']}_ms": at[f"{key}_ms"] for at in _percentiles(observed) for key in _TIMES
        },
    }


def _tiers(result: Simulated) -> Iterator[Row]:
    """Yield HBM and the tiers below it, with the part of the prompts found there."""
    pool, observed = result.pools.pools[0], result.found
    hits = observed.outcome.tier_hits(observed.counted)
    rooms = [("hbm", pool.room), *((tier.name, tier.tokens) for tier in pool.tiers)]
    token_bytes = token_cache_bytes(result.deployment, result.lengths.context)
    for (name, tokens), hit in zip(rooms, [*hits, *[0.0] * len(rooms)], strict=False):
        yield TIERS.row(
            None,
            tier=name,
            tier_tokens=tokens,
            replica_bytes=tokens * token_bytes,
            found_share=hit,
        )


def _percentiles(observed: UnderLoad) -> list[Row]:
    columns = [1e3 * np.percentile(getattr(observed, name), PERCENTILES) for name in _TIMES.values()]
    times = zip(*(values.tolist() for values in columns), strict=True)
    keys = [f"{key}_ms" for key in _TIMES]
    return [
        {"percentile": f"p{percent}", **dict(zip(keys, row, strict=True))}
        for percent, row in zip(PERCENTILES, times, strict=True)
    ]


def _answer(row: Row, reason: str) -> list[str]:
    """Return the times at the rate that was asked about, and the most that keeps the limits."""
    later = (
        f", and 99% take {phrase(row, 'tpot_p99_ms')} or less per output token" if row["tpot_p99_ms"] else ""
    )
    times = f"99% of requests get their first token within {phrase(row, 'ttft_p99_ms')}{later}"
    limits = shared.limits(row)
    keep = f"99% of requests stay within {' and '.join(limits)}" if limits else "Engines keep up"
    capacity = sentence(reason)
    if row["max_requests_per_s"] is not None:
        low, high = row["low_max_requests_per_s"], row["high_max_requests_per_s"]
        streams = f" ({low:,.3g} to {high:,.3g} with other random arrivals)" if high > low else ""
        capacity = f"{keep} up to {phrase(row, 'max_requests_per_s')}{streams}."
    return [f"At {phrase(row, 'requests_per_s')}, {times}.", capacity]


def _methods(result: Simulated) -> Iterator[str]:
    """Yield how requests were served and counted."""
    links, pools = result.pools.transfers, result.pools.pools
    yield f"A request goes to the replica {_ROUTERS[result.router]}."
    yield from dict.fromkeys(map(_scheduler, result.pools.pools))
    if links is not None:
        moved = links.cache_bytes(round(float(result.found.outcome.isl.mean())))
        yield (
            f"{moved / 1e6:,.1f} MB of cache per prompt move at {links.bytes_per_s / 1e9:,.1f} GB/s per GPU, in "
            f"{1e3 * links.alone_s(moved, min(pool.gpus for pool in pools)):,.1f} ms where nothing else does."
        )
    yield f"A request spends {1e3 * result.pools.fixed_s:,.0f} ms outside the engines."
    if result.requests.made:
        yield f"The first {WARM_UP:.0%} of requests, and the last that only keep up the load, do not count."
    yield sentence(result.lengths.note)


def _scheduler(pool: EnginePool) -> str:
    rules = pool.scheduler
    return (
        f"Prefill {'shares steps with decode' if rules.mixes else 'and decode run in separate steps'}; at most "
        f"{rules.tokens:,} tokens per step and {rules.sequences:,} sequences per attention group; a request starts "
        f"when the cache has room for its prompt and {rules.reserved:.0%} of its answer."
    )


def _curve(result: Simulated) -> Table:
    rates = result.curve.items()
    return CURVE(
        {"requests_per_s": rate, **times} for rate, observed in rates for times in _percentiles(observed)
    )


def _charts(result: Simulated) -> list[Block]:
    """Return times against the request rate, queue and batch over time, and how first tokens are spread."""
    share = np.linspace(0, 1, _MAX_POINTS // 2 + 1).tolist()
    quantiles = zip((1e3 * np.quantile(result.found.ttft_s, share)).tolist(), share, strict=True)
    states = _TIMELINE(
        (at, count, state)
        for at, waiting, running in thinned(result.found.outcome.timeline.tolist(), _MAX_POINTS, even=True)
        for state, count in (("in steps", running), ("waiting", waiting))
    )
    spread = _FIRST_TOKENS(quantiles)
    return [
        *_rates("Time to the first token by request rate", result, "ttft_ms", result.limits.ttft_s),
        *_rates("Time per output token by request rate", result, "tpot_ms", result.limits.tpot_s),
        Chart("Queue and batch", [Layer("line", states, "time_s", "requests", "state")], alt="Over time"),
        Chart("Requests by time to the first token", [Layer("line", spread, "ttft_ms", "first_token_share")]),
    ]


def _rates(title: str, result: Simulated, key: str, limit_s: float | None) -> Iterator[Chart]:
    """Yield percentiles against the rate, with the limit and the most that keeps it; nothing where all are 0."""
    curve, rate, max_load = _curve(result), "requests_per_s", result.most
    values = [row[key] for row in curve.rows if row[key]]
    if not values:
        return
    lowest, highest = curve.rows[0][rate], curve.rows[-1][rate]
    rules = {
        "limit": [] if limit_s is None else [(lowest, 1e3 * limit_s), (highest, 1e3 * limit_s)],
        "most that keeps the limits": [(max_load.requests_per_s, end(values)) for end in (min, max)]
        if max_load
        else [],
    }
    table = Table.of("", f"{rate} {key}")
    layers = [Layer("line", curve, rate, key, "percentile")]
    for name, ends in rules.items():
        layers.append(Layer("rule", table(ends), rate, key, name=name))
    alt = f"p99 {values[2]:,.3g} ms at {lowest:,.3g} requests/s, {values[-1]:,.3g} ms at {highest:,.3g}"
    yield Chart(title, layers, log="y", alt=alt)
