"""What several results share: throughput and cost of a cluster, accuracy, recipes, figures set by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rackplan.report.doc import Block, Chart, Late, Layer, Note, Picture, Row, Table
from rackplan.report.fields import phrase, usd
from topology.base.errors import input_name
from topology.base.units import plural
from topology.changes.overrides import figures_set

if TYPE_CHECKING:
    from cost.calibration.errors import ErrorOf
    from cost.inputs.deployment import Deployment
    from cost.inputs.machine import NearRuns
    from cost.memory.stages import CacheRoom
    from cost.money.bill import Bill, Totals
    from cost.recipe import OtherRecipe
    from cost.serving.token_prices import TokenPrices
    from cost.step.score import Score
    from placement.analysis.evidence import UsedFigure
    from topology.base.figures import Figure
    from topology.cluster import Cluster

BILLED = (
    "gpus gpus_idle usd_per_hour usd_per_year price_basis price_evidence power_w power_evidence power_scope"
)
"""What some GPUs cost and draw."""
USED = "gpus_used tok_s_per_gpu_used usd_per_hour_used usd_per_million_tokens_used power_w_used tok_s_per_mw_used"
"""The same over the GPUs in use; null where none is idle."""
TOTALS = f"counted_tokens tok_s tok_s_per_gpu requests_per_s usd_per_million_tokens tok_s_per_mw {BILLED}"
"""What a whole cluster gives, costs and draws."""
CACHE = "kv_tokens low_kv_tokens high_kv_tokens kv_sequences"
"""What the KV cache of a replica holds."""
_TOTALS = Table.of("", f"{TOTALS} {USED}")
_BILLED = Table.of("", BILLED)
BILL = Table.of(
    "bill",
    "cluster part count each_usd_per_hour price_evidence price_source each_power_w power_evidence power_source",
    "Cost and power by part",
    per="cluster",
)
ACCURACY = Table.of(
    "accuracy",
    "cluster chip stand_in_for runs median_abs_error within_20_percent band | model mean_abs_error bias "
    "left_out_median_abs_error left_out_within_20_percent",
    "Accuracy",
)
FIGURES = Table.of(
    "figures", "part figure value unit shown evidence source", "Figures and their sources", max_rows=0
)
_POOL = "role layout workers gpus gpus_per_worker"
TURNS = Table.of("turns", "serving from_tok_s_per_user to_tok_s_per_user", "Which way is ahead")
OTHER_RECIPE = Table.of(
    "other_recipe",
    "cluster recipe tok_s_per_user tok_s_per_gpu other_ratio gpus | other_recipe",
    "With the other recipe",
)
SET = Table.of(
    "set",
    "part figure shown source | cluster value unit evidence",
    "Set by hand",
)
_LACKS = {"usd_per_hour": "price; set one", "power_w": "all-in power; set one"}
"""What the texts of a bill say where a figure is missing."""
_LIMITS = {
    "tpot_limit_s": "per output token",
    "ttft_limit_s": "to the first token",
    "ttft_p99_limit_ms": "to the first token",
    "tpot_p99_limit_ms": "per output token",
}
GROUNDS = (BILL, ACCURACY, OTHER_RECIPE, FIGURES, SET)
"""Tables of :func:`grounds` and :func:`set_table`."""
ACCURACY_METHOD = Note(
    "Cross-validated on measured runs. 80% of them are within the band of the prediction; a chip that nobody "
    "measured has the band of the chip that was predicted worst when it was left out of the fit.",
    kind="method",
)


def pools(fields: str, **look: Any) -> Table:
    """Return a table of pools: what every pool is (:func:`pool_row`), and these fields."""
    bar = "" if "|" in fields else " |"
    return Table.of("pools", f"{_POOL} {fields}{bar} {CACHE}", "Pools", **look)


def pool_row(role: str, layout: str, workers: int, gpus_per_worker: float) -> dict[str, Any]:
    """Return what every pool is."""
    gpus = workers * gpus_per_worker
    return dict(zip(_POOL.split(), (role, layout, workers, gpus, gpus_per_worker), strict=True))


KINDS = "input_usd_per_million_tokens cached_usd_per_million_tokens output_usd_per_million_tokens"
"""What tokens cost by kind."""


def kinds_row(prices: TokenPrices) -> Row:
    """Return the fields of :data:`KINDS`."""
    return dict(zip(KINDS.split(), (prices.input, prices.cached, prices.output), strict=True))


def bill_row(bill: Bill) -> Row:
    """Return the fields of :data:`BILLED`."""
    return _BILLED.row(bill, None, price_evidence=bill.price_kind, power_evidence=bill.power_kind)


def totals_row(totals: Totals) -> Row:
    """Return the fields of :data:`TOTALS` and of :data:`USED`."""
    over_used = {key: getattr(totals.used, key.removesuffix("_used"), None) for key in USED.split()}
    over_used["gpus_used"] = getattr(totals.used, "gpus", None)
    return _TOTALS.row(totals, counted_tokens=totals.tokens, **bill_row(totals), **over_used)


def bill_rows(cluster: str, bill: Bill) -> Iterator[Row]:
    """Yield the rows of :data:`BILL`: GPUs by kind, and the network where it is counted."""
    for part in bill.parts:
        row = {"cluster": cluster, "part": part.name, "count": part.count}
        for key, figure, name in (
            ("each_usd_per_hour", part.usd_per_hour, "price"),
            ("each_power_w", part.power_w, "power"),
        ):
            keys = (key, f"{name}_evidence", f"{name}_source")
            values = (figure.value, figure.kind, figure.source) if figure else (None, None, None)
            row |= zip(keys, values, strict=True)
        yield row


def missing(table: Table, usual: str = "", **why: str) -> Iterator[Note]:
    """Yield why figures of a table are null, of each that is: ``why`` by key, else ``usual``."""
    for field in table.fields:
        text = why.get(field.key, usual)
        if text and field.is_number and any(row[field.key] is None for row in table.rows):
            yield Note(text, field.key, "missing")


def missing_notes(bill: Bill) -> list[Note]:
    """Return what a bill lacks, and how to give it; what leaves no figure null is method."""
    null = [key for key in ("usd_per_hour", "power_w") if getattr(bill, key) is None]
    about = {text: next((key for key in null if _LACKS[key] in text), "") for text in bill.missing}
    return [Note(text, key, "missing" if key else "method") for text, key in about.items()]


def limits(row: Row) -> list[str]:
    """Return the limits of a row in words: ``50 ms per output token``."""
    return [f"{phrase(row, key)} {suffix}" for key, suffix in _LIMITS.items() if row.get(key) is not None]


def price_sentence(row: Row) -> str:
    """Return what tokens cost and machines draw, of a row with :data:`TOTALS`."""
    price, power = row["usd_per_million_tokens"], row["power_w"]
    cost = "The price is unknown; it"
    if price is not None:
        tokens = f"USD per million {row['counted_tokens']} tokens"
        cost = (
            f"It costs {usd(price)} {tokens} ({phrase(row, 'usd_per_hour')}, {row['price_basis']} prices) and"
        )
    draws = "unknown power" if power is None else f"{phrase(row, 'power_w')} ({row['power_scope']})"
    return f"{cost} draws {draws}."


def accuracy_row(error: ErrorOf, cluster: str = "", model: str = "") -> Row:
    """Return a row of :data:`ACCURACY`."""
    out = error.left_out
    return ACCURACY.row(
        error,
        cluster=cluster or None,
        model=model or None,
        runs=error.rows,
        median_abs_error=error.median,
        mean_abs_error=error.mean,
        left_out_median_abs_error=out and out.median,
        left_out_within_20_percent=out and out.within_20_percent,
    )


def accuracy_sentence(errors: Iterable[ErrorOf]) -> str:
    """Return within which factor predictions are of measured runs, and of which."""
    from cost.calibration.errors import MIN_ROWS, widest

    error = widest(errors)
    if error is None:
        return "How accurate this is nobody knows: no run on this chip was measured."
    if error.near is not None:
        runs = plural(error.near, "measured run")
        near = (
            f"{runs} {'is' if error.near == 1 else 'are'} near it"
            if error.near
            else "no measured run is near it"
        )
        near = f"no run on {error.stand_in_for} was measured" if error.stand_in_for else near
        near += f", beside {plural(error.own_runs, 'run')} of your own" if error.own_runs else ""
        return f"80% of runs like this are within {error.band:.2f}x of the prediction; {near}."
    known = error.model_seen and not error.borrowed
    basis = plural(error.rows, "measured run") + f" on {error.chip}" if known else "measured runs"
    left_out = [word for word, out in (("chip", error.borrowed), ("model", not error.model_seen)) if out]
    fit = f" with their {' and '.join(left_out)} left out of the fit" if left_out else ""
    basis += f" and of {plural(error.own_runs, 'run')} of your own" if error.own_runs else ""
    why = "" if error.model_seen else "; no run of this model was measured"
    if error.stand_in_for:
        why = f"; no run on {error.stand_in_for} was measured"
    elif error.borrowed:
        why = f"; {error.chip} has fewer than {MIN_ROWS} measured runs"
    return f"80% of {basis} are within {error.band:.2f}x of the prediction{fit}{why}."


def band_row(rate: float | None, errors: Iterable[ErrorOf]) -> dict[str, float | None]:
    """Return the ends of the band of a rate per GPU; null without measurements."""
    from cost.calibration.errors import widest

    error = widest(errors)
    low, high = (None, None) if error is None or rate is None else (rate / error.band, rate * error.band)
    return {"low_tok_s_per_gpu": low, "high_tok_s_per_gpu": high}


def doubt_sentence(*clusters: Cluster) -> str:
    """Return which clusters nobody can buy: announced or hypothetical; empty where all can be had."""
    from rackplan.report.notes import cluster_doubts

    doubts = "; ".join(filter(None, map(cluster_doubts, clusters)))  # names stay as they are written
    return doubts and f"{doubts}."


def method_notes(*deployments: Deployment) -> list[Note]:
    """Return drafts and overlap, recipes and what-ifs; each under the name of its cluster where they differ."""
    from rackplan.report.notes import sentence, serving_words, what_if_words

    words = [
        (side.cluster.name, text)
        for side in deployments
        for text in (
            *map(sentence, serving_words(side.workload, side.engine)),
            f"Recipe: {side.recipe}." if side.recipe else "",
            sentence(what_if_words(side)),
            f"No correction by measured runs ({input_name('physics')})." if side.correction.bare else "",
        )
        if text
    ]
    shared = {text for _, text in words if sum(text == entry for _, entry in words) == len(deployments)}
    texts = dict.fromkeys(text if text in shared else f"{name}: {text}" for name, text in words)
    return [Note(text, kind="method") for text in texts]


def name_of(key: str) -> str:
    """Return how a part of the step, or a use of memory, is called."""
    return "KV cache" if key == "kv_cache" else key.replace("_", " ")


def bars(title: str, keys: str, rows: Iterable[tuple[str, str, float]], alt: str = "") -> Chart:
    """Return stacked bars: ``keys`` of places, parts, and how long those are; rows have them in this order."""
    place, part, length = keys.split()
    table = Table.of("", keys)(
        {place: name, part: name_of(of), length: amount} for name, of, amount in rows if amount
    )
    height = 130 + 46 * len({row[place] for row in table.rows})
    return Chart(title, [Layer("bar", table, length, place, part)], alt=alt, stacked=True, height=height)


def step_bars(steps: Iterable[tuple[str, Mapping[str, float]]], place: str) -> Chart:
    """Return the steps of what is named by the key ``place``, by part, in the order of the cost model."""
    from cost.terms.registry import TERMS

    rows = ((name, part, terms_s.get(part, 0.0)) for name, terms_s in steps for part in TERMS)
    return bars("Steps by part", f"{place} part step_s", rows)


def memory_bars(scores: Iterable[tuple[str, Score]], place: str) -> Chart:
    """Return memory of the fullest GPU by use."""
    rows = ((name, use, held) for name, score in scores for use, held in score.hbm_bytes.items())
    return bars("Memory of the fullest GPU", f"{place} use bytes", rows)


def near_row(near: NearRuns) -> dict[str, Any]:
    """Return what measured runs near a step say."""
    return {"measured_factor": near.factor, "measured_runs": near.runs}


def cache_row(cache: CacheRoom) -> dict[str, Any]:
    """Return :data:`CACHE` of what the KV cache of a replica holds; null where it is not known."""
    if not cache.context:
        return dict.fromkeys(CACHE.split())
    return dict(zip(CACHE.split(), (cache.tokens, cache.low, cache.high, cache.sequences), strict=True))


def hbm_words(held: Mapping[str, float]) -> str:
    """Return bytes of the fullest GPU by use."""
    main = {"weights": held["experts"] + held["weights"], "kv_cache": held["kv_cache"], "free": held["free"]}
    remaining = {use: amount for use, amount in held.items() if use != "experts" and use not in main}
    words = ", ".join(
        f"{name_of(use)} {amount / 1e9:,.1f}" for use, amount in (main | remaining).items() if amount
    )
    return f"HBM per GPU {words} GB"


def cache_note(cache: CacheRoom, of: str = "") -> Note:
    """Return the same as a sentence, ``of`` before it; a warning where the engine may not start."""
    from rackplan.report.notes import cache_words

    words = f"{of}{': ' * bool(of)}{cache_words(cache)}." if cache.context else ""
    return Note(words, "kv_tokens", "warning" if cache.may_not_start else "note")


def whose_recipe(recipe: str) -> str:
    """Return whose formats a recipe has, to follow in a sentence."""
    return "with the recipe of published runs" if recipe == "usual" else "in the checkpoint's formats"


def figure_row(figure: Figure, part: str, name: str, **columns: object) -> Row:
    """Return a row of :data:`FIGURES`; the value is null where it is not published."""
    value = figure.value if figure.published else None
    values = {"value": value, "shown": figure.text, "evidence": figure.kind.label}
    return FIGURES.row(figure, part=part, figure=name, **values, **columns)


def figure_blocks(used: Iterable[UsedFigure], extra: Iterable[Row] = ()) -> list[Block]:
    """Return figures with their sources, each once, ``extra`` after them: for JSON, and for pages."""
    rows = (figure_row(figure.figure, figure.of or figure.group, figure.name) for figure in used)
    table = FIGURES({(row["part"], row["figure"]): row for row in (*rows, *extra)}.values())
    return [table, Late(lambda: [replace(table, max_rows=None)])]


def used_figures(*deployments: Deployment) -> Late:
    """Return every figure of machines and kernels with its source, for pages alone."""
    return Late(lambda: figure_blocks(_used(deployments)))


def _used(deployments: Iterable[Deployment]) -> Iterator[UsedFigure]:
    from placement.analysis.evidence import deployment_figures

    return (figure for deployment in deployments for figure in deployment_figures(deployment))


def grounds(
    sides: Sequence[tuple[Deployment, Bill | None, Sequence[ErrorOf]]],
    methods: Iterable[str] = (),
    *,
    gains: Iterable[OtherRecipe | None] = (),
    beside: Iterable[Deployment] = (),
    figures: Iterable[Row] = (),
) -> list[Block]:
    """Return what an answer rests on: bills, accuracy, method, all figures, and the drawing of each cluster.

    Parameters
    ----------
    sides:
        Each cluster with its bill, where it is told, and the errors of predictions for it.
    methods:
        How figures are made, in sentences.
    gains:
        What the other recipe would bring.
    beside:
        More pools of the same clusters.
    figures:
        Rows of :data:`FIGURES` besides those of machines and kernels.
    """
    from rackplan.report.notes import chip_words, sentence

    deployments = [*(deployment for deployment, _, _ in sides), *beside]
    clusters = dict.fromkeys(deployment.cluster for deployment in deployments)
    named = len(clusters) == len(sides)  # not where pools are of several clusters: errors are of all
    words = [sentence(chip_words(error)) for _, _, errors in sides for error in errors]
    return [
        BILL(row for side, bill, _ in sides if bill for row in bill_rows(side.cluster.name, bill)),
        ACCURACY(
            accuracy_row(error, side.cluster.name * named, side.model.name)
            for side, _, errors in sides
            for error in errors
        ),
        ACCURACY_METHOD,
        OTHER_RECIPE(
            OTHER_RECIPE.row(gain, other_recipe=gain.recipe, recipe=gain.words, other_ratio=gain.ratio)
            for gain in gains
            if gain is not None
        ),
        *method_notes(*deployments),
        *(Note(text, kind="method") for text in dict.fromkeys((*methods, *words))),
        *figure_blocks(_used(deployments), figures),
        *(
            Picture(
                f"cluster-{at}",
                cluster.brief(),
                partial(_drawing, cluster),
                title=cluster.name,
                scene=True,
            )
            for at, cluster in enumerate(clusters)
        ),
    ]


def set_table(*clusters: Cluster) -> Table:
    """Return what the user set of clusters."""
    rows = (
        figure_row(figure, part, name, cluster=cluster.name)
        for cluster in clusters
        for part, name, figure in figures_set(cluster.spec)
    )
    return SET(rows)


def _drawing(cluster: Cluster) -> str:
    from topology.draw import cluster_svg

    return cluster_svg(cluster)
