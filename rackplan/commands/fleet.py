"""Fleet command: replicas of different shapes on one cluster, for one model or several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import INTERRUPTED, DetailsFlag, JsonFlag, command
from rackplan.commands.options import output as output_option
from rackplan.digests import digests
from rackplan.requests import FleetRequest


@command(FleetRequest)
def fleet(
    request: FleetRequest,
    *,
    output: Annotated[
        Path | None,
        output_option(
            "Folder for report, fleet.json and a plan per kind of replica; or the report. [under out/]",
            "DIR|FILE.html",
        ),
    ] = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Choose replicas of different shapes for a whole cluster. One pool, two, or both; totals and idle GPUs."""
    from rackplan import answers, inputs
    from rackplan.commands.output import (
        FLEET_RESULTS,
        default_output,
        print_error,
        require_output,
        show,
        write_fleet,
    )
    from rackplan.progress import progress
    from rackplan.report.doc import Note
    from rackplan.report.fleet import fleet_doc

    where = inputs.clusters_of([request.cluster], request.settings)[0]
    target = require_output(output or default_output(f"fleet-on-{where.name}"), ours=FLEET_RESULTS)
    with progress() as reporter:
        made = answers.fleet(replace(request, cluster=where, settings=(), on_progress=reporter.hear))
        reporter.stage("writing")
        files = write_fleet(made, target, digests(request.sources))
    doc = fleet_doc(made).with_blocks(Note(", ".join(files.values()), kind="written"))
    show(doc, json=json, notes=inputs.notes_of(request), details=details)
    if made.interrupted:
        print_error("interrupted; showing the best fleet so far.")
        raise typer.Exit(INTERRUPTED)
