"""Blocks shared by several views: limits, what-if, recipes, loads, errors."""

from __future__ import annotations

from collections.abc import Sequence

from cost.calibration.errors import (
    LEAST_ROWS,
    ErrorOf,
)
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.recipe import OtherRecipe
from placement.plan import Plan
from rackplan.report.notes import _sparse_words, limit_words, load_names, what_if_words
from rackplan.views.blocks import GAP, Block, Table, Text, labelled


def limit_blocks(plan: Plan, name: str = "") -> list[Block]:
    """Return the exceeded limit of a plan, shown first; nothing if the plan meets it."""
    words = limit_words(plan, name)
    return [Text(words, style="missed")] if words else []


def what_if_blocks(deployment: Deployment) -> list[Block]:
    """Return the what-if assumption as a paragraph; nothing without one."""
    if not deployment.workload.what_if:
        return []
    return labelled("What if", f"{_sparse_words(deployment.workload)}; {what_if_words(deployment)}")


def other_recipe_blocks(others: Sequence[OtherRecipe]) -> list[Block]:
    """Return the effect of the other recipe on each cluster, where it is large."""
    lines = []
    for name in dict.fromkeys(one.cluster for one in others):
        mine = [one for one in others if one.cluster == name]
        whose = "the recipe of published runs" if mine[0].recipe == "usual" else "the checkpoint's formats"
        speeds = (f" at {one.tok_s_per_user:.4g}" if one.tok_s_per_user else "" for one in mine)
        rates = ", x".join(f"{one.ratio:.2g}{speed}" for one, speed in zip(mine, speeds, strict=True))
        unit = " tok/s/user" if mine[0].tok_s_per_user else ""
        words = f"{whose} (--recipe {mine[0].recipe}: {mine[0].words})"
        lines.append(f"{name} with {words}: tok/s/GPU x{rates}{unit}")
    return labelled("Recipes", *lines)


def load_blocks(loads: ExpertLoads | None) -> list[Block]:
    """Return the loads in use, with a hint to pass measured ones if they are synthetic."""
    if loads is None:
        return []
    names = load_names(loads.names)
    kind = "" if "synthetic" in names else "synthetic; "
    return labelled("Loads", names + f"; {kind}pass measured loads with --loads" * loads.synthetic)


def error_blocks(errors: Sequence[tuple[str, ErrorOf]]) -> list[Block]:
    """Return a table of prediction errors with the name of each and its coefficients, and a legend."""

    def measured(error: ErrorOf, text: str) -> str:
        return "-" if error.rows < LEAST_ROWS else text

    def left_out(error: ErrorOf) -> str:
        out = error.left_out
        return "-" if out is None else f"{out.median:.1%}, {out.within_20_percent:.0%}"

    table = Table.of(
        errors,
        ("prediction for", lambda one: one[0]),
        ("coefficients of", lambda one: ", for ".join(filter(None, (one[1].chip, one[1].stand_in_for)))),
        ("runs", lambda one: f"{one[1].rows:,}"),
        ("median", lambda one: measured(one[1], f"{one[1].median:.1%}")),
        ("within 20%", lambda one: measured(one[1], f"{one[1].within_20_percent:.0%}")),
        ("chip left out", lambda one: left_out(one[1])),
        ("80% within", lambda one: f"{one[1].band:.2f}x"),
        words=(0, 1),
    )
    return [table, GAP, Text(_table_words([error for _, error in errors]), "Error", style="note")]


def _table_words(errors: Sequence[ErrorOf]) -> str:
    text = "cross-validated on measured runs; the last column is the band of tok/s/GPU that holds 80% of them"
    borrowed = next((error.left_out_chip for error in errors if error.borrowed), "")
    if borrowed:
        text += (
            f"; a chip without its own band has the widest band of a chip left out of the fit ({borrowed})"
        )
    notes = (f"{error.chip}: all runs, {error.note}" for error in errors if error.note)
    return "; ".join([text, *dict.fromkeys(notes)])
