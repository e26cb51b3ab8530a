"""The layouts that fit: groups of GPUs, stages, replicas and tensor parallelism, slots by free HBM, largest batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cost.experts.use import ExpertUse, balanced_use
from cost.inputs.deployment import USABLE_HBM, Deployment
from cost.inputs.layout import CutReplicas, Layout
from cost.layouts.candidates import Arrangement, candidates, widths_of
from cost.layouts.idle_gpus import arranged_in
from cost.layouts.stages import Pricer
from cost.model import Model, MoeFfn
from cost.step.memory import StageMemory, replica_memory, weight_sizes
from cost.step.score import LayoutScorer
from placement.arrays import Floats, Ints
from placement.experts.failure_domains import domain_name, require_apart, stage_domains
from placement.experts.problem import spread_slots
from placement.options import Spread
from placement.partition import equal_ranges, largest_batch, split_layers, stage_specs
from placement.scoring import stage_speed
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.units import added, plural
from topology.cluster import Cluster

TP_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Widths of tensor parallelism that engines take."""


@dataclass(frozen=True)
class Shape:
    """A layout before its layers are split: for each replica, the GPUs of each of its stages in order.

    ``alike`` is as of :class:`cost.inputs.layout.CutReplicas`; empty where nobody has looked. ``what``: the
    arrangement that it is of, None where it is of none.
    """

    replicas: tuple[tuple[tuple[int, ...], ...], ...]
    tp: int
    alike: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    what: Arrangement | None = field(default=None, compare=False, repr=False)

    def split(self, ranges: Sequence[range]) -> Layout:
        """Return the layout whose stages have these layers."""
        if self.alike:
            return Layout(CutReplicas(self.replicas, ranges, self.alike), self.tp)
        return Layout(tuple(stage_specs(groups, ranges) for groups in self.replicas), self.tp)


def enumerate_shapes(cluster: Cluster, model: Model) -> Iterator[Shape]:
    """Yield groups in the order of the cluster (:func:`cost.layouts.candidates.candidates`), at widths of plans."""
    yield from _shapes(model, candidates(cluster, model).always)


def shapes_of(deployment: Deployment, redundant: int | None) -> Iterator[Shape]:
    """Yield the sweep's arrangements at widths that plans may have; domains that differ come in better orders too."""
    yield from _shapes(deployment.model, arranged_in(Pricer(deployment, redundant), alone=False))


def _shapes(model: Model, what: Iterable[Arrangement]) -> Iterator[Shape]:
    for one in what:
        widths, _ = widths_of(model, one, cut_experts=False)
        yield from (Shape(one.replicas, tp, one.alike, one) for tp in widths if tp in TP_WIDTHS)


def gpu_hbm_bytes(deployment: Deployment, gpus: Sequence[int]) -> Floats:
    """Return the HBM capacity of each GPU, float64 ``[gpus]``, as its driver reports it."""
    cluster = deployment.cluster
    return np.array([cluster.domain_of(gpu).gpu.hbm_bytes for gpu in gpus])


def slots_of_stage(
    deployment: Deployment,
    groups: Sequence[tuple[int, ...]],
    ranges: Sequence[range],
    stage: int,
    *,
    redundant: int | None,
    equal: bool = False,
) -> Ints:
    """Return the slots of each GPU of one stage of a replica, int64 ``[gpus]``.

    GPUs with equal HBM get equally many, the first ones more of what does not divide; so do all with ``equal``.
    Else, where HBM differs, each slot goes where most of it is left, which leaves room for the largest batch.

    Raises
    ------
    InputError
        If there are fewer slots than experts, or a GPU would have more.
    """
    moe = deployment.model.moe
    if moe is None:
        return np.zeros(len(groups[stage]), dtype=np.int64)
    gpus = groups[stage]
    alike = spread_slots(moe.experts, len(gpus), redundant)
    if equal or not deployment.shared.hbm_differs:
        return alike
    capacity = gpu_hbm_bytes(deployment, gpus)
    if (capacity == capacity[0]).all():
        return alike
    kinds = deployment.model.kind_counts(ranges[stage])
    size = weight_sizes(deployment.model)
    per_slot = added(
        float(count) * layer.ffn.expert_params * size["experts"]
        for layer, count in kinds
        if isinstance(layer.ffn, MoeFfn)
    )
    # what a GPU holds besides is as much on each, and changes no order
    return slots_by_free_hbm(USABLE_HBM * capacity, per_slot, total=int(alike.sum()), most=moe.experts)


def slots_by_free_hbm(free_bytes: Floats, bytes_per_slot: float, *, total: int, most: int) -> Ints:
    """Give each of ``total`` slots to the GPU with most bytes left after it: int64 ``[gpus]``, at most ``most`` each.

    What is left on the fullest GPU is then as much as it can be. Ties go to the first GPU.
    """
    left = free_bytes[:, None] - bytes_per_slot * np.arange(1, most + 1)
    order = np.argsort(-left, axis=None, kind="stable")[:total]
    return np.bincount(order // most, minlength=free_bytes.size)


@dataclass(frozen=True)
class Fitting:
    """A shape that fits: the slots of each GPU of each stage, and the largest batch."""

    shape: Shape
    slots: tuple[Ints, ...]
    max_batch: int


@dataclass(frozen=True, eq=False)
class Fitted:
    """A layout that fits at ``batch``: the user's, or the largest.

    ``scorer`` scores it as if its experts were perfectly balanced. ``fixed``: the batch is not ours to lower.
    ``shape`` is what was split, replicas that are left out of the layout too.
    """

    layout: Layout
    slots: tuple[Ints, ...]
    scorer: LayoutScorer
    batch: int
    fixed: bool
    shape: Shape | None = None


def stage_slots(
    deployment: Deployment,
    shape: Shape,
    redundant: int | None,
    spread: Spread = "gpu",
    *,
    equal: bool = False,
) -> tuple[Ints, ...] | None:
    """Return the slots of each GPU of each stage, ``[gpus]`` each; None where the shape cannot hold them.

    ``spread``: the failure domains that copies are spread over. ``equal``: as
    :func:`placement.fitting.slots_of_stage` takes it.
    """
    moe = deployment.model.moe
    groups = shape.replicas[0]
    ranges = equal_ranges(len(deployment.model.layers), len(groups))
    try:
        slots = tuple(
            slots_of_stage(deployment, groups, ranges, stage, redundant=redundant, equal=equal)
            for stage in range(len(groups))
        )
        if moe is not None and spread != "gpu":
            for members, row in zip(zip(*shape.replicas, strict=True), slots, strict=True):
                # left to a rule, copies are as many as lie in different failure domains: one of each always does
                domains = stage_domains(deployment, members, spread)
                require_apart(moe.experts, row, domains, once=redundant is None)
    except InputError:
        return None
    except InfeasibleError:
        return stage_slots(deployment, shape, 0, spread, equal=equal) if redundant is None else None
    return slots


def fitting_shapes(
    deployment: Deployment,
    redundant: int | None,
    spread: Spread = "gpu",
    arranged: Iterable[Arrangement] | None = None,
) -> Iterator[Fitting]:
    """Yield the shapes of which at least batch 1 fits in HBM; where HBM differs, with equal slots and by free HBM.

    ``arranged``: what they are of; None: of the sweep's arrangements.
    """
    shapes = shapes_of(deployment, redundant) if arranged is None else _shapes(deployment.model, arranged)
    for shape in shapes:
        found: dict[tuple[bytes, ...], None] = {}
        for equal in (True, False) if deployment.shared.hbm_differs else (True,):
            slots = stage_slots(deployment, shape, redundant, spread, equal=equal)
            if slots is None or (key := tuple(row.tobytes() for row in slots)) in found:
                continue
            found[key] = None
            batch = batch_that_fits(deployment, shape, slots)
            if batch >= 1:
                yield Fitting(shape, slots, batch)


def batch_that_fits(deployment: Deployment, shape: Shape, slots: Sequence[Ints]) -> int:
    """Return the largest batch for which the layers can be split so that every replica fits in HBM; 0 where none."""
    return min(
        largest_batch(deployment.with_batch(1), groups, tp=shape.tp, slots=slots)
        for groups in _kinds_of_replicas(deployment, shape)
    )


def _kinds_of_replicas(deployment: Deployment, shape: Shape) -> Iterable[tuple[tuple[int, ...], ...]]:
    """Return one replica of each kind of HBM that it lies on."""
    if not deployment.shared.hbm_differs:
        return shape.replicas[:1]
    kinds = {
        tuple(gpu_hbm_bytes(deployment, group).tobytes() for group in groups): groups
        for groups in reversed(shape.replicas)
    }
    return kinds.values()


def tightest(
    deployment: Deployment, redundant: int | None, spread: Spread = "gpu"
) -> tuple[Shape, StageMemory]:
    """Return the shape that comes nearest to fitting batch 1, and the memory of its fullest stage.

    Raises
    ------
    InputError
        If no shape can hold the experts at all.
    InfeasibleError
        If none can with the copies of each expert spread over failure domains.
    """
    layers = len(deployment.model.layers)
    best: tuple[float, Shape, StageMemory] | None = None
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        slots = stage_slots(deployment, shape, redundant, spread)
        if slots is None:
            continue
        groups = shape.replicas[0]
        stages = stage_specs(groups, equal_ranges(layers, len(groups)))
        memories = replica_memory(deployment, stages, tp=shape.tp, slots=slots)
        fullest = max(memories, key=lambda memory: memory.used(1) - memory.usable)
        over = fullest.used(1) - fullest.usable
        if best is None or over < best[0]:
            best = over, shape, fullest
    if best is None:
        moe = deployment.model.moe
        if spread != "gpu":
            _refuse_spread(deployment, redundant, spread)
        experts = moe.experts if moe else 0
        raise InputError(
            f"no group of {deployment.cluster.name}'s GPUs can hold "
            f"{plural(experts, 'expert')} and "
            f"{redundant} more copies without two copies of one on a GPU; give fewer.",
            field="redundant",
            value=redundant,
        )
    return best[1], best[2]


def _refuse_spread(deployment: Deployment, redundant: int | None, spread: Spread) -> None:
    """Raise InfeasibleError where some shape could hold the experts, if copies may share a failure domain."""
    moe = deployment.model.moe
    if moe is None:
        return
    names = {domain_name(gpu, spread) for gpu in deployment.cluster.gpus}
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        slots = stage_slots(deployment, shape, redundant)
        if slots is not None:
            for members, row in zip(zip(*shape.replicas, strict=True), slots, strict=True):
                domains = stage_domains(deployment, members, spread)
                word = (
                    f"{input_name('spread')} {spread} ({deployment.cluster.name} has {len(names)} "
                    f"{spread}{'s' * (len(names) > 1)})"
                )
                require_apart(moe.experts, row, domains, word)


def fitted_layouts(
    deployment: Deployment,
    redundant: int | None,
    spread: Spread = "gpu",
    arranged: Iterable[Arrangement] | None = None,
) -> list[Fitted]:
    """Return every layout that fits, its layers split, at the user's batch or else its largest.

    ``arranged``: what they are of; None: of the sweep's arrangements.
    """
    fitting = fitting_shapes(deployment, redundant, spread, arranged)
    found = (fitted(deployment, each) for each in fitting)
    return [fit for fit in found if fit is not None]


def fitted(
    deployment: Deployment, fitting: Fitting, ranges: tuple[range, ...] | None = None
) -> Fitted | None:
    """Return a shape with its layers split, at the user's batch or else its largest; None where that does not fit.

    ``ranges``: the split; None: the one whose slowest stage is fastest.
    """
    batch = deployment.workload.wanted_batch(fitting.max_batch)
    if batch > fitting.max_batch:
        return None
    shape, at_batch = fitting.shape, deployment.with_batch(batch)
    if ranges is None:
        try:
            ranges = split_layers(at_batch, shape.replicas[0], tp=shape.tp, slots=fitting.slots)
        except InfeasibleError:
            return None  # fits to within a rounded kibibyte only
    layout = shape.split(ranges)
    scorer = LayoutScorer(deployment, layout, balanced_uses(at_batch, layout, fitting.slots))
    if not 0 < batch <= scorer.max_batch:
        return None
    return Fitted(layout, fitting.slots, scorer, batch, bool(deployment.workload.batch), shape)


def split_otherwise(deployment: Deployment, fit: Fitted, ranges: tuple[range, ...]) -> Fitted | None:
    """Return the whole shape of ``fit`` with other layers on its stages; None where that does not fit.

    Raises
    ------
    InputError
        If nobody says what the shape is.
    """
    if fit.shape is None:
        raise InputError("another split: the layout has no shape that could be split.")
    layout = fit.shape.split(ranges)
    scorer = LayoutScorer(deployment, layout, balanced_uses(deployment, layout, fit.slots))
    batch = deployment.workload.wanted_batch(scorer.max_batch)
    if not 0 < batch <= scorer.max_batch:
        return None
    return Fitted(layout, fit.slots, scorer, batch, fit.fixed, fit.shape)


def balanced_uses(
    deployment: Deployment, layout: Layout, slots: Sequence[Ints]
) -> list[list[ExpertUse | None]]:
    """Return the uses of perfectly balanced experts, ``[replica][stage]``, for the slots of each stage."""
    moe = deployment.model.moe
    moe_layers = np.array(deployment.model.moe_layers)
    uses: list[ExpertUse | None] = []
    for stage, row in zip(layout.replicas[0], slots, strict=True):
        count = int(np.isin(moe_layers, list(stage.layers)).sum())
        use = None
        if isinstance(moe, MoeFfn) and count:
            use = balanced_use(count, row, moe.experts, moe.top_k, stage_speed(deployment, stage, row))
        uses.append(use)
    return [uses] * len(layout.replicas)
