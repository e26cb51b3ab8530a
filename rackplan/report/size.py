"""Documents of fleets: the size for a demand or a budget, on one cluster or on several side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from cost.money.bill import HOURS_PER_YEAR
from cost.recipe import OtherRecipe
from cost.serving.limits import left_out_words
from cost.serving.sizes import Refused, Sizes
from cost.serving.sizing import BUDGETS, Level, Size
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import number, said, usd
from rackplan.report.notes import derate_words, recipe_lines, sentence, serving_words, sparse_lines
from rackplan.report.shared import (
    ACCURACY,
    ACCURACY_METHOD,
    BILL,
    BILLED,
    OTHER_RECIPE,
    POOLS,
    SET,
    accuracy_row,
    accuracy_sentence,
    band_of,
    bill_row,
    bill_rows,
    doubt_sentence,
    missing_notes,
    on_one,
    other_row,
    set_table,
    whose_recipe,
)
from topology.base.errors import input_name
from topology.base.units import plural

_FLEET = (
    "cluster model layout serving units domains serving_domains racks serving_gpus counted_tokens tok_s tok_s_per_gpu "
    "low_tok_s_per_gpu high_tok_s_per_gpu tok_s_per_user tok_s_per_rack requests_per_s users ttft_s asked_tok_s "
    "asked_requests_per_s asked_users peak_tok_s tpot_limit_s ttft_limit_s usd_per_million_tokens "
    f"usd_per_million_tokens_full tok_s_per_mw tok_s_per_mw_full {BILLED} recipe reason"
)
BEST = Record.of(
    "",
    _FLEET,
    shown="gpus domains racks layout serving tok_s tok_s_per_gpu tok_s_per_user requests_per_s users ttft_s usd_per_hour "
    "usd_per_year usd_per_million_tokens usd_per_million_tokens_full power_w",
    tiles="gpus racks users usd_per_hour usd_per_million_tokens power_w",
)
CLUSTERS = Table.of(
    "clusters",
    _FLEET,
    shown="cluster gpus racks serving tok_s requests_per_s users tok_s_per_user usd_per_million_tokens usd_per_hour "
    "power_w",
    most=None,
)
ASKED = Record.of(
    "asked",
    "currency amount utilization think_s spares usd_per_million_tokens_limit context isl osl ttft_p99_limit_s "
    "tpot_default ttft_default",
    "Asked",
    most=0,
)
LEVELS = Table.of(
    "levels",
    "cluster level gpus domains tok_s requests_per_s peak_share missed_tok_s enough_at_tpot_s usd_per_hour "
    "usd_per_year power_w",
    "Smaller and larger fleets",
    per="cluster",
    shown="level gpus tok_s peak_share enough_at_tpot_s usd_per_hour usd_per_year power_w",
)
JOINED = Table.of(
    "joined", "cluster units tok_s tok_s_per_gpu", "Units that share a replica", per="cluster", most=None
)
PROMPTS = Table.of("prompts", "isl request_share", "Prompts")
PROOFS = Table.of("proofs", "cluster proven objective bound gap", "Proof of a fleet of different shapes")
SIZE = Shape(
    "size",
    "The fleet for a demand or a budget: the cheapest (for a budget: the one that serves most), and all others.",
    (BEST, CLUSTERS, ASKED, POOLS, LEVELS, JOINED, PROMPTS, PROOFS, BILL, ACCURACY, OTHER_RECIPE, SET),
)
SPEEDS = 14
"""Speeds per user in the charts."""
_UNITS = {"req_s": "requests/s", "tok_s": "output tok/s", "users": "users", **BUDGETS}


def size_doc(result: Size | Sizes) -> Doc:
    """Return the document of ``rackplan size``."""
    fleets = [result] if isinstance(result, Size) else result.sizes
    refused = [] if isinstance(result, Size) else result.refused
    rows = {fleet.unit.name: _fleet_row(fleet) for fleet in fleets}
    buys = fleets[0].demand.currency in BUDGETS

    def rank(fleet: Size) -> tuple[float, float]:
        price = rows[fleet.unit.name]["usd_per_million_tokens"]
        return -fleet.served.tok_s if buys else math.inf if price is None else price, fleet.gpus

    best = min(fleets, key=rank)
    row, alone = rows[best.unit.name], isinstance(result, Size)
    lengths = best.lengths
    pools, levels, joined, bill = (
        on_one(table) if alone else table for table in (POOLS, LEVELS, JOINED, BILL)
    )
    levels = levels(level for fleet in fleets for level in _levels(fleet))
    joined = joined(line for fleet in fleets for line in _joined(fleet))
    asked = ASKED.row(
        best.demand,
        usd_per_million_tokens_limit=best.demand.usd_m,
        context=best.deployment.workload.context,
        isl=lengths and lengths.mean_isl,
        osl=lengths and lengths.mean_osl,
        ttft_p99_limit_s=best.demand.ttft_p99_s,
        tpot_default="tpot_s" in best.usual,
        ttft_default="ttft_s" in best.usual,
    )
    clusters = [result] if isinstance(result, Size) else result.clusters
    where = row["cluster"] if alone else plural(len(clusters), "cluster")
    notes = [note for fleet in fleets for note in _notes(fleet, "" if alone else f"{fleet.unit.name}: ")]
    return Doc(
        SIZE,
        f"{row['model']} on {where}: {_asked(best)}",
        list(_answer(best, row, len(clusters), buys=buys)),
        [
            set_table(*(fleet.unit for fleet in fleets)),
            BEST(row, most=12 if alone else 0),
            CLUSTERS(
                (
                    _refused_row(side) if isinstance(side, Refused) else rows[side.unit.name]
                    for side in clusters
                ),
                most=0 if alone else None,
            ),
            ASKED(asked),
            *([levels] if alone else []),
            *(Note(str(side.error), "gpus", "missing") for side in refused),
            *(
                Note(f"{fleet.unit.name}: {_other(fleet.other)}.", "gpus")
                for fleet in fleets
                if fleet.other and fleet is not best
            ),
            Note(f"Limits: {_limits(best)}.", "tpot_limit_s"),
            *dict.fromkeys(notes),
            Late(lambda: _charts(fleets, buys=buys)),
        ],
        [
            *([] if alone else [levels]),
            pools(pool for fleet in fleets for pool in _pools(fleet)),
            PROMPTS(
                (
                    {"isl": isl, "request_share": share}
                    for isl, share in (lengths.prompts() if lengths else [])
                ),
                most=12 if lengths and len(lengths.isl) > 1 else 0,
            ),
            bill(part for fleet in fleets for part in bill_rows(fleet.unit.name, fleet.bill)),
            ACCURACY(
                accuracy_row(error, fleet.unit.name, row["model"])
                for fleet in fleets
                for error in fleet.errors
            ),
            ACCURACY_METHOD,
            OTHER_RECIPE(other_row(fleet.other) for fleet in fleets if fleet.other),
            joined,
            PROOFS(
                {"cluster": fleet.unit.name, "proven": proof.status, **asdict(proof)}
                for fleet in fleets
                if (proof := fleet.served.proof) is not None
            ),
            *dict.fromkeys(Note(text, kind="method") for fleet in fleets for text in _methods(fleet) if text),
        ],
    )


def _fleet_row(fleet: Size) -> Row:
    served, demand, bill, lengths = fleet.served, fleet.demand, fleet.bill, fleet.lengths
    main = max(served.pools, key=lambda pool: (pool.role == "decode", pool.gpus))
    low, high = band_of(fleet.tok_s_per_gpu, fleet.errors)
    racks = fleet.serving_racks.count
    return CLUSTERS.row(
        fleet,
        **{
            **bill_row(bill),
            **CLUSTERS.row(served),
            "cluster": fleet.unit.name,
            "model": fleet.deployment.model.name,
            "layout": main.layout,
            "gpus_idle": fleet.serving_gpus - served.gpus_used,
            "racks": fleet.racks.count,
            "counted_tokens": "output",
            "low_tok_s_per_gpu": low,
            "high_tok_s_per_gpu": high,
            "tok_s_per_rack": served.tok_s / racks if racks else None,
            "users": demand.users_of(served),
            "asked_tok_s": fleet.tok_s,
            "asked_requests_per_s": lengths and fleet.tok_s / lengths.mean_osl,
            "asked_users": fleet.tok_s / served.tok_s * demand.users_of(served),
            "tpot_limit_s": demand.tpot_s,
            "ttft_limit_s": demand.ttft_s,
            "usd_per_million_tokens": bill.usd_per_million(fleet.tok_s),
            "usd_per_million_tokens_full": bill.usd_per_million(served.tok_s),
            "tok_s_per_mw": bill.tok_s_per_megawatt(fleet.tok_s),
            "tok_s_per_mw_full": bill.tok_s_per_megawatt(served.tok_s),
            "recipe": fleet.deployment.recipe,
            "reason": "",
        },
    )


def _refused_row(side: Refused) -> Row:
    names = {"cluster": side.deployment.cluster.name, "model": side.deployment.model.name}
    return dict.fromkeys(_FLEET.split()) | names | {"reason": str(side.error)}


def _pools(fleet: Size) -> Iterator[Row]:
    """Yield pools; those of one side share its tokens by their sequences over the time of a step."""
    served = fleet.served
    prompts = (served.requests_per_s or 0.0) * (fleet.lengths.mean_isl if fleet.lengths else 0.0)
    rates = [pool.batch * pool.gpus / pool.step_s for pool in served.pools]
    for pool, rate in zip(served.pools, rates, strict=True):
        prefills = pool.role == "prefill"
        side = [
            rate
            for rate, other in zip(rates, served.pools, strict=True)
            if (other.role == "prefill") == prefills
        ]
        names = {"cluster": fleet.unit.name, "model": fleet.deployment.model.name}
        yield POOLS.row(pool, tok_s=(prompts if prefills else served.tok_s) * rate / sum(side), **names)


def _levels(fleet: Size) -> Iterator[Row]:
    """Yield the fleet between smaller ones and a larger one, and what each lacks at the peak."""
    this = Level(fleet.served.units, fleet.served.tok_s, fleet.demand.tpot_s)
    levels = [("smaller", level) for level in fleet.fewer[::-1]]
    levels += [("this", this), *([("larger", fleet.more)] if fleet.more else [])]
    for name, level in levels:
        price = (bill := fleet.bill_of(level.units)).usd_per_hour
        yield LEVELS.row(
            bill,
            cluster=fleet.unit.name,
            level=name,
            gpus=fleet.gpus_of(level.units),
            domains=fleet.domains_of(level.units),
            tok_s=level.tok_s,
            requests_per_s=fleet.lengths and level.tok_s / fleet.lengths.mean_osl,
            peak_share=level.tok_s / fleet.peak_tok_s,
            missed_tok_s=max(0.0, fleet.peak_tok_s - level.tok_s),
            enough_at_tpot_s=level.tpot_s,
            usd_per_year=None if price is None else price * HOURS_PER_YEAR,
        )


def _joined(fleet: Size) -> Iterator[Row]:
    for units, rate in fleet.joined.items():
        share = rate / (units * len(fleet.unit.gpus))
        yield {"cluster": fleet.unit.name, "units": units, "tok_s": rate, "tok_s_per_gpu": share}


def _asked(fleet: Size) -> str:
    """Return the demand or the budget, and the requests."""
    demand, lengths = fleet.demand, fleet.lengths
    amount = number(demand.amount) if demand.amount >= 1e6 else f"{demand.amount:,.10g}"
    most = "at most " if demand.currency in BUDGETS else ""
    tokens = f"decode at {plural(fleet.deployment.workload.context, 'token')} of context"
    return f"{most}{amount} {_UNITS[demand.currency]}, {lengths.brief() if lengths else tokens}"


def _answer(fleet: Size, row: Row, clusters: int, *, buys: bool) -> Iterator[str]:
    """Yield the fleet, what the other recipe takes or what it costs, and how sure that is."""
    spare = f" and {plural(fleet.demand.spares, 'spare domain')}" if fleet.demand.spares else ""
    lead = ""
    if clusters > 1:
        priced = row["usd_per_million_tokens"] is not None
        how = "serves the most" if buys else "is the cheapest" if priced else "takes the fewest GPUs"
        lead = f"{row['cluster']} {how} of {plural(clusters, 'cluster')}: "
    other = fleet.other
    recipe = "" if other is None else f" {whose_recipe('checkpoint' if other.recipe == 'usual' else 'usual')}"
    served = said(row, "tok_s", "output")
    key = {"req_s": "requests_per_s", "users": "users"}.get(fleet.demand.currency)
    serve = (
        f"{lead}{said(row, 'gpus')} ({fleet.served.units:,} x {row['cluster']}{spare}) serve "
        f"{f'{said(row, key)}, {served}' if key else served}, at {said(row, 'tok_s_per_user')}{recipe}."
    )
    price, power = row["usd_per_million_tokens"], row["power_w"]
    costs = "have no known price"
    if price is not None:
        costs = f"cost {said(row, 'usd_per_hour')}, or {usd(price)} USD per million output tokens"
    draw = "an unknown power" if power is None else said(row, "power_w")
    money = f"They {costs}, and draw {draw}."
    if other is None:
        yield serve
        yield money
    else:
        yield f"{serve} {money}"
        yield f"{_other(other)}."
    least = max((error.band for error in fleet.errors), default=None)
    larger = f" At the low end of that the fleet must be {least:.2f}x as large." if least and not buys else ""
    yield f"{accuracy_sentence(fleet.errors)}{larger}"


def _other(other: OtherRecipe) -> str:
    return (
        f"{plural(other.gpus, 'GPU')} {whose_recipe(other.recipe)} ({other.words}), each with {other.ratio:.2g}x the "
        "throughput"
    )


def _limits(fleet: Size) -> str:
    """Return the limits, and which of them are defaults."""
    demand, usual = fleet.demand, fleet.usual
    speed, first = "none on the speed", "none on the first token"
    if demand.tpot_s is not None:
        speed = f"{1 / demand.tpot_s:.4g} tok/s/user{' (default)' * ('tpot_s' in usual)}"
    if demand.usd_m is not None:
        speed = f"{demand.usd_m:g} USD per million output tokens"
    if demand.ttft_s is not None:
        first = f"first token {demand.ttft_s:g} s{' (default)' * ('ttft_s' in usual)}"
    if demand.ttft_p99_s is not None:
        first += f" without queueing, p99 {demand.ttft_p99_s:g} s under load"
    return speed if fleet.lengths is None else f"{speed}, {first}"


def _notes(fleet: Size, name: str) -> Iterator[Note]:
    """Yield what is missing, left out or in doubt."""
    yield from (
        Note(sentence(name + text).rstrip(".") + ".", "tpot_limit_s", "warning")
        for text in left_out_words(fleet.left_out)
    )
    yield from missing_notes(fleet.bill)
    if fleet.racks.count is None:
        yield Note(f"{name}{fleet.racks.basis}.", "racks", "missing")
    if fleet.lengths is None:
        yield Note("Decode alone has no requests.", "requests_per_s", "missing")
    elif fleet.served.ttft_s is None:
        text = "A fleet of different shapes keeps the limit but has no single time; users are without it."
        yield Note(text, "ttft_s", "missing")
    if fleet.on_average is not None and fleet.on_average < fleet.gpus:
        yield Note(
            f"{name}{plural(fleet.on_average, 'GPU')} would do on average without queueing, but miss the p99 limit.",
            "gpus",
        )
    broken = fleet.unit.spec.gpus - len(fleet.unit.gpus)
    if broken:
        yield Note(
            f"Each {fleet.unit.name} has {plural(broken, 'broken GPU')}, which are not counted.", "gpus"
        )
    yield Note(doubt_sentence(fleet.unit))


def _methods(fleet: Size) -> Iterator[str]:
    """Yield how the figures are made."""
    deployment, lengths = fleet.deployment, fleet.lengths
    yield from map(sentence, serving_words(deployment.workload, deployment.engine))
    yield from (f"Recipe: {line}." for line in recipe_lines(deployment))
    yield from sparse_lines(deployment)
    yield sentence(fleet.unjoined.rstrip("."))
    if any(pool.role == "prefill" for pool in fleet.served.pools):
        yield sentence(derate_words())
    yield "" if fleet.racks.count is None else f"Racks of {fleet.unit.name}: {fleet.racks.basis}."
    if deployment.correction.bare:
        yield f"No correction by measured runs ({input_name('physics')})."
    if lengths is not None and len(lengths.isl) > 1:
        longest = max(isl + osl for isl, osl in zip(lengths.isl, lengths.osl, strict=True))
        yield "The step of prefill is that of the longest prompts; all prompts keep the limit."
        yield from (
            sentence(text.rstrip(".")) for text in (lengths.note, deployment.model.beyond(longest)) if text
        )


def _charts(fleets: Sequence[Size], *, buys: bool) -> list[Block]:
    """Return GPUs (of a budget: tokens) and price against speed per user: each point is a fleet for that speed."""
    table = Table.of("", "cluster tok_s_per_user gpus tok_s usd_per_million_tokens")

    def row(fleet: Size, speed: float) -> Row:
        price = fleet.bill.usd_per_million(fleet.tok_s)
        return table.row(fleet, cluster=fleet.unit.name, tok_s_per_user=speed, usd_per_million_tokens=price)

    points, stars = [], []
    for fleet in fleets:
        asked = 1 / (fleet.demand.tpot_s or 1 / fleet.served.tok_s_per_user)
        speeds = {asked * 10 ** (step / SPEEDS * 1.2 - 0.6) for step in range(SPEEDS + 1)} | {asked}
        sized = ((speed, fleet.at_speed(speed)) for speed in sorted(speeds))
        points += [row(size, speed) for speed, size in sized if size is not None]
        stars.append(row(fleet, asked))
    lines, marks = table(points), table(stars)
    figures = {
        "tok_s" if buys else "gpus": "Throughput" if buys else "GPUs",
        "usd_per_million_tokens": "Price",
    }
    return [
        *(
            Chart(
                f"{name} of a speed",
                [
                    Layer(mark, of, "tok_s_per_user", key, "cluster")
                    for mark, of in (("line", lines), ("star", marks))
                ],
                log="xy",
                alt=f"{name} of each cluster by speed per user",
            )
            for key, name in figures.items()
            if any(point[key] is not None for point in points)
        ),
        Note(
            "Each point is a fleet for that speed, with one layout a pool; stars: the speed asked for.",
            kind="method",
        ),
    ]
