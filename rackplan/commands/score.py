"""``rackplan score``: score a plan again, under its own loads or others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag, Loads, SparseAttention, Windows

NAME = "score"


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")],
    loads: Loads = None,
    windows: Windows = None,
    sparse_attention: SparseAttention = "",
    json: JsonFlag = False,
) -> None:
    """Score a plan again, under its loads or others.

    From its assignment alone: the solver's own figures are not used.
    """
    from dataclasses import replace

    from placement.plan_file import plan_score_to_dict, read_plan
    from placement.scoring import score_placement, under_sparse_attention
    from rackplan.inputs import model_loads
    from rackplan.output import print_json, print_text
    from rackplan.summary import score_summary

    scored = read_plan(plan)
    if sparse_attention:
        scored = under_sparse_attention(scored, sparse_attention)
    if loads:
        seed = scored.options.get("seed", 0)
        other = model_loads(scored.deployment.model, loads, seed if isinstance(seed, int) else 0, windows)
        score, balancedness = score_placement(
            scored.deployment, scored.layout, scored.experts, other, scored.split
        )
        # what was found under the plan's own loads does not hold for others
        scored = replace(
            scored, loads=other, score=score, balancedness=balancedness, scenarios=None, failures=None
        )
    if json:
        print_json(plan_score_to_dict(scored))
    else:
        print_text(score_summary(scored))
