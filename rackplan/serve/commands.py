"""Equivalent command lines for the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cost.inputs.deployment import Deployment
from rackplan.requests import SweepRequest, default_of, flag_of
from rackplan.serve.question import SLIDERS, PlanOrder, Question, Source
from topology.changes.overrides import figures_set


def explore_command(question: Question, sides: Sequence[Deployment]) -> str:
    """Return the command for the sweep of one cluster, or the comparison of several."""
    names = [_cluster(source, side) for source, side in zip(question.clusters, sides, strict=True)]
    model, options = ["--model", _model(question.model)], question.given
    words = ["sweep", *model, "--cluster", names[0]]
    if len(names) > 1:
        words = ["compare", *names, *model]
        if limit := options.pop("tpot_ms", None):
            options["tok_s_user"] = limit if isinstance(limit, str) else 1e3 / limit
    return shlex.join(["rackplan", *words, *_typed(options), *_priced(question, sides)])


def plan_command(question: Question, side: Deployment, order: PlanOrder) -> str:
    """Return the command for a plan of one cluster: a layout at a batch, or the best at the service level."""
    cluster = _cluster(question.clusters[order.cluster], side)
    words = ["plan", "--model", _model(question.model), "--cluster", cluster, *_typed(order.given(question))]
    if side.model.moe is not None:
        words += ["--loads", order.loads]
    words += ["--time-limit", f"{order.seconds:g}"]
    return shlex.join(["rackplan", *words, *_priced(question, [side])])


def _typed(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield from (flag_of(name), f"{value:.9g}" if isinstance(value, float) else str(value))


def _model(source: Source) -> str:
    """Return a name of the catalog, or the name of the dropped file."""
    return source.name if not source.text or source.name.endswith(".json") else f"{source.name}.json"


def _cluster(source: Source, side: Deployment) -> str:
    if not source.text:
        return side.cluster.name
    if source.name.endswith((".yaml", ".yml")):
        return source.name
    return f"{source.name.removesuffix('.json')}.yaml"  # the file that a plan was made of


def _priced(question: Question, sides: Sequence[Deployment]) -> Iterator[str]:
    """Yield formats, drafts, the engine, figures of the user and of the sliders, prices and powers."""
    served = {"weights": question.weights, **question.served}
    usual = {name: default_of(SweepRequest, name) for name in served}
    yield from _typed({name: value for name, value in served.items() if value not in (None, usual[name])})
    settings = {SLIDERS[name]: factor for name, factor in question.factors.moved.items()}
    if question.settings or any(source.name.endswith(".json") for source in question.clusters):
        # a figure may be set and moved by a slider: what has come of both
        figures = (entry for side in sides for entry in figures_set(side.cluster.spec))
        settings = {f"{part}.{name}": f"{figure.value:g}" for part, name, figure in figures}
    for setting in settings.items():
        yield from ("--set", "=".join(setting))
    if question.runs is not None:
        yield from ("--runs", question.runs.name)
    for option in ("price", "power"):
        money = {entry for side in sides for entry in getattr(side.prices, f"{option}s").items()}
        for gpu, figure in sorted(money):
            yield from (f"--{option}", f"{gpu}={figure:g}")
