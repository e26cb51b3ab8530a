"""What a plan is and does: plan, replan, score, what-if, simulate and replay."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rackplan import answers, inputs, recipes, requests, shapes
from rackplan.commands.options import FOLDER, WRITTEN, WRITTEN_ROWS, command, exit_if_interrupted
from rackplan.commands.output import RESULTS, Run, write_plan
from rackplan.digests import digests
from rackplan.progress import progress
from topology.base.errors import InfeasibleError, InputError

MorePlans = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PLAN]...", help="More plans to put beside it.", show_default=False),
]


@command(requests.PlanRequest, FOLDER, "DIR|FILE.html", details=True)
def plan(request: requests.PlanRequest, run: Run) -> None:
    """Writes plan.json, report.html and topology.svg."""
    from rackplan.report.plan import plan_doc, with_files

    answers.plan_options(request)
    priced, _ = answers.planned_deployments(request)
    names = "+".join(deployment.model.name for deployment in priced)
    target = run.folder(f"{names}-on-{priced[0].cluster.name}", RESULTS)
    notes = [*inputs.shares_of(request.model)[1], *inputs.notes_of(request)]
    with progress() as reporter:
        result = answers.plan(replace(request, on_progress=reporter.hear))
        reporter.stage("writing")
        doc = plan_doc(result, gains=recipes.other_recipe(result, request))
        files = write_plan(result, doc, target, digests(request.sources))
        notes += shapes.plan_shape_notes(result, request)
    run.show(with_files(doc, files), notes)
    exit_if_interrupted(result.interrupted, "; wrote the best plan so far.")


@command(requests.ReplanRequest, FOLDER, "DIR|FILE.html", details=True)
def replan(request: requests.ReplanRequest, run: Run) -> None:
    """Writes plan.json, moves.json, report.html, topology.svg."""
    from rackplan.report.changes import replan_doc
    from rackplan.report.plan import with_files

    options, plan = answers.replan_options(request), Path(str(request.plan))
    folder = plan.absolute() if plan.is_dir() else plan.absolute().parent
    old = inputs.plan_of(plan)
    target = run.folder(f"{folder.name}-replanned", RESULTS)
    if os.path.realpath(target) == os.path.realpath(folder):
        raise InputError(
            f"-o {target}: this folder holds {plan}, which would be overwritten; choose another."
        )
    with progress() as reporter:
        replanned = answers.replan(replace(request, plan=old, on_progress=reporter.hear))
        reporter.stage("writing")
        doc = replan_doc(replanned, options)
        files = write_plan(replanned.plan, doc, target, digests(request.sources), moved=replanned)
    run.show(with_files(doc, files), inputs.plan_notes(old))
    exit_if_interrupted(replanned.plan.interrupted, "; wrote the best re-plan so far.")


@command(requests.ScoreRequest, WRITTEN)
def score(request: requests.ScoreRequest, run: Run, *, others: MorePlans = None) -> None:
    """From its assignment alone: the solver's own figures are not used."""
    from placement.analysis.levers import find_levers
    from rackplan.report.changes import SCORE, plans_doc
    from rackplan.report.plan import plan_doc

    finish = replace(run, details=request.details).writer("score")
    names = [str(request.plan), *(others or [])]
    plans = [inputs.plan_of(name) for name in names]
    notes = list(dict.fromkeys(note for plan in plans for note in inputs.plan_notes(plan)))
    scored = answers.scores(request, plans)
    if len(scored) == 1:
        levers = find_levers(scored[0], free=False) if request.details else None
        finish(plan_doc(scored[0], SCORE, levers), notes=notes)
        return
    labels = [name if name not in names[:at] else f"{name} ({at + 1})" for at, name in enumerate(names)]
    finish(plans_doc(dict(zip(labels, scored, strict=True))), notes=notes)


@command(requests.WhatIfRequest, WRITTEN, details=True)
def what_if(request: requests.WhatIfRequest, run: Run) -> None:
    """Bandwidths, flop/s, HBM, batch, context, formats, widths, copies."""
    from placement.pools import named_pools
    from rackplan.report.levers import levers_doc

    finish = run.writer("what-if")
    plan = inputs.plan_of(request.plan)
    with progress() as reporter:
        levers = answers.what_if(replace(request, plan=plan, on_progress=reporter.hear))
    notes = inputs.plan_notes(plan)
    if plan.beside:
        names = named_pools(plan)
        other_pools = " and ".join(names[: request.pool] + names[request.pool + 1 :])
        notes.append(f"of pool {request.pool}, {names[request.pool]}, alone; {other_pools} stay as they are")
    finish(levers_doc(levers), notes=notes)


@command(requests.SimulateRequest, WRITTEN, details=True)
def simulate(request: requests.SimulateRequest, run: Run) -> None:
    """First token, later tokens and whole requests at p50, p90, p99; maximum rate."""
    from rackplan.report.simulate import simulate_doc

    finish = run.writer("simulate", html="report.html")
    with progress() as reporter:
        result = answers.simulate(replace(request, on_progress=reporter.hear))
        reporter.stage("drawing")
        finish(simulate_doc(result), notes=[*inputs.notes_of(request), *result.notes])
    limited = any(map(request.given, ("ttft_p99_ms", "tpot_ms", "tok_s_user")))
    if result.most is None and limited and request.limits_s != (None, None):
        raise InfeasibleError(result.reason)


@command(requests.ReplayRequest, WRITTEN_ROWS)
def replay(request: requests.ReplayRequest, run: Run) -> None:
    """Balance in the next window, moves, time lost, tokens."""
    from rackplan.report.csv import table_csv
    from rackplan.report.replay import BY_WINDOW, replay_doc

    finish = run.writer("replay", "replay.csv", html="report.html")
    with progress() as reporter:
        replayed = answers.replay(replace(request, on_progress=reporter.hear))
    doc = replay_doc(replayed)
    finish(doc, {"replay.csv": lambda: table_csv(BY_WINDOW(doc.rows))}, notes=inputs.notes_of(request))
    exit_if_interrupted(replayed.result.interrupted)
