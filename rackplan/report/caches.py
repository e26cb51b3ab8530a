"""What caches of prompts hold and save: blocks of the document of a fleet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from cost.money.kv_memory import KvMemory
from cost.principles.tiers import HOST, cache_tiers
from cost.queueing.conversations import cheapest
from cost.serving.cache_path import token_cache_bytes
from cost.serving.sizing import Size
from rackplan.report.doc import Block, Chart, Layer, Note, Row, Table
from rackplan.report.fields import usd
from topology.base.units import format_quantity

TIERS = Table.of(
    "kv_tiers",
    "tier rack_bytes found_share drain_s cheaper_until_s next_cheaper_s | cluster",
    "Where prompts are found",
    per="cluster",
)
CACHES = Table.of(
    "caches",
    "host_bytes ssd_bytes prefix_hit requests_per_s usd_per_million_tokens wait_loading_ms | cluster "
    "rack_cache_bytes",
    "Memory for caches of one unit",
    per="cluster",
)
_CURVE = Table.of("", "rack_cache_bytes prefix_hit requests_per_s usd_per_million_tokens state")
_DEVICES = {HOST: "DRAM", "ssd": "SSD"}


def blocks(fleets: Sequence[Size]) -> list[Block]:
    """Return where prompts of conversations are found, and what more and less memory for them would bring."""
    tiers = [row for fleet in fleets for row in _tiers(fleet)]
    points = [row for fleet in fleets for row in _points(fleet)]
    slow = any(row["usd_per_million_tokens"] is None for row in points)
    return [
        *([TIERS(tiers)] if tiers else []),
        Note("Below the last tier is none." if tiers else "", "next_cheaper_s", "missing"),
        *([CACHES(points)] if points else []),
        Note(
            "Loads that exceed the limit on the first token have no price." if slow else "",
            "usd_per_million_tokens",
            "missing",
        ),
        *(chart for fleet in fleets if fleet.caches for chart in _charts(fleet)),
    ]


def answer(fleet: Size) -> str:
    """Return how much memory for caches pays, at which hits, and what it saves; empty where nobody asked."""
    if not fleet.caches:
        return ""
    best, without = cheapest(fleet.caches), fleet.caches[0]
    hits = f"{best.lengths.prefix_hit:.0%} of prompt tokens"
    if not best.memory.sizes:
        return f"No DRAM or SSD pays for caches: HBM alone holds {hits}."
    sizes = (
        f"{format_quantity(_in_rack(fleet, best.memory, tier), 'byte')} of {_DEVICES[tier]}"
        for tier in best.memory.sizes
    )
    saved = ""
    if best.usd_per_million is not None and without.usd_per_million is not None:
        saving = usd(without.usd_per_million - best.usd_per_million)
        saved = f", and save {saving} of {usd(without.usd_per_million)} USD per million output tokens"
    times = f"{best.requests_per_s / without.requests_per_s:.2f}x the requests of HBM alone"
    alone = f"{without.lengths.prefix_hit:.0%} there"
    return f"With {' and '.join(sizes)} a rack caches hold {hits} ({alone}) of {times}{saved}."


def _tiers(fleet: Size) -> Iterator[Row]:
    """Yield where prompts are found, and how long a context may wait there, as of ``rackplan economics``."""
    if fleet.lengths is None or not fleet.lengths.tier_hits:
        return
    book, gpu = fleet.deployment.prices, fleet.unit.spec.domains[0].gpu
    price = book.price(gpu) if fleet.bill.usd_per_hour is not None else None
    devices = [cache_tiers(gpu, price)[0], *(book.memory.device(gpu, tier) for tier in book.memory.sizes)]
    computing, token_bytes = fleet.token_prices.input, token_cache_bytes(fleet.deployment, 1e4)
    rows = zip_longest(fleet.lengths.tier_hits, devices, devices[1:])
    for (tier, share), device, slower in rows:
        yield TIERS.row(
            None,
            cluster=fleet.unit.name,
            tier=tier,
            rack_bytes=_in_rack(fleet, book.memory, tier) if tier in book.memory.sizes else None,
            found_share=share,
            drain_s=device.drain_s,
            cheaper_until_s=None if computing is None else device.equal_s(computing / 1e6 / token_bytes),
            next_cheaper_s=None if slower is None else device.beaten_s(slower),
        )


def _points(fleet: Size) -> Iterator[Row]:
    for point in fleet.caches:
        yield CACHES.row(
            None,
            cluster=fleet.unit.name,
            host_bytes=point.memory.sizes.get(HOST, 0.0),
            ssd_bytes=point.memory.sizes.get("ssd", 0.0),
            rack_cache_bytes=_in_rack(fleet, point.memory, *_DEVICES),
            prefix_hit=point.lengths.prefix_hit,
            wait_loading_ms=1e3 * point.lengths.load_s,
            requests_per_s=point.requests_per_s,
            usd_per_million_tokens=point.usd_per_million,
        )


def _in_rack(fleet: Size, memory: KvMemory, *tiers: str) -> float:
    """Return the bytes of tiers in a rack of the fleet; of a domain where its racks are not known."""
    gpus, domain = fleet.gpus / (fleet.racks.count or fleet.domains), fleet.unit.spec.domains[0]
    present = (tier for tier in tiers if tier in memory.sizes)
    return math.fsum(memory.size(domain, tier, gpus, len(fleet.unit.gpus)) for tier in present)


def _charts(fleet: Size) -> Iterator[Chart]:
    """Yield hits, requests and money over the memory of a rack: of hosts alone, and drives alone and beside some."""
    hbm, *points = _points(fleet)
    if not points:
        return

    def kind(row: Row) -> str:
        beside = f" beside {format_quantity(row['host_bytes'], 'byte')} of DRAM a host" * bool(
            row["host_bytes"]
        )
        return f"SSD{beside}" if row["ssd_bytes"] else "DRAM"

    keys = ("rack_cache_bytes", "prefix_hit", "requests_per_s", "usd_per_million_tokens")
    curve = _CURVE((*(row[key] for key in keys), kind(row)) for row in points)
    sizes = [row["rack_cache_bytes"] for row in points]
    for key, title in zip(keys[1:], ("Hits", "Requests", "Price"), strict=True):
        rule = Table.of("", f"rack_cache_bytes {key}")((size, hbm[key]) for size in (min(sizes), max(sizes)))
        yield Chart(
            f"{title} by memory for caches, {fleet.unit.name}",
            [
                Layer("line", curve, "rack_cache_bytes", key, "state"),
                Layer("rule", rule, "rack_cache_bytes", key, name="HBM alone"),
            ],
            log="x",
            alt=f"{len(points)} sizes of memory",
        )
