"""A plan as a terminal shows it: its layout, speed, memory, balance and proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NotRequired

from cost.calibration.errors import errors_in
from cost.model import DenseFfn, MoeFfn
from cost.step.fair_sharing import sharing_words
from cost.step.score import Score
from cost.terms.alltoall_kernel import vector_bytes
from placement.plan import Plan
from placement.plans.findings import LEFT_OUT
from placement.plans.schema import PlanPart, PlanScoreData
from placement.plans.writing import plan_score_to_dict, plan_to_dict
from rackplan.views.blocks import (
    Block,
    Chart,
    Heading,
    Items,
    Table,
    Text,
    View,
    labelled,
    sections,
)
from rackplan.views.charts import balance_chart
from rackplan.views.data import SetFigureData
from rackplan.views.explain import (
    HBM_USES,
    DetailsData,
    Explanation,
    details_blocks,
    largest_first,
)
from rackplan.views.findings import failure_blocks, redundancy_blocks, scenario_blocks
from rackplan.views.money import totals_blocks
from rackplan.views.pipeline import pipeline_blocks
from rackplan.views.provenance import by_dtype
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.token_traffic import token_traffic_blocks, traffic_choice_blocks
from rackplan.views.words import (
    band_words,
    baseline_name,
    cluster_doubts,
    coefficient_words,
    limit_blocks,
    load_blocks,
    phase_words,
    placement_words,
    serving_words,
    what_if_blocks,
    worst_words,
)
from topology.base.units import added, mean_of, plural


@dataclass(frozen=True, kw_only=True)
class PlanPrinted(PlanPart):
    """What ``rackplan plan`` prints: the plan without experts and inputs.

    Attributes
    ----------
    set:
        The figures that were set; absent where none was.
    files:
        What was written, by what it is.
    """

    set: list[SetFigureData] = LEFT_OUT
    files: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ImportedPlanPrinted(PlanPrinted):
    """What ``rackplan import-plan`` prints: the plan that was read.

    Attributes
    ----------
    engine_balancedness:
        Balancedness as the engine of the file splits tokens; null where nothing says how.
    """

    engine_balancedness: float | None


class ScorePrinted(PlanScoreData):
    """What ``rackplan score`` prints: the score of a plan, from its assignment alone.

    Attributes
    ----------
    details:
        With ``--details``: what explains the score.
    set:
        The figures that were set by the user; absent where none was.
    """

    details: NotRequired[DetailsData]
    set: NotRequired[list[SetFigureData]]


def plan_view(plan: Plan, files: Mapping[str, str]) -> View:
    """Return what ``rackplan plan`` says; in the data all but what is bulky."""
    of_file = ("schema_version", "experts", "inputs")
    data = {name: value for name, value in plan_to_dict(plan).items() if name not in of_file}
    written = [*evidence_blocks(plan), Text(", ".join(files.values()), "Written")]
    return View(
        sections(*_costs(plan), balance_blocks(plan), *finding_blocks(plan), written),
        data | set_data(plan.deployment.cluster) | {"files": dict(files)},
    )


def score_view(plan: Plan, found: Explanation | None = None) -> View:
    """Return what ``rackplan score`` says; with what explains it, that instead of the weakest figure alone."""
    balance: list[Block] = []
    if plan.balancedness:
        worst = min(plan.balancedness, key=lambda layer: plan.balancedness[layer])
        balance = labelled(
            "Balancedness",
            f"{mean_of(plan.balancedness.values()):.4f} mean over {len(plan.balancedness)} MoE "
            f"layers; worst {plan.balancedness[worst]:.4f} in layer {worst}",
        )
    data: dict[str, Any] = {**plan_score_to_dict(plan), **set_data(plan.deployment.cluster)}
    if found is not None:
        data["details"] = found.data
    last = [evidence_blocks(plan)] if found is None else details_blocks(found)
    return View(sections(*_costs(plan), balance, token_traffic_blocks(plan), *last), data)


def balance_blocks(plan: Plan) -> list[Block]:
    """Return ours beside the rivals, under the same loads, layout and batch, and what is proven."""
    if not plan.balancedness:
        return []
    rows = [
        _balance_row("imported" if plan.origin == "imported" else "rackplan", plan.balancedness, plan.score)
    ]
    absent = []
    for name, entry in plan.baselines.items():
        if entry.score is None:
            absent.append(f"{baseline_name(name)} does not apply: {entry.reason}")
        else:
            rows.append(_balance_row(baseline_name(name), entry.balancedness, entry.score))
    proof = plan.proof
    proven = (
        f"{proof.status}: largest over mean GPU load{worst_words(plan)} {proof.objective:.4f}, none can be below "
        f"{proof.bound:.4f}: gap {proof.gap:.2%}"
    )
    title = "Balancedness (mean GPU load / max GPU load, mean over MoE layers), same loads, layout and batch:"
    columns = ("placement", "balancedness", "worst layer", "step ms", f"{plan.score.tokens} tok/s/GPU")
    says = "Balancedness of each layer: this plan and its rivals"
    return [
        Heading("Balance of the experts", 2),
        Chart("balance", balance_chart(plan), says, 360),
        Table(columns, rows, title),
        Items(absent),
        Text(proven + ("; INTERRUPTED, the best so far" if plan.interrupted else ""), "Proof"),
        *labelled("Search", plan.search),
    ]


def evidence_blocks(plan: Plan) -> list[Block]:
    """Return the weakest figure that a plan rests on, with the error of each chip that it runs on."""
    deployment = plan.deployment
    reached = [deployment.machine(stage).efficiency for stages in plan.layout.replicas for stage in stages]
    why = list(dict.fromkeys(coefficient_words(one, deployment.workload.phase) for one in reached))
    if plan.loads is not None and plan.loads.synthetic:
        why.append("the loads are synthetic")
    if deployment.workload.what_if:
        why.append("attention is a what-if")
    why = [*filter(None, [cluster_doubts(deployment.cluster)]), *why]
    return labelled("Evidence", f"the weakest figure used is {plan.score.evidence.label}: {'; '.join(why)}.")


def _balance_row(name: str, balancedness: Mapping[int, float], score: Score) -> tuple[str, ...]:
    mean, worst = mean_of(balancedness.values()), min(balancedness.values())
    step = score.step_s * 1e3
    return name, f"{mean:.4f}", f"{worst:.4f}", f"{step:.2f}", f"{score.tok_s_per_gpu:,.0f}"


def finding_blocks(plan: Plan) -> list[list[Block]]:
    """Return what was found about a plan, a list for each finding."""
    return [
        traffic_choice_blocks(plan.by_traffic),
        token_traffic_blocks(plan) if plan.traffic is not None else [],
        scenario_blocks(plan.scenarios),
        failure_blocks(plan.failures, plan.score.tok_s_per_gpu),
        redundancy_blocks(plan.redundancy),
    ]


def _costs(plan: Plan) -> list[list[Block]]:
    """Return what plans and scores have in common: the deployment, the layout, speed, parts, memory."""
    deployment, score = plan.deployment, plan.score
    model = deployment.model
    title = f"{model.name} on {deployment.cluster.name} ({plural(len(deployment.cluster.gpus), 'GPU')})"
    head = [
        Heading(f"{title}, {phase_words(deployment.workload)}"),
        Text(
            f"{model.total_params / 1e9:.1f} B parameters, {model.active_params / 1e9:.1f} B active per token "
            "(with the head, without the input embedding)",
            "Model",
        ),
        *set_blocks("Set", deployment.cluster),
    ]
    parts = Table.of(
        largest_first(score.terms_s),
        ("part of the step", lambda part: part[0].replace("_", " ")),
        ("ms", lambda part: f"{part[1] * 1e3:.2f}"),
        ("share", lambda part: f"{part[1] / score.step_s:.1%}"),
    )
    uses = ", ".join(
        f"{HBM_USES.get(name, name)} {amount / 1e9:.1f}" for name, amount in score.hbm_bytes.items()
    )
    total = added(score.hbm_bytes.values()) / 1e9
    memory = labelled("HBM per GPU", f"{uses}; {total:.1f} GB in all (the fullest GPU)")
    return [
        limit_blocks(plan),
        [*head, *_layout(plan)],
        _speed(plan),
        totals_blocks(plan.totals),
        [parts],
        memory,
    ]


def _layout(plan: Plan) -> list[Block]:
    deployment, layout, score = plan.deployment, plan.layout, plan.score
    model, workload = deployment.model, deployment.workload
    text = layout.describe(moe=model.moe is not None)
    idle = len(deployment.cluster.gpus) - layout.gpus_used
    if idle:
        text += f"; {plural(idle, 'GPU')} idle"
    passed = f"the simplest of those about as good; {plan.passed_over}" if plan.passed_over else ""
    blocks = [*labelled("Layout", text, passed), *pipeline_blocks(plan)]
    kinds = {(entry.slots, entry.gpus): entry for entry, _ in plan.parts()}
    for assignment in kinds.values():
        counts = assignment.slots_per_gpu
        each = str(counts.max()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        blocks += labelled(
            "Experts",
            f"{assignment.experts} in {plural(assignment.slots, 'slot')} per layer ({each} a GPU, "
            f"{assignment.slots - assignment.experts} redundant copies)",
        )
    fits = "the largest that fits" if score.batch == score.max_batch else f"{score.max_batch} fit"
    what = ("sequence" if workload.decodes else "prompt") + "s" * (score.batch != 1)
    loads = plan.loads
    return [
        *blocks,
        *labelled("Placement", placement_words(plan)),
        *labelled("Goal", plan.service_level),
        *labelled("Batch", f"{score.batch} {what} per GPU in use ({fits})"),
        *labelled(
            "Serving", "; ".join(serving_words(replace(workload, sparse_attention=""), deployment.engine))
        ),
        *what_if_blocks(deployment),
        Text(_precision(plan), "Precision"),
        *(Text(note, "") for note in (*deployment.notes, *model.notes)),
        *labelled("Faults", deployment.fabric_note),
        *load_blocks(loads),
        *(Text(note, "") for note in (loads.notes if loads is not None else ())),
    ]


def _precision(plan: Plan) -> str:
    model = plan.deployment.model
    ffns = [layer.ffn for layer in model.kinds]
    held = {
        "experts": model.moe is not None,
        "shared": any(isinstance(ffn, MoeFfn) and ffn.shared_params for ffn in ffns),
        "attention": True,
        "dense": any(isinstance(ffn, DenseFfn) for ffn in ffns),
        "head": True,
    }
    kinds = by_dtype({part: model.precision[part] for part, there in held.items() if there})
    weights = "; ".join(f"{dtype} {', '.join(parts)}" for dtype, parts in kinds.items())
    text = f"weights {weights} ({model.precision_source}); KV cache {plan.deployment.workload.kv_dtype}"
    if model.moe is not None and plan.layout.ep > 1:
        dispatch, combine = vector_bytes(model.expert_hidden, model.precision["experts"])
        text += f"; dispatch {'fp8' if dispatch < combine else 'bf16'}, combine bf16"
    return text


def _speed(plan: Plan) -> list[Block]:
    score = plan.score
    given = len(plan.deployment.cluster.gpus)
    band = band_words(score.tok_s_per_gpu, errors_in(plan.deployment, plan.layout))
    text = f"{score.tok_s_per_gpu:,.0f} {score.tokens} tok/s/GPU{band} over all {plural(given, 'GPU')}"
    if plan.layout.gpus_used != given:
        text += f" ({score.tok_s_per_gpu_used:,.0f} over the {plan.layout.gpus_used} in use)"
    step = f"{_ms(score.step_s)} expected; no schedule beats {_ms(score.lower_step_s)} (pure roofline)"
    if score.tokens_per_step > 1:
        step += f"; {_ms(score.tpot_s)} per output token"
    shares = (f"{name} {seconds / score.step_s:.0%}" for name, seconds in largest_first(score.limits_s))
    return [
        Text(f"{text}; {score.tok_s_per_user:,.1f} {score.tokens} tok/s/user", "Throughput"),
        *labelled("Step time", step, sharing_words(plan.deployment, plan.layout.replicas[0])),
        Text(f"{score.bound_by} (share of the step: {', '.join(shares)})", "Bound by"),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
