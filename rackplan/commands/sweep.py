"""Layouts and clusters compared: every layout at every batch, and several clusters for one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rackplan.commands.options import JsonFlag, command
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
            "Folder for report.html, sweep.json and sweep.csv, or one.", "DIR|FILE.html|.json|.csv"
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Price every parallel layout at every batch. The frontier, the best at each speed, matched pools."""
    from rackplan import answers, inputs
    from rackplan.commands.output import command_line, written
    from rackplan.render.html import page
    from rackplan.views.results import svg
    from rackplan.views.sweep import TARGETS, sweep_blocks, sweep_csv, sweep_view

    finish = written(output, "sweep", "sweep.csv", json=json, html="report.html")
    pools = None if request.pair is None else answers.pools(request)
    sweeps = [answers.sweep(request)] if pools is None else [pools.decode, pools.prefill]
    targets = request.speeds or (TARGETS if request.phase == "decode" else ())

    def report() -> str:
        drawings = {one.name: svg(one) or "" for one in (side.deployment.cluster for side in sweeps)}
        return page(sweep_blocks(sweeps, pools, targets, command=command_line(), drawings=drawings))

    finish(
        sweep_view(sweeps, pools, targets),
        {"sweep.csv": lambda: sweep_csv(sweeps), "report.html": report},
        notes=[*inputs.notes_of(request), *answers.shape_notes(sweeps[0], targets)],
    )


@command(CompareRequest)
def compare(
    request: CompareRequest,
    *,
    output: Annotated[
        Path | None, output_option("Folder for report.html and compare.json, or one.", "DIR|FILE.html|.json")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Compare clusters for one model. Step time, tok/s/GPU, tok/s/user and what binds."""
    from rackplan import answers, inputs
    from rackplan.commands.output import command_line, written
    from rackplan.progress import progress
    from rackplan.render.html import page
    from rackplan.views.compare import compare_blocks, compare_view
    from rackplan.views.results import svg

    finish = written(output, "compare", json=json, html="report.html")
    with progress() as reporter:
        found = answers.compare(replace(request, on_progress=reporter.hear))

        def report() -> str:
            reporter.stage("drawing")
            drawings = {one.cluster.name: svg(one.cluster) or "" for one in found.deployments}
            return page(compare_blocks(found, command=command_line(), drawings=drawings))

        finish(compare_view(found), {"report.html": report}, notes=inputs.notes_of(request))
    if all(row.tok_s_per_gpu is None for row in found.rows):
        raise InfeasibleError("none of the clusters runs this: " + found.rows[0].reason)
