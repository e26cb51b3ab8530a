"""Document of a comparison: one model on several clusters, at the same speeds per user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cost.calibration.errors import widest
from cost.money.bill import Totals
from cost.serving.token_prices import TokenPrices
from placement.analysis.compare import CompareRow
from placement.analysis.comparison import Comparison
from placement.analysis.gains import Gain
from rackplan.report import shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Row, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from rackplan.report.frontier import POINTS, frontier_chart, measured_blocks
from rackplan.report.notes import load_names, phase_words, sentence
from rackplan.report.placements import PLACEMENTS, expert_blocks, placed_blocks, placements_table
from topology.base.errors import input_name
from topology.base.units import plural

ROWS = Table.of(
    "rows",
    "cluster tok_s_per_user serving tok_s_per_gpu tok_s_per_gpu_ratio tok_s_per_mw usd_per_million_tokens "
    "loaded_requests_per_s bound_by | model layout gpus counted_tokens reached_tok_s_per_user tok_s "
    "low_tok_s_per_gpu high_tok_s_per_gpu band tok_s_per_mw_ratio tok_s_per_usd_h tok_s_per_usd_h_ratio "
    "requests_per_s requests_per_s_per_gpu requests_per_s_per_mw requests_per_s_per_usd_h usd_per_hour power_w "
    f"prefix_hit {shared.KINDS} "
    "step_s batch ttft_s instead_tok_s_per_gpu measured_factor measured_runs evidence machine_status reason "
    f"{shared.CACHE}",
    "Clusters at each speed",
    max_rows=16,
)
CLUSTERS = Table.of(
    "clusters",
    f"cluster {shared.BILLED} band machine_status",
    "Clusters",
    shown="cluster gpus usd_per_hour power_w band",
)
GAINS = Table.of(
    "gains",
    "cluster before_cluster tok_s_per_user gain_factor cause factor reason",
    "Gain of each cluster over the one before",
    max_rows=0,
)
STEPS = Table.of("steps", "cluster tok_s_per_user part step_s", "Steps by part", max_rows=0)
COMPARE = Shape(
    "compare",
    "Clusters at the same speeds per user for one model.",
    (ROWS, CLUSTERS, GAINS, STEPS, PLACEMENTS, *shared.GROUNDS),
)
_LAYOUTS = (
    "cluster tok_s_per_user layout batch step_s ttft_s instead_tok_s_per_gpu measured_factor measured_runs"
)
_PRICES = f"cluster machine_status {shared.BILLED.partition('gpus_idle ')[2]}"
FRONTIERS = replace(
    POINTS,
    title="Frontiers",
    per="cluster",
    shown="layout batch tok_s_per_user tok_s_per_gpu step_s bound_by",
)
_BY: Mapping[str, str] = {"tok_s_per_gpu": "GPU", "tok_s_per_mw": "MW", "tok_s_per_usd_h": "USD/h"}
"""What throughput is shared by, and its word."""
_GAINS_METHOD = (
    "Changes are applied one after another in this order, and each machine on the way is priced at the same speed "
    "per user: formats (of weights and cache, drafts, overlap, units beside BF16), HBM bandwidth and capacity, "
    "flop/s (the BF16 peak, others in proportion), domain (size and structure, hosts), fabric (rates and latencies); "
    "kernels are what calibration and measured runs add beyond the chips. The factors multiply to the gain."
)


def compare_doc(result: Comparison) -> Doc:
    """Return the document of ``rackplan compare``."""
    base, names = result.deployments[0], list(result.bills)
    pairs, compared = list(zip(result.rows, _rows(result), strict=True)), result.compared
    pairs.sort(key=lambda pair: pair[0].target_tok_s_per_user or 0.0)
    rows = [row for _, row in pairs]
    at = [row for of, row in pairs if any(of is candidate for candidate in compared)]
    speeds = {row.target_tok_s_per_user for row in compared}
    gains = [gain for gain in result.gains if gain.gain]
    main = [gain for gain in gains if gain.tok_s_per_user in speeds]
    errors = {row.cluster: row.errors for row in result.rows}
    scores = [(row.cluster, row.score) for row in compared if row.score]
    sides = [
        (side, result.bills[side.cluster.name], errors[side.cluster.name]) for side in result.deployments
    ]
    sizes = sorted({row.gpus for row in result.rows})
    size_words = result.budget or (plural(sizes[0], "GPU") if len(sizes) == 1 else "")
    subject = phase_words(base.workload) if result.lengths is None else result.lengths.brief()
    known, placed = {row["cluster"]: row for row in rows}, placements_table(result)
    machines = CLUSTERS({**known[name], **shared.bill_row(bill)} for name, bill in result.bills.items())
    return Doc(
        COMPARE,
        f"{base.model.name} on {plural(len(names), 'cluster')}{f', {size_words} each' * bool(size_words)}, {subject}",
        list(_answer(result, at)),
        [
            ROWS(rows, title=""),
            machines,
            shared.set_table(*(side.cluster for side in result.deployments)),
            *_notes(result),
            *(shared.cache_note(row.cache, f"{row.cluster}, {row.layout}") for row in compared),
            *(Note(f"{_gained(gain)}.", "tok_s_per_gpu") for gain in main),
            Late(lambda: list(placed_blocks(result, placed))),
            Late(lambda: _frontiers(result, rows)),
            *_waterfall(main),
            shared.step_bars(((row.cluster, row.terms_s) for row in compared), "cluster"),
            *([shared.memory_bars(scores, "cluster")] if scores else []),
        ],
        [
            ROWS(rows, title="Layouts", shown=_LAYOUTS, max_rows=None),
            GAINS(row for gain in result.gains for row in _factors(gain)),
            STEPS(
                STEPS.row(row, tok_s_per_user=row.target_tok_s_per_user, part=part, step_s=seconds)
                for row in result.rows
                for part, seconds in row.terms_s.items()
                if seconds
            ),
            placed,
            Late(lambda: list(expert_blocks(result, placed))),
            *(Note(f"{_gained(gain)}.", kind="method") for gain in gains if gain not in main),
            Note(_GAINS_METHOD if gains else "", kind="method"),
            replace(machines, title="Prices", shown=_PRICES),
            *shared.grounds(sides, _methods(result), gains=result.others),
            Late(lambda: [FRONTIERS(_points(result))]),
        ],
    )


_USUAL_FACTORS = 0.3, 3.0
"""Factors of gains beyond these are said why."""


def _rows(result: Comparison) -> Iterator[Row]:
    """Yield the rows with throughput by GPU, megawatt and dollar-hour, each beside the first cluster's."""
    firsts: dict[tuple[float | None, str], float | None] = {}
    for row in result.rows:
        totals, error = result.totals(row), widest(row.errors)
        cells = dict(shared.totals_row(totals))
        amounts = totals.gpus, (totals.power_w or 0.0) / 1e6, totals.usd_per_hour
        for key, amount in zip(_BY, amounts, strict=True):
            rate = totals.tok_s / amount if amount and row.tok_s_per_gpu is not None else None
            base = firsts.setdefault((row.target_tok_s_per_user, key), rate)
            requests = row.requests_per_s / amount if amount and row.requests_per_s else None
            cells |= {key: rate, f"{key}_ratio": rate / base if rate and base else None}
            cells[key.replace("tok_s", "requests_per_s")] = requests
        yield {
            **ROWS.row(row),
            **cells,
            "model": result.deployments[0].model.name,
            "requests_per_s": row.requests_per_s,
            "prefix_hit": row.lengths and row.lengths.prefix_hit,
            **shared.kinds_row(_kinds(row, totals)),
            "tok_s": totals.tok_s or None,
            "tok_s_per_user": row.target_tok_s_per_user or row.tok_s_per_user,
            "reached_tok_s_per_user": row.tok_s_per_user,
            **shared.near_row(row.near),
            **shared.cache_row(row.cache),
            **shared.band_row(row.tok_s_per_gpu, row.errors),
            "band": error and error.band,
            "instead_tok_s_per_gpu": row.instead,
            "machine_status": row.status,
        }


def _kinds(row: CompareRow, totals: Totals) -> TokenPrices:
    """Return what tokens cost by kind, of the whole cluster."""
    if row.shares is None or row.lengths is None or not totals.tok_s:
        return TokenPrices()
    return row.shares().prices(totals, totals.tok_s, row.lengths)


def _answer(result: Comparison, at: Sequence[Row]) -> Iterator[str]:
    """Yield who leads by what is equal and by the others, who would with the other recipe, and how sure that is."""
    if not at:
        yield "No cluster reaches any of the compared speeds."
        return
    keys = sorted(_BY, key=lambda key: not result.budget.endswith(f" {_BY[key]}"))
    reached = {key: [row for row in at if row[key] is not None] for key in keys}
    leads = {key: sorted(known, key=lambda row: -row[key])[:2] for key, known in reached.items() if known}
    key, (best, *_) = next(iter(leads.items()))
    target = result.compared[0].target_tok_s_per_user
    speed = f"{target:g} tok/s/user{' (default)' * result.usual}" if target else "the largest batch that fits"
    ahead = {by: _ahead({row["cluster"]: row[by] for row in pair}) for by, pair in leads.items()}
    verb = f"leads per {_BY[key]}:" if ahead[key] else "gives"
    leaders = [
        f"per {_BY[by]} {leads[by][0]['cluster']} leads{ahead[by]}" for by in leads if ahead[by] and by != key
    ]
    lead = f"{best['cluster']} {verb} {phrase(best, key, best['counted_tokens'])} at {speed}{ahead[key]}."
    yield f"{lead} {sentence('; '.join(leaders))}".strip()
    yield _recipe_lead(result, at)
    clear, close = list[str](), list[str]()
    for by, pair in leads.items():
        if ahead[by] and all(row["band"] for row in pair):
            beyond = pair[0][by] / pair[1][by] >= max(row["band"] for row in pair)
            (clear if beyond else close).append(_BY[by])
    sure = [shared.accuracy_sentence(error for row in result.compared for error in row.errors)]
    sure += [f"Per {_listed(clear)} the lead is larger than that."] if clear else []
    sure += [f"Per {_listed(close)} the lead is within that: the order is uncertain."] if close else []
    yield " ".join(sure)


def _listed(words: Sequence[str]) -> str:
    *head, tail = words
    return " and ".join(filter(None, (", ".join(head), tail)))


def _ahead(rates: Mapping[str, float]) -> str:
    """Return how far the first of ``rates`` by cluster, the largest first, is ahead; empty where it is alone."""
    (_, top), *lower = rates.items()
    return f", {top / lower[0][1]:.2f}x {lower[0][0]}" if lower else ""


def _recipe_lead(result: Comparison, at: Sequence[Row]) -> str:
    """Return who leads per GPU with the other recipe; empty where it is about the same everywhere."""
    target = result.compared[0].target_tok_s_per_user
    gains = {gain.cluster: gain for gain in result.others if gain.tok_s_per_user == target}
    if not gains:
        return ""
    rates = {row["cluster"]: row["tok_s_per_gpu"] for row in at}
    rates |= {name: gain.tok_s_per_gpu for name, gain in gains.items()}
    rates = dict(sorted(rates.items(), key=lambda pair: -pair[1]))
    best, top = next(iter(rates.items()))
    whose = sentence(shared.whose_recipe(next(iter(gains.values())).recipe))[:-1]
    words = f" ({gains[best].words})" if best in gains else ""
    rate = FIELDS["tok_s_per_gpu"].phrase(top, at[0]["counted_tokens"])
    return f"{whose}, {best}{words} gives {rate}{_ahead(rates)}."


def _notes(result: Comparison) -> Iterator[Note]:
    """Yield what was not reached, is missing, or makes clusters unlike."""
    missed = dict.fromkeys(row.reason for row in result.rows if row.tok_s_per_gpu is None)
    yield from (Note(reason, "tok_s_per_gpu", "missing") for reason in missed)
    much, _, unit = result.budget.partition(" ")
    for name, bill in result.bills.items():
        yield from shared.missing_notes(bill)
        spent = (bill.usd_per_hour if unit == "USD/h" else (bill.power_w or 0.0) / 1e6) or 0.0
        if much and spent > float(much) * (1 + 1e-6):
            text = f"The smallest unit of {name} takes {spent:,.3g} {unit}, more than {result.budget}."
            yield Note(text, "gpus", "warning")
    sizes = {row.cluster: row.gpus for row in result.rows}
    if not result.budget and len({*sizes.values()}) > 1:
        listed = ", ".join(f"{name} {gpus:,}" for name, gpus in sizes.items())
        yield Note(
            f"The clusters differ in size ({listed} GPUs): read them per GPU, MW and USD/h. Names without @GPUS, or "
            f"{input_name('gpus')}, compare equal sizes.",
            "gpus",
        )
    yield Note(shared.doubt_sentence(*(side.cluster for side in result.deployments)), "machine_status")
    yield from _limits(result)
    if result.loads is not None:
        hint = f"; pass measured loads with {input_name('loads')}" * result.loads.synthetic
        yield Note(f"Loads: {load_names(result.loads.names)}{hint}.")
    if result.ttft_p99_s is not None:
        yield Note(f"Requests/s at p99 keep a time to first token of {result.ttft_p99_s:g} s (simulated).")


def _limits(result: Comparison) -> Iterator[Note]:
    """Yield what is near a limit of speed, where gains exceed what figures of the machines differ by."""
    for gain in result.gains:
        much = [
            f"{cause} {factor:.2f}x"
            for cause, factor in gain.counting()
            if not _USUAL_FACTORS[0] <= factor <= _USUAL_FACTORS[1]
        ]
        if gain.gain and gain.gain > gain.hardware:
            much.append(f"{gain.gain:.2f}x in all, where no figure differs by more than {gain.hardware:.2f}x")
        if much and gain.tok_s_per_user:
            peak = max(point.tok_s_per_gpu for point in result.frontiers[gain.before])
            part = f"{(gain.rates[0] or 0.0) / peak:.0%}"
            text = (
                f"{sentence(', '.join(much))[:-1]}:{_at(gain)} {gain.before} gives {part} of its most, as little of "
                "a step is left for sequences; a shorter one admits many more."
            )
            yield Note(text, "tok_s_per_user")


def _methods(result: Comparison) -> Iterator[str]:
    """Yield how the figures are made."""
    if result.usual and result.rows[0].target_tok_s_per_user is None:
        yield f"None reaches the default speed ({input_name('tok_s_user')}): each runs the largest batch that fits."
    for name, times in result.scales.items():
        if times != 1:
            yield f"The layout of {name} is that of fewer GPUs, scaled by {times:.3g} to the budget."
    for fast, slow in result.turned():
        yield f"Without the correction by measured runs {slow.cluster} is ahead of {fast.cluster}{_at(fast)}."


def _at(row: CompareRow | Gain) -> str:
    speed = row.target_tok_s_per_user if isinstance(row, CompareRow) else row.tok_s_per_user
    return f" at {speed:g} tok/s/user" if speed else ""


def _gained(gain: Gain) -> str:
    """Return a gain and its factors: ``a to b, 3.33x: HBM bandwidth 1.14x, flop/s 2.22x``."""
    factors = ", ".join(f"{cause} {factor:.2f}x" for cause, factor in gain.counting())
    why = f"not broken down, {gain.reason}" if gain.reason else factors or "no relevant difference"
    return f"{gain.before} to {gain.after}{_at(gain)}, {gain.gain or 0.0:.2f}x: {why}"


def _factors(gain: Gain) -> Iterator[Row]:
    names = {"cluster": gain.after, "before_cluster": gain.before, "gain_factor": gain.gain}
    for cause, factor in (gain.factors or {"": None}).items():
        yield GAINS.row(gain, cause=cause, factor=factor, **names)


def _waterfall(gains: Sequence[Gain]) -> list[Block]:
    """Return bars of each cluster, and between them what its factors add or take."""
    table = Table.of("", "cause direction factor from_tok_s_per_gpu to_tok_s_per_gpu")
    bars: list[tuple[object, ...]] = []
    split = [gain for gain in gains if gain.factors]
    for gain in split:
        rate, end = (rate or 0.0 for rate in gain.rates)
        if not bars or bars[-1][0] != gain.before:
            bars.append((gain.before, "cluster", None, 0.0, rate))
        for cause, factor in gain.counting():
            name = cause + " " * len(bars)  # its own place on the axis, though others have the same cause
            bars.append((name, "faster" if factor > 1 else "slower", factor, rate, rate * factor))
            rate *= factor
        bars.append((gain.after, "cluster", None, 0.0, end))
    layer = Layer(
        "bar", table(bars), "cause", "to_tok_s_per_gpu", "direction", "from_tok_s_per_gpu", text="factor"
    )
    alt = "; ".join(map(_gained, split))
    return [Chart(GAINS.title, [layer], alt=alt, stacked=True, height=420)] if split else []


def _points(result: Comparison) -> Iterator[Row]:
    for name, points in result.frontiers.items():
        yield from (POINTS.row(point, None, cluster=name) for point in points)


def _frontiers(result: Comparison, rows: Sequence[Row]) -> list[Block]:
    """Return the frontiers with the rows as stars, and published runs: at the same conditions, and all of them."""
    stars = ({**row, "tok_s_per_user": row["reached_tok_s_per_user"]} for row in rows)
    how = "perfectly balanced experts" if result.lengths is None else "one pool or two"
    return [
        frontier_chart(_points(result), stars, result.deployments, result.lengths, by="cluster"),
        Note(
            f"The best layouts and batches up to the fastest, with {how}; stars: the rows above; rings: published "
            "runs at the same conditions.",
            kind="method",
        ),
        *measured_blocks(result.deployments),
    ]
