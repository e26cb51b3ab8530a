"""View of a plan on terminals and in reports: layout, speed, step, memory, balance, proof and sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NotRequired

from cost.calibration.errors import errors_in
from cost.model import DenseFfn, MoeFfn
from cost.serving.serving import ONE_POOL, TWO_POOLS
from cost.step.fair_sharing import sharing_words
from cost.step.score import Score
from cost.terms.alltoall_kernel import vector_bytes
from placement.plan import Plan, WholeRequests
from placement.plans.findings import LEFT_OUT
from placement.plans.schema import PlanPart, PlanScoreData
from placement.plans.writing import plan_score_to_dict, plan_to_dict
from placement.under_load import first_token_s
from rackplan.report.notes import (
    accuracy_words,
    band_words,
    baseline_name,
    cluster_doubts,
    coefficient_words,
    measured_words,
    placement_words,
    range_words,
    recipe_lines,
    serving_words,
    title_words,
    worst_words,
)
from rackplan.views.blocks import (
    Block,
    Details,
    Drawing,
    Heading,
    Items,
    Page,
    Table,
    Text,
    Tiles,
    View,
    labelled,
    sections,
)
from rackplan.views.data import SetFigureData, json_data
from rackplan.views.explain import (
    HBM_USES,
    DetailsData,
    Explanation,
    cache_note,
    details_blocks,
    explain_plan,
    largest_first,
    limit_table,
    memory_table,
    parts_note,
    term_table,
    weakest_note,
)
from rackplan.views.findings import failure_blocks, redundancy_blocks, scenario_blocks
from rackplan.views.forward import plan_headline
from rackplan.views.money import money_tiles, rate_words, short_cost, short_power, totals_blocks
from rackplan.views.pipeline import pipeline_blocks
from rackplan.views.provenance import by_dtype, deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.token_traffic import token_traffic_blocks, traffic_choice_blocks
from rackplan.views.words import limit_blocks, load_blocks, what_if_blocks
from topology.base.units import added, mean_of, plural


@dataclass(frozen=True, kw_only=True)
class PlanPrinted(PlanPart):
    """Output of ``rackplan plan``: the plan without experts and inputs.

    Attributes
    ----------
    set:
        The figures that were set; absent where none was.
    files:
        What was written, by what it is.
    requests:
        What the pools serve together, where whole requests were planned; absent where they were not.
    """

    set: list[SetFigureData] = LEFT_OUT
    files: dict[str, str]
    requests: WholeRequests = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class ImportedPlanPrinted(PlanPrinted):
    """Output of ``rackplan import-plan``: the imported plan.

    Attributes
    ----------
    engine_balancedness:
        Balancedness as the engine of the file splits tokens; null where nothing says how.
    """

    engine_balancedness: float | None


class ScorePrinted(PlanScoreData):
    """Output of ``rackplan score``: the score of a plan from its assignment.

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
    """Return the result of ``rackplan plan``; its data leaves out large parts."""
    of_file = ("schema_version", "experts", "inputs")
    data = {name: value for name, value in plan_to_dict(plan).items() if name not in of_file}
    if plan.requests is not None:
        data["requests"] = json_data(plan.requests)
    written = labelled("Written", ", ".join(files.values()))
    return View(
        [*plan_blocks(plan), *written],
        data | set_data(plan.deployment.cluster) | {"files": dict(files)},
    )


def plan_blocks(
    plan: Plan,
    *,
    drawing: str = "",
    command: str = "",
    sha256: Mapping[str, str] | None = None,
    first: Sequence[Block] = (),
    lead: str = "",
) -> list[Block]:
    """Return a plan as shown on a terminal and in the report.

    Only the report has ``drawing``, the SVG file of the cluster with the plan on it; ``command`` and the digests
    ``sha256`` of its inputs; and ``first``, a section before all others that says how the plan was made, which
    ``lead`` says in the headline.
    """
    explained = cache(partial(explain_plan, plan))
    own, other = "", list[list[Block]]()
    if plan.prefill is not None:
        own, beside = "Decode pool", plan.prefill
        parts = [
            _speed(beside),
            step_blocks(beside.score, cache(partial(explain_plan, beside))),
            memory_blocks(beside),
            balance_blocks(beside),
            *finding_blocks(beside),
        ]
        other = [
            [Heading("Prefill pool", 2, folded=True), Text("Prefill pool:"), *_layout(beside)],
            *([_of_prefill(block) for block in part] for part in parts),
        ]
    rest = sections(
        *_costs(plan, explained, own),
        [Page(partial(_cluster, plan, drawing))],
        balance_blocks(plan),
        *finding_blocks(plan),
        *other,
        [
            Heading("Evidence", 2, folded=True),
            *evidence_blocks(plan),
            Page(lambda: inputs_section(command, _input_rows(plan), sha256)),
            Page(lambda: figure_blocks(explained())),
        ],
    )
    return [*_answer(plan, first, lead, hint=plan.origin == "planned"), Details(rest)]


def _of_prefill(block: Block) -> Block:
    """Return a block of the prefill pool; its section is folded, and not taken for that of the decode pool."""
    return (
        replace(block, text=f"Prefill pool: {block.text}", folded=True)
        if isinstance(block, Heading)
        else block
    )


def score_view(plan: Plan, found: Explanation | None = None) -> View:
    """Return the result of ``rackplan score``; with an explanation, all figures instead of the weakest only."""
    data: dict[str, Any] = {**plan_score_to_dict(plan), **set_data(plan.deployment.cluster)}
    if found is not None:
        data["details"] = found.data
    last = [evidence_blocks(plan)] if found is None else details_blocks(found)
    costs = _costs(plan, cache(partial(explain_plan, plan)))
    return View([*_answer(plan), Details(sections(*costs, token_traffic_blocks(plan), *last))], data)


def _answer(plan: Plan, first: Sequence[Block] = (), lead: str = "", *, hint: bool = False) -> list[Block]:
    """Return the summary: layout, throughput, speed, cost, limits and accuracy."""
    found, totals, score, deployment = plan.requests, plan.totals, plan.score, plan.deployment
    moe, work = deployment.model.moe is not None, deployment.workload
    pools = f"{plan.layout.short(moe=moe)}, batch {score.batch:,} per GPU"
    if plan.prefill is not None and found is not None:
        pools = "; ".join(f"{one.role} {one.layout}, batch {one.batch:.4g}" for one in found.pools)
    elif found is not None:
        pools += f", {found.pools[0].batch:.4g} in flight"
    idle = f"; {plural(totals.gpus_idle, 'GPU')} idle" if totals.gpus_idle else ""
    rate = f"{totals.tok_s_per_gpu:,.0f} {totals.tokens} tok/s/GPU"
    band = f" ({range_words(totals.tok_s_per_gpu, plan.errors)})" if plan.errors else ""
    requests = "" if totals.requests_per_s is None else f", {rate_words(totals.requests_per_s)} requests/s"
    whole = f"{rate_words(totals.tok_s)} tok/s{requests} on {plural(totals.gpus, 'GPU')}"
    speed = f"{plan.tok_s_per_user:,.1f} {score.tokens} tok/s/user, step {_ms(plan.step_s)}"
    ttft_s = found.ttft_s if found is not None else score.step_s + score.prefill_s
    if not work.decodes:
        speed = f"first token of one prompt alone after {_ms(first_token_s(plan))}; {speed}"
    if totals.phase == "both":
        speed += f"; first token {ttft_s:,.2f} s, queueing excluded"
    accuracy = [accuracy_words(plan.errors)]
    if plan.balancedness:
        accuracy.append(f"expert placement gap {plan.proof.gap:.2%}")
    if plan.interrupted:
        accuracy.append("INTERRUPTED, best plan so far")
    return [
        *limit_blocks(plan),
        Heading(title_words(plan, hint=hint)),
        Page(lambda: [*plan_headline(plan, lead), *_pareto(plan), _key_figures(plan), *first]),
        Heading("Plan", 2),
        *set_blocks("Set", deployment.cluster),
        Text(f"{pools}{idle}", "Pools" if plan.prefill is not None else "Layout"),
        Text(f"{rate}{band}, {whole}", "Throughput"),
        Text(speed, "Speed"),
        *labelled("Cost", short_cost(totals)),
        *labelled("Power", short_power(totals)),
        *labelled("Limits", _limit_words(plan)),
        *labelled("Alternative", "" if found is None else _instead_words(found)),
        Text("; ".join(accuracy), "Accuracy"),
        *labelled("What if", work.what_if.replace("_", " ")),
    ]


def _limit_words(plan: Plan) -> str:
    """Return the limits, and whether the plan meets them; empty if none is known."""
    found, asked = plan.requests, plan.request
    if found is None:
        if plan.limit_s is None:
            return "none on the time per token" if plan.deployment.workload.decodes else ""
        default = " (default)" * (asked.tpot_s is None and plan.deployment.workload.decodes)
        what = "per token" if plan.deployment.workload.decodes else "per step"
        return f"{'exceeded' if plan.over_limit else 'met'}: {plan.limit_s * 1e3:g} ms {what}{default}"
    limits = [
        f"{words}{' (default)' * (name in found.defaults)}"
        for name, limit, words in (
            ("tpot_s", found.tpot_limit_s, f"{1e3 * (found.tpot_limit_s or 0):g} ms per token"),
            ("ttft_s", found.ttft_limit_s, f"{found.ttft_limit_s or 0:g} s to first token"),
        )
        if limit is not None
    ]
    missed = "; ".join(
        f"{name} {one:.3g} s exceeds {limit:g} s" for name, (one, limit) in found.missed.items()
    )
    words = f"{'not all met' if missed else 'met'}: {', '.join(limits)}" if limits else "none"
    return "; ".join(filter(None, [words, missed, *found.left_out]))


def _instead_words(found: WholeRequests) -> str:
    """Return the throughput of the alternative relative to the plan, and where each is better."""
    ways = found.priced_tok_s_per_gpu
    others = [name for name in (ONE_POOL, TWO_POOLS) if name != found.serving]
    words = [
        f"{name} {ways[name] / ways[found.serving] - 1:+.0%}"
        if name in ways
        else f"{name}: {found.refused or 'no layout meets the limits'}"
        for name in others
    ]
    turns = [f"{name} at {low:,.0f} to {high:,.0f}" for name, low, high in found.turns]
    ahead = f"better: {', '.join(turns)} tok/s/user" if len(turns) > 1 else ""
    return "; ".join(filter(None, [*words, ahead]))


def balance_blocks(plan: Plan) -> list[Block]:
    """Return the placement beside the baselines, under the same loads, layout and batch, and its proof."""
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
    shown = {"imported" if plan.origin == "imported" else "rackplan": plan.balancedness}
    shown |= {
        baseline_name(name): one.balancedness for name, one in plan.baselines.items() if one.balancedness
    }

    def picture() -> list[Block]:
        from rackplan.report.pictures.strips import balance_picture

        return [balance_picture(shown)]

    proof = plan.proof
    proven = (
        f"{proof.status}: largest over mean GPU load{worst_words(plan)} {proof.objective:.4f}, lower bound "
        f"{proof.bound:.4f}: gap {proof.gap:.2%}"
    )
    title = (
        "Balancedness (mean GPU load / max GPU load, mean over MoE layers) at equal loads, layout and batch:"
    )
    columns = ("placement", "balancedness", "worst layer", "step ms", f"{plan.score.tokens} tok/s/GPU")
    return [
        Heading("Expert balance", 2),
        Page(picture),
        Table(columns, rows, title),
        Items(absent),
        Text(proven + ("; INTERRUPTED, best so far" if plan.interrupted else ""), "Proof"),
        *labelled("Search", plan.search),
    ]


def evidence_blocks(plan: Plan) -> list[Block]:
    """Return the weakest figure of a plan, with the prediction error of each of its chips."""
    deployment = plan.deployment
    reached = [deployment.machine(stage).efficiency for stages in plan.layout.replicas for stage in stages]
    why = list(dict.fromkeys(coefficient_words(one, deployment) for one in reached))
    if plan.loads is not None and plan.loads.synthetic:
        why.append("loads are synthetic")
    if deployment.workload.what_if:
        why.append("sparse attention is a what-if")
    weakest = f"{plan.score.evidence.label} (the weakest figure used)"
    return labelled("Evidence", weakest, cluster_doubts(deployment.cluster), *why)


def _balance_row(name: str, balancedness: Mapping[int, float], score: Score) -> tuple[str, ...]:
    mean, worst = mean_of(balancedness.values()), min(balancedness.values())
    step = score.step_s * 1e3
    return name, f"{mean:.4f}", f"{worst:.4f}", f"{step:.2f}", f"{score.tok_s_per_gpu:,.0f}"


def finding_blocks(plan: Plan) -> list[list[Block]]:
    """Return the findings of a plan, a list for each."""
    return [
        traffic_choice_blocks(plan.by_traffic),
        token_traffic_blocks(plan) if plan.traffic is not None else [],
        scenario_blocks(plan.scenarios),
        failure_blocks(plan.failures, plan.score.tok_s_per_gpu),
        redundancy_blocks(plan.redundancy),
    ]


def _costs(plan: Plan, explained: Callable[[], Explanation], own: str = "") -> list[list[Block]]:
    """Return the blocks common to plans and scores: deployment, layout, speed, parts, memory."""
    deployment = plan.deployment
    model = deployment.model
    return [
        [
            Heading("Plan details", 2, folded=True),
            Text(
                f"{model.total_params / 1e9:.1f} B parameters, {model.active_params / 1e9:.1f} B active per token "
                "(with output head, without input embedding)",
                "Model",
            ),
            *([Text(f"{own}:")] if own else []),
            *_layout(plan),
        ],
        _speed(plan),
        totals_blocks(plan.totals),
        step_blocks(plan.score, explained),
        memory_blocks(plan),
    ]


def _pareto(plan: Plan) -> list[Block]:
    from rackplan.views.pareto import plan_pareto

    return plan_pareto(plan)


def _key_figures(plan: Plan) -> Tiles:
    score, tokens, rate = plan.score, plan.deployment.workload.token_word, plan.totals.tok_s_per_gpu
    band = f" ({range_words(rate, plan.errors)})" if plan.errors else ""
    shown = [
        (f"{rate:,.0f}", f"{tokens} tok/s/GPU over all GPUs{band}"),
        (f"{plan.tok_s_per_user:,.1f}", f"{tokens} tok/s/user"),
        (_ms(plan.step_s), "expected step"),
        (_ms(score.lower_step_s), "lower bound (pure roofline)"),
        (f"{score.batch:,}", f"sequences per GPU; {score.max_batch:,} fit"),
        (f"{score.hbm_bytes['free'] / 1e9:,.1f} GB", "usable HBM left on the fullest GPU"),
        *money_tiles(plan.totals),
    ]
    if plan.balancedness:
        balanced = f"{mean_of(plan.balancedness.values()):.4f}"
        shown.append((balanced, f"balancedness, proven gap {plan.proof.gap:.2%}"))
    return Tiles([*shown, (score.evidence.label, "weakest evidence used")])


def step_blocks(score: Score, explained: Callable[[], Explanation]) -> list[Block]:
    """Return the step: in reports a waterfall, with its parts and their bounds as tables."""

    def waterfall() -> list[Block]:
        from rackplan.report.pictures.step import step_picture

        return [step_picture(explained())]

    def details() -> list[Block]:
        found = explained()
        return [term_table(found), Text(parts_note(found), style="note"), limit_table(found)]

    parts = Table.of(
        largest_first(score.terms_s),
        ("part of the step", lambda part: part[0].replace("_", " ")),
        ("ms", lambda part: f"{part[1] * 1e3:.2f}"),
        ("share", lambda part: f"{part[1] / score.step_s:.1%}"),
        fold="Step as a table",
    )
    return [Heading("Step", 2), Page(waterfall), parts, Page(details, fold="Bound of each part")]


def memory_blocks(plan: Plan) -> list[Block]:
    """Return HBM of the fullest GPU: in reports a bar, with its uses as a table."""
    score = plan.score

    def bar() -> list[Block]:
        from rackplan.report.pictures.memory import memory_picture

        left = (
            f"{score.hbm_bytes['free'] / 1e9:,.2f} GB left; the largest batch that fits is {score.max_batch:,} "
            "sequences per GPU"
        )
        table = Page([memory_table(score)], fold="HBM as a table")
        return [memory_picture(plan), *labelled("Free", left), *labelled("Stages", cache_note(plan)), table]

    uses = ", ".join(
        f"{HBM_USES.get(name, name)} {amount / 1e9:.1f}" for name, amount in score.hbm_bytes.items()
    )
    total = added(score.hbm_bytes.values()) / 1e9
    return [
        Heading("HBM", 2),
        *labelled("HBM per GPU", f"{uses}; {total:.1f} GB in total (fullest GPU)"),
        Page(bar),
    ]


def _cluster(plan: Plan, drawing: str) -> list[Block]:
    from rackplan.report.pictures.experts import expert_map_blocks

    drawn = [Heading("Cluster and plan", 2), Drawing(drawing)] if drawing else []
    return [*drawn, *expert_map_blocks(plan)]


def figure_blocks(found: Explanation) -> list[Block]:
    """Return every figure that a plan uses, the weakest, and all assumptions."""
    return figures_section(found.figures, [found.plan.totals], [weakest_note(found)], found.data.assumptions)


def _input_rows(plan: Plan) -> list[tuple[str, str]]:
    given = ", ".join(f"{name} {value}" for name, value in vars(plan.request).items() if value is not None)
    layout = plan.layout.describe(moe=plan.deployment.model.moe is not None)
    return [
        *deployment_rows(plan.deployment, plan.loads),
        ("batch", f"{plan.deployment.workload.batch:,} sequences per GPU in use"),
        *([("goal", plan.service_level)] if plan.service_level else []),
        ("layout", f"{layout}; {plural(plan.layout.gpus_used, 'GPU')} in use"),
        ("options", given),
    ]


def _layout(plan: Plan) -> list[Block]:
    deployment, layout, score = plan.deployment, plan.layout, plan.score
    model, workload = deployment.model, deployment.workload
    text = layout.describe(moe=model.moe is not None)
    idle = len(deployment.cluster.gpus) - layout.gpus_used
    if idle:
        text += f"; {plural(idle, 'GPU')} idle"
    passed = f"the simplest layout within the tolerance; {plan.passed_over}" if plan.passed_over else ""
    blocks = [*labelled("Layout", text, passed), *pipeline_blocks(plan)]
    kinds = {(entry.slots, entry.gpus): entry for entry, _ in plan.parts()}
    for assignment in kinds.values():
        counts = assignment.slots_per_gpu
        each = str(counts.max()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        blocks += labelled(
            "Experts",
            f"{assignment.experts} in {plural(assignment.slots, 'slot')} per layer ({each} per GPU, "
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
        *labelled("Recipe", *recipe_lines(deployment)),
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
        "dense": any(isinstance(ffn, DenseFfn) and ffn.params for ffn in ffns),
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
    step = f"{_ms(score.step_s)} expected; lower bound {_ms(score.lower_step_s)} (pure roofline)"
    if score.tokens_per_step > 1:
        step += f"; {_ms(score.tpot_s)} per output token"
    shares = (f"{name} {seconds / score.step_s:.0%}" for name, seconds in largest_first(score.limits_s))
    return [
        Text(f"{text}; {score.tok_s_per_user:,.1f} {score.tokens} tok/s/user", "Throughput"),
        *labelled("Step time", step, sharing_words(plan.deployment, plan.layout.replicas[0])),
        *labelled("Measured", measured_words(plan)),
        Text(f"{score.bound_by} (share of the step: {', '.join(shares)})", "Bound by"),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
