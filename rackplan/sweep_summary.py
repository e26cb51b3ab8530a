"""What a person reads after ``rackplan sweep``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cost.calibration.errors import errors_in
from cost.rate_matching import DECODE_DERATE, PREFILL_DERATE
from cost.sweep import best_at
from rackplan.error_words import band_words, chip_words, factor_words
from rackplan.sweep_report import match_errors
from rackplan.words import table, underlined, wrapped
from topology.figures import weakest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.rate_matching import RateMatch, RateMatches
    from cost.sweep import Sweep

__all__ = ["match_summary", "sweep_summary"]

MOST_ROWS = 16
"""Points of a frontier that are printed."""


def sweep_summary(found: Sweep, targets: Sequence[float]) -> str:
    """Return the frontier of a sweep, its best at each speed, and what the figures rest on."""
    setting, workload = found.setting, found.setting.workload
    word = workload.token_word
    title = (
        f"{setting.model.name} on {setting.cluster.name} ({len(setting.cluster.gpus)} GPUs), {workload.phase} at "
        f"{workload.context:,} tokens"
    )
    edge = found.frontier()
    lines = [*underlined(title), ""]
    lines += wrapped(
        "Swept", f"{len(found):,} configurations (layouts x batches); {len(edge)} on the frontier"
    )
    lines += ["", *table(_frontier_rows(found, thinned(edge)))]
    if targets:
        lines += ["", *table(_iso_rows(found, targets))]
    lines += [
        "",
        f"tok/s are {word} tokens; tok/s/GPU over all GPUs of the cluster, idle ones too; at best: no",
        "schedule is faster at data-sheet peaks; batch: sequences per GPU in use. EP, ETP: GPUs of the",
        "experts, parts of each; TP: tensor-parallel width; PP: stages; x: replicas.",
    ]
    lines += wrapped("Experts", "perfectly balanced, which no placement beats: `rackplan plan` places them")
    return "\n".join([*lines, *_kernels(found)])


def thinned(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most :data:`MOST_ROWS` of them, the first and the last included."""
    if len(indices) <= MOST_ROWS:
        return indices
    return indices[np.round(np.linspace(0, len(indices) - 1, MOST_ROWS)).astype(np.int64)]


def _frontier_rows(found: Sweep, indices: NDArray[np.int64]) -> list[list[str]]:
    header = ["on the frontier", "batch", "tok/s/user", "tok/s/GPU", "step ms", "at best", "bound by"]
    return [
        header,
        *(
            [
                found.label(index),
                f"{found.batch[index]:g}",
                f"{found.tok_s_per_user[index]:,.1f}",
                f"{found.tok_s_per_gpu[index]:,.0f}",
                f"{found.step_s[index] * 1e3:,.2f}",
                f"{found.lower_step_s[index] * 1e3:,.2f}",
                found.bound(index),
            ]
            for index in indices.tolist()
        ),
    ]


def _iso_rows(found: Sweep, targets: Sequence[float]) -> list[list[str]]:
    rows = [["at tok/s/user", "tok/s/GPU", "layout", "batch", "bound by"]]
    for target in targets:
        index = best_at(found, target)
        if index is None:
            rows.append([f"{target:g}", "unreachable", "-", "-", "-"])
            continue
        rate, batch = f"{found.tok_s_per_gpu[index]:,.0f}", f"{found.batch[index]:g}"
        rows.append([f"{target:g}", rate, found.label(index), batch, found.bound(index)])
    return rows


def _kernels(found: Sweep) -> list[str]:
    reached = found.setting.kernels_reach()
    text = f"as calibrated for {reached.chip}, engine {reached.engine or 'any'}"
    kind = weakest(figure.kind for figure in reached.figures().values()).label
    lines = wrapped("Kernels", f"{text}; weakest figure of theirs: {kind}")
    errors = errors_in(found.setting)
    for error in errors:
        lines += wrapped("", chip_words(error))
    return lines + (wrapped("Band", f"of tok/s/GPU: {factor_words(errors)}") if errors else [])


def match_summary(matches: RateMatches, decode: Sweep, prefill: Sweep) -> str:
    """Return the best pair of pools, and the frontier of pairs."""
    lines = underlined(
        f"Both phases: prompts of {matches.isl:,} and answers of {matches.osl:,} tokens, {matches.gpus} GPUs in all"
    )
    best = matches.best()
    if best is None:
        return "\n".join([*lines, "", "No pair of pools keeps the limits."])
    edge = matches.frontier()
    rows = [matches.row(index) for index in thinned(edge).tolist()]
    lines += ["", *_best(best, decode, prefill), "", *table(_match_rows(rows, decode, prefill))]
    lines += [
        "",
        "tok/s/GPU: output tokens over all GPUs given, idle ones too; total: input and output tokens.",
        "TTFT is the prefill step alone: waiting for it is not counted.",
    ]
    lines += wrapped(
        "Derates",
        f"{PREFILL_DERATE.value:g} of the prefill and {DECODE_DERATE.value:g} of the decode rate "
        f"({PREFILL_DERATE.kind.label}: {PREFILL_DERATE.source})",
    )
    return "\n".join(lines)


def _best(best: RateMatch, decode: Sweep, prefill: Sweep) -> list[str]:
    pools = (
        ("Prefill", best.prefill_workers, prefill, best.prefill),
        ("Decode", best.decode_workers, decode, best.decode),
    )
    lines = []
    for label, workers, found, index in pools:
        layout = found.label(index).rpartition(" ")[0]  # as many as workers, not as the cluster holds
        gpus, batch = int(found.gpus[index]), float(found.batch[index])
        lines += wrapped(
            label,
            f"{workers} workers of {gpus} GPUs, {layout}, batch {batch:g} per GPU, {found.setting.cluster.name}",
        )
    band = band_words(best.output_tok_s_per_gpu, match_errors(decode, prefill))
    text = (
        f"{best.output_tok_s_per_gpu:,.0f} output tok/s/GPU{band} ({best.total_tok_s_per_gpu:,.0f} total) over "
        f"{best.gpus} GPUs, {best.output_tok_s_per_gpu_used:,.0f} over the {best.gpus_used} in use; "
        f"{best.requests_per_s:,.2f} requests/s, {best.tok_s_per_user:,.1f} tok/s/user, "
        f"TTFT {best.ttft_s:,.2f} s"
    )
    return lines + wrapped("Together", text)


def _match_rows(rows: Sequence[RateMatch], decode: Sweep, prefill: Sweep) -> list[list[str]]:
    found = [
        ["prefill workers", "decode workers", "batch", "tok/s/user", "tok/s/GPU", "total", "TTFT s", "idle"]
    ]
    for row in rows:
        layouts = [
            f"{workers} x {sweep.label(index).rpartition(' ')[0]}"
            for workers, sweep, index in (
                (row.prefill_workers, prefill, row.prefill),
                (row.decode_workers, decode, row.decode),
            )
        ]
        found.append(
            [
                *layouts,
                f"{decode.batch[row.decode]:g}",
                f"{row.tok_s_per_user:,.1f}",
                f"{row.output_tok_s_per_gpu:,.0f}",
                f"{row.total_tok_s_per_gpu:,.0f}",
                f"{row.ttft_s:,.2f}",
                str(row.gpus - row.gpus_used),
            ]
        )
    return found
