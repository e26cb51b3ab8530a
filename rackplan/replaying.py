"""Recorded loads replayed through balancers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from cost.experts.loads import ExpertLoads, is_generator
from cost.experts.traces.open import open_counts
from cost.experts.traces.windows import MAX_WINDOWS
from cost.inputs.deployment import Deployment
from cost.model import Model
from placement.budget import Budget
from placement.online.policies import DEFAULT, entries, require_names, that_apply
from placement.online.replayed import Replayed
from placement.online.setting import plan_setting
from placement.online.simulate import replay
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.progress import ProgressReporter
from rackplan import inputs
from rackplan.requests import DeploymentRequest, ReplayRequest, make
from topology.base.errors import InputError

STEPS_PER_WINDOW = 3000
"""vLLM's re-plan interval."""
_UNMERGED = 1 << 30
"""Windows of a recording, more than any has: none are merged."""


def replayed(request: ReplayRequest) -> Replayed:
    """Replay the windows; Ctrl-C and ``cancel`` keep completed windows.

    Raises
    ------
    InputError
        If a policy cannot be used, or there are fewer than two windows.
    InfeasibleError
        If no plan fits.
    CancelledError
        If ``cancel`` says so before a window was scored.
    """
    require_names(request.policies or DEFAULT)
    stored = None if request.plan is None else inputs.plan_of(request.plan, request.settings)
    deployment = _deployment(request, stored)
    loads = _windows(request, deployment.model)
    known = None
    if request.scenarios is not None:
        known = inputs.loads_of(deployment.model, request.scenarios, seed=request.seed)
    elif stored is not None and stored.loads is not None and not stored.loads.synthetic:
        known = stored.loads
    reporter, count = ProgressReporter(request.on_progress), len(loads.tokens)
    taking_part = entries(
        request.policies or DEFAULT,
        steps_per_window=STEPS_PER_WINDOW,
        windows=count,
        planned=stored is not None,
    )
    path = str(request.plan) if isinstance(request.plan, str | Path) else ""
    if stored is not None:
        plan, words = stored, f"the plan of {path}" if path else "the plan that was given"
    else:
        plan, words = _planned(request, deployment, loads, known, reporter)
    setting = plan_setting(plan, STEPS_PER_WINDOW, known)
    notes = [*(inputs.plan_notes(stored) if stored is not None else []), *_passed_over(plan)]
    if not request.policies:
        taking_part, left_out = that_apply(taking_part, setting.groups)
        notes += left_out
    turns = cycle(range(1, len(taking_part) + 1))
    result = replay(
        loads.tokens,
        taking_part,
        setting,
        budget=Budget(cancel=request.cancel),
        on_progress=lambda at, of, name: reporter.stage(
            f"replaying window {at} of {of}: {name}, policy {next(turns)} of {len(taking_part)} "
            "(Ctrl-C keeps completed windows)"
        ),
    )
    return Replayed(result, plan, loads, known, words, path, tuple(notes))


def _windows(request: ReplayRequest, model: Model) -> ExpertLoads:
    """Return the windows in order.

    Raises
    ------
    InputError
        If they do not fit the model, or there are fewer than two.
    """
    texts = inputs.several(request.loads)
    files = [text for text in texts if isinstance(text, str) and not is_generator(text)]
    stepwise = [text for text in files if open_counts(text).of_steps]
    max_windows = MAX_WINDOWS if stepwise else _UNMERGED
    loads = inputs.loads_of(model, texts, seed=request.seed, windows=max_windows)
    if loads is not None and stepwise:
        names = ", ".join(Path(text).name for text in stepwise)
        note = f"{names}: single steps were recorded; each window represents {STEPS_PER_WINDOW:,} steps here"
        loads = replace(loads, notes=(*loads.notes, note))
    if loads is None or len(loads.tokens) < 2:
        named = [text if isinstance(text, str) else "an array" for text in texts]
        raise InputError(
            "only one window has tokens, and a replay plans on one window and scores the "
            "next: give a recording of two or more windows, or several files in order.",
            field="loads",
            value=", ".join(named),
        )
    return loads


def _planned(
    request: ReplayRequest,
    deployment: Deployment,
    loads: ExpertLoads,
    known: ExpertLoads | None,
    reporter: ProgressReporter,
) -> tuple[Plan, str]:
    """Return a plan to start from, and what it was made for."""
    words = "planned for the stored loads"
    if known is None:
        known = replace(loads, tokens=loads.tokens[:1], names=loads.names[:1], notes=())
        words = "planned for the first window; give a PLAN made for several loads"
    options = PlanOptions(time_limit_s=0.0, seed=request.seed)
    plan = make_plan(deployment, known, options, on_stage=reporter.stage, cancel=request.cancel)
    if plan.interrupted:
        Budget(cancel=request.cancel).unless_cancelled()
        raise KeyboardInterrupt
    return plan, words


def _passed_over(plan: Plan) -> Iterator[str]:
    """Yield options of a plan that policies ignore, although placements are scored with them."""
    if plan.spread != "gpu":
        yield f"re-plans keep copies of an expert on different GPUs; the plan keeps them in different {plan.spread}s"
    if plan.split != "even":
        yield f"re-plans assume an even split but are scored with the plan's split ({plan.split})"


def _deployment(request: ReplayRequest, plan: Plan | None) -> Deployment:
    """Return the deployment of the plan, else that of the model and the cluster.

    Raises
    ------
    InputError
        If there is neither, or a name beside a plan is not the plan's.
    """
    if plan is None:
        assert request.model is not None and request.cluster is not None  # noqa: S101, PT018 - else a plan is given
        where = inputs.cluster_of(request.cluster, request.settings)
        of = make(DeploymentRequest, request.model, where, weights=request.weights)
        return inputs.deployment_of(of, request.model, where)
    planned = plan.deployment
    pairs = (
        ("model", None if request.model is None else inputs.model_of(request.model), planned.model),
        ("cluster", None if request.cluster is None else inputs.cluster_of(request.cluster), planned.cluster),
    )
    for field, requested, of_plan in pairs:
        if requested is not None and requested.name != of_plan.name:
            raise InputError(
                f"the plan is for {of_plan.name}; leave it out.", field=field, value=requested.name
            )
    return planned
