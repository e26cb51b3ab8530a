"""Document of a comparison: one model on several clusters, at the same speeds per user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from cost.calibration.errors import widest
from cost.serving.points import LayoutPoint, frontier, layout_points, serving_points
from cost.validation.measured import comparable_points
from placement.analysis.compare import CompareRow
from placement.analysis.comparison import Comparison
from placement.analysis.evidence import deployment_figures
from placement.analysis.gains import Gain
from placement.options import USUAL_TPOT
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Picture, Row, Shape, Table
from rackplan.report.fields import said
from rackplan.report.notes import load_names, phase_words, recipe_lines, sentence, serving_words, sparse_lines
from rackplan.report.shared import (
    ACCURACY,
    ACCURACY_METHOD,
    BILL,
    BILLED,
    FIGURES,
    OTHER_RECIPE,
    RUNS,
    SET,
    accuracy_row,
    accuracy_sentence,
    band_of,
    bill_row,
    bill_rows,
    doubt_sentence,
    figure_row,
    measured_blocks,
    missing_notes,
    other_row,
    recipe_sentences,
    run_row,
    set_table,
    totals_row,
    whose_recipe,
)
from rackplan.report.text import thinned
from topology.base.errors import input_name
from topology.base.units import plural

ROWS = Table.of(
    "rows",
    "cluster model serving layout gpus counted_tokens tok_s_per_user reached_tok_s_per_user tok_s tok_s_per_gpu "
    "tok_s_per_gpu_ratio low_tok_s_per_gpu high_tok_s_per_gpu tok_s_per_mw tok_s_per_mw_ratio tok_s_per_usd_h "
    "tok_s_per_usd_h_ratio requests_per_s requests_per_s_per_gpu requests_per_s_per_mw requests_per_s_per_usd_h "
    "loaded_requests_per_s usd_per_million_tokens usd_per_hour power_w step_s batch bound_by ttft_s "
    "instead_tok_s_per_gpu measured_factor measured_runs evidence status reason",
    shown="cluster tok_s_per_user serving tok_s_per_gpu tok_s_per_gpu_ratio tok_s_per_mw tok_s_per_usd_h "
    "usd_per_million_tokens loaded_requests_per_s bound_by",
    most=16,
)
CLUSTERS = Table.of(
    "clusters", f"cluster {BILLED} band status", "Clusters", shown="cluster gpus usd_per_hour power_w band"
)
GAINS = Table.of(
    "gains",
    "cluster before tok_s_per_user gain cause factor reason",
    "Gain of each cluster over the one before",
    most=0,
)
COMPARE = Shape(
    "compare",
    "Clusters at the same speeds per user for one model.",
    (ROWS, CLUSTERS, GAINS, OTHER_RECIPE, BILL, ACCURACY, SET),
)
_LAYOUTS = "cluster tok_s_per_user layout batch step_s ttft_s instead_tok_s_per_gpu measured_factor measured_runs evidence"
_BY: Mapping[str, str] = {"tok_s_per_gpu": "GPU", "tok_s_per_mw": "MW", "tok_s_per_usd_h": "USD/h"}
"""What throughput is shared by, and its word."""
_POINTS, _LISTED = 60, 20
"""Points of whole requests that a frontier is drawn with, and points of any that are listed."""
_WATERFALL = Table.of("", "cause direction factor from_tok_s_per_gpu to_tok_s_per_gpu")
_FRONTIERS = Table.of(
    "",
    "cluster layout batch tok_s_per_user tok_s_per_gpu step_s bound_by",
    "Frontiers",
    per="cluster",
    most=None,
)
_STEP = Table.of("", "cluster part step_s", "Parts of the step", most=None)
_MEMORY = Table.of("", "cluster use bytes", "Memory of the fullest GPU", most=None)
_GAINS_METHOD = (
    "Changes are applied one after another in this order, and each machine on the way is priced at the same speed per "
    "user: formats (of weights and cache, drafts, overlap, units beside BF16), HBM bandwidth and capacity, flop/s (the "
    "BF16 peak, others in proportion), domain (size and structure, hosts), fabric (rates and latencies of both); kernels "
    "are what calibration and measured runs add beyond the figures of the chips. The product of the factors is the gain."
)
Pair = tuple[CompareRow, Row]


def compare_doc(result: Comparison) -> Doc:
    """Return the document of ``rackplan compare``."""
    first, clusters = result.deployments[0], [side.cluster for side in result.deployments]
    pairs = list(zip(result.rows, _rows(result), strict=True))
    shown = [row for _, row in sorted(pairs, key=lambda pair: pair[0].target_tok_s_per_user or 0.0)]
    at = compared_at(pairs)
    speed = at[0][0].target_tok_s_per_user if at else None
    gains = [gain for gain in result.gains if gain.gain]
    main = [gain for gain in gains if gain.tok_s_per_user == speed]
    errors = {row.cluster: row.errors for row in result.rows}
    sizes = {row.gpus for row in result.rows}
    each = result.budget or (plural(sizes.pop(), "GPU") if len(sizes) == 1 else "")
    what = phase_words(first.workload) if result.lengths is None else result.lengths.brief()
    frontiers = cache(lambda: _frontiers(result))
    machines = CLUSTERS(
        {
            **bill_row(bill),
            "cluster": name,
            "status": next(row.status for row in result.rows if row.cluster == name),
            "band": error.band if (error := widest(errors[name])) else None,
        }
        for name, bill in result.bills.items()
    )
    return Doc(
        COMPARE,
        f"{first.model.name} on {plural(len(clusters), 'cluster')}{f', {each} each' * bool(each)}, {what}",
        list(_answer(result, at)),
        [
            ROWS(shown),
            machines,
            set_table(*clusters),
            *_notes(result),
            *(Note(f"{gain_sentence(gain)}.", "tok_s_per_gpu") for gain in main),
            Late(
                lambda: [
                    *_frontier_chart(result, pairs, frontiers()),
                    *measured_blocks(result.deployments, sum(errors.values(), ())),
                ]
            ),
            *_waterfall(main),
            *_steps(at),
        ],
        [
            ROWS(shown, title="Layouts", shown=_LAYOUTS, most=None),
            GAINS(row for gain in result.gains for row in _gain_rows(gain)),
            *(Note(f"{gain_sentence(gain)}.", kind="method") for gain in gains if gain not in main),
            Note(_GAINS_METHOD if gains else "", kind="method"),
            BILL(row for name, bill in result.bills.items() for row in bill_rows(name, bill)),
            OTHER_RECIPE(map(other_row, result.others)),
            ACCURACY(
                accuracy_row(error, name, first.model.name) for name, some in errors.items() for error in some
            ),
            ACCURACY_METHOD,
            *(Note(text, kind="method") for text in dict.fromkeys(_methods(result))),
            Late(lambda: _tables(result, at, frontiers())),
        ],
    )


def _rows(result: Comparison) -> Iterator[Row]:
    """Yield the rows with throughput by GPU, megawatt and dollar-hour, each beside the first cluster's."""
    firsts: dict[tuple[float | None, str], float | None] = {}
    work = result.deployments[0]
    for row in result.rows:
        totals, reached = result.totals(row), row.tok_s_per_gpu is not None
        amounts = {
            "gpu": totals.gpus,
            "mw": totals.power_w and totals.power_w / 1e6,
            "usd_h": totals.usd_per_hour,
        }
        shares: dict[str, object] = {}
        for by, amount in amounts.items():
            rate = totals.tok_s / amount if amount and reached else None
            base = firsts.setdefault((row.target_tok_s_per_user, by), rate)
            requests = totals.requests_per_s
            shares[f"tok_s_per_{by}"] = rate
            shares[f"tok_s_per_{by}_ratio"] = rate / base if rate and base else None
            shares[f"requests_per_s_per_{by}"] = requests / amount if requests and amount else None
        low, high = band_of(row.tok_s_per_gpu, row.errors)
        money = totals_row(totals)
        yield ROWS.row(
            row,
            **{
                key: money[key]
                for key in ("usd_per_million_tokens", "usd_per_hour", "power_w", "counted_tokens")
            },
            **shares,
            model=work.model.name,
            tok_s=totals.tok_s if reached else None,
            tok_s_per_user=row.target_tok_s_per_user or row.tok_s_per_user,
            reached_tok_s_per_user=row.tok_s_per_user,
            low_tok_s_per_gpu=low,
            high_tok_s_per_gpu=high,
            instead_tok_s_per_gpu=row.instead,
        )


def compared_at(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the rows at the highest speed that the first cluster and another one reach; else any two, or one."""
    reached: dict[float, list[Pair]] = {}
    for pair in pairs:
        if pair[0].tok_s_per_gpu is not None:
            reached.setdefault(pair[0].target_tok_s_per_user or 0.0, []).append(pair)
    several = {speed: mine for speed, mine in reached.items() if len(mine) > 1} or reached
    first = pairs[0][0].cluster
    common = {speed: mine for speed, mine in several.items() if any(row.cluster == first for row, _ in mine)}
    return reached[max(common or several)] if reached else []


def _answer(result: Comparison, at: Sequence[Pair]) -> Iterator[str]:
    """Yield who leads by what is equal and by the others, who would with the other recipe, and how sure that is."""
    if not at:
        yield "No cluster reaches any of the compared speeds."
        return
    keys = sorted(_BY, key=lambda key: not result.budget.endswith(f" {_BY[key]}"))
    leads = {key: ranked for key in keys if (ranked := _ranked(at, key))}
    key, (best, *others) = next(iter(leads.items()))
    token, target = best[1]["counted_tokens"], at[0][0].target_tok_s_per_user
    speed = f"{target:g} tok/s/user" if target else "the largest batch that fits"
    usual = " (default)" if result.usual and target else ""
    ahead = [f", {best[1][key] / row[key]:.2f}x {row['cluster']}" for _, row in others[:1]]
    verb = f"leads per {_BY[key]}:" if others else "gives"
    lead = f"{best[1]['cluster']} {verb} {said(best[1], key, token)} at {speed}{usual}{''.join(ahead)}."
    beside = [
        f"per {_BY[by]} {first['cluster']} leads ({first[by] / second[by]:.2f}x {second['cluster']})"
        for by, ((_, first), (_, second), *_) in ((by, mine) for by, mine in leads.items() if len(mine) > 1)
        if by != key
    ]
    yield " ".join([lead, sentence(", ".join(beside))]).strip()
    yield _other_lead(result, at)
    yield _sure(leads)


def _ranked(at: Sequence[Pair], key: str) -> list[Pair]:
    """Return the rows by a rate, the best first."""
    return sorted((pair for pair in at if pair[1][key] is not None), key=lambda pair: -pair[1][key])


def _other_lead(result: Comparison, at: Sequence[Pair]) -> str:
    """Return who leads per GPU with the other recipe; empty where it is about the same everywhere."""
    target = at[0][0].target_tok_s_per_user
    others = {other.cluster: other for other in result.others if other.tok_s_per_user == target}
    if not others:
        return ""
    rates = {
        row.cluster: others[row.cluster].tok_s_per_gpu if row.cluster in others else row.tok_s_per_gpu or 0.0
        for row, _ in at
    }
    best, *rest = sorted(rates, key=lambda name: -rates[name])
    other = others.get(best) or next(iter(others.values()))
    ahead = f", {rates[best] / rates[rest[0]]:.2f}x {rest[0]}" if rest else ""
    rate = said({"tok_s_per_gpu": rates[best]}, "tok_s_per_gpu", at[0][1]["counted_tokens"])
    return f"{sentence(whose_recipe(other.recipe))[:-1]} ({other.words}) {best} gives {rate}{ahead}."


def _sure(leads: Mapping[str, Sequence[Pair]]) -> str:
    """Return the band of the rows that lead, and which leads are beyond it."""
    errors = dict.fromkeys(error for mine in leads.values() for row, _ in mine[:2] for error in row.errors)
    error = widest(errors)
    text = accuracy_sentence(errors)
    beyond = {
        _BY[key]: mine[0][1][key] / mine[1][1][key]
        >= max(band.band for row, _ in mine[:2] if (band := widest(row.errors)))
        for key, mine in leads.items()
        if len(mine) > 1 and all(row.errors for row, _ in mine[:2])
    }
    if error is None or not beyond:
        return text
    clear = [word for word, is_clear in beyond.items() if is_clear]
    close = [word for word, is_clear in beyond.items() if not is_clear]
    if not clear:
        return f"{text} No lead exceeds that, so the order is uncertain."
    doubt = f"; per {' and '.join(close)} it does not, and the order is uncertain" if close else ""
    return f"{text} The lead per {' and '.join(clear)} exceeds that{doubt}."


def _notes(result: Comparison) -> Iterator[Note]:
    """Yield what was not reached, is missing, or makes clusters unlike."""
    reasons = {row.cluster: row.reason for row in result.rows if row.tok_s_per_gpu is None}
    yield from (Note(f"{name}: {reason}", "tok_s_per_gpu", "missing") for name, reason in reasons.items())
    for bill in result.bills.values():
        yield from missing_notes(bill)
    much, _, unit = result.budget.partition(" ")
    for name, bill in result.bills.items() if much else ():
        spent = bill.usd_per_hour if unit == "USD/h" else bill.power_w and bill.power_w / 1e6
        if spent and spent > float(much) * (1 + 1e-6):
            text = f"The smallest unit of {name} takes {spent:,.3g} {unit}, more than {result.budget}."
            yield Note(text, "gpus", "warning")
    sizes = {row.cluster: row.gpus for row in result.rows}
    if not result.budget and len({*sizes.values()}) > 1:
        yield Note(
            f"The clusters differ in size ({', '.join(f'{name} {gpus:,}' for name, gpus in sizes.items())} GPUs): read "
            f"them per GPU, MW and USD/h. Names without @GPUS, or {input_name('gpus')}, compare equal sizes.",
            "gpus",
        )
    yield Note(doubt_sentence(*(side.cluster for side in result.deployments)), "status")
    if result.loads is not None:
        hint = f"; pass measured loads with {input_name('loads')}" if result.loads.synthetic else ""
        yield Note(f"Loads: {load_names(result.loads.names)}{hint}.")
    if result.ttft_p99_s is not None:
        yield Note(f"Requests/s at p99 keep a time to first token of {result.ttft_p99_s:g} s (simulated).")


def _methods(result: Comparison) -> Iterator[str]:
    """Yield how the figures are made."""
    first = result.deployments[0]
    if result.usual:
        at = f"{USUAL_TPOT.text}, {USUAL_TPOT.value * 1e3:g} ms per token"
        none = result.rows[0].target_tok_s_per_user is None
        reached = (
            "None reaches the default speed, so each runs the largest batch that fits" if none else "Speed"
        )
        yield f"{reached}: {at} (default; {input_name('tok_s_user')})."
    yield from recipe_sentences(result.others)
    words = {
        side.cluster.name: "; ".join(serving_words(side.workload, side.engine)) for side in result.deployments
    }
    same = len({*words.values()}) == 1
    yield from (
        sentence(text if same else f"{name}: {text or 'no drafts'}")
        for name, text in words.items()
        if text or not same
    )
    yield from (f"Recipe: {line}." for line in recipe_lines(*result.deployments))
    yield from sparse_lines(first)
    for name, times in result.scales.items():
        if times != 1:
            yield f"The layout of {name} is that of fewer GPUs, scaled by {times:.3g} to the budget."
    rows = [row for row in result.rows if row.tok_s_per_gpu]
    for fast in rows:
        for slow in rows:
            if fast.target_tok_s_per_user == slow.target_tok_s_per_user and _turned(fast, slow):
                runs = " and ".join(row.cluster for row in (fast, slow) if row.measured_factor != 1)
                at = f" at {fast.target_tok_s_per_user:g} tok/s/user" if fast.target_tok_s_per_user else ""
                yield f"Without the correction by measured runs on {runs}, {slow.cluster} is ahead of {fast.cluster}{at}."
    if any(side.correction.bare for side in result.deployments):
        yield f"No correction by measured runs ({input_name('physics')})."


def _turned(fast: CompareRow, slow: CompareRow) -> bool:
    """Whether measured runs turned the order of two rows."""
    ours, theirs = fast.tok_s_per_gpu or 0.0, slow.tok_s_per_gpu or 0.0
    return ours > theirs and ours * fast.measured_factor < theirs * slow.measured_factor


def _gain_rows(gain: Gain) -> Iterator[Row]:
    """Yield a row for each factor of a gain; one without a factor where there is none."""
    for cause, factor in (gain.factors or {None: None}).items():
        yield GAINS.row(gain, cluster=gain.after, cause=cause, factor=factor)


def gain_sentence(gain: Gain) -> str:
    """Return a gain and its factors: ``a to b, 3.33x: HBM bandwidth 1.14x, flop/s 2.22x``."""
    at = f" at {gain.tok_s_per_user:g} tok/s/user" if gain.tok_s_per_user else ""
    factors = ", ".join(f"{cause} {factor:.2f}x" for cause, factor in gain.counting())
    why = f"not broken down, {gain.reason}" if gain.reason else factors or "no relevant difference"
    return f"{gain.before} to {gain.after}{at}, {gain.gain or 0.0:.2f}x: {why}"


def _waterfall(gains: Sequence[Gain]) -> list[Block]:
    """Return bars of each cluster, and between them what its factors add or take."""
    bars: list[Row] = []

    def bar(cause: str, direction: str, factor: float | None, low: float, high: float) -> None:
        ends = {"from_tok_s_per_gpu": low, "to_tok_s_per_gpu": high}
        bars.append({"cause": cause, "direction": direction, "factor": factor, **ends})

    split = [gain for gain in gains if gain.factors]
    for gain in split:
        rate, end = (rate or 0.0 for rate in gain.rates)
        if not bars or bars[-1]["cause"] != gain.before:
            bar(gain.before, "cluster", None, 0.0, rate)
        for cause, factor in gain.counting():
            name = cause if len(split) == 1 else f"{gain.after}: {cause}"
            bar(name, "faster" if factor > 1 else "slower", factor, rate, rate * factor)
            rate *= factor
        bar(gain.after, "cluster", None, 0.0, end)
    layer = Layer(
        "bar", _WATERFALL(bars), "cause", "to_tok_s_per_gpu", "direction", "from_tok_s_per_gpu", text="factor"
    )
    alt = "; ".join(map(gain_sentence, split))
    return [Chart(GAINS.title, [layer], alt=alt, stacked=True, height=420)] if split else []


def _frontiers(result: Comparison) -> dict[str, list[LayoutPoint]]:
    """Return the best layouts and batches of each cluster."""
    points: dict[str, list[LayoutPoint]] = {}
    for side in result.deployments:
        serving = result.servings.get(side.cluster.name)
        if serving is not None:
            mine = serving_points(serving, thinned(serving.frontier(), _POINTS, even=True))  # type: ignore[type-var]
        else:
            mine = layout_points(side, None) if result.lengths is None else []
        points[side.cluster.name] = frontier(mine)
    return points


def _frontier_chart(
    result: Comparison, pairs: Sequence[Pair], points: Mapping[str, Sequence[LayoutPoint]]
) -> list[Block]:
    """Return the frontiers with the rows as stars, and runs at the same conditions as rings."""
    lines = _FRONTIERS(_FRONTIERS.row(point, cluster=name) for name, mine in points.items() for point in mine)
    runs = RUNS(
        run_row(run, side.cluster.name)
        for side in result.deployments
        for run in comparable_points(side, result.lengths)
    )
    x, y = "tok_s_per_user", "tok_s_per_gpu"
    layers = [
        Layer("line", lines, x, y, "cluster"),
        Layer("star", ROWS(row for _, row in pairs), f"reached_{x}", y, "cluster"),
        Layer("ring", runs, x, f"measured_{y}", "cluster"),
    ]
    experts = "one pool or two" if result.lengths is not None else "perfectly balanced experts"
    rings = "; rings: published runs at the same conditions" if runs.rows else ""
    return [
        Chart(
            "Frontier of each cluster", layers, log="x", alt="Throughput against speed per user", height=480
        ),
        Note(
            f"The best layouts and batches up to the fastest, with {experts}; stars: the rows above{rings}.",
            kind="method",
        ),
    ]


def _steps(at: Sequence[Pair]) -> list[Block]:
    """Return charts of the step and of memory by part; none of whole requests."""
    step, memory = _parts(at)
    height = 46 * len(at) + 130
    says = "; ".join(f"{row['cluster']} {said(row, 'step_s')}, {row['bound_by']} binds" for _, row in at)
    charts = [
        Chart(
            "Step by part",
            [Layer("bar", step, "step_s", "cluster", "part")],
            alt=says,
            stacked=True,
            height=height,
        ),
        Chart(
            memory.title,
            [Layer("bar", memory, "bytes", "cluster", "use")],
            alt=memory.title,
            stacked=True,
            height=height,
        ),
    ]
    return list(charts) if step.rows else []


def _parts(at: Sequence[Pair]) -> tuple[Table, Table]:
    """Return the parts of each step, and the uses of memory."""
    scores = [(row.cluster, row.score) for row, _ in at if row.score is not None]
    step = _STEP(
        {"cluster": name, "part": part.replace("_", " "), "step_s": seconds}
        for name, score in scores
        for part, seconds in score.terms_s.items()
    )
    return step, _MEMORY(
        {"cluster": name, "use": use.replace("kv_cache", "KV cache"), "bytes": held}
        for name, score in scores
        for use, held in score.hbm_bytes.items()
    )


def _tables(
    result: Comparison, at: Sequence[Pair], points: Mapping[str, Sequence[LayoutPoint]]
) -> list[Block]:
    """Return for a page frontiers, steps and figures as tables, and drawings of the clusters."""
    from rackplan.report.results import drawing

    frontiers = _FRONTIERS(
        _FRONTIERS.row(point, cluster=name)
        for name, mine in points.items()
        for point in thinned(mine, _LISTED, even=True)  # type: ignore[type-var]
    )
    figures = (
        figure_row(used.figure, used.of or used.group, used.name)
        for side in result.deployments
        for used in deployment_figures(side)
    )
    distinct = {(row["part"], row["figure"], row["shown"]): row for row in figures}
    return [
        frontiers,
        *_parts(at),
        FIGURES(distinct.values(), most=None),
        *(
            Picture(
                side.cluster.name,
                f"Topology of {side.cluster.name}",
                lambda side=side: drawing(side.cluster),
                scene=True,
            )  # type: ignore[misc]
            for side in result.deployments
        ),
    ]
