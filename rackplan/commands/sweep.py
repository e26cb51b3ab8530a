"""``rackplan sweep``: every layout at every batch, the frontier, and prefill and decode pools that match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackplan.commands.options import (
    AcceptLength,
    ClusterName,
    DraftTokens,
    Engine,
    JsonFlag,
    KvDtype,
    ModelName,
    Overlap,
    Phase,
    SparseAttention,
    Weights,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cost.layouts import Sweep
    from cost.model import Model
    from cost.workload import Workload
    from rackplan.sweep_report import Pools
    from topology.cluster import Cluster


NAME = "sweep"
CONTEXT = 4096
TARGETS = (25.0, 50.0, 75.0, 100.0, 125.0, 150.0, 200.0)
"""Speeds per user that comparisons of chips usually stand at."""


def run(
    model: ModelName,
    cluster: ClusterName,
    phase: Phase = "decode",
    context: Annotated[
        int | None,
        typer.Option(
            "--context", help="Tokens already in each sequence; prefill: of each prompt. Default 4096."
        ),
    ] = None,
    isl: Annotated[
        int | None,
        typer.Option("--isl", metavar="N", help="With --osl: tokens of a prompt; sweeps both phases."),
    ] = None,
    osl: Annotated[
        int | None, typer.Option("--osl", metavar="N", help="With --isl: tokens of an answer.")
    ] = None,
    prefill_cluster: Annotated[
        str | None,
        typer.Option(
            "--prefill-cluster", metavar="C", help="GPUs that prefill; default: a part of --cluster."
        ),
    ] = None,
    ttft_ms: Annotated[
        str | None,
        typer.Option(
            "--ttft-ms",
            metavar="X",
            help="Longest prefill and transfer of the cache, without waiting; none: no limit. [2000]",
        ),
    ] = None,
    tpot_ms: Annotated[
        float | None, typer.Option("--tpot-ms", help="Longest time per output token of matched pools.")
    ] = None,
    tok_s_user: Annotated[
        str | None, typer.Option("--tok-s-user", metavar="LIST", help="Speeds per user: 25,50,100 (tok/s).")
    ] = None,
    prefix_hit: Annotated[
        float,
        typer.Option(
            "--prefix-hit", metavar="F", help="Part of each prompt that a cache already holds, 0 to below 1."
        ),
    ] = 0.0,
    kv_offload: Annotated[
        str | None,
        typer.Option(
            "--kv-offload", metavar="TIER", help="Where the cached part lies: ddr5, flash. Default: in HBM."
        ),
    ] = None,
    host_link: Annotated[
        str | None,
        typer.Option("--host-link", metavar="RATE", help="Link of a GPU to its host, like '63 GB/s'."),
    ] = None,
    afd: Annotated[
        bool, typer.Option("--afd", help="Decode with attention and experts on different GPUs.")
    ] = False,
    imbalance: Annotated[
        float | None,
        typer.Option(
            "--imbalance",
            metavar="X",
            help="Busiest GPU's expert load over the mean. [1; matched pools: as usual in wide groups]",
        ),
    ] = None,
    redundant: Annotated[
        int | None,
        typer.Option("--redundant", help="Extra expert copies per layer; default: fewest that divide."),
    ] = None,
    weights: Weights = None,
    kv_dtype: KvDtype = "bf16",
    draft_tokens: DraftTokens = 0,
    accept_length: AcceptLength = None,
    overlap: Overlap = False,
    sparse_attention: SparseAttention = "",
    engine: Engine = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.csv", help="Write every configuration.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Price every parallel layout at every batch. The frontier, the best at each speed, matched pools."""
    from cost.afd import afd_sweep
    from cost.deployment import Deployment
    from cost.layouts import sweep
    from cost.pools import serving_workloads
    from cost.resolve import resolve_model
    from cost.workload import Workload
    from rackplan.inputs import accepted_tokens
    from topology.errors import InputError
    from topology.resolve import resolve_cluster

    both = _both_phases(isl, osl, context, phase, (prefill_cluster, ttft_ms, tpot_ms, kv_offload, host_link))
    if both is None and imbalance is None:
        imbalance = 1.0
    if afd and redundant is not None:
        raise InputError(
            "--afd and --redundant: expert GPUs hold the fewest copies that divide; leave one out."
        )
    if kv_offload is not None and not prefix_hit:
        raise InputError("--kv-offload: give --prefix-hit, the part of the prompt whose cache lies there.")
    if host_link is not None and kv_offload is None:
        raise InputError("--host-link: only with --kv-offload.")
    targets = _targets(tok_s_user, phase)
    resolved, where = resolve_model(model, weights=weights), resolve_cluster(cluster)
    accepted = accepted_tokens(draft_tokens, accept_length)
    first = Workload(
        context or CONTEXT,
        0,
        kv_dtype,
        phase,
        draft_tokens,
        accepted,
        overlap=overlap,
        sparse_attention=sparse_attention,
        prefix_hit=0.0 if both else prefix_hit,
    )
    if context is not None and context < 1:
        raise InputError(f"--context {context}: expected 1 token or more.")
    sides = [(where, first)]
    if both is not None:
        decode, prefill = serving_workloads(first, *both, prefix_hit=prefix_hit)
        sides = [(where, decode), (resolve_cluster(prefill_cluster) if prefill_cluster else where, prefill)]

    def swept(side: Cluster, workload: Workload, *, apart: bool = False) -> Sweep:
        deployment = Deployment(side, resolved, workload, engine=engine)
        if apart:
            return afd_sweep(deployment, imbalance=imbalance)
        return sweep(deployment, redundant=redundant, imbalance=imbalance)

    sweeps = [swept(*side, apart=afd and not index) for index, side in enumerate(sides)]
    for found in sweeps:
        _require(found)
    pools = None
    if both is not None:
        pools = _pools(
            sweeps,
            both[1],
            _ttft(ttft_ms),
            None if tpot_ms is None else _seconds("--tpot-ms", tpot_ms),
            tier=kv_offload,
            host_link=host_link,
            anew=lambda: swept(sides[1][0], replace(sides[1][1], prefix_hit=0.0)),
            joint=(lambda: swept(*sides[0])) if afd else None,
        )
    _write(output, sweeps)
    _print(resolved, sweeps, pools, targets, json=json)


def _pools(
    sweeps: list[Sweep],
    osl: int,
    ttft: tuple[float | None, bool],
    tpot_s: float | None,
    *,
    tier: str | None,
    host_link: str | None,
    anew: Callable[[], Sweep],
    joint: Callable[[], Sweep] | None,
) -> Pools:
    """Match the pools, and beside them what they would be with prompts recomputed, or without AFD."""
    from cost.pools import fetch_or_recompute, host_path, match_rates
    from rackplan.sweep_report import Pools
    from topology.figures import Evidence, Figure
    from topology.units import parse_quantity

    decode, prefill = sweeps
    limits: dict[str, Any] = {"osl": osl, "ttft_s": ttft[0], "tpot_s": tpot_s}
    fetch = None
    if tier is not None:
        link = None
        if host_link is not None:
            rate = parse_quantity(host_link, "byte/s", "--host-link")
            link = Figure(rate, "byte/s", Evidence.USER, "--host-link", host_link)
        fetch = host_path(prefill.deployment, tier, link=link)
    matches = match_rates(decode, prefill, fetch=fetch, **limits)
    best = matches.best()
    pools = Pools(matches, decode, prefill, ttft_s=ttft[0], ttft_default=ttft[1])
    if fetch is not None:
        whole = anew()
        _require(whole)
        either = None if best is None else fetch_or_recompute(prefill, whole, best.prefill, fetch)
        pools = replace(pools, either=either, recomputed=match_rates(decode, whole, **limits).best())
    if joint is not None:
        pools = replace(pools, joint=match_rates(joint(), prefill, fetch=fetch, **limits).best())
    return pools


def _ttft(text: str | None) -> tuple[float | None, bool]:
    """The limit in seconds (None: there is none), and whether it is the default."""
    from cost.pools import TTFT_LIMIT
    from topology.errors import InputError

    if text is None:
        return TTFT_LIMIT.value, True
    if text.strip().lower() == "none":
        return None, False
    try:
        milliseconds = float(text)
    except ValueError:
        raise InputError(f"--ttft-ms {text}: expected milliseconds, or none.") from None
    return _seconds("--ttft-ms", milliseconds), False


def _both_phases(
    isl: int | None, osl: int | None, context: int | None, phase: str, limits: tuple[object, ...]
) -> tuple[int, int] | None:
    """Lengths of prompt and answer where both phases are asked for."""
    from topology.errors import InputError

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


def _targets(text: str | None, phase: str) -> list[float]:
    from rackplan.inputs import speeds

    if text is not None:
        return speeds(text)
    return list(TARGETS) if phase == "decode" else []


def _seconds(name: str, milliseconds: float) -> float:
    import math

    from topology.errors import InputError

    if not math.isfinite(milliseconds) or milliseconds <= 0:
        raise InputError(f"{name} {milliseconds:g}: expected a number above 0.")
    return milliseconds / 1e3


def _require(found: Sweep) -> None:
    """Say that nothing fits before any speed."""
    from topology.errors import InfeasibleError

    if not len(found):
        deployment = found.deployment
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {deployment.model.name} on "
            f"{deployment.cluster.name} holds a sequence of "
            f"{deployment.workload.context:,} tokens; the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per GPU."
        )


def _write(output: Path | None, sweeps: list[Sweep]) -> None:
    from rackplan.sweep_report import sweep_csv
    from topology.files import write_whole

    if output is not None:
        write_whole(output, sweep_csv(sweeps).encode())


def _print(
    model: Model, sweeps: list[Sweep], pools: Pools | None, targets: list[float], *, json: bool
) -> None:
    from rackplan.output import print_json, print_text
    from rackplan.sweep_report import match_data, sweep_data
    from rackplan.sweep_summary import match_summary, sweep_summary

    decode, *rest = sweeps
    if json:
        data: dict[str, Any] = {"model": model.name, **sweep_data(decode, targets)}
        if pools is not None:
            data["prefill"] = sweep_data(rest[0], [])
            data["rate_matching"] = match_data(pools)
        print_json(data)
        return
    blocks = [sweep_summary(decode, targets), *(sweep_summary(found, []) for found in rest)]
    if pools is not None:
        blocks.append(match_summary(pools))
    print_text("\n\n".join(blocks))
