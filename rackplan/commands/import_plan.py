"""``rackplan import-plan``: an engine's plan file, or EPLB's result, as a plan of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import (
    ENGINES,
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
    SplitName,
    Weights,
)

NAME = "import-plan"


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A plan as an engine loads it, or phy2log.npy.")
    ],
    kind: Annotated[str, typer.Option("--from", metavar="KIND", help=f"npy, {ENGINES}.")],
    model: ModelName,
    cluster: ClusterName,
    output: OutputFolder,
    loads: Loads = None,
    phase: Phase = "decode",
    context: Context = 4096,
    batch: Batch = 0,
    objective: ObjectiveName = "mean",
    split: SplitName = "even",
    ep: Annotated[
        int | None,
        typer.Option("--ep", help="GPUs of the EP group. [all, over the stages]", show_default=False),
    ] = None,
    tp: Annotated[int, typer.Option("--tp", help="Tensor-parallel width.")] = 1,
    stages: Annotated[int, typer.Option("--stages", help="Pipeline stages.")] = 1,
    weights: Weights = None,
    kv_dtype: KvDtype = "bf16",
    draft_tokens: DraftTokens = 0,
    accept_length: AcceptLength = None,
    overlap: Overlap = False,
    engine: Engine = "",
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Make an engine's plan file a plan of ours.

    Reads it strictly, scores it; writes plan.json, report.html and topology.svg.
    """
    from cost.deployment import Deployment
    from cost.dispatch import require_split
    from cost.resolve import resolve_model
    from cost.workload import Workload
    from placement.engines.import_plan import default_ranks, imported_plan
    from placement.engines.mapping import model_facts
    from placement.engines.registry import read_mapping
    from placement.options import PlanOptions, require_objective
    from rackplan.commands.plan import plan_json, write_plan
    from rackplan.inputs import accepted_tokens, digests, model_loads
    from rackplan.output import output_folder, print_json, print_text
    from rackplan.summary import plan_summary
    from topology.errors import InputError
    from topology.resolve import resolve_cluster

    options = PlanOptions(
        time_limit_s=0.0,
        seed=seed,
        ep=ep,
        tp=tp,
        stages=stages,
        objective=require_objective(objective),
        split=require_split(split),
    )
    workload = Workload(
        context, batch, kv_dtype, phase, draft_tokens, accepted_tokens(draft_tokens, accept_length), overlap
    )
    deployment = Deployment(
        resolve_cluster(cluster), resolve_model(model, weights=weights), workload, engine=engine
    )
    mapping = read_mapping(file, kind, model_facts(deployment.model), default_ranks(deployment, options))
    expert_loads = model_loads(deployment.model, loads or [], seed)
    if expert_loads is None:
        raise InputError(f"{deployment.model.name} has no routed experts.")
    note = f"imported from {file} ({kind})"
    with output_folder(output) as folder:
        plan = imported_plan(deployment, mapping, expert_loads, options, note)
        files = write_plan(plan, folder, digests([str(file), model, cluster, *(loads or [])]))
        if json:
            print_json(plan_json(plan, files))
        else:
            print_text(plan_summary(plan, files))
