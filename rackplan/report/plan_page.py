"""The report of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from cost.calibration.errors import errors_in
from placement.plan import Plan
from rackplan.error_words import chip_words, factor_words, range_words
from rackplan.explain import Explanation, cache_note, explain_plan, parts_note
from rackplan.explain_summary import PARTS, busy_text
from rackplan.findings_summary import worst_words
from rackplan.report.charts import balance_chart, memory_chart, pareto_chart, step_chart
from rackplan.report.findings_section import failures_section, redundancy_section, scenarios_section
from rackplan.report.html import Markup, element, join, table
from rackplan.report.page import chart, page, tiles
from rackplan.report.points import ReportPoint, frontier, report_points
from rackplan.summary import phase_words, serving_words
from rackplan.words import baseline_name, load_names

MOST_ROWS = 16


def plan_report(
    plan: Plan, drawing: str, *, command: str, sha256: Mapping[str, str], first: Markup | None = None
) -> str:
    """Return the page of a plan; ``drawing`` is the SVG file of the cluster with the plan on it.

    ``first`` is a section that comes before all others: what was done to get the plan.
    """
    found = explain_plan(plan, residual=False)
    redundant = plan.options.get("redundant")
    points = report_points(plan.deployment, redundant if isinstance(redundant, int) else None)
    title = f"{plan.deployment.model.name} on {plan.deployment.cluster.name}"
    return page(
        f"{title} - rackplan",
        element("h1", title),
        element("p", found.verdict, class_="verdict"),
        _key_figures(found),
        _errors(plan),
        first,
        _pareto(found, points),
        _step(found),
        _memory(found),
        _balance(plan) if plan.balancedness else None,
        scenarios_section(plan.scenarios) if plan.scenarios is not None else None,
        failures_section(plan.failures) if plan.failures is not None else None,
        redundancy_section(plan.redundancy) if plan.redundancy is not None else None,
        _picture(drawing),
        _inputs(plan, command, sha256),
        _figures(found),
    )


def _key_figures(found: Explanation) -> Markup:
    plan, score = found.plan, found.plan.score
    tokens = plan.deployment.workload.token_word
    errors = errors_in(plan.deployment, plan.layout)
    band = f" ({range_words(score.tok_s_per_gpu, errors)})" if errors else ""
    shown = [
        (f"{score.tok_s_per_gpu:,.0f}", f"{tokens} tok/s/GPU, all GPUs counted{band}"),
        (f"{score.tok_s_per_user:,.1f}", f"{tokens} tok/s/user"),
        (f"{score.step_s * 1e3:,.2f} ms", "expected step"),
        (f"{score.lower_step_s * 1e3:,.2f} ms", "lower bound, pure roofline"),
        (f"{score.batch:,}", f"sequences per GPU; {score.max_batch:,} fit"),
        (f"{found.left_bytes / 1e9:,.1f} GB", "usable HBM left, fullest GPU"),
    ]
    if plan.balancedness:
        shown.append((f"{_mean(plan.balancedness):.4f}", f"balancedness, proven gap {plan.proof.gap:.2%}"))
    shown.append((score.evidence.label, "weakest evidence used"))
    return tiles(shown)


def _errors(plan: Plan) -> Markup | None:
    """Return how far off the figures may be, chip by chip."""
    errors = errors_in(plan.deployment, plan.layout)
    if not errors:
        return None
    said = "; ".join(chip_words(error) for error in errors)
    return element("p", f"{said[0].upper()}{said[1:]}. Of throughput {factor_words(errors)}.", class_="note")


def _pareto(found: Explanation, points: list[ReportPoint]) -> Markup:
    plan, tokens = found.plan, found.plan.deployment.workload.token_word
    layout = plan.layout.short(moe=plan.deployment.model.moe is not None)
    best = frontier(points)
    shown = (
        best
        if len(best) <= MOST_ROWS
        else [best[i * (len(best) - 1) // (MOST_ROWS - 1)] for i in range(MOST_ROWS)]
    )
    rows = [
        (
            p.layout,
            str(p.batch),
            f"{p.tok_s_per_user:,.1f}",
            f"{p.tok_s_per_gpu:,.0f}",
            f"{p.step_s * 1e3:,.2f}",
            p.bound_by,
        )
        for p in shown
    ]
    columns = ("layout", "batch", "tok/s/user", "tok/s/GPU", "step ms", "bound by")
    return join(
        [
            element("h2", "Throughput against speed per user"),
            chart(
                "pareto",
                pareto_chart(points, plan.score, layout, tokens),
                says=f"{tokens} tok/s/GPU against {tokens} tok/s/user, by layout and batch",
                height=480,
            ),
            element(
                "p",
                f"{tokens.capitalize()} tokens, over all GPUs. Points take experts as perfectly balanced; "
                "the star is this plan with its experts as placed. Layout: EP and TP width, PP stages, x replicas; "
                "batch: sequences per GPU in use.",
                class_="note",
            ),
            table(columns, rows, words=(0, 5), caption="On the frontier"),
        ]
    )


def _step(found: Explanation) -> Markup:
    score = found.plan.score
    parts = [
        (
            row.name.replace("_", " "),
            f"{row.seconds * 1e3:,.3f}",
            f"{row.share:.1%}",
            f"{row.peak_s * 1e3:,.3f}",
            ", ".join(row.bound_by),
            row.evidence.label if row.evidence is not None else "-",
        )
        for row in found.terms
    ]
    limits = [
        (name, f"{seconds * 1e3:,.3f}", f"{seconds / score.step_s:.1%}", busy_text(score, name))
        for name, seconds in sorted(score.limits_s.items(), key=lambda item: -item[1])
        if seconds > 0
    ]
    return join(
        [
            element("h2", "The step"),
            element(
                "p",
                f"Expected {score.step_s * 1e3:,.2f} ms; no schedule of this layout beats "
                f"{score.lower_step_s * 1e3:,.2f} ms (pure roofline, dotted line). Ratio "
                f"{found.step_over_lower:.2f}. In between: every part at its data-sheet peak, one after another.",
            ),
            chart(
                "step",
                step_chart(found),
                says="The step in ms: expected by part, at peaks, and the lower bound",
                height=330,
            ),
            table(
                ("part of the step", "ms", "share", "ms at peak", "bound by", "evidence"),
                parts,
                words=(0, 4, 5),
            ),
            element("p", parts_note(found), class_="note"),
            table(("what the step waits for", "ms", "share", "ms busy at peak"), limits),
        ]
    )


def _memory(found: Explanation) -> Markup:
    plan, score = found.plan, found.plan.score
    total = sum(score.hbm_bytes.values())
    rows = [
        (PARTS.get(use, use), f"{amount:,.0f}", f"{amount / 1e9:,.2f}", f"{amount / total:.1%}")
        for use, amount in score.hbm_bytes.items()
    ]
    rows.append(("in all", f"{total:,.0f}", f"{total / 1e9:,.2f}", "100.0%"))
    return join(
        [
            element("h2", "HBM"),
            chart("memory", memory_chart(score.hbm_bytes), says="HBM of the fullest GPU by use", height=210),
            table(("use", "bytes", "GB", "share"), rows, caption="The fullest GPU"),
            element(
                "p",
                f"{found.left_bytes / 1e9:,.2f} GB are left; the largest batch that fits is {score.max_batch:,} "
                f"sequences per GPU. {cache_note(plan)}",
            ),
        ]
    )


def _balance(plan: Plan) -> Markup:
    rows = [
        (
            "rackplan",
            *_balance_cells(plan.balancedness),
            f"{plan.score.step_s * 1e3:,.2f}",
            f"{plan.score.tok_s_per_gpu:,.0f}",
        )
    ]
    absent = []
    for name, entry in plan.baselines.items():
        word = baseline_name(name)
        if entry.score is None:
            absent.append(element("li", f"{word} does not apply: {entry.reason}"))
        else:
            rows.append(
                (
                    word,
                    *_balance_cells(entry.balancedness),
                    f"{entry.score.step_s * 1e3:,.2f}",
                    f"{entry.score.tok_s_per_gpu:,.0f}",
                )
            )
    proof = plan.proof
    return join(
        [
            element("h2", "Balance of the experts"),
            element(
                "p",
                f"{proof.status}: largest over mean GPU load{worst_words(plan)} {proof.objective:.4f}, none can be "
                f"below {proof.bound:.4f}: gap {proof.gap:.2%}. Rivals under the same loads, layout and batch.",
            ),
            chart(
                "balance",
                balance_chart(plan),
                says="Balancedness of each layer: this plan and its rivals",
                height=360,
            ),
            table(("placement", "mean", "worst layer", "step ms", "tok/s/GPU"), rows),
            element("ul", *absent) if absent else None,
        ]
    )


def _balance_cells(balancedness: Mapping[int, float]) -> tuple[str, str]:
    return f"{_mean(balancedness):.4f}", f"{min(balancedness.values()):.4f}"


def _picture(drawing: str) -> Markup:
    """Inline the SVG, without the prologue that only a file of its own may have."""
    return join(
        [
            element("h2", "The cluster with the plan on it"),
            element("div", Markup(drawing[drawing.index("<svg") :]), class_="drawing"),
        ]
    )


def _inputs(plan: Plan, command: str, sha256: Mapping[str, str]) -> Markup:
    deployment = plan.deployment
    model, workload, cluster = deployment.model, deployment.workload, deployment.cluster
    domains = len(cluster.spec.domains)
    kinds: dict[str, list[str]] = {}
    for part, dtype in model.precision.items():
        if model.moe is None and part in ("experts", "shared", "router"):
            continue
        kinds.setdefault(dtype, []).append(part)
    weights = "; ".join(f"{dtype}: {', '.join(parts)}" for dtype, parts in kinds.items())
    asked = {name: value for name, value in plan.options.items() if value is not None}
    rows = [
        (
            "model",
            f"{model.name}: {model.total_params / 1e9:.1f} B parameters, {model.active_params / 1e9:.1f} B active",
        ),
        ("precision", f"{weights} ({model.precision_source})"),
        ("cluster", f"{cluster.name}: {len(cluster.gpus)} GPUs in {domains} domain{'s' * (domains > 1)}"),
        (
            "workload",
            "; ".join(
                [
                    f"{phase_words(workload)}, KV cache {workload.kv_dtype}",
                    *serving_words(workload, deployment.engine),
                ]
            ),
        ),
        ("batch", f"{workload.batch:,} sequences per GPU in use"),
        ("layout", f"{plan.layout.describe(moe=model.moe is not None)}; {plan.layout.gpus_used} GPUs in use"),
        ("loads", load_names(plan.loads.names) if plan.loads is not None else "none: no routed experts"),
        ("options", ", ".join(f"{name} {value}" for name, value in asked.items())),
        *((f"SHA-256 of {name}", digest) for name, digest in sha256.items()),
        ("command", command),
    ]
    return join([element("h2", "Inputs"), table(("input", "value"), rows, words=(0, 1))])


def _figures(found: Explanation) -> Markup:
    rows = [
        (
            used.of or used.group,
            used.name,
            used.figure.text
            or (f"{used.figure.value:g} {used.figure.unit}" if used.figure.published else "-"),
            used.figure.kind.label,
            used.figure.source,
        )
        for used in found.figures
    ]
    named = ", ".join(used.title for used in found.weakest)
    return join(
        [
            element("h2", "Figures and where they come from"),
            element("p", f"Weakest evidence: {found.plan.score.evidence.label} ({named})."),
            table(("of", "figure", "value", "kind", "source"), rows, words=(0, 1, 3, 4)),
            element("h2", "Assumptions"),
            element("ul", *(element("li", text) for text in found.assumptions)),
        ]
    )


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)
