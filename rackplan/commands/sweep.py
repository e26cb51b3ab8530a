"""``rackplan sweep``: every layout at every batch, the frontier, and prefill and decode pools that match."""

from __future__ import annotations

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
    from cost.model import Model
    from cost.rate_matching import RateMatches
    from cost.sweep import Sweep

__all__ = ["NAME", "run"]

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
        float | None, typer.Option("--ttft-ms", help="Longest prefill step, queueing excluded.")
    ] = None,
    tpot_ms: Annotated[
        float | None, typer.Option("--tpot-ms", help="Longest time per output token of matched pools.")
    ] = None,
    tok_s_user: Annotated[
        str | None, typer.Option("--tok-s-user", metavar="LIST", help="Speeds per user: 25,50,100 (tok/s).")
    ] = None,
    redundant: Annotated[
        int | None,
        typer.Option("--redundant", help="Extra expert copies per layer; default: fewest that divide."),
    ] = None,
    weights: Weights = None,
    kv_dtype: KvDtype = "bf16",
    draft_tokens: DraftTokens = 0,
    accept_length: AcceptLength = 1.0,
    overlap: Overlap = False,
    sparse_attention: SparseAttention = "",
    engine: Engine = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.csv", help="Write every configuration.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Price every parallel layout at every batch. The frontier, the best at each speed, matched pools."""
    from cost.rate_matching import match_rates, serving_workloads
    from cost.resolve import resolve_model
    from cost.setting import Setting
    from cost.sweep import sweep
    from cost.workload import Workload
    from topology.errors import InputError
    from topology.resolve import resolve_cluster

    both = _both_phases(isl, osl, context, phase, (prefill_cluster, ttft_ms, tpot_ms))
    targets = _targets(tok_s_user, phase)
    resolved, where = resolve_model(model, weights=weights), resolve_cluster(cluster)
    first = Workload(
        context or CONTEXT, 0, kv_dtype, phase, draft_tokens, accept_length, overlap, sparse_attention
    )
    if context is not None and context < 1:
        raise InputError(f"--context {context}: expected 1 token or more.")
    sides = [(where, first)]
    if both is not None:
        decode, prefill = serving_workloads(first, *both)
        sides = [(where, decode), (resolve_cluster(prefill_cluster) if prefill_cluster else where, prefill)]
    sweeps = [
        sweep(Setting(side, resolved, workload, engine=engine), redundant=redundant)
        for side, workload in sides
    ]
    for found in sweeps:
        _require(found)
    matches = None
    if both is not None:
        matches = match_rates(
            sweeps[0],
            sweeps[1],
            osl=both[1],
            ttft_s=_seconds("--ttft-ms", ttft_ms),
            tpot_s=_seconds("--tpot-ms", tpot_ms),
        )
    _write(output, sweeps)
    _print(resolved, sweeps, matches, targets, json=json)


def _both_phases(
    isl: int | None, osl: int | None, context: int | None, phase: str, limits: tuple[object, ...]
) -> tuple[int, int] | None:
    """Lengths of prompt and answer where both phases are asked for."""
    from topology.errors import InputError

    if (isl is None) != (osl is None):
        raise InputError("--isl and --osl: give both, or neither with --context.")
    if isl is None or osl is None:
        if any(limit is not None for limit in limits):
            raise InputError("--prefill-cluster, --ttft-ms and --tpot-ms: only with --isl and --osl.")
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


def _seconds(name: str, milliseconds: float | None) -> float | None:
    import math

    from topology.errors import InputError

    if milliseconds is None:
        return None
    if not math.isfinite(milliseconds) or milliseconds <= 0:
        raise InputError(f"{name} {milliseconds:g}: expected a number above 0.")
    return milliseconds / 1e3


def _require(found: Sweep) -> None:
    """Say that nothing fits before any speed."""
    from topology.errors import InfeasibleError

    if not len(found):
        setting = found.setting
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {setting.model.name} on {setting.cluster.name} holds a sequence of "
            f"{setting.workload.context:,} tokens; the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per GPU."
        )


def _write(output: Path | None, sweeps: list[Sweep]) -> None:
    from rackplan.sweep_report import sweep_csv
    from topology.files import write_whole

    if output is not None:
        write_whole(output, sweep_csv(sweeps).encode())


def _print(
    model: Model, sweeps: list[Sweep], matches: RateMatches | None, targets: list[float], *, json: bool
) -> None:
    from rackplan.output import print_json, print_text
    from rackplan.sweep_report import match_data, sweep_data
    from rackplan.sweep_summary import match_summary, sweep_summary

    decode, *rest = sweeps
    if json:
        data: dict[str, Any] = {"model": model.name, **sweep_data(decode, targets)}
        if matches is not None:
            data["prefill"] = sweep_data(rest[0], [])
            data["rate_matching"] = match_data(matches, decode, rest[0])
        print_json(data)
        return
    blocks = [sweep_summary(decode, targets), *(sweep_summary(found, []) for found in rest)]
    if matches is not None:
        blocks.append(match_summary(matches, decode, rest[0]))
    print_text("\n\n".join(blocks))
