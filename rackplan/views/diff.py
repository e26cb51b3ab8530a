"""Two plans side by side: what differs, what moves from one to the other, and findings of one alone."""

from __future__ import annotations

from collections.abc import Sequence

from placement.analysis.failures import TOP
from placement.migrate.moved import Moved, moved, why_not_counted
from placement.plan import Plan
from placement.plans.writing import plan_to_dict
from rackplan.schemas.plans import MovedData
from rackplan.views.blocks import Block, Heading, Items, Table, Text, View, labelled, sections
from rackplan.views.diff_rows import (
    Row,
    cost_rows,
    input_rows,
    layout_rows,
    memory_rows,
    prediction_rows,
    row_data,
    term_rows,
)
from rackplan.views.explain import assumptions
from rackplan.views.replan import links_words
from rackplan.views.settings import set_data, set_words
from rackplan.views.words import UNITS
from topology.base.units import plural

_MOST_LAYERS = 9
"""Layers that a terminal lists, those with most moves."""


def diff_view(first: Plan, second: Plan, names: Sequence[str]) -> View:
    """Return what ``rackplan diff`` says of two plans; ``names`` are those of their files."""
    data = [plan_to_dict(plan) for plan in (first, second)]
    inputs = input_rows(first, second, *data)
    layout, predictions, terms = layout_rows(first, second, *data), prediction_rows(*data), term_rows(*data)
    memory, costs = memory_rows(*data), cost_rows(*data)
    why = why_not_counted(first, second)
    moves = None if why else moved(first, second)
    findings = _findings(first), _findings(second)
    alone = tuple(
        [text for text in ours if text not in theirs] for ours, theirs in (findings, findings[::-1])
    )
    unlike = [row for row in inputs if not row.same]
    compared = [*layout, *predictions, *terms, *memory, *costs]
    placed = data[0]["experts"] == data[1]["experts"] and data[0]["stages"] == data[1]["stages"]
    same = placed and not unlike and not any(alone) and all(row.same for row in compared)
    title = f"{_title(first)}, against {_title(second)}" if _title(first) != _title(second) else _title(first)
    head = [
        Heading(f"Two plans: {title}"),
        *labelled("First", str(names[0]), _set(first)),
        *labelled("Second", str(names[1]), _set(second)),
        Text(_verdict(unlike, compared, placed=placed, same=same), "Verdict"),
    ]
    tables = [
        _table("Inputs that differ", unlike, changes=False),
        _table("Layout", layout),
        _table("Predictions", predictions),
        _table("Parts of the step, ms", terms),
        _table("HBM of the fullest GPU", memory),
        _table("Cost and power of the cluster", costs),
    ]
    shown = [] if same else [*tables, _moves(moves, why, first, second), *_alone(alone)]
    return View(
        sections(head, *shown),
        {
            "plans": [
                {
                    "file": str(name),
                    "model": plan.deployment.model.name,
                    "cluster": plan.deployment.cluster.name,
                    **set_data(plan.deployment.cluster),
                }
                for name, plan in zip(names, (first, second), strict=True)
            ],
            "same": same,
            "inputs": row_data(unlike),
            "layout": row_data(layout),
            "predictions": {**row_data(predictions), "terms_s": row_data(terms)},
            "hbm_bytes": row_data(memory),
            "cost": row_data(costs),
            "moves": None if moves is None else _moves_data(moves),
            "moves_missing": why or None,
            "findings": {"first": list(alone[0]), "second": list(alone[1])},
        },
    )


def _set(plan: Plan) -> str:
    words = set_words(plan.deployment.cluster)
    return f"set: {words}" if words else ""


def _title(plan: Plan) -> str:
    return f"{plan.deployment.model.name} on {plan.deployment.cluster.name}"


def _verdict(unlike: Sequence[Row], compared: Sequence[Row], *, placed: bool, same: bool) -> str:
    """Return in a sentence whether, and in what, the plans differ."""
    if same:
        return "the plans are the same: inputs, layout, placement and every prediction"
    parts = [f"{plural(len(unlike), 'input')} differ{'s' * (len(unlike) == 1)}"] if unlike else []
    parts += [] if placed else ["other GPUs hold other layers or experts"]
    parts += [] if all(row.same for row in compared) else ["layout or predictions differ"]
    return "; ".join(parts or ["only what is found about them differs"])


def _table(title: str, rows: Sequence[Row], *, changes: bool = True) -> list[Block]:
    """Return a table of both plans; nothing without rows."""
    if not rows:
        return []
    columns = ("", "first", "second", "change")[: 4 if changes else 3]
    return [
        Table(
            columns, [row.cells[: len(columns)] for row in rows], f"{title}:", words=(0,), ruled=not changes
        )
    ]


def _moves(found: Moved | None, why: str, first: Plan, second: Plan) -> list[Block]:
    """Return what must be fetched to go from the first plan to the second, or why nobody can say."""
    if found is None:
        return labelled("Moves", f"not counted: {why}")
    if not found.moves:
        left = f"; {plural(found.left, 'copy')} no longer needed" if found.left else ""
        return labelled("Moves", f"nothing: every GPU has its experts already{left}")
    text = (
        f"{found.moves:,} of {plural(found.copies, 'copy')} ({found.moves / found.copies:.1%}) "
        f"to go from the first to the "
        f"second, {found.bytes / 1e9:,.1f} GB; {plural(found.left, 'copy')} of the first no longer needed"
    )
    near = (
        "GPUs are the same where their ids are; `rackplan replan` finds a placement that lies near the first"
    )
    rest = "attention, shared and dense weights of GPUs that change stage or TP group are not in it"
    ours, theirs = (
        (plan.layout.tp, [[stage.layers for stage in replica] for replica in plan.layout.replicas[:1]])
        for plan in (first, second)
    )
    most = sorted(found.of_layer.items(), key=lambda item: (-item[1], item[0]))
    shown = [item for item in most if item[1]][:_MOST_LAYERS]
    table = Table.of(
        shown,
        ("layer", lambda item: str(item[0])),
        ("copies", lambda item: f"{item[1]:,}"),
        ("GB", lambda item: f"{item[1] * found.expert_bytes[item[0]] / 1e9:,.2f}"),
        title=f"Layers with most moves ({sum(moves > 0 for _, moves in most)} of {len(most)} have some):",
    )
    return [
        *labelled(
            "Moves", text, links_words(found.transfer, found.moves), near, rest if ours != theirs else ""
        ),
        table,
    ]


def _moves_data(found: Moved) -> MovedData:
    return {
        "moves": found.moves,
        "bytes": found.bytes,
        "copies": found.copies,
        "left": found.left,
        "seconds": found.transfer.seconds,
        "bottleneck": found.transfer.bottleneck,
        "bytes_from": dict(found.transfer.bytes_by_distance),
        "by_layer": {str(layer): moves for layer, moves in found.of_layer.items()},
    }


def _findings(plan: Plan) -> list[str]:
    """Return what is found about a plan, in sentences."""
    found = list(assumptions(plan))
    if plan.passed_over:
        found.append(f"Passed over: {plan.passed_over}.")
    failures = plan.failures
    if failures is not None and failures.experts_at_risk:
        found.append(
            f"One {UNITS[failures.spread]} that fails takes all copies of "
            f"{plural(failures.experts_at_risk, 'expert')}, with "
            f"{failures.share_at_risk:.1%} of the tokens."
        )
    found += [f"Missing: {text}" for text in plan.totals.missing]
    return found


def _alone(alone: Sequence[Sequence[str]]) -> list[list[Block]]:
    """Return the findings of one plan alone."""
    return [
        [Text(f"Only of the {which}:"), Items(texts[:TOP], hanging=True)]
        for which, texts in zip(("first", "second"), alone, strict=True)
        if texts
    ]
