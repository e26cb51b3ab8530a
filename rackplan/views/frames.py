"""Rows of results, for a frame of pandas: one table of what a row is of each kind of result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cost.experts.loads import ExpertLoads
    from cost.serving.sizes import Sizes
    from cost.serving.sizing import Size
    from placement.analysis.compare import CompareRow
    from placement.analysis.comparison import Comparison
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
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
    from cost.experts.loads import ExpertLoads
    from cost.serving.sizes import Sizes
    from cost.serving.sizing import Size
    from cost.validation.validation import Validation
    from placement.analysis.comparison import Comparison
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
    from placement.migrate.replan import Replanned
    from placement.online.replayed import Replayed
    from placement.plan import Plan
    from rackplan.studies.result import StudyResult
    from rackplan.views.data import json_data
    from rackplan.views.replay import replay_rows
    from rackplan.views.validate import points_of
    from topology.cluster import Cluster

    return {
        Plan: _slots,
        Replanned: _moves,
        Comparison: lambda found: [_compared(found, row) for row in found.rows],
        Size: _sizes,
        Sizes: _sizes,
        Fleet: _pools,
        Replayed: replay_rows,
        Levers: _levers,
        Validation: lambda found: [json_data(row) for row in points_of(found)],
        StudyResult: lambda found: found.rows,
        Cluster: _gpus,
        ExpertLoads: _tokens,
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


def _compared(compared: Comparison, row: CompareRow) -> dict[str, Any]:
    totals = compared.totals(row)
    figures = {one.name: getattr(row, one.name) for one in fields(row) if one.name not in ("errors", "score")}
    return figures | {
        "tok_s": totals.tok_s,
        "usd_per_h": totals.usd_per_hour,
        "power_w": totals.power_w,
        "usd_per_million_tokens": totals.usd_per_million_tokens,
        "tok_s_per_mw": totals.tok_s_per_mw,
    }


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an object of JSON fits a cell."""
    return {name: value for name, value in data.items() if not isinstance(value, Mapping | list | tuple)}


def _sizes(found: Size | Sizes) -> list[dict[str, Any]]:
    """Return a row for each cluster: what ``--json`` has in one figure or word, and what is missing and why."""
    from rackplan.views.size import size_view

    data = size_view(found).data
    return [{**_plain(one), "missing": " ".join(one["missing"])} for one in data.get("clusters", [data])]


def _pools(found: Fleet) -> list[dict[str, Any]]:
    """Return a row for each pool."""
    from rackplan.views.fleet import fleet_view

    pools = fleet_view(found, {}).data["pools"]
    return [_plain(one) | {"replicas": len(one["replicas"])} for one in pools]


def _levers(found: Levers) -> list[dict[str, Any]]:
    """Return a row for each lever: what it brings as the layout is kept."""
    return [
        {
            "lever": row.name,
            "kind": row.kind,
            "change": row.change,
            "to": row.to,
            "gain": row.gain if row.gain > -1 else None,
        }
        for row in found.rows
    ]


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


def _tokens(loads: ExpertLoads) -> dict[str, Any]:
    """Return a row for each expert of each MoE layer in each scenario: its tokens."""
    scenario, layer, expert = (index.ravel() for index in np.indices(loads.tokens.shape))
    names = np.array(loads.names)[scenario]
    return {"scenario": names, "moe_layer": layer, "expert": expert, "tokens": loads.tokens.ravel()}


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
