"""Blocks shared by several views: limits, what-if, recipes, loads, errors."""

from __future__ import annotations

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from placement.plan import Plan
from rackplan.report.notes import _sparse_words, limit_words, load_names, what_if_words
from rackplan.views.blocks import Block, Text, labelled


def limit_blocks(plan: Plan, name: str = "") -> list[Block]:
    """Return the exceeded limit of a plan, shown first; nothing if the plan meets it."""
    words = limit_words(plan, name)
    return [Text(words, style="missed")] if words else []


def what_if_blocks(deployment: Deployment) -> list[Block]:
    """Return the what-if assumption as a paragraph; nothing without one."""
    if not deployment.workload.what_if:
        return []
    return labelled("What if", f"{_sparse_words(deployment.workload)}; {what_if_words(deployment)}")


def load_blocks(loads: ExpertLoads | None) -> list[Block]:
    """Return the loads in use, with a hint to pass measured ones if they are synthetic."""
    if loads is None:
        return []
    names = load_names(loads.names)
    kind = "" if "synthetic" in names else "synthetic; "
    return labelled("Loads", names + f"; {kind}pass measured loads with --loads" * loads.synthetic)
