"""Replay command: recorded loads through online balancers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import INTERRUPTED, JsonFlag, command
from rackplan.commands.options import output as output_option
from rackplan.requests import ReplayRequest


@command(ReplayRequest)
def replay(
    request: ReplayRequest,
    *,
    output: Annotated[
        Path | None,
        output_option(
            "Folder for report, JSON and a CSV row per window; or one of these files.",
            "DIR|FILE.html|.json|.csv",
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Replay recorded loads through online balancers. Balance in the next window, moves, time lost, tokens."""
    from rackplan import answers, inputs
    from rackplan.commands.output import written
    from rackplan.progress import progress
    from rackplan.report.csv import table_csv
    from rackplan.report.replay import BY_WINDOW, replay_doc

    finish = written(output, "replay", "replay.csv", json=json, html="report.html")
    with progress() as reporter:
        found = answers.replay(replace(request, on_progress=reporter.hear))
    doc = replay_doc(found)
    finish(doc, {"replay.csv": lambda: table_csv(BY_WINDOW(doc.rows))}, notes=inputs.notes_of(request))
    if found.result.interrupted:
        raise typer.Exit(INTERRUPTED)
