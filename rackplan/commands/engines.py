"""Plans in engines' forms: written, read, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from placement.engines import NAMES
from rackplan import options
from rackplan.digests import digests
from rackplan.options import arg, opt
from topology.base.errors import InputError

ENGINES = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"
NOT_RIGHT = 2
"""Exit code of a check that found a plan file wrong."""


def export(
    plan: options.PlanFile,
    to: Annotated[str, opt("--to", f"{ENGINES}.", "ENGINE")],
    output: Annotated[
        Path | None,
        opt(
            "-o --output",
            "The file; one that exists is left alone. [standard output; with --launch ENGINE.json]",
            "FILE",
            show_default=False,
        ),
    ] = None,
    served: Annotated[
        str,
        opt(
            "--model-path",
            "Checkpoint that the engine loads: a Hugging Face id or a path. [the catalog's id]",
            "ID",
            show_default=False,
        ),
    ] = "",
    launch: Annotated[
        str,
        opt(
            "--launch",
            "What starts it, in a file beside: lws (Kubernetes), dynamo, llm-d or slurm; shell prints lines.",
            "KIND",
        ),
    ] = "shell",
    prefill: Annotated[
        Path | None,
        opt("--prefill", "With --launch: a plan of a prefill pool; PLAN is the decode pool's.", "PLAN"),
    ] = None,
    hosts: Annotated[
        str | None,
        opt("--hosts", "With --launch: names of the hosts in the plan's order: node[001-018].", "HOSTLIST"),
    ] = None,
    image: Annotated[
        str,
        opt("--image", "With --launch: the container's image. [a placeholder]", "IMAGE", show_default=False),
    ] = "",
    json: options.JsonFlag = False,
) -> None:
    """Write a plan in the form that an engine loads, and what starts the engine with it."""
    from placement.engines.manifests.write import ExportRequest, deploy
    from placement.engines.registry import require_engine
    from placement.plans.reading import read_plan
    from rackplan.output import print_error, show, show_text
    from rackplan.render.text import with_flags
    from rackplan.views.engines import export_view
    from topology.base.files import write_new

    engine = require_engine(to, "to")
    named = output or Path(f"{engine.name}{engine.suffixes[0]}")
    asked = ExportRequest(engine, named, launch, None, served, hosts, image)
    deployed = deploy(asked, read_plan(plan), None if prefill is None else read_plan(prefill))
    view = export_view(deployed)
    if output is None and len(deployed.files) == 1:
        for one in deployed.exported[0].warnings:
            print_error(with_flags(f"note: {one}"))
        show_text(deployed.exported[0].text, view, json=json)
        return
    write_new({path: text.encode() for path, text in deployed.files.items()})
    show(view, json=json)


def import_plan(
    *,
    file: Annotated[Path, arg("FILE", "A plan as an engine loads it, or phy2log.npy.")],
    kind: Annotated[str, opt("--from", f"npy, {ENGINES}.", "KIND")],
    model: options.ModelName,
    cluster: options.ClusterName,
    output: options.OutputFolder = None,
    loads: options.Loads = None,
    serving: options.Serving,
    ep: Annotated[
        int | None, opt("--ep", "GPUs of the EP group. [all, over the stages]", show_default=False)
    ] = None,
    tp: Annotated[int, opt("--tp", "Tensor-parallel width.")] = 1,
    stages: Annotated[int, opt("--stages", "Pipeline stages.")] = 1,
    pricing: options.Pricing,
    seed: options.Seed = 0,
    json: options.JsonFlag = False,
) -> None:
    """Make an engine's plan file a plan of ours.

    Reads it strictly, scores it; writes plan.json, report.html and topology.svg.
    """
    from placement.engines.import_plan import default_ranks, imported_plan
    from placement.engines.mapping import model_facts
    from placement.engines.registry import ENGINES as ENGINES_OF
    from placement.engines.registry import read_mapping
    from placement.options import PlanOptions
    from rackplan.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.views.engines import import_view

    asked = PlanOptions(None, None, 0.0, seed, ep, tp, stages)
    deployment = pricing.deployment(model, cluster, serving)
    mapping = read_mapping(file, kind, model_facts(deployment.model), default_ranks(deployment, asked))
    expert_loads = options.model_loads(deployment.model, loads or [], seed)
    if expert_loads is None:
        raise InputError(f"{deployment.model.name} has no routed experts.")
    named = output or default_output(f"{deployment.model.name}-on-{deployment.cluster.name}")
    folder = require_output(named, ours=RESULTS)
    plan = imported_plan(deployment, mapping, expert_loads, asked, f"imported from {file} ({kind})")
    files = write_plan(plan, folder, digests([str(file), model, cluster, *(loads or [])]))
    show(import_view(plan, files, ENGINES_OF.get(kind)), json=json)


def check(
    file: Annotated[Path, arg("FILE", "A plan as an engine loads it.")],
    engine: Annotated[str, opt("--for", f"{ENGINES}.", "ENGINE")],
    model: options.ModelName,
    gpus: Annotated[int, opt("--gpus", "GPUs of the EP group.", "N")],
    json: options.JsonFlag = False,
) -> None:
    """Say whether a plan file would load and be right. Exit code 2 if not."""
    from cost.resolve import resolve_model
    from placement.engines.mapping import model_facts
    from placement.engines.registry import check_file, require_engine
    from rackplan.output import print_error, show
    from rackplan.views.engines import check_view

    found = check_file(file, require_engine(engine, "for"), model_facts(resolve_model(model)), gpus)
    if found.unreadable and not json:
        raise InputError(found.unreadable)
    show(check_view(found), json=json)
    if not found.right:
        print_error(found.verdict)
        raise typer.Exit(NOT_RIGHT)
