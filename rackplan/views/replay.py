"""A replay of recorded windows: each policy's balance, moves, seconds lost and tokens; the one to take."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from cost.calibration.errors import errors_in
from placement.analysis.evidence import used_figures
from placement.online.policies import OURS_LINEAR
from placement.online.recommend import EQUAL
from placement.online.replayed import Replayed
from placement.online.simulate import Run, run_names
from placement.plan import Plan
from rackplan.report.notes import assumptions, cluster_doubts, load_names, phase_words
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.memory import memory_picture
from rackplan.report.pictures.step import step_picture
from rackplan.views.blocks import (
    Block,
    Chart,
    Heading,
    Page,
    Table,
    Text,
    View,
    labelled,
    sections,
)
from rackplan.views.data import LEFT_OUT, Maybe, SetFigureData, taken
from rackplan.views.forward import headline, machine_words
from rackplan.views.provenance import deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.table_csv import csv_text
from topology.base.units import plural


@dataclass(frozen=True, kw_only=True)
class ReplanRunData:
    """A re-plan of a replay.

    Attributes
    ----------
    after_window, copies, bytes, seconds, lost_s:
        When, how many copies moved with how many bytes, how long that took (null: links are not known), and the time
        of serving that it cost.
    """

    after_window: int
    copies: int
    bytes: float
    seconds: float | None
    lost_s: float


@dataclass(frozen=True, kw_only=True)
class PolicyData:
    """A policy of a replay.

    Attributes
    ----------
    name, interval, budget, start:
        Which, windows between re-plans (0: never), the most copies that one moves as a part of all (null: no limit),
        and the placement that it began with.
    balancedness, worst:
        Mean over scored windows and layers, and of the worst window.
    copies_moved, bytes_moved:
        Part of all copies that a re-plan moves, and bytes of all re-plans.
    imbalance_s, moves_s:
        Time of serving that imbalance and moves cost.
    tokens_gained, tok_s, tok_s_per_gpu:
        Over the baseline, and throughput of all and over GPUs.
    by_window, step_s, replans:
        Balancedness and step by window, and each re-plan.
    """

    name: str
    interval: int
    budget: float | None
    start: str
    balancedness: float
    worst: float
    copies_moved: float
    bytes_moved: float
    imbalance_s: float
    moves_s: float
    tokens_gained: float
    tok_s: float
    tok_s_per_gpu: float
    by_window: list[float]
    step_s: list[float]
    replans: list[ReplanRunData]


@dataclass(frozen=True, kw_only=True)
class BestPolicyData:
    """Which policy to take.

    Attributes
    ----------
    policy, interval, interval_steps, budget, why:
        Which, windows and steps between re-plans (null: never), the most copies (null: no limit), and why.
    """

    policy: str
    interval: int | None
    interval_steps: int | None
    budget: float | None
    why: str


@dataclass(frozen=True, kw_only=True)
class MeasuredData:
    """What the machine of the replay took.

    Attributes
    ----------
    planning_cpu_s, note:
        Processor time by policy, and what it is.
    """

    planning_cpu_s: list[float]
    note: str


@dataclass(frozen=True, kw_only=True)
class ReplayPrinted:
    """What ``rackplan replay`` prints, and writes to ``replay.json``: recorded windows through online balancers.

    Attributes
    ----------
    model, cluster:
        Their names.
    windows, scored, names, interrupted:
        Windows, those that are scored, their names, and whether Ctrl-C ended it.
    steps_per_window, tokens, tokens_per_step, step_s_balanced:
        Steps that a window stands for, which tokens are counted, those of a step, and the step with experts balanced.
    baseline, static:
        What tokens gained are over, and the plan that runs first.
    policies, best:
        Each, and which to take.
    measured:
        What the machine here took: another time other figures.
    notes:
        What a reader should know.
    set:
        The figures that were set by the user; absent where none was.
    """

    model: str
    cluster: str
    set: Maybe[list[SetFigureData]] = LEFT_OUT
    windows: int
    scored: int
    interrupted: bool
    names: list[str]
    steps_per_window: int
    tokens: str
    tokens_per_step: float
    step_s_balanced: float
    baseline: str
    static: str
    policies: list[PolicyData]
    best: BestPolicyData
    measured: MeasuredData
    notes: list[str]


def replay_view(found: Replayed) -> View:
    """Return what ``rackplan replay`` says."""
    return View(replay_blocks(found), _data(found))


def replay_blocks(found: Replayed, command: str = "") -> list[Block]:
    """Return a replay as shown on a terminal and in the report; ``command`` recreates the report."""
    title, *rest = head_blocks(found)
    return sections(
        [title, Page(lambda: [*_summary(found), *_charts(found)]), Heading("Setup", 2), *rest],
        [Heading("Policies", 2), policy_table(found)],
        [
            *legend_blocks(found),
            Page(
                lambda: [
                    Heading("Step", 2),
                    step_picture(found.plan),
                    Heading("HBM", 2),
                    memory_picture(found.plan),
                    *_map(found.plan),
                    *inputs_section(command, _inputs(found)),
                    *figures_section(
                        used_figures(found.plan), [found.plan.totals], [], assumptions(found.plan)
                    ),
                ]
            ),
        ],
    )


def _summary(found: Replayed) -> list[Block]:
    """Return the headline: the recommended policy, and what the cluster serves and costs with it."""
    plan, best = found.plan, found.recommendation.best
    cluster, totals, bill = plan.deployment.cluster, plan.totals, plan.deployment.bill
    if totals.tok_s:
        totals = bill.totals(best.tok_s, totals.tokens, phase=totals.phase)
    errors = errors_in(plan.deployment, plan.layout)
    gained = "" if best is found.baseline else f": {_gained_words(found)}"
    moved = f"{best.copies_moved:.1%} of copies move per re-plan"
    answer = (
        f"{run_words(found, best)}{gained}; {moved}; the busiest GPU has {1 / best.mean:.2f}x the mean load"
    )
    return headline(answer, machine_words(cluster), totals, errors, cluster_doubts(cluster))


def _gained_words(found: Replayed) -> str:
    """Return the tokens of the recommended policy relative to the baseline."""
    part, name = found.recommendation.best.tok_s / found.baseline.tok_s - 1, found.baseline.entry.name
    return (
        f"as many tokens as {name} (within {EQUAL:.2%})"
        if abs(part) < EQUAL
        else f"{part:+.2%} tokens relative to {name}"
    )


def _charts(found: Replayed) -> list[Block]:
    from rackplan.views.charts import replay_chart, replay_moves_chart

    runs = [(run_words(found, run), run) for run in found.result.runs]
    means = "; ".join(f"{name} {run.mean:.3f}" for name, run in runs)
    balance = f"Balancedness by window and policy, mean: {means}"
    blocks: list[Block] = [
        Heading("Balance by window", 2),
        Chart("balance", replay_chart(found.result), balance, 500),
    ]
    moved = "; ".join(f"{name} {run.copies_moved:.1%}" for name, run in runs if run.bytes_moved)
    if moved:
        moves = f"Share of copies moved per re-plan: {moved}"
        blocks.append(Heading("Copies moved", 2))
        blocks.append(Chart("moves", replay_moves_chart(found.result), moves, 420))
    return blocks


def _map(plan: Plan) -> list[Block]:
    picture = expert_map(plan)
    return [] if picture is None else [Heading("Expert map", 2), picture]


def _inputs(found: Replayed) -> list[tuple[str, str]]:
    return [
        *deployment_rows(found.plan.deployment, found.loads),
        ("windows", plural(found.result.windows, "window")),
        ("steps per window", f"{found.steps:,}"),
        ("plan", found.start_words(found.recommendation.best)),
        ("policies", ", ".join(run_words(found, run) for run in found.result.runs)),
    ]


def replay_csv(found: Replayed) -> str:
    """Return a row for each policy and scored window."""
    rows = replay_rows(found)
    return csv_text(list(rows[0]), (row.values() for row in rows))


def replay_rows(found: Replayed) -> list[dict[str, object]]:
    """Return a row for each policy and scored window: the balance, the step, and what the re-plan before it moved."""
    rows: list[dict[str, object]] = []
    for name, run in zip(run_names(found.result.runs), found.result.runs, strict=True):
        before = {each.window: each for each in run.replans}
        for number, (balance, step) in enumerate(zip(run.by_window, run.step_s, strict=True)):
            moved = before.get(number)
            rows.append(
                {
                    "policy": name,
                    "interval": run.entry.interval,
                    "window": number + 2,
                    "name": found.loads.names[number + 1],
                    "balancedness": float(balance),
                    "step_s": float(step),
                    "copies_moved": 0.0 if moved is None else moved.moves.copies / run.setting.copies,
                    "bytes_moved": 0.0 if moved is None else moved.moves.bytes,
                    "moves_s": 0.0 if moved is None else moved.lost_s,
                }
            )
    return rows


def best_words(found: Replayed) -> str:
    """Return the recommended policy, its interval and budget, and the reason in one sentence."""
    one = found.recommendation
    if all(group.gpus == 1 for group in found.baseline.setting.groups):
        return (
            "nothing to balance: every GPU holds all experts of its layers (EP 1); distribute them with --ep"
        )
    best, most = one.best, one.most
    text = f"{run_words(found, best)}: balancedness {best.mean:.3f} (worst window {best.worst:.3f})"
    text += f", {best.copies_moved:.1%} of copies moved per re-plan" if best.bytes_moved else ", no moves"
    if best is not found.baseline:
        text += f", {_gained_words(found)}"
    if best is not most:
        text += f"; {run_words(found, most)} serves as much (within {EQUAL:.2%}), but moves "
        text += f"{most.bytes_moved / 1e9:,.0f} GB instead of {best.bytes_moved / 1e9:,.0f} GB"
    else:
        others = [run for run in found.result.runs if run is not best]
        second = max(others, key=lambda run: run.tok_s, default=None)
        if second is not None:
            less = f"{1 - second.tok_s / best.tok_s:.2%} fewer tokens"
            text += f"; second: {run_words(found, second)}, {less}"
    return text


def run_words(found: Replayed, run: Run) -> str:
    """Return a policy with its interval in steps."""
    if not run.entry.interval:
        return run.entry.name
    return f"{run.entry.name} every {run.entry.interval * found.steps:,} steps"


def head_blocks(found: Replayed) -> list[Block]:
    """Return the title and what was replayed."""
    plan, result = found.plan, found.result
    deployment, workload = plan.deployment, plan.deployment.workload
    windows = f"{plural(result.windows, 'window')} of {found.steps:,} steps"
    if result.interrupted:
        windows += f" ({result.given} given; interrupted)"
    synthetic = " (synthetic; pass measured loads with --loads)" * found.loads.synthetic
    layout = plan.layout.describe(moe=True)
    known = "" if found.scenarios is None else load_names(found.scenarios.names)
    linear = [run.entry.name for run in result.runs if run.entry.linear]
    begin = f"static: {found.made_for}"
    if linear:
        begin += f"; {', '.join(linear)}: the engine's default, expert j mod E in slot j"
    bare = [name for name in linear if name.startswith(OURS_LINEAR)]
    if bare:
        begin += f"; {', '.join(bare)}: without stored loads, and the first re-plan has no budget"
    return [
        Heading(f"Replay of {deployment.model.name} on {deployment.cluster.name}: {windows}"),
        Text(best_words(found), "Best"),
        *labelled("Windows", load_names(found.loads.names, "window") + synthetic, *_notes(found)),
        *labelled("Stored loads", known),
        Text(begin, "Start"),
        Text(f"{layout}; batch {plan.score.batch} per GPU; {phase_words(workload)}", "Layout"),
        *set_blocks("Set", deployment.cluster),
    ]


def _notes(found: Replayed) -> list[str]:
    """Return notes on the recordings, except the number of windows."""
    read = [note for note in found.loads.notes if not note.endswith("windows, each a scenario")]
    return [*read, *found.notes]


def policy_table(found: Replayed) -> Table:
    """Return a row for each policy."""
    baseline = found.baseline
    return Table.of(
        found.result.runs,
        ("policy", lambda run: run.entry.name),
        ("every", lambda run: f"{run.entry.interval}" if run.entry.interval else "-"),
        ("balance", lambda run: f"{run.mean:.4f}"),
        ("worst", lambda run: f"{run.worst:.4f}"),
        ("moved", lambda run: f"{run.copies_moved:.1%}"),
        ("GB", lambda run: f"{run.bytes_moved / 1e9:,.0f}"),
        ("imbalance s", lambda run: f"{run.imbalance_s:,.1f}"),
        ("moves s", lambda run: f"{run.moves_s:,.2f}"),
        ("tokens gained", lambda run: "-" if run is baseline else gained_words(run, baseline)),
        ("CPU s", lambda run: f"{run.cpu_s:,.1f}"),
    )


def gained_words(run: Run, baseline: Run) -> str:
    """Return the tokens gained, in millions if many, and as a share of the baseline."""
    gained = run.tokens_gained(baseline)
    amount = f"{gained / 1e6:+,.2f} M" if abs(gained) >= 1e5 else f"{gained:+,.0f}"
    return f"{amount} ({run.tok_s / baseline.tok_s - 1:+.2%})"


def legend_blocks(found: Replayed) -> list[Block]:
    """Return the legend of that table."""
    run = found.baseline
    word = found.plan.score.tokens
    scored = len(run.step_s)
    unknown = any(one.unknown_moves for one in found.result.runs)
    links = (
        "time to move copies over the cluster's links; SGLang pauses for it, other policies share the links"
    )
    return [
        Text(
            f"every: windows between re-plans; balance, worst: mean over {scored} scored windows and all "
            "layers, and the worst window; each window is scored with the placement planned before it",
            "Columns",
        ),
        Text("moved: mean share of copies per re-plan; GB: total of all re-plans and replicas", ""),
        Text(f"imbalance s: time lost to uneven expert loads; moves s: {links}", ""),
        *labelled("", "moves s excludes links without a published rate" * unknown),
        Text(
            f"tokens gained: additional {word} tokens in the time of {run.entry.name} ({run.seconds:,.0f} s, "
            f"{run.tokens / 1e6:,.1f} million tokens), over all GPUs",
            "",
        ),
        Text("CPU s: planning time, measured on one core of this machine; not part of the step times", ""),
    ]


def _data(found: Replayed) -> ReplayPrinted:
    result, best, setting = found.result, found.recommendation.best, found.baseline.setting
    deployment = found.plan.deployment
    return taken(
        ReplayPrinted,
        result,
        model=deployment.model.name,
        cluster=deployment.cluster.name,
        **set_data(deployment.cluster),
        scored=result.windows - 1,
        names=list(found.loads.names[: result.windows]),
        steps_per_window=found.steps,
        tokens=found.plan.score.tokens,
        tokens_per_step=setting.tokens_per_step,
        step_s_balanced=setting.costs.even_s,
        baseline=found.baseline.entry.name,
        static=found.made_for,
        policies=[_run_data(found, run) for run in result.runs],
        best=BestPolicyData(
            policy=best.entry.name,
            interval=best.entry.interval or None,
            interval_steps=best.entry.interval * found.steps or None,
            budget=best.entry.budget,
            why=best_words(found),
        ),
        measured=MeasuredData(
            planning_cpu_s=[round(run.cpu_s, 3) for run in result.runs],
            note="processor seconds on this machine; they vary from run to run",
        ),
        notes=_notes(found),
    )


def _run_data(found: Replayed, run: Run) -> PolicyData:
    return taken(
        PolicyData,
        run,
        name=run.entry.name,
        interval=run.entry.interval,
        budget=run.entry.budget,
        start=found.start_words(run),
        balancedness=run.mean,
        tokens_gained=run.tokens_gained(found.baseline),
        tok_s_per_gpu=run.tok_s / len(found.plan.deployment.cluster.gpus),
        by_window=run.by_window.tolist(),
        step_s=run.step_s.tolist(),
        replans=[
            taken(ReplanRunData, each.moves, after_window=each.window + 1, lost_s=each.lost_s)
            for each in run.replans
        ],
    )
