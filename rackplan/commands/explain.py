"""``rackplan explain``: what a plan costs, part by part, and what the figures rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag

__all__ = ["NAME", "run"]

NAME = "explain"


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")],
    json: JsonFlag = False,
) -> None:
    """Explain a plan part by part. The step, the memory, what binds, and the weakest figure behind it."""
    from placement.plan_file import read_plan
    from rackplan.explain import explain_plan, explanation_to_dict
    from rackplan.explain_summary import explanation_blocks, print_blocks
    from rackplan.output import print_json

    found = explain_plan(read_plan(plan))
    if json:
        print_json(explanation_to_dict(found))
    else:
        print_blocks(explanation_blocks(found))
