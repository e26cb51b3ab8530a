"""What several results share: throughput and cost of a cluster, accuracy, recipes, figures set by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rackplan.report.doc import Block, Chart, Late, Layer, Note, Picture, Row, Table
from rackplan.report.fields import said, usd
from rackplan.report.notes import sentence, serving_words, sparse_lines
from topology.base.errors import input_name
from topology.base.units import plural

if TYPE_CHECKING:
    from cost.calibration.errors import ErrorOf
    from cost.inputs.deployment import Deployment
    from cost.money.bill import Bill, Totals
    from cost.recipe import OtherRecipe
    from cost.step.score import Score
    from cost.validation.measured import MeasuredPoint
    from topology.base.figures import Figure
    from topology.cluster import Cluster

BILLED = (
    "gpus gpus_idle usd_per_hour usd_per_year price_basis price_evidence power_w power_evidence power_scope"
)
"""What some GPUs cost and draw."""
USED = "gpus_used tok_s_per_gpu_used usd_per_hour_used usd_per_million_tokens_used power_w_used tok_s_per_mw_used"
"""The same over the GPUs in use; null where none is idle."""
RATES = "counted_tokens tok_s tok_s_per_gpu requests_per_s usd_per_million_tokens tok_s_per_mw"
TOTALS = f"{RATES} {BILLED}"
"""What a whole cluster gives, costs and draws."""
BILL = Table.of(
    "bill",
    "cluster part count each_usd_per_hour price_evidence price_source each_power_w power_evidence power_source",
    "Cost and power by part",
    per="cluster",
)
ACCURACY = Table.of(
    "accuracy",
    "cluster model chip stand_in_for runs median_abs_error mean_abs_error within_20_percent bias "
    "left_out_median_abs_error left_out_within_20_percent band",
    "Accuracy",
    shown="cluster model chip stand_in_for runs median_abs_error within_20_percent band",
)
FIGURES = Table.of(
    "figures", "part figure value unit shown evidence source", "Figures and their sources", most=0
)
POOLS = Table.of(
    "pools",
    "cluster role model layout gpus workers gpus_per_worker batch step_s tok_s measured_factor measured_runs",
    "Pools",
    per="cluster",
    shown="role layout workers gpus_per_worker gpus batch step_s tok_s measured_factor measured_runs",
)
OTHER_RECIPE = Table.of(
    "other_recipe",
    "cluster other_recipe recipe tok_s_per_user tok_s_per_gpu other_ratio gpus",
    "With the other recipe",
    shown="cluster recipe tok_s_per_user tok_s_per_gpu other_ratio gpus",
)
RUNS = Table.of(
    "runs",
    "cluster chip run tok_s_per_user measured_tok_s_per_gpu predicted_tok_s_per_gpu measured_ratio source",
    "Measured runs of this model on these chips",
    most=None,
)
SET = Table.of(
    "set",
    "cluster part figure value unit shown evidence source",
    "Set by hand",
    shown="part figure shown source",
)
GROUNDS = (BILL, ACCURACY, OTHER_RECIPE, FIGURES, SET)
"""Tables of :func:`grounds` and :func:`set_table`."""
ACCURACY_METHOD = Note(
    "Cross-validated on measured runs. 80% of them are within the band of the prediction; a chip that nobody "
    "measured has the band of the chip that was predicted worst when it was left out of the fit.",
    kind="method",
)


def bill_row(bill: Bill) -> Row:
    """Return the fields of :data:`BILLED`."""
    return {
        "gpus": bill.gpus,
        "gpus_idle": getattr(bill, "gpus_idle", None),
        "usd_per_hour": bill.usd_per_hour,
        "usd_per_year": bill.usd_per_year,
        "price_basis": bill.price_basis,
        "price_evidence": bill.price_kind,
        "power_w": bill.power_w,
        "power_evidence": bill.power_kind,
        "power_scope": power_scope(bill),
    }


def totals_row(totals: Totals) -> Row:
    """Return the fields of :data:`TOTALS` and of :data:`USED`."""
    used = totals.used
    over_used = {
        "gpus_used": used.gpus if used else None,
        **{
            f"{name}_used": getattr(used, name, None)
            for name in ("tok_s_per_gpu", "usd_per_hour", "usd_per_million_tokens", "power_w", "tok_s_per_mw")
        },
    }
    rates = {
        "counted_tokens": totals.tokens,
        **{name: getattr(totals, name) for name in RATES.split()[1:]},
    }
    return {**bill_row(totals), **rates, **over_used}


def power_scope(bill: Bill) -> str:
    """Return what the power of a bill contains: ``all-in`` with cooling and conversion, ``IT`` the machines alone."""
    scopes = {"all-in" if part.all_in else "IT" for part in bill.gpu_parts if part.power_w is not None}
    return " and ".join(sorted(scopes))


def bill_rows(cluster: str, bill: Bill) -> Iterator[Row]:
    """Yield the rows of :data:`BILL`: GPUs by kind, and the network where it is counted."""
    for part in bill.parts:
        price, power = part.usd_per_hour, part.power_w
        yield {
            "cluster": cluster,
            "part": part.name,
            "count": part.count,
            "each_usd_per_hour": price.value if price else None,
            "price_evidence": price.kind if price else None,
            "price_source": price.source if price else None,
            "each_power_w": power.value if power else None,
            "power_evidence": power.kind if power else None,
            "power_source": power.source if power else None,
        }


def missing(table: Table, usual: str = "", **why: str) -> Iterator[Note]:
    """Yield why figures of a table are null, of each that is: ``why`` by key, else ``usual``."""
    for field in table.fields:
        text = why.get(field.key, usual)
        if text and field.is_number and any(row[field.key] is None for row in table.rows):
            yield Note(text, field.key, "missing")


def missing_notes(bill: Bill) -> list[Note]:
    """Return what a bill lacks, and how to give it."""
    about = "usd_per_hour" if bill.usd_per_hour is None else "power_w" if bill.power_w is None else ""
    return [Note(text, about, "missing" if about else "note") for text in bill.missing]


def price_sentence(row: Row) -> str:
    """Return what tokens cost and machines draw, of a row with :data:`TOTALS`."""
    price, power = row["usd_per_million_tokens"], row["power_w"]
    cost = "The price is unknown"
    if price is not None:
        tokens = f"USD per million {row['counted_tokens']} tokens"
        cost = f"It costs {usd(price)} {tokens} ({said(row, 'usd_per_hour')}, {row['price_basis']} prices)"
    draws = "unknown power" if power is None else f"{said(row, 'power_w')} ({row['power_scope']})"
    return f"{cost} and draws {draws}."


def accuracy_row(error: ErrorOf, cluster: str = "", model: str = "") -> Row:
    """Return a row of :data:`ACCURACY`."""
    out = error.left_out
    return {
        "cluster": cluster or None,
        "model": model or None,
        "chip": error.chip,
        "stand_in_for": error.stand_in_for,
        "runs": error.rows,
        "median_abs_error": error.median,
        "mean_abs_error": error.mean,
        "within_20_percent": error.within_20_percent,
        "bias": error.bias,
        "left_out_median_abs_error": out.median if out else None,
        "left_out_within_20_percent": out.within_20_percent if out else None,
        "band": error.band,
    }


def accuracy_sentence(errors: Iterable[ErrorOf]) -> str:
    """Return within which factor predictions are of measured runs, and of which."""
    from cost.calibration.errors import LEAST_ROWS, widest

    error = widest(errors)
    if error is None:
        return "How accurate this is nobody knows: no run on this chip was measured."
    left_out = [word for word, out in (("chip", error.borrowed), ("model", not error.model_seen)) if out]
    seen = f"{plural(error.rows, 'measured run')} on {error.chip}" if not left_out else "measured runs"
    fit = f" with their {' and '.join(left_out)} left out of the fit" if left_out else ""
    seen += f" and of {plural(error.own_runs, 'run')} of your own" if error.own_runs else ""
    why = "" if error.model_seen else "; no run of this model was measured"
    if error.stand_in_for:
        why = f"; no run on {error.stand_in_for} was measured"
    elif error.borrowed:
        why = f"; {error.chip} has fewer than {LEAST_ROWS} measured runs"
    return f"80% of {seen} are within {error.band:.2f}x of the prediction{fit}{why}."


def band_of(rate: float | None, errors: Iterable[ErrorOf]) -> tuple[float | None, float | None]:
    """Return the ends of the band of a rate; None without measurements."""
    from cost.calibration.errors import widest

    error = widest(errors)
    return (None, None) if error is None or rate is None else (rate / error.band, rate * error.band)


def doubt_sentence(*clusters: Cluster) -> str:
    """Return which clusters nobody can buy: announced or hypothetical; empty where all can be had."""
    from placement.analysis.compare import cluster_status

    doubts = []
    for cluster in clusters:
        status = cluster_status(cluster)
        if "hypothetical" in status:
            doubts.append(f"{cluster.name} is hypothetical: no such machine has been announced")
        elif "announced" in status:
            doubts.append(f"{cluster.name} is announced but not shipping")
    return f"{'; '.join(doubts)}." if doubts else ""


def sides_grounds(
    sides: Iterable[tuple[str, str, Bill, Sequence[ErrorOf]]], others: Iterable[OtherRecipe | None] = ()
) -> list[Block]:
    """Return bills and accuracy of clusters (name, model, bill, errors), and what the other recipe would bring."""
    given = list(sides)
    return [
        BILL(row for name, _, bill, _ in given for row in bill_rows(name, bill)),
        ACCURACY(accuracy_row(error, name, model) for name, model, _, errors in given for error in errors),
        ACCURACY_METHOD,
        OTHER_RECIPE(other_row(other) for other in others if other is not None),
    ]


def method_notes(*deployments: Deployment) -> list[Note]:
    """Return drafts and overlap, recipes and what-ifs; each under the name of its cluster where they differ."""
    words = [
        (side.cluster.name, text)
        for side in deployments
        for text in (
            *map(sentence, serving_words(side.workload, side.engine)),
            f"Recipe: {side.recipe}." if side.recipe else "",
            *sparse_lines(side),
            f"No correction by measured runs ({input_name('physics')})." if side.correction.bare else "",
        )
        if text
    ]
    shared = {text for _, text in words if sum(text == other for _, other in words) == len(deployments)}
    texts = dict.fromkeys(text if text in shared else f"{name}: {text}" for name, text in words)
    return [Note(text, kind="method") for text in texts]


STEP = Table.of("", "cluster part step_s", "Parts of the step", most=None)
MEMORY = Table.of("", "cluster use bytes", "Memory of the fullest GPU", most=None)


def step_blocks(scores: Sequence[tuple[str, Score]]) -> list[Block]:
    """Return for a page charts of the step and of memory by part, of clusters or pools by their names."""
    if not scores:
        return []
    step = STEP(
        {"cluster": name, "part": part.replace("_", " "), "step_s": seconds}
        for name, score in scores
        for part, seconds in score.terms_s.items()
    )
    memory = MEMORY(
        {"cluster": name, "use": use.replace("kv_cache", "KV cache"), "bytes": held}
        for name, score in scores
        for use, held in score.hbm_bytes.items()
    )
    look: Mapping[str, Any] = {"stacked": True, "height": 46 * len(scores) + 130}
    return [
        Chart(step.title, [Layer("bar", step, "step_s", "cluster", "part")], alt=step.title, **look),
        Chart(memory.title, [Layer("bar", memory, "bytes", "cluster", "use")], alt=memory.title, **look),
    ]


def whose_recipe(recipe: str) -> str:
    """Return whose formats a recipe has, to follow in a sentence."""
    return "with the recipe of published runs" if recipe == "usual" else "in the checkpoint's formats"


def other_row(other: OtherRecipe) -> Row:
    """Return a row of :data:`OTHER_RECIPE`."""
    return OTHER_RECIPE.row(other, other_recipe=other.recipe, recipe=other.words, other_ratio=other.ratio)


def run_row(run: MeasuredPoint, cluster: str, predicted: float | None = None) -> Row:
    """Return a row of :data:`RUNS`."""
    return RUNS.row(
        run,
        cluster=cluster,
        run=run.words,
        tok_s_per_user=run.tok_s_per_user or None,
        measured_tok_s_per_gpu=run.tok_s_per_gpu,
        predicted_tok_s_per_gpu=predicted,
        measured_ratio=predicted and run.tok_s_per_gpu / predicted,
    )


def measured_blocks(deployments: Sequence[Deployment], errors: Iterable[ErrorOf]) -> list[Block]:
    """Return for a page the published runs of these chips, each against the prediction for its own conditions."""
    from cost.calibration.errors import widest
    from cost.validation.measured import predicted, published_runs

    rows: dict[str, Row] = {}
    refused: set[str] = set()
    for deployment in deployments:
        for run in published_runs(deployment) if deployment.workload.decodes else []:
            rate = predicted(run, deployment.correction)
            if rate is None:
                refused.add(run.id)
            else:
                rows[run.id] = run_row(run, deployment.cluster.name, rate)
    if not rows:
        none = "No published run of this model on these chips is included."
        return [Note(none, kind="method")] if deployments[0].workload.decodes else []
    error, table = widest(errors), RUNS(rows.values())
    rates = [row["predicted_tok_s_per_gpu"] for row in table.rows]
    ends = [
        {"predicted_tok_s_per_gpu": rate, "from_tok_s_per_gpu": low, "to_tok_s_per_gpu": high}
        for rate in (min(rates) / 1.3, max(rates) * 1.3)
        for low, high in [band_of(rate, [error] if error else [])]
    ]
    band = Table.of("", "predicted_tok_s_per_gpu from_tok_s_per_gpu to_tok_s_per_gpu")(ends)
    equal = Layer("rule", band, "predicted_tok_s_per_gpu", "predicted_tok_s_per_gpu", name="equal")
    x, y = "predicted_tok_s_per_gpu", "measured_tok_s_per_gpu"
    inside = [row for row in table.rows if error and 1 / error.band <= row["measured_ratio"] <= error.band]
    within = f"{len(inside)} of {len(rates)} are within {error.band:.2f}x. " if error else ""
    return [
        Chart(
            "Measured against predicted",
            [
                Layer("point", table, x, y, "chip"),
                equal,
                *(
                    [Layer("band", band, x, "to_tok_s_per_gpu", base="from_tok_s_per_gpu", name="80% band")]
                    * bool(error)
                ),
            ],
            log="xy",
            alt=f"{plural(len(rates), 'published run')} of this model against predictions",
        ),
        Note(
            f"{plural(len(rates), 'published run')} of this model on these chips, each against the prediction for "
            f"its own lengths, formats and drafts. {within}"
            + (f"{len(refused)} more say too little for a prediction." if refused else ""),
            kind="method",
        ),
    ]


def figure_row(figure: Figure, part: str, name: str, **more: object) -> Row:
    """Return a row of :data:`FIGURES`; the value is null where it is not published."""
    return {
        "part": part,
        "figure": name,
        "value": figure.value if figure.published else None,
        "unit": figure.unit,
        "shown": figure.text,
        "evidence": figure.kind.label,
        "source": figure.source,
        **more,
    }


def used_figures(*deployments: Deployment) -> Late:
    """Return every figure of machines and kernels with its source, each once, for pages alone."""

    def rows() -> Iterator[Row]:
        from placement.analysis.evidence import deployment_figures

        for used in dict.fromkeys(used for one in deployments for used in deployment_figures(one)):
            yield figure_row(used.figure, used.of or used.group, used.name)

    return Late(lambda: [FIGURES(rows(), most=None)])


def figures_of(*deployments: Deployment, more: Iterable[Row] = ()) -> list[Block]:
    """Return all figures of machines and kernels with their sources, ``more`` after them: for JSON and pages."""
    from placement.analysis.evidence import deployment_figures

    used = [figure for deployment in deployments for figure in deployment_figures(deployment)]
    rows = [figure_row(figure.figure, figure.of or figure.group, figure.name) for figure in used]
    table = FIGURES({(row["part"], row["figure"]): row for row in (*rows, *more)}.values())
    return [table, Late(lambda: [replace(table, most=None)])]


def grounds(
    deployments: Sequence[Deployment],
    errors: Sequence[ErrorOf],
    methods: Iterable[str],
    *,
    bill: Bill | None = None,
    figures: Iterable[Row] = (),
) -> list[Block]:
    """Return what an answer rests on: bill, accuracy, method, all figures, and the drawing of each cluster."""
    from rackplan.report.notes import chip_words, sentence
    from topology.draw import cluster_svg

    clusters = dict.fromkeys(deployment.cluster for deployment in deployments)
    every = dict.fromkeys((*methods, *(sentence(chip_words(error)) for error in errors)))
    return [
        *([] if bill is None else [BILL(bill_rows(next(iter(clusters)).name, bill))]),
        ACCURACY(accuracy_row(error) for error in errors),
        *(Note(text, kind="method") for text in every),
        *figures_of(*deployments, more=figures),
        *(
            Picture(
                f"cluster-{at}",
                cluster.brief(),
                partial(cluster_svg, cluster),
                title=f"Cluster {cluster.name}",
                scene=True,
            )
            for at, cluster in enumerate(clusters)
        ),
    ]


def set_table(*clusters: Cluster) -> Table:
    """Return what the user set of clusters."""
    from topology.changes.overrides import figures_set

    rows = (
        figure_row(figure, part, name, cluster=cluster.name)
        for cluster in clusters
        for part, name, figure in figures_set(cluster.spec)
    )
    return SET(rows)
