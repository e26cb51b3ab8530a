"""How many racks: the fleet that serves so many tokens a second, what it costs, and what a smaller one misses."""

from __future__ import annotations

from dataclasses import replace

from rackplan.commands.options import JsonFlag, Written, command
from rackplan.requests import SizeRequest


@command(SizeRequest)
def size(request: SizeRequest, *, output: Written = None, json: JsonFlag = False) -> None:
    """Size a fleet for so many tokens a second. GPUs, racks, MW, dollars, and the next smaller level."""
    from rackplan import answers, inputs
    from rackplan.output import written
    from rackplan.progress import progress
    from rackplan.views.size import size_view

    finish = written(output, "size", json=json)
    with progress() as reporter:
        reporter.stage("sizing")
        found = answers.size(replace(request, on_progress=reporter.hear))
    finish(size_view(found, usual=found.usual, left_out=found.left_out), notes=inputs.notes_of(request))
