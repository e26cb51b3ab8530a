"""The size of a fleet, or of several side by side: what it takes, gives and costs, and what the smaller ones miss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, error_to_dict, widest
from cost.money.bill import HOURS_PER_YEAR, BillPart
from cost.recipe import OtherRecipe
from cost.serving.limits import left_out_words, rounded_down, rounded_up
from cost.serving.pools import POOL_DERATE
from cost.serving.sizes import Refused, Sizes
from cost.serving.sizing import BUDGETS, Level, Size
from cost.serving.supply import ProofData
from rackplan.report.notes import (
    accuracy_words,
    band_words,
    chip_words,
    cluster_doubts,
    near_words,
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
    section,
    sections,
)
from rackplan.views.data import SetData, taken
from rackplan.views.forward import power, price
from rackplan.views.money import dollars, power_scope, power_words, rate_words, watts
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import other_recipe_blocks, what_if_blocks
from topology.base.figures import EvidenceLabel
from topology.base.units import plural


@dataclass(frozen=True, kw_only=True)
class DemandData:
    """What was asked of a size.

    Attributes
    ----------
    currency, amount:
        What was given (``req_s``, ``tok_s``, ``users``, ``gpus``, ``mw``, ``usd_h``), and how much of it.
    tok_s, requests_per_s, users:
        Output tokens, requests (null: decode alone) and users at once, on average.
    peak_tok_s, utilization:
        At the peak, and the mean over it.
    think_s, usd_m:
        Seconds that a user thinks; most USD of a million output tokens that the speed is found by (null: it is not).
    spares:
        Domains kept for failures.
    context, isl, osl, prompts:
        Tokens in each sequence; of prompts and answers on average (null: decode alone); pairs of a prompt's tokens
        and its share.
    tpot_s, tpot_default, ttft_s, ttft_default:
        Longest time per token and to the first one (null: no limit), and whether they are the defaults.
    ttft_p99_s:
        Longest time to the first token that 99 of 100 requests may see under load, and the time per token with it;
        null: waiting is left out.
    """

    currency: str
    amount: float
    tok_s: float
    requests_per_s: float | None
    users: float
    peak_tok_s: float
    utilization: float
    think_s: float
    usd_m: float | None
    spares: int
    context: int
    isl: float | None
    osl: float | None
    prompts: list[tuple[float, float]] | None
    tpot_s: float | None
    tpot_default: bool
    ttft_s: float | None
    ttft_default: bool
    ttft_p99_s: float | None


@dataclass(frozen=True, kw_only=True)
class LevelData:
    """A smaller fleet.

    Attributes
    ----------
    gpus, domains, tok_s, requests_per_s, missed_tok_s:
        How many, what they give (requests are null of decode alone), and what they miss of the peak.
    enough_at_tpot_s:
        The shortest time per token at which they would do; null: none.
    usd_per_hour, power_w:
        Null where there is no figure.
    """

    gpus: int
    domains: int
    tok_s: float
    requests_per_s: float | None
    missed_tok_s: float
    enough_at_tpot_s: float | None
    usd_per_hour: float | None
    power_w: float | None


@dataclass(frozen=True, kw_only=True)
class JoinedData:
    """Units joined by their fabric.

    Attributes
    ----------
    units, tok_s, tok_s_per_gpu:
        How many, and what they give.
    """

    units: int
    tok_s: float
    tok_s_per_gpu: float


@dataclass(frozen=True, kw_only=True)
class PoolData:
    """Workers of one kind.

    Attributes
    ----------
    role:
        ``decode``, ``prefill`` or ``both``.
    gpus, workers, gpus_per_worker:
        Of all, how many workers, and GPUs of each.
    layout, batch, step_s:
        Of one (``EP72 TP1 PP1``), sequences or prompts per GPU, and expected seconds of a step.
    measured_factor, measured_runs:
        What measured runs near a decode step took over the physics, in ``step_s``, and how many are near.
    """

    role: str
    gpus: int
    workers: int
    gpus_per_worker: int
    layout: str
    batch: float
    step_s: float
    measured_factor: float
    measured_runs: int


@dataclass(frozen=True, kw_only=True)
class SizeResult(SetData):
    """What ``rackplan size`` prints of one cluster: the fleet that serves a demand, or that a budget buys.

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
    serving, requests_per_s, ttft_s:
        ``one pool`` or ``two pools``; null of decode alone.
    users:
        Users at once: requests in flight by Little's law, and those who think.
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
    other_recipe:
        What the recipe that is not in force would bring; null: about the same.
    """

    model: str
    unit: str
    units: int
    asked: DemandData
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
    serving: str | None
    requests_per_s: float | None
    users: float
    ttft_s: float | None
    tok_s_per_rack: float | None
    layout: str
    proof: ProofData | None
    pools: list[PoolData]
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
    missing: tuple[str, ...]
    next: LevelData | None
    fewer: list[LevelData]
    joined: list[JoinedData]
    not_joined: str | None
    calibration: CalibrationData | None
    other_recipe: OtherRecipe | None


@dataclass(frozen=True, kw_only=True)
class RefusedData:
    """A cluster that cannot serve the demand: ``missing`` is the reason.

    Attributes
    ----------
    model, unit:
        Names.
    gpus, domains, racks, power_w, usd_per_hour, usd_per_year, usd_per_million_tokens, tok_s, tok_s_per_gpu:
        Null, as are all others.
    tok_s_per_user, requests_per_s, users, layout, serving, pools, next:
        Null.
    missing:
        The reason.
    """

    model: str
    unit: str
    gpus: None = None
    domains: None = None
    racks: None = None
    power_w: None = None
    usd_per_hour: None = None
    usd_per_year: None = None
    usd_per_million_tokens: None = None
    tok_s: None = None
    tok_s_per_gpu: None = None
    tok_s_per_user: None = None
    requests_per_s: None = None
    users: None = None
    layout: None = None
    serving: None = None
    pools: None = None
    next: None = None
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SizesResult:
    """What ``rackplan size`` prints of several clusters.

    Attributes
    ----------
    clusters:
        What it prints of each.
    """

    clusters: list[SizeResult | RefusedData]


SizePrinted = SizeResult | SizesResult


def size_result(found: Size) -> SizeResult:
    """Return a size as data."""
    served, demand, bill, lengths = found.served, found.demand, found.bill, found.lengths
    main = max(served.pools, key=lambda pool: (pool.role == "decode", pool.gpus))
    missing = [*bill.missing]
    if found.racks.count is None:
        missing.append(f"racks: {found.racks.basis}")
    if lengths is None:
        missing.append("requests_per_s, serving, ttft_s: decode only has no requests.")
    elif served.ttft_s is None:
        missing.append(
            "ttft_s: a fleet of different shapes meets the limit but has no single value; the number of "
            "users excludes it."
        )
    serving_racks = found.serving_racks.count
    fewer = [_level(found, level) for level in found.fewer]
    each, used, users = len(found.unit.gpus), found.tok_s / served.tok_s, demand.users_of(served)
    asked = taken(
        DemandData,
        demand,
        tok_s=found.tok_s,
        requests_per_s=_requests_per_s(found, found.tok_s),
        users=used * users,
        peak_tok_s=found.peak_tok_s,
        context=found.deployment.workload.context,
        isl=None if lengths is None else lengths.mean_isl,
        osl=None if lengths is None else lengths.mean_osl,
        prompts=None if lengths is None else lengths.prompts(),
        tpot_default="tpot_s" in found.usual,
        ttft_default="ttft_s" in found.usual,
    )
    more = {name: value for name, value in vars(bill).items() if name not in ("gpus", "missing")}
    return SizeResult(
        model=found.deployment.model.name,
        unit=found.unit.name,
        units=served.units,
        asked=asked,
        gpus=found.gpus,
        serving_gpus=found.serving_gpus,
        gpus_idle=found.serving_gpus - served.gpus_used,
        domains=found.domains,
        serving_domains=found.serving_domains,
        racks=found.racks.count,
        tokens="output",
        tok_s=served.tok_s,
        tok_s_per_gpu=found.tok_s_per_gpu,
        tok_s_per_user=served.tok_s_per_user,
        serving=served.serving,
        requests_per_s=served.requests_per_s,
        users=users,
        ttft_s=served.ttft_s,
        tok_s_per_rack=served.tok_s / serving_racks if serving_racks else None,
        layout=main.layout,
        proof=served.proof,
        pools=[taken(PoolData, pool) for pool in served.pools],
        usd_per_million_tokens=bill.usd_per_million(found.tok_s),
        usd_per_million_tokens_full=bill.usd_per_million(served.tok_s),
        tok_s_per_mw=bill.tok_s_per_megawatt(found.tok_s),
        tok_s_per_mw_full=bill.tok_s_per_megawatt(served.tok_s),
        **more,
        missing=tuple(missing),
        **set_data(found.unit),
        next=fewer[0] if fewer else None,
        fewer=fewer,
        joined=[
            JoinedData(units=k, tok_s=rate, tok_s_per_gpu=rate / (k * each))
            for k, rate in found.joined.items()
        ],
        not_joined=found.unjoined or None,
        calibration=error_to_dict(found.errors),
        other_recipe=found.other,
    )


def _level(found: Size, level: Level) -> LevelData:
    bill = found.bill_of(level.units)
    return taken(
        LevelData,
        bill,
        gpus=found.gpus_of(level.units),
        domains=found.domains_of(level.units),
        tok_s=level.tok_s,
        requests_per_s=_requests_per_s(found, level.tok_s),
        missed_tok_s=found.peak_tok_s - level.tok_s,
        enough_at_tpot_s=level.tpot_s,
    )


def _requests_per_s(found: Size, tok_s: float) -> float | None:
    return None if found.lengths is None else tok_s / found.lengths.mean_osl


def size_view(found: Size | Sizes) -> View:
    """Return the blocks and the data of ``rackplan size``."""
    if isinstance(found, Sizes):
        return _sizes_view(found)
    data = size_result(found)
    title = f"{data.model} on {data.unit}: {_asked(data.asked)}"

    def lead() -> list[Block]:
        return [*_headline(found, data), *_pictures([found]), _steps_table(found, data)]

    return View(
        sections(
            [Heading(title), Page(lead)],
            _answer(found, data),
            [Details([Heading("Details", 2, folded=True), *_details(found, data)])],
        ),
        data,
    )


def _headline(found: Size, data: SizeResult, others: str = "") -> list[Block]:
    """Return the answer in three lines: the fleet, its cost and power, and the accuracy.

    ``others``: cost of other clusters.
    """
    asked, error = data.asked, widest(found.errors)
    racks = "" if data.racks is None else f" in {plural(data.racks, 'rack')}"
    served = f"{_many(data.tok_s)} output tok/s, {rounded_down(data.users)} concurrent users"
    served += f" at {data.tok_s_per_user:,.1f} tok/s/user"
    need = f"{_asked(asked)}: {plural(data.gpus, 'GPU')}, {data.domains:,} x {data.unit}{racks}, for {served}"
    money = [price(found.bill.totals(found.tok_s)), power(found.bill)]
    if data.usd_per_hour is not None and data.usd_per_year is not None:
        hour, year = rounded_up(data.usd_per_hour), _many(data.usd_per_year)
        money.insert(0, f"{hour} USD per hour, {year} USD per year ({data.price_basis})")
    accuracy = f"Accuracy: {accuracy_words(found.errors)}"
    if error is not None and asked.currency not in BUDGETS:
        accuracy += f"; at the low end of that band the fleet must be {error.band:.2f}x as large"
    lines = need, ", ".join(money) + others, accuracy
    return [Text(sentence(line), style="forward") for line in lines]


SPEEDS = 14
"""Number of speeds per user in the charts."""


def _pictures(sizes: Sequence[Size]) -> list[Block]:
    """Return charts of GPUs (for a budget: tokens/s) and USD per million tokens against speed per user."""
    from rackplan.views.charts import size_chart

    buys = sizes[0].demand.currency in BUDGETS
    title = "output tok/s" if buys else "GPUs"
    amounts: dict[str, list[tuple[float, float]]] = {}
    costs: dict[str, list[tuple[float, float]]] = {}
    stars: list[tuple[float, float, float | None]] = []
    for one in sizes:
        asked = 1 / (one.demand.tpot_s or 1 / one.served.tok_s_per_user)
        speeds = {asked * 10 ** (step / SPEEDS * 1.2 - 0.6) for step in range(SPEEDS + 1)} | {asked}
        found = [(speed, size) for speed in sorted(speeds) if (size := one.at_speed(speed)) is not None]
        name, priced = one.unit.name, one.bill.usd_per_hour is not None
        amounts[name] = [(speed, size.tok_s if buys else size.gpus) for speed, size in found]
        costs[name] = [(speed, size.usd_per_million) for speed, size in found] if priced else []
        amount = one.tok_s if buys else one.gpus
        stars.append((asked, amount, one.usd_per_million if priced else None))
    drawn = [
        Chart("need", size_chart(amounts, [star[:2] for star in stars], title), f"{title} by speed", 360)
    ]
    if any(costs.values()):
        marks = [(speed, usd) for speed, _, usd in stars if usd is not None]
        title = "USD per million output tokens"
        drawn.append(Chart("cost", size_chart(costs, marks, title), f"{title} by speed", 360))
    note = (
        "Each point is a fleet sized for that speed per user, with one layout per pool; stars: the "
        "requested speed."
    )
    return [Beside(drawn), Text(note, style="note")]


def _steps_table(found: Size, data: SizeResult) -> Table:
    """Return the fleet beside the next smaller and the next larger one, with performance and cost."""
    levels = [
        *([("one step smaller", data.next)] if data.next else []),
        ("this fleet", _level(found, Level(found.served.units, data.tok_s, found.demand.tpot_s))),
        *([("one step larger", _level(found, found.more))] if found.more else []),
    ]

    def known(value: float | None, words: Callable[[float], str]) -> str:
        return "-" if value is None else words(value)

    return Table.of(
        levels,
        ("", lambda row: row[0]),
        ("GPUs", lambda row: f"{row[1].gpus:,}"),
        ("output tok/s", lambda row: _many(row[1].tok_s)),
        ("of the peak", lambda row: f"{row[1].tok_s / data.asked.peak_tok_s:.1%}"),
        (
            "meets peak at tok/s/user",
            lambda row: known(row[1].enough_at_tpot_s, lambda tpot: f"{1 / tpot:,.1f}"),
        ),
        ("USD/h", lambda row: known(row[1].usd_per_hour, rounded_up)),
        ("USD/year", lambda row: known(row[1].usd_per_hour, lambda usd: _many(usd * HOURS_PER_YEAR))),
        ("MW", lambda row: known(row[1].power_w, lambda watts: rounded_up(watts / 1e6))),
        title="Next smaller and larger fleets",
    )


def _sizes_view(found: Sizes) -> View:
    """Return the fleets of several clusters, one row each, and the details of each."""
    data = [size_result(one) if isinstance(one, Size) else _refused(one) for one in found.clusters]
    several = list(zip(found.sizes, [one for one in data if isinstance(one, SizeResult)], strict=True))
    first, asked = several[0][0], several[0][1].asked

    def shown(value: float | None, words: Callable[[float], str]) -> str:
        return "-" if value is None else words(value)

    def megawatts(power_w: float) -> str:
        return rounded_up(power_w / 1e6)

    table = Table.of(
        [one for _, one in several],
        ("cluster", lambda one: one.unit),
        ("GPUs", lambda one: f"{one.gpus:,}"),
        ("racks", lambda one: shown(one.racks, "{:,}".format)),
        ("serving", lambda one: one.serving or "decode"),
        ("tok/s", lambda one: _many(one.tok_s)),
        ("requests/s", lambda one: shown(one.requests_per_s, rate_words)),
        ("users", lambda one: rounded_down(one.users)),
        ("tok/s/user", lambda one: f"{one.tok_s_per_user:,.1f}"),
        ("$/Mtok", lambda one: shown(one.usd_per_million_tokens, dollars)),
        ("USD/h", lambda one: shown(one.usd_per_hour, rounded_up)),
        ("MW", lambda one: shown(one.power_w, megawatts)),
    )
    priced = sorted((usd, one.unit) for _, one in several if (usd := one.usd_per_million_tokens) is not None)
    cheapest = ", ".join(f"{name} {dollars(usd)} ({usd / priced[0][0]:.2f}x)" for usd, name in priced)
    buys = asked.currency in BUDGETS
    most = sorted(((one.tok_s, one.unit) for _, one in several), reverse=True) if buys else []
    serves = ", ".join(f"{name} {_many(tok_s)} ({tok_s / most[0][0]:.2f}x)" for tok_s, name in most)
    bands = (f"{one.unit.name}: {words}" for one, _ in several if (words := accuracy_words(one.errors)))
    title = f"{first.deployment.model.name} on {plural(len(found.clusters), 'cluster')}: {_asked(asked)}"
    answer = [
        *labelled("Requests", _requests(first)),
        *labelled("Limits", _limits(first, asked)),
        GAP,
        table,
        GAP,
        *labelled("Most", f"output tok/s for the budget: {serves}" if serves else ""),
        *labelled("Cheapest", f"USD per million output tokens: {cheapest}" if cheapest else ""),
        *labelled("Band", "; ".join(bands)),
        *labelled("Measured", "; ".join(f"{of.unit}: {_measured(one, of)}" for one, of in several)),
        *(Text(str(one.error), one.deployment.cluster.name) for one in found.refused),
        *other_recipe_blocks([one.other for one, _ in several if one.other]),
    ]
    each = [[*section(of.unit, folded=True), *_answer(one, of), *_details(one, of)] for one, of in several]

    def lead() -> list[Block]:
        def rank(pair: tuple[Size, SizeResult]) -> tuple[float, float]:
            _, one = pair
            return -one.tok_s if buys else one.usd_per_million_tokens or math.inf, one.gpus

        beside = "".join(
            f"; {name} serves {_many(tok_s)} ({tok_s / most[0][0]:.2f}x)" for tok_s, name in most[1:]
        )
        beside += f"; USD per million tokens {cheapest}" * (len(priced) > 1)
        return [
            *_headline(*min(several, key=rank), beside),
            *_pictures(found.sizes),
        ]

    return View(
        sections([Heading(title), Page(lead)], answer, [Details(sections(*each))]), SizesResult(clusters=data)
    )


def _refused(one: Refused) -> RefusedData:
    names = one.deployment.model.name, one.deployment.cluster.name
    return RefusedData(model=names[0], unit=names[1], missing=(str(one.error),))


def _answer(found: Size, data: SizeResult) -> list[Block]:
    """Return the answer: the fleet, its performance, limits, cost and accuracy."""
    asked, errors, lengths = data.asked, found.errors, found.lengths
    spare = f", {plural(asked.spares, 'domain')} spare" if asked.spares else ""
    racks = "" if data.racks is None else f" and {found.racks.words}"
    pools = ", ".join(f"{pool.workers:,} x {pool.layout} ({pool.role})" for pool in data.pools)
    serving = f"{data.serving}: " if data.serving else ""
    served = [f"{_many(data.tok_s)} output tok/s"]
    if data.requests_per_s is not None and lengths is not None:
        served.append(
            f"{rate_words(data.requests_per_s)} {lengths.brief().replace('requests', 'requests/s', 1)}"
        )
    think = f" (think time {asked.think_s:g} s)" if asked.think_s else ""
    served.append(f"{rounded_down(data.users)} concurrent users{think}")
    mean = f"; {_many(asked.tok_s)} output tok/s on average" if asked.utilization < 1 else ""
    speed = f"{data.tok_s_per_user:,.1f} tok/s/user"
    if data.ttft_s is not None:
        speed += f", first token {data.ttft_s:,.2f} s"
    fewest = f"one unit is the minimum; the peak uses {asked.peak_tok_s / data.tok_s:.1%} of it"
    cost = []
    if data.usd_per_million_tokens is not None and data.usd_per_hour is not None:
        cost = [
            f"{dollars(data.usd_per_million_tokens)} USD per million output tokens",
            f"{rounded_up(data.usd_per_hour)} USD/h (basis {data.price_basis})",
        ]
    if data.power_w is not None:
        cost.append(f"{rounded_up(data.power_w / 1e6)} MW {power_scope(found.bill)}")
    return [
        *labelled(
            "Fleet", f"{data.gpus:,} GPUs: {plural(data.domains, 'domain')}{racks}{spare}; {serving}{pools}"
        ),
        *labelled("Serves", f"{', '.join(served)}{mean}"),
        *labelled("Speed", f"{speed}; limits: {_limits(found, asked)}"),
        *labelled("Note", *left_out_words(found.left_out)),
        *labelled("On average", *_average_words(found, data)),
        *labelled("Cost", ", ".join(cost)),
        *labelled(
            "Band", f"{data.tok_s_per_gpu:,.0f} output tok/s/GPU{band_words(data.tok_s_per_gpu, errors)}"
        ),
        *labelled("Measured", _measured(found, data)),
        *labelled("Fewer", _level_words(data, data.next) if data.next else fewest),
        *other_recipe_blocks([found.other] if found.other else []),
    ]


def _details(found: Size, data: SizeResult) -> list[Block]:
    deployment, errors = found.deployment, found.errors
    pools = Table.of(
        data.pools,
        ("workers", lambda pool: f"{pool.workers:,} x {pool.layout}"),
        ("role", lambda pool: pool.role),
        ("GPUs each", lambda pool: f"{pool.gpus_per_worker:,}"),
        ("GPUs", lambda pool: f"{pool.gpus:,}"),
        ("batch", lambda pool: f"{pool.batch:.4g}"),
        ("step ms", lambda pool: f"{pool.step_s * 1e3:,.2f}"),
    )
    legend = [
        *labelled("Serving", "; ".join(serving_words(deployment.workload, deployment.engine))),
        *labelled("Recipe", *recipe_lines(deployment)),
        *what_if_blocks(deployment),
        *labelled("Replicas", _joined_words(data)),
        *labelled("Proof", _proof_words(found)),
        *labelled("Derate", "" if found.lengths is None else derate_words()),
        *labelled("Kernels", *map(chip_words, errors)),
        *labelled("Prices", *_prices(found)),
        *labelled("Power", power_words(found.bill.totals(found.tok_s))),
        *labelled("Racks", "" if data.racks is None else found.racks.basis),
        *labelled("Left out", *data.missing),
        *labelled("Note", *_notes(found)),
    ]
    demand = [
        *labelled("Requests", _requests(found)),
        *set_blocks("Set", found.unit),
        *labelled(
            "Rack", f"{_many(data.tok_s_per_rack)} output tok/s per rack" if data.tok_s_per_rack else ""
        ),
        *labelled("Idle", f"{plural(data.gpus_idle, 'GPU')} without a replica" if data.gpus_idle else ""),
        *labelled("Fewer", *(_level_words(data, level) for level in data.fewer[1:])),
    ]
    return sections(demand, [_money_table(data)], [pools], legend)


def _measured(found: Size, data: SizeResult) -> str:
    """Return how measured runs corrected the steps of the decode pools."""
    if found.deployment.correction.bare:
        return "no correction by measured runs (--physics)"
    near = {
        f"{pool.layout} ({pool.role}): {near_words(pool.measured_factor, pool.measured_runs)}"
        for pool in data.pools
        if pool.role != "prefill"
    }
    return "; ".join(sorted(near))


def _asked(asked: DemandData) -> str:
    """Return the demand or the budget."""
    words = {"req_s": "requests/s", "tok_s": "output tok/s", "users": "users", **BUDGETS}[asked.currency]
    if asked.currency in BUDGETS:
        return f"at most {asked.amount:,.10g} {words}"
    return f"{_many(asked.amount)} {words}"


def derate_words() -> str:
    """Return the derating of two pools."""
    return (
        f"two pools serve {POOL_DERATE.value:g} of the rate of the slower pool ({POOL_DERATE.kind.label}: "
        f"{POOL_DERATE.source})"
    )


def _average_words(found: Size, data: SizeResult) -> tuple[str, ...]:
    """Return the GPUs that suffice without queueing, if fewer."""
    few = found.on_average
    if few is None or few >= data.gpus:
        return ()
    return (f"{few:,} GPUs suffice on average, queueing excluded, but miss the p99 limit",)


def _limits(found: Size, asked: DemandData) -> str:
    """Return the limits, marking defaults."""
    speed, first = "none on the speed", "none on the first token"
    if asked.tpot_s is not None:
        speed = f"{1 / asked.tpot_s:.4g} tok/s/user{' (default)' * asked.tpot_default}"
    if asked.usd_m is not None:
        speed = f"{asked.usd_m:g} USD per million output tokens"
    if asked.ttft_s is not None:
        first = f"first token {asked.ttft_s:g} s{' (default)' * asked.ttft_default}"
    if asked.ttft_p99_s is not None:
        first += f" with queueing excluded, p99 {asked.ttft_p99_s:g} s under load"
    return speed if found.lengths is None else f"{speed}, {first}"


def _requests(found: Size) -> str:
    lengths = found.lengths
    if lengths is None:
        return f"decode only, at {plural(found.deployment.workload.context, 'token')} of context"
    if len(lengths.isl) == 1:
        return f"prompts of {lengths.isl[0]:,} and answers of {plural(lengths.osl[0], 'token')}"
    prompts = ", ".join(f"{isl:,} ({share:.3g})" for isl, share in lengths.prompts())
    return (
        f"{len(lengths.isl):,} lengths, {lengths.mean_isl:,.0f} + {lengths.mean_osl:,.0f} tokens on average; "
        f"{lengths.context:,} cached tokens per sequence on average; prompt lengths (share): {prompts}"
    )


def _money_table(data: SizeResult) -> Table:
    """Return cost and power, at the demand and at capacity."""

    def row(name: str, demand: str, capacity: str = "") -> tuple[str, str, str]:
        return name, demand, capacity or demand

    rows = [row("output tok/s", _many(data.asked.tok_s), _many(data.tok_s))]
    if data.requests_per_s is not None and data.asked.requests_per_s is not None:
        rows.append(row("requests/s", rate_words(data.asked.requests_per_s), rate_words(data.requests_per_s)))
    rows.append(row("concurrent users", rounded_down(data.asked.users), rounded_down(data.users)))
    if data.usd_per_million_tokens is not None and data.usd_per_million_tokens_full is not None:
        per_token = dollars(data.usd_per_million_tokens), dollars(data.usd_per_million_tokens_full)
        rows.append(row("USD per million tokens", *per_token))
    if data.usd_per_hour is not None and data.usd_per_year is not None:
        rows.append(row("USD/h", dollars(data.usd_per_hour)))
        rows.append(row("USD/year", dollars(data.usd_per_year)))
    if data.tok_s_per_mw is not None and data.tok_s_per_mw_full is not None:
        rows.append(row("tok/s per MW", rate_words(data.tok_s_per_mw), rate_words(data.tok_s_per_mw_full)))
    if data.power_w is not None:
        rows.append(row("power", watts(data.power_w)))
    return Table(("cost (with spare and idle GPUs)", "at the demand", "at capacity"), rows)


def _prices(found: Size) -> list[str]:
    bill = found.bill
    prices = (
        f"{part.name} {part.usd_per_hour.value:g} USD/h, {part.usd_per_hour.kind}"
        for part in bill.parts
        if part.usd_per_hour is not None
    )
    text = "; ".join(prices)
    return [f"basis {bill.price_basis} (--price-basis): {text}"] if text else []


def _level_words(data: SizeResult, level: LevelData) -> str:
    """Return what a smaller fleet serves, lacks and saves."""
    requests = "" if level.requests_per_s is None else f", {rate_words(level.requests_per_s)} requests/s"
    words = f"{level.gpus:,} GPUs serve {_many(level.tok_s)} output tok/s{requests}, "
    words += f"{_share(level.missed_tok_s / data.asked.peak_tok_s)} below the peak"
    if data.asked.tpot_s is not None:
        longer = level.enough_at_tpot_s
        words += " at any speed" if longer is None else f"; they meet it at {longer * 1e3:,.4g} ms per token"
    if data.usd_per_hour is not None and level.usd_per_hour is not None:
        words += f"; saves {dollars(data.usd_per_hour - level.usd_per_hour)} USD/h"
    return words


def _share(value: float) -> str:
    return f"{value:.1%}" if value >= 0.001 else f"{100 * value:.1g}%"


def _joined_words(data: SizeResult) -> str:
    """Return throughput per GPU by how many units share a replica."""
    units = ", ".join(f"{one.units:,}" for one in data.joined)
    rates = ", ".join(f"{one.tok_s_per_gpu:,.0f}" for one in data.joined)
    text = f"tok/s/GPU when {units} units of {data.unit} share a replica: {rates}" * (len(data.joined) > 1)
    return "; ".join(filter(None, (text, (data.not_joined or "").rstrip("."))))


def _proof_words(found: Size) -> str:
    """Return the proof of a fleet of different shapes; empty with one layout per pool."""
    proof = found.served.proof
    if proof is None:
        return ""
    rates = f"{_many(proof.objective)} output tok/s on {plural(found.served.joined, 'unit')}"
    return f"{proof.status}: {rates}, upper bound {_many(proof.bound)}, gap {proof.gap:.2%}"


def _notes(found: Size) -> list[str]:
    """Return notes on the unit."""
    lengths, unit = found.lengths, found.unit
    broken = unit.spec.gpus - len(unit.gpus)
    notes = [f"each {unit.name} has {plural(broken, 'broken GPU')}, which are not counted"] if broken else []
    if lengths is not None and len(lengths.isl) > 1:
        longest = max(isl + osl for isl, osl in zip(lengths.isl, lengths.osl, strict=True))
        step = "the prefill row shows the longest prompts; all prompts meet the limit"
        notes += filter(None, (step, lengths.note, found.deployment.model.beyond(longest)))
    return [*notes, *filter(None, [cluster_doubts(unit)])]


def _many(value: float) -> str:
    """Return a large number as people write it: 200 M, 128 k."""
    for factor, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * (1 - 5e-5):
            return f"{value / factor:,.4g} {word}" if value < 1e13 else f"{value / factor:,.0f} {word}"
    return f"{value:,.4g}"
