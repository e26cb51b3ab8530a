"""What clusters can serve: sweep, compare, size, roofline, economics and study."""

from __future__ import annotations

from dataclasses import replace

from rackplan import answers, inputs, shapes
from rackplan.commands.options import WRITTEN, WRITTEN_ROWS, command, exit_if_interrupted
from rackplan.commands.output import Run, page_of
from rackplan.progress import progress
from rackplan.requests import (
    CompareRequest,
    EconomicsRequest,
    RooflineRequest,
    SizeRequest,
    StudyRequest,
    SweepRequest,
)
from topology.base.errors import InfeasibleError, InputError
from topology.base.files import write_whole


@command(SweepRequest, WRITTEN_ROWS, details=True)
def sweep(request: SweepRequest, run: Run) -> None:
    """One pool or two; files list all layouts."""
    from rackplan.report.csv import table_csv
    from rackplan.report.sweep import sweep_doc, sweep_rows

    finish = run.writer("sweep", "sweep.csv", html="report.html")
    result = answers.sweep(request)
    doc, notes = sweep_doc(result, request.speeds), inputs.notes_of(request)
    rows = {"sweep.csv": lambda: table_csv(sweep_rows(result))}
    finish(doc, rows, notes=[*notes, *shapes.any_shape_notes(result, request)])


@command(CompareRequest, WRITTEN, details=True)
def compare(request: CompareRequest, run: Run) -> None:
    """Step time, tok/s/GPU, tok/s/user and bottlenecks."""
    from rackplan.report.compare import compare_doc

    finish = run.writer("compare", html="report.html")
    with progress() as reporter:
        comparison = answers.compare(replace(request, on_progress=reporter.hear))
        finish(compare_doc(comparison), notes=inputs.notes_of(request))
    if all(row.tok_s_per_gpu is None for row in comparison.rows):
        raise InfeasibleError(f"none of the clusters can serve this: {comparison.rows[0].reason}")


@command(SizeRequest, WRITTEN, details=True)
def size(request: SizeRequest, run: Run) -> None:
    """Give requests, tokens, users, GPUs, MW or dollars; get the others."""
    from rackplan.report.size import size_doc

    finish = run.writer("size")
    with progress() as reporter:
        reporter.stage("sizing")
        sizes = answers.size(replace(request, on_progress=reporter.hear))
    finish(size_doc(sizes), notes=inputs.notes_of(request))


@command(RooflineRequest, WRITTEN, details=True)
def roofline(request: RooflineRequest, run: Run) -> None:
    """Each figure with the lecture's beside it, and the prediction on top."""
    from rackplan.report.principles import roofline_doc

    run.writer("roofline", html="report.html")(
        roofline_doc(answers.roofline(request)), notes=inputs.notes_of(request)
    )


@command(EconomicsRequest, WRITTEN, details=True)
def economics(request: EconomicsRequest, run: Run) -> None:
    """All inputs are optional: alone it is the lecture."""
    from rackplan.report.principles import economics_doc

    run.writer("economics", html="report.html")(
        economics_doc(answers.economics(request)), notes=inputs.notes_of(request)
    )


@command(StudyRequest)
def study(request: StudyRequest, run: Run) -> None:
    """It can be stopped and resumed."""
    from rackplan.report.study import study_doc
    from rackplan.studies.run import run_study

    with progress() as reporter:
        result = run_study(request, say=reporter.stage)
    page = result.folder / "report.html"
    write_whole(page, page_of(study_doc(result)).encode())
    run.show(study_doc(result, str(page)), written=[page])
    exit_if_interrupted(result.interrupted)
    if result.rows and all(row["status"] == "failed" for row in result.rows):
        raise InputError(f"all points failed; the first: {result.rows[0]['reason']}")
