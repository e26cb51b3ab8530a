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

    for deployment in _under_other(request, priced):
        with suppress(InfeasibleError):
            for tok_s, other_tok_s, speed, gpus in price(deployment):
                gain = OtherRecipe.over(tok_s, other_tok_s, deployment, tok_s_per_user=speed, gpus=gpus)
                if gain is not None:
                    yield gain


def _under_other(
    request: CompareRequest | PlanRequest | SizeRequest, priced: Sequence[Deployment]
) -> Iterator[Deployment]:
    recipe: Recipe = "usual" if request.recipe == "checkpoint" else "checkpoint"
    sides = [deployment.cluster for deployment in priced]
    for deployment, side in zip(priced, sides, strict=True):
        with suppress(InputError):  # a length to accept, of drafts that it has not
            (model, _), *_ = inputs.shares_of(request.model)[0]
            changed = inputs.deployment_of(replace(request, recipe=recipe), model, side, *sides)
            if (changed.model.precision, changed.workload) != (
                deployment.model.precision,
                deployment.workload,
            ):
                yield changed


def other_recipe(plan: Plan, request: PlanRequest) -> list[OtherRecipe]:
    """Return what the recipe that is not in force would bring with the layout and the batch of a plan, if much.

    Of two pools nobody looks.
    """
    from placement.scoring import score_placement

    deployment, keys = plan.deployment, ("kv_dtype", "draft_tokens", "accept_length", "overlap")

    def price(changed: Deployment) -> Iterator[tuple[float, float, None, int]]:
        work = replace(deployment.workload, **{key: getattr(changed.workload, key) for key in keys})
        trial = replace(deployment, model=changed.model, workload=work, recipe=changed.recipe)
        score, _ = score_placement(trial, plan.layout, plan.experts, plan.loads, plan.split, plan.unlike)
        yield plan.score.tok_s_per_gpu, score.tok_s_per_gpu, None, plan.layout.gpus_used

    return list(_gains(request, [deployment] * (not plan.beside), price))


def recipes_compared(comparison: Comparison, request: CompareRequest) -> Iterator[OtherRecipe]:
    """Return what the other recipe would bring where that is much, experts taken as perfectly balanced."""

    def price(deployment: Deployment) -> Iterator[tuple[float, float, float | None, int]]:
        rows = [
            row for row in comparison.rows if row.cluster == deployment.cluster.name and row.tok_s_per_gpu
        ]
        targets = [row.target_tok_s_per_user for row in rows]
        for row, target, rate in zip(rows, targets, rates_at(deployment, request, targets), strict=True):
            if rate is not None:
                yield row.tok_s_per_gpu or 0.0, rate, target, row.gpus

    return _gains(request, comparison.deployments, price)


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
    return [None if match is None else match.output_tok_s_per_gpu for match in best]


def size_under_other(result: Size, priced: Deployment, request: SizeRequest) -> OtherRecipe | None:
    """Return what the other recipe would bring for the same demand, one layout a pool, where that is much."""
    from cost.serving.sizing import size as sized

    tpot_s = result.demand.tpot_s

    def price(deployment: Deployment) -> Iterator[tuple[float, float, float | None, int]]:
        changed = sized(deployment, result.demand, lengths=result.lengths, levels=False)
        yield (
            result.tok_s_per_gpu,
            changed.tok_s_per_gpu,
            None if tpot_s is None else 1 / tpot_s,
            changed.gpus,
        )

    return next(_gains(request, [priced], price), None)
