"""Layouts close to that of a plan: other widths, stages and copies, with experts placed by the fast path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cost.experts.assignment import Assignment
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.memory.batches import batch_of, whole_batch
from cost.memory.stages import replica_memory
from placement.arrays import Ints
from placement.experts.placing import Known, place_stages
from placement.layouts.fitting import Fitting, batch_that_fits, fitted, stage_slots
from placement.layouts.partition import equal_ranges, stage_specs
from placement.layouts.shapes import Shape, enumerate_shapes
from placement.options import PlanOptions
from placement.plan import Plan
from topology.base.errors import InfeasibleError, InputError

PlacedLayout = tuple[Layout, Sequence[Assignment | None]]


class _Widths(NamedTuple):
    """What tells layouts apart."""

    ep: int
    tp: int
    stages: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[int]], tp: int) -> _Widths:
        return cls(max(map(len, groups)), tp, len(groups))


def other_widths(plan: Plan) -> Iterator[tuple[str, str, int, PlacedLayout | str]]:
    """Yield the next smaller and larger EP width, TP width and number of stages, otherwise as in the plan.

    Each as its name, the attribute of a layout that it is, its value, and the layout with its experts, or why it
    cannot be. More stages on as many GPUs of a replica leave fewer to each.
    """
    layout, cut = plan.layout, plan.layout.moe_tp > 1
    if layout.apart is not None:
        return  # other ratios are compared by a plan
    base = _Widths.of([stage.gpus for stage in layout.replicas[0]], layout.tp)
    shapes: dict[_Widths, Shape] = {}
    for shape in enumerate_shapes(plan.deployment, cut_experts=cut):
        if (shape.moe_tp > 1) == cut:
            shapes.setdefault(_Widths.of(shape.replicas[0], shape.tp), shape)
    rows: list[tuple[str, str, list[_Widths]]] = []
    if plan.deployment.model.moe is not None and not cut:
        rows.append(("EP width", "ep", [w for w in shapes if (w.tp, w.stages) == (base.tp, base.stages)]))
        rows.append(("TP width", "tp", [w for w in shapes if (w.ep, w.stages) == (base.ep, base.stages)]))
        staged = [w for w in shapes if w.tp == base.tp]
    else:
        rows.append(("TP width", "tp", [w for w in shapes if w.stages == base.stages]))
        staged = list(shapes)
    staged.sort(key=lambda w: (abs(w.ep * w.stages - base.ep * base.stages), -w.ep))
    by_stages = {w.stages: w for w in reversed(staged)}
    rows.append(("stages", "stages", list(by_stages.values())))
    for name, of, widths in rows:
        value = getattr(base, of)
        below = [w for w in widths if getattr(w, of) < value]
        above = [w for w in widths if getattr(w, of) > value]
        nearest = [max(below, key=lambda w: getattr(w, of))] if below else []
        nearest += [min(above, key=lambda w: getattr(w, of))] if above else []
        for widths_of in nearest:
            yield name, of, getattr(widths_of, of), _placed(plan, shapes[widths_of])


def more_or_fewer_copies(plan: Plan) -> Iterator[tuple[int, int, PlacedLayout | str]]:
    """Yield one slot fewer and one more on each GPU: copies above one of each expert, the plan's, and the experts."""
    moe, layout = plan.deployment.model.moe, plan.layout
    slots = [part.slots for part in plan.experts if part is not None]
    if moe is None or not slots:
        return
    current = max(slots) - moe.experts
    for copies in (*([max(0, current - layout.ep)] if current else []), current + layout.ep):
        experts = placed_experts(plan, plan.deployment, layout, copies)
        yield copies, current, experts if isinstance(experts, str) else (layout, experts)


def placed_experts(
    plan: Plan, deployment: Deployment, layout: Layout, copies: int | None, known: Known | None = None
) -> Sequence[Assignment | None] | str:
    """Return the experts of any layout placed by the fast path, or why that is not possible.

    ``copies``: above one of each expert, None for the fewest that divide; ``known``: fast placements so far.
    """
    slots = stage_slots(deployment, Shape.of(layout), copies, plan.spread)
    return _too_many(plan) if slots is None else _experts(plan, deployment, layout, slots, known)


def _too_many(plan: Plan) -> str:
    where = "GPUs" if plan.spread == "gpu" else f"{plan.spread}s"
    return f"copies of an expert would not be in different {where}"


def _experts(
    plan: Plan, deployment: Deployment, layout: Layout, slots: Sequence[Ints], known: Known | None = None
) -> Sequence[Assignment | None]:
    if plan.loads is None or layout.moe_tp > 1:
        return [None] * layout.stages
    options = PlanOptions(
        time_limit_s=0.0,
        seed=plan.request.seed,
        spread=plan.spread,
        objective=plan.objective,
        split=plan.split,
    )
    return place_stages(deployment, layout, slots, plan.loads, options, thorough=False, known=known)[0]


def _placed(plan: Plan, shape: Shape) -> PlacedLayout | str:
    """Return a shape with its layers split and its experts placed, or why it cannot be."""
    deployment = plan.deployment
    slots = stage_slots(deployment, shape, plan.request.copies, plan.spread)
    if slots is None:
        return _too_many(plan)
    largest = batch_that_fits(deployment, shape, slots)
    if not largest:
        return _too_full(plan, shape, slots)
    try:
        batch = whole_batch(min(plan.score.batch, largest), shape.tp)
        fit = fitted(deployment.with_batch(batch), Fitting(shape, slots, largest))
    except (InputError, InfeasibleError) as error:
        return str(error)
    if fit is None:
        return _too_full(plan, shape, slots)
    return fit.layout, _experts(plan, deployment, fit.layout, slots)


def _too_full(plan: Plan, shape: Shape, slots: Sequence[Ints]) -> str:
    """Return how much HBM one sequence a group lacks."""
    groups = shape.replicas[0]
    stages = stage_specs(groups, equal_ranges(len(plan.deployment.model.layers), len(groups)))
    memories = replica_memory(plan.deployment, stages, slots=slots, **shape.widths)
    over = max(memory.used(batch_of(1, shape.tp)) - memory.usable for memory in memories)
    return f"does not fit HBM: {max(over, 0.0) / 1e9:,.1f} GB per GPU too few for one sequence a group"
