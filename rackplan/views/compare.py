"""Clusters compared for one model: what each reaches at a speed per user, and on the page their frontiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cost.calibration.errors import ErrorOf, error_to_dict
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.money.bill import Bill, Totals
from placement.analysis.compare import CompareRow
from placement.options import USUAL_TPOT
from rackplan.schemas.clusters import ComparePrinted, CompareResultData
from rackplan.views.blocks import (
    Block,
    Heading,
    Table,
    Text,
    View,
    labelled,
    sections,
)
from rackplan.views.money import bill_blocks, dollars, money_columns, money_legend, watts
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import (
    doubts,
    error_blocks,
    load_blocks,
    phase_words,
    range_words,
    serving_words,
)
from topology.base.units import plural

LEGEND = "batch: sequences per GPU in use; layout: EP and TP width, PP stages, x replicas."


def compare_view(
    rows: Sequence[CompareRow],
    deployments: Sequence[Deployment],
    loads: ExpertLoads | None,
    *,
    usual: bool = False,
) -> View:
    """Return a table of the rows, with ratios to the first cluster at the same speed per user.

    ``deployments`` has each cluster; model, workload and engine are those of all. ``usual``: nobody gave a speed.
    """
    deployment, clusters = deployments[0], [one.cluster for one in deployments]
    workload, model = deployment.workload, deployment.model
    bills = {one.cluster.name: one.bill for one in deployments}
    weakest = {row.cluster: f"{row.cluster} {row.evidence}" for row in rows if row.evidence}
    notes = {row.cluster: f"{row.cluster} is {doubt}" for row in rows if (doubt := doubts(row.status))}
    legend = [
        Text(f"tok/s are {workload.token_word} tokens; tok/s/GPU over all GPUs of the cluster;"),
        Text(LEGEND),
        *(Text(row.reason, row.cluster) for row in rows if row.tok_s_per_gpu is None),
        *money_legend(bills.values()),
        *bill_blocks(bills),
        *labelled("Evidence", f"weakest figure: {', '.join(weakest.values())}" if weakest else ""),
        *(Text(note, "Note") for note in notes.values()),
    ]
    data: ComparePrinted = {
        "rows": [
            {
                **_row_data(row, model.name, workload.token_word),
                "totals": row_totals(row, bills, workload).to_dict(),
            }
            for row in rows
        ]
    }
    if workload.what_if:
        data["what_if"] = workload.what_if
    if found := {one.name: said["set"] for one in clusters if (said := set_data(one))}:
        data["set"] = found
    return View(
        sections(
            [
                Heading(f"{model.name}, {phase_words(workload)}, {plural(rows[0].gpus, 'GPU')} each"),
                *labelled("Serving", "; ".join(serving_words(workload, deployment.engine))),
                *labelled("Speed", _usual_words(rows) if usual else ""),
                *set_blocks("Set", *clusters),
                *load_blocks(loads),
            ],
            [row_table(rows)],
            [money_table(rows, bills, workload)],
            legend,
            error_rows(rows),
        ),
        data,
    )


def _usual_words(rows: Sequence[CompareRow]) -> str:
    """Say at which speed clusters are compared where nobody said."""
    at = f"{USUAL_TPOT.text}, {USUAL_TPOT.value * 1e3:g} ms a token"
    if rows[0].target_tok_s_per_user is None:
        return f"each at the largest batch that fits, since none reaches {at} (default; --tok-s-user)"
    return f"{at} (default; --tok-s-user; --tok-s-user none for the largest batch that fits)"


def _row_data(row: CompareRow, model: str, tokens: str) -> CompareResultData:
    speed = row.tok_s_per_user if row.target_tok_s_per_user is None else row.target_tok_s_per_user
    return {
        "cluster": row.cluster,
        "model": model,
        "gpus": row.gpus,
        "tok_s_per_user": speed,
        "reached_tok_s_per_user": row.tok_s_per_user,
        "tokens": tokens,
        "tok_s_per_gpu": row.tok_s_per_gpu,
        "step_s": row.step_s,
        "batch": row.batch,
        "bound_by": row.bound_by,
        "layout": row.layout,
        "evidence": row.evidence,
        "status": row.status,
        "reason": row.reason,
        "calibration": error_to_dict(row.errors),
    }


def error_rows(rows: Sequence[CompareRow]) -> list[Block]:
    """Return how far off throughput may be, with a row for each cluster and each of its chips."""
    errors: dict[tuple[str, ErrorOf], None] = dict.fromkeys(
        (row.cluster, error) for row in rows for error in row.errors
    )
    return error_blocks(list(errors)) if errors else []


def row_table(rows: Sequence[CompareRow]) -> Table:
    """Return the table of the rows; what nobody reaches is ``unreachable``."""
    found = []
    base = {
        row.target_tok_s_per_user: row.tok_s_per_gpu
        for row in reversed(rows)
        if row.cluster == rows[0].cluster
    }
    for row in sorted(rows, key=lambda row: row.target_tok_s_per_user or 0.0):
        wanted = row.target_tok_s_per_user
        if row.tok_s_per_gpu is None or row.step_s is None:
            found.append((row.cluster, f"{wanted:g}" if wanted else "-", "unreachable", *"-----"))
            continue
        first = base.get(wanted)
        found.append(
            (
                row.cluster,
                f"{wanted:g}" if wanted else f"{row.tok_s_per_user:.1f}",
                f"{row.tok_s_per_gpu:,.0f}",
                f"{row.tok_s_per_gpu / first:.2f}x" if first else "-",
                f"{row.step_s * 1e3:.2f}",
                f"{row.batch:g}",
                row.layout or "",
                row.bound_by or "",
            )
        )
    columns = ("cluster", "tok/s/user", "tok/s/GPU", "ratio", "step ms", "batch", "layout", "bound by")
    return Table(columns, found, words=(0, 6, 7))


def row_totals(row: CompareRow, bills: Mapping[str, Bill], workload: Workload) -> Totals:
    """Return what the whole cluster of a row gives, costs and draws; no token where nobody reaches the speed."""
    bill = bills[row.cluster]
    return bill.totals((row.tok_s_per_gpu or 0.0) * bill.gpus, workload.token_word, phase=workload.phase)


def money_table(rows: Sequence[CompareRow], bills: Mapping[str, Bill], workload: Workload) -> Table:
    """Return what each row comes to over the whole cluster: tokens, dollars and megawatts."""

    def totals(row: CompareRow) -> Totals:
        return row_totals(row, bills, workload)

    def speed(row: CompareRow) -> str:
        wanted = row.target_tok_s_per_user
        return f"{row.tok_s_per_user or 0.0:.1f}" if wanted is None else f"{wanted:g}"

    def rate(row: CompareRow) -> str:
        return "-" if row.tok_s_per_gpu is None else f"{row.tok_s_per_gpu * row.gpus:,.0f}"

    def per_hour(row: CompareRow) -> str:
        usd = bills[row.cluster].usd_per_hour
        return "-" if usd is None else dollars(usd)

    def power(row: CompareRow) -> str:
        found = bills[row.cluster].power_w
        return "-" if found is None else watts(found)

    return Table.of(
        sorted(rows, key=lambda row: row.target_tok_s_per_user or 0.0),
        ("cluster", lambda row: row.cluster),
        ("tok/s/user", speed),
        ("tok/s in all", rate),
        *money_columns(totals, bills.values()),
        ("USD/h", per_hour),
        ("power", power),
    )


def compare_verdict(rows: Sequence[CompareRow], tokens: str) -> str:
    """Return the comparison in a few sentences: who cannot run it first, then the best at a speed, then limits.

    The speed is the highest that the first cluster reaches and another too; where there is none, the highest that
    any two reach, or one. ``tokens`` is the word for those counted.
    """
    clusters = list(dict.fromkeys(row.cluster for row in rows))
    said = [_cannot(cluster, rows) for cluster in clusters]
    reached = reached_by_speed(rows)
    if not reached:
        return " ".join([*filter(None, said), "No cluster reaches a speed that was asked for."])
    speed = speed_to_compare(rows)
    said.append(_best(reached[speed], clusters[0], speed, tokens))
    highest = max(reached)
    if highest > speed:
        said.append(f"Only {', '.join(row.cluster for row in reached[highest])} reach {highest:g}.")
    said += [f"{row.cluster} is {doubts(row.status)}." for row in reached[speed] if doubts(row.status)]
    return " ".join(filter(None, said))


def reached_by_speed(rows: Sequence[CompareRow]) -> dict[float, list[CompareRow]]:
    """Return the rows that reach each speed asked for; 0 stands for as much throughput as fits."""
    reached: dict[float, list[CompareRow]] = {}
    for row in rows:
        if row.tok_s_per_gpu is not None:
            reached.setdefault(row.target_tok_s_per_user or 0.0, []).append(row)
    return reached


def speed_to_compare(rows: Sequence[CompareRow]) -> float:
    """Return the highest speed that the first cluster and another reach; else that any two reach, or one."""
    reached = reached_by_speed(rows)
    several = {speed: found for speed, found in reached.items() if len(found) > 1} or reached
    common = {
        s: found for s, found in several.items() if any(row.cluster == rows[0].cluster for row in found)
    }
    return max(common or several)


def _cannot(cluster: str, rows: Sequence[CompareRow]) -> str:
    mine = [row for row in rows if row.cluster == cluster]
    if any(row.tok_s_per_gpu is not None for row in mine):
        return ""
    return f"{cluster} cannot: {mine[0].reason}"


def _best(rows: Sequence[CompareRow], base: str, speed: float, tokens: str) -> str:
    best = max(rows, key=lambda row: row.tok_s_per_gpu or 0.0)
    first = next((row.tok_s_per_gpu for row in rows if row.cluster == base), None)
    where = f"At {speed:g} {tokens} tok/s/user" if speed else "With as much throughput as fits"
    text = f"{where} {best.cluster} gives most: {best.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU"
    if best.errors:
        text += f" ({range_words(best.tok_s_per_gpu or 0.0, best.errors)})"
    if first and best.cluster != base:
        text += f", {(best.tok_s_per_gpu or 0.0) / first:.2f} times {base}"
    return f"{text}; {best.bound_by} binds."
