"""The plan file (``plan.json``, schema 2): one schema writes it and reads it back, checked on the way in.

What a file says of its own score is never believed: a plan that was read is scored afresh from its assignment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from cost.calibration.errors import error_to_dict, errors_in
from cost.config.build import model_from_config
from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.traffic import traffic_to_dict
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.workload import Workload
from cost.money.prices import PriceBook
from cost.step.score import Score
from placement.experts.failure_domains import domain_name
from placement.findings import (
    Count,
    Failures,
    RedundancyCurve,
    ScenarioReport,
    TrafficReport,
)
from placement.options import Spread
from placement.plan import BaselineScore, Plan
from placement.plan_schema import (
    CurveLayoutPart,
    FailuresPart,
    LayoutData,
    LayoutPart,
    LoadsPart,
    ModelPart,
    Part,
    PlanFile,
    PlanScoreData,
    PricesPart,
    RedundancyPart,
    ScenariosPart,
    ScoreData,
    StagePart,
    TrafficReportPart,
    WorkloadPart,
)
from placement.scoring import score_placement
from placement.verify import verify_plan
from topology import cluster_from_dict, cluster_to_dict
from topology.base.errors import InfeasibleError, InputError
from topology.base.reading import containers, parse_json, read_text, require_version
from topology.base.units import mean_of

SCHEMA_VERSION = 2
_REMEDY = "correct it there, or make the plan again with rackplan plan"
_SHOWN = 40
"""Characters of a value that a message repeats."""


def score_to_dict(score: Score, balancedness: dict[int, float]) -> ScoreData:
    """Return a score as the plan file holds it; ``balancedness`` is by absolute layer id."""
    mean = mean_of(balancedness.values()) if balancedness else None
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
        "parts_s": _nested(score.parts_s),
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
    errors = errors_in(plan.deployment, plan.layout)
    data: PlanScoreData = {
        **score_to_dict(plan.score, dict(plan.balancedness)),  # type: ignore[typeddict-item]  # no `traffic` in it
        "limit_s": plan.limit_s,
        "over_limit": plan.over_limit,
        "totals": plan.totals.to_dict(),
        "calibration": error_to_dict(errors),
    }
    if plan.traffic is not None:
        data["traffic"] = traffic_to_dict(plan.traffic)
    return data


def _nested(parts_s: Mapping[tuple[str, str], float]) -> dict[str, dict[str, float]]:
    """Seconds by part, then by what bound it."""
    found: dict[str, dict[str, float]] = {}
    for (term, limit), seconds in parts_s.items():
        found.setdefault(term, {})[limit] = seconds
    return found


def plan_to_dict(plan: Plan, *, command: str = "", sha256: dict[str, str] | None = None) -> dict[str, Any]:
    """Return ``plan`` as JSON-able data in schema 2."""
    deployment = plan.deployment
    return {
        "schema_version": SCHEMA_VERSION,
        "origin": plan.origin,
        "model": deployment.model.name,
        "cluster": deployment.cluster.name,
        "stages": _stages(plan),
        "experts": {"gpus": [gpu.id for gpu in deployment.cluster.gpus], "layers": _expert_rows(plan)},
        "layout": {**layout_to_dict(plan), "passed_over": plan.passed_over or None},
        "service_level": plan.service_level or None,
        "limit_s": plan.limit_s,
        "score": plan_score_to_dict(plan),
        "proof": {
            **asdict(plan.proof),
            "of": _proof_of(plan),
            "interrupted": plan.interrupted,
            "log": list(plan.notes),
        },
        "order": None if plan.order is None else asdict(plan.order),
        "baselines": {name: _baseline(entry) for name, entry in plan.baselines.items()},
        "scenarios": _scenarios_written(plan.scenarios),
        "redundancy": _written(RedundancyPart, plan.redundancy and _curve(plan.redundancy)),
        "failures": _failures_written(plan.failures),
        "by_traffic": _written(TrafficReportPart, plan.by_traffic),
        "baseline_reasons": {name: entry.reason for name, entry in plan.baselines.items() if entry.reason},
        "request": {**plan.request, "engine": deployment.engine},
        "inputs": _inputs(plan, command, sha256 or {}),
    }


def _written(schema: type[Part], value: object) -> dict[str, Any] | None:
    """Return ``value`` as its part of the file; None of None."""
    return None if value is None else schema.model_validate(value).model_dump(mode="json")


def _failures_written(failures: Failures | None) -> dict[str, Any] | None:
    """Return what one failure would do; what each loss leaves stands there where somebody kept it."""
    part = _written(FailuresPart, failures)
    for row in part["what_if"] if part is not None else ():
        if not row["each"]["names"]:
            del row["each"]
    if part is not None and part["copies"] is None:
        del part["copies"]
    return part


def _scenarios_written(report: ScenarioReport | None) -> dict[str, Any] | None:
    """Return the part of each load; ``groups`` stands there where they vote."""
    part = _written(ScenariosPart, report)
    if part is not None and part["groups"] is None:
        del part["groups"]
    return part


def _curve(curve: RedundancyCurve) -> dict[str, object]:
    return {
        "layout": CurveLayoutPart.model_validate(curve),
        "chosen": curve.best.redundant,
        "knee": curve.knee.redundant,
        "points": curve.points,
    }


def layout_to_dict(plan: Plan) -> LayoutData:
    """Return what stages, model and batch say of the layout."""
    layout, deployment = plan.layout, plan.deployment
    return {
        "stages": layout.stages,
        "ep": layout.ep if deployment.model.moe else 1,
        "tp": layout.tp,
        "attention_dp": layout.attention_dp,
        "replicas": len(layout.replicas),
        "batch_per_gpu": deployment.workload.batch,
        "gpus_used": layout.gpus_used,
    }


def _proof_of(plan: Plan) -> str:
    """What objective and bound are of."""
    several = plan.loads is not None and len(plan.loads.tokens) > 1
    if several and plan.objective == "worst":
        text = "mean over MoE layers of the largest GPU load over the mean one in the worst scenario"
    else:
        text = "mean over MoE layers and scenarios of the largest GPU load over the mean one"
    return text if plan.split == "even" else f"{text}, split {plan.split}"


def _stages(plan: Plan) -> list[dict[str, Any]]:
    cluster = plan.deployment.cluster
    return [
        StagePart(
            replica=replica,
            domains=[f"d{domain}" for domain in dict.fromkeys(cluster.gpus[g].domain for g in stage.gpus)],
            first_layer=stage.layers.start,
            last_layer=stage.layers.stop - 1,
            gpus=[cluster.gpus[gpu].id for gpu in stage.gpus],
        ).model_dump()
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
                for gpu, here in zip(stage.gpus, held, strict=True):
                    row[gpu] = here  # replicas share their lists
    return dict(sorted(rows.items(), key=lambda row: int(row[0]))) if plan.unlike else rows


def _baseline(entry: BaselineScore) -> ScoreData | None:
    return None if entry.score is None else score_to_dict(entry.score, dict(entry.balancedness))


def _inputs(plan: Plan, command: str, sha256: dict[str, str]) -> dict[str, Any]:
    deployment, loads = plan.deployment, plan.loads
    model, workload = deployment.model, deployment.workload
    weights = model.weights_override
    asked = WorkloadPart.model_validate(workload)
    return {
        "model": ModelPart(name=model.name, config=dict(model.config), weights=weights).model_dump(),
        "cluster": cluster_to_dict(deployment.cluster),
        "workload": asked.model_dump(exclude=None if workload.prefix_hit else {"prefix_hit"}),
        "loads": None
        if loads is None
        else {"names": list(loads.names), "synthetic": loads.synthetic, "tokens": loads.tokens.tolist()},
        "seed": plan.request.get("seed", 0),
        "prices": PricesPart.model_validate(deployment.prices).model_dump(),
        "sha256": sha256,
        "command": command,
    }


def plan_to_json(data: Mapping[str, Any]) -> str:
    """Return the text of a plan file: one line per GPU list of a layer, so that a diff can be read."""
    return _pretty(data, 0) + "\n"


def _pretty(value: object, depth: int) -> str:
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value and depth < 5:
        rows = [f"{pad}{json.dumps(str(key))}: {_pretty(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + "  " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(pad + json.dumps(item) for item in value) + "\n" + "  " * depth + "]"
    return json.dumps(value, allow_nan=False)


PLAN_FILE = "plan.json"
"""What a plan is called in the folder of its results."""


def read_plan(path: str | Path) -> Plan:
    """Read a plan file, or that in a folder of results, and score it afresh from its assignment alone.

    Raises
    ------
    InputError
        If the file is no plan, is of another schema, or describes an illegal plan; the message names the place.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / PLAN_FILE).is_file():
            raise InputError(
                f"{path}: no {PLAN_FILE} in this folder; name a plan, or a folder that rackplan plan wrote."
            )
        path = path / PLAN_FILE
    where = str(path)
    return plan_of_text(read_text(path, where), where)


def plan_of_text(text: str, where: str) -> Plan:
    """Return the plan that the text of a plan file holds, as :func:`read_plan` does; messages name ``where``.

    Raises
    ------
    InputError
        As :func:`read_plan`.
    """
    fields = _fields(text, where)
    try:
        return _plan(fields)
    except (InputError, InfeasibleError) as error:
        raise InputError(f"{where}: {error}") from None


def _fields(text: str, where: str) -> PlanFile:
    """Read the text of a plan file: JSON without duplicate keys, in the schema.

    The experts of every GPU, most of a large file, are read apart: a copy of equal rows would fill the memory.
    """
    value = parse_json(text, where)
    require_version(value.get("schema_version") if isinstance(value, dict) else None, where, SCHEMA_VERSION)
    experts = value.get("experts") if isinstance(value, dict) else None
    layers = experts.get("layers") if isinstance(experts, dict) else None
    if isinstance(experts, dict) and isinstance(layers, dict):
        experts["layers"] = {}
        text = json.dumps(value)
    else:
        layers = None
    del value
    try:
        fields = PlanFile.model_validate_json(text)
        if layers is not None:
            fields.experts.layers = _rows_of_layers(layers)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (*_PLACE.get(error.title, ()), *first["loc"]))) or "the whole file"
        given = first["input"]
        kind = "an object" if isinstance(given, dict) else "a list" if isinstance(given, list) else ""
        found = kind or json.dumps(given)[:_SHOWN]
        what = f"{first['msg'].replace('Input should be', 'expected')}, found {found}"
        if first["type"] == "missing":
            what = "missing"
        raise InputError(
            f"{where}: not a plan of schema {SCHEMA_VERSION}: {place}: {what}; {_REMEDY}."
        ) from None
    return fields


_PLACE = {"layers": ("experts", "layers")}
"""Where the parts are that are read apart, by the title of their errors."""


def _rows_of_layers(layers: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Return the experts of each GPU by layer, equal rows of a layer once in memory; what is given is emptied."""
    adapter = TypeAdapter(dict[str, list[list[Count]]], config=ConfigDict(title="layers", strict=True))
    found: dict[str, list[list[int]]] = {}
    for layer in list(layers):
        rows = adapter.validate_python({layer: layers.pop(layer)})[layer]
        same: dict[tuple[int, ...], list[int]] = {}
        found[layer] = [same.setdefault(tuple(row), row) for row in rows]
    return found


def _plan(fields: PlanFile) -> Plan:
    inputs = fields.inputs
    _require_figures(inputs.cluster)
    cluster = cluster_from_dict(inputs.cluster)
    model = model_from_config(inputs.model.config, name=inputs.model.name, weights=inputs.model.weights)
    workload = Workload(**inputs.workload.model_dump())
    prices = PriceBook(**inputs.prices.model_dump())
    prices.check(cluster)
    deployment = Deployment(cluster, model, workload, engine=fields.request.engine, prices=prices)
    layout = _layout(fields, deployment)
    strange = sorted(set(fields.experts.layers) - {str(layer) for layer in model.moe_layers})
    if strange:
        raise InputError(f"experts.layers.{strange[0]}: {model.name} has no such layer with experts.")
    experts, unlike = _experts(fields, deployment, layout)
    loads = _loads(inputs.loads, deployment)
    score, balancedness = score_placement(deployment, layout, experts, loads, fields.request.split, unlike)
    plan = Plan(
        deployment,
        layout,
        experts,
        loads,
        score,
        balancedness,
        fields.proof,
        request=fields.request.model_dump(exclude={"engine"}, exclude_unset=True),
        origin=fields.origin,
        scenarios=_scenarios(fields.scenarios, loads.names if loads else ()),
        failures=_failures(fields.failures, deployment),
        by_traffic=_by_traffic(fields.by_traffic),
        redundancy=_redundancy(fields.redundancy),
        passed_over=fields.layout.passed_over or "",
        order=fields.order,
        service_level=fields.service_level or "",
        limit_s=fields.limit_s,
        unlike=unlike,
    )
    wrong = verify_plan(plan)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" * (len(wrong) > 1)
        raise InputError(f"not a legal plan: {wrong[0]}{more}")
    _check_layout(fields.layout, plan)
    return plan


def _require_figures(cluster: dict[str, Any]) -> None:
    """Refuse figures without a value; only a fabric's rate may be unpublished, and its latency with it."""
    for where, part in containers(cluster, ("inputs", "cluster")):
        if not isinstance(part, dict):
            continue
        rate = part.get("link_bytes_per_s")
        linkless = isinstance(rate, dict) and rate.get("value") is None
        for key, figure in part.items():
            absent = isinstance(figure, dict) and figure.get("value", 0) is None
            if absent and not linkless:
                place = ".".join(map(str, (*where, key)))
                raise InputError(f"{place}.value: null, but a plan is scored with this figure; {_REMEDY}.")


def _layout(fields: PlanFile, deployment: Deployment) -> Layout:
    index = {gpu.id: number for number, gpu in enumerate(deployment.cluster.gpus)}
    replicas: dict[int, list[StageSpec]] = {}
    for place, stage in enumerate(fields.stages):
        unknown = next((gpu for gpu in stage.gpus if gpu not in index), None)
        if not stage.gpus:
            raise InputError(f"stages.{place}.gpus: empty; a stage needs at least one GPU.")
        if unknown is not None:
            raise InputError(f"stages.{place}.gpus: {unknown!r} is no GPU of {deployment.cluster.name}.")
        layers = range(stage.first_layer, stage.last_layer + 1)
        spec = StageSpec(tuple(index[gpu] for gpu in stage.gpus), layers)
        replicas.setdefault(stage.replica, []).append(spec)
    rows = tuple(tuple(stages) for _, stages in sorted(replicas.items()))
    first = [stage.layers for stage in rows[0]]
    if any([stage.layers for stage in stages] != first for stages in rows[1:]):
        raise InputError("stages: replicas differ in their stages; all must have the same runs of layers.")
    count = len(deployment.model.layers)
    ends = [
        0,
        *(stage.layers.stop for stage in rows[0]),
    ]  # compared as ends: a run may claim a billion layers
    runs = [range(start, stop) for start, stop in pairwise(ends)]
    if ends[-1] != count or [stage.layers for stage in rows[0]] != runs or not all(runs):
        raise InputError(f"stages: they do not hold layers 0 to {count - 1} once each, in order.")
    return Layout(rows, fields.layout.tp)


def _check_layout(given: LayoutPart, plan: Plan) -> None:
    """Refuse a layout that somebody changed in one place alone."""
    for key, value in layout_to_dict(plan).items():
        here = getattr(given, key)
        if here is not None and here != value:
            where = "inputs.workload.batch says" if key == "batch_per_gpu" else "stages and layout.tp make it"
            raise InputError(f"layout.{key}: {here}, but {where} {value}; make them agree, or plan anew.")


def _experts(
    fields: PlanFile, deployment: Deployment, layout: Layout
) -> tuple[tuple[Assignment | None, ...], dict[int, tuple[Assignment | None, ...]]]:
    """Gather what the first replica holds, and the others that hold something else."""
    known: list[tuple[Assignment | None, ...]] = []
    unlike: dict[int, tuple[Assignment | None, ...]] = {}
    rows = list(fields.experts.layers.values())
    held: dict[object, tuple[Assignment | None, ...]] = {}
    for replica, stages in enumerate(layout.replicas):
        key = tuple(
            tuple(tuple(row[gpu]) for gpu in stage.gpus if gpu < len(row)) for row in rows for stage in stages
        )
        if key not in held:
            held[key] = tuple(
                _assignment(fields, deployment, layout, replica, index) for index in range(len(stages))
            )
        if replica == 0:
            known.append(held[key])
        elif held[key] is not known[0]:
            unlike[replica] = held[key]
    return known[0], unlike


def _assignment(
    fields: PlanFile, deployment: Deployment, layout: Layout, replica: int, index: int
) -> Assignment | None:
    """Gather the experts of one stage of a replica; every layer must fill the same slots."""
    moe = deployment.model.moe
    stage = layout.replicas[replica][index]
    ids = [layer for layer in deployment.model.moe_layers if layer in stage.layers]
    if moe is None or not ids:
        return None
    if fields.experts.gpus != [gpu.id for gpu in deployment.cluster.gpus]:
        raise InputError(
            f"experts.gpus: expected the {len(deployment.cluster.gpus)} GPUs of the cluster in its order."
        )
    rows: list[list[int]] = []
    counts: list[int] | None = None
    for layer in ids:
        place = f"experts.layers.{layer}"
        held = fields.experts.layers.get(str(layer))
        if held is None or len(held) != len(deployment.cluster.gpus):
            raise InputError(f"{place}: expected one list for each of {len(deployment.cluster.gpus)} GPUs.")
        here = [held[gpu] for gpu in stage.gpus]
        inside = {gpu for stages in layout.replicas for gpu in stages[index].gpus}
        outside = next((gpu for gpu, part in enumerate(held) if part and gpu not in inside), None)
        if outside is not None:
            raise InputError(
                f"{place}: {fields.experts.gpus[outside]} has experts, but its stage lacks that layer."
            )
        counts = counts or [len(part) for part in here]
        if [len(part) for part in here] != counts:
            raise InputError(f"{place}: its GPUs have other numbers of slots than in layer {ids[0]}.")
        row = [expert for part in here for expert in part]
        wrong = next((expert for expert in row if expert >= moe.experts), None)
        if wrong is not None:
            raise InputError(f"{place}: expert {wrong} does not exist; the model has 0 to {moe.experts - 1}.")
        absent = next((expert for expert in range(moe.experts) if expert not in row), None)
        if absent is not None:
            raise InputError(f"{place}: expert {absent} has no copy.")
        rows.append(row)
    slot_gpu = np.repeat(np.arange(len(stage.gpus), dtype=np.int32), counts or [])
    return Assignment(np.array(rows, dtype=np.int32), slot_gpu, moe.experts, len(stage.gpus))


def _loads(fields: LoadsPart | None, deployment: Deployment) -> ExpertLoads | None:
    moe = deployment.model.moe
    if moe is None:
        return None
    if fields is None:
        raise InputError("inputs.loads: missing; a plan with experts carries the loads it was made for.")
    try:
        tokens = np.array(fields.tokens, dtype=np.float64)
    except ValueError:
        tokens = np.zeros(0)
    shape = (len(deployment.model.moe_layers), moe.experts)
    if tokens.ndim != 3 or tokens.shape[1:] != shape or not np.isfinite(tokens).all() or (tokens < 0).any():
        raise InputError(
            f"inputs.loads.tokens: expected [scenarios, {shape[0]}, {shape[1]}] tokens, none negative."
        )
    if len(fields.names) != len(tokens):
        raise InputError(f"inputs.loads.names: {len(fields.names)} names for {len(tokens)} scenarios.")
    if not tokens.any(axis=2).all():
        raise InputError("inputs.loads.tokens: a layer has no tokens at all.")
    return ExpertLoads(tokens, tuple(fields.names), synthetic=fields.synthetic)


def _scenarios(part: ScenariosPart | None, names: tuple[str, ...]) -> ScenarioReport | None:
    """Return how the plan fares under each load; refuse that of other loads."""
    if part is None:
        return None
    found = [row.name for row in part.rows]
    if found != list(names):
        raise InputError(
            f"scenarios.rows: of {', '.join(found)}, but inputs.loads are {', '.join(names) or 'none'}."
        )
    return ScenarioReport(part.objective, part.rows, part.groups)


def _failures(part: FailuresPart | None, deployment: Deployment) -> Failures | None:
    """Return what one failure would do; refuse layers, experts, GPUs, nodes and racks that there are not."""
    if part is None:
        return None
    moe, name = deployment.model.moe, deployment.model.name
    known = set(deployment.model.moe_layers)
    for key, layers in (
        ("layers", [row.layer for row in part.layers]),
        ("experts", [row.layer for row in part.experts]),
    ):
        for place, layer in enumerate(layers):
            if layer not in known:
                raise InputError(f"failures.{key}.{place}.layer: {name} has no experts in layer {layer}.")
    for place, row in enumerate(part.experts):
        if moe is None or row.expert >= moe.experts:
            raise InputError(f"failures.experts.{place}.expert: there is no expert {row.expert}.")
    at_risk = sum(row.experts for row in part.layers)
    if bool(part.experts) != bool(at_risk):
        raise InputError(
            f"failures.experts: it lists {len(part.experts)} where failures.layers count {at_risk} at risk."
        )
    named: list[tuple[str, Spread, str]] = [
        # a layer without experts at risk names none
        *((f"layers.{i}.worst", part.spread, row.worst) for i, row in enumerate(part.layers) if row.worst),
        *((f"experts.{i}.domain", part.spread, row.domain) for i, row in enumerate(part.experts)),
        *((f"what_if.{i}.worst", row.unit, row.worst) for i, row in enumerate(part.what_if)),
        *(
            (f"what_if.{i}.each.names.{place}", row.unit, one)
            for i, row in enumerate(part.what_if)
            for place, one in enumerate(row.each.names)
        ),
    ]
    units = {unit for _, unit, _ in named}
    ids = {unit: {domain_name(gpu, unit) for gpu in deployment.cluster.gpus} for unit in units}
    for where, unit, worst in named:
        if worst not in ids[unit]:
            raise InputError(f"failures.{where}: {worst!r} is no {unit} of {deployment.cluster.name}.")
    for i, tried in enumerate(part.what_if):
        each = tried.each
        counts = {len(each.names), *map(len, (each.tok_s_per_gpu, each.balancedness, each.tokens_lost))}
        if len(counts) > 1 or not counts <= {0, tried.tried}:
            raise InputError(f"failures.what_if.{i}.each: it is of {tried.tried} that were tried, each once.")
    return Failures(part.spread, part.layers, part.experts, part.what_if, part.copies)


def _by_traffic(part: TrafficReportPart | None) -> TrafficReport | None:
    if part is None:
        return None
    if part.chosen not in [row.placement for row in part.rows]:
        raise InputError(f"by_traffic.chosen: {part.chosen!r} is none of its rows.")
    return TrafficReport(part.known, part.traces, part.chosen, part.slack, part.rows, part.front)


def _redundancy(part: RedundancyPart | None) -> RedundancyCurve | None:
    """Return throughput against copies; refuse points that are not by rising number of copies."""
    if part is None:
        return None
    copies = [point.redundant for point in part.points]
    if any(after <= before for before, after in pairwise(copies)):
        raise InputError(f"redundancy.points: {copies} copies; expected rising numbers.")
    return RedundancyCurve(part.points, **part.layout.model_dump())
