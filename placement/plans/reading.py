"""Read plan files: parts are checked against the schema and each other.

What a file says of its own score is never believed: a plan that was read is scored afresh from its assignment, and
says where the two differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from cost.calibration.correction import correction_with
from cost.config.build import model_from_config
from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Apart, Layout, StageSpec
from cost.inputs.workload import Workload
from placement.experts.failure_domains import domain_name
from placement.options import SPREADS, PlanOptions
from placement.plan import Plan, Proof
from placement.plans.beside import wrong_beside
from placement.plans.findings import Failures
from placement.plans.schema import (
    ExpertsPart,
    LayoutPart,
    LoadsPart,
    ModelInputsPart,
    PlanFile,
    PlanPart,
    PoolPart,
)
from placement.plans.stored import held_against
from placement.plans.writing import SCHEMA_VERSION, layout_part
from placement.pools import with_pools
from placement.scoring import score_placement
from placement.verify import verify_plan
from topology import cluster_from_dict
from topology.base.errors import InfeasibleError, InputError
from topology.base.reading import containers, parse_json, read_text, require_version, shown
from topology.base.schema import validated
from topology.cluster import Cluster, ClusterView

PLAN_FILE = "plan.json"
"""What a plan is called in the folder of its results."""
_AGREE = ("model", "stages", "layout", "experts", "workload")
"""What the root and the first of the pools must both say."""
_NEVER_READ = ("score", "baselines", "baseline_reasons")


def read_plan(path: str | Path) -> Plan:
    """Read a plan file, or the one in a results folder, and score it again from its assignment.

    Parameters
    ----------
    path : str | Path
        A ``plan.json``, or the folder of one.

    Returns
    -------
    Plan
        As :func:`rackplan.plan` returns it; its ``differences`` name files beside it that are not of it, too.

    Raises
    ------
    InputError
        If the file is no plan, is of another schema, or describes an illegal plan; the message names the place.
    """
    if not isinstance(path, str | Path):
        raise InputError(
            "expected a plan, its plan.json, or the folder that holds it.", field="plan", value=shown(path)
        )
    path = Path(path)
    if path.is_dir():
        if not (path / PLAN_FILE).is_file():
            raise InputError(
                f"{path}: no {PLAN_FILE} in this folder; give a plan, or a folder written by rackplan plan."
            )
        path = path / PLAN_FILE
    where = str(path)
    text = read_text(path, where)
    plan = plan_of_text(text, where)
    beside = wrong_beside(path.parent, text.encode()) if path.name == PLAN_FILE else ()
    return replace(plan, differences="; ".join(filter(None, (plan.differences, *beside))))


def plan_of_text(text: str, where: str) -> Plan:
    """Return the plan that the text of a plan file holds, as :func:`read_plan` does; messages name ``where``.

    Raises
    ------
    InputError
        As :func:`read_plan`.
    """
    document, scores = _document(text, where)
    try:
        plan = with_pools([*_pools(document)], document.serving)
        leading = held_against(plan, scores[0], where)
        beside = [
            held_against(pool, score, f"{where}: pools[{number}]")
            for number, (pool, score) in enumerate(zip(plan.beside, scores[1:], strict=True), 1)
        ]
    except (InputError, InfeasibleError) as error:
        raise InputError(f"{where}: {error}") from None
    differences = "; ".join(filter(None, (pool.differences for pool in (leading, *beside))))
    return replace(leading, beside=tuple(beside), decision=document.decision, differences=differences)


def _document(text: str, where: str) -> tuple[PlanFile, list[object]]:
    """Return what the text of a plan file says, JSON without duplicate keys in the schema, and the scores of pools.

    The first pool stands at the root, and again among the pools: where they differ the file is refused.
    """
    value = parse_json(text, where)
    if not isinstance(value, dict) or "experts" not in value:
        raise InputError(f"{where}: not a plan; give a plan.json written by rackplan.")
    require_version(value.get("schema_version"), where, SCHEMA_VERSION)
    pools = value.get("pools")
    if isinstance(pools, list) and pools and isinstance(pool_of_root := pools[0], dict):
        inputs = value.get("inputs")
        root = {**value, "workload": inputs.get("workload") if isinstance(inputs, dict) else None}
        keys = (key for key in _AGREE if key in pool_of_root)
        different = next((key for key in keys if pool_of_root[key] != root.get(key)), None)
        if different is not None:
            raise InputError(
                f"{where}: pools[0]: {different}: not as at the root, which describes the first pool; make them "
                "agree, or plan again."
            )
        value["pools"] = pools[1:]
    parts = [value, *(pool for pool in value.get("pools") or () if isinstance(pool, dict))]
    scores = [part.get("score") for part in parts]
    for part, key in product(parts, _NEVER_READ):
        part.pop(key, None)
    return validated(PlanFile, value, where), scores


def _pools(file: PlanFile) -> Iterator[Plan]:
    """Yield the plan of each pool, the first one's with all of the cluster that it has."""
    inputs = file.inputs
    _require_figures(inputs.cluster)
    cluster = cluster_from_dict(inputs.cluster)
    inputs.prices.check(cluster.whole)
    inputs_of_first = ModelInputsPart(model=inputs.model, loads=inputs.loads)
    of_model = {model_inputs.model.name: model_inputs for model_inputs in (inputs_of_first, *inputs.models)}
    yield _plan(file, file, cluster, inputs_of_first, inputs.workload)
    for number, pool in enumerate(file.pools, 1):
        if pool.model not in of_model:
            raise InputError(f"pools[{number}]: model: {pool.model!r} is not in inputs: model or models.")
        try:
            view = ClusterView(cluster.whole, pool.gpus)
            yield _plan(file, pool, view, of_model[pool.model], pool.workload)
        except (InputError, InfeasibleError) as error:
            raise InputError(f"pools[{number}]: {error}") from None


def _plan(
    file: PlanFile, part: PlanFile | PoolPart, cluster: Cluster, source: ModelInputsPart, workload: Workload
) -> Plan:
    inputs, failures = file.inputs, part.failures
    model = model_from_config(source.model.config, name=source.model.name, weights=source.model.weights)
    if not workload.batch:
        raise InputError("inputs: workload: batch: 0 must be 1 or more.")
    options = dict(vars(part.request))
    deployment = Deployment(
        cluster,
        model,
        workload,
        engine=options.pop("engine"),
        mem_util=options.pop("mem_util"),
        max_seqs=options.pop("max_seqs"),
        correction=correction_with(inputs.own_runs, physics=inputs.physics),
        prices=inputs.prices,
        any_shape=options.pop("any_shape"),
        dcp=options.pop("dcp"),
        pcp=options.pop("pcp"),
        recipe=options.pop("recipe"),
    )
    request = PlanOptions(**options)
    layout = _layout(part, deployment)
    strange = sorted(set(part.experts.layers) - {str(layer) for layer in model.moe_layers})
    if strange:
        raise InputError(f"experts: layers: {strange[0]}: {model.name} has no such layer with experts.")
    experts, unlike = _experts(part.experts, deployment, layout)
    loads = _loads(source.loads, deployment)
    score, balancedness = score_placement(deployment, layout, experts, loads, request.split, unlike)
    plan = Plan(
        deployment,
        layout,
        experts,
        loads,
        score,
        balancedness,
        Proof(part.proof.status, part.proof.objective, part.proof.bound, part.proof.gap),
        request=request,
        origin=part.origin,
        scenarios=part.scenarios,
        failures=failures,
        by_traffic=part.by_traffic,
        redundancy=part.redundancy,
        passed_over=part.layout.get("passed_over") or "",
        order=part.order,
        service_level=part.service_level or "",
        limit_s=part.limit_s,
        unlike=unlike,
    )
    violations = verify_plan(plan)
    if violations:
        rest = f" (and {len(violations) - 1} more)" * (len(violations) > 1)
        raise InputError(f"not a legal plan: {violations[0]}{rest}")
    _check_layout(part.layout, plan)
    _check_findings(part, plan)
    return plan


def _require_figures(cluster: dict[str, Any]) -> None:
    """Reject figures without a value; only a fabric's rate may be unpublished, and its latency with it."""
    for where, part in containers(cluster, ("inputs", "cluster")):
        if not isinstance(part, dict):
            continue
        rate = part.get("link_bytes_per_s")
        linkless = isinstance(rate, dict) and rate.get("value") is None
        for key, figure in part.items():
            absent = isinstance(figure, dict) and figure.get("value", 0) is None
            if absent and not linkless:
                place = ": ".join(map(str, (*where, key)))
                raise InputError(
                    f"{place}: value: null, but the plan needs this figure; make the plan again."
                )


def _layout(file: PlanPart, deployment: Deployment) -> Layout:
    index = {gpu.id: number for number, gpu in enumerate(deployment.cluster.gpus)}
    replicas: dict[int, list[StageSpec]] = {}
    attention: dict[int, tuple[int, ...]] = {}
    for place, stage in enumerate(file.stages):
        unknown = next((gpu for gpu in (*stage.gpus, *stage.attention) if gpu not in index), None)
        if not stage.gpus:
            raise InputError(f"stages[{place}]: gpus: empty; a stage needs at least one GPU.")
        if unknown is not None:
            raise InputError(f"stages[{place}]: gpus: {unknown!r} is not a GPU of {deployment.cluster.name}.")
        layers = range(stage.first_layer, stage.last_layer + 1)
        spec = StageSpec(tuple(index[gpu] for gpu in stage.gpus), layers)
        replicas.setdefault(stage.replica, []).append(spec)
        if stage.attention:
            attention[stage.replica] = tuple(index[gpu] for gpu in stage.attention)
    rows = tuple(tuple(stages) for _, stages in sorted(replicas.items()))
    runs_of_first = [stage.layers for stage in rows[0]]
    if any([stage.layers for stage in stages] != runs_of_first for stages in rows[1:]):
        raise InputError("stages: replicas differ in their stages; all must have the same runs of layers.")
    count = len(deployment.model.layers)
    ends = [
        0,
        *(stage.layers.stop for stage in rows[0]),
    ]  # compared as ends: a run may claim a billion layers
    runs = [range(start, stop) for start, stop in pairwise(ends)]
    if ends[-1] != count or [stage.layers for stage in rows[0]] != runs or not all(runs):
        raise InputError(f"stages: they do not hold layers 0 to {count - 1} once each, in order.")
    turns, apart = file.layout.get("micro_batches", 0), None
    if attention or turns:
        sizes = {(len(gpus), len(replicas[number][0].gpus)) for number, gpus in attention.items()}
        if len(attention) < len(rows) or len(sizes) > 1 or len(rows[0]) > 1 or not turns:
            raise InputError(
                "stages: attention: apart from the experts each replica has one stage, as many GPUs of both kinds as "
                "the others, and micro_batches in layout."
            )
        apart = Apart(tuple(gpus for _, gpus in sorted(attention.items())), turns)
    stored = file.layout
    return Layout(
        rows, stored["tp"], stored.get("moe_tp", 1), stored.get("dcp", 1), stored.get("pcp", 1), apart
    )


def _check_layout(stored: LayoutPart, plan: Plan) -> None:
    """Reject a layout that was changed in one place alone."""
    for key, value in layout_part(plan).items():
        held = stored.get(key, value)
        if held != value:
            where = (
                "inputs: workload: batch says" if key == "batch_per_gpu" else "stages and layout: tp make it"
            )
            raise InputError(f"layout: {key}: {held:g}, but {where} {value}; make them agree, or plan again.")


def _experts(
    part: ExpertsPart, deployment: Deployment, layout: Layout
) -> tuple[tuple[Assignment | None, ...], dict[int, tuple[Assignment | None, ...]]]:
    """Gather what the first replica holds, and the others that hold something else."""
    moe_layers = deployment.model.moe_layers if layout.moe_tp == 1 else ()
    if moe_layers and part.gpus != [gpu.id for gpu in deployment.cluster.gpus]:
        raise InputError(
            f"experts: gpus: expected the {len(deployment.cluster.gpus)} GPUs of the cluster in its order."
        )
    for layer in moe_layers:
        held = part.layers.get(str(layer))
        if held is None or len(held) != len(part.gpus):
            raise InputError(
                f"experts: layers: {layer}: expected one list for each of {len(part.gpus)} GPUs."
            )
    known: dict[object, tuple[Assignment | None, ...]] = {}
    replicas: list[tuple[Assignment | None, ...]] = []
    for stages in layout.replicas:
        key = tuple(
            tuple(tuple(row[gpu]) for gpu in stage.gpus) for row in part.layers.values() for stage in stages
        )
        if key not in known:
            known[key] = tuple(
                _assignment(part, deployment, layout, index, stage) for index, stage in enumerate(stages)
            )
        replicas.append(known[key])
    return replicas[0], {replica: sets for replica, sets in enumerate(replicas) if sets is not replicas[0]}


def _assignment(
    part: ExpertsPart, deployment: Deployment, layout: Layout, index: int, stage: StageSpec
) -> Assignment | None:
    """Gather the experts of one stage of a replica; every layer must fill the same slots."""
    moe = deployment.model.moe
    ids = [layer for layer in deployment.model.moe_layers if layer in stage.layers]
    if moe is None or not ids or layout.moe_tp > 1:
        return None
    inside = {gpu for stages in layout.replicas for gpu in stages[index].gpus}
    rows: list[list[int]] = []
    counts: list[int] = []
    for layer in ids:
        place, held = f"experts: layers: {layer}", part.layers[str(layer)]
        by_gpu = [held[gpu] for gpu in stage.gpus]
        outside = next((gpu for gpu, experts in enumerate(held) if experts and gpu not in inside), None)
        if outside is not None:
            raise InputError(f"{place}: {part.gpus[outside]} has experts, but its stage lacks that layer.")
        counts = counts or [len(experts) for experts in by_gpu]
        if [len(experts) for experts in by_gpu] != counts:
            raise InputError(f"{place}: its GPUs have other numbers of slots than in layer {ids[0]}.")
        row = [expert for experts in by_gpu for expert in experts]
        extra = next((expert for expert in row if expert >= moe.experts), None)
        if extra is not None:
            raise InputError(f"{place}: expert {extra} does not exist; the model has 0 to {moe.experts - 1}.")
        absent = next(iter(sorted(set(range(moe.experts)).difference(row))), None)
        if absent is not None:
            raise InputError(f"{place}: expert {absent} has no copy.")
        rows.append(row)
    slot_gpu = np.repeat(np.arange(len(stage.gpus), dtype=np.int32), counts)
    return Assignment(np.array(rows, dtype=np.int32), slot_gpu, moe.experts, len(stage.gpus))


def _loads(part: LoadsPart | None, deployment: Deployment) -> ExpertLoads | None:
    moe = deployment.model.moe
    if moe is None:
        return None
    if part is None:
        raise InputError("inputs: loads: missing; a plan with experts includes its loads.")
    try:
        tokens = np.array(part.tokens, dtype=np.float64)
    except ValueError:
        tokens = np.zeros(0)
    shape = (len(deployment.model.moe_layers), moe.experts)
    if tokens.ndim != 3 or tokens.shape[1:] != shape or not np.isfinite(tokens).all() or (tokens < 0).any():
        raise InputError(
            f"inputs: loads: tokens: expected [scenarios, {shape[0]}, {shape[1]}] tokens, none negative."
        )
    if len(part.names) != len(tokens):
        raise InputError(f"inputs: loads: names: {len(part.names)} names for {len(tokens)} scenarios.")
    if not tokens.any(axis=2).all():
        raise InputError("inputs: loads: tokens: a layer has no tokens at all.")
    return ExpertLoads(tokens, tuple(part.names), synthetic=part.synthetic)


def _check_findings(file: PlanPart, plan: Plan) -> None:
    """Reject findings of other loads, of copies that do not rise, and of placements and parts that there are not."""
    names = list(plan.loads.names) if plan.loads else []
    if file.scenarios is not None and (rows := [row.name for row in file.scenarios.rows]) != names:
        raise InputError(
            f"scenarios: rows: of {', '.join(rows)}, but inputs: loads are {', '.join(names) or 'none'}."
        )
    copies = [point.redundant for point in file.redundancy.points] if file.redundancy else []
    if any(later <= earlier for earlier, later in pairwise(copies)):
        raise InputError(f"redundancy: points: {copies} copies; expected rising numbers.")
    report = file.by_traffic
    if report is not None and report.chosen not in [row.placement for row in report.rows]:
        raise InputError(f"by_traffic: chosen: {report.chosen!r} is none of its rows.")
    if file.failures is not None:
        _check_failures(file.failures, plan.deployment)


def _check_failures(failures: Failures, deployment: Deployment) -> None:
    """Reject layers, experts, GPUs, nodes and racks that there are not."""
    model, cluster = deployment.model, deployment.cluster
    for part in ("layers", "experts"):
        for i, row in enumerate(getattr(failures, part)):
            if row.layer not in model.moe_layers:
                raise InputError(
                    f"failures: {part}[{i}]: layer: {model.name} has no experts in layer {row.layer}."
                )
    experts = 0 if model.moe is None else model.moe.experts
    for i, row in enumerate(failures.experts):
        if row.expert >= experts:
            raise InputError(f"failures: experts[{i}]: expert: there is no expert {row.expert}.")
    if bool(failures.experts) != bool(failures.experts_at_risk):
        raise InputError(
            f"failures: experts: it lists {len(failures.experts)} where failures: layers count "
            f"{failures.experts_at_risk} at risk."
        )
    unit = failures.spread  # a layer without experts at risk names none
    named = [(f"layers[{i}]: worst", unit, row.worst) for i, row in enumerate(failures.layers) if row.worst]
    named += [(f"experts[{i}]: domain", unit, row.domain) for i, row in enumerate(failures.experts)]
    for i, tried in enumerate(failures.what_if):
        counts = {len(values) for values in vars(tried.each).values()}
        if len(counts) > 1 or not counts <= {0, tried.tried}:
            raise InputError(
                f"failures: what_if[{i}]: each: it is of {tried.tried} that were tried, each once."
            )
        names = (
            ("worst", tried.worst),
            *((f"each: names[{at}]", name) for at, name in enumerate(tried.each.names)),
        )
        named += [(f"what_if[{i}]: {where}", tried.unit, name) for where, name in names]
    ids = {unit: {domain_name(gpu, unit) for gpu in cluster.gpus} for unit in SPREADS}
    for where, unit, name in named:
        if name not in ids[unit]:
            raise InputError(f"failures: {where}: {name!r} is not a {unit} of {cluster.name}.")
