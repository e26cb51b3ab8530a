"""Layouts and clusters compared: every layout at every batch, and several clusters for one model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rackplan import options
from rackplan.options import arg, opt
from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from cost.layouts import Sweep
    from cost.workload import Workload
    from rackplan.views.sweep import Pools
    from topology.cluster import Cluster

CONTEXT = 4096
TARGETS = (25.0, 50.0, 75.0, 100.0, 125.0, 150.0, 200.0)
"""Speeds per user that comparisons of chips usually stand at."""


def sweep(
    model: options.ModelName,
    cluster: options.ClusterName,
    phase: options.Phase = "decode",
    context: Annotated[
        int | None,
        opt("--context", "Tokens already in each sequence; prefill: of each prompt. Default 4096."),
    ] = None,
    isl: Annotated[
        int | None, opt("--isl", "With --osl: tokens of a prompt; sweeps both phases.", "N")
    ] = None,
    osl: Annotated[int | None, opt("--osl", "With --isl: tokens of an answer.", "N")] = None,
    prefill_cluster: Annotated[
        str | None,
        opt("--prefill-cluster", "GPUs that prefill; default: a part of --cluster.", "C"),
    ] = None,
    ttft_ms: Annotated[
        str | None,
        opt(
            "--ttft-ms",
            "Longest prefill and transfer of the cache, without waiting; none: no limit. [2000]",
            "X",
        ),
    ] = None,
    tpot_ms: Annotated[
        float | None, opt("--tpot-ms", "Longest time per output token of matched pools.")
    ] = None,
    tok_s_user: Annotated[
        str | None, opt("--tok-s-user", "Speeds per user: 25,50,100 (tok/s).", "LIST")
    ] = None,
    prefix_hit: Annotated[
        float,
        opt("--prefix-hit", "Part of each prompt that a cache already holds, 0 to below 1.", "F"),
    ] = 0.0,
    kv_offload: Annotated[
        str | None,
        opt("--kv-offload", "Where the cached part lies: ddr5, flash. Default: in HBM.", "TIER"),
    ] = None,
    host_link: Annotated[
        str | None, opt("--host-link", "Link of a GPU to its host, like '63 GB/s'.", "RATE")
    ] = None,
    afd: Annotated[bool, opt("--afd", "Decode with attention and experts on different GPUs.")] = False,
    imbalance: Annotated[
        float | None,
        opt(
            "--imbalance",
            "Busiest GPU's expert load over the mean. [1; matched pools: as usual in wide groups]",
            "X",
        ),
    ] = None,
    redundant: Annotated[
        int | None,
        opt("--redundant", "Extra expert copies per layer; default: fewest that divide."),
    ] = None,
    weights: options.Weights = None,
    kv_dtype: options.KvDtype = "bf16",
    draft_tokens: options.DraftTokens = 0,
    accept_length: options.AcceptLength = None,
    overlap: options.Overlap = False,
    sparse_attention: options.SparseAttention = "",
    engine: options.Engine = "",
    output: Annotated[Path | None, opt("-o --output", "Write every configuration.", "FILE.csv")] = None,
    json: options.JsonFlag = False,
) -> None:
    """Price every parallel layout at every batch. The frontier, the best at each speed, matched pools."""
    from cost.afd import afd_sweep
    from cost.deployment import Deployment
    from cost.layouts import sweep as priced
    from cost.pools import serving_workloads
    from cost.resolve import resolve_model
    from rackplan.output import show
    from rackplan.views.sweep import sweep_csv, sweep_view
    from topology.files import write_whole
    from topology.resolve import resolve_cluster

    limits = (prefill_cluster, ttft_ms, tpot_ms, kv_offload, host_link)
    lengths = _both_phases(isl, osl, context, phase, limits)
    _require_together(afd, redundant, kv_offload, prefix_hit, host_link)
    if lengths is None and imbalance is None:
        imbalance = 1.0
    targets = list(TARGETS) if phase == "decode" else []
    if tok_s_user is not None:
        targets = options.speeds(tok_s_user)
    resolved, where = resolve_model(model, weights=weights), resolve_cluster(cluster)
    length = CONTEXT if context is None else context
    first = options.workload(
        length, 0, kv_dtype, phase, draft_tokens, accept_length, overlap, sparse_attention
    )

    def swept(side: Cluster, workload: Workload, *, apart: bool = False) -> Sweep:
        deployment = Deployment(side, resolved, workload, engine=engine)
        if apart:
            return _some(afd_sweep(deployment, imbalance=imbalance))
        return _some(priced(deployment, redundant=redundant, imbalance=imbalance))

    if lengths is None:
        sweeps, pools = [swept(where, replace(first, prefix_hit=prefix_hit), apart=afd)], None
    else:
        decoding, prefilling = serving_workloads(first, *lengths, prefix_hit=prefix_hit)
        other = resolve_cluster(prefill_cluster) if prefill_cluster else where
        sweeps = [swept(where, decoding, apart=afd), swept(other, prefilling)]
        pools = _pools(
            sweeps,
            lengths[1],
            ttft_ms,
            None if tpot_ms is None else options.seconds(tpot_ms, "--tpot-ms"),
            tier=kv_offload,
            host_link=host_link,
            anew=lambda: swept(other, replace(prefilling, prefix_hit=0.0)),
            joint=(lambda: swept(where, decoding)) if afd else None,
        )
    if output is not None:
        write_whole(output, sweep_csv(sweeps).encode())
    show(sweep_view(sweeps, pools, targets), json=json)


def compare(
    clusters: Annotated[list[str], arg("C...", "Catalog names, name@GPUS or YAML files.")],
    model: options.ModelName,
    gpus: Annotated[int | None, opt("--gpus", "GPUs of each; default: the most of any named.")] = None,
    tok_s_user: Annotated[
        str | None,
        opt("--tok-s-user", "Speeds per user to compare at: 25,50,100 (tok/s).", "LIST"),
    ] = None,
    loads: options.Loads = None,
    phase: options.Phase = "decode",
    context: options.Context = 4096,
    batch: options.Batch = 0,
    weights: options.Weights = None,
    kv_dtype: options.KvDtype = "bf16",
    draft_tokens: options.DraftTokens = 0,
    accept_length: options.AcceptLength = None,
    overlap: options.Overlap = False,
    sparse_attention: options.SparseAttention = "",
    engine: options.Engine = "",
    seed: options.Seed = 0,
    output: Annotated[Path | None, opt("-o --output", "Write compare.json and report.html.", "DIR")] = None,
    json: options.JsonFlag = False,
) -> None:
    """Compare clusters for one model. Step time, tok/s/GPU, tok/s/user and what binds."""
    from cost.deployment import Deployment
    from cost.resolve import resolve_model
    from placement.compare import compare_clusters
    from placement.options import PlanOptions
    from rackplan.output import json_text, output_folder, show, write_together
    from rackplan.progress import progress
    from rackplan.render.html import page
    from rackplan.views.compare import compare_page, compare_view

    targets = options.speeds(tok_s_user) if tok_s_user is not None else []
    resolved = resolve_model(model, weights=weights)
    workload = options.workload(
        context, batch, kv_dtype, phase, draft_tokens, accept_length, overlap, sparse_attention
    )
    sides = options.equal_clusters(clusters, gpus)
    expert_loads = options.model_loads(resolved, loads or [], seed)
    with output_folder(output) if output else nullcontext() as folder, progress() as reporter:
        reporter.stage("comparing clusters")
        asked = PlanOptions(time_limit_s=0.0, seed=seed)
        rows = compare_clusters(sides, resolved, workload, expert_loads, asked, targets, engine=engine)
        deployments = [Deployment(side, resolved, workload, engine=engine) for side in sides]
        view = compare_view(rows, deployments[0], expert_loads)
        if folder:
            reporter.stage("writing")
            command = shlex.join(["rackplan", *sys.argv[1:]])
            report = page(compare_page(rows, deployments, expert_loads, command=command))
            write_together(folder, {"compare.json": json_text(view.data), "report.html": report})
    show(view, json=json)
    if all(row.tok_s_per_gpu is None for row in rows):
        raise InfeasibleError("none of the clusters runs this: " + rows[0].reason)


def _pools(
    sweeps: list[Sweep],
    osl: int,
    ttft_ms: str | None,
    tpot_s: float | None,
    *,
    tier: str | None,
    host_link: str | None,
    anew: Callable[[], Sweep],
    joint: Callable[[], Sweep] | None,
) -> Pools:
    """Match the pools, and beside them what they would be with prompts recomputed, or without AFD."""
    from cost.pools import fetch_or_recompute, host_path, match_rates
    from rackplan.views.sweep import Pools
    from topology.figures import Evidence, Figure
    from topology.units import parse_quantity

    decode, prefill = sweeps
    ttft_s = _ttft(ttft_ms)
    limits: dict[str, Any] = {"osl": osl, "ttft_s": ttft_s, "tpot_s": tpot_s}
    fetch = None
    if tier is not None:
        link = None
        if host_link is not None:
            rate = parse_quantity(host_link, "byte/s", "--host-link")
            link = Figure(rate, "byte/s", Evidence.USER, "--host-link", host_link)
        fetch = host_path(prefill.deployment, tier, link=link)
    matches = match_rates(decode, prefill, fetch=fetch, **limits)
    pools = Pools(matches, decode, prefill, ttft_s=ttft_s, ttft_default=ttft_ms is None)
    if fetch is not None:
        whole, best = anew(), matches.best()
        either = None if best is None else fetch_or_recompute(prefill, whole, best.prefill, fetch)
        pools = replace(pools, either=either, recomputed=match_rates(decode, whole, **limits).best())
    if joint is not None:
        pools = replace(pools, joint=match_rates(joint(), prefill, fetch=fetch, **limits).best())
    return pools


def _ttft(text: str | None) -> float | None:
    """The limit on the time to first token in seconds, None where there is none."""
    from cost.pools import TTFT_LIMIT

    if text is None:
        return TTFT_LIMIT.value
    if text.strip().lower() == "none":
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        raise InputError(f"--ttft-ms {text}: expected milliseconds, or none.") from None
    return options.seconds(milliseconds, "--ttft-ms")


def _both_phases(
    isl: int | None, osl: int | None, context: int | None, phase: str, limits: tuple[object, ...]
) -> tuple[int, int] | None:
    """Lengths of prompt and answer where both phases are asked for."""
    if (isl is None) != (osl is None):
        raise InputError("--isl and --osl: give both, or neither with --context.")
    if isl is None or osl is None:
        if any(limit is not None for limit in limits):
            raise InputError(
                "--prefill-cluster, --ttft-ms, --tpot-ms, --kv-offload and --host-link: only with --isl and --osl."
            )
        return None
    if context is not None or phase != "decode":
        raise InputError(
            "--isl and --osl sweep both phases at their own lengths; leave --context and --phase out."
        )
    return isl, osl


def _require_together(
    afd: bool, redundant: int | None, kv_offload: str | None, prefix_hit: float, host_link: str | None
) -> None:
    """Refuse options that mean nothing without another, or with it."""
    if afd and redundant is not None:
        raise InputError(
            "--afd and --redundant: expert GPUs hold the fewest copies that divide; leave one out."
        )
    if kv_offload is not None and not prefix_hit:
        raise InputError("--kv-offload: give --prefix-hit, the part of the prompt whose cache lies there.")
    if host_link is not None and kv_offload is None:
        raise InputError("--host-link: only with --kv-offload.")


def _some(found: Sweep) -> Sweep:
    """Say that nothing fits before any speed."""
    if not len(found):
        deployment = found.deployment
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {deployment.model.name} on "
            f"{deployment.cluster.name} holds a sequence of "
            f"{deployment.workload.context:,} tokens; the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per GPU."
        )
    return found
