"""Plan commands: plan, replan, score and what-if."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackplan.commands.options import INTERRUPTED, DetailsFlag, JsonFlag, OutputFolder, Written, command
from rackplan.digests import digests
from rackplan.requests import PlanRequest, ReplanRequest, ScoreRequest, WhatIfRequest
from topology.base.errors import InputError

if TYPE_CHECKING:
    from placement.plan import Plan

MorePlans = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PLAN]...", help="More plans to put beside it.", show_default=False),
]


@command(PlanRequest)
def plan(
    request: PlanRequest,
    *,
    output: OutputFolder = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Place layers and experts on GPUs, and predict the step. Writes plan.json, report.html and topology.svg."""
    from rackplan import answers, inputs, recipes, shapes
    from rackplan.commands.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.progress import progress
    from rackplan.report.plan import plan_doc, with_files

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
        doc = plan_doc(made, others=recipes.other_recipe(made, request))
        files = write_plan(made, doc, target, digests(request.sources))
        notes += shapes.plan_shape_notes(made, request)
    show(with_files(doc, files), json=json, notes=notes, details=details)
    _say_interrupted(made, "plan")


@command(ReplanRequest)
def replan(
    request: ReplanRequest,
    *,
    output: OutputFolder = None,
    details: DetailsFlag = False,
    json: JsonFlag = False,
) -> None:
    """Re-plan for new loads or failures with few moves. Writes plan.json, moves.json, report.html, topology.svg."""
    from rackplan import answers, inputs
    from rackplan.commands.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.progress import progress
    from rackplan.report.changes import replan_doc
    from rackplan.report.plan import with_files

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
        doc = replan_doc(found, wanted)
        files = write_plan(found.plan, doc, target, digests(request.sources), moved=found)
    show(with_files(doc, files), json=json, notes=inputs.plan_notes(old), details=details)
    _say_interrupted(found.plan, "re-plan")


@command(ScoreRequest)
def score(
    request: ScoreRequest, *, others: MorePlans = None, output: Written = None, json: JsonFlag = False
) -> None:
    """Score a plan again, under its own or other loads and routing traces; several plans side by side.

    From its assignment alone: the solver's own figures are not used.
    """
    from placement.analysis.levers import find_levers
    from rackplan import answers, inputs
    from rackplan.commands.output import written
    from rackplan.report.changes import SCORE, plans_doc
    from rackplan.report.plan import plan_doc

    finish = written(output, "score", json=json, details=request.details)
    names = [str(request.plan), *(others or [])]
    given = [inputs.plan_of(name) for name in names]
    notes = list(dict.fromkeys(note for plan in given for note in inputs.plan_notes(plan)))
    scored = answers.scores(request, given)
    if len(scored) == 1:
        levers = find_levers(scored[0], free=False) if request.details else None
        finish(plan_doc(scored[0], SCORE, levers), notes=notes)
        return
    told = [name if name not in names[:at] else f"{name} ({at + 1})" for at, name in enumerate(names)]
    finish(plans_doc(dict(zip(told, scored, strict=True))), notes=notes)


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


def _say_interrupted(plan: Plan, what: str) -> None:
    from rackplan.commands.output import print_error

    if plan.interrupted:
        print_error(f"interrupted; wrote the best {what} so far.")
        raise typer.Exit(INTERRUPTED)
