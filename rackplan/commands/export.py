"""``rackplan export``: a plan in the form that an engine loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import ENGINES, JsonFlag

NAME = "export"


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")],
    to: Annotated[str, typer.Option("--to", metavar="ENGINE", help=f"{ENGINES}.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file; one that exists is left alone.")
    ],
    json: JsonFlag = False,
) -> None:
    """Write a plan in the form that an engine loads. Prints what to start the engine with."""
    from placement.engines.export import export_plan
    from placement.engines.registry import require_engine
    from placement.plan_file import read_plan
    from rackplan.engines_summary import export_json, export_summary
    from rackplan.output import print_json, print_text, require_new, write_new

    engine = require_engine(to, "--to")
    require_new(output)
    exported = export_plan(read_plan(plan), engine, str(output))
    write_new(output, exported.text.encode())
    if json:
        print_json(export_json(exported))
    else:
        print_text(export_summary(exported))
