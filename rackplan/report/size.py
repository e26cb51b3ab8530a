"""Documents of fleets: the size for a demand or a budget, on one cluster or on several side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from cost.recipe import OtherRecipe
from cost.serving.limits import left_out_words
from cost.serving.sizes import Refused, Sizes
from cost.serving.sizing import BUDGETS, Level, Size
from rackplan.report import caches, shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import number, phrase, usd
from rackplan.report.notes import busy_words, sentence
from topology.base.units import plural

_FLEET = (
    "cluster model layout serving units domains serving_domains racks serving_gpus counted_tokens tok_s "
    "tok_s_per_gpu low_tok_s_per_gpu high_tok_s_per_gpu tok_s_per_user tok_s_per_rack requests_per_s users ttft_s "
    f"usd_per_million_tokens usd_per_million_tokens_full {shared.KINDS} tok_s_per_mw tok_s_per_mw_full "
    f"{shared.BILLED} recipe "
    "reason currency amount utilization think_s spares asked_tok_s asked_requests_per_s asked_users peak_tok_s "
    "tpot_limit_s ttft_limit_s ttft_p99_limit_s usd_per_million_tokens_limit default_limits context isl osl "
    "prefix_hit"
)
_SHOWN = (
    "gpus domains racks layout serving tok_s tok_s_per_gpu tok_s_per_user tpot_limit_s requests_per_s users ttft_s "
    "ttft_limit_s usd_per_year usd_per_million_tokens_full"
)
BEST = Record.of(
    "",
    _FLEET,
    shown=f"{_SHOWN} power_w",
    tiles="gpus racks tok_s users usd_per_year power_w",
)
CLUSTERS = Table.of(
    "clusters",
    _FLEET,
    "Fleet of each cluster",
    shown="cluster gpus racks serving tok_s requests_per_s users tok_s_per_user usd_per_million_tokens usd_per_hour "
    "power_w",
)
POOLS = shared.pools("batch step_s tok_s measured_factor measured_runs | cluster model", per="cluster")
LEVELS = Table.of(
    "levels",
    "level gpus tok_s peak_share enough_at_tpot_s usd_per_hour power_w | cluster domains requests_per_s missed_tok_s",
    "Smaller and larger fleets",
    per="cluster",
)
JOINED = Table.of("joined", "cluster units tok_s tok_s_per_gpu", "Units that share a replica", per="cluster")
PROMPTS = Table.of("prompts", "isl request_share", "Prompts")
PROOFS = Table.of("proofs", "cluster status objective bound gap", "Proof of a fleet of different shapes")
SIZE = Shape(
    "size",
    "The fleet for a demand or a budget: the cheapest, or the one that serves most; and that of each cluster.",
    (BEST, CLUSTERS, POOLS, LEVELS, caches.TIERS, caches.CACHES, JOINED, PROMPTS, PROOFS, *shared.GROUNDS),
)
SPEEDS = 14
"""Speeds per user in the charts."""
_LIMITED = {"tpot_s": "per token", "ttft_s": "to the first token", "ttft_p99_s": "to the first token at p99"}
_UNITS = {"req_s": "requests/s", "tok_s": "output tok/s", "users": "users", **BUDGETS}


def size_doc(result: Size | Sizes) -> Doc:
    """Return the document of ``rackplan size``."""
    sizes = Sizes((result,)) if isinstance(result, Size) else result
    fleets, lone, model = sizes.sizes, len(sizes.clusters) == 1, sizes.clusters[0].deployment.model.name
    buys = fleets[0].demand.currency in BUDGETS

    def rank(fleet: Size) -> tuple[float, float]:
        price = fleet.bill.usd_per_million(fleet.tok_s) or math.inf
        return -fleet.served.tok_s if buys else price, fleet.gpus

    best = min(fleets, key=rank)
    alternatives = [fleet for fleet in fleets if fleet.other and fleet is not best]
    levels = LEVELS(row for fleet in fleets for row in _levels(fleet))
    prompts = best.lengths.prompts() if best.lengths else []
    where = best.unit.name if lone else plural(len(sizes.clusters), "cluster")
    return Doc(
        SIZE,
        f"{model} on {where}: {_asked(best)}",
        list(_answer(best, len(sizes.clusters))),
        [
            BEST(_row(best), max_rows=int(lone), **_shown(best)),
            CLUSTERS(map(_row, sizes.clusters), title="", max_rows=None if not lone else 0),
            shared.set_table(*(fleet.unit for fleet in fleets)),
            *([levels] if lone else []),
            *caches.blocks(fleets),
            *(Note(str(side.error), "gpus", "missing") for side in sizes.refused),
            *(
                Note(_recipe_words(fleet.other, f"{fleet.unit.name}: "), "gpus")
                for fleet in alternatives
                if fleet.other
            ),
            *dict.fromkeys(note for fleet in fleets for note in _notes(fleet)),
            Late(lambda: _charts(fleets, buys=buys)),
        ],
        [
            *([] if lone else [levels]),
            POOLS(row for fleet in fleets for row in _pools(fleet)),
            PROMPTS(
                ({"isl": isl, "request_share": share} for isl, share in prompts),
                max_rows=12 * (len(prompts) > 1),
            ),
            *shared.grounds(
                [(fleet.deployment, fleet.bill, fleet.errors) for fleet in fleets],
                (text for fleet in fleets for text in _methods(fleet)),
                gains=(fleet.other for fleet in fleets),
            ),
            JOINED(
                JOINED.row(None, cluster=fleet.unit.name, units=units, tok_s=rate, tok_s_per_gpu=share)
                for fleet in fleets
                for units, rate in fleet.joined.items()
                for share in [rate / (units * len(fleet.unit.gpus))]
            ),
            PROOFS(
                {"cluster": fleet.unit.name, **asdict(proof)}
                for fleet in fleets
                if (proof := fleet.served.proof) is not None
            ),
        ],
    )


def _shown(best: Size) -> dict[str, str]:
    """Return the figures of conversations beside those of every fleet."""
    cached = best.lengths is not None and best.lengths.prefix_hit > 0
    return {"shown": f"{_SHOWN} prefix_hit {shared.KINDS} power_w"} if cached else {}


def _row(side: Size | Refused) -> Row:
    names = {"cluster": side.deployment.cluster.name, "model": side.deployment.model.name}
    if isinstance(side, Refused):
        return dict.fromkeys(_FLEET.split()) | names | {"reason": str(side.error)}
    served, demand, bill, lengths = side.served, side.demand, side.bill, side.lengths
    users, racks = demand.users_of(served), side.serving_racks.count
    return {
        **CLUSTERS.row(served, side, demand),
        **shared.bill_row(bill),
        **names,
        "layout": max(served.pools, key=lambda pool: (pool.role == "decode", pool.gpus)).layout,
        "gpus_idle": side.serving_gpus - served.gpus_used,
        "racks": side.racks.count,
        "counted_tokens": "output",
        **shared.band_row(side.tok_s_per_gpu, side.errors),
        "tok_s_per_rack": served.tok_s / racks if racks else None,
        "users": users,
        "asked_tok_s": side.tok_s,
        "asked_requests_per_s": lengths and side.tok_s / lengths.mean_osl,
        "asked_users": side.tok_s / served.tok_s * users,
        **{key.replace("_s", "_limit_s"): getattr(demand, key) for key in _LIMITED},
        "usd_per_million_tokens_limit": demand.usd_m,
        "default_limits": sorted(side.usual),
        "usd_per_million_tokens": bill.usd_per_million(side.tok_s),
        "usd_per_million_tokens_full": bill.usd_per_million(served.tok_s),
        "tok_s_per_mw": bill.tok_s_per_megawatt(side.tok_s),
        "tok_s_per_mw_full": bill.tok_s_per_megawatt(served.tok_s),
        "context": side.deployment.workload.context,
        "isl": lengths and lengths.mean_isl,
        "osl": lengths and lengths.mean_osl,
        "prefix_hit": lengths and lengths.prefix_hit,
        **shared.kinds_row(side.token_prices),
        "recipe": side.deployment.recipe,
        "reason": "",
    }


def _pools(fleet: Size) -> Iterator[Row]:
    names = {"cluster": fleet.unit.name, "model": fleet.deployment.model.name}
    for pool, tok_s in fleet.pool_tok_s():
        yield POOLS.row(
            pool, tok_s=tok_s, **names, **shared.near_row(pool.near), **shared.cache_row(pool.cache)
        )


def _levels(fleet: Size) -> Iterator[Row]:
    """Yield the fleet between smaller ones and a larger one, and what each lacks at the peak."""
    chosen = Level(fleet.served.units, fleet.served.tok_s, fleet.demand.tpot_s)
    larger = [("larger", fleet.more)] if fleet.more else []
    for name, level in (*(("smaller", smaller) for smaller in fleet.fewer[::-1]), ("this", chosen), *larger):
        yield LEVELS.row(
            fleet.bill_of(level.units),
            cluster=fleet.unit.name,
            level=name,
            gpus=fleet.gpus_of(level.units),
            domains=fleet.domains_of(level.units),
            tok_s=level.tok_s,
            requests_per_s=fleet.lengths and level.tok_s / fleet.lengths.mean_osl,
            peak_share=level.tok_s / fleet.peak_tok_s,
            missed_tok_s=max(0.0, fleet.peak_tok_s - level.tok_s),
            enough_at_tpot_s=level.tpot_s,
        )


def _asked(fleet: Size) -> str:
    """Return the demand or the budget, and the requests."""
    demand, context = fleet.demand, plural(fleet.deployment.workload.context, "token")
    amount = number(demand.amount) if demand.amount >= 1e6 else f"{demand.amount:,.10g}"
    of = fleet.lengths.brief() if fleet.lengths else f"decode at {context} of context"
    return f"{'at most ' * (demand.currency in BUDGETS)}{amount} {_UNITS[demand.currency]}, {of}"


def _answer(fleet: Size, clusters: int) -> Iterator[str]:
    """Yield the fleet, what it costs, what it takes with the other recipe, and how sure that is."""
    row, recipe_gain, demand = _row(fleet), fleet.other, fleet.demand
    price, power, buys = row["usd_per_million_tokens"], row["power_w"], demand.currency in BUDGETS
    how = "serves the most" if buys else "takes the fewest GPUs" if price is None else "is the cheapest"
    lead = f"{row['cluster']} {how} of {plural(clusters, 'cluster')}: " * (clusters > 1)
    spare = f" and {plural(demand.spares, 'spare domain')}" * bool(demand.spares)
    recipe = (
        ""
        if recipe_gain is None
        else f", {shared.whose_recipe('usual' if recipe_gain.recipe != 'usual' else '')}"
    )
    key = {"req_s": "requests_per_s", "users": "users"}.get(demand.currency)
    serve = (
        f"{lead}{phrase(row, 'gpus')} ({row['units']:,} x {row['cluster']}{spare}) serve "
        f"{f'{phrase(row, key)}, ' if key else ''}{phrase(row, 'tok_s', 'output')} at "
        f"{phrase(row, 'tok_s_per_user')}{recipe}."
    )
    cost = "have no known price"
    if price is not None:
        cost = f"cost {phrase(row, 'usd_per_hour')}, or {usd(price)} USD per million output tokens"
    money = f"They {cost}, and draw {'an unknown power' if power is None else phrase(row, 'power_w')}."
    money = f"{money} {caches.answer(fleet)}".strip()
    yield from [serve, money] if recipe_gain is None else [f"{serve} {money}", _recipe_words(recipe_gain)]
    sure = shared.accuracy_sentence(fleet.errors)
    band = max((error.band for error in fleet.errors), default=0.0) * (not buys)
    yield sure + f" At the low end the fleet must be {band:.2f}x as large." * bool(band)


def _recipe_words(gain: OtherRecipe, name: str = "") -> str:
    whose = f"{shared.whose_recipe(gain.recipe)} ({gain.words})"
    return f"{name}{plural(gain.gpus, 'GPU')} {whose}, each with {gain.ratio:.2g}x the throughput."


def _notes(fleet: Size) -> Iterator[Note]:
    """Yield what is missing, left out or in doubt."""
    name, demand = fleet.unit.name, fleet.demand
    yield from (
        Note(sentence(text[:-1]), "default_limits", "warning") for text in left_out_words(fleet.left_out)
    )
    yield from shared.missing_notes(fleet.bill)
    if fleet.racks.count is None:
        yield Note(f"{name}: {fleet.racks.basis}.", "racks", "missing")
    if fleet.lengths is None:
        yield Note("Decode alone has no requests.", "requests_per_s", "missing")
    elif fleet.served.ttft_s is None:
        text = "A fleet of different shapes keeps the limit but has no single time; users are without it."
        yield Note(text, "ttft_s", "missing")
    limits = {key: getattr(demand, key) for key in _LIMITED}
    limit_texts = (
        f"{limit * 1e3:,.4g} ms {_LIMITED[key]}{' (default)' * (key in fleet.usual)}"
        for key, limit in limits.items()
        if limit is not None
    )
    yield Note(f"Limits: {', '.join(limit_texts) or 'none'}.", "default_limits")
    if fleet.on_average is not None and fleet.on_average < fleet.gpus:
        fewer = plural(fleet.on_average, "GPU")
        yield Note(f"{fewer} of {name} would do without queueing, but miss the p99 limit.", "gpus")
    for pool in fleet.served.pools:
        if pool.role != "prefill":
            yield shared.cache_note(pool.cache, f"{name}, {pool.layout}")
    yield Note(shared.doubt_sentence(fleet.unit))


def _methods(fleet: Size) -> Iterator[str]:
    """Yield how the figures are made."""
    lengths, broken = fleet.lengths, fleet.unit.spec.gpus - len(fleet.unit.gpus)
    yield sentence(fleet.unjoined.rstrip("."))
    if any(pool.role == "prefill" for pool in fleet.served.pools):
        yield sentence(busy_words())
    if fleet.racks.count is not None:
        yield f"Racks of {fleet.unit.name}: {fleet.racks.basis}."
    if broken:
        yield f"Each {fleet.unit.name} has {plural(broken, 'broken GPU')}, which are not counted."
    if lengths is not None and len(lengths.isl) > 1:
        longest = max(isl + osl for isl, osl in zip(lengths.isl, lengths.osl, strict=True))
        yield "The step of prefill is that of the longest prompts; all prompts keep the limit."
        yield from map(sentence, (lengths.note, fleet.deployment.model.beyond(longest).rstrip(".")))


def _charts(fleets: Sequence[Size], *, buys: bool) -> list[Block]:
    """Return GPUs (of a budget: tokens) and price against speed per user: each point is a fleet for that speed."""
    table = Table.of("", "cluster tok_s_per_user gpus tok_s usd_per_million_tokens")

    def row(fleet: Size, speed: float) -> Row:
        price = fleet.bill.usd_per_million(fleet.tok_s)
        return table.row(fleet, cluster=fleet.unit.name, tok_s_per_user=speed, usd_per_million_tokens=price)

    points, stars = [], []
    for fleet in fleets:
        target = 1 / (fleet.demand.tpot_s or 1 / fleet.served.tok_s_per_user)
        speeds = {target * 10 ** (step / SPEEDS * 1.2 - 0.6) for step in range(SPEEDS + 1)} | {target}
        points += [row(size, speed) for speed in speeds if (size := fleet.at_speed(speed)) is not None]
        stars.append(row(fleet, target))
    figures = [("tok_s", "Throughput") if buys else ("gpus", "GPUs"), ("usd_per_million_tokens", "Price")]

    def chart(key: str, name: str) -> Chart:
        lines = Layer("line", table(points), "tok_s_per_user", key, "cluster")
        return Chart(
            f"{name} by speed per user", [lines, replace(lines, mark="star", table=table(stars))], log="xy"
        )

    charts = [chart(*figure) for figure in figures if any(point[figure[0]] is not None for point in points)]
    text = "Each point is a fleet for that speed, with one layout a pool; stars: the speed asked for."
    return [*charts, Note(text, kind="method")]
