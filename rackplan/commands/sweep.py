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
    from cost.serving.result import SPEEDS, sweeps_of
    from rackplan import answers, inputs
    from rackplan.commands.output import command_line, written
    from rackplan.render.html import page
    from rackplan.report.results import svg
    from rackplan.views.sweep import sweep_blocks, sweep_csv, sweep_view

    finish = written(output, "sweep", "sweep.csv", json=json, html="report.html", details=details)
    found, speeds = answers.sweep(request), request.speeds or SPEEDS
    sweeps = sweeps_of(found)

    def report() -> str:
        drawings = {one.name: svg(one) or "" for one in (side.deployment.cluster for side in sweeps)}
        return page(sweep_blocks(found, speeds, command=command_line(), drawings=drawings))

    finish(
        sweep_view(found, speeds),
        {"sweep.csv": lambda: sweep_csv(sweeps), "report.html": report},
        notes=[*inputs.notes_of(request), *answers.any_shape_notes(found, request)],
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
    from rackplan.render.text import with_flags
    from rackplan.report.compare import compare_doc

    finish = written(output, "compare", json=json, html="report.html", details=details)
    with progress() as reporter:
        found = answers.compare(replace(request, on_progress=reporter.hear))
        finish(compare_doc(found), notes=inputs.notes_of(request))
    if all(row.tok_s_per_gpu is None for row in found.rows):
        raise InfeasibleError(with_flags(f"none of the clusters can serve this: {found.rows[0].reason}"))
