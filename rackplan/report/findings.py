"""What is found about each pool of a plan, as rows: step, memory, balance, failures, copies, token traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cost.inputs.layout import StageSpec
from cost.terms.work import COMPUTE, FIXED, HBM, IMBALANCE
from placement.analysis.evidence import term_evidence
from placement.analysis.peaks import at_peaks
from placement.plan import BaselineScore, Plan
from placement.plans.findings import WhatIf
from rackplan.report import notes
from rackplan.report.doc import Row, Table
from rackplan.report.shared import name_of
from topology.base.units import added, mean_of

_REACH = "domains_per_token nodes_per_token gpus_per_token"
_SENT = "scale_up_bytes_per_step scale_out_bytes_per_step"
_LOST = "tok_s_per_gpu balancedness tokens_lost"
_RESOURCES = {COMPUTE: "compute_s", HBM: "hbm_s", FIXED: "fixed_s", IMBALANCE: "stage_wait_s"}
_MIN_BINDING_SHARE = 0.05
"""Part of a time from which a resource is named among those that bind it."""
Rows = Iterable[Row]


def largest_first(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the parts above zero, the largest first."""
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda item: -item[1])


def _parts(plan: Plan) -> Rows:
    """Yield the parts of the step, the largest first, each by what bounds it."""
    score, peaks, out = plan.score, at_peaks(plan), plan.deployment.cluster.spec.scale_out
    known = _RESOURCES | ({} if out is None else {out.fabric.name: "scale_out_s"})
    for name, seconds in largest_first(score.terms_s):
        limits = score.bounds_of(name)
        row: dict[str, Any] = dict.fromkeys([*_RESOURCES.values(), "scale_up_s", "scale_out_s"], 0.0)
        for limit, bound_s in limits.items():
            row[known.get(limit, "scale_up_s")] += bound_s
        row["bound_by"] = ", ".join(limit for limit, s in limits.items() if s >= _MIN_BINDING_SHARE * seconds)
        row["evidence"] = None if (kind := term_evidence(plan, name)) is None else kind.label
        share, peak_s = seconds / score.step_s, peaks.terms_s.get(name, 0.0)
        yield row | {"part": name_of(name), "step_s": seconds, "step_share": share, "peak_s": peak_s}


def _limits(plan: Plan) -> Rows:
    """Yield the resources that the step waits for, the most first, then those that are busy beside it."""
    score = plan.score
    for name in dict.fromkeys([*(name for name, _ in largest_first(score.limits_s)), *score.floor_s]):
        seconds, floor_s = score.limits_s.get(name, 0.0), score.floor_s.get(name, 0.0)
        yield {"resource": name, "step_s": seconds, "step_share": seconds / score.step_s, "floor_s": floor_s}


def _memory(plan: Plan) -> Rows:
    total = added(plan.score.hbm_bytes.values())
    for name, amount in plan.score.hbm_bytes.items():
        yield {"use": name_of(name), "bytes": amount, "memory_share": amount / total}


def replicas(plan: Plan) -> Rows:
    """Yield the GPUs of each stage of each replica, and what they do: with attention apart those of both pools."""
    gpus, role = plan.deployment.cluster.gpus, plan.role
    for replica, stages in enumerate(plan.layout.replicas):
        held = [(name, 0, stage) for name, stage in plan.layout.pools_of(replica)]
        for name, number, stage in held or [(role, number, stage) for number, stage in enumerate(stages)]:
            ids = [gpus[gpu].id for gpu in stage.gpus]
            yield {"replica": replica, "role": name, "stage": number, "gpu_ids": ids, **_layers(stage)}


def _pipeline(plan: Plan) -> Rows:
    """Yield the stages of the first replica with what each hands on; nothing where there is one."""
    stages, cluster = plan.layout.replicas[0], plan.deployment.cluster
    hops = notes.plan_hops(plan) if len(stages) > 1 else ()
    for number, (stage, hop) in enumerate(zip(stages, hops, strict=False)):
        row = {
            "stage": number,
            "to_stage": (number + 1) % len(stages),
            "domain": notes.domain_words(cluster, stage),
        }
        yield {**vars(hop), **row, **_layers(stage), "gpus": len(stage.gpus)}


def _layers(stage: StageSpec) -> Row:
    return {"first_layer": stage.layers.start, "last_layer": stage.layers.stop - 1}


def _baselines(plan: Plan) -> Rows:
    origin = "imported" if plan.origin == "imported" else "rackplan"
    planned = {origin: BaselineScore("", plan.balancedness, plan.score)} if plan.balancedness else {}
    for name, entry in {**planned, **plan.baselines}.items():
        layers = list(entry.balancedness.values())
        balance = {
            "balancedness": mean_of(layers) if layers else None,
            "balancedness_worst": min(layers, default=None),
        }
        gives = {key: getattr(entry.score, key, None) for key in ("step_s", "tok_s_per_gpu")}
        yield {"placement": notes.baseline_name(name), "reason": entry.reason, **balance, **gives}


def _lost(plan: Plan) -> tuple[WhatIf, ...]:
    return plan.failures.what_if if plan.failures else ()


def _losses(plan: Plan) -> Rows:
    keys = ("name", *_LOST.split())
    for row in _lost(plan):
        for values in zip(*vars(row.each).values(), strict=True):
            yield {"failure": notes.UNITS[row.unit], **dict(zip(keys, values, strict=True))}


def _risk(plan: Plan) -> Rows:
    if failures := plan.failures:
        keys = ("experts", "apart", "together", "single", "missing")
        counts = {key: getattr(failures.copies, key, None) for key in keys}
        yield {
            **vars(failures),
            **counts,
            "failure": notes.UNITS[failures.spread],
            "reason": counts["missing"],
        }


def _copies(plan: Plan) -> Rows:
    if curve := plan.redundancy:
        for point in curve.points:
            marks = ("chosen" * (point == curve.best), "knee" * (point == curve.knee_point))
            yield {**vars(point), "mark": ", ".join(filter(None, marks))}


def _by_traffic(plan: Plan) -> Rows:
    names = {"balance": "balance only", "traffic": "fewest domains"}
    for row in plan.by_traffic.rows if plan.by_traffic else ():
        name = names.get(row.placement, notes.baseline_name(row.placement))
        chosen = plan.by_traffic is not None and row is plan.by_traffic.after
        yield {**vars(row), "placement": name, "mark": "chosen" * chosen, **_sent(row.bytes_per_step)}


def _sent(by_fabric: Mapping[str, float]) -> dict[str, float | None]:
    return dict(zip(_SENT.split(), [*by_fabric.values(), None, None], strict=False))


def _tokens(plan: Plan) -> Rows:
    """Yield where tokens go as traced, beside what independent choices would give: means, and of each layer."""
    kinds = {"as traced": plan.traffic, "if independent": plan.traffic and plan.traffic.independent}
    known = {name: traffic for name, traffic in kinds.items() if traffic is not None}
    for name, traffic in known.items():
        mean = {key: getattr(traffic, key) for key in _REACH.split()}
        yield {
            "routing": name,
            "layer": None,
            "tokens": traffic.tokens,
            **mean,
            **_sent(traffic.bytes_per_step),
        }
    for name, traffic in known.items():
        for layer, reach in traffic.layers.items():
            yield {"routing": name, "layer": int(layer), "tokens": None, **vars(reach), **_sent({})}


_STEP = "compute_s hbm_s scale_up_s scale_out_s fixed_s stage_wait_s"
_STEP_SHOWN = "part step_s step_share peak_s bound_by evidence"
_TOKENS_LOST = "tokens_lost_mean tokens_lost_most"
_FAILED = f"tok_s_per_gpu_mean tok_s_per_gpu_worst balancedness_mean balancedness_worst {_TOKENS_LOST}"
_CURVE = "redundant slots_per_gpu balancedness batch max_batch tok_s_per_gpu tpot_s expert_bytes mark"
_STAGE = "stage first_layer last_layer"
_PLACED = "placement balancedness balancedness_worst step_s tok_s_per_gpu reason"
_OF_POOLS: tuple[tuple[str, str, str, dict[str, Any], Callable[[Plan], Rows]], ...] = (
    ("step", f"{_STEP_SHOWN} {_STEP}", "Parts of the step", {"shown": _STEP_SHOWN}, _parts),
    ("limits_s", "resource step_s step_share floor_s", "What the step waits for", {}, _limits),
    ("memory", "use bytes memory_share", "Uses of HBM", {"max_rows": 0}, _memory),
    ("replicas", f"replica role {_STAGE} gpu_ids", "GPUs of each stage of each replica", {"max_rows": 0}, replicas),
    ("pipeline", f"{_STAGE} domain gpus to_stage bytes bytes_per_s seconds fabric", "Stages", {}, _pipeline),
    ("baselines", _PLACED, "Placements under the same loads, layout and batch", {}, _baselines),
    ("layers", "layer balancedness", "Balancedness by layer", {"max_rows": 0},
     lambda plan: ({"layer": layer, "balancedness": value} for layer, value in plan.balancedness.items())),
    ("scenarios", "scenario in_sample left_out worst_layer", "Balance by load", {},
     lambda plan: ({**vars(row), "scenario": row.name} for row in (plan.scenarios.rows if plan.scenarios else ()))),
    ("failures", f"failure count tried {_FAILED} experts_lost_most worst_case", "After one failure", {},
     lambda plan: ({**vars(row), "failure": notes.UNITS[row.unit], "count": row.choices, "worst_case": row.worst}
                   for row in _lost(plan))),
    ("losses", f"failure name {_LOST}", "Each loss tried", {"max_rows": 0}, _losses),
    ("risk", "failure experts_at_risk share_at_risk experts apart together single reason", "Experts at risk",
     {"shown": "failure experts_at_risk share_at_risk reason"}, _risk),
    ("at_risk", "layer expert copies share within", "Heaviest experts at risk", {"max_rows": 5},
     lambda plan: ({**vars(row), "within": row.domain} for row in (plan.failures.experts if plan.failures else ()))),
    ("layers_at_risk", "layer experts share worst_case worst_experts worst_share", "Layers at risk", {"max_rows": 0},
     lambda plan: ({**vars(row), "worst_case": row.worst}
                   for row in (plan.failures.layers if plan.failures else ()))),
    ("redundancy", _CURVE, "Number of copies", {}, _copies),
    ("by_traffic", f"placement mark step_s balancedness {_REACH} {_SENT}", "Placements by step", {}, _by_traffic),
    ("token_traffic", f"routing tokens layer {_REACH} {_SENT}", "Token traffic", {"max_rows": 2}, _tokens),
)  # fmt: skip
OF_POOLS = tuple(
    (Table.of(key, f"pool {keys}", title, **look), make) for key, keys, title, look, make in _OF_POOLS
)
"""Tables with the pool of each row, and what yields the rest of the rows of one pool."""
