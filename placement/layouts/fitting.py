"""What fits: slots by free HBM, the largest batch, layers split for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from cost.experts.tokens.reach import ExpertUse, balanced_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.inputs.workload import Workload
from cost.layouts.candidates import Arrangement
from cost.memory.batches import batch_of, sequences_of
from cost.memory.budget import Ranks
from cost.memory.sizes import weight_sizes
from cost.model import MoeFfn
from cost.step.score import LayoutScorer
from placement.arrays import Floats, Ints
from placement.experts.failure_domains import require_apart, stage_domains
from placement.experts.problem import fewest_redundant, spread_slots
from placement.layouts.partition import equal_ranges, largest_batch, split_layers
from placement.layouts.shapes import Shape, arranged_shapes, shapes_of
from placement.options import Spread
from placement.scoring import stage_speed
from topology.base.errors import InfeasibleError, InputError


def gpu_usable_bytes(deployment: Deployment, gpus: Sequence[int]) -> Floats:
    """Return what an engine lets weights and cache fill of each GPU of a replica, float64 ``[gpus]``."""
    domain_of, ranks = deployment.cluster.domain_of, Ranks(1, 1, len(gpus))
    return np.array([deployment.budget_on(domain_of(gpu).gpu, ranks).usable for gpu in gpus])


def _slots_by_hbm(
    deployment: Deployment, gpus: Sequence[int], layers: range, experts: int, even: Ints
) -> Ints:
    """Return the slots of each GPU of a stage, ``[gpus]``: where HBM differs each goes where most of it is left.

    That leaves room for the largest batch. GPUs with equal HBM get equally many, as in ``even``.
    """
    capacity = gpu_usable_bytes(deployment, gpus)
    if (capacity == capacity[0]).all():
        return even
    model = deployment.model
    per_slot = model.slot_params(layers) * weight_sizes(model)["experts"]
    # what a GPU holds besides is as much on each, and changes no order
    return slots_by_free_hbm(capacity, per_slot, total=int(even.sum()), most=experts)


def slots_by_free_hbm(free_bytes: Floats, bytes_per_slot: float, *, total: int, most: int) -> Ints:
    """Give each of ``total`` slots to the GPU with most bytes left after it: int64 ``[gpus]``, at most ``most`` each.

    What is left on the fullest GPU is then as much as it can be. Ties go to the first GPU.
    """
    remaining = free_bytes[:, None] - bytes_per_slot * np.arange(1, most + 1)
    order = np.argsort(-remaining, axis=None, kind="stable")[:total]
    return np.bincount(order // most, minlength=free_bytes.size)


@dataclass(frozen=True)
class Fitting:
    """A shape that fits: the slots of each GPU of each stage, and the largest batch."""

    shape: Shape
    slots: tuple[Ints, ...]
    max_batch: float


@dataclass(frozen=True, eq=False)
class Fitted:
    """A layout that fits at ``batch``: the user's, or the largest.

    ``scorer`` scores it as if its experts were perfectly balanced. ``fixed``: the batch is not ours to lower.
    ``shape`` is what was split, replicas that are left out of the layout too.
    """

    layout: Layout
    slots: tuple[Ints, ...]
    scorer: LayoutScorer
    batch: float
    fixed: bool
    shape: Shape | None = None

    @property
    def least_batch(self) -> float:
        """The batch that was asked for, or one sequence for each attention group."""
        return self.batch if self.fixed else batch_of(1, self.layout.group_gpus)


def stage_slots(
    deployment: Deployment,
    shape: Shape,
    redundant: int | None,
    spread: Spread = "gpu",
    *,
    equal: bool = False,
) -> tuple[Ints, ...] | None:
    """Return the slots of each GPU of each stage, int64 ``[gpus]`` each; None where the shape cannot hold them.

    None has a slot where there are no experts, or tensor parallelism cuts each into parts.

    Parameters
    ----------
    redundant:
        Extra copies of experts per layer; None: the fewest that divide (:func:`copies_of` has more).
    spread:
        The failure domains that copies are spread over.
    equal:
        GPUs get equally many, the first ones more of what does not divide; else by free HBM, where it differs.
    """
    moe = deployment.model.moe
    groups = shape.replicas[0]
    if moe is None or shape.moe_tp > 1:
        return tuple(np.zeros(len(gpus), dtype=np.int64) for gpus in groups)
    ranges = equal_ranges(len(deployment.model.layers), len(groups))
    try:
        slots = tuple(spread_slots(moe.experts, len(gpus), redundant) for gpus in groups)
        if deployment.shared.hbm_differs and not equal:
            slots = tuple(
                _slots_by_hbm(deployment, gpus, layers, moe.experts, even)
                for gpus, layers, even in zip(groups, ranges, slots, strict=True)
            )
        if spread != "gpu":
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
    *,
    cut_experts: bool = False,
) -> Iterator[Fitting]:
    """Yield the shapes that hold a sequence for each attention group; where HBM differs, with equal slots and by HBM.

    ``arranged``: what they are of; None: of the sweep's arrangements. ``cut_experts``: as of
    :func:`placement.layouts.shapes.arranged_shapes`.
    """
    shapes = (
        shapes_of(deployment, redundant, cut_experts=cut_experts)
        if arranged is None
        else arranged_shapes(deployment, arranged, cut_experts=cut_experts)
    )
    for shape in shapes:
        tried: dict[tuple[bytes, ...], None] = {}
        ways = (True, False) if deployment.shared.hbm_differs else (True,)
        for copies, equal in product(copies_of(deployment, shape, redundant), ways):
            slots = stage_slots(deployment, shape, copies, spread, equal=equal)
            if slots is None or (key := tuple(row.tobytes() for row in slots)) in tried:
                continue
            tried[key] = None
            batch = batch_that_fits(deployment, shape, slots)
            if batch:
                yield Fitting(shape, slots, batch)


def copies_of(deployment: Deployment, shape: Shape, redundant: int | None) -> tuple[int | None, ...]:
    """Return the numbers of extra copies a layer that a shape may have: as asked for, or the fewest and more slots.

    More slots on every GPU even out its load where it has few (:data:`FEW_SLOTS`), up to two copies of every expert.
    """
    moe, gpus = deployment.model.moe, len(shape.replicas[0][0])
    if redundant is not None or moe is None or shape.moe_tp > 1 or gpus == 1:
        return (redundant,)
    fewest = fewest_redundant(moe.experts, gpus)
    if (moe.experts + fewest) // gpus > FEW_SLOTS:
        return (None,)
    larger = (fewest + slots * gpus for slots in MORE_SLOTS)
    return None, *(count for count in larger if count <= moe.experts)


MORE_SLOTS, FEW_SLOTS = (1, 2), 6
"""Slots of a GPU above the fewest that a layout may have, and the most where more of them are worth a look: with
eight the default loads are balanced to 99 % without copies."""


def batch_that_fits(deployment: Deployment, shape: Shape, slots: Sequence[Ints]) -> float:
    """Return the largest batch for which the layers can be split so that every replica fits in HBM; 0 where none."""
    return min(
        largest_batch(deployment, groups, slots=slots, **shape.widths)
        for groups in _kinds_of_replicas(deployment, shape)
    )


def _kinds_of_replicas(deployment: Deployment, shape: Shape) -> Iterable[tuple[tuple[int, ...], ...]]:
    """Return one replica of each kind of HBM that it lies on."""
    if not deployment.shared.hbm_differs:
        return shape.replicas[:1]
    kinds = {
        tuple(gpu_usable_bytes(deployment, group).tobytes() for group in groups): groups
        for groups in reversed(shape.replicas)
    }
    return kinds.values()


def fitted_layouts(
    deployment: Deployment,
    redundant: int | None,
    spread: Spread = "gpu",
    arranged: Iterable[Arrangement] | None = None,
    *,
    cut_experts: bool = False,
) -> list[Fitted]:
    """Return every layout that fits, its layers split, at the user's batch or else its largest.

    Parameters as of :func:`fitting_shapes`.
    """
    fitting = fitting_shapes(deployment, redundant, spread, arranged, cut_experts=cut_experts)
    fits = (fitted(deployment, fit_of) for fit_of in fitting)
    return [fit for fit in fits if fit is not None]


def wanted_batch(workload: Workload, largest: float, tp: float) -> float:
    """Return the batch to use where ``largest`` fits groups of ``tp``: the one asked for, or the phase's own."""
    if workload.batch:
        return workload.batch
    return largest if workload.decodes else min(largest, batch_of(workload.prompts_at_once(), tp))


def fitted(
    deployment: Deployment, fitting: Fitting, ranges: tuple[range, ...] | None = None
) -> Fitted | None:
    """Return a shape with its layers split, at the user's batch or else its largest; None where that does not fit.

    ``ranges``: the split, at the largest batch that it leaves room for; None: the one whose slowest stage is fastest.
    """
    shape, at_batch, batch = fitting.shape, deployment, 0.0
    if ranges is None:
        batch = wanted_batch(deployment.workload, fitting.max_batch, shape.tp)
        if batch > fitting.max_batch:
            return None
        at_batch = deployment.with_batch(batch)
        try:
            ranges = split_layers(at_batch, shape.replicas[0], slots=fitting.slots, **shape.widths)
        except InfeasibleError:
            return None  # fits to within a rounded kibibyte only
    layout = shape.split(ranges)
    scorer = LayoutScorer(deployment, layout, balanced_uses(at_batch, layout, fitting.slots))
    batch = batch or wanted_batch(deployment.workload, scorer.max_batch, shape.tp)
    if not (sequences_of(batch, shape.tp) and batch <= scorer.max_batch):
        return None
    return Fitted(layout, fitting.slots, scorer, batch, bool(deployment.workload.batch), shape)


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
        if isinstance(moe, MoeFfn) and count and row.any():
            use = balanced_use(count, row, moe.experts, moe.top_k, stage_speed(deployment, stage, row))
        uses.append(use)
    return [uses] * len(layout.replicas)
