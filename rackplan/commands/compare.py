"""``rackplan compare``: one model on several clusters at equal GPU count."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackplan.commands.options import (
    AcceptLength,
    Batch,
    Context,
    DraftTokens,
    Engine,
    JsonFlag,
    KvDtype,
    Loads,
    ModelName,
    Overlap,
    Phase,
    Seed,
    SparseAttention,
    Weights,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement.compare import CompareRow
    from topology.cluster import Cluster


NAME = "compare"


def run(
    clusters: Annotated[
        list[str], typer.Argument(metavar="C...", help="Catalog names, name@GPUS or YAML files.")
    ],
    model: ModelName,
    gpus: Annotated[
        int | None, typer.Option("--gpus", help="GPUs of each; default: the most of any named.")
    ] = None,
    tok_s_user: Annotated[
        str | None,
        typer.Option(
            "--tok-s-user", metavar="LIST", help="Speeds per user to compare at: 25,50,100 (tok/s)."
        ),
    ] = None,
    loads: Loads = None,
    phase: Phase = "decode",
    context: Context = 4096,
    batch: Batch = 0,
    weights: Weights = None,
    kv_dtype: KvDtype = "bf16",
    draft_tokens: DraftTokens = 0,
    accept_length: AcceptLength = None,
    overlap: Overlap = False,
    sparse_attention: SparseAttention = "",
    engine: Engine = "",
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write compare.json and report.html.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Compare clusters for one model. Step time, tok/s/GPU, tok/s/user and what binds."""
    from contextlib import nullcontext

    from cost.deployment import Deployment
    from cost.resolve import resolve_model
    from cost.workload import Workload
    from placement.compare import compare_clusters
    from placement.options import PlanOptions
    from rackplan.compare_summary import compare_summary
    from rackplan.inputs import accepted_tokens, model_loads, speeds
    from rackplan.output import output_folder, print_json, print_text
    from rackplan.progress import progress
    from rackplan.report.compare_page import compare_report
    from topology.errors import InfeasibleError

    targets = speeds(tok_s_user) if tok_s_user is not None else []
    resolved = resolve_model(model, weights=weights)
    workload = Workload(
        context,
        batch,
        kv_dtype,
        phase,
        draft_tokens,
        accepted_tokens(draft_tokens, accept_length),
        overlap,
        sparse_attention,
    )
    sides = _equal_sides(clusters, gpus)
    expert_loads = model_loads(resolved, loads or [], seed)
    with output_folder(output) if output else nullcontext() as folder, progress() as reporter:
        reporter.stage("comparing clusters")
        rows = compare_clusters(
            sides,
            resolved,
            workload,
            expert_loads,
            PlanOptions(time_limit_s=0.0, seed=seed),
            targets,
            engine=engine,
        )
        data: dict[str, Any] = {"rows": [_as_json(row, resolved.name, workload.token_word) for row in rows]}
        if workload.what_if:
            data["what_if"] = workload.what_if
        if folder:
            reporter.stage("writing")
            settings = [Deployment(side, resolved, workload, engine=engine) for side in sides]
            _write(folder, data, compare_report(rows, settings, expert_loads, command=_command()))
    if json:
        print_json(data)
    else:
        print_text(compare_summary(rows, resolved, workload, expert_loads, engine))
    if all(row.tok_s_per_gpu is None for row in rows):
        raise InfeasibleError("none of the clusters runs this: " + rows[0].reason)


def _command() -> str:
    import shlex
    import sys

    return shlex.join(["rackplan", *sys.argv[1:]])


def _write(folder: Path, data: dict[str, Any], report: str) -> None:
    """Write the rows and the report, both or neither."""
    import json

    from rackplan.output import write_together
    from topology.files import write_whole

    text = json.dumps(data, indent=2, allow_nan=False) + "\n"
    writers = {
        "compare.json": lambda path: write_whole(path, text.encode()),
        "report.html": lambda path: write_whole(path, report.encode()),
    }
    write_together(folder, writers)


def _equal_sides(names: Sequence[str], gpus: int | None) -> list[Cluster]:
    """Resolve the clusters, those named without ``@GPUS`` at the common count."""
    from topology.catalog import cluster_names
    from topology.errors import InputError
    from topology.resolve import resolve_cluster

    sides = [resolve_cluster(name) for name in names]
    count = gpus if gpus is not None else max(len(side.gpus) for side in sides)
    equal = [
        resolve_cluster(f"{name}@{count}") if name in cluster_names() and len(side.gpus) != count else side
        for name, side in zip(names, sides, strict=True)
    ]
    for name, side in zip(names, equal, strict=True):
        if gpus is not None and len(side.gpus) != gpus:
            raise InputError(
                f"--gpus {gpus}: {name} has {len(side.gpus)} GPUs; leave --gpus or its @GPUS out."
            )
    return equal


def _as_json(row: CompareRow, model: str, tokens: str) -> dict[str, Any]:
    from cost.calibration.errors import error_to_dict

    speed = row.tok_s_per_user if row.target_tok_s_per_user is None else row.target_tok_s_per_user
    return {
        "cluster": row.cluster,
        "model": model,
        "gpus": row.gpus,
        "tok_s_per_user": speed,
        "reached_tok_s_per_user": row.tok_s_per_user,
        "tok_s_per_gpu": row.tok_s_per_gpu,
        "tokens": tokens,
        "step_s": row.step_s,
        "batch": row.batch,
        "bound_by": row.bound_by,
        "layout": row.layout,
        "evidence": row.evidence,
        "status": row.status,
        "reason": row.reason,
        "calibration": error_to_dict(row.errors),
    }
