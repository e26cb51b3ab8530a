"""Engine commands: export, import-plan and check."""

from __future__ import annotations

from pathlib import Path

import typer

from rackplan.commands.options import JsonFlag, OutputFolder, command
from rackplan.digests import digests
from rackplan.requests import CheckRequest, ExportRequest, ImportPlanRequest
from topology.base.errors import InputError

NOT_RIGHT = 2
"""Exit code of a check that found an invalid plan file."""


@command(ExportRequest)
def export(request: ExportRequest, *, json: JsonFlag = False) -> None:
    """Export a plan to an engine's placement format, with commands or files to launch the engine."""
    from placement.engines.manifests.write import ExportRequest as Exported
    from placement.engines.manifests.write import deploy
    from placement.engines.registry import require_engine
    from rackplan import inputs
    from rackplan.commands.output import print_error, show, show_text
    from rackplan.render.text import with_flags
    from rackplan.views.engines import export_view
    from topology.base.files import write_new

    engine = require_engine(request.to, "to")
    named = request.output or Path(f"{engine.name}{engine.suffix}")
    asked = Exported(
        engine, named, request.launch, None, request.model_path, request.hosts, request.image, request.ranks
    )
    prefill = None if request.prefill is None else inputs.plan_of(request.prefill)
    plan = inputs.plan_of(request.plan)
    deployed = deploy(asked, plan, prefill)
    notes = [note for one in (plan, prefill) if one is not None for note in inputs.plan_notes(one)]
    view = export_view(deployed)
    if request.output is None and len(deployed.files) == 1:
        for one in (*(f"{note}." for note in notes if not json), *deployed.exported[0].warnings):
            print_error(with_flags(f"note: {one}"))
        show_text(deployed.exported[0].text, view, json=json, notes=notes if json else ())
        return
    write_new({path: text.encode() for path, text in deployed.files.items()})
    show(view, json=json, notes=notes)


@command(ImportPlanRequest)
def import_plan(request: ImportPlanRequest, *, output: OutputFolder = None, json: JsonFlag = False) -> None:
    """Import an engine's placement file.

    Reads it strictly, scores it; writes plan.json, report.html and topology.svg.
    """
    from placement.engines.export import engine_balancedness
    from placement.engines.import_plan import default_ranks, imported_plan
    from placement.engines.mapping import model_facts
    from placement.engines.registry import ENGINES, read_mapping
    from placement.options import PlanOptions
    from rackplan import answers, inputs
    from rackplan.commands.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.report.plan import imported_plan_doc, with_files

    asked = PlanOptions(None, None, 0.0, request.seed, request.ep, request.tp, request.stages)
    priced, kind, file = answers.make_deployment(request), request.kind, request.file
    mapping = read_mapping(file, kind, model_facts(priced.model), default_ranks(priced, asked))
    loads = inputs.loads_of(priced.model, request.loads, seed=request.seed)
    if loads is None:
        raise InputError(f"{priced.model.name} has no routed experts.")
    folder = require_output(
        output or default_output(f"{priced.model.name}-on-{priced.cluster.name}"), ours=RESULTS
    )
    plan = imported_plan(priced, mapping, loads, asked, f"imported from {file} ({kind})")
    engine, layout = ENGINES.get(kind), plan.layout
    parts = (layout.tp, plan.deployment, layout, plan.experts, loads)
    own = None if engine is None else engine_balancedness(engine, *parts)
    doc = imported_plan_doc(plan, own)
    files = write_plan(plan, doc, folder, digests(request.sources))
    show(with_files(doc, files), json=json, notes=inputs.notes_of(request))


@command(CheckRequest)
def check(request: CheckRequest, *, json: JsonFlag = False) -> None:
    """Validate a placement file for an engine. Exit code 2 if it is not valid."""
    from placement.engines.mapping import model_facts
    from placement.engines.registry import check_file, require_engine
    from rackplan import inputs
    from rackplan.commands.output import print_error, show
    from rackplan.views.engines import check_view

    engine, model = require_engine(request.engine, "for"), inputs.model_of(request.model)
    found = check_file(request.file, engine, model_facts(model), request.gpus)
    if found.unreadable and not json:
        raise InputError(found.unreadable)
    show(check_view(found), json=json)
    if not found.right:
        print_error(found.verdict)
        raise typer.Exit(NOT_RIGHT)
