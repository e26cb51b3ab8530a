"""The page of a replay: the policy to take, what it is worth, balance and moves by window, the first plan."""

from __future__ import annotations

from cost.calibration.errors import errors_in
from rackplan.views.blocks import Block, Chart, Heading, Page, Table, Text
from rackplan.views.charts import replay_chart, replay_moves_chart
from rackplan.views.explain import explain_plan, weakest_note
from rackplan.views.forward import forward, machine_words, rests_words, totals_line
from rackplan.views.pictures.experts import expert_map_blocks
from rackplan.views.plan_page import memory_section, step_section
from rackplan.views.provenance import deployment_rows, figures_section, inputs_section
from rackplan.views.replay import (
    Replayed,
    best_words,
    gained_words,
    head_blocks,
    legend_blocks,
    policy_table,
    run_words,
)
from rackplan.views.words import cluster_doubts
from topology.base.units import plural


def replay_page(found: Replayed, command: str) -> list[Block]:
    """Return the page of a replay."""
    plan, result = found.plan, found.result
    title, *rest = head_blocks(found)
    explained = explain_plan(plan)
    doubt = cluster_doubts(plan.deployment.cluster)
    spoken = "; ".join(f"{run_words(found, run)} {run.mean:.3f}" for run in result.runs)
    moved = "; ".join(
        f"{run_words(found, run)} {run.copies_moved:.1%}" for run in result.runs if run.bytes_moved
    )
    inputs = [
        *deployment_rows(plan.deployment, found.loads),
        ("windows", plural(result.windows, "window")),
        ("steps a window", f"{found.steps:,}"),
        ("plan", found.start_words(found.recommendation.best)),
        ("policies", ", ".join(run_words(found, run) for run in result.runs)),
    ]
    details = [block for block in rest if not (isinstance(block, Text) and block.label == "Best")]
    return [
        title,
        forward(_line(found)),
        Text(f"{best_words(found)}.", style="verdict"),
        *([Text(f"{doubt}.", style="verdict")] if doubt else []),
        _ranking(found),
        Heading("Balance from window to window", 2),
        Chart("balance", replay_chart(result), f"Balancedness by window and policy, mean: {spoken}", 500),
        Heading("What they move", 2),
        Chart(
            "moves",
            replay_moves_chart(result),
            f"Part of the copies that each re-plan moves: {moved or 'nothing moves'}",
            420,
        ),
        Heading("In all", 2),
        Page([policy_table(found), *legend_blocks(found)], fold="Every policy as a table"),
        *step_section(explained),
        *memory_section(explained),
        *expert_map_blocks(plan),
        Heading("What was replayed", 2),
        *details,
        *inputs_section(command, inputs),
        *figures_section(explained.figures, [plan.totals], [weakest_note(explained)], explained.assumptions),
    ]


def _line(found: Replayed) -> str:
    """Return the line that is sent on: the policy to take, and what the cluster comes to with it."""
    plan, best = found.plan, found.recommendation.best
    errors = errors_in(plan.deployment, plan.layout)
    totals, bill = plan.totals, plan.deployment.bill
    if totals.tok_s:
        totals = bill.totals(best.tok_s, totals.tokens, phase=totals.phase)
    machine = machine_words(plan.deployment.cluster)
    gain = ""
    if best is not found.baseline:
        gain = f" ({best.tok_s / found.baseline.tok_s - 1:+.2%} tokens against {found.baseline.entry.name})"
    return (
        f"{run_words(found, best)}{gain}: {machine}, {totals_line(totals, errors)}, because the busiest GPU then has "
        f"{1 / best.mean:.2f} times the mean load and {rests_words(errors)}."
    )


def _ranking(found: Replayed) -> Table:
    """Return the policies by tokens, narrow enough for a phone."""
    baseline = found.baseline
    return Table.of(
        sorted(found.result.runs, key=lambda run: -run.tok_s),
        ("policy", lambda run: run_words(found, run)),
        ("balance", lambda run: f"{run.mean:.3f}"),
        ("moved", lambda run: f"{run.copies_moved:.1%}"),
        (
            "tokens gained",
            lambda run: "-" if run is baseline else gained_words(run, baseline).rpartition(" ")[2],
        ),
    )
