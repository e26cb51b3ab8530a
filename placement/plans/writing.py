"""A plan as data, and as the text of its file (``plan.json``, schema 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
from pydantic import TypeAdapter

from cost.calibration.correction import lines_of
from cost.calibration.errors import error_to_dict
from cost.experts.tokens.traffic import TokenTraffic
from cost.step.score import Score
from placement.plan import Asked, Plan
from placement.plans.schema import (
    ExpertsPart,
    InputsPart,
    LayoutPart,
    LoadsPart,
    ModelInputsPart,
    ModelPart,
    PlanFile,
    PlanScoreData,
    PoolPart,
    ProofPart,
    RequestPart,
    ScoreData,
    StagePart,
)
from topology import cluster_to_dict
from topology.base.units import mean_of
from topology.cluster import ClusterView

SCHEMA_VERSION: Literal[3] = 3
_FIRST = ("schema_version", "origin", "model", "cluster", "stages", "experts")
"""The keys that a file begins with."""
_FIRST_OF_POOL = ("role", "model", "layout", "stages", "experts", "replicas")
_FILE = TypeAdapter(PlanFile)


def score_to_dict(score: Score, balancedness: Mapping[int, float]) -> ScoreData:
    """Return a score as the plan file holds it; ``balancedness`` is by absolute layer id."""
    mean = mean_of(balancedness.values()) if balancedness else None
    parts_s: dict[str, dict[str, float]] = {}
    for (term, limit), seconds in score.parts_s.items():
        parts_s.setdefault(term, {})[limit] = seconds
    data: ScoreData = {
        "step_s": score.step_s,
        "lower_step_s": score.lower_step_s,
        "tok_s_per_gpu": score.tok_s_per_gpu,
        "tok_s_per_gpu_used": score.tok_s_per_gpu_used,
        "tok_s_per_user": score.tok_s_per_user,
        "tokens": score.tokens,
        "tokens_per_step": score.tokens_per_step,
        "bound_by": score.bound_by,
        "terms_s": dict(score.terms_s),
        "limits_s": dict(score.limits_s),
        "parts_s": parts_s,
        "floor_s": dict(score.floor_s),
        "hbm_bytes": dict(score.hbm_bytes),
        "batch_per_gpu": score.batch,
        "max_batch_per_gpu": score.max_batch,
        "evidence": score.evidence.label,
        "balancedness_mean": mean,
        "balancedness": {str(layer): value for layer, value in balancedness.items()},
    }
    if score.what_if:
        data["what_if"] = score.what_if
    return data


def plan_score_to_dict(plan: Plan) -> PlanScoreData:
    """Return a plan's score with its limit, ``totals`` of the cluster and ``calibration``: how far off it may be.

    ``over_limit`` is null where the limit is held; ``calibration`` is null where nothing was measured; ``traffic`` is
    there where tokens were traced.
    """
    data: PlanScoreData = {
        **score_to_dict(plan.score, plan.balancedness),  # type: ignore[typeddict-item]  # no `traffic` in it
        "limit_s": plan.limit_s,
        "over_limit": plan.over_limit,
        "totals": plan.totals.to_dict(),
        "calibration": error_to_dict(plan.errors),
    }
    if plan.traffic is not None:
        data["traffic"] = cast(TokenTraffic, asdict(plan.traffic))
    return data


def plan_to_dict(plan: Plan, *, command: str = "", sha256: dict[str, str] | None = None) -> dict[str, Any]:
    """Return ``plan`` as JSON-able data in schema 3."""
    deployment, models = plan.deployment, list[Plan]()
    for pool in plan.pools:
        if pool.deployment.model.name not in {known.deployment.model.name for known in (plan, *models)}:
            models.append(pool)
    document = PlanFile(
        **_part(plan),
        schema_version=SCHEMA_VERSION,
        experts=_no_experts(plan),
        pools=tuple(PoolPart(**_part(pool), **_of_pool(pool)) for pool in plan.pools),
        serving=None
        if plan.requests is None
        else Asked(**{field.name: getattr(plan.requests, field.name) for field in fields(Asked)}),
        decision=plan.decision,
        inputs=InputsPart(
            model=_model(plan),
            cluster=cluster_to_dict(deployment.cluster),
            workload=deployment.workload,
            loads=_loads(plan),
            models=tuple(ModelInputsPart(model=_model(pool), loads=_loads(pool)) for pool in models),
            seed=plan.request.seed,
            prices=deployment.prices,
            physics=deployment.correction.physics,
            own_runs=tuple(lines_of(deployment.correction.own)) if deployment.correction.own else (),
            sha256=sha256 or {},
            command=command,
        ),
    )
    data: dict[str, Any] = _FILE.dump_python(document, mode="json")
    for pool, part in zip(plan.pools, data["pools"], strict=True):
        part["experts"]["layers"] = _expert_rows(pool)  # replicas share their lists
    data["experts"] = data["pools"][0]["experts"]
    data["pools"] = [{key: part[key] for key in (*_FIRST_OF_POOL, *part)} for part in data["pools"]]
    return {key: data[key] for key in (*_FIRST, *data)}


def _part(plan: Plan) -> dict[str, Any]:
    """Return what a file has of each pool."""
    deployment = plan.deployment
    return {
        "origin": plan.origin,
        "model": deployment.model.name,
        "cluster": deployment.cluster.name,
        "stages": _stages(plan),
        "layout": {**layout_part(plan), "passed_over": plan.passed_over or None},
        "service_level": plan.service_level or None,
        "limit_s": plan.limit_s,
        "score": plan_score_to_dict(plan),
        "proof": ProofPart(
            **vars(plan.proof), of=_proof_of(plan), interrupted=plan.interrupted, log=tuple(plan.notes)
        ),
        "order": plan.order,
        "baselines": {
            name: entry.score and score_to_dict(entry.score, entry.balancedness)
            for name, entry in plan.baselines.items()
        },
        "scenarios": plan.scenarios,
        "redundancy": plan.redundancy,
        "failures": plan.failures,
        "by_traffic": plan.by_traffic,
        "baseline_reasons": {name: entry.reason for name, entry in plan.baselines.items() if entry.reason},
        "request": RequestPart(
            **vars(plan.request),
            engine=deployment.engine,
            mem_util=deployment.mem_util,
            max_seqs=deployment.max_seqs,
            any_shape=deployment.any_shape,
            dcp=deployment.dcp,
            pcp=deployment.pcp,
            recipe=deployment.recipe,
        ),
    }


def _of_pool(plan: Plan) -> dict[str, Any]:
    """Return what entries of pools have beside the rest."""
    cluster = plan.deployment.cluster
    return {
        "role": plan.role,
        "replicas": len(plan.layout.replicas),
        "gpus": list(cluster.ids) if isinstance(cluster, ClusterView) else [],
        "experts": _no_experts(plan),
        "workload": plan.deployment.workload,
    }


def _no_experts(plan: Plan) -> ExpertsPart:
    """Return where experts go, before there are any."""
    return ExpertsPart([gpu.id for gpu in plan.deployment.cluster.gpus], {})


def _model(plan: Plan) -> ModelPart:
    model = plan.deployment.model
    return ModelPart(model.name, dict(model.config), model.weights_override)


def _loads(plan: Plan) -> LoadsPart | None:
    loads = plan.loads
    return None if loads is None else LoadsPart(list(loads.names), loads.synthetic, loads.tokens.tolist())


def layout_part(plan: Plan) -> LayoutPart:
    """Return what stages, model and batch say of the layout."""
    layout, deployment = plan.layout, plan.deployment
    part: LayoutPart = {
        "stages": layout.stages,
        "ep": layout.ep if deployment.model.moe else 1,
        "tp": layout.tp,
        "moe_tp": layout.moe_tp,
        "dcp": layout.dcp,
        "pcp": layout.pcp,
        "attention_dp": layout.attention_dp,
        "replicas": len(layout.replicas),
        "batch_per_gpu": deployment.workload.batch,
        "gpus_used": layout.gpus_used,
    }
    if layout.apart is not None:
        part |= {"attention_gpus": len(layout.apart.gpus[0]), "micro_batches": layout.apart.micro_batches}
    return part


def _proof_of(plan: Plan) -> str:
    """What objective and bound are of."""
    several = plan.loads is not None and len(plan.loads.tokens) > 1
    if several and plan.objective == "worst":
        text = "mean over MoE layers of the largest GPU load over the mean one in the worst scenario"
    else:
        text = "mean over MoE layers and scenarios of the largest GPU load over the mean one"
    return text if plan.split == "even" else f"{text}, split {plan.split}"


def _stages(plan: Plan) -> list[StagePart]:
    gpus, apart = plan.deployment.cluster.gpus, plan.layout.apart
    return [
        StagePart(
            replica=replica,
            domains=[f"d{domain}" for domain in dict.fromkeys(gpus[gpu].domain for gpu in stage.gpus)],
            first_layer=stage.layers.start,
            last_layer=stage.layers.stop - 1,
            gpus=[gpus[gpu].id for gpu in stage.gpus],
            attention=[gpus[gpu].id for gpu in apart.gpus[replica]] if apart else [],
        )
        for replica, stages in enumerate(plan.layout.replicas)
        for stage in stages
    ]


def _expert_rows(plan: Plan) -> dict[str, list[list[int]]]:
    """One list of experts per GPU of the cluster, by absolute layer id; empty outside the layer's stage."""
    rows: dict[str, list[list[int]]] = {}
    for assignment, stages in plan.parts():
        ids = [layer for layer in plan.deployment.model.moe_layers if layer in stages[0].layers]
        cuts = np.searchsorted(assignment.slot_gpu, np.arange(assignment.gpus + 1)).tolist()
        for layer, slots in zip(ids, assignment.slot_expert.tolist(), strict=True):
            held = [slots[start:stop] for start, stop in pairwise(cuts)]
            row = rows.setdefault(str(layer), [[]] * len(plan.deployment.cluster.gpus))
            for stage in stages:
                for gpu, experts in zip(stage.gpus, held, strict=True):
                    row[gpu] = experts  # replicas share their lists
    return dict(sorted(rows.items(), key=lambda row: int(row[0]))) if plan.unlike else rows


def plan_to_json(data: Mapping[str, Any]) -> str:
    """Return the text of a plan file: one line per GPU list of a layer, so that a diff can be read."""
    return _pretty(data, 0) + "\n"


def _pretty(value: object, depth: int) -> str:
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value and depth < 5:
        rows = [f"{pad}{json.dumps(str(key))}: {_pretty(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + "  " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        items = (_pretty(item, depth + 1) if "experts" in item else json.dumps(item) for item in value)
        return "[\n" + ",\n".join(pad + item for item in items) + "\n" + "  " * depth + "]"
    return json.dumps(value, allow_nan=False)
