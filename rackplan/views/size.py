"""The size of a fleet: what it takes, what it gives and costs, and what the smaller ones miss."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cost.calibration.errors import ErrorOf, error_to_dict, errors_in
from cost.serving.lengths import Lengths
from cost.serving.limits import LimitError, left_out_words
from cost.serving.pools import DECODE_DERATE, PREFILL_DERATE, TTFT_LIMIT
from cost.serving.sizing import Level, Size
from cost.serving.supply import Pool
from rackplan.schemas.clusters import LevelData, SizePrinted
from rackplan.views.blocks import Block, Heading, Table, Text, View, labelled, picked, sections
from rackplan.views.money import cost_words, dollars, power_words, rate_words
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import (
    band_words,
    chip_words,
    cluster_doubts,
    serving_words,
    what_if_blocks,
)
from topology.base.units import plural
from topology.physical import switch_racks


def size_view(found: Size, *, usual: Collection[str] = (), left_out: Sequence[LimitError] = ()) -> View:
    """Return what ``rackplan size`` says.

    ``usual``: the limits that nobody gave (``tpot_s``, ``ttft_s``); ``left_out``: those of them that nothing holds.
    """
    deployment, demand = found.deployment, found.demand
    title = f"{deployment.model.name} on {found.unit.name}: {_many(demand.tok_s)} output tok/s"
    legend = [
        *labelled("Serving", "; ".join(serving_words(deployment.workload, deployment.engine))),
        *what_if_blocks(deployment),
        *labelled("Joined", _joined_words(found)),
        *labelled("Fleet", _proof_words(found)),
        *labelled("Racks", _rack_words(found)),
        *labelled("Derates", _derates(found)),
        *labelled("Kernels", *map(chip_words, _errors(found))),
        *labelled("Left out", *found.bill.missing),
        *labelled(
            "Note",
            *left_out_words(left_out),
            *_notes(found),
        ),
    ]
    return View(
        sections(
            [Heading(title)],
            _asked(found, usual),
            _answer(found),
            [_pool_table(found.served.pools)],
            _fewer(found),
            legend,
        ),
        _data(found, usual),
    )


def _asked(found: Size, usual: Collection[str]) -> list[Block]:
    demand, workload = found.demand, found.deployment.workload
    text = f"{_many(demand.tok_s)} output tok/s on average"
    if demand.utilization < 1:
        text += (
            f", {_many(demand.peak_tok_s)} at the peak (utilization {demand.utilization:g}: mean over peak)"
        )
    else:
        text += "; no room for a peak above it (--utilization)"
    if demand.spares:
        text += f"; {plural(demand.spares, 'spare domain')}"
    lengths = f"decode alone at {plural(workload.context, 'token')} of context"
    if found.lengths is not None:
        lengths = f"{_length_words(found.lengths)}, prefilled and decoded here"
    return [
        Text(text, "Asked"),
        Text(lengths, "Requests"),
        *set_blocks("Set", found.unit),
        *labelled("Limits", _limits(found, usual)),
    ]


def _length_words(lengths: Lengths) -> str:
    if len(lengths.isl) == 1:
        return f"prompts of {lengths.isl[0]:,} and answers of {plural(lengths.osl[0], 'token')}"
    prompts = ", ".join(f"{isl:,} ({share:.3g})" for isl, share in lengths.prompts())
    merged = len(set(lengths.isl)) > len(lengths.prompts())
    return (
        f"{len(lengths.isl):,} kinds, prompts of {lengths.mean_isl:,.0f} and answers of {lengths.mean_osl:,.0f} "
        f"tokens on average; {lengths.context:,} tokens in a cache, the mean over the tokens made; prompts "
        f"{'merged to' if merged else 'of'} {prompts}"
    )


def _limits(found: Size, usual: Collection[str]) -> str:
    demand = found.demand
    if demand.tpot_s is not None:
        origin = " (default; --tpot-ms, or none for the most tok/s/GPU)" if "tpot_s" in usual else ""
        text = (
            f"at most {demand.tpot_s * 1e3:g} ms per output token{origin}: {1 / demand.tpot_s:.4g} tok/s/user"
        )
    else:
        text = "none on the time per output token (--tpot-ms)"
    if found.lengths is None:
        return text
    if demand.ttft_s is None:
        return f"{text}; none on the time to the first token (--ttft-ms)"
    origin = f" (default; --ttft-ms; {TTFT_LIMIT.source})" if "ttft_s" in usual else ""
    return f"{text}; first token within {demand.ttft_s:g} s{origin}, waiting not counted"


def _answer(found: Size) -> list[Block]:
    served, demand, bill = found.served, found.demand, found.bill
    racks = "" if found.racks is None else f", {plural(found.racks, 'rack')}"
    text = f"{plural(found.gpus, 'GPU')} in {plural(found.domains, 'domain')}{racks}"
    if found.domains_of(1) - demand.spares > 1:
        text += f", {served.units:,} x {found.unit.name}"
    if demand.spares:
        verb = "is" if demand.spares == 1 else "are"
        text += f": {plural(found.serving_domains, 'domain')} to serve, {demand.spares:,} {verb} spare"
    errors = _errors(found)
    rate = (
        f"{found.tok_s_per_gpu:,.0f} output tok/s/GPU{band_words(found.tok_s_per_gpu, errors)} over all GPUs that "
        f"serve, {served.tok_s_per_user:,.1f} tok/s/user; {_many(served.tok_s)} output tok/s in all"
    )
    if served.requests_per_s is not None:
        rate += f", {rate_words(served.requests_per_s)} requests/s"
    if served.ttft_s is not None:
        rate += f", TTFT {served.ttft_s:,.2f} s"
    used = served.gpus_used
    if used < found.serving_gpus:
        rate += f"; {found.serving_gpus - used:,} GPUs that serve have no replica"
    totals = bill.totals(demand.tok_s)
    cost = [cost_words(totals)]
    if bill.usd_per_year is not None:
        cost[0] = (
            f"{dollars(bill.usd_per_hour or 0.0)} USD an hour, {dollars(bill.usd_per_year)} a year of 8,760 hours, "
            "spares and idle GPUs too"
        )
        full = bill.usd_per_million(served.tok_s)
        each = bill.usd_per_million(demand.tok_s)
        cost.append(
            f"{dollars(each or 0.0)} USD per million output tokens at the traffic asked for, "
            f"{dollars(full or 0.0)} if all that they can give were used"
        )
        cost.append(_basis(found))
    return [
        Text(text, "Size"),
        Text(rate, "Throughput"),
        *labelled("Rack", _rack_rate(found)),
        *labelled("Power", power_words(totals), *_full_power(found)),
        *labelled("Cost", *cost),
    ]


def _full_power(found: Size) -> list[str]:
    full = found.bill.tok_s_per_megawatt(found.served.tok_s)
    if full is None:
        return []
    return [
        f"tok/s per MW are of the traffic asked for, {rate_words(full)} if all that they can give were used"
    ]


def _basis(found: Size) -> str:
    bill = found.bill
    prices = (
        f"{part.name} {part.usd_per_hour.value:g} USD/h, {part.usd_per_hour.kind}"
        for part in bill.parts
        if part.usd_per_hour is not None
    )
    return f"basis {bill.price_basis} (--price-basis): {'; '.join(prices)}"


def _rack_rate(found: Size) -> str:
    """Return what one rack that serves gives, and how many sequences it has at a time: batch over step."""
    each = found.serving_racks
    if not each:
        return ""
    rate = found.served.tok_s / each
    running = rate / found.served.tok_s_per_user
    return (
        f"{_many(rate)} output tok/s each: about {running:,.0f} sequences at a time, "
        f"{found.served.tok_s_per_user:,.1f} tokens a second to each"
    )


def _rack_words(found: Size) -> str:
    if found.racks is None:
        return "not known: the file of the unit does not say which GPUs share one"
    if found.rack_gpus is None:
        return ""
    apart = switch_racks(found.unit.spec)
    switches = (
        f"; {plural(apart, 'rack')} of each unit {'holds' if apart == 1 else 'hold'} switches alone"
        if apart
        else ""
    )
    return f"of {plural(found.rack_gpus, 'GPU')}, as the catalog or the file of the unit has them{switches}"


def _fewer(found: Size) -> list[Block]:
    """Return the levels below, each with what it misses and the time per token at which it would do."""
    demand = found.demand
    if not found.fewer:
        share = demand.peak_tok_s / found.served.tok_s
        text = f"one unit is the least there is, and the peak uses {share:.1%} of it"
        return labelled("Fewer", text)

    def enough(level: Level) -> str:
        if demand.tpot_s is None:
            return "-"
        return "at none" if level.tpot_s is None else f"{level.tpot_s * 1e3:,.4g} ms"

    table = Table.of(
        found.fewer,
        ("the next smaller", lambda one: plural(found.domains_of(one.units), "domain")),
        ("GPUs", lambda one: f"{found.gpus_of(one.units):,}"),
        ("output tok/s", lambda one: _many(one.tok_s)),
        ("missed by", lambda one: _share(1 - one.tok_s / demand.peak_tok_s)),
        ("enough at", enough),
        ("USD/h saved", lambda one: _saved(found, one)),
    )
    return [table, Text("enough at: the shortest time per output token at which these would serve the peak.")]


def _share(value: float) -> str:
    return f"{value:.1%}" if value >= 0.001 else f"{100 * value:.1g}%"


def _saved(found: Size, level: Level) -> str:
    now, then = found.bill.usd_per_hour, found.bill_of(level.units).usd_per_hour
    return "-" if now is None or then is None else dollars(now - then)


def _pool_table(pools: tuple[Pool, ...]) -> Table:
    return Table.of(
        pools,
        ("replicas", lambda one: f"{one.replicas:,} x {one.layout}"),
        ("role", lambda one: one.role),
        ("GPUs each", lambda one: f"{one.gpus:,}"),
        ("GPUs", lambda one: f"{one.replicas * one.gpus:,}"),
        ("batch", lambda one: f"{one.batch:.4g}"),
        ("step ms", lambda one: f"{one.step_s * 1e3:,.2f}"),
    )


def _joined_words(found: Size) -> str:
    """Return what so many units give per GPU, by how many there are."""
    each = len(found.unit.gpus)
    rows = [(k, rate / (k * each)) for k, rate in found.joined.items()]
    if len(rows) > 1:
        text = ", ".join(f"{rate:,.0f} of {k:,}" for k, rate in rows)
        text = f"tok/s/GPU of one layout a pool by units joined by their fabric: {text}"
    else:
        text = ""
    return "; ".join(filter(None, [text, found.unjoined.rstrip(".")]))


def _proof_words(found: Size) -> str:
    """Return what is proven of a fleet of different shapes; empty where one layout a pool was taken."""
    proof = found.served.proof
    if proof is None:
        return ""
    least, most, gap = (float(proof[name]) for name in ("objective", "bound", "gap"))
    where = plural(found.served.joined, "unit")
    return f"{proof['status']}: {_many(least)} output tok/s on {where}, at most {_many(most)}, gap {gap:.2%}"


def _derates(found: Size) -> str:
    if found.lengths is None:
        return ""
    return (
        f"{PREFILL_DERATE.value:g} of the prefill and {DECODE_DERATE.value:g} of the decode rate "
        f"({PREFILL_DERATE.kind.label}: {PREFILL_DERATE.source})"
    )


def _notes(found: Size) -> list[str]:
    """Return what a reader must know of the unit."""
    spec, notes = found.unit.spec, []
    broken = spec.gpus - len(found.unit.gpus)
    if broken:
        plural, verb = ("s", "repeat") if broken > 1 else ("", "repeats")
        notes.append(
            f"{broken:,} broken GPU{plural} of each {found.unit.name} {verb} with it, counted in no figure"
        )
    lengths = found.lengths
    if lengths is not None and len(lengths.isl) > 1:
        longest = max(isl + osl for isl, osl in zip(lengths.isl, lengths.osl, strict=True))
        step = "the prefill row is of the longest prompts, which keep the limit as all others do"
        notes += filter(None, (step, lengths.note, found.deployment.model.beyond(longest)))
    if doubt := cluster_doubts(found.unit):
        notes.append(doubt)
    return notes


def _errors(found: Size) -> tuple[ErrorOf, ...]:
    if found.lengths is None:
        return errors_in(found.deployment)
    return errors_in(found.deployment, phase="disaggregated")


def _many(value: float) -> str:
    """Return a large number as people say it: 200 M, 128 k."""
    for factor, word in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * (1 - 5e-5):
            return f"{value / factor:,.4g} {word}" if value < 1e13 else f"{value / factor:,.0f} {word}"
    return f"{value:,.4g}"


def _data(found: Size, usual: Collection[str]) -> SizePrinted:
    served, demand, bill = found.served, found.demand, found.bill
    lengths = found.lengths
    main = max(served.pools, key=lambda pool: (pool.role == "decode", pool.replicas * pool.gpus))
    missing = list(bill.missing)
    if found.racks is None:
        missing.append("racks: the file of the unit does not say which GPUs share one.")
    return {  # type: ignore[typeddict-item]  # the bill's fields are those of its class
        "model": found.deployment.model.name,
        "unit": found.unit.name,
        "units": served.units,
        "asked": {
            "tok_s": demand.tok_s,
            "peak_tok_s": demand.peak_tok_s,
            "utilization": demand.utilization,
            "spares": demand.spares,
            "context": found.deployment.workload.context,
            "isl": None if lengths is None else lengths.mean_isl,
            "osl": None if lengths is None else lengths.mean_osl,
            "prompts": None if lengths is None else [list(one) for one in lengths.prompts()],
            "tpot_s": demand.tpot_s,
            "tpot_default": "tpot_s" in usual,
            "ttft_s": demand.ttft_s,
            "ttft_default": "ttft_s" in usual,
        },
        "gpus": found.gpus,
        "serving_gpus": found.serving_gpus,
        "gpus_idle": found.serving_gpus - served.gpus_used,
        "domains": found.domains,
        "serving_domains": found.serving_domains,
        "racks": found.racks,
        "tokens": "output",
        "tok_s": served.tok_s,
        "tok_s_per_gpu": found.tok_s_per_gpu,
        "tok_s_per_user": served.tok_s_per_user,
        "requests_per_s": served.requests_per_s,
        "ttft_s": served.ttft_s,
        "tok_s_per_rack": None if not found.serving_racks else served.tok_s / found.serving_racks,
        "layout": main.layout,
        "proof": served.proof,
        "pools": [picked(pool, "role layout replicas gpus batch step_s") for pool in served.pools],
        "usd_per_million_tokens": bill.usd_per_million(demand.tok_s),
        "usd_per_million_tokens_full": bill.usd_per_million(served.tok_s),
        "tok_s_per_mw": bill.tok_s_per_megawatt(demand.tok_s),
        "tok_s_per_mw_full": bill.tok_s_per_megawatt(served.tok_s),
        **bill.to_dict(),
        "missing": missing,
        **set_data(found.unit),
        "next": _level(found, found.fewer[0]) if found.fewer else None,
        "fewer": [_level(found, level) for level in found.fewer],
        "joined": [
            {"units": k, "tok_s": rate, "tok_s_per_gpu": rate / (k * len(found.unit.gpus))}
            for k, rate in found.joined.items()
        ],
        "not_joined": found.unjoined or None,
        "calibration": error_to_dict(_errors(found)),
    }


def _level(found: Size, level: Level) -> LevelData:
    demand, bill = found.demand, found.bill_of(level.units)
    return {
        "gpus": found.gpus_of(level.units),
        "domains": found.domains_of(level.units),
        "tok_s": level.tok_s,
        "missed_tok_s": demand.peak_tok_s - level.tok_s,
        "enough_at_tpot_s": level.tpot_s,
        "usd_per_hour": bill.usd_per_hour,
        "power_w": bill.power_w,
    }
