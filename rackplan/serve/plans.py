"""Jobs of the page: place experts, lose GPUs, open a plan, write a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cost.calibration.errors import errors_in
from cost.layouts import Sweep
from cost.serving.result import SPEEDS, Pools
from placement.migrate.replan import Replanned
from placement.plan import Plan
from placement.plans.reading import plan_of_text
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.progress import Progress
from rackplan import answers, library
from rackplan.render.html import page
from rackplan.report.changes import replan_doc
from rackplan.report.doc import Picture
from rackplan.report.notes import baseline_name
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.memory import memory_picture
from rackplan.report.pictures.step import step_picture
from rackplan.report.plan import plan_doc
from rackplan.report.results import page_of, svg
from rackplan.requests import NO_LIMIT, CompareRequest, make
from rackplan.serve.commands import explore_command, plan_command
from rackplan.serve.point import Row, figure_list, picture_data, speed_rows, step_rows
from rackplan.serve.pool import Line
from rackplan.serve.pricing import deployed, limits_s
from rackplan.serve.question import PlaceOrder, Question
from rackplan.serve.ways import explored
from rackplan.views.compare import compare_blocks
from rackplan.views.money import dollars, rate_words
from rackplan.views.sweep import sweep_blocks
from topology.base.errors import InfeasibleError
from topology.base.units import mean_of


@dataclass(frozen=True)
class PlanText:
    """The text of a plan file, and the command that made it."""

    text: str
    command: str

    def read(self) -> Plan:
        """Return the plan."""
        return plan_of_text(self.text, "plan.json")


@dataclass(frozen=True)
class Shown:
    """Data that the page shows for a job, and the plan that the job made."""

    data: dict[str, Any]
    plan: PlanText | None = None


def place(wanted: PlaceOrder, line: Line) -> Shown:
    """Plan one cluster."""
    question, order = wanted.asked, wanted.order
    line.send({"stage": "reading model and cluster"})
    side = deployed(question)[1][order.cluster]
    given: dict[str, Any] = order.widths(question)
    if question.tpot_ms is not None and order.batch is None:
        given["tpot_ms"] = question.tpot_ms
    if question.whole:
        given |= {"isl": question.isl, "osl": question.osl, "ttft_ms": question.ttft_ms}
    else:
        given["context"] = question.context
    made = library.plan(
        side.model,
        side.cluster,
        loads=order.loads if side.model.moe is not None else None,
        prices=dict(side.prices.prices),
        powers=dict(side.prices.powers),
        time_limit_s=order.seconds,
        on_progress=_telling(line),
        cancel=line.cancelled,
        **question.served,
        **given,
    )
    return _handed(made, plan_command(question, side, order), {})


def lose(before: PlanText, lost: tuple[str, ...], line: Line) -> Shown:
    """Re-plan a plan without the lost parts."""
    plan = before.read()
    found = library.replan(
        plan, lost=list(dict.fromkeys(lost)), on_progress=_telling(line), cancel=line.cancelled
    )
    command = " ".join(["rackplan replan PLAN", *(f"--lost {one}" for one in dict.fromkeys(lost))])
    return _handed(found.plan, command, _loss(found, plan, lost))


def open_plan(opened: PlanText, line: Line) -> Shown:
    """Show an existing plan."""
    line.send({"stage": "reading the plan"})
    return Shown(_plan_data(opened.read(), opened.command), opened)


def plan_report(made: PlanText, line: Line) -> Shown:
    """Write the report of a plan."""
    line.send({"stage": "writing the report"})
    plan = made.read()
    model, cluster = plan.deployment.model.name, plan.deployment.cluster.name
    text = page_of(plan, made.command)
    return Shown({"name": f"{model}-{cluster}-plan.html", "page": text})


def report(question: Question, line: Line) -> Shown:
    """Write the sweep report of one cluster, or the comparison of several.

    Raises
    ------
    FieldError
        If an input cannot be used.
    InfeasibleError
        If nothing fits.
    """
    line.send({"stage": "writing the report"})
    model, sides, _ = deployed(question)
    drawings = {side.cluster.name: svg(side.cluster) or "" for side in sides}
    more: dict[str, Any] = {"command": explore_command(question, sides), "drawings": drawings}
    tpot_s, _ = limits_s(question)
    speeds = [] if tpot_s is None else [1 / tpot_s]
    if len(sides) == 1:
        side = explored(question).sides[0]
        if side.reason:
            raise InfeasibleError(side.reason)
        found: Sweep | Pools
        default = question.tpot_ms is None
        if side.serving is not None:
            found = Pools(side.serving, tpot_s, tpot_default=default, ttft_default=question.ttft_ms is None)
        else:
            found = side.shown[0].sweep.within(tpot_s, default=default)
        text = page(sweep_blocks(found, speeds or SPEEDS, **more))
        return Shown({"name": f"{model.name}-{side.deployment.cluster.name}-sweep.html", "page": text})
    usual = question.tpot_ms is None
    wanted = None if usual else speeds or NO_LIMIT
    served: dict[str, Any] = {"context": question.context}
    if question.whole:
        served = {name: getattr(question, name) for name in ("isl", "osl", "ttft_ms")}
    asked = make(CompareRequest, [side.cluster for side in sides], model, tok_s_user=wanted, **served)
    text = page(compare_blocks(answers.compared(sides, asked), **more))
    return Shown({"name": f"{model.name}-compared.html", "page": text})


def _telling(line: Line) -> Callable[[Progress], None]:
    """Return a function that reports search progress to the page, with incumbent and bound if known."""

    def tell(progress: Progress) -> None:
        told: dict[str, Any] = {"stage": progress.stage, "elapsed_s": round(progress.elapsed_s, 2)}
        if progress.objective > 0:  # not a number before the first incumbent
            told |= {"done": progress.done, "total": progress.total}
            told |= {"objective": progress.objective, "bound": progress.bound}
        line.send(told)

    return tell


def _handed(plan: Plan, command: str, more: dict[str, Any]) -> Shown:
    return Shown(
        _plan_data(plan, command) | more,
        PlanText(plan_to_json(plan_to_dict(plan, command=command)), command),
    )


def _plan_data(plan: Plan, command: str) -> dict[str, Any]:
    """Return the data that the page shows for a plan: verdict, figures, pictures and drawing."""
    experts = expert_map(plan)
    others: list[Picture] = [step_picture(plan), memory_picture(plan)]
    return {
        "verdict": " ".join(plan_doc(plan).sentences),
        "figures": _figures(plan),
        "baselines": [
            {
                "name": baseline_name(name),
                "balancedness": mean_of(entry.balancedness.values()) if entry.balancedness else None,
                "tok_s_per_gpu": entry.score.tok_s_per_gpu if entry.score else None,
            }
            for name, entry in plan.baselines.items()
        ],
        "pictures": [picture_data(one) for one in ([] if experts is None else [experts]) + others],
        "svg": svg(plan) or "",
        "command": command,
        "interrupted": plan.interrupted,
    }


def _loss(found: Replanned, before: Plan, lost: tuple[str, ...]) -> dict[str, Any]:
    """Return the lost parts, the re-plan and the figures of the plan before."""
    return {
        "lost": list(dict.fromkeys(lost)),
        "lost_gpus": found.lost_gpus,
        "lost_copies": found.lost_copies,
        "said": replan_doc(found).sentences,
        "before": _figures(before),
    }


def _figures(plan: Plan) -> list[dict[str, Any]]:
    score = plan.score
    errors, word = errors_in(plan.deployment, plan.layout), f"{score.tokens} tok/s"
    usd, per_mw = plan.totals.usd_per_million_tokens, plan.totals.tok_s_per_mw
    rows: list[Row] = [
        *speed_rows(word, score.tok_s_per_user, score.tok_s_per_gpu, plan.totals.tok_s, errors),
        *([] if usd is None else [("$ per million tokens", usd, dollars(usd))]),
        *([] if per_mw is None else [("tok/s per MW", per_mw, rate_words(per_mw))]),
        *step_rows(score.step_s, score.lower_step_s),
        ("sequences per GPU", score.batch, f"{score.batch:,}"),
        ("largest batch that fits", score.max_batch, f"{score.max_batch:,}"),
        ("bound by", None, score.bound_by),
    ]
    if plan.balancedness:
        balanced, proof = mean_of(plan.balancedness.values()), plan.proof
        rows += [
            ("balancedness", balanced, f"{balanced:.4f}"),
            ("largest over mean GPU load", proof.objective, f"{proof.objective:.4f}"),
            ("proven lower bound", proof.bound, f"{proof.bound:.4f}, gap {proof.gap:.2%}"),
        ]
    return figure_list(rows)
