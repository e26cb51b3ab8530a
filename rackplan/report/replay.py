"""Document of a replay: each policy's balance, moves, time lost and tokens; the one to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cost.calibration.errors import errors_in
from placement.online.policies import OURS_LINEAR
from placement.online.recommend import EQUAL
from placement.online.simulate import run_names
from rackplan.report import notes, shared
from rackplan.report.csv import csv_text
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS
from topology.base.errors import input_name
from topology.base.units import plural

if TYPE_CHECKING:
    from placement.online.replayed import Replayed
    from placement.online.simulate import Run
    from placement.plan import Plan

ROOT = Record.of(
    "",
    "model cluster phase context layout batch windows scored steps_per_window step_tokens balanced_step_s "
    f"baseline static interrupted window_names {shared.TOTALS}",
    shown="windows steps_per_window static layout batch context tok_s usd_per_million_tokens power_w",
    tiles="tok_s usd_per_million_tokens power_w",
)
BEST = Record.of("best", "policy interval interval_steps budget why", "The policy to take", most=0)
POLICIES = Table.of(
    "policies",
    "policy name interval budget start balancedness worst copies_moved bytes_moved imbalance_s moves_s tokens_gained "
    "gain tok_s tok_s_per_gpu",
    "Policies",
    shown="policy interval balancedness worst copies_moved bytes_moved imbalance_s moves_s tokens_gained",
)
BY_WINDOW = Table.of(
    "by_window",
    "policy interval window name balancedness step_s copies_moved bytes_moved moves_s",
    "Each scored window, and the re-plan before it",
    most=0,
)
REPLANS = Table.of(
    "replans", "policy window copies bytes seconds moves_s", "Re-plans, after a window", most=0
)
CPU = Table.of("measured", "policy planning_cpu_s", "Planning time on one core of this machine")
REPLAY = Shape(
    "replay",
    "Recorded windows through online balancers.",
    (ROOT, BEST, POLICIES, BY_WINDOW, REPLANS, CPU, shared.ACCURACY, shared.SET),
)


def replay_doc(replayed: Replayed) -> Doc:
    """Return the document of ``rackplan replay``."""
    plan, result, best = replayed.plan, replayed.result, replayed.recommendation.best
    deployment, baseline, setting = plan.deployment, replayed.baseline, replayed.baseline.setting
    names = dict(zip(result.runs, run_names(result.runs), strict=True))
    totals = deployment.bill.totals(best.tok_s, plan.score.tokens, phase=deployment.workload.phase)
    row = ROOT.row(
        result,
        model=deployment.model.name,
        cluster=deployment.cluster.name,
        phase=deployment.workload.phase,
        context=deployment.workload.context,
        layout=plan.layout.describe(moe=True),
        batch=plan.score.batch,
        scored=result.windows - 1,
        steps_per_window=replayed.steps,
        step_tokens=setting.tokens_per_step,
        balanced_step_s=setting.costs.even_s,
        baseline=baseline.entry.name,
        static=replayed.made_for,
        window_names=list(replayed.loads.names[: result.windows]),
        **shared.totals_row(totals),
    )
    by_window = BY_WINDOW(replay_rows(replayed))
    policies = POLICIES(_policy(replayed, run, name) for run, name in names.items())
    replans = REPLANS(
        {"policy": name, "window": at.window + 1, **vars(at.moves), "moves_s": at.lost_s}
        for run, name in names.items()
        for at in run.replans
    )
    unknown = any(move["seconds"] is None for move in replans.rows)
    moving = by_window([line for line in by_window.rows if line["copies_moved"]])
    moved = Layer("line", moving, "window", "copies_moved", "policy")
    errors, answer = errors_in(deployment, plan.layout), [_best(replayed), _moved(replayed)]
    every = best.entry.interval
    chosen = {
        "policy": names[best],
        "interval": every or None,
        "interval_steps": every * replayed.steps or None,
        "budget": best.entry.budget,
        "why": " ".join(answer),
    }
    return Doc(
        REPLAY,
        f"Replay of {deployment.model.name} on {deployment.cluster.name}: "
        f"{plural(result.windows, 'window')} of {replayed.steps:,} steps",
        [*answer, shared.accuracy_sentence(errors)],
        [
            Note(shared.doubt_sentence(deployment.cluster), kind="warning"),
            ROOT(row),
            BEST(chosen),
            *shared.missing_notes(totals),
            shared.set_table(deployment.cluster),
            policies,
            Chart("Balance by window", [Layer("line", by_window, "window", "balancedness", "policy")]),
            *([Chart("Copies moved", [moved])] if moving.rows else []),
            *(Note(notes.sentence(text)) for text in _notes(replayed)),
            Note("Links without a published rate count no seconds." if unknown else "", "seconds", "missing"),
        ],
        [
            CPU({"policy": name, "planning_cpu_s": round(run.cpu_s, 3)} for run, name in names.items()),
            replans,
            by_window,
            shared.ACCURACY(shared.accuracy_row(error, deployment.cluster.name) for error in errors),
            Late(lambda: list(_pictures(plan))),
            shared.used_figures(deployment),
            Note(
                "Each window is scored with the placement that was planned before it. Moves take time on the links: "
                "SGLang pauses for it, other policies share the links with steps. Tokens gained are over all GPUs, "
                f"in the time of {baseline.entry.name} ({baseline.seconds:,.0f} s, {baseline.tokens / 1e6:,.1f} M "
                f"{plan.score.tokens} tokens). Planning time is in no step.",
                kind="method",
            ),
        ],
        frame=lambda: by_window.data,
    )


def replay_csv(replayed: Replayed) -> str:
    """Return a row for each policy and scored window."""
    rows = replay_rows(replayed)
    return csv_text(list(rows[0]), (row.values() for row in rows))


def replay_rows(replayed: Replayed) -> list[Row]:
    """Return a row for each policy and scored window: the balance, the step, and what the re-plan before it moved."""
    rows: list[Row] = []
    for policy, run in zip(run_names(replayed.result.runs), replayed.result.runs, strict=True):
        before = {at.window: at for at in run.replans}
        for number, (balance, step) in enumerate(zip(run.by_window, run.step_s, strict=True)):
            moved = before.get(number)
            rows.append(
                {
                    "policy": policy,
                    "interval": run.entry.interval,
                    "window": number + 2,
                    "name": replayed.loads.names[number + 1],
                    "balancedness": float(balance),
                    "step_s": float(step),
                    "copies_moved": moved.moves.copies / run.setting.copies if moved else 0.0,
                    "bytes_moved": moved.moves.bytes if moved else 0.0,
                    "moves_s": moved.lost_s if moved else 0.0,
                }
            )
    return rows


def _policy(replayed: Replayed, run: Run, policy: str) -> Row:
    return POLICIES.row(
        run,
        policy=policy,
        name=run.entry.name,
        interval=run.entry.interval,
        budget=run.entry.budget,
        start=replayed.start_words(run),
        balancedness=run.mean,
        tokens_gained=run.tokens_gained(replayed.baseline),
        gain=run.tok_s / replayed.baseline.tok_s - 1,
        tok_s_per_gpu=run.tok_s / len(replayed.plan.deployment.cluster.gpus),
    )


def _named(replayed: Replayed, run: Run) -> str:
    """Return a policy with its interval in steps."""
    every = f" every {run.entry.interval * replayed.steps:,} steps" if run.entry.interval else ""
    return f"{run.entry.name}{every}"


def _best(replayed: Replayed) -> str:
    """Return the policy to take, its balance, and by how much it wins."""
    best, baseline, result = replayed.recommendation.best, replayed.baseline, replayed.result
    if all(group.gpus == 1 for group in baseline.setting.groups):
        return f"Nothing is to be balanced: every GPU holds all experts of its layers ({input_name('ep')} 1)."
    text = f"{_named(replayed, best)} is the policy to take: balancedness {best.mean:.3f}"
    text += f" ({best.worst:.3f} in the worst window)"
    part = best.tok_s / baseline.tok_s - 1
    if best is not baseline:
        as_many = f"as many tokens as {baseline.entry.name} (within {EQUAL:.2%})"
        text += (
            f", {as_many if abs(part) < EQUAL else f'{part:+.2%} tokens relative to {baseline.entry.name}'}"
        )
    elif len(result.runs) > 1:
        second = max((run for run in result.runs if run is not best), key=lambda run: run.tok_s)
        text += f", {1 - second.tok_s / best.tok_s:.2%} more tokens than the next, {_named(replayed, second)}"
    return f"{text}."


def _moved(replayed: Replayed) -> str:
    """Return what the policy moves, and what the one of most tokens would."""
    best, most = replayed.recommendation.best, replayed.recommendation.most
    size, text = FIELDS["bytes_moved"].said, "It moves nothing"
    if best.bytes_moved:
        text = f"It moves {best.copies_moved:.1%} of the copies per re-plan, {size(best.bytes_moved)} in all"
    if best is not most:
        other = _named(replayed, most)
        text += f"; {other} serves as much (within {EQUAL:.2%}) but moves {size(most.bytes_moved)}"
    return f"{text}."


def _notes(replayed: Replayed) -> Iterator[str]:
    """Yield how windows were read, and how policies begin."""
    loads, result = replayed.loads, replayed.result
    synthetic = f" (synthetic; measured ones go to {input_name('loads')})" * loads.synthetic
    stopped = f"; {result.given} were given, Ctrl-C ended it" * result.interrupted
    yield f"windows: {notes.load_names(loads.names, 'window')}{synthetic}{stopped}"
    yield from (note for note in loads.notes if not note.endswith("windows, each a scenario"))
    yield from replayed.notes
    if replayed.scenarios is not None:
        yield f"stored loads: {notes.load_names(replayed.scenarios.names)}"
    linear = [run.entry.name for run in result.runs if run.entry.linear]
    if linear:
        yield f"the engine's default, expert j mod E in slot j, is where {', '.join(linear)} begin"
    if bare := [name for name in linear if name.startswith(OURS_LINEAR)]:
        yield f"without stored loads, and without a budget for the first re-plan: {', '.join(bare)}"


def _pictures(plan: Plan) -> Iterator[Block]:
    """Yield step, memory and expert map of the plan that runs first."""
    from rackplan.report.pictures.experts import expert_map
    from rackplan.report.pictures.memory import memory_picture
    from rackplan.report.pictures.step import waterfall

    yield replace(waterfall(plan.score), title="Step of the plan that runs first")
    yield replace(memory_picture(plan), title="HBM of the fullest GPU")
    if (drawn := expert_map(plan)) is not None:
        yield replace(drawn, title="Expert map")
