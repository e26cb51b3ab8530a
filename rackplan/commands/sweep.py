"""Sweep and compare commands: all layouts of one cluster, and several clusters for one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rackplan.commands.options import DetailsFlag, JsonFlag, command
from rackplan.commands.options import output as output_option
from rackplan.requests import CompareRequest, SweepRequest
from topology.base.errors import InfeasibleError


@command(SweepRequest)
def sweep(
    request: SweepRequest,
    *,
    output: Annotated[
        Path | None,
        output_option(
            "Folder for report.html, sweep.json and sweep.csv; or one of these files.",
            "DIR|FILE.html|.json|.csv",
        ),
    ] = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Find the best layouts for whole requests or one phase. One pool or two; files list all layouts."""
    from rackplan import answers, inputs, shapes
    from rackplan.commands.output import page_of, written
    from rackplan.report.csv import table_csv
    from rackplan.report.sweep import sweep_doc, sweep_rows

    finish = written(output, "sweep", "sweep.csv", json=json, html="report.html", details=details)
    found = answers.sweep(request)
    doc = sweep_doc(found, request.speeds)
    finish(
        doc,
        {"sweep.csv": lambda: table_csv(sweep_rows(found)), "report.html": lambda: page_of(doc)},
        notes=[*inputs.notes_of(request), *shapes.any_shape_notes(found, request)],
    )


@command(CompareRequest)
def compare(
    request: CompareRequest,
    *,
    output: Annotated[
        Path | None,
        output_option(
            "Folder for report.html and compare.json; or one of these files.", "DIR|FILE.html|.json"
        ),
    ] = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Compare clusters for one model. Step time, tok/s/GPU, tok/s/user and bottlenecks."""
    from rackplan import answers, inputs
    from rackplan.commands.output import written
    from rackplan.progress import progress
    from rackplan.report.compare import compare_doc

    finish = written(output, "compare", json=json, html="report.html", details=details)
    with progress() as reporter:
        found = answers.compare(replace(request, on_progress=reporter.hear))
        finish(compare_doc(found), notes=inputs.notes_of(request))
    if all(row.tok_s_per_gpu is None for row in found.rows):
        raise InfeasibleError(f"none of the clusters can serve this: {found.rows[0].reason}")
