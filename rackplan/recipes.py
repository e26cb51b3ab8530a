"""What the recipe that is not in force would bring: to a plan, to clusters compared, to a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rackplan import inputs, layouts
from rackplan.requests import CompareRequest, PlanRequest, SizeRequest
from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.recipe import OtherRecipe
    from cost.serving.sizing import Size
    from placement.analysis.comparison import Comparison
    from placement.plan import Plan


def other_recipe(plan: Plan, request: PlanRequest) -> list[OtherRecipe]:
    """Return what the recipe that is not in force would bring with the layout and the batch of a plan, if much.

    Of two pools nobody looks.
    """
    from cost.recipe import OtherRecipe
    from placement.scoring import score_placement

    now, gains = plan.deployment, []
    for other in inputs.under_other_recipe(request, request.model, [now] * (plan.prefill is None)):
        keys = ("kv_dtype", "draft_tokens", "accept_length", "overlap")
        work = replace(now.workload, **{key: getattr(other.workload, key) for key in keys})
        then = replace(now, model=other.model, workload=work, recipe=other.recipe)
        try:
            score, _ = score_placement(then, plan.layout, plan.experts, plan.loads, plan.split, plan.unlike)
        except InfeasibleError:
            continue
        rates = (plan.score.tok_s_per_gpu, score.tok_s_per_gpu)
        gains.append(OtherRecipe.over(*rates, then, tok_s_per_user=None, gpus=plan.layout.gpus_used))
    return [gain for gain in gains if gain is not None]


def recipes_compared(found: Comparison, request: CompareRequest) -> Iterator[OtherRecipe]:
    """Yield what the other recipe would bring where that is much, experts taken as perfectly balanced."""
    from cost.recipe import OtherRecipe

    for other in inputs.under_other_recipe(request, request.model, found.deployments):
        rows = [row for row in found.rows if row.cluster == other.cluster.name and row.tok_s_per_gpu]
        targets = [row.target_tok_s_per_user for row in rows]
        try:
            rates = rates_at(other, request, targets)
        except InfeasibleError:
            continue
        for row, target, rate in zip(rows, targets, rates, strict=True):
            if rate is not None and row.tok_s_per_gpu is not None:
                both = row.tok_s_per_gpu, rate
                gain = OtherRecipe.over(*both, other, tok_s_per_user=target, gpus=row.gpus)
                yield from filter(None, [gain])


def rates_at(
    deployment: Deployment, request: CompareRequest, targets: Sequence[float | None]
) -> list[float | None]:
    """Return the most tok/s/GPU at each speed per user; None where nothing is as fast."""
    from cost.layouts import best_at

    speeds = [target for target in targets if target is not None]
    if request.alone:
        under = layouts.swept(deployment, speeds=speeds)
        found = [int(under.frontier()[0]) if target is None else best_at(under, target) for target in targets]
        return [None if at is None else float(under.tok_s_per_gpu[at]) for at in found]
    serving = layouts.serving_of(deployment, request, [1 / speed for speed in speeds])
    best = [serving.best(None if target is None else 1 / target) for target in targets]
    return [None if one is None else one.output_tok_s_per_gpu for one in best]


def size_under_other(found: Size, priced: Deployment, request: SizeRequest) -> OtherRecipe | None:
    """Return what the other recipe would bring for the same demand, one layout a pool, where that is much."""
    from cost.recipe import OtherRecipe
    from cost.serving.sizing import size as sized

    other = next(inputs.under_other_recipe(request, request.model, [priced]), None)
    if other is None:
        return None
    try:
        then = sized(other, found.demand, lengths=found.lengths, levels=False)
    except InfeasibleError:
        return None
    tpot_s = found.demand.tpot_s
    speed = None if tpot_s is None else 1 / tpot_s
    rates = found.tok_s_per_gpu, then.tok_s_per_gpu
    return OtherRecipe.over(*rates, other, tok_s_per_user=speed, gpus=then.gpus)
