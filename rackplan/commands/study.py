"""Studies: many points on all cores or a Ray cluster, as one dataset."""

from __future__ import annotations

from rackplan.commands.options import command, exit_if_interrupted
from rackplan.commands.output import Run
from rackplan.requests import StudyRequest
from topology.base.errors import InputError

LOG_S = 30.0
"""Seconds between progress lines if standard error is not a terminal."""


@command(StudyRequest)
def study(request: StudyRequest, run: Run) -> None:
    """Price a grid or a sample of points, on all cores or a cluster. It can be stopped and resumed."""
    from rackplan.commands.output import page_of
    from rackplan.progress import progress
    from rackplan.report.study import study_doc
    from rackplan.studies.begin import begin, opened
    from topology.base.files import write_whole

    wanted, folder = opened(request)
    with progress(every_s=LOG_S) as reporter:
        reporter.stage("starting workers")
        found = begin(request, wanted, folder, say=reporter.stage)
    page = folder / "report.html"
    write_whole(page, page_of(study_doc(found)).encode())
    run.show(study_doc(found, str(page)), written=[page])
    exit_if_interrupted(found.interrupted)
    if found.rows and all(row["status"] == "failed" for row in found.rows):
        raise InputError(f"all points failed; the first: {found.rows[0]['reason']}")
