"""What a person reads after ``rackplan compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rackplan.summary import doubts, table, underlined, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.loads import ExpertLoads
    from cost.model import Model
    from cost.workload import Workload
    from placement.compare import CompareRow

__all__ = ["compare_summary"]


def compare_summary(
    rows: Sequence[CompareRow], model: Model, workload: Workload, loads: ExpertLoads | None
) -> str:
    """Return a table of the rows, with ratios to the first cluster at the same speed per user."""
    title = (
        f"{model.name}, {workload.phase} at {workload.context:,} tokens of context, {rows[0].gpus} GPUs each"
    )
    lines = underlined(title)
    if loads is not None:
        warning = ": nobody measured them; give yours with --loads" if loads.synthetic else ""
        lines += wrapped("Loads", ", ".join(loads.names) + warning)
    lines += ["", *table(_table_rows(rows))]
    lines += [
        "",
        "tok/s are output tokens; tok/s/GPU over all GPUs of the cluster; batch: sequences per GPU in use;",
        "layout: EP and TP width, PP stages, x replicas.",
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
    return "\n".join(lines)


def _table_rows(rows: Sequence[CompareRow]) -> list[list[str]]:
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
                str(row.batch),
                row.layout or "",
                row.bound_by or "",
            ]
        )
    return found
