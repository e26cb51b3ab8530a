"""Rows of results, for a frame of pandas: one table of what a row is of each kind of result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from topology.cluster import Cluster

Rows = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Columns by name, or a mapping a row."""


def rows_of(result: object) -> Rows | None:
    """Return the table of a result; None where it has none."""
    for kind, rows in _kinds().items():
        if isinstance(result, kind):
            return rows(result)
    return None


def _kinds() -> Mapping[type, Callable[[Any], Rows]]:
    """Return what makes the rows of each kind of result."""
    from placement.migrate.replan import Replanned
    from placement.plan import Plan
    from topology.cluster import Cluster

    return {
        Plan: _slots,
        Replanned: _moves,
        Cluster: _gpus,
    }


def _moves(found: Replanned) -> list[dict[str, Any]]:
    """Return a row for each move, in order: GPUs by their ids, no ``source`` where it comes from storage."""
    gpus = found.plan.deployment.cluster.gpus
    return [
        {
            "layer": step.layer,
            "expert": step.expert,
            "gpu": gpus[step.gpu].id,
            "slot": step.slot,
            "source": None if step.source is None else gpus[step.source].id,
            "replaces": step.replaces,
            "bytes": found.expert_bytes[step.layer],
        }
        for step in found.steps
    ]




def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an object of JSON fits a cell."""
    return {name: value for name, value in data.items() if not isinstance(value, Mapping | list | tuple)}


def _gpus(cluster: Cluster) -> list[dict[str, Any]]:
    """Return a row for each GPU that works: where it is, and its own figures."""
    return [
        {
            "gpu": gpu.id,
            "kind": cluster.domain_of(number).gpu.name,
            "domain": gpu.domain,
            "node": gpu.node,
            "rack": gpu.rack,
            "rail": gpu.rail,
            "hbm_bytes": cluster.domain_of(number).gpu.hbm_bytes,
            "hbm_bytes_per_s": cluster.domain_of(number).gpu.hbm_bytes_per_s,
            "scale_up_bytes_per_s": cluster.scale_up_bytes_per_s(number),
        }
        for number, gpu in enumerate(cluster.gpus)
    ]


def _slots(plan: Plan) -> dict[str, Any]:
    """Return a row for each slot: its layer, its GPU, its expert, and how many copies that has."""
    parts: list[tuple[Any, ...]] = []
    model, cluster = plan.deployment.model, plan.deployment.cluster
    ids = np.array([gpu.id for gpu in cluster.gpus])
    for stage, (place, experts) in enumerate(zip(plan.layout.replicas[0], plan.experts, strict=True)):
        if experts is None:
            continue
        layers = np.array([layer for layer in place.layers if layer in set(model.moe_layers)])
        rows, slots = experts.slot_expert.shape
        gpu = np.array(place.gpus)[experts.slot_gpu]
        copies = np.take_along_axis(experts.copies, experts.slot_expert.astype(np.int64), axis=1)
        parts.append(
            (
                np.full(rows * slots, stage),
                np.repeat(layers, slots),
                np.tile(np.arange(slots), rows),
                np.tile(ids[gpu], rows),
                experts.slot_expert.ravel(),
                copies.ravel(),
            )
        )
    names = ("stage", "layer", "slot", "gpu", "expert", "copies")
    return (
        {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}
        if parts
        else {name: [] for name in names}
    )
