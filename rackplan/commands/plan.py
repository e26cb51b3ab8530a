"""Plan commands: plan, replan, score, what-if and diff."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rackplan.commands.options import INTERRUPTED, DetailsFlag, JsonFlag, OutputFolder, Written, command
from rackplan.digests import digests
from rackplan.requests import DiffRequest, PlanRequest, ReplanRequest, ScoreRequest, WhatIfRequest
from topology.base.errors import InputError

if TYPE_CHECKING:
    from placement.plan import Plan


@command(PlanRequest)
def plan(
    request: PlanRequest,
    *,
    output: OutputFolder = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Place layers and experts on GPUs, and predict the step. Writes plan.json, report.html and topology.svg."""
    from rackplan import answers, inputs
    from rackplan.commands.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.progress import progress
    from rackplan.views.plan import plan_view

    answers.plan_options(request)
    priced = answers.make_deployment(request)
    named = output or default_output(f"{priced.model.name}-on-{priced.cluster.name}")
    target = require_output(named, ours=RESULTS)
    notes = inputs.notes_of(request)
    with progress() as reporter:
        found = replace(
            request,
            model=priced.model,
            weights=None,
            cluster=priced.cluster,
            settings=(),
            on_progress=reporter.hear,
        )
        made = answers.plan(found)
        reporter.stage("writing")
        files = write_plan(made, target, digests(request.sources))
        notes += answers.plan_shape_notes(made, request)
    show(plan_view(made, files), json=json, notes=notes, details=details)
    _say_interrupted(made, "plan")


@command(ReplanRequest)
def replan(request: ReplanRequest, *, output: OutputFolder = None, json: JsonFlag = False) -> None:
    """Re-plan for new loads or failures with few moves. Writes plan.json, moves.json, report.html, topology.svg."""
    from rackplan import answers, inputs
    from rackplan.commands.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.progress import progress
    from rackplan.views.replan import replan_view

    wanted, plan = answers.replan_options(request), Path(str(request.plan))
    folder = plan.absolute() if plan.is_dir() else plan.absolute().parent
    named = output or default_output(f"{folder.name}-replanned")
    old = inputs.plan_of(plan)
    if os.path.realpath(named) == os.path.realpath(folder):
        raise InputError(f"-o {named}: this folder holds {plan}, which would be overwritten; choose another.")
    target = require_output(named, ours=RESULTS)
    with progress() as reporter:
        found = answers.replan(replace(request, plan=old, on_progress=reporter.hear))
        reporter.stage("writing")
        files = write_plan(found.plan, target, digests(request.sources), moved=found)
    show(replan_view(found, wanted, files), json=json, notes=inputs.plan_notes(old))
    _say_interrupted(found.plan, "re-plan")


@command(ScoreRequest)
def score(request: ScoreRequest, *, output: Written = None, json: JsonFlag = False) -> None:
    """Score a plan again, under its own or other loads and routing traces.

    From its assignment alone: the solver's own figures are not used.
    """
    from rackplan import answers, inputs
    from rackplan.commands.output import written
    from rackplan.views.explain import explain_plan
    from rackplan.views.plan import score_view

    finish = written(output, "score", json=json, details=request.details)
    old = inputs.plan_of(request.plan)
    scored = answers.score(replace(request, plan=old))
    view = score_view(scored, explain_plan(scored, levers=True) if request.details else None)
    finish(view, notes=inputs.plan_notes(old))


@command(WhatIfRequest)
def what_if(
    request: WhatIfRequest,
    *,
    output: Written = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Show the gain of each possible change. Bandwidths, flop/s, HBM, batch, context, formats, widths, copies."""
    from rackplan import answers, inputs
    from rackplan.commands.output import written
    from rackplan.progress import progress
    from rackplan.report.levers import levers_doc

    finish = written(output, "what-if", json=json, details=details)
    plan = inputs.plan_of(request.plan)
    with progress() as reporter:
        found = answers.what_if(replace(request, plan=plan, on_progress=reporter.hear))
    finish(levers_doc(found), notes=inputs.plan_notes(plan))


@command(DiffRequest)
def diff(request: DiffRequest, *, output: Written = None, json: JsonFlag = False) -> None:
    """Show two plans side by side. Inputs, layout, predictions, memory, copies moved, costs."""
    from rackplan import inputs
    from rackplan.commands.output import written
    from rackplan.views.diff import diff_view

    finish = written(output, "diff", json=json)
    plans = [inputs.plan_of(one) for one in (request.first, request.second)]
    clusters = [plan.deployment.cluster for plan in plans]
    old, new = (inputs.priced(request, plan, *clusters) for plan in plans)
    notes = [note for plan in plans for note in inputs.plan_notes(plan)]
    finish(diff_view(old, new, [str(request.first), str(request.second)]), notes=list(dict.fromkeys(notes)))


def _say_interrupted(plan: Plan, what: str) -> None:
    from rackplan.commands.output import print_error

    if plan.interrupted:
        print_error(f"interrupted; wrote the best {what} so far.")
        raise typer.Exit(INTERRUPTED)
