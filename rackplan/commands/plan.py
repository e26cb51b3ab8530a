"""Plans: make one, change one that runs, score and compare them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rackplan import options
from rackplan.digests import digests
from rackplan.options import Group, Speed, arg, opt
from topology.base.errors import InputError

if TYPE_CHECKING:
    from placement.migrate.replan import ReplanOptions
    from placement.options import PlanOptions
    from placement.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Asked(Speed):
    """What is asked of a plan."""

    goal: Annotated[
        str,
        opt(
            "--goal",
            "What the layout is chosen for: throughput, latency, gpus (fewest), usd or power (of a token).",
            "GOAL",
        ),
    ] = "throughput"
    ttft_ms: Annotated[
        float | None,
        opt("--ttft-ms", "Longest prefill of a prompt, in ms; decode: of one alone on the same GPUs.", "Y"),
    ] = None
    tolerance: Annotated[
        str,
        opt("--tolerance", "The simplest layout within so many percent of the best; 0: the best.", "P"),
    ] = "2%"
    redundant: Annotated[
        str | None,
        opt(
            "--redundant",
            "Extra expert copies per layer; default: fewest that divide; auto: most throughput.",
            "N|auto",
        ),
    ] = None
    objective: options.ObjectiveName = "mean"
    spread: Annotated[str, opt("--spread", "Copies of an expert lie in different gpu, node or rack.")] = "gpu"
    split: options.SplitName = "even"
    ep: Annotated[int | None, opt("--ep", "GPUs that a layer's experts are spread over.")] = None
    tp: Annotated[int | None, opt("--tp", "Tensor-parallel width.")] = None
    stages: Annotated[int | None, opt("--stages", "Pipeline stages.")] = None

    def plan_options(self, time_limit_s: float | None, seed: int) -> PlanOptions:
        """Return them for the planner.

        Raises
        ------
        InputError
            If one of them cannot be used.
        """
        from cost.experts.dispatch import require_policy
        from placement.options import (
            PlanOptions,
            require_goal,
            require_objective,
            require_spread,
        )

        return PlanOptions(
            None if self.redundant is None else _copies(self.redundant),
            self.tpot_s,
            time_limit_s,
            seed,
            self.ep,
            self.tp,
            self.stages,
            _tolerance(self.tolerance),
            spread=require_spread(self.spread),
            objective=require_objective(self.objective),
            split=require_policy(self.split),
            goal=require_goal(self.goal),
            ttft_s=None if self.ttft_ms is None else options.seconds(self.ttft_ms, "--ttft-ms"),
        )


def _tolerance(percent: str) -> float:
    """Parse a percentage: ``2`` or ``2%``."""
    try:
        value = float(percent.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value < 100:
        raise InputError(f"--tolerance {percent}: expected percent, 0 or more and below 100, like 2%.")
    return value / 100


def plan(
    *,
    model: options.ModelName,
    cluster: options.ClusterName,
    output: options.OutputFolder = None,
    loads: options.Loads = None,
    routing: options.Routing = None,
    serving: options.Serving,
    asked: Asked,
    pricing: options.Pricing,
    time_limit: Annotated[
        float | None, opt("--time-limit", "Seconds of search; 0: fast path only; default: what it is worth.")
    ] = None,
    seed: options.Seed = 0,
    json: options.JsonFlag = False,
) -> None:
    """Plan what goes where, and what a step costs. Writes plan.json, report.html and topology.svg."""
    from placement.planner import make_plan
    from rackplan.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.progress import progress
    from rackplan.views.plan import plan_view

    wanted = asked.plan_options(time_limit, seed)
    deployment = pricing.deployment(model, cluster, serving)
    expert_loads = options.model_loads(deployment.model, loads or [], seed, routing)
    named = output or default_output(f"{deployment.model.name}-on-{deployment.cluster.name}")
    target = require_output(named, ours=RESULTS)
    with progress() as reporter:
        made = make_plan(
            deployment, expert_loads, wanted, on_progress=reporter.layers, on_stage=reporter.stage
        )
        reporter.stage("writing")
        given = [model, cluster, *(loads or []), *(routing or [])]
        files = write_plan(made, target, digests(given))
    show(plan_view(made, files), json=json)
    _say_interrupted(made, "plan")


@dataclass(frozen=True, kw_only=True)
class Change(Group):
    """What is asked of a re-plan."""

    lost: Annotated[
        list[str] | None,
        opt(
            "--lost",
            "GPU, node, rack, domain, NIC, switch or link that is gone (d0.n3.g1, d0.n3, d0.n3.g1.nic, f.p0.l1, "
            "d0.n3.g1->f.p0.l1); repeatable.",
            "ID",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        opt("--cluster", "The cluster as it is now: the plan's, with other `broken`.", "FILE.yaml"),
    ] = None
    max_moves: Annotated[int | None, opt("--max-moves", "Most copies to move, over all layers.", "N")] = None
    max_bytes: Annotated[str | None, opt("--max-bytes", 'Most bytes to move, or "200 GB".', "N")] = None
    horizon: Annotated[
        float | None,
        opt(
            "--horizon",
            "Seconds to serve from now on: moves are made that save more in them than they take.",
            "S",
        ),
    ] = None
    time_limit: Annotated[
        float, opt("--time-limit", "Seconds to search; 0: one pass, the same every time.")
    ] = 0.0

    def replan_options(self, seed: int) -> ReplanOptions:
        """Return them for the re-plan.

        Raises
        ------
        InputError
            If one of them cannot be used.
        """
        from placement.migrate.replan import ReplanOptions

        return ReplanOptions(
            lost=tuple(self.lost or ()),
            max_moves=self.max_moves,
            max_bytes=None if self.max_bytes is None else options.amount(self.max_bytes, "--max-bytes"),
            horizon_s=self.horizon,
            time_limit_s=self.time_limit,
            seed=seed,
        )


def replan(
    *,
    plan: Annotated[Path, arg("PLAN", "The plan that runs: its plan.json or folder.")],
    output: options.OutputFolder = None,
    loads: options.Loads = None,
    routing: options.Routing = None,
    change: Change,
    seed: options.Seed = 0,
    json: options.JsonFlag = False,
) -> None:
    """Re-plan for other loads or lost parts, few moves. Writes plan.json, moves.json, report.html, topology.svg."""
    from placement.migrate.replan import replan_plan
    from rackplan.output import RESULTS, default_output, require_output, show, write_plan
    from rackplan.progress import progress
    from rackplan.views.replan import replan_view
    from topology.files.resolve import resolve_cluster

    asked = change.replan_options(seed)
    old = options.read_noted(plan)
    named = output or default_output(f"{_folder_of(plan).name}-replanned")
    if os.path.realpath(named) == os.path.realpath(_folder_of(plan)):
        raise InputError(
            f"-o {named}: it is the folder of {plan}, which would be overwritten; choose another."
        )
    now = None if change.cluster is None else resolve_cluster(change.cluster)
    other = None
    if loads or routing:
        other = options.model_loads(old.deployment.model, loads or [], seed, routing)
    target = require_output(named, ours=RESULTS)
    with progress() as reporter:
        reporter.stage("re-planning")
        found = replan_plan(old, other, asked, cluster=now, on_progress=reporter.replan)
        reporter.stage("writing")
        given = [str(plan), *([change.cluster] if change.cluster else []), *(loads or []), *(routing or [])]
        files = write_plan(found.plan, target, digests(given), moved=found)
    show(replan_view(found, asked, files), json=json)
    _say_interrupted(found.plan, "re-plan")


def score(
    plan: options.PlanFile,
    loads: options.Loads = None,
    routing: options.Routing = None,
    details: Annotated[
        bool,
        opt("--details", "Also each part of the step, the memory, and the figures behind them."),
    ] = False,
    sparse_attention: options.SparseAttention = "",
    settings: options.Settings = None,
    *,
    money: options.Money,
    output: options.Written = None,
    json: options.JsonFlag = False,
) -> None:
    """Score a plan again, under its loads or others, with the experts that tokens choose together where traced.

    From its assignment alone: the solver's own figures are not used.
    """
    from placement.scoring import under_sparse_attention, with_loads
    from rackplan.output import written
    from rackplan.views.explain import explain_plan
    from rackplan.views.plan import score_view

    finish = written(output, "score", json=json)
    scored = money.priced(options.with_settings(options.read_noted(plan), settings))
    if sparse_attention:
        scored = under_sparse_attention(scored, sparse_attention)
    if loads or routing:
        other = options.model_loads(scored.deployment.model, loads or [], scored.request.seed, routing)
        scored = with_loads(scored, other)
    finish(score_view(scored, explain_plan(scored, levers=True) if details else None))


def what_if(
    plan: options.PlanFile,
    settings: options.Settings = None,
    output: options.Written = None,
    json: options.JsonFlag = False,
) -> None:
    """Say what each lever of a plan would bring. Bandwidths, flop/s, HBM, batch, context, formats, widths, copies."""
    from placement.analysis.levers import find_levers
    from rackplan.output import written
    from rackplan.progress import progress
    from rackplan.views.levers import levers_view

    finish = written(output, "what-if", json=json)
    read = options.with_settings(options.read_noted(plan), settings)
    with progress() as reporter:
        found = find_levers(read, on_stage=reporter.stage)
    finish(levers_view(found))


def diff(
    first: Annotated[Path, arg("PLAN", "A plan.json, or the folder of one.")],
    second: Annotated[Path, arg("PLAN", "Another one, what changes is said of it.")],
    *,
    money: options.Money,
    output: options.Written = None,
    json: options.JsonFlag = False,
) -> None:
    """Show two plans side by side. Inputs, layout, predictions, memory, copies moved, costs."""
    from placement.plans.reading import read_plan
    from rackplan.output import written
    from rackplan.views.diff import diff_view

    finish = written(output, "diff", json=json)
    plans = [read_plan(path) for path in (first, second)]
    clusters = [plan.deployment.cluster for plan in plans]
    old, new = (money.priced(plan, *clusters) for plan in plans)
    finish(diff_view(old, new, [str(first), str(second)]))


def _folder_of(plan: Path) -> Path:
    return plan.absolute() if plan.is_dir() else plan.absolute().parent


def _copies(text: str) -> int | Literal["auto"]:
    """Parse ``32`` or ``auto``.

    Raises
    ------
    InputError
        If it is neither.
    """
    from placement.options import AUTO

    if text == AUTO:
        return AUTO
    try:
        return int(text)
    except ValueError:
        pass
    raise InputError(f"--redundant {text}: expected 0 or more copies above one of each expert, or auto.")


def _say_interrupted(plan: Plan, what: str) -> None:
    from rackplan.output import print_error

    if plan.interrupted:
        print_error(f"interrupted; the best {what} so far was written.")
        raise typer.Exit(options.INTERRUPTED)
