"""``rackplan explain``: what a plan costs, part by part, and what the figures rest on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag, SparseAttention

NAME = "explain"


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")],
    sparse_attention: SparseAttention = "",
    no_residual: Annotated[
        bool,
        typer.Option(
            "--no-residual", help="Leave out what measured runs near this one took over the physics."
        ),
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Explain a plan part by part. The step, the memory, what binds, and the weakest figure behind it."""
    from placement.plan_file import read_plan
    from placement.scoring import under_sparse_attention
    from rackplan.explain import explain_plan, explanation_to_dict
    from rackplan.explain_summary import explanation_blocks, print_blocks
    from rackplan.output import print_json

    read = read_plan(plan)
    explained = under_sparse_attention(read, sparse_attention) if sparse_attention else read
    found = explain_plan(explained, residual=not no_residual)
    if json:
        print_json(explanation_to_dict(found))
    else:
        print_blocks(explanation_blocks(found))
