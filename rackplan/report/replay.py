"""Document of a replay: each policy's balance, moves, time lost and tokens; the one to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from placement.online.policies import OURS_LINEAR
from placement.online.recommend import EQUAL_TOKENS
from placement.online.replayed import Replayed
from placement.online.simulate import Run, run_names
from placement.plan import Plan
from rackplan.report import notes, shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Shape, Table
from rackplan.report.fields import FIELDS
from topology.base.errors import input_name
from topology.base.units import plural

ROOT = Record.of(
    "",
    "windows steps_per_window static layout batch context tok_s usd_per_million_tokens power_w | model cluster phase "
    f"scored step_tokens balanced_step_s baseline interrupted window_names {shared.TOTALS}",
    tiles="tok_s usd_per_million_tokens power_w",
)
BEST = Record.of("best", "policy interval interval_steps budget", "The policy to take", max_rows=0)
POLICIES = Table.of(
    "policies",
    "policy interval balancedness worst copies_moved bytes_moved imbalance_s moves_s tokens_gained | name budget "
    "start gain tok_s tok_s_per_gpu",
    "Policies",
)
BY_WINDOW = Table.of(
    "by_window",
    "policy interval window name balancedness step_s copies_moved bytes_moved moves_s",
    "Each scored window, and the re-plan before it",
    max_rows=0,
)
REPLANS = Table.of(
    "replans", "policy window copies bytes seconds moves_s", "Re-plans, after a window", max_rows=0
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
        plan.score,
        deployment.workload,
        model=deployment.model.name,
        cluster=deployment.cluster.name,
        layout=plan.layout.describe(moe=True),
        scored=result.windows - 1,
        steps_per_window=replayed.steps,
        step_tokens=setting.tokens_per_step,
        balanced_step_s=setting.costs.even_s,
        baseline=baseline.entry.name,
        static=replayed.made_for,
        window_names=list(replayed.loads.names[: result.windows]),
        **shared.totals_row(totals),
    )
    by_window = BY_WINDOW(line for run, name in names.items() for line in _windows(replayed, run, name))
    policies = POLICIES(
        POLICIES.row(
            run,
            run.entry,
            policy=name,
            start=replayed.start_words(run),
            balancedness=run.mean,
            tokens_gained=run.tokens_gained(baseline),
            gain=run.tok_s / baseline.tok_s - 1,
            tok_s_per_gpu=run.tok_s / len(deployment.cluster.gpus),
        )
        for run, name in names.items()
    )
    replans = REPLANS(
        REPLANS.row(at.moves, policy=name, window=at.window + 1, moves_s=at.lost_s)
        for run, name in names.items()
        for at in run.replans
    )
    unknown = any(move["seconds"] is None for move in replans.rows)
    moving = by_window([line for line in by_window.rows if line["copies_moved"]])
    moved = Layer("line", moving, "window", "copies_moved", "policy")
    interval = best.entry.interval or None
    chosen = {
        "policy": names[best],
        "interval": interval,
        "interval_steps": interval and interval * replayed.steps,
    }
    windows = f"{plural(result.windows, 'window')} of {replayed.steps:,} steps"
    return Doc(
        REPLAY,
        f"Replay of {deployment.model.name} on {deployment.cluster.name}: {windows}",
        [_best(replayed), _moved(replayed), shared.accuracy_sentence(plan.errors)],
        [
            Note(shared.doubt_sentence(deployment.cluster), kind="warning"),
            ROOT(row),
            BEST({**chosen, "budget": best.entry.budget}),
            *shared.missing_notes(totals),
            shared.set_table(deployment.cluster),
            policies,
            Chart("Balance by window", [Layer("line", by_window, "window", "balancedness", "policy")]),
            *[Chart("Copies moved", [moved])] * bool(moving.rows),
            *(Note(notes.sentence(text)) for text in _notes(replayed)),
            Note("Links without a published rate count no seconds." if unknown else "", "seconds", "missing"),
        ],
        [
            CPU((name, round(run.cpu_s, 3)) for run, name in names.items()),
            replans,
            by_window,
            shared.ACCURACY(shared.accuracy_row(error, deployment.cluster.name) for error in plan.errors),
            Late(lambda: list(_pictures(plan))),
            shared.used_figures(deployment),
            Note(
                "Each window is scored with the placement that was planned before it. Moves take time on the links: "
                f"SGLang pauses for it, other policies share the links with steps. {baseline.entry.name} serves "
                f"{baseline.tokens / 1e6:,.1f} M tokens in {baseline.seconds:,.0f} s. Planning time is in no step.",
                kind="method",
            ),
        ],
        frame=lambda: by_window.data,
    )


def _windows(replayed: Replayed, run: Run, policy: str) -> Iterator[tuple[Any, ...]]:
    """Yield the balance and the step of each scored window, and what the re-plan before it moved."""
    replans = {at.window: at for at in run.replans}
    scored = zip(run.by_window.tolist(), run.step_s.tolist(), strict=True)
    for number, (balance, step) in enumerate(scored):
        at = replans.get(number)
        moved = (at.moves.copies / run.setting.copies, at.moves.bytes, at.lost_s) if at else (0.0, 0.0, 0.0)
        name = replayed.loads.names[number + 1]
        yield policy, run.entry.interval, number + 2, name, balance, step, *moved


def _named(replayed: Replayed, run: Run) -> str:
    """Return a policy with its interval in steps."""
    interval_words = f" every {run.entry.interval * replayed.steps:,} steps" if run.entry.interval else ""
    return f"{run.entry.name}{interval_words}"


def _best(replayed: Replayed) -> str:
    """Return the policy to take, its balance, and by how much it wins."""
    best, baseline, result = replayed.recommendation.best, replayed.baseline, replayed.result
    if all(group.gpus == 1 for group in baseline.setting.groups):
        return f"Nothing is to be balanced: every GPU holds all experts of its layers ({input_name('ep')} 1)."
    text = f"{_named(replayed, best)} is the policy to take: balancedness {best.mean:.3f}"
    text += f" ({best.worst:.3f} in the worst window)"
    part, name = best.tok_s / baseline.tok_s - 1, baseline.entry.name
    if best is not baseline and abs(part) < EQUAL_TOKENS:
        text += f", as many tokens as {name} (within {EQUAL_TOKENS:.2%})"
    elif best is not baseline:
        text += f", {part:+.2%} tokens relative to {name}"
    elif len(result.runs) > 1:
        runner_up = max((run for run in result.runs if run is not best), key=lambda run: run.tok_s)
        text += f", {1 - runner_up.tok_s / best.tok_s:.2%} more tokens than the next, {_named(replayed, runner_up)}"
    return f"{text}."


def _moved(replayed: Replayed) -> str:
    """Return what the policy moves, and what the one of most tokens would."""
    best, fastest = replayed.recommendation.best, replayed.recommendation.most
    size, text = FIELDS["bytes_moved"].phrase, "It moves nothing"
    if best.bytes_moved:
        text = f"It moves {best.copies_moved:.1%} of the copies per re-plan, {size(best.bytes_moved)} in all"
    if best is not fastest:
        name = _named(replayed, fastest)
        text += f"; {name} serves as much (within {EQUAL_TOKENS:.2%}) but moves {size(fastest.bytes_moved)}"
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
    if linear := [run.entry.name for run in result.runs if run.entry.linear]:
        yield f"{', '.join(linear)} begin with the engine's default: expert j mod E in slot j"
    if bare := [name for name in linear if name.startswith(OURS_LINEAR)]:
        yield f"without stored loads, and without a budget for the first re-plan: {', '.join(bare)}"


def _pictures(plan: Plan) -> Iterator[Block]:
    """Yield step, memory and expert map of the plan that runs first."""
    from rackplan.report.pictures.experts import expert_map
    from rackplan.report.pictures.memory import memory_picture
    from rackplan.report.pictures.step import waterfall

    pictures = {
        "Step of the plan that runs first": waterfall(plan.score),
        "HBM of the fullest GPU": memory_picture(plan.deployment, plan.layout, plan.score),
        "Expert map": expert_map(plan),
    }
    yield from (replace(picture, title=title) for title, picture in pictures.items() if picture is not None)
