"""The report of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cost.deployment import Deployment
from cost.loads import ExpertLoads
from placement.compare import CompareRow
from rackplan.compare_summary import cluster_errors, compare_verdict, comparison_table
from rackplan.error_words import error_rows, table_words
from rackplan.report.compare_charts import frontier_chart, speed_chart
from rackplan.report.html import Markup, element, join, table
from rackplan.report.page import chart, page
from rackplan.report.points import ReportPoint, frontier, report_points
from rackplan.summary import doubts, phase_words, serving_words
from rackplan.words import load_names


def compare_report(
    rows: Sequence[CompareRow], settings: Sequence[Deployment], loads: ExpertLoads | None, *, command: str
) -> str:
    """Return the page of a comparison: ``settings`` has each cluster with the model and the workload."""
    first = settings[0]
    points = {deployment.cluster.name: report_points(deployment, None) for deployment in settings}
    tokens = first.workload.token_word
    title = f"{first.model.name} on {len(points)} clusters of {len(first.cluster.gpus)} GPUs"
    return page(
        f"{title} - rackplan",
        element("h1", title),
        element("p", compare_verdict(rows, tokens), class_="verdict"),
        _same_speed(rows, tokens),
        _frontiers(points, rows, tokens),
        _grounds(rows, first, loads, command),
    )


def _same_speed(rows: Sequence[CompareRow], tokens: str) -> Markup:
    header, *cells = comparison_table(rows)
    why = [
        element("li", f"{row.cluster}: {row.reason}")
        for row in {(row.cluster, row.reason): row for row in rows if row.tok_s_per_gpu is None}.values()
    ]
    return join(
        [
            element("h2", "At the same speed for the user"),
            chart(
                "speeds",
                speed_chart(rows, tokens),
                says=f"{tokens} tok/s/GPU of each cluster by speed per user",
                height=400,
            ),
            table(header, cells, words=(0, 6, 7)),
            element(
                "p",
                f"{tokens.capitalize()} tokens; tok/s/GPU over all GPUs of a cluster, ratio at the same speed to "
                f"{rows[0].cluster}; batch: sequences per GPU in use; layout: EP and TP, PP stages, x replicas.",
                class_="note",
            ),
            element("ul", *why) if why else None,
        ]
    )


def _frontiers(
    points: Mapping[str, Sequence[ReportPoint]], rows: Sequence[CompareRow], tokens: str
) -> Markup:
    cells = [
        (
            cluster,
            p.layout,
            str(p.batch),
            f"{p.tok_s_per_user:,.1f}",
            f"{p.tok_s_per_gpu:,.0f}",
            f"{p.step_s * 1e3:,.2f}",
            p.bound_by,
        )
        for cluster, mine in points.items()
        for p in frontier(mine)
    ]
    columns = ("cluster", "layout", "batch", "tok/s/user", "tok/s/GPU", "step ms", "bound by")
    return join(
        [
            element("h2", "Throughput against speed per user"),
            chart(
                "frontiers", frontier_chart(points, rows, tokens), says="Frontier of each cluster", height=480
            ),
            element(
                "p",
                "The best of all layouts and batches of each cluster, experts taken as perfectly balanced; stars are "
                "the rows above, experts as placed.",
                class_="note",
            ),
            element(
                "details",
                element("summary", "The frontiers as a table"),
                table(columns, cells, words=(0, 1, 6)),
            ),
        ]
    )


def _grounds(
    rows: Sequence[CompareRow], first: Deployment, loads: ExpertLoads | None, command: str
) -> Markup:
    workload, model = first.workload, first.model
    batch = f"batch {workload.batch:,} per GPU" if workload.batch else "batch the largest that fits"
    inputs = [
        ("model", f"{model.name} ({model.precision_source})"),
        (
            "workload",
            "; ".join(
                [
                    f"{phase_words(workload)}, {batch}, KV cache {workload.kv_dtype}",
                    *serving_words(workload, first.engine),
                ]
            ),
        ),
        ("loads", load_names(loads.names) if loads is not None else "none: no routed experts"),
        ("command", command),
    ]
    by_cluster = {row.cluster: row for row in rows if row.evidence} or {row.cluster: row for row in rows}
    evidence = [(name, row.evidence or "-", doubts(row.status) or "-") for name, row in by_cluster.items()]
    return join(
        [
            element("h2", "Inputs and evidence"),
            table(("input", "value"), inputs, words=(0, 1)),
            table(("cluster", "weakest evidence", "note"), evidence, words=(0, 1, 2)),
            _errors(rows),
            element("p", "The loads are synthetic: nobody measured them.")
            if loads is not None and loads.synthetic
            else None,
        ]
    )


def _errors(rows: Sequence[CompareRow]) -> Markup | None:
    """Return how far off throughput may be on each chip."""
    errors = cluster_errors(rows)
    if not errors:
        return None
    header, *cells = error_rows(errors)
    note = table_words([error for _, error in errors])
    return join(
        [table(header, cells, words=(0, 1)), element("p", f"{note[0].upper()}{note[1:]}.", class_="note")]
    )
