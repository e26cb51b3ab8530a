"""What a person reads after ``rackplan sweep``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost.afd import AfdSweep
from cost.calibration.errors import errors_in
from cost.calibration.serving import MOST_DRAFTS, accept_length
from cost.layouts import Sweep, best_at
from cost.lecture import train_wait_s
from cost.pools import DECODE_DERATE, PREFILL_DERATE, TTFT_LIMIT, RateMatch
from cost.workload import CHUNK_TOKENS
from rackplan.error_words import band_words, chip_words, factor_words
from rackplan.summary import next_token, what_if_lines
from rackplan.sweep_report import Pools, imbalance_data, match_errors
from rackplan.words import narrow_table, table, underlined, wrapped
from topology.figures import weakest

MOST_ROWS = 16
"""Points of a frontier that are printed."""


def sweep_summary(found: Sweep, targets: Sequence[float]) -> str:
    """Return the frontier of a sweep, its best at each speed, and what the figures rest on."""
    deployment, workload = found.deployment, found.deployment.workload
    word = workload.token_word
    title = (
        f"{deployment.model.name} on {deployment.cluster.name} ({len(deployment.cluster.gpus)} "
        f"GPUs), {workload.phase} at "
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
        *_legend(found),
    ]
    fastest, slowest = (train_wait_s(float(found.step_s[edge[end]]))[1] * 1e3 for end in (-1, 0))
    lines += wrapped(
        "Waiting",
        f"a request with a place waits at most two steps for its {next_token(workload)}: {fastest:,.2f} to "
        f"{slowest:,.2f} ms on the frontier, three quarters of that on average",
    )
    lines += what_if_lines(deployment)
    if deployment.model.moe is not None:
        lines += wrapped("Experts", _experts(found))
    return "\n".join([*lines, *_workload(found), *_kernels(found)])


def _legend(found: Sweep) -> list[str]:
    if isinstance(found, AfdSweep):
        return [
            "schedule is faster at data-sheet peaks; batch: sequences per GPU in use. A, E: GPUs of attention",
            "and of experts; TP: tensor-parallel width of attention; m: micro-batches; x: replicas.",
        ]
    return [
        "schedule is faster at data-sheet peaks; batch: sequences per GPU in use. EP, ETP: GPUs of the",
        "experts, parts of each; TP: tensor-parallel width; PP: stages; x: replicas.",
    ]


def _experts(found: Sweep) -> str:
    said = imbalance_data(found)
    if said["value"] == 1:
        return "perfectly balanced, which no placement beats: `rackplan plan` places them"
    where = f"in groups of {said['from_gpus']} GPUs or more" if said["from_gpus"] > 1 else "everywhere"
    return f"the busiest GPU has {said['value']:g} times the mean load {where} ({said['kind']}; --imbalance)"


def _workload(found: Sweep) -> list[str]:
    """What of the workload changes a step: drafts and how many are accepted, the chunk, the cached prefix."""
    workload, lines = found.deployment.workload, []
    if workload.draft_tokens:
        usual = (
            workload.draft_tokens <= MOST_DRAFTS
            and accept_length(workload.draft_tokens) == workload.accept_length
        )
        source = " (derived: fitted to served requests)" if usual else ""
        lines += wrapped(
            "Drafts",
            f"{workload.draft_tokens} a step, which yields {workload.accept_length:.3g} tokens on average{source}",
        )
    if not workload.decodes:
        lines += wrapped(
            "Chunk", f"an attention group prefills {CHUNK_TOKENS:,.0f} tokens a step, one prompt at least"
        )
    if workload.prompt_cached:
        lines += wrapped(
            "Prefix",
            f"{workload.prompt_cached:,.0f} of {workload.context:,} tokens of a prompt are found in a cache: "
            "attended to, not prefilled; tok/s counts them",
        )
    return lines


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
                f"{found.batch[index]:.4g}",
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
        rate, batch = f"{found.tok_s_per_gpu[index]:,.0f}", f"{found.batch[index]:.4g}"
        rows.append([f"{target:g}", rate, found.label(index), batch, found.bound(index)])
    return rows


def _kernels(found: Sweep) -> list[str]:
    reached = found.deployment.kernels_reach()
    text = f"as calibrated for {reached.chip}, engine {reached.engine or 'any'}"
    kind = weakest(figure.kind for figure in reached.figures().values()).label
    lines = wrapped("Kernels", f"{text}; weakest figure of theirs: {kind}")
    errors = errors_in(found.deployment)
    for error in errors:
        lines += wrapped("", chip_words(error))
    return lines + (wrapped("Band", f"of tok/s/GPU: {factor_words(errors)}") if errors else [])


def match_summary(pools: Pools) -> str:
    """Return the best pair of pools, and the frontier of pairs."""
    matches, decode, prefill = pools.matches, pools.decode, pools.prefill
    lines = underlined(
        f"Both phases: prompts of {matches.isl:,} and answers of {matches.osl:,} tokens, {matches.gpus} GPUs in all"
    )
    best = matches.best()
    if best is None:
        lines += ["", "No pair of pools keeps the limits."]
        fastest = f"the fastest prefill and transfer take {matches.fastest_ttft_s:,.2f} s"
        return "\n".join([*lines, *wrapped("Limits", f"{_limit(pools)}; {fastest}")])
    edge = matches.frontier()
    rows = [matches.row(index) for index in thinned(edge).tolist()]
    lines += ["", *_best(best, decode, prefill), *_first_token(best, pools), *_compared(best, pools)]
    shown = narrow_table(_match_rows(rows, decode, prefill))
    last = ("; move: transfer" * ("move ms" in shown[0])) + (
        "; idle: GPUs in neither pool" * ("idle" in shown[0])
    )
    lines += ["", *shown]
    lines += [
        "",
        "tok/s/GPU: output tokens over all GPUs given, idle ones too; total: input and output tokens.",
        "TTFT: the prefill step and the transfer of its caches; waiting for it is not counted. P:D: GPUs",
        f"that prefill and that decode{last}.",
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
            f"{workers} workers of {gpus} GPUs, {layout}, batch {batch:.4g} per GPU, {found.deployment.cluster.name}",
        )
    used = f", {best.output_tok_s_per_gpu_used:,.0f} output over the {best.gpus_used} in use"
    used *= best.gpus_used < best.gpus
    band = band_words(best.output_tok_s_per_gpu, match_errors(decode, prefill))
    text = (
        f"{best.output_tok_s_per_gpu:,.0f} output tok/s/GPU{band} over {best.gpus} GPUs, "
        f"{best.total_tok_s_per_gpu:,.0f} total{used}; {best.requests_per_s:,.2f} requests/s, "
        f"{best.tok_s_per_user:,.1f} tok/s/user, "
        f"TTFT {best.ttft_s:,.2f} s"
    )
    shared = f"{best.prefill_gpus} that prefill : {best.decode_gpus} that decode"
    lines += wrapped("GPUs", f"{shared}, {best.gpus - best.gpus_used} idle")
    return lines + wrapped("Together", text)


def _limit(pools: Pools) -> str:
    if pools.ttft_s is None:
        return "no TTFT limit"
    if pools.ttft_default:
        return f"TTFT limit {pools.ttft_s:g} s (default; --ttft-ms; {TTFT_LIMIT.source})"
    return f"TTFT limit {pools.ttft_s:g} s"


def _first_token(best: RateMatch, pools: Pools) -> list[str]:
    matches = pools.matches
    path, size = matches.path, matches.cache_bytes / 1e6
    parts = [f"prefill {best.prefill_s * 1e3:,.0f} ms", f"transfer {best.transfer_s * 1e3:,.1f} ms"]
    if matches.fetch_path is not None:
        parts.insert(0, f"fetch {best.fetch_s * 1e3:,.1f} ms")
    lines = wrapped("First token", f"{' + '.join(parts)}; {_limit(pools)}")
    return lines + wrapped(
        "Transfer",
        f"{size:,.1f} MB of cache a prompt over {path.name} at {path.bytes_per_s / 1e9:,.1f} GB/s a GPU "
        f"({path.reach.kind.label}: {path.reach.source})",
    )


def _compared(best: RateMatch, pools: Pools) -> list[str]:
    """What the same pools would be with prompts recomputed, or with experts beside attention."""
    matches, lines = pools.matches, []
    if matches.fetch_path is not None and pools.either is not None:
        path, either, anew = matches.fetch_path, pools.either, pools.recomputed
        text = (
            f"{matches.fetched_bytes / 1e6:,.1f} MB a prompt from {path.name} at "
            f"{path.bytes_per_s / 1e9:,.1f} GB/s a GPU. One prompt alone: fetch {either.fetch_s * 1e3:,.1f} ms and "
            f"prefill the rest {either.rest_s * 1e3:,.0f} ms, or recompute {either.recompute_s * 1e3:,.0f} ms: "
            f"{either.faster} is faster"
        )
        if anew is not None:
            text += f"; pools that recompute: {anew.total_tok_s_per_gpu:,.0f} total"
        lines += wrapped("Offload", text)
    if isinstance(pools.decode, AfdSweep):
        joint = pools.joint
        if joint is None:
            said = "with experts beside attention no pair of pools keeps the limits"
        else:
            gain = best.total_tok_s_per_gpu / joint.total_tok_s_per_gpu - 1
            said = f"experts beside attention: {joint.total_tok_s_per_gpu:,.0f} total; apart {gain:+.0%}"
        lines += wrapped("AFD", said)
    return lines


def _match_rows(rows: Sequence[RateMatch], decode: Sweep, prefill: Sweep) -> list[list[str]]:
    found = [
        [
            "prefill workers",
            "decode workers",
            "P:D",
            "batch",
            "tok/s/user",
            "tok/s/GPU",
            "TTFT s",
            "move ms",
            "idle",
        ]
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
                f"{row.prefill_gpus}:{row.decode_gpus}",
                f"{decode.batch[row.decode]:.4g}",
                f"{row.tok_s_per_user:,.1f}",
                f"{row.output_tok_s_per_gpu:,.0f}",
                f"{row.ttft_s:,.2f}",
                f"{row.transfer_s * 1e3:,.1f}",
                str(row.gpus - row.gpus_used),
            ]
        )
    return found
