"""Studies: many points on all cores or a Ray cluster, as one dataset."""

from __future__ import annotations

import typer

from rackplan.commands.options import INTERRUPTED, JsonFlag, command
from rackplan.requests import StudyRequest
from topology.base.errors import InputError

LOG_S = 30.0
"""Seconds between progress lines if standard error is not a terminal."""


@command(StudyRequest)
def study(request: StudyRequest, *, json: JsonFlag = False) -> None:
    """Price a grid or a sample of points, on all cores or a cluster. It can be stopped and resumed."""
    from rackplan.commands.output import page_of, show
    from rackplan.progress import progress
    from rackplan.report.doc import Note
    from rackplan.report.study import study_doc
    from rackplan.studies.run import run_study
    from topology.base.files import write_whole

    with progress(every_s=LOG_S) as reporter:
        found = run_study(request, say=reporter.stage)
    page = found.folder / "report.html"
    write_whole(page, page_of(study_doc(found)).encode())
    show(study_doc(found, str(page)).with_blocks(Note(str(page), kind="written")), json=json)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.rows and all(row["status"] == "failed" for row in found.rows):
        raise InputError(f"all points failed; the first: {found.rows[0]['reason']}")
