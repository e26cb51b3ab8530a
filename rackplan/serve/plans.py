"""Jobs of the page: place experts, lose GPUs, open a plan, write a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from placement.plan import Plan
from placement.plans.reading import plan_of_text
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.progress import Progress
from rackplan import answers, library
from rackplan.layouts import within_limit
from rackplan.report.changes import replan_doc
from rackplan.report.doc import Doc
from rackplan.report.plan import plan_doc
from rackplan.report.results import page_of, svg
from rackplan.requests import NO_LIMIT, CompareRequest, make
from rackplan.serve.blocks import page_data
from rackplan.serve.commands import explore_command, plan_command
from rackplan.serve.pool import Line
from rackplan.serve.pricing import deployed
from rackplan.serve.question import PlaceOrder, Question
from rackplan.serve.ways import explored, sweep_request
from topology.base.errors import InfeasibleError

DETAILS = ("baselines", "experts", "step", "memory")
"""Tables and pictures of a plan that the page shows beside its summary."""


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


def place(request: PlaceOrder, line: Line) -> Shown:
    """Plan one cluster."""
    question, order = request.asked, request.order
    line.send({"stage": "reading model and cluster"})
    side = deployed(question)[0][order.cluster]
    plan = library.plan(
        side.model,
        side.cluster,
        loads=order.loads if side.model.moe is not None else None,
        prices=dict(side.prices.prices),
        powers=dict(side.prices.powers),
        time_limit_s=order.seconds,
        on_progress=_telling(line),
        cancel=line.cancelled,
        **question.served,
        **order.given(question),
    )
    return _shown(plan, plan_doc(plan), plan_command(question, side, order))


def lose(plan_text: PlanText, lost: tuple[str, ...], line: Line) -> Shown:
    """Re-plan a plan without the lost parts."""
    plan, parts = plan_text.read(), list(dict.fromkeys(lost))
    replanned = library.replan(plan, lost=parts, on_progress=_telling(line), cancel=line.cancelled)
    command = " ".join(["rackplan replan PLAN", *(f"--lost {part}" for part in parts)])
    loss: dict[str, Any] = {
        "lost": parts,
        "lost_gpus": replanned.lost_gpus,
        "lost_copies": replanned.lost_copies,
    }
    return _shown(replanned.plan, replan_doc(replanned), command, **loss, before=page_data(plan_doc(plan)))


def open_plan(opened: PlanText, line: Line) -> Shown:
    """Show an existing plan."""
    line.send({"stage": "reading the plan"})
    plan = opened.read()
    return _shown(plan, plan_doc(plan), opened.command, opened)


def plan_report(plan_text: PlanText, line: Line) -> Shown:
    """Write the report of a plan."""
    line.send({"stage": "writing the report"})
    plan = plan_text.read()
    model, cluster = plan.deployment.model.name, plan.deployment.cluster.name
    return Shown({"name": f"{model}-{cluster}-plan.html", "page": page_of(plan, plan_text.command)})


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
    sides, _ = deployed(question)
    command, tpot_s, model = explore_command(question, sides), question.tpot_s, sides[0].model
    if len(sides) == 1:
        side = explored(question)[0][0]
        if side.reason:
            raise InfeasibleError(side.reason)
        request = sweep_request(question, side.deployment)
        result = side.pools or within_limit(side.shown[0].sweep, request)
        name = f"{model.name}-{side.deployment.cluster.name}-sweep.html"
        return Shown({"name": name, "page": page_of(result, command)})
    speeds = None if question.tpot_ms is None else NO_LIMIT if tpot_s is None else [1 / tpot_s]
    options = {name: value for name, value in question.given.items() if name != "tpot_ms"}
    comparison = make(CompareRequest, [side.cluster for side in sides], model, tok_s_user=speeds, **options)
    compared = answers.compared(sides, comparison)
    return Shown({"name": f"{model.name}-compared.html", "page": page_of(compared, command)})


def _telling(line: Line) -> Callable[[Progress], None]:
    """Return a function that reports search progress to the page, with incumbent and bound if known."""

    def tell(progress: Progress) -> None:
        message: dict[str, Any] = {"stage": progress.stage, "elapsed_s": round(progress.elapsed_s, 2)}
        if progress.objective > 0:  # not a number before the first incumbent
            message |= {"done": progress.done, "total": progress.total}
            message |= {"objective": progress.objective, "bound": progress.bound}
        line.send(message)

    return tell


def _shown(plan: Plan, doc: Doc, command: str, plan_text: PlanText | None = None, **extra: Any) -> Shown:
    """Return what the page shows of a plan: its document, the drawing, and the command that makes it."""
    plan_text = plan_text or PlanText(plan_to_json(plan_to_dict(plan, command=command)), command)
    return Shown(page_data(doc, *DETAILS) | {"svg": svg(plan) or "", "command": command} | extra, plan_text)
