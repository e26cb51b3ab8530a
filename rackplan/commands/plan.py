"""``rackplan plan``: make a plan and write it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rackplan.commands.options import (
    INTERRUPTED,
    AcceptLength,
    Batch,
    ClusterName,
    Context,
    DraftTokens,
    Engine,
    JsonFlag,
    KvDtype,
    Loads,
    ModelName,
    ObjectiveName,
    OutputFolder,
    Overlap,
    Phase,
    Seed,
    SparseAttention,
    SplitName,
    Weights,
    Windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement.plan import Plan
    from rackplan.report.html import Markup


NAME = "plan"


def run(
    model: ModelName,
    cluster: ClusterName,
    output: OutputFolder,
    loads: Loads = None,
    windows: Windows = None,
    phase: Phase = "decode",
    context: Context = 4096,
    batch: Batch = 0,
    tpot_ms: Annotated[
        float | None, typer.Option("--tpot-ms", help="Longest time per output token, in ms.")
    ] = None,
    redundant: Annotated[
        str | None,
        typer.Option(
            "--redundant",
            metavar="N|auto",
            help="Extra expert copies per layer; default: fewest that divide; auto: most throughput.",
        ),
    ] = None,
    objective: ObjectiveName = "mean",
    spread: Annotated[
        str, typer.Option("--spread", help="Copies of an expert lie in different gpu, node or rack.")
    ] = "gpu",
    split: SplitName = "even",
    ep: Annotated[
        int | None, typer.Option("--ep", help="GPUs that a layer's experts are spread over.")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel width.")] = None,
    stages: Annotated[int | None, typer.Option("--stages", help="Pipeline stages.")] = None,
    weights: Weights = None,
    kv_dtype: KvDtype = "bf16",
    draft_tokens: DraftTokens = 0,
    accept_length: AcceptLength = None,
    overlap: Overlap = False,
    sparse_attention: SparseAttention = "",
    engine: Engine = "",
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Seconds for CP-SAT; 0: fast path only.")
    ] = 10.0,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Plan what goes where, and what a step costs. Writes plan.json, report.html and topology.svg."""
    from cost.deployment import Deployment
    from cost.dispatch import require_split
    from cost.resolve import resolve_model
    from cost.workload import Workload
    from placement.options import PlanOptions, require_objective, require_spread
    from placement.planner import make_plan
    from rackplan.inputs import accepted_tokens, digests, model_loads
    from rackplan.output import output_folder, print_error, print_json, print_text
    from rackplan.progress import progress
    from rackplan.summary import plan_summary
    from topology.resolve import resolve_cluster

    options = PlanOptions(
        None if redundant is None else _copies(redundant),
        None if tpot_ms is None else tpot_ms / 1e3,
        time_limit,
        seed,
        ep,
        tp,
        stages,
        spread=require_spread(spread),
        objective=require_objective(objective),
        split=require_split(split),
    )
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
    deployment = Deployment(
        resolve_cluster(cluster), resolve_model(model, weights=weights), workload, engine=engine
    )
    expert_loads = model_loads(deployment.model, loads or [], seed, windows)
    with output_folder(output) as folder:
        with progress() as reporter:
            plan = make_plan(
                deployment, expert_loads, options, on_progress=reporter.layers, on_stage=reporter.stage
            )
            reporter.stage("writing")
            files = write_plan(plan, folder, digests([model, cluster, *(loads or [])]))
        if json:
            print_json(plan_json(plan, files))
        else:
            print_text(plan_summary(plan, files))
    if plan.interrupted:
        print_error("interrupted; the best plan so far was written.")
        raise typer.Exit(INTERRUPTED)


def _copies(text: str) -> int | Literal["auto"]:
    """Parse ``32`` or ``auto``.

    Raises
    ------
    InputError
        If it is neither.
    """
    from placement.options import AUTO
    from topology.errors import InputError

    if text == AUTO:
        return AUTO
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"--redundant {text}: expected 0 or more copies above one of each expert, or auto."
        ) from None


def write_plan(
    plan: Plan,
    folder: Path,
    sha256: dict[str, str],
    *,
    first: Markup | None = None,
    moves: str | None = None,
) -> dict[str, str]:
    """Write the plan, its picture and its report; return their paths by what they are.

    Of a re-plan ``first`` is the report's first section, and ``moves`` the text of ``moves.json``.
    """
    import shlex

    from placement.plan_file import plan_to_dict, plan_to_json
    from rackplan.output import write_together
    from rackplan.overlay import plan_overlay
    from rackplan.report.plan_page import plan_report
    from topology.draw import draw_cluster
    from topology.files import write_whole

    command = shlex.join(["rackplan", *sys.argv[1:]])
    text = plan_to_json(plan_to_dict(plan, command=command, sha256=sha256))

    def report(path: Path) -> None:
        drawing = path.with_name("topology.svg").read_text(encoding="utf-8")  # written before it
        page = plan_report(plan, drawing, command=command, sha256=sha256, first=first)
        write_whole(path, page.encode())

    writers: dict[str, Callable[[Path], None]] = {
        "topology.svg": lambda path: draw_cluster(plan.deployment.cluster, path, overlay=plan_overlay(plan)),
        "report.html": report,
    }
    names = {"plan": "plan.json", "report": "report.html", "topology": "topology.svg"}
    if moves is not None:
        writers["moves.json"] = lambda path: write_whole(path, moves.encode())
        names = {"plan": names.pop("plan"), "moves": "moves.json", **names}
    writers["plan.json"] = lambda path: write_whole(path, text.encode())
    write_together(folder, writers)
    return {what: str(folder / name) for what, name in names.items()}


def plan_json(plan: Plan, files: dict[str, str]) -> dict[str, Any]:
    """What ``--json`` prints of a plan: all but what is bulky."""
    from placement.plan_file import plan_to_dict

    data = plan_to_dict(plan)
    for bulky in ("experts", "inputs"):
        del data[bulky]
    return {**data, "files": files}
