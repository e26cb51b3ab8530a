"""Simulate command: latencies under load for a plan, or for the best layout of a model."""

from __future__ import annotations

from dataclasses import replace

from rackplan.commands.options import DetailsFlag, JsonFlag, Written, command
from rackplan.requests import SimulateRequest
from topology.base.errors import InfeasibleError


@command(SimulateRequest)
def simulate(
    request: SimulateRequest, *, output: Written = None, details: DetailsFlag = False, json: JsonFlag = False
) -> None:
    """Simulate requests under load. First token, later tokens and whole requests at p50, p90, p99; maximum rate."""
    from rackplan import answers, inputs
    from rackplan.commands.output import page_of, written
    from rackplan.progress import progress
    from rackplan.report.simulate import simulate_doc

    finish = written(output, "simulate", json=json, html="report.html", details=details)
    with progress() as reporter:
        found = answers.simulate(replace(request, on_progress=reporter.hear))
        doc = simulate_doc(found)

        def report() -> str:
            reporter.stage("drawing")
            return page_of(doc)

        finish(doc, {"report.html": report}, notes=[*inputs.notes_of(request), *found.notes])
    given = any(map(request.given, ("ttft_p99_ms", "tpot_ms", "tok_s_user")))
    if found.most is None and given and request.limits_s != (None, None):
        raise InfeasibleError(found.reason)
