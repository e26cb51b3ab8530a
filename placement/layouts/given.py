"""A layout of given widths over a whole cluster, as if its experts were perfectly balanced."""

from __future__ import annotations

from cost.inputs.deployment import Deployment
from cost.layouts.candidates import arrangement_of, domain_gpus, equal_groups, replicas_of, widths_of
from cost.layouts.contexts import given_context
from placement.layouts.fitting import Fitted, Fitting, batch_that_fits, fitted, stage_slots
from placement.layouts.shapes import Shape
from topology.base.errors import InfeasibleError, InputError, input_name


def given_layout(
    deployment: Deployment,
    ep: int | None = None,
    tp: int | None = None,
    stages: int | None = None,
    *,
    redundant: int | None = None,
) -> Fitted:
    """Return the layout with groups of ``ep`` GPUs, ``stages`` of them a replica, as many replicas as fit.

    What is not given: one stage, experts over all GPUs of it, attention on each alone; of a dense model one GPU.

    Raises
    ------
    InputError
        If the cluster or the model has no such groups, stages, widths or copies of experts.
    InfeasibleError
        If the batch of the deployment, or one sequence a group, does not fit.
    """
    cluster, model, batch = deployment.cluster, deployment.model, deployment.workload.batch
    moe, stages = model.moe is not None, stages or 1
    if not 1 <= stages <= len(model.layers):
        raise InputError(
            f"{model.name} has {len(model.layers)} layers; expected 1 to {len(model.layers)} stages.",
            field="stages",
            value=stages,
        )
    if ep is None:
        ep = len(cluster.gpus) // stages if moe else tp or 1
    groups = equal_groups(domain_gpus(cluster), ep) if ep >= 1 else []
    if len(groups) < stages:
        raise InputError(
            f"{input_name('ep')} {ep}, {input_name('stages')} {stages}: {cluster.name} has no {stages} "
            f"groups of {ep} GPUs."
        )
    arrangement = arrangement_of(cluster, replicas_of(groups, stages))
    widths, _ = widths_of(model, arrangement, cut_experts=False)
    tp = tp or (1 if moe else ep)
    if tp not in widths:
        able = (
            f"possible widths are {', '.join(map(str, widths))}" if widths else "no width divides its heads"
        )
        raise InputError(f"for {model.name} in groups of {ep} GPUs {able}.", field="tp", value=tp)
    context = given_context(deployment, tp)
    shape = Shape(arrangement.replicas, tp, 1, *context, arrangement.alike, arrangement)
    slots = stage_slots(deployment, shape, redundant)
    if slots is None:
        raise InputError(
            f"{ep} GPUs cannot divide that many slots evenly.", field="redundant", value=redundant or 0
        )
    largest = batch_that_fits(deployment, shape, slots)
    fit = fitted(deployment, Fitting(shape, slots, largest)) if largest else None
    if fit is None:
        request = f"{input_name('batch')} {batch}" if batch else "one sequence a group"
        raise InfeasibleError(
            f"HBM capacity binds: {request} of {model.name} does not fit on {cluster.name} in this layout; the "
            f"largest batch that fits is {largest}."
        )
    return fit
