"""The size of a fleet: what it takes, what it gives and costs, and what the smaller ones miss."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, ErrorOf, error_to_dict, errors_in
from cost.money.bill import BillPart
from cost.recipe import OtherRecipe
from cost.serving.limits import LimitError, left_out_words
from cost.serving.pools import POOL_DERATE, TTFT_LIMIT
from cost.serving.sizing import Level, Size
from cost.serving.supply import Pool, ProofData
from rackplan.views.blocks import Block, Heading, Table, Text, View, labelled, sections
from rackplan.views.data import SetData, taken
from rackplan.views.money import dollars, power_words, rate_words, watts
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import (
    chip_words,
    cluster_doubts,
    factor_words,
    other_recipe_blocks,
    range_words,
    recipe_lines,
    serving_words,
    what_if_blocks,
)
from topology.base.figures import EvidenceLabel
from topology.base.units import plural


@dataclass(frozen=True, kw_only=True)
class DemandData:
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
        Longest time per token and to the first one (null: no limit), and whether they are the defaults.
    """

    tok_s: float
    peak_tok_s: float
    utilization: float
    spares: int
    context: int
    isl: float | None
    osl: float | None
    prompts: list[tuple[float, float]] | None
    tpot_s: float | None
    tpot_default: bool
    ttft_s: float | None
    ttft_default: bool


@dataclass(frozen=True, kw_only=True)
class LevelData:
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
class SizeResult(SetData):
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
    missing: tuple[str, ...]
    next: LevelData | None
    fewer: list[LevelData]
    joined: list[JoinedData]
    not_joined: str | None
    calibration: CalibrationData | None
    other_recipe: OtherRecipe | None


def size_result(found: Size, *, usual: Collection[str] = ()) -> SizeResult:
    """Return a size as data; ``usual``: the limits that are defaults (``tpot_s``, ``ttft_s``)."""
    served, demand, bill, lengths = found.served, found.demand, found.bill, found.lengths
    main = max(served.pools, key=lambda pool: (pool.role == "decode", pool.replicas * pool.gpus))
    no_racks = ["racks: the file of the unit does not say which GPUs share one."] * (found.racks is None)
    fewer = [_level(found, level) for level in found.fewer]
    each = len(found.unit.gpus)
    asked = taken(
        DemandData,
        demand,
        context=found.deployment.workload.context,
        isl=None if lengths is None else lengths.mean_isl,
        osl=None if lengths is None else lengths.mean_osl,
        prompts=None if lengths is None else lengths.prompts(),
        tpot_default="tpot_s" in usual,
        ttft_default="ttft_s" in usual,
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
        racks=found.racks,
        tokens="output",
        tok_s=served.tok_s,
        tok_s_per_gpu=found.tok_s_per_gpu,
        tok_s_per_user=served.tok_s_per_user,
        requests_per_s=served.requests_per_s,
        ttft_s=served.ttft_s,
        tok_s_per_rack=served.tok_s / found.serving_racks if found.serving_racks else None,
        layout=main.layout,
        proof=served.proof,
        pools=list(served.pools),
        usd_per_million_tokens=bill.usd_per_million(demand.tok_s),
        usd_per_million_tokens_full=bill.usd_per_million(served.tok_s),
        tok_s_per_mw=bill.tok_s_per_megawatt(demand.tok_s),
        tok_s_per_mw_full=bill.tok_s_per_megawatt(served.tok_s),
        **more,
        missing=(*bill.missing, *no_racks),
        **set_data(found.unit),
        next=fewer[0] if fewer else None,
        fewer=fewer,
        joined=[
            JoinedData(units=k, tok_s=rate, tok_s_per_gpu=rate / (k * each))
            for k, rate in found.joined.items()
        ],
        not_joined=found.unjoined or None,
        calibration=error_to_dict(_errors(found)),
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
        missed_tok_s=found.demand.peak_tok_s - level.tok_s,
        enough_at_tpot_s=level.tpot_s,
    )


def size_view(found: Size, *, usual: Collection[str] = (), left_out: Sequence[LimitError] = ()) -> View:
    """Return the blocks and the data of ``rackplan size``.

    ``usual``: the limits that are defaults (``tpot_s``, ``ttft_s``); ``left_out``: those of them that nothing keeps.
    """
    data, deployment, errors = size_result(found, usual=usual), found.deployment, _errors(found)
    pools = Table.of(
        data.pools,
        ("replicas", lambda pool: f"{pool.replicas:,} x {pool.layout}"),
        ("role", lambda pool: pool.role),
        ("GPUs each", lambda pool: f"{pool.gpus:,}"),
        ("GPUs", lambda pool: f"{pool.replicas * pool.gpus:,}"),
        ("batch", lambda pool: f"{pool.batch:.4g}"),
        ("step ms", lambda pool: f"{pool.step_s * 1e3:,.2f}"),
    )
    legend = [
        *labelled("Serving", "; ".join(serving_words(deployment.workload, deployment.engine))),
        *labelled("Recipe", *recipe_lines(deployment)),
        *other_recipe_blocks([found.other] if found.other else []),
        *what_if_blocks(deployment),
        *labelled("Joined", _joined_words(data)),
        *labelled("Fleet", _proof_words(found)),
        *labelled("Derate", "" if found.lengths is None else derate_words()),
        *labelled("Kernels", *map(chip_words, errors)),
        *labelled("Band", factor_words(errors)),
        *labelled("Prices", *_prices(found)),
        *labelled("Power", power_words(found.bill.totals(found.demand.tok_s))),
        *labelled("Left out", *data.missing),
        *labelled("Note", *left_out_words(left_out), *_notes(found)),
    ]
    return View(
        sections(
            [Heading(f"{data.model} on {data.unit}: {_many(data.asked.tok_s)} output tok/s")],
            _demand(found, data.asked),
            [_fleet_table(found, data, errors)],
            [_money_table(data)],
            [pools],
            _fewer(data),
            legend,
        ),
        data,
    )


def derate_words() -> str:
    """Return the part of the rates of two pools that counts as served."""
    return (
        f"{POOL_DERATE.value:g} of what the slower of two pools does alone ({POOL_DERATE.kind.label}: "
        f"{POOL_DERATE.source})"
    )


def _demand(found: Size, asked: DemandData) -> list[Block]:
    peak = "no room for a peak above it (--utilization)"
    if asked.utilization < 1:
        peak = f"{_many(asked.peak_tok_s)} at the peak (utilization {asked.utilization:g})"
    tpot, ttft = "none on the time per output token (--tpot-ms)", ""
    if asked.tpot_s is not None:
        origin = " (default; --tpot-ms)" * asked.tpot_default
        tpot = f"{asked.tpot_s * 1e3:g} ms per output token{origin}: {1 / asked.tpot_s:.4g} tok/s/user"
    if asked.ttft_s is not None:
        origin = f" (default; --ttft-ms; {TTFT_LIMIT.source})" * asked.ttft_default
        ttft = f"{asked.ttft_s:g} s to the first token{origin}, without waiting"
    elif found.lengths is not None:
        ttft = "none on the time to the first token (--ttft-ms)"
    return [
        *labelled("Demand", f"{_many(asked.tok_s)} output tok/s on average; {peak}"),
        *labelled("Requests", _requests(found)),
        *set_blocks("Set", found.unit),
        *labelled("Limits", "; ".join(filter(None, (tpot, ttft)))),
    ]


def _requests(found: Size) -> str:
    lengths = found.lengths
    if lengths is None:
        return f"decode alone at {plural(found.deployment.workload.context, 'token')} of context"
    if len(lengths.isl) == 1:
        return f"prompts of {lengths.isl[0]:,} and answers of {plural(lengths.osl[0], 'token')}"
    prompts = ", ".join(f"{isl:,} ({share:.3g})" for isl, share in lengths.prompts())
    return (
        f"{len(lengths.isl):,} kinds, {lengths.mean_isl:,.0f} + {lengths.mean_osl:,.0f} tokens on average; "
        f"{lengths.context:,} tokens in a cache on average; prompts priced (share): {prompts}"
    )


def _fleet_table(found: Size, data: SizeResult, errors: Sequence[ErrorOf]) -> Table:
    """Return what the fleet is and gives; what is not known or not so has no row."""
    spares = found.demand.spares
    band = range_words(data.tok_s_per_gpu, errors)
    per_rack = data.tok_s_per_rack
    rows = {
        "GPUs": f"{data.gpus:,}",
        "domains": f"{data.domains:,}",
        "of them spare": f"{spares:,}" if spares else "",
        "racks": "unknown" if data.racks is None else f"{data.racks:,}",
        "GPUs without a replica": f"{data.gpus_idle:,}" if data.gpus_idle else "",
        "output tok/s": _many(data.tok_s),
        "output tok/s/GPU that serves": f"{data.tok_s_per_gpu:,.0f}",
        "its 80% band": band,
        "tok/s/user": f"{data.tok_s_per_user:,.1f}",
        "requests/s": "" if data.requests_per_s is None else rate_words(data.requests_per_s),
        "TTFT s": "" if data.ttft_s is None else f"{data.ttft_s:,.2f}",
        "output tok/s per rack": "" if per_rack is None else _many(per_rack),
        "sequences per rack": "" if per_rack is None else f"{per_rack / data.tok_s_per_user:,.0f}",
    }
    return Table(("fleet", "value"), [row for row in rows.items() if row[1]])


def _money_table(data: SizeResult) -> Table:
    """Return what it costs and draws, at the demand and at the capacity."""

    def row(name: str, demand: str, capacity: str = "") -> tuple[str, str, str]:
        return name, demand, capacity or demand

    rows = [row("output tok/s", _many(data.asked.tok_s), _many(data.tok_s))]
    if data.usd_per_million_tokens is not None and data.usd_per_million_tokens_full is not None:
        per_token = dollars(data.usd_per_million_tokens), dollars(data.usd_per_million_tokens_full)
        rows.append(row("USD per million tokens", *per_token))
    if data.usd_per_hour is not None and data.usd_per_year is not None:
        rows.append(row("USD/h", dollars(data.usd_per_hour)))
        rows.append(row("USD a year", dollars(data.usd_per_year)))
    if data.tok_s_per_mw is not None and data.tok_s_per_mw_full is not None:
        rows.append(row("tok/s per MW", rate_words(data.tok_s_per_mw), rate_words(data.tok_s_per_mw_full)))
    if data.power_w is not None:
        rows.append(row("power", watts(data.power_w)))
    return Table(("cost, spares and idle GPUs too", "at the demand", "at capacity"), rows)


def _prices(found: Size) -> list[str]:
    bill = found.bill
    prices = (
        f"{part.name} {part.usd_per_hour.value:g} USD/h, {part.usd_per_hour.kind}"
        for part in bill.parts
        if part.usd_per_hour is not None
    )
    text = "; ".join(prices)
    return [f"basis {bill.price_basis} (--price-basis): {text}"] if text else []


def _fewer(data: SizeResult) -> list[Block]:
    """Return the levels below, each with what it misses and the time per token at which it would do."""
    peak = data.asked.peak_tok_s
    if not data.fewer:
        return labelled("Fewer", f"one unit is the least; the peak uses {peak / data.tok_s:.1%} of it")

    def enough(level: LevelData) -> str:
        if data.asked.tpot_s is None:
            return "-"
        return "at none" if level.enough_at_tpot_s is None else f"{level.enough_at_tpot_s * 1e3:,.4g} ms"

    def saved(level: LevelData) -> str:
        now, then = data.usd_per_hour, level.usd_per_hour
        return "-" if now is None or then is None else dollars(now - then)

    table = Table.of(
        data.fewer,
        ("the next smaller", lambda level: plural(level.domains, "domain")),
        ("GPUs", lambda level: f"{level.gpus:,}"),
        ("output tok/s", lambda level: _many(level.tok_s)),
        ("missed by", lambda level: _share(level.missed_tok_s / peak)),
        ("enough at", enough),
        ("USD/h saved", saved),
    )
    return [table, Text("enough at: the shortest time per output token at which these would serve the peak.")]


def _share(value: float) -> str:
    return f"{value:.1%}" if value >= 0.001 else f"{100 * value:.1g}%"


def _joined_words(data: SizeResult) -> str:
    """Return what so many units give per GPU, by how many there are."""
    rates = ", ".join(f"{one.tok_s_per_gpu:,.0f} of {one.units:,}" for one in data.joined)
    text = f"tok/s/GPU of one layout a pool, by units joined by their fabric: {rates}" * (
        len(data.joined) > 1
    )
    return "; ".join(filter(None, (text, (data.not_joined or "").rstrip("."))))


def _proof_words(found: Size) -> str:
    """Return what is proven of a fleet of different shapes; empty where one layout a pool was taken."""
    proof = found.served.proof
    if proof is None:
        return ""
    rates = f"{_many(proof.objective)} output tok/s on {plural(found.served.joined, 'unit')}"
    return f"{proof.status}: {rates}, at most {_many(proof.bound)}, gap {proof.gap:.2%}"


def _notes(found: Size) -> list[str]:
    """Return what a reader must know of the unit."""
    lengths, unit = found.lengths, found.unit
    broken = unit.spec.gpus - len(unit.gpus)
    notes = [f"each {unit.name} has {plural(broken, 'broken GPU')}, in no figure"] if broken else []
    if lengths is not None and len(lengths.isl) > 1:
        longest = max(isl + osl for isl, osl in zip(lengths.isl, lengths.osl, strict=True))
        step = "the prefill row is of the longest prompts; all prompts keep the limit"
        notes += filter(None, (step, lengths.note, found.deployment.model.beyond(longest)))
    return [*notes, *filter(None, [cluster_doubts(unit)])]


def _errors(found: Size) -> tuple[ErrorOf, ...]:
    return errors_in(found.deployment, phase="" if found.lengths is None else "disaggregated")


def _many(value: float) -> str:
    """Return a large number as people write it: 200 M, 128 k."""
    for factor, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * (1 - 5e-5):
            return f"{value / factor:,.4g} {word}" if value < 1e13 else f"{value / factor:,.0f} {word}"
    return f"{value:,.4g}"
