"""What a person reads after ``rackplan compare``."""

from __future__ import annotations

from collections.abc import Sequence

from cost.calibration.errors import ErrorOf
from cost.loads import ExpertLoads
from cost.model import Model
from cost.workload import Workload
from placement.compare import CompareRow
from rackplan.error_words import error_rows, range_words, table_words
from rackplan.summary import doubts, phase_words, serving_words
from rackplan.words import load_names, table, underlined, wrapped


def compare_summary(
    rows: Sequence[CompareRow], model: Model, workload: Workload, loads: ExpertLoads | None, engine: str = ""
) -> str:
    """Return a table of the rows, with ratios to the first cluster at the same speed per user."""
    lines = underlined(f"{model.name}, {phase_words(workload)}, {rows[0].gpus} GPUs each")
    asked = serving_words(workload, engine)
    lines += wrapped("Serving", "; ".join(asked)) if asked else []
    if loads is not None:
        warning = ": nobody measured them; give yours with --loads" if loads.synthetic else ""
        lines += wrapped("Loads", load_names(loads.names) + warning)
    lines += ["", *table(comparison_table(rows))]
    lines += [
        "",
        f"tok/s are {workload.token_word} tokens; tok/s/GPU over all GPUs of the cluster;",
        "batch: sequences per GPU in use; layout: EP and TP width, PP stages, x replicas.",
    ]
    for row in rows:
        if row.tok_s_per_gpu is None:
            lines += wrapped(row.cluster, row.reason)
    weakest = {row.cluster: f"{row.cluster} {row.evidence}" for row in rows if row.evidence}
    if weakest:
        lines += wrapped("Evidence", "weakest figure: " + ", ".join(weakest.values()))
    for name, doubt in {row.cluster: doubts(row.status) for row in rows}.items():
        if doubt:
            lines += wrapped("Note", f"{name} is {doubt}")
    errors = cluster_errors(rows)
    if errors:
        lines += ["", *table(error_rows(errors)), ""]
        lines += wrapped("Error", table_words([error for _, error in errors]))
    return "\n".join(lines)


def cluster_errors(rows: Sequence[CompareRow]) -> list[tuple[str, ErrorOf]]:
    """Return each cluster with the error of each of its chips."""
    return list(dict.fromkeys((row.cluster, error) for row in rows for error in row.errors))


def comparison_table(rows: Sequence[CompareRow]) -> list[list[str]]:
    """Return the table of the rows, its header first; what nobody reaches is ``unreachable``."""
    found = [["cluster", "tok/s/user", "tok/s/GPU", "ratio", "step ms", "batch", "layout", "bound by"]]
    base = {
        row.target_tok_s_per_user: row.tok_s_per_gpu
        for row in reversed(rows)
        if row.cluster == rows[0].cluster
    }
    for row in sorted(rows, key=lambda row: row.target_tok_s_per_user or 0.0):
        wanted = row.target_tok_s_per_user
        if row.tok_s_per_gpu is None or row.step_s is None:
            found.append(
                [row.cluster, f"{wanted:g}" if wanted else "-", "unreachable", "-", "-", "-", "-", "-"]
            )
            continue
        first = base.get(wanted)
        found.append(
            [
                row.cluster,
                f"{wanted:g}" if wanted else f"{row.tok_s_per_user:.1f}",
                f"{row.tok_s_per_gpu:,.0f}",
                f"{row.tok_s_per_gpu / first:.2f}x" if first else "-",
                f"{row.step_s * 1e3:.2f}",
                f"{row.batch:g}",
                row.layout or "",
                row.bound_by or "",
            ]
        )
    return found


def compare_verdict(rows: Sequence[CompareRow], tokens: str) -> str:
    """Return the comparison in a few sentences: who cannot run it first, then the best at a speed, then limits.

    The speed is the highest that the first cluster reaches and another too; where there is none, the highest that
    any two reach, or one. ``tokens`` is the word for those counted.
    """
    clusters = list(dict.fromkeys(row.cluster for row in rows))
    said = [_cannot(cluster, rows) for cluster in clusters]
    reached: dict[float, list[CompareRow]] = {}
    for row in rows:
        if row.tok_s_per_gpu is not None:
            reached.setdefault(row.target_tok_s_per_user or 0.0, []).append(row)
    if not reached:
        return " ".join([*filter(None, said), "No cluster reaches a speed that was asked for."])
    several = {speed: found for speed, found in reached.items() if len(found) > 1} or reached
    common = {s: found for s, found in several.items() if any(row.cluster == clusters[0] for row in found)}
    speed = max(common or several)
    said.append(_best(reached[speed], clusters[0], speed, tokens))
    highest = max(reached)
    if highest > speed:
        said.append(f"Only {', '.join(row.cluster for row in reached[highest])} reach {highest:g}.")
    said += [f"{row.cluster} is {doubts(row.status)}." for row in reached[speed] if doubts(row.status)]
    return " ".join(filter(None, said))


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
