"""Size command: the fleet for a demand or a budget, its cost, and what a smaller one lacks."""

from __future__ import annotations

from dataclasses import replace

from rackplan.commands.options import DetailsFlag, JsonFlag, Written, command
from rackplan.requests import SizeRequest


@command(SizeRequest)
def size(
    request: SizeRequest, *, output: Written = None, details: DetailsFlag = False, json: JsonFlag = False
) -> None:
    """Size a fleet for a demand or a budget. Give requests, tokens, users, GPUs, MW or dollars; get the others."""
    from rackplan import answers, inputs
    from rackplan.commands.output import written
    from rackplan.progress import progress
    from rackplan.report.size import size_doc

    finish = written(output, "size", json=json, details=details)
    with progress() as reporter:
        reporter.stage("sizing")
        found = answers.size(replace(request, on_progress=reporter.hear))
    finish(size_doc(found), notes=inputs.notes_of(request))
