"""Rows of results, for a frame of pandas: one table of what a row is of each kind of result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cost.experts.loads import ExpertLoads
    from cost.serving.result import Pools
    from cost.serving.sizes import Sizes
    from cost.serving.sizing import Size
    from placement.analysis.compare import CompareRow
    from placement.analysis.comparison import Comparison
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
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
    from cost.layouts import Sweep
    from cost.queueing.result import Simulated
    from cost.serving.result import Pools
    from cost.serving.sizes import Sizes
    from cost.serving.sizing import Size
    from cost.validation.validation import Validation
    from placement.analysis.comparison import Comparison
    from placement.analysis.levers import Levers
    from placement.fleet.fleet import Fleet
    from placement.online.replayed import Replayed
    from rackplan.studies.result import StudyResult
    from rackplan.views.data import json_data
    from rackplan.views.replay import replay_rows
    from rackplan.views.validate import points_of
    from topology.cluster import Cluster

    return {
        Comparison: lambda found: [_compared(found, row) for row in found.rows],
        Sweep: Sweep.columns,
        Pools: _matches,
        Size: _sizes,
        Sizes: _sizes,
        Fleet: _pools,
        Simulated: Simulated.columns,
        Replayed: replay_rows,
        Levers: _levers,
        Validation: lambda found: [json_data(row) for row in points_of(found)],
        StudyResult: lambda found: found.rows,
        Cluster: _gpus,
        ExpertLoads: _tokens,
    }


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


def _matches(pools: Pools) -> list[dict[str, Any]]:
    """Return a row for each way of serving that none beats in speed and in throughput."""
    from cost.serving.serving import way_of

    return [
        {
            "serving": way_of(row),
            "layouts": pools.serving.label(row),
            "prefill_gpus": row.prefill_gpus,
            "decode_gpus": row.decode_gpus,
            "requests_per_s": row.requests_per_s,
            "tok_s_per_user": row.tok_s_per_user,
            "output_tok_s_per_gpu": row.output_tok_s_per_gpu,
            "ttft_s": row.ttft_s,
        }
        for row in pools.serving.frontier()
    ]


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
