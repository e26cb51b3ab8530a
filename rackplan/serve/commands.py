"""Equivalent command lines for the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from cost.inputs.deployment import Deployment
from rackplan.requests import SweepRequest, as_typed, default_of, flag_of
from rackplan.serve.question import SLIDERS, PlanOrder, Question, Source
from topology.changes.overrides import figures_set


def explore_command(question: Question, sides: Sequence[Deployment]) -> str:
    """Return the command for the sweep of one cluster, or the comparison of several."""
    names = [_cluster(source, side) for source, side in zip(question.clusters, sides, strict=True)]
    model = ["--model", _model(question.model)]
    words = ["compare", *names, *model] if len(names) > 1 else ["sweep", *model, "--cluster", names[0]]
    words += _lengths(question)
    words += _speed(question.tpot_ms) if len(names) > 1 else _limit("--tpot-ms", question.tpot_ms)
    words += _limit("--ttft-ms", question.ttft_ms) if question.whole else []
    return shlex.join(["rackplan", *words, *_priced(question, sides)])


def plan_command(question: Question, side: Deployment, order: PlanOrder) -> str:
    """Return the command for a plan of one cluster: a layout at a batch, or the best at the service level."""
    cluster = _cluster(question.clusters[order.cluster], side)
    words = ["plan", "--model", _model(question.model), "--cluster", cluster]
    words += _lengths(question)
    for option, width in order.widths(question).items():
        words += [f"--{option}", str(width)]
    if order.batch is None:
        words += _limit("--tpot-ms", question.tpot_ms)
        words += _limit("--ttft-ms", question.ttft_ms) if question.whole else []
    if side.model.moe is not None:
        words += ["--loads", order.loads]
    words += ["--time-limit", f"{order.seconds:g}"]
    return shlex.join(["rackplan", *words, *_priced(question, [side])])


def _model(source: Source) -> str:
    """Return a name of the catalog, or the name of the dropped file."""
    return source.name if not source.text or source.name.endswith(".json") else f"{source.name}.json"


def _cluster(source: Source, side: Deployment) -> str:
    if not source.text:
        return side.cluster.name
    if source.name.endswith((".yaml", ".yml")):
        return source.name
    return f"{source.name.removesuffix('.json')}.yaml"  # the file that a plan was made of


def _lengths(question: Question) -> list[str]:
    if question.whole:
        return ["--isl", str(question.isl), "--osl", str(question.osl)]
    return ["--context", str(question.context)]


def _limit(option: str, limit_ms: float | str | None) -> list[str]:
    return [] if limit_ms is None else [option, as_typed(limit_ms)]


def _speed(limit_ms: float | str | None) -> list[str]:
    if limit_ms is None:
        return []
    return ["--tok-s-user", limit_ms if isinstance(limit_ms, str) else f"{1e3 / limit_ms:.6g}"]


def _priced(question: Question, sides: Sequence[Deployment]) -> Iterator[str]:
    """Yield formats, drafts, the engine, figures of the user and of the sliders, prices and powers."""
    for name, value in {"weights": question.weights, **question.served}.items():
        if value not in (None, default_of(SweepRequest, name)):
            yield from (flag_of(name), str(value))
    settings = {SLIDERS[name]: factor for name, factor in question.factors.moved.items()}
    if question.settings or any(source.name.endswith(".json") for source in question.clusters):
        # a figure may be set and moved by a slider: what has come of both
        found = (one for side in sides for one in figures_set(side.cluster.spec))
        settings = {f"{part}.{name}": f"{figure.value:g}" for part, name, figure in found}
    for setting in settings.items():
        yield from ("--set", "=".join(setting))
    if question.runs is not None:
        yield from ("--runs", question.runs.name)
    for option in ("price", "power"):
        for gpu, figure in sorted(
            {one for side in sides for one in getattr(side.prices, f"{option}s").items()}
        ):
            yield from (f"--{option}", f"{gpu}={figure:g}")
