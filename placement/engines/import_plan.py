"""Import an engine's placement as a plan: mapped to a cluster, scored, bounded and compared with the baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts.contexts import given_context
from cost.memory.batches import batch_of
from placement.analysis.failures import find_failures
from placement.engines.mapping import ExpertMapping, experts_of
from placement.layouts.choose import batch_within
from placement.layouts.fitting import batch_that_fits, wanted_batch
from placement.layouts.goals import usual_words
from placement.layouts.partition import split_layers, stage_specs
from placement.layouts.shapes import Shape, enumerate_shapes
from placement.options import PlanOptions
from placement.plan import Plan
from placement.scoring import ExpertPlacement, placement_proof, placement_scorer, score_rivals
from placement.verify import verify_plan
from topology.base.errors import InfeasibleError, InputError, called, input_name


def default_ranks(deployment: Deployment, options: PlanOptions) -> int:
    """Return the GPUs of an EP group: as asked, else all of the cluster over the stages.

    Raises
    ------
    InputError
        If the cluster has fewer GPUs than that, or the tensor-parallel width does not divide them.
    """
    gpus, stages = len(deployment.cluster.gpus), options.stages or 1
    ranks = options.ep or max(1, gpus // stages)
    if ranks * stages > gpus:
        raise InputError(
            f"{input_name('ep')} {ranks} with {stages} stage{'s' * (stages > 1)} takes {ranks * stages} GPUs, "
            f"{deployment.cluster.name} has {gpus}."
        )
    if ranks % (options.tp or 1):
        raise InputError(
            f"does not divide the {ranks} GPUs of an EP group ({input_name('ep')}).",
            field="tp",
            value=options.tp,
        )
    return ranks


def imported_plan(
    deployment: Deployment, mapping: ExpertMapping, loads: ExpertLoads, options: PlanOptions, note: str
) -> Plan:
    """Return a verified plan with the experts of ``mapping``.

    Parameters
    ----------
    options:
        ``ep``, ``tp``, ``stages``, ``split`` and ``objective`` count; the rest says how nothing was searched.
    note:
        Where the mapping came from.

    Raises
    ------
    InputError
        If the cluster has no such layout, or a GPU holds more slots than there are experts.
    InfeasibleError
        If the weights, or the batch asked for, do not fit in HBM.
    """
    shape = _shape(deployment, mapping.ranks, options.stages or 1, options.tp or 1)
    level = options.service_level(deployment.workload)
    deployment, layout = _laid_out(deployment, mapping, shape)
    placed = ExpertPlacement(
        deployment, layout, experts_of(mapping, layout), loads, options.split, objective=options.objective
    )
    held, limit_s = "", level.limit_s
    if level.usual:
        scorer, _ = placement_scorer(placed)
        batch = batch_within(scorer, deployment.workload.batch, level.limit_s)
        fastest_s = scorer.at(batch_of(1, layout.tp)).tpot_s
        held = f"as imported, {usual_words(fastest_s, held=bool(batch))} (default; {called('batch')})"
        limit_s = limit_s if batch else None
        placed = replace(placed, deployment=deployment.with_batch(batch or deployment.workload.batch))
    scorer, balancedness = placement_scorer(placed)
    notes = [note, "no search, the placement is from the file", *loads.notes]
    doubled = mapping.doubled()
    if doubled:
        layer, rank, expert = doubled[0]
        notes.append(
            f"{len(doubled)} times a GPU holds the same expert twice (first: layer {layer}, rank {rank}, "
            f"expert {expert}), which does not help when it fails"
        )
    plan = Plan(
        deployment=placed.deployment,
        layout=layout,
        experts=experts_of(mapping, layout),
        loads=loads,
        score=scorer.at(placed.deployment.workload.batch),
        balancedness=balancedness,
        proof=placement_proof(placed),
        baselines=score_rivals(placed),
        notes=tuple(notes),
        service_level=held,
        limit_s=limit_s,
        request=replace(options, ep=mapping.ranks),
        origin="imported",
    )
    violations = verify_plan(plan)
    if violations:
        raise InputError(f"{note}: {violations[0]}.")
    return replace(plan, failures=find_failures(plan))


def _shape(deployment: Deployment, ranks: int, stages: int, tp: int) -> Shape:
    """Return the layout that the planner would use for such groups; else consecutive GPUs."""
    for shape in enumerate_shapes(deployment):
        groups = shape.replicas[0]
        if shape.tp == tp and len(groups) == stages and all(len(group) == ranks for group in groups):
            return shape
    count = len(deployment.cluster.gpus) // (ranks * stages)
    gpus = np.arange(count * stages * ranks).reshape(count, stages, ranks).tolist()
    groups_of = tuple(tuple(tuple(group) for group in replica) for replica in gpus)
    return Shape(groups_of, tp, 1, *given_context(deployment, tp))


def _laid_out(deployment: Deployment, mapping: ExpertMapping, shape: Shape) -> tuple[Deployment, Layout]:
    """Return the deployment at the batch asked for, or the largest, and the layers on the groups of ``shape``."""
    groups = shape.replicas[0]
    slots = [np.full(mapping.ranks, mapping.slots_per_rank, dtype=np.int64) for _ in groups]
    largest = batch_that_fits(deployment, shape, slots)
    batch = wanted_batch(deployment.workload, largest, shape.tp)
    if not largest:
        raise InfeasibleError(
            f"HBM capacity binds: {deployment.model.name} with {mapping.slots_per_rank} slots per layer on "
            f"each of {mapping.ranks} GPUs of {deployment.cluster.name} does not fit even one sequence a group; give "
            f"{input_name('stages')}, a larger {input_name('ep')} on more GPUs, a smaller "
            f"{input_name('weights')} or a shorter {input_name('context')}."
        )
    if batch > largest:
        raise InfeasibleError(
            f"HBM capacity binds: {input_name('batch')} {batch:,.9g} does not fit; the largest that fits is "
            f"{largest:,.9g} sequences per GPU."
        )
    deployment = deployment.with_batch(batch)
    ranges = split_layers(deployment, groups, slots=slots, **shape.widths)
    return deployment, Layout(
        tuple(tuple(stage_specs(members, ranges)) for members in shape.replicas), **shape.widths
    )
