"""What a person reads after a command: at most 100 columns, units on every number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from cost.attention.sparse import as_if_sparse, most_tokens_read
from cost.calibration.errors import error_behind, errors_in
from cost.deployment import Deployment
from cost.efficiency import Efficiency
from cost.lecture import model_price_step_context
from cost.model import DenseFfn, MoeFfn
from cost.score import Score
from cost.terms.alltoall_kernel import vector_bytes
from cost.workload import Workload
from placement.compare import cluster_status
from placement.plan import Plan
from rackplan.error_words import band_words, chip_words
from rackplan.findings_summary import failure_lines, placement_words, scenario_lines, worst_words
from rackplan.redundancy_summary import redundancy_lines
from rackplan.words import baseline_name, load_names, table, underlined, wrapped


def plan_summary(plan: Plan, files: Mapping[str, str]) -> str:
    """The summary of ``rackplan plan``."""
    lines = [
        *_head(plan),
        *_layout(plan),
        "",
        *_speed(plan),
        "",
        *_parts(plan.score),
        "",
        *_memory(plan.score),
    ]
    if plan.balancedness:
        lines += ["", *balance_lines(plan), *proof_lines(plan)]
    if plan.scenarios is not None:
        lines += ["", *scenario_lines(plan.scenarios)]
    if plan.failures is not None:
        lines += ["", *failure_lines(plan.failures)]
    if plan.redundancy is not None:
        lines += ["", *redundancy_lines(plan.redundancy)]
    lines += ["", *evidence_lines(plan)]
    lines += wrapped("Written", ", ".join(files.values()))
    return "\n".join(lines)


def score_summary(plan: Plan) -> str:
    """The summary of ``rackplan score``."""
    lines = [
        *_head(plan),
        *_layout(plan),
        "",
        *_speed(plan),
        "",
        *_parts(plan.score),
        "",
        *_memory(plan.score),
    ]
    if plan.balancedness:
        worst = min(plan.balancedness, key=lambda layer: plan.balancedness[layer])
        lines += [
            "",
            *wrapped(
                "Balancedness",
                f"{_mean(plan.balancedness):.4f} mean over {len(plan.balancedness)} MoE "
                f"layers; worst {plan.balancedness[worst]:.4f} in layer {worst}",
            ),
        ]
    return "\n".join([*lines, "", *evidence_lines(plan)])


def _head(plan: Plan) -> list[str]:
    deployment = plan.deployment
    workload, model = deployment.workload, deployment.model
    title = (
        f"{model.name} on {deployment.cluster.name} ({len(deployment.cluster.gpus)} GPUs), "
        f"{phase_words(workload)}"
    )
    parts = (
        f"{model.total_params / 1e9:.1f} B parameters, {model.active_params / 1e9:.1f} B active per token "
        f"(with the head, without the input embedding)"
    )
    return [*underlined(title), *wrapped("Model", parts)]


def _layout(plan: Plan) -> list[str]:
    deployment, layout = plan.deployment, plan.layout
    model = deployment.model
    text = layout.describe(moe=model.moe is not None)
    idle = len(deployment.cluster.gpus) - layout.gpus_used
    if idle:
        text += f"; {idle} GPUs idle"
    lines = wrapped("Layout", text)
    if plan.passed_over:
        lines += wrapped("", f"the simplest of those about as fast; {plan.passed_over}")
    if layout.stages > 1:
        runs = ", ".join(f"{s.layers.start}-{s.layers.stop - 1}" for s in layout.replicas[0])
        lines += wrapped("Stages", f"layers {runs}")
    kinds = {(entry.slots, entry.gpus): entry for entry in plan.experts if entry is not None}
    for assignment in kinds.values():
        counts = assignment.slots_per_gpu
        each = str(counts.max()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        lines += wrapped(
            "Experts",
            f"{assignment.experts} in {assignment.slots} slots per layer ({each} a GPU, "
            f"{assignment.slots - assignment.experts} redundant copies)",
        )
    placing = placement_words(plan)
    lines += wrapped("Placement", placing) if placing else []
    at_most = (
        "the largest that fits" if plan.score.batch == plan.score.max_batch else f"{plan.score.max_batch} fit"
    )
    what = "sequences" if deployment.workload.decodes else "prompts"
    lines += wrapped("Batch", f"{plan.score.batch} {what} per GPU in use ({at_most})")
    asked = serving_words(replace(deployment.workload, sparse_attention=""), deployment.engine)
    lines += wrapped("Serving", "; ".join(asked)) if asked else []
    lines += what_if_lines(deployment)
    lines += wrapped("Precision", _precision(plan))
    for note in (*deployment.notes, *model.notes):
        lines += wrapped("", note)
    if plan.loads is not None:
        warning = ": nobody measured them; give yours with --loads" if plan.loads.synthetic else ""
        lines += wrapped("Loads", load_names(plan.loads.names) + warning)
        for note in plan.loads.notes:
            lines += wrapped("", note)
    return lines


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
    kinds: dict[str, list[str]] = {}
    for part in (part for part, there in held.items() if there):
        kinds.setdefault(model.precision[part], []).append(part)
    weights = "; ".join(f"{dtype} {', '.join(parts)}" for dtype, parts in kinds.items())
    text = f"weights {weights} ({model.precision_source}); KV cache {plan.deployment.workload.kv_dtype}"
    if model.moe is not None and plan.layout.ep > 1:
        dispatch, combine = vector_bytes(model.expert_hidden, model.precision["experts"])
        text += f"; dispatch {'fp8' if dispatch < combine else 'bf16'}, combine bf16"
    return text


def _speed(plan: Plan) -> list[str]:
    score = plan.score
    given = len(plan.deployment.cluster.gpus)
    band = band_words(score.tok_s_per_gpu, errors_in(plan.deployment, plan.layout))
    text = f"{score.tok_s_per_gpu:,.0f} {score.tokens} tok/s/GPU{band} over all {given} GPUs"
    if plan.layout.gpus_used != given:
        text += f" ({score.tok_s_per_gpu_used:,.0f} over the {plan.layout.gpus_used} in use)"
    lines = wrapped("Throughput", f"{text}; {score.tok_s_per_user:,.1f} {score.tokens} tok/s/user")
    step = f"{_ms(score.step_s)} expected; no schedule beats {_ms(score.lower_step_s)} (pure roofline)"
    if score.tokens_per_step > 1:
        step += f"; {_ms(score.tpot_s)} per output token"
    lines += wrapped("Step time", step)
    shares = sorted(score.limits_s.items(), key=lambda item: -item[1])
    said = ", ".join(f"{name} {seconds / score.step_s:.0%}" for name, seconds in shares if seconds > 0)
    return lines + wrapped("Bound by", f"{score.bound_by} (share of the step: {said})")


def _parts(score: Score) -> list[str]:
    rows = [["part of the step", "ms", "share"]]
    for name, seconds in sorted(score.terms_s.items(), key=lambda item: -item[1]):
        if seconds > 0:
            rows.append([name.replace("_", " "), f"{seconds * 1e3:.2f}", f"{seconds / score.step_s:.1%}"])
    return table(rows)


def _memory(score: Score) -> list[str]:
    parts = score.hbm_bytes
    total = sum(parts.values())
    words = {
        "weights": "weights",
        "kv_cache": "KV cache",
        "workspace": "workspace",
        "free": "free",
        "reserved": "reserved",
    }
    said = ", ".join(f"{words[name]} {amount / 1e9:.1f}" for name, amount in parts.items())
    return wrapped("HBM per GPU", f"{said}; {total / 1e9:.1f} GB in all (the fullest GPU)")


def balance_lines(plan: Plan) -> list[str]:
    """Return ours beside the rivals, under the same loads, layout and batch."""
    rows = [["placement", "balancedness", "worst layer", "step ms", f"{plan.score.tokens} tok/s/GPU"]]
    rows.append(
        _balance_row(
            "imported" if plan.options.get("imported") else "rackplan", plan.balancedness, plan.score
        )
    )
    absent = []
    for name, entry in plan.baselines.items():
        word = baseline_name(name)
        if entry.score is None:
            absent.append(f"{word} does not apply: {entry.reason}")
        else:
            rows.append(_balance_row(word, entry.balancedness, entry.score))
    lines = [
        "Balancedness (mean GPU load / max GPU load, mean over MoE layers), same loads, layout and batch:"
    ]
    lines += table(rows)
    for text in absent:
        lines += wrapped("", text)
    return lines


def _balance_row(name: str, balancedness: Mapping[int, float], score: Score) -> list[str]:
    return [
        name,
        f"{_mean(balancedness):.4f}",
        f"{min(balancedness.values()):.4f}",
        f"{score.step_s * 1e3:.2f}",
        f"{score.tok_s_per_gpu:,.0f}",
    ]


def proof_lines(plan: Plan) -> list[str]:
    """Say what is proven: status, objective, bound and gap."""
    proof = plan.proof
    text = (
        f"{proof.status}: largest over mean GPU load{worst_words(plan)} {proof.objective:.4f}, none can be below "
        f"{proof.bound:.4f}: gap {proof.gap:.2%}"
    )
    if plan.interrupted:
        text += "; INTERRUPTED, the best so far"
    return wrapped("Proof", text)


def evidence_lines(plan: Plan) -> list[str]:
    """Return the weakest figure that a plan rests on, with the error of each chip that it runs on."""
    deployment = plan.deployment
    reached = [deployment.machine(stage).efficiency for stages in plan.layout.replicas for stage in stages]
    why = list(dict.fromkeys(coefficient_words(one, deployment.workload.phase) for one in reached))
    if plan.loads is not None and plan.loads.synthetic:
        why.append("the loads are synthetic")
    if deployment.workload.what_if:
        why.append("attention is a what-if")
    doubt = doubts(cluster_status(deployment.cluster))
    if doubt:
        why.insert(0, f"{deployment.cluster.name} is {doubt}")
    return wrapped("Evidence", f"the weakest figure used is {plan.score.evidence.label}: {'; '.join(why)}.")


def coefficient_words(efficiency: Efficiency, phase: str) -> str:
    """Return what the coefficients of kernels and engines rest on, with their error in a phase."""
    if efficiency.ideal:
        return "every part at its data-sheet peak"
    error = error_behind(efficiency, phase)
    if error is None:
        return f"what kernels reach is given for {efficiency.chip}"
    return chip_words(error)


def phase_words(workload: Workload) -> str:
    """Return the phase and its length, as titles print them."""
    if workload.decodes:
        return f"decode at {workload.context:,} tokens of context"
    return f"prefill of prompts of {workload.context:,} tokens"


def next_token(workload: Workload) -> str:
    """Return the token that a step of this phase yields to a request."""
    return "next token" if workload.decodes else "first token"


def serving_words(workload: Workload, engine: str) -> list[str]:
    """Return what was asked of the serving besides phase and batch: drafts, overlap, the engine."""
    found = []
    if workload.draft_tokens:
        plural = "s" * (workload.draft_tokens > 1)
        text = f"{workload.draft_tokens} draft token{plural} a step, which yields {workload.accept_length:.3g} tokens"
        found.append(text)
    if workload.overlap:
        found.append("two half batches take turns at computing and sending")
    if workload.sparse_attention:
        found.append(_sparse_words(workload))
    if engine:
        found.append(f"fixed delays of {engine}")
    return found


def _sparse_words(workload: Workload) -> str:
    """Return what is supposed of attention, and from which context on it reads less than dense attention."""
    most, context = most_tokens_read(workload.sparse_attention), workload.context
    read, fewer = (math.sqrt(context), 2) if most is None else (min(context, most), most + 1)
    rule = "the square root of the context" if most is None else f"at most {most:,}"
    return (
        f"attention as if sparse (what-if, nobody measured it): a query reads {read:,.0f} of {context:,} cached "
        f"tokens ({rule}), fewer than dense attention from {fewer:,} tokens on; all stay cached"
    )


def what_if_words(deployment: Deployment) -> str:
    """Return the context at which caches overtake weights, as supposed and dense; empty without a what-if."""
    if not deployment.workload.sparse_attention:
        return ""
    gpu, kv_dtype = deployment.cluster.spec.domains[0].gpu, deployment.workload.kv_dtype
    sparse, dense = (
        model_price_step_context(model, gpu, kv_dtype)
        for model in (deployment.model, as_if_sparse(deployment.model, ""))
    )
    here = f"from {sparse:,.0f} tokens of context on" if math.isfinite(sparse) else "at no context"
    there = f"from {dense:,.0f} on" if math.isfinite(dense) else "at none"
    return (
        f"caches take longer to read than weights {here} (dense: {there}) on {gpu.name}, at the batch that balances "
        "computing and reading the weights"
    )


def what_if_lines(deployment: Deployment) -> list[str]:
    """Return what is supposed as a paragraph; nothing where nothing is."""
    if not deployment.workload.what_if:
        return []
    return wrapped("What if", f"{_sparse_words(deployment.workload)}; {what_if_words(deployment)}")


def doubts(status: str) -> str:
    """Return why figures of a machine of this ``status`` are not those of one that runs; empty if they are."""
    if "hypothetical" in status:
        return "hypothetical: nobody has announced such a machine"
    return "announced, not shipping" if "announced" in status else ""


def _mean(balancedness: Mapping[int, float]) -> float:
    return sum(balancedness.values()) / len(balancedness)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
