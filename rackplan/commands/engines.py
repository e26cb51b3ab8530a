"""Engine commands: export and import-plan."""

from __future__ import annotations

from pathlib import Path

import typer

from rackplan import answers, inputs
from rackplan.commands.options import FOLDER, command
from rackplan.commands.output import RESULTS, Run, print_error, write_plan
from rackplan.digests import digests
from rackplan.requests import ExportRequest, ImportPlanRequest
from topology.base.errors import InputError
from topology.base.files import write_new

EXIT_INVALID = 2
"""Exit code of a check that found an invalid plan file."""


@command(ExportRequest)
def export(request: ExportRequest, run: Run) -> None:
    """Flags and files are those that the engine reads; nothing is started."""
    from placement.engines.manifests.write import ExportRequest as Exported
    from placement.engines.manifests.write import deploy
    from placement.engines.registry import require_engine
    from rackplan.report.engines import exported_doc, warnings_of

    engine = require_engine(request.to, "to")
    named = request.output or Path(f"{engine.name}{engine.suffix}")
    options = request.as_options(Exported, engine=engine, output=named, served=request.model_path)
    plan = inputs.plan_of(request.plan)
    deployed, notes = deploy(options, plan), inputs.plan_notes(plan)
    if request.output is None and len(deployed.files) == 1:
        text = deployed.exported[0].text
        warnings = [warning.removesuffix(".") for warning in warnings_of(deployed)]
        run.show_file(text, exported_doc(deployed, text), [*notes, *warnings])
        return
    write_new({path: content.encode() for path, content in deployed.files.items()})
    run.show(exported_doc(deployed), notes, deployed.files)


@command(ImportPlanRequest, FOLDER, "DIR|FILE.html")
def import_plan(request: ImportPlanRequest, run: Run) -> None:
    """Reads it strictly, scores it; writes plan.json, report.html and topology.svg.

    With --check nothing is written, and the exit code is 2 if the engine would not load it or would misread it.
    """
    if request.only_check:
        _check(request, run)
        return
    from placement.engines.export import own_balancedness
    from placement.engines.import_plan import default_ranks, imported_plan
    from placement.engines.mapping import model_facts
    from placement.engines.registry import ENGINES, read_mapping
    from placement.options import PlanOptions
    from rackplan.report.plan import imported_plan_doc, with_files

    options = PlanOptions(None, None, 0.0, request.seed, request.ep, request.tp, request.stages)
    priced, kind, file = answers.make_deployment(request), request.kind, request.file
    mapping = read_mapping(file, kind, model_facts(priced.model), default_ranks(priced, options))
    loads = inputs.loads_of(priced.model, request.loads, seed=request.seed)
    if loads is None:
        raise InputError(f"{priced.model.name} has no routed experts.")
    folder = run.folder(f"{priced.model.name}-on-{priced.cluster.name}", RESULTS)
    plan = imported_plan(priced, mapping, loads, options, f"imported from {file} ({kind})")
    doc = imported_plan_doc(plan, own_balancedness(plan, ENGINES.get(kind)))
    files = write_plan(plan, doc, folder, digests(request.sources))
    run.show(with_files(doc, files), inputs.notes_of(request))


def _check(request: ImportPlanRequest, run: Run) -> None:
    """Say whether the engine loads the file; exit code 2 if it does not, or misreads it."""
    from placement.engines.mapping import model_facts
    from placement.engines.registry import check_file, require_engine
    from rackplan.report.engines import checked_doc

    if run.output is not None:
        raise InputError("a check writes nothing; leave it out.", field="output", value=run.output)
    engine, model, ranks = require_engine(request.kind, "kind"), inputs.model_of(request.model), request.ep
    if ranks is None:
        cluster = inputs.cluster_of(request.cluster, request.settings)
        ranks = max(1, len(cluster.gpus) // request.stages)
    loads = None if request.loads is None else inputs.loads_of(model, request.loads, seed=request.seed)
    check = check_file(request.file, engine, model_facts(model), ranks, loads, request.tp)
    if check.unreadable and not run.json:
        raise InputError(check.unreadable)
    run.show(checked_doc(check))
    if not check.right:
        print_error(check.verdict)
        raise typer.Exit(EXIT_INVALID)
