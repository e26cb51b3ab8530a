"""What the recipe that is not in force would bring: to a plan, to clusters compared, to a size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rackplan import inputs, layouts
from rackplan.requests import CompareRequest, PlanRequest, Recipe, SizeRequest
from topology.base.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.recipe import OtherRecipe
    from cost.serving.sizing import Size
    from placement.analysis.comparison import Comparison
    from placement.plan import Plan


Price = Callable[["Deployment"], Iterable[tuple[float, float, float | None, int]]]
"""Yields rates per GPU now and under the other recipe, each with the speed per user and the GPUs that it is of."""


def _gains(
    request: CompareRequest | PlanRequest | SizeRequest, priced: Sequence[Deployment], price: Price
) -> Iterator[OtherRecipe]:
    """Yield what the other recipe would bring to deployments where it exists, differs, fits, and that is much."""
    from cost.recipe import OtherRecipe

    for other in _under_other(request, priced):
        with suppress(InfeasibleError):
            for now, then, speed, gpus in price(other):
                gain = OtherRecipe.over(now, then, other, tok_s_per_user=speed, gpus=gpus)
                if gain is not None:
                    yield gain


def _under_other(
    request: CompareRequest | PlanRequest | SizeRequest, priced: Sequence[Deployment]
) -> Iterator[Deployment]:
    other: Recipe = "usual" if request.recipe == "checkpoint" else "checkpoint"
    sides = [now.cluster for now in priced]
    for now, side in zip(priced, sides, strict=True):
        with suppress(InputError):  # a length to accept, of drafts that it has not
            (model, _), *_ = inputs.shares_of(request.model)[0]
            then = inputs.deployment_of(replace(request, recipe=other), model, side, *sides)
            if (then.model.precision, then.workload) != (now.model.precision, now.workload):
                yield then


def other_recipe(plan: Plan, request: PlanRequest) -> list[OtherRecipe]:
    """Return what the recipe that is not in force would bring with the layout and the batch of a plan, if much.

    Of two pools nobody looks.
    """
    from placement.scoring import score_placement

    now, keys = plan.deployment, ("kv_dtype", "draft_tokens", "accept_length", "overlap")

    def price(other: Deployment) -> Iterator[tuple[float, float, None, int]]:
        work = replace(now.workload, **{key: getattr(other.workload, key) for key in keys})
        then = replace(now, model=other.model, workload=work, recipe=other.recipe)
        score, _ = score_placement(then, plan.layout, plan.experts, plan.loads, plan.split, plan.unlike)
        yield plan.score.tok_s_per_gpu, score.tok_s_per_gpu, None, plan.layout.gpus_used

    return list(_gains(request, [now] * (not plan.beside), price))


def recipes_compared(found: Comparison, request: CompareRequest) -> Iterator[OtherRecipe]:
    """Return what the other recipe would bring where that is much, experts taken as perfectly balanced."""

    def price(other: Deployment) -> Iterator[tuple[float, float, float | None, int]]:
        rows = [row for row in found.rows if row.cluster == other.cluster.name and row.tok_s_per_gpu]
        targets = [row.target_tok_s_per_user for row in rows]
        for row, target, rate in zip(rows, targets, rates_at(other, request, targets), strict=True):
            if rate is not None:
                yield row.tok_s_per_gpu or 0.0, rate, target, row.gpus

    return _gains(request, found.deployments, price)


def rates_at(
    deployment: Deployment, request: CompareRequest, targets: Sequence[float | None]
) -> list[float | None]:
    """Return the most tok/s/GPU at each speed per user; None where nothing is as fast."""
    from cost.layouts import iso_interactivity

    speeds = [target for target in targets if target is not None]
    if request.alone:
        under = layouts.swept(deployment, speeds=speeds)
        return iso_interactivity(under, [target or 0.0 for target in targets])
    serving = layouts.serving_of(deployment, request, [1 / speed for speed in speeds])
    best = [serving.best(None if target is None else 1 / target) for target in targets]
    return [None if one is None else one.output_tok_s_per_gpu for one in best]


def size_under_other(found: Size, priced: Deployment, request: SizeRequest) -> OtherRecipe | None:
    """Return what the other recipe would bring for the same demand, one layout a pool, where that is much."""
    from cost.serving.sizing import size as sized

    tpot_s = found.demand.tpot_s

    def price(other: Deployment) -> Iterator[tuple[float, float, float | None, int]]:
        then = sized(other, found.demand, lengths=found.lengths, levels=False)
        yield found.tok_s_per_gpu, then.tok_s_per_gpu, None if tpot_s is None else 1 / tpot_s, then.gpus

    return next(_gains(request, [priced], price), None)
