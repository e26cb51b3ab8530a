"""The page of a plan: what to send on, what it could be instead, why it is so, and where every figure comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cost.calibration.errors import errors_in
from placement.plan import Plan
from rackplan.views.blocks import Block, Drawing, Heading, Page, Text, Tiles
from rackplan.views.explain import (
    Explanation,
    cache_note,
    explain_plan,
    limit_table,
    memory_table,
    parts_note,
    term_table,
    weakest_note,
)
from rackplan.views.forward import forward, plan_forward
from rackplan.views.money import money_tiles, totals_blocks
from rackplan.views.pareto import plan_pareto
from rackplan.views.pictures.experts import expert_map_blocks
from rackplan.views.pictures.links import link_bars
from rackplan.views.pictures.memory import memory_picture
from rackplan.views.pictures.step import step_picture
from rackplan.views.plan import balance_blocks, finding_blocks
from rackplan.views.provenance import deployment_rows, figures_section, inputs_section
from rackplan.views.words import chip_words, factor_words, limit_blocks, range_words, sentence
from topology.base.units import mean_of, plural


def plan_page(
    plan: Plan,
    drawing: str,
    *,
    command: str,
    sha256: Mapping[str, str],
    first: Sequence[Block] = (),
    line: str = "",
) -> list[Block]:
    """Return the page of a plan; ``drawing`` is the SVG file of the cluster with the plan on it.

    ``first`` is a section that comes before all others, what was done to get the plan; ``line`` is what is sent on,
    where that is not the plan alone.
    """
    found = explain_plan(plan)
    errors = errors_in(plan.deployment, plan.layout)
    near = f"{sentence('; '.join(map(chip_words, errors)))} Of throughput {factor_words(errors)}."
    notes = [weakest_note(found), *([near] if errors else [])]
    return [
        Heading(f"{plan.deployment.model.name} on {plan.deployment.cluster.name}"),
        *limit_blocks(plan),
        forward(line or plan_forward(plan, errors)),
        Text(found.verdict, style="verdict"),
        _key_figures(found),
        *first,
        *plan_pareto(plan),
        *step_section(found),
        *memory_section(found),
        Heading("The cluster with the plan on it", 2),
        Drawing(drawing),
        *expert_map_blocks(plan),
        Heading("Links", 2),
        link_bars(plan),
        *balance_blocks(plan),
        *(block for part in finding_blocks(plan) for block in part),
        Heading("What it costs", 2),
        *totals_blocks(plan.totals),
        *inputs_section(command, _input_rows(plan), sha256),
        *figures_section(found.figures, [plan.totals], notes, found.assumptions),
    ]


def _key_figures(found: Explanation) -> Tiles:
    plan, score = found.plan, found.plan.score
    tokens = plan.deployment.workload.token_word
    errors = errors_in(plan.deployment, plan.layout)
    band = f" ({range_words(score.tok_s_per_gpu, errors)})" if errors else ""
    shown = [
        (f"{score.tok_s_per_gpu:,.0f}", f"{tokens} tok/s/GPU, all GPUs counted{band}"),
        (f"{score.tok_s_per_user:,.1f}", f"{tokens} tok/s/user"),
        (_ms(score.step_s), "expected step"),
        (_ms(score.lower_step_s), "lower bound, pure roofline"),
        (f"{score.batch:,}", f"sequences per GPU; {score.max_batch:,} fit"),
        (f"{found.left_bytes / 1e9:,.1f} GB", "usable HBM left, fullest GPU"),
    ]
    shown += money_tiles(plan.totals)
    if plan.balancedness:
        shown.append(
            (f"{mean_of(plan.balancedness.values()):.4f}", f"balancedness, proven gap {plan.proof.gap:.2%}")
        )
    return Tiles([*shown, (score.evidence.label, "weakest evidence used")])


def step_section(found: Explanation) -> list[Block]:
    """Return the step of a plan as a waterfall, its tables folded."""
    score = found.plan.score
    text = (
        f"Expected {_ms(score.step_s)}, its parts one after another; no schedule of this layout beats "
        f"{_ms(score.lower_step_s)} (pure roofline, dotted line). Ratio {found.step_over_lower:.2f}."
    )
    tables = [term_table(found), Text(parts_note(found), style="note"), limit_table(found)]
    return [Heading("The step", 2), Text(text), step_picture(found), Page(tables, fold="The step as tables")]


def memory_section(found: Explanation) -> list[Block]:
    """Return HBM of the fullest GPU as a bar, its table folded."""
    score = found.plan.score
    left = (
        f"{found.left_bytes / 1e9:,.2f} GB are left; the largest batch that fits is {score.max_batch:,} "
        f"sequences per GPU. {cache_note(found.plan)}"
    )
    table = Page([memory_table(score)], fold="HBM as a table")
    return [Heading("HBM", 2), memory_picture(found.plan), Text(left), table]


def _input_rows(plan: Plan) -> list[tuple[str, str]]:
    asked = ", ".join(f"{name} {value}" for name, value in vars(plan.request).items() if value is not None)
    layout = plan.layout.describe(moe=plan.deployment.model.moe is not None)
    return [
        *deployment_rows(plan.deployment, plan.loads),
        ("batch", f"{plan.deployment.workload.batch:,} sequences per GPU in use"),
        *([("goal", plan.service_level)] if plan.service_level else []),
        ("layout", f"{layout}; {plural(plan.layout.gpus_used, 'GPU')} in use"),
        ("options", asked),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"
