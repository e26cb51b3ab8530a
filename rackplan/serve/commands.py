"""The command line that does what the page does, to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from cost.inputs.deployment import Deployment
from rackplan.requests import NO_LIMIT, as_typed
from rackplan.serve.question import SLIDERS, PlanOrder, Question, Source
from topology.changes.overrides import figures_set


def explore_command(question: Question, sides: Sequence[Deployment]) -> str:
    """Return the sweep of one cluster, or the comparison of several, at the same figures."""
    names = [_cluster(source, side) for source, side in zip(question.clusters, sides, strict=True)]
    model, limit_ms = ["--model", _model(question.model)], question.tpot_ms
    context = ["--context", str(question.context)]
    if len(names) > 1:
        words = ["compare", *names, *model, *context, *_speed(limit_ms)]
    elif question.pools:
        words = [
            "sweep",
            *model,
            "--cluster",
            names[0],
            "--isl",
            str(question.isl),
            "--osl",
            str(question.osl),
        ]
        words += [*_limit("--tpot-ms", limit_ms), *_limit("--ttft-ms", question.ttft_ms)]
    else:
        words = ["sweep", *model, "--cluster", names[0], *context]
        words += [] if limit_ms == NO_LIMIT else _speed(limit_ms)
    return shlex.join(["rackplan", *words, *_priced(question, sides)])


def plan_command(question: Question, side: Deployment, order: PlanOrder) -> str:
    """Return the plan of one cluster: of a layout at a batch, or the best at the service level."""
    cluster = _cluster(question.clusters[order.cluster], side)
    words = ["plan", "--model", _model(question.model), "--cluster", cluster]
    words += ["--context", str(question.context)]
    for option in ("ep", "tp", "stages", "batch"):
        width = getattr(order, option)
        words += [] if width is None else [f"--{option}", str(width)]
    if order.batch is None:
        words += _limit("--tpot-ms", question.tpot_ms)
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


def _limit(option: str, limit_ms: float | str | None) -> list[str]:
    return [] if limit_ms is None else [option, as_typed(limit_ms)]


def _speed(limit_ms: float | str | None) -> list[str]:
    if limit_ms is None:
        return []
    return ["--tok-s-user", limit_ms if isinstance(limit_ms, str) else f"{1e3 / limit_ms:.6g}"]


def _priced(question: Question, sides: Sequence[Deployment]) -> Iterator[str]:
    """Yield formats, drafts, figures of the user and of the sliders, and prices."""
    if question.weights is not None:
        yield from ("--weights", question.weights)
    if question.recipe != "checkpoint":
        yield from ("--recipe", question.recipe)
    if question.kv_dtype is not None:
        yield from ("--kv-dtype", question.kv_dtype)
    if question.draft_tokens is not None:
        yield from ("--draft-tokens", str(question.draft_tokens))
    settings = {SLIDERS[name]: factor for name, factor in question.factors.moved.items()}
    if question.settings or any(source.name.endswith(".json") for source in question.clusters):
        # a figure may be set and moved by a slider: what has come of both
        found = (one for side in sides for one in figures_set(side.cluster.spec))
        settings = {f"{part}.{name}": f"{figure.value:g}" for part, name, figure in found}
    for setting in settings.items():
        yield from ("--set", "=".join(setting))
    if question.runs is not None:
        yield from ("--runs", question.runs.name)
    if question.price_basis is not None:
        yield from ("--price-basis", question.price_basis)
    for gpu, price in {gpu: price for side in sides for gpu, price in side.prices.prices.items()}.items():
        yield from ("--price", f"{gpu}={price:g}")
